"""Tables and figures of the Atari study, against numbers worked out by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from feelgood.figures import style
from feelgood.figures.chart import plain
from feelgood.figures.draw import draw
from feelgood.studies.atari import tables as atari
from feelgood.studies.atari.paper import HUMAN, PAPER_SCORES, RANDOM
from feelgood.studies.atari.tables import human_normalised

GAMES = ["alien", "freeway", "gravitar", "hero", "pitfall", "qbert", "solaris", "venture"]


def curve(game, agent, seed, returns, every=400_000):
    """A run whose first evaluation is that of the untrained network."""
    rows = [
        {"game": game, "agent": agent, "seed": seed, "frame": every * i, "return": x} for i, x in enumerate(returns)
    ]
    return pd.DataFrame(rows)


def test_the_papers_table_is_the_printed_one():
    assert list(PAPER_SCORES) == [
        "iqn",
        "bootstrapped_dqn",
        "c51",
        "prioritized_dqn",
        "noisynet_dqn",
        "adam_lmcdqn",
        "ulmcdqn",
        "fg_lmcdqn",
        "fg_ulmcdqn",
    ]
    assert all(list(scores) == GAMES for scores in [HUMAN, RANDOM, *PAPER_SCORES.values()])
    printed = "2030 ± 446, 34 ± 0, 844 ± 312, 14044 ± 1220, -9 ± 9, 14385 ± 579, 1278 ± 851, 1198 ± 198"
    assert ", ".join(f"{score} ± {error}" for score, error in PAPER_SCORES["fg_ulmcdqn"].values()) == printed
    printed = "1799 ± 202, 23 ± 10, 149 ± 37, 14462 ± 1249, -46 ± 16, 9464 ± 880, 1377 ± 423, 23 ± 23"
    assert ", ".join(f"{score} ± {error}" for score, error in PAPER_SCORES["prioritized_dqn"].values()) == printed
    # Sums down the columns of the other rows, worked out apart.
    hero = [11229, 13538, 17500, 14462, 6003, 11366, 15201, 11576, 14044]
    assert [scores["hero"][0] for scores in PAPER_SCORES.values()] == hero
    assert [scores["venture"] for scores in PAPER_SCORES.values()][:6] == [
        (3, 3),
        (12, 12),
        (31, 31),
        (23, 23),
        (24, 21),
        (1326, 92),
    ]
    assert [PAPER_SCORES[agent]["alien"] for agent in ("c51", "ulmcdqn")] == [(1878, 1878), (1999, 687)]
    assert list(HUMAN.values()) == [7128, 30, 3351, 30826, 6464, 13455, 12327, 1188]
    assert list(RANDOM.values()) == [228, 0, 173, 1027, -229, 164, 1263, 0]


def test_human_normalised_scores_are_zero_at_random_play_and_one_at_a_humans():
    assert [human_normalised(game, RANDOM[game]) for game in GAMES] == [0] * 8
    assert [human_normalised(game, HUMAN[game]) for game in GAMES] == [1] * 8
    # (3117.5 + 229)/(6464 + 229)
    assert human_normalised("pitfall", 3117.5) == pytest.approx(0.5)
    assert np.isnan(human_normalised("pong", 21))


def test_scores_of_a_run_leave_out_the_untrained_network():
    returns = [99, *range(1, 13)]  # evaluations 1 to 12
    runs = atari.per_seed(curve("alien", "dqn", 3, returns))
    (run,) = runs.to_dict("records")
    expected = {"game": "alien", "agent": "dqn", "seed": 3, "max": 12, "last_5": 10, "last_10": 7.5, "diverged": False}
    assert run == expected
    # The order of rows does not matter, and a short run is averaged over all its evaluations.
    shuffled = curve("alien", "dqn", 3, returns).sample(frac=1, random_state=0)
    assert atari.per_seed(shuffled).equals(runs)
    assert atari.per_seed(curve("alien", "dqn", 0, [9, 1, 2]))["last_10"].item() == 1.5


def test_a_run_that_diverged_has_a_maximum_but_no_last_evaluations():
    (run,) = atari.per_seed(curve("alien", "dqn", 0, [0, 5, 7, 6, np.nan])).to_dict("records")
    assert run["max"] == 7
    assert np.isnan(run["last_5"])
    assert np.isnan(run["last_10"])
    assert run["diverged"]


def test_a_summary_has_means_over_seeds_with_t_intervals_and_the_papers():
    curves = pd.concat(
        [
            curve("hero", "fg_ulmcdqn", 0, [0, *[10] * 6, *[20] * 5, 50]),
            curve("hero", "fg_ulmcdqn", 1, [0, *[20] * 6, *[30] * 5, 20]),
            curve("hero", "fg_ulmcdqn", 2, [0, 900, np.nan]),
            curve("pong", "dqn", 0, [0, 4, 6]),
        ]
    )
    summary = atari.summarise(curves).set_index("agent")
    row = summary.loc["fg_ulmcdqn"]
    # Maxima 50, 30 and 900; last fives (4·20 + 50)/5 = 26 and (4·30 + 20)/5 = 28; last tens 19 and 25.
    assert row["max"] == pytest.approx(980 / 3)
    assert row["last_5"] == pytest.approx(27)
    assert row["last_10"] == pytest.approx((4 * 10 + 5 * 20 + 50 + 4 * 20 + 5 * 30 + 20) / 20)
    # t quantile of one degree of freedom times half the difference.
    assert row["last_5_ci"] == pytest.approx(12.7062 * 1, rel=1e-4)
    assert row["last_10_ci"] == pytest.approx(12.7062 * 3, rel=1e-4)
    assert row["normalised"] == pytest.approx((22 - 1027) / (30826 - 1027))
    assert (row["paper"], row["paper_ci"]) == (14044, 1220)
    assert (row["seeds"], row["diverged"], row["frames"]) == (3, 1, 12 * 400_000)
    assert summary.loc["dqn", ["normalised", "paper", "published_last_10", "last_10_ci"]].isna().all()


def test_published_curves_count_up_to_as_many_frames_as_ours_have():
    ours = curve("alien", "ulmcdqn", 0, [0, 1, 2])
    theirs = pd.concat(
        [
            curve("alien", "ulmcdqn", 0, [500, 10, 20, 1000]),
            curve("alien", "ulmcdqn", 1, [500, 30, 40, 1000]),
            curve("hero", "ulmcdqn", 0, [7000, 7000, 7000]),
            curve("alien", "dqn", 0, [7000, 7000, 7000]),
        ]
    )
    assert atari.summarise(ours, theirs)["published_last_10"].item() == 25
    assert "| 25.0 |" in atari.as_markdown(atari.summarise(ours, theirs), atari.overall(ours))
    assert "published" not in atari.as_markdown(atari.summarise(ours), atari.overall(ours))


def test_evaluations_are_counted_below_inside_and_above_the_range_of_published_seeds():
    theirs = pd.concat([curve("alien", "ulmcdqn", 0, [0, 20, 40]), curve("alien", "ulmcdqn", 1, [0, 10, 60, 80])])
    ours = pd.concat([curve("alien", "ulmcdqn", 0, [0, 9, 60, 500]), curve("alien", "ulmcdqn", 1, [1, 15, np.nan])])
    # At 1.2 million only one published seed is left, at 1.6 million none; diverged evaluations are not counted.
    assert atari.place_counts(ours, theirs) == {"below": 1, "inside": 3, "above": 2}
    late = curve("alien", "ulmcdqn", 0, [0, 15, 50, 80, 7])
    assert atari.place_counts(late, theirs) == {"below": 0, "inside": 4, "above": 0}
    between = curve("alien", "ulmcdqn", 0, [11, 33, 69, 80])
    between["frame"] += 200_000  # where seed 0 is at 10, 30, and seed 1 at 5, 35, 70
    assert atari.place_counts(between, theirs) == {"below": 1, "inside": 1, "above": 1}
    # Numbers in single precision count as equal.
    assert atari.place_counts(curve("a", "b", 0, [32.2]), curve("a", "b", 3, [float(np.float32(32.2))]))["inside"] == 1
    summary = atari.summarise(ours, theirs)
    assert summary[["below", "inside", "above"]].to_numpy().tolist() == [[1, 3, 2]]
    assert "| 1, 3, 2 |" in atari.as_markdown(summary, atari.overall(ours))
    other = pd.concat([ours, curve("hero", "ulmcdqn", 0, [0, 1])])
    assert atari.summarise(other, theirs).iloc[1][["below", "inside", "above"]].isna().all()


def test_the_interquartile_mean_is_over_all_games_and_seeds_of_agents_that_have_them_all():
    # Normalised scores on alien 0, 0, 1, 1 and on freeway 0.5, 0.5, 0.5, 2.5: the middle half is 0.5, 0.5, 0.5, 1.
    scores = {"alien": [228, 228, 7128, 7128], "freeway": [15, 15, 15, 75]}
    runs = [curve(game, "ulmcdqn", i, [0, x]) for game, values in scores.items() for i, x in enumerate(values)]
    runs += [curve("alien", "dqn", 0, [0, 228]), curve("pong", "ulmcdqn", 0, [0, 1e9])]
    runs += [curve("alien", "c51", i, [0, 228 + i]) for i in range(2)] + [curve("freeway", "c51", 0, [0, 30])]
    table = atari.overall(pd.concat(runs)).set_index("agent")
    assert list(table.index) == ["ulmcdqn", "c51"]
    assert table.loc["ulmcdqn", ["games", "runs"]].tolist() == [2, 8]
    assert table.loc["ulmcdqn", "iqm"] == pytest.approx((0.5 + 0.5 + 0.5 + 1) / 4)
    assert table.loc["ulmcdqn", "mean"] == pytest.approx((0.5 + 1) / 2)
    paper = ((1999 - 228) / (7128 - 228) + 34 / 30) / 2
    assert table.loc["ulmcdqn", "paper_mean"] == pytest.approx(paper)
    assert 0 <= table.loc["ulmcdqn", "iqm_low"] < table.loc["ulmcdqn", "iqm"] < table.loc["ulmcdqn", "iqm_high"] <= 1.5
    # One run of a game: a value without an interval.
    assert table.loc["c51", "mean"] == pytest.approx((0.5 / 6900 + 1) / 2)
    assert table.loc["c51", ["iqm_low", "iqm_high", "mean_low", "mean_high"]].isna().all()


def test_the_page_has_every_number_and_names_diverged_runs():
    curves = pd.concat(
        [
            curve("venture", "fg_ulmcdqn", 0, [0, 100, 200]),
            curve("venture", "fg_ulmcdqn", 1, [0, 300, 400]),
            curve("venture", "dqn", 0, [0, 50, np.nan]),
        ]
    )
    page = atari.as_markdown(atari.summarise(curves), atari.overall(curves))
    cells = "| venture | FG-ULMCDQN | 2 | 0.8M | 300 ± 1,271 | 250 ± 1,271 | 250 ± 1,271 | 21.0% | 1,198 ± 198 |"
    assert cells in page
    assert "| venture | DQN | 1 | 0.8M | 50.0 | – | – | – | – |" in page
    assert "left out of those means: 1 of DQN on venture." in page
    assert "| FG-ULMCDQN | 1 | 2 | 21.0% [12.6%, 29.5%] |" in page


def varied():
    values = {0.1: ([0, 10, 20], [0, 30, 40]), 1.0: ([0, 1, 2], [0, 3, 4])}
    return pd.concat(
        curve("alien", f"ulmcdqn friction={value:g}", seed, returns).assign(parameter="friction", value=value)
        for value, runs in reversed(values.items())
        for seed, returns in enumerate(runs)
    )


def test_sensitivity_has_a_row_for_every_value_in_order():
    table = atari.sensitivity(varied())
    assert table[["game", "agent", "parameter", "value"]].to_numpy().tolist() == [
        ["alien", "ulmcdqn", "friction", 0.1],
        ["alien", "ulmcdqn", "friction", 1.0],
    ]
    assert table["max"].tolist() == [30, 3]
    assert table["last_10"].tolist() == [25, 2.5]
    page = atari.sensitivity_as_markdown(table)
    assert "| alien | ULMCDQN | friction γ | 0.1 | 2 | 0.8M | 30.0 ± 127.1 | 25.0 ± 127.1 | 25.0 ± 127.1 | 0 |" in page


def test_published_curves_are_read_and_frames_that_come_twice_averaged(tmp_path):
    (tmp_path / "a.csv").write_text(
        "seed,agent,game,frame,return,note\n0,dqn,alien,0,5,x\n0,dqn,alien,400,10,x\n0,dqn,alien,400,20,y\n"
    )
    (tmp_path / "b.csv").write_text("agent,game,seed,frame,return\ndqn,alien,1,400,7\n")
    table = atari.read_reference([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert table[["seed", "frame", "return"]].to_numpy().tolist() == [[0, 0, 5], [0, 400, 15], [1, 400, 7]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"reference .*r.csv cannot be read \(No such file or directory\)"),
        ("", r"reference .*r.csv cannot be read \(No columns"),
        ("agent,game,seed,return\n", "must have columns agent, game, seed, frame, return, got 'agent', 'game', 'seed'"),
        ("agent,game,seed,frame,return\ndqn,alien,0,0,much\n", "must hold numbers as 'return', got 'much'"),
    ],
)
def test_a_bad_reference_is_refused_in_one_sentence(tmp_path, text, message):
    if text is not None:
        (tmp_path / "r.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        atari.read_reference([tmp_path / "r.csv"])
    assert "\n" not in str(caught.value)


def test_published_curves_of_the_same_game_and_agent_are_drawn_with_their_range():
    ours = pd.concat(
        [curve(game, "iqn", seed, [0, 10 * seed, 100 * seed**2]) for game in ("alien", "hero") for seed in range(3)]
    )
    theirs = pd.concat(
        [curve("alien", "iqn", seed, [0, seed, 5, 40 + seed]) for seed in range(3)]
        + [curve("alien", "dqn", 0, [1, 1, 1]), curve("qbert", "iqn", 0, [2, 2, 2])]
    )
    chart = atari.curves_and_published(ours, theirs)
    alien, hero = chart.panels
    assert [panel.title for panel in chart.panels] == ["alien", "hero"]
    published, own = alien.series
    assert (own.name, own.x) == ("IQN", [0, 400_000, 800_000])
    np.testing.assert_allclose(own.y, [0, 10, 500 / 3], rtol=1e-4)
    assert own.colour == style.LOOKS["iqn"].colour == published.colour
    assert (published.name, published.dashed, own.dashed) == ("IQN, published", True, False)
    assert published.x == [0, 400_000, 800_000, 1_200_000]
    assert (published.y, published.low, published.high) == ([0, 1, 5, 41], [0, 0, 5, 40], [0, 2, 5, 42])
    assert hero.series == atari.curves_and_published(ours).panels[1].series
    draw(chart).draw_without_rendering()


def test_a_run_that_diverged_ends_there():
    runs = pd.concat([curve("alien", "c51", 0, [0, 3, np.nan]), curve("hero", "c51", 0, [0, 1, 2])])
    alien, hero = atari.curves_and_published(runs).panels
    assert (alien.series[0].y, hero.series[0].y) == ([0, 3], [0, 1, 2])


def test_every_agent_of_the_paper_has_a_published_name_and_a_colour_of_its_own():
    own = {name: style.LOOKS[name] for name in PAPER_SCORES}
    assert len({look.colour for look in own.values()}) == len({look.label for look in own.values()}) == len(own)


def test_the_sensitivity_chart_has_means_and_the_score_of_each_value():
    chart = atari.sensitivity_curves(varied())
    left, right = chart.panels
    assert json.dumps(plain(chart))
    assert [line.name for line in left.series] == ["friction γ = 0.1", "friction γ = 1"]
    assert [line.y for line in left.series] == [[0, 20, 30], [0, 2, 3]]
    assert left.title == "ULMCDQN, alien"
    (scores,) = right.series
    assert (scores.x, scores.y) == ([0.1, 1.0], [25, 2.5])
    assert (right.x_log, right.x_label) == (True, "friction γ")
