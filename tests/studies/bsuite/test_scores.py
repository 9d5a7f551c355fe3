"""Ids, settings, budgets and scores are bsuite's own, recorded by tests/envs/record_bsuite.py."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from feelgood.studies.bsuite.experiments import EXPERIMENTS, LOGGED, read_ids
from feelgood.studies.bsuite.scores import as_markdown, score, summarise
from feelgood.studies.bsuite.scores import chart as chart_of

BSUITE = json.loads((Path(__file__).parents[2] / "envs" / "bsuite.json").read_text())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_ids_and_budgets_are_bsuites(name):
    theirs = BSUITE["sweeps"][name]
    unset = [{key: value for key, value in each.items() if value is not None} for each in theirs["settings"]]
    assert [dict(each) for each in EXPERIMENTS[name].settings] == unset
    assert EXPERIMENTS[name].num_episodes == theirs["episodes"]


def test_runs_are_checked_when_bsuite_logs_them():
    assert BSUITE["logged"] == LOGGED


@pytest.mark.parametrize("case", BSUITE["scores"], ids=lambda case: f"{case['name']}-{case['episode']}")
def test_a_score_is_bsuites(case):
    runs = pd.DataFrame(
        {"episodes": case["episode"], "total_return": case["returns"], "best_episode": case["best"]},
    )
    assert score(case["name"], runs) == pytest.approx(case["score"], abs=1e-12)


@pytest.mark.parametrize(
    "case", BSUITE["solutions"], ids=lambda case: f"{case['windy']}-{case['size']}-{case['solved']}"
)
def test_a_score_of_a_deep_sea_is_bsuites(case):
    runs = pd.DataFrame({"size": [case["size"]], "solved_episode": [np.nan if not case["solved"] else case["solved"]]})
    assert score("deep_sea_stochastic" if case["windy"] else "deep_sea", runs) == case["score"]


def test_a_score_of_several_seas_is_the_share_solved_in_time():
    runs = pd.DataFrame({"size": [2, 2, 10, 10], "solved_episode": [103.0, 104.0, 1000.0, np.nan]})
    assert score("deep_sea", runs) == 0.5


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["catc/0"], r"ids must be one of .*; did you mean 'catch'\?"),
        (["catch/20"], "ids of catch must be catch/0 to catch/19, got 'catch/20'"),
        (["deep_sea/x"], "ids of deep_sea must be deep_sea/0 to deep_sea/20, got 'deep_sea/x'"),
        (["catch/1", "catch"], "ids must not repeat"),
    ],
)
def test_unknown_ids_are_refused_in_one_sentence(ids, message):
    with pytest.raises(ValueError, match=message) as caught:
        read_ids(ids)
    assert "\n" not in str(caught.value)


def bandit_runs(agent, returns):
    """Runs of bandit/0, bandit/1, …, a row of `returns` per seed, after 100 episodes."""
    return pd.DataFrame(
        [
            {"bsuite_id": f"bandit/{i}", "experiment": "bandit", "agent": agent, "seed": seed, "budget_episodes": 100}
            | {"episodes": 100, "total_return": value, "best_episode": 1.0}
            for seed, row in enumerate(returns)
            for i, value in enumerate(row)
        ]
    )


def test_each_seed_has_a_score_and_the_table_names_its_basis():
    runs = pd.concat([bandit_runs("dqn", [[90, 70], [100, 100]]), bandit_runs("ensemble_dqn", [[60, 50], [50, 40]])])
    summary = summarise(runs)
    # Mean regrets of 0.2 and 0, against 0.5; then 0.45 and 0.55, which is worse than chance.
    assert summary["score"].tolist() == pytest.approx([(0.6 + 1) / 2, (0.1 + 0) / 2])
    assert summary["ids"].tolist() == [2, 2]
    text = as_markdown(summary)
    assert "| bandit | basic | 0.80 ± " in text
    assert "| 2 of 20 | 100 of 10,000 |" in text
    assert "are not bsuite scores" in text
    left, right = chart_of(summary).panels
    assert (left.title, right.title) == ("DQN", "Ensemble DQN")
    assert list(left.y_names) == ["bandit"]
    (bar,) = left.series
    assert (list(bar.x), list(bar.low), list(bar.high)) == ([0.8], [0.0], [0.8])
