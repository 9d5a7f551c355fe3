"""The frontier study: rising lengths, two budgets, and no further than two failures."""

import json

import pandas as pd
import pytest

from feelgood.studies import frontier
from feelgood.studies.frontier import FrontierStudy


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": ("fg_ulmcdq",)}, r"agents must be one of .*; did you mean 'fg_ulmcdqn'\?"),
        ({"lengths": (50, 25)}, r"lengths must rise, got \(50, 25\)"),
        ({"lengths": (25, 25)}, "lengths must rise"),
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


def cells_with(num_good):
    """Stands in for `run_cell`: of ten seeds, `num_good[length]` score 9 and the others just less."""
    calls = []

    def cell(output, length, agent, stage, points, seeds, progress, *, num_steps):
        calls.append((agent, length, num_steps))
        assert points == [{}]
        rows = [
            {
                "seed": seed,
                "step": step,
                "return": 9.0 if seed < num_good[length] else 8.99,
                "episodes": 1,
                "successes": 0,
                "first_success": -1,
                "finite": True,
                "length": length,
                "agent": agent,
            }
            for seed in seeds
            for step in (0, 1000)
        ]
        return pd.DataFrame(rows)

    return cell, calls


@pytest.mark.parametrize(
    ("num_good", "tried", "held"),
    [
        ({10: 10, 20: 8, 30: 7, 40: 8, 50: 0}, [10, 20, 30, 40, 50], [True, True, False, True, False]),
        ({10: 10, 20: 7, 30: 7, 40: 10, 50: 10}, [10, 20, 30], [True, False, False]),
        ({10: 0, 20: 0, 30: 10, 40: 10, 50: 10}, [10, 20], [False, False]),
    ],
)
def test_a_length_is_held_by_eight_seeds_in_ten_and_two_failures_in_a_row_are_the_end(
    monkeypatch, tmp_path, num_good, tried, held
):
    cell, calls = cells_with(num_good)
    monkeypatch.setattr(frontier, "run_cell", cell)
    study = FrontierStudy(agents=("dqn",), lengths=tuple(num_good), num_seeds=10, output=tmp_path)
    rows = pd.concat(frontier.follow(study, "dqn", "fixed", None))
    assert [length for _, length, _ in calls] == rows["length"].tolist() == tried
    assert rows["held"].tolist() == held
    assert rows["seeds_at_9"].tolist() == [num_good[n] for n in tried]


def test_a_study_writes_its_table_and_figure_for_both_budgets(monkeypatch, tmp_path):
    cell, calls = cells_with({50: 10, 200: 9})
    monkeypatch.setattr(frontier, "run_cell", cell)
    study = FrontierStudy(agents=("dqn", "lmcdqn"), lengths=(50, 200), num_seeds=10, output=tmp_path)
    shown = []
    paths = frontier.run(study, report=shown.append)
    assert set(calls) == {
        (a, n, s) for a in ("dqn", "lmcdqn") for n, s in ((50, 100_000), (200, 100_000), (200, 200_000))
    }
    table = pd.read_csv(tmp_path / "frontier.csv")
    assert table["budget"].tolist() == ["fixed"] * 4 + ["growing"] * 4
    assert {path.name for path in paths} == {"frontier.csv", "frontier.png", "frontier.pdf"}
    assert shown[0].count("| 200 |") == 4
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is True
    with pytest.raises(ValueError, match="holds another study"):
        frontier.run(FrontierStudy(agents=("dqn",), output=tmp_path))
