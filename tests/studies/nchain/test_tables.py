"""Summaries of the N-chain study on tables made by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feelgood.figures.curves import learning_curves
from feelgood.studies.nchain import tables as charts
from feelgood.studies.nchain.tables import (
    as_markdown,
    frontier_as_markdown,
    interval,
    sensitivity_as_markdown,
    summarise,
)


@pytest.mark.parametrize("n", [2, 3, 8, 200])
def test_the_interval_is_students(n):
    values = np.random.default_rng(0).normal(3, 2, n)
    mean, half_width = interval(values)
    low, high = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    assert mean == pytest.approx(values.mean())
    assert half_width == pytest.approx((high - low) / 2, rel=1e-6)


def test_one_value_has_no_interval_and_none_has_no_mean():
    assert interval([2.0])[0] == 2
    assert np.isnan(interval([2.0])[1])
    assert np.isnan(interval([])[0])


def run(length, agent, seed, initial, returns, *, successes=None, first_success=None, diverged_from=None):
    """The rows of one run with an evaluation every 1000 steps and ten episodes between two."""
    n = len(returns)
    return pd.DataFrame(
        {
            "length": length,
            "agent": agent,
            "seed": seed,
            "step": 1000 * np.arange(n + 1),
            "return": [initial, *returns],
            "episodes": [0] + [10] * n,
            "successes": [0, *(successes or [0] * n)],
            "first_success": [-1, *(first_success or [-1] * n)],
            "finite": [diverged_from is None or i < diverged_from for i in range(n + 1)],
        }
    )


@pytest.fixture
def curves():
    nothing = [0.0] * 12
    runs = [
        # Twelve evaluations; the last ten make the score: (8·10 + 2·0)/10.
        run(
            25,
            "dqn",
            0,
            0.0,
            [0, 0, 0, 0, *[10] * 8],
            successes=[0, 5, *[10] * 10],
            first_success=[-1, 1007, 2500] + [-1] * 9,
        ),
        run(25, "dqn", 1, 10.0, [10, 10, *[4.0] * 10], successes=[10] + [0] * 11, first_success=[33] + [-1] * 11),
        run(25, "dqn", 2, 0.0, nothing, diverged_from=5),
        run(50, "dqn", 0, 0.0, nothing),
        run(50, "dqn", 1, 0.0, nothing),
    ]
    # Order of rows must not matter.
    return pd.concat(runs).sample(frac=1, random_state=0)


def test_a_summary_of_runs_worked_out_by_hand(curves):
    table = summarise(curves).set_index("length")
    row = table.loc[25]
    scores = [8.0, 4.0]  # seed 2 diverged
    assert row["seeds"] == 3
    assert row["score"] == pytest.approx(np.mean(scores))
    assert row["score_ci"] == pytest.approx(interval(scores)[1])
    # Seed 1 went right before it was trained.
    assert row["left_seeds"] == 2
    assert row["left_score"] == pytest.approx(8.0)
    assert np.isnan(row["left_score_ci"])  # of one seed
    assert row["training_success"] == pytest.approx(np.mean([105 / 120, 10 / 120, 0]))
    assert row["ever_succeeds"] == pytest.approx(2 / 3)
    assert row["median_first_success"] == np.median([1007, 33])
    assert row["late_optimal"] == pytest.approx(np.mean([1.0, 0.0, 0.0]))
    assert row["diverged"] == 1
    assert table.loc[50, "score"] == 0
    assert table.loc[50, "ever_succeeds"] == 0
    assert np.isnan(table.loc[50, "median_first_success"])
    assert table.loc[50, "diverged"] == 0


def test_no_seed_left_of_the_start_is_not_a_number_rather_than_an_error():
    table = summarise(run(25, "dqn", 0, 10.0, [10.0] * 12))
    assert table["left_seeds"].tolist() == [0]
    assert np.isnan(table["left_score"]).all()


def test_the_markdown_table_has_a_line_for_each_row_and_a_dash_where_nothing_succeeded(curves):
    *lines, _, short, empty, note = as_markdown(summarise(curves)).splitlines()
    assert len(lines) == 4
    assert empty == ""
    assert short.startswith("Chains of at most 50 states are too short for the feel-good term")
    assert short not in as_markdown(summarise(curves.assign(length=100)))
    assert "if all 2 seeds agree, up to 77.6% of all seeds may differ" in note  # 0.224² = 0.05
    assert len({line.count("|") for line in lines}) == 1
    assert sum("| – |" in line for line in lines) == 1


def test_figures_have_a_panel_for_each_length_and_a_line_for_each_agent(curves):
    panels = learning_curves(curves).panels
    assert [panel.title for panel in panels] == ["N = 25", "N = 50"]
    line = panels[0].series[0]
    assert line.x == list(range(0, 13_000, 1000))
    assert line.y[-1] == pytest.approx((10 + 4) / 2, rel=1e-4)
    score = charts.lengths(summarise(curves)).panels[0].series[0]
    assert dict(zip(score.x, score.y, strict=True)) == pytest.approx({25: 6.0, 50: 0.0})


def test_the_best_agent_comes_first_by_its_published_name_and_ablations_come_apart():
    runs = [run(25, agent, 0, 10.0, [score] * 12) for agent, score in (("dqn", 2.0), ("ulmcdqn", 7.0))]
    runs += [run(25, f"steady_fg_ulmcdqn_no_{part}", 0, 10.0, [9.0] * 12) for part in ("average", "falling_step")]
    text = as_markdown(summarise(pd.concat(runs)))
    first, _, ablations = text.partition("Ablations:")
    names = [line.split("|")[2].strip() for line in first.splitlines() if line.startswith("| 25")]
    assert names == ["ULMCDQN", "DQN"]
    assert "| Steady FG-ULMCDQN, no falling step | 1 | 9.00 | – (0) |" in ablations  # one seed has no interval
    assert "nan" not in text


def test_sensitivity_has_a_table_and_a_panel_for_each_hyper_parameter():
    rows = [
        {
            "agent": agent,
            "parameter": parameter,
            "value": value,
            "score": score,
            "score_ci": 0.5,
            "length": 25,
            "seeds": 4,
        }
        for agent, shift in (("fg_ulmcdqn", 0), ("steady_fg_ulmcdqn", 1))
        for parameter, values in (("feel_good_weight", (0.0, 0.1)), ("friction", (1.0, 10.0)))
        for value, score in zip(values, (3.0 + shift, 8.0 + shift), strict=True)
    ]
    table = pd.DataFrame(rows)
    text = sensitivity_as_markdown(table)
    assert "| feel-good weight λ | 0 | 0.1 |" in text
    assert "| friction γ | 1 | 10 |" in text
    assert text.count("| Steady FG-ULMCDQN | 4.00 ± 0.50 | 9.00 ± 0.50 |") == 2
    weight, friction = charts.sensitivity(table).panels
    assert weight.x_zero == weight.series[0].x[0] == pytest.approx(0.1 / np.sqrt(10), rel=1e-4)
    assert weight.series[0].x[1] == 0.1
    assert friction.x_zero is None
    assert friction.series[0].y == [3, 8]


def test_the_frontier_is_the_longest_chain_held_and_lengths_not_tried_are_dashes():
    facts = [("dqn", "fixed", 25, 20), ("dqn", "fixed", 50, 9), ("dqn", "fixed", 100, 16), ("lmcdqn", "fixed", 25, 3)]
    table = pd.DataFrame(
        [
            {"agent": a, "budget": b, "length": n, "seeds_at_9": good, "seeds": 20, "score": 5.0, "held": good >= 16}
            for a, b, n, good in facts
        ]
    )
    lines = frontier_as_markdown(table).splitlines()
    assert lines[2] == "| DQN | fixed | 100 | 5.00 (20/20) | 5.00 (9/20) | 5.00 (16/20) |"
    assert lines[3] == "| LMCDQN | fixed | none | 5.00 (3/20) | – | – |"
    (panel,) = charts.frontier(table).panels
    line = panel.series[0]
    assert (line.name, line.x, line.y, panel.guides) == ("DQN", [25, 50, 100], [1, 0.45, 0.8], (0.8,))


def test_returns_of_diverged_parameters_do_not_count():
    lost = run(25, "dqn", 1, 0.0, [8.0] * 6 + [10.0] * 6, diverged_from=7)
    table = pd.concat([run(25, "dqn", 0, 0.0, [4.0] * 12), run(25, "dqn", 2, 0.0, [6.0] * 12), lost])
    (row,) = summarise(table).to_dict("records")
    assert (row["seeds"], row["diverged"], row["score"], row["left_score"]) == (3, 1, 5.0, 5.0)
    assert np.isfinite(row["score_ci"])
    assert "Runs that diverged are left out of the scores." in as_markdown(summarise(table))
    assert "left out" not in as_markdown(summarise(table[table["seed"] != 1]))
    (panel,) = learning_curves(table).panels
    assert panel.series[0].y == [0.0, *[6.0] * 6, *[5.0] * 6]
    (panel,) = learning_curves(lost.assign(finite=False)).panels
    assert panel.series[0].y == []
