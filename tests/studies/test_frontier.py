"""The frontier study: rising lengths, two budgets, and no further than two failures."""

import json

import pandas as pd
import pytest

from feelgood.studies import frontier
from feelgood.studies.engine import carry_out, local
from feelgood.studies.frontier import FrontierStudy


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": ("fg_ulmcdq",)}, r"agents must be one of .*; did you mean 'fg_ulmcdqn'\?"),
        ({"lengths": (50, 25)}, r"lengths must increase, got \(50, 25\)"),
        ({"lengths": (25, 25)}, "lengths must increase"),
        ({"lengths": (3, 25)}, "lengths must be a whole number of at least 4, got 3"),
        ({"num_steps": 0}, "num_steps must be a whole number of at least 1000, got 0"),
        ({"num_seeds": -1}, "num_seeds must be a whole number of at least 1, got -1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        FrontierStudy(**settings)
    assert "\n" not in str(caught.value)


def test_one_budget_stays_and_the_other_grows_in_proportion_beyond_a_hundred_states():
    study = FrontierStudy(num_steps=100_000)
    assert [study.steps("fixed", n) for n in (25, 100, 500)] == [100_000] * 3
    assert [study.steps("growing", n) for n in (25, 100, 150, 500)] == [100_000, 100_000, 150_000, 500_000]


def cells_with(fake_runs, num_good):
    """`num_good[length]` of ten seeds score 9 and the others just less; returns the cells that are run."""

    def score(cell, point, seed):
        assert point == {}
        return 9.0 if seed < num_good[int(cell.environment.removeprefix("nchain-"))] else 8.99

    return fake_runs(score)


@pytest.mark.parametrize(
    ("num_good", "tried", "held"),
    [
        ({10: 10, 20: 8, 30: 7, 40: 8, 50: 0}, [10, 20, 30, 40, 50], [True, True, False, True, False]),
        ({10: 10, 20: 7, 30: 7, 40: 10, 50: 10}, [10, 20, 30], [True, False, False]),
        ({10: 0, 20: 0, 30: 10, 40: 10, 50: 10}, [10, 20], [False, False]),
    ],
)
def test_a_length_is_held_by_eight_seeds_in_ten_and_two_failures_in_a_row_are_the_end(
    fake_runs, tmp_path, num_good, tried, held
):
    ran = cells_with(fake_runs, num_good)
    study = FrontierStudy(agents=("dqn",), lengths=tuple(num_good), num_seeds=10)
    ((*rows,),) = carry_out([frontier.plan(study, "dqn", "fixed")], tmp_path, local(tmp_path, None))
    rows = pd.concat(rows)
    assert [cell.environment for cell in ran] == [f"nchain-{length}" for length in tried]
    assert rows["length"].tolist() == tried
    assert rows["held"].tolist() == held
    assert rows["seeds_at_9"].tolist() == [num_good[n] for n in tried]


def test_a_study_writes_its_table_and_figure_for_both_budgets(fake_runs, tmp_path):
    ran = cells_with(fake_runs, {50: 10, 200: 9})
    study = FrontierStudy(agents=("dqn", "lmcdqn"), lengths=(50, 200), num_seeds=10, output=tmp_path)
    shown = []
    paths = frontier.run(study, report=shown.append)
    # At N = 50 both budgets are the same, and run once.
    assert sorted((cell.agent, cell.environment, cell.num_steps) for cell in ran) == [
        (agent, f"nchain-{length}", num_steps)
        for agent in ("dqn", "lmcdqn")
        for length, num_steps in ((200, 100_000), (200, 200_000), (50, 100_000))
    ]
    table = pd.read_csv(tmp_path / "frontier.csv")
    assert table["budget"].tolist() == ["fixed"] * 4 + ["growing"] * 4
    assert {path.name for path in paths} == {"frontier.csv", "frontier.png", "frontier.pdf"}
    assert shown[0].count("| 200 |") == 4
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is True
    with pytest.raises(ValueError, match="holds another study"):
        frontier.run(FrontierStudy(agents=("dqn",), output=tmp_path))
