"""The DeepSea study: it solves a small sea, ends early, resumes, and writes tables and a figure that agree."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from compiled import compiled_once
from feelgood.studies.deepsea import study as module
from feelgood.studies.deepsea import tables
from feelgood.studies.deepsea.study import DeepSeaStudy
from feelgood.studies.deepsea.tables import PUBLISHED
from feelgood.studies.deepsea.tables import chart as deepsea
from feelgood.training import Interrupted, batch


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": ("ensemble",)}, r"agents must be one of .*; did you mean 'ensemble_dqn'\?"),
        ({"sizes": (10, 8)}, r"sizes must increase, got \(10, 8\)"),
        ({"sizes": (1,)}, "sizes must be a whole number of at least 2, got 1"),
        ({"num_episodes": 0}, "num_episodes must be a whole number of at least 1, got 0"),
        ({"num_seeds": 0}, "num_seeds must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        DeepSeaStudy(**settings)
    assert "\n" not in str(caught.value)


def test_the_default_sizes_and_budget_are_those_of_bsuite():
    study = DeepSeaStudy(preset="default")
    assert (study.sizes, study.num_episodes, study.num_seeds) == (tuple(range(10, 51, 2)), 10_000, 20)


@pytest.fixture
def watched(monkeypatch):
    """The calls of `run_batch`; its argument `stop_after`, a list, interrupts the next call after that many chunks."""
    seen = {"chunks": [], "hyper": [], "stop_after": []}

    def run_batch(one, num_chunks, seeds, hyper, *, report, **settings):
        stop_after = seen["stop_after"].pop() if seen["stop_after"] else None

        def spy(progress):
            report(progress)
            seen["chunks"].append(progress.chunk)
            if progress.chunk == stop_after:
                raise Interrupted

        seen["hyper"].append(hyper)
        return real(one, num_chunks, seeds, hyper, report=spy, checkpoint_seconds=0.0, **settings)

    real = batch.run_batch
    monkeypatch.setattr("feelgood.training.run_batch", run_batch)
    with compiled_once({}):  # a test has one sea
        yield seen


def test_a_small_sea_is_solved_and_the_batch_ends_then(watched, tmp_path):
    options = {"sizes": (5,), "agents": ("dqn",), "num_episodes": 1000, "num_seeds": 2}
    shown = []
    paths = module.run(DeepSeaStudy(**options, output=tmp_path / "whole"), report=shown.append)
    runs = pd.read_csv(tmp_path / "whole" / "episodes.csv")
    assert runs["episodes_to_solve"].notna().all()
    assert (runs["episodes_to_solve"] % module.CHECK_PERIOD == 0).all()
    # Of 20 chunks, those until the slower run has solved its size.
    num_chunks = -(-int(runs["episodes_to_solve"].max()) // 50)
    assert watched["chunks"] == list(range(1, num_chunks + 1))
    assert 2 < num_chunks < 20
    assert {path.name for path in paths} == set(module.FILES)
    assert "| 5 | DQN | 2 of 2 |" in shown[0]
    assert json.loads((tmp_path / "whole" / "manifest.json").read_text())["finished"] is True

    # An interrupted study continues to the same result.
    watched["stop_after"].append(2)
    study = DeepSeaStudy(**options, output=tmp_path / "cut")
    with pytest.raises(Interrupted):
        module.run(study, report=lambda _: None)
    assert watched["chunks"][num_chunks:] == [1, 2]
    module.run(study, report=lambda _: None)
    assert watched["chunks"][num_chunks + 2 :] == list(range(2, num_chunks + 1))  # the second chunk was not saved
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "cut" / "episodes.csv"), runs)


def test_unsolved_runs_are_empty_and_mappings_follow_the_seeds_if_requested(watched, tmp_path):
    options = {"sizes": (6,), "agents": ("dqn",), "num_episodes": 10, "seeds": ("3", "7"), "mapping": "per-run"}
    module.run(DeepSeaStudy(**options, windy=True, output=tmp_path), report=lambda _: None)
    runs = pd.read_csv(tmp_path / "episodes.csv")
    assert runs["episodes_to_solve"].isna().all()  # with wind, the first check comes after 100 episodes
    assert runs["seed"].tolist() == [3, 7]
    assert set(runs["environment"]) == {"deep_sea_stochastic"}
    (hyper,) = watched["hyper"]
    for mapping, seed in zip(hyper.environment, (3, 7), strict=True):
        assert np.array_equal(mapping, np.random.RandomState(seed).binomial(1, 0.5, (6, 6)))
    assert not (tmp_path / "deepsea.png").exists()  # nothing to draw, as published counts are without wind


def runs_of(episodes, size, budget=1000):
    return pd.DataFrame(
        {
            "environment": "deep_sea",
            "agent": "dqn",
            "size": size,
            "mapping": "fixed",
            "seed": range(len(episodes)),
            "episodes_to_solve": np.array(episodes, float),
            "budget_episodes": budget,
        }
    )


def test_unsolved_runs_count_as_the_slowest():
    summary = tables.summarise(
        pd.concat([runs_of([100, 200, 300, 400], 10), runs_of([500, np.nan, 100, 300], 12), runs_of([np.nan] * 3, 14)])
    )
    assert summary["solved"].tolist() == [4, 3, 0]
    assert summary["median"].tolist() == [250, 400, np.inf]
    assert summary["low"].tolist() == [175, 250, np.inf]
    assert summary["high"].tolist() == [325, np.inf, np.inf]
    text = tables.as_markdown(summary)
    assert "| 12 | DQN | 3 of 4 | 400 | 250 to > 1,000 | 1,000 |" in text
    assert "| 14 | DQN | 0 of 3 | > 1,000 | > 1,000 to > 1,000 | 1,000 |" in text


def test_the_exponent_is_that_of_a_power_law_with_the_standard_error_of_a_line():
    sizes = np.array([10, 14, 20, 30])
    law = tables.summarise(pd.concat([runs_of([0.5 * size**2.5], size) for size in sizes]))
    assert tables.fit(law) == pytest.approx((0.5, 2.5, 0.0, 4), abs=1e-6)
    medians = np.array([100.0, 210, 290, 800])
    noisy = tables.summarise(pd.concat([runs_of([m], n) for m, n in zip(medians, sizes, strict=True)]))
    line = stats.linregress(np.log(sizes), np.log(medians))
    assert tables.fit(noisy) == pytest.approx((np.exp(line.intercept), line.slope, line.stderr, 4))
    assert np.isnan(tables.fit(noisy.head(2)).error)
    assert tables.fit(noisy.head(1)) is None


def test_the_figure_shows_medians_quartiles_and_published_counts():
    summary = tables.summarise(
        pd.concat([runs_of([100, 200, 300], 10), runs_of([400, 600, np.nan], 20), runs_of([np.nan] * 3, 30)])
    )
    (panel,) = deepsea(summary).panels
    ours, *theirs = panel.series
    assert (list(ours.x), list(ours.y)) == ([10, 20], [200, 600])
    assert (list(ours.low), list(ours.high)) == ([150, 500], [250, 1000])  # an infinite quartile ends at the budget
    assert ours.name == "DQN: N^1.6"
    assert [one.name for one in theirs] == list(PUBLISHED)
    assert theirs[0].y[0] == pytest.approx(316, abs=0.5)
    assert (panel.x_log, panel.y_log) == (True, True)
    assert len(deepsea(summary.assign(environment="deep_sea_stochastic")).panels[0].series) == 1
    with pytest.raises(ValueError, match="need a size that half of the runs have solved, got none"):
        deepsea(summary.tail(1).assign(environment="deep_sea_stochastic"))
