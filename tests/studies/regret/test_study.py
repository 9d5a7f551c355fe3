"""The regret study end to end on a small lock, and its errors."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest

from feelgood.runs import store
from feelgood.studies.regret import parts as regret_parts
from feelgood.studies.regret import study as regret
from feelgood.studies.regret import study as regret_study


def small(output, **options):
    defaults = {
        "mdps": ("lock",),
        "algorithms": ("lsvi_ucb", "lsvi"),
        "num_episodes": 60,
        "num_seeds": 3,
        "tuning_seeds": 1,
        "output": output,
    }
    return regret.RegretStudy(**defaults | options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study's folder, files and output, and the seeds of each of its batches of runs with their algorithm."""
    output = tmp_path_factory.mktemp("regret")
    said, seeds, run = [], [], regret_parts._regrets

    def spy(mdp, algorithm, num_episodes, scales, used):
        seeds.append((algorithm, set(used)))
        return run(mdp, algorithm, num_episodes, scales, used)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regret_parts, "_regrets", spy)
        paths = regret.run(small(output), said.append)
    return output, paths, said, seeds


def test_a_study_leaves_tables_figures_and_a_manifest(finished):
    output, paths, said, _ = finished
    assert {path.name for path in paths} == {"curves.parquet", "curves.png", "curves.pdf", "summary.md"}
    assert all(path.stat().st_size > 0 for path in paths)
    manifest = store.read_manifest(output / "manifest.json")
    assert manifest["finished"]
    assert manifest["spec"]["num_episodes"] == 60
    assert "LSVI-UCB" in said[0]
    table = pd.read_parquet(output / "curves.parquet")
    last = table[table["episode"] == 60]
    assert len(last) == 3 * 3  # tuned and theory for one, nothing to tune for the other
    lost = last[last["algorithm"] == "lsvi"]["regret"]
    assert (lost == 60).all()  # a lock is never opened by chance without exploring
    assert table.groupby(["algorithm", "constants", "seed"])["regret"].apply(lambda r: r.is_monotonic_increasing).all()


def test_the_scales_that_win_on_tuning_seeds_are_reported(finished):
    output = finished[0]
    (path,) = (output / "cells").glob("tune-lock-lsvi_ucb-*.parquet")
    tuning = pd.read_parquet(path)
    table = pd.read_parquet(output / "curves.parquet")
    used = table[(table["algorithm"] == "lsvi_ucb") & (table["constants"] == "tuned")]
    best = tuning.sort_values("regret", kind="stable").iloc[0]
    assert used["noise"].unique() == best["noise"]
    assert used["ridge"].unique() == best["ridge"]


def test_tuning_and_reporting_never_share_a_seed(finished):
    tuning, reporting = (used for algorithm, used in finished[3] if algorithm == "lsvi_ucb")
    assert tuning
    assert reporting == {0, 1, 2}
    assert not tuning & reporting


def test_finished_cells_are_not_run_again(finished, monkeypatch):
    output = finished[0]
    monkeypatch.setattr(regret_parts, "_regrets", lambda *_: pytest.fail("ran again"))
    before = (output / "summary.md").read_text()
    regret.run(small(output), lambda text: None)
    assert (output / "summary.md").read_text() == before


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("curves", "NUM_UPDATES", 1),
        ("exponents", "NUM_UPDATES", 1),
        ("errors", "_MEASURED", {"lmc": (0.5,)}),
        ("errors", "ERROR_STEPS", (2,)),
    ],
)
def test_tables_of_other_constants_have_other_names(tmp_path, monkeypatch, part, name, value):
    files = lambda: {task.file for plan in regret_parts.PLANS[part](small(tmp_path)) for task in next(plan)}
    before = files()
    monkeypatch.setattr(regret_parts, name, value)
    assert not before & files()


@pytest.mark.parametrize("part", regret_study.PARTS)
def test_the_tasks_of_every_part_can_travel_to_another_machine(tmp_path, part):
    first = [next(plan) for plan in regret_parts.PLANS[part](small(tmp_path))]
    tasks = [task for asked in first for task in asked]
    assert tasks
    assert len({task.file for task in tasks}) >= len({task.name for task in tasks})
    for task in tasks:
        again = pickle.loads(pickle.dumps(task.run))
        assert isinstance(again, partial)
        assert again.args == task.run.args


def test_seeds_of_your_own_are_run_in_tables_of_their_own(tmp_path, monkeypatch):
    study = small(tmp_path, algorithms=("lsvi",), seeds=("7", "2-3"))
    assert (study.num_seeds, study.seed_list) == (3, [7, 2, 3])
    for part in ("curves", "exponents", "errors"):
        files = lambda study, part=part: {next(plan)[0].file for plan in regret_parts.PLANS[part](study)}
        assert files(study)
        assert not files(study) & files(small(tmp_path, algorithms=("lsvi",)))
    ((task,),) = [next(plan) for plan in regret_parts.PLANS["curves"](study)]
    zeros = lambda mdp, algorithm, num_episodes, scales, seeds: np.zeros((len(scales), len(seeds), num_episodes))
    monkeypatch.setattr(regret_parts, "_regrets", zeros)
    assert list(task.run(None, None)["seed"].unique()) == [7, 2, 3]


def test_another_study_is_not_overwritten(finished):
    output = finished[0]
    with pytest.raises(ValueError, match="holds another study"):
        regret.run(small(output, num_episodes=80), lambda text: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mdps": ("riverswimm",)}, "mdps must be one of .* did you mean 'riverswim'"),
        ({"algorithms": ("lsvi_ucb", "lsvi_ucb")}, "algorithms must not repeat"),
        ({"parts": ("curve",)}, "did you mean 'curves'"),
        ({"num_episodes": 3}, "num_episodes must be a whole number of at least 20, got 3"),
        ({"num_seeds": 1}, "num_seeds must be a whole number of at least 2, got 1"),
    ],
)
def test_bad_options_are_named(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        small(tmp_path, **options)


def test_names_agree_with_the_library():
    from feelgood.figures.style import LOOKS
    from feelgood.linear import mdps
    from feelgood.linear.algorithms import ALGORITHMS
    from feelgood.linear.table1 import TABLE1
    from feelgood.studies.regret.tables import claimed_exponents

    study = regret_study.RegretStudy(preset="default")
    assert (study.mdps, study.algorithms) == (tuple(mdps.SUITE), tuple(ALGORITHMS))
    assert set(TABLE1) < set(ALGORITHMS) <= set(LOOKS)
    for name in ALGORITHMS:
        claimed = dict(zip("dHT", TABLE1[name].regret, strict=True)) if name in TABLE1 else {}
        assert claimed_exponents(name) == claimed
