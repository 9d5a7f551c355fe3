"""Charts hold the numbers of their tables, and figures hold those of their charts."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feelgood.cli.train import TrainOptions
from feelgood.figures import draw as figures
from feelgood.figures.chart import RANDOM, Chart, Heat, Panel, Series, numbers, strongest
from feelgood.figures.style import colours_of, label
from feelgood.report.kinds import MAKERS, available, make_chart, overlaid, tables_of
from feelgood.report.page import build_report
from feelgood.report.tables import scores_table
from feelgood.runs import store
from feelgood.statistics import final_scores
from folders import write

KINDS = {
    "nchain": ["lengths", "curves", "aggregate", "profiles", "efficiency", "sensitivity", "frontier", "sweep"],
    "regret": ["curves", "profiles", "exponents", "budget", "errors", "complexity"],
    "samplers": ["distances"],
    "atari": ["curves", "profiles"],
}


@pytest.fixture(scope="module")
def tables(studies):
    return {name: tables_of(folder) for name, folder in studies.items()}


@pytest.mark.parametrize(("study", "kind"), [(study, kind) for study, kinds in KINDS.items() for kind in kinds])
def test_every_kind_of_chart_is_made_and_drawn(tables, study, kind):
    chart = make_chart(kind, tables[study])
    assert json.loads(json.dumps(chart))[0] == chart.kind == kind
    assert chart.table == MAKERS[kind].table
    for panel in chart.panels:
        assert panel.heat or panel.series
        for series in panel.series:
            assert len(series.x) == len(series.y) > 0
            assert list(series.x) == sorted(series.x)
            assert series.colour.startswith("#")
            if series.low is not None:
                centre = series.x if panel.y_names else series.y
                assert np.all(np.array(series.low) <= np.array(centre))
                assert np.all(np.array(series.high) >= np.array(centre))
    figure = figures.draw(chart)
    drawn = [axes for axes in figure.axes if axes.axison]
    assert len(drawn) == len(chart.panels)
    for axes, panel in zip(drawn, chart.panels, strict=True):
        assert (axes.get_title(), axes.get_xlabel()) == (panel.title, panel.x_label)
        if panel.heat:
            np.testing.assert_allclose(axes.images[0].get_array(), panel.heat.z)
        elif not panel.y_names:
            for line, series in zip(axes.lines, panel.series, strict=False):
                np.testing.assert_allclose(line.get_xydata(), np.transpose([series.x, series.y]))


def test_names_stand_at_the_ends_of_curves_that_end_apart():
    ends = {"high": 9.0, "close": 8.9, "low": 1.0}
    lines = [Series(name, "#112233", [0.0, 1.0], [0.0, end]) for name, end in ends.items()]
    chart = Chart("x", "", "", "", [Panel("", "x", "y", lines, y_range=(0, 10))])
    figure = figures.draw(chart)
    places = {text.get_text(): text.get_position()[1] for text in figure.axes[0].texts}
    assert not figure.legends
    assert places["low"] == pytest.approx(0.1)  # far from the others, so at its own end
    assert places["high"] + places["close"] == pytest.approx(1.79)  # moved apart by the same amount
    assert places["high"] - places["close"] > 0.05
    same = chart._replace(panels=[chart.panels[0]._replace(series=lines * 5)])
    assert figures.draw(same).legends  # too many at one place
    close = chart._replace(panels=[chart.panels[0]._replace(series=lines[:2])])
    assert figures.draw(close).legends  # names at one place would overlap
    shorter = [*lines, lines[0]._replace(name="stops", x=[0.0, 0.5])]
    assert figures.draw(chart._replace(panels=[chart.panels[0]._replace(series=shorter)])).legends


def test_possible_charts_follow_from_the_columns(tables):
    for study, kinds in KINDS.items():
        assert set(kinds) <= set(available(tables[study]))
    assert available({"curves": pd.DataFrame({"seed": []}), "notes": pd.DataFrame({"x": [1]})}) == {}


def test_a_learning_curve_is_the_mean_over_seeds_with_its_bootstrap_interval(tables):
    curves = tables["nchain"]["curves"]
    panel = make_chart("curves", tables["nchain"]).panels[1]
    assert panel.title == "N = 50"
    series = panel.series[1]
    assert series.name == "DQN"
    rows = curves[(curves["length"] == 50) & (curves["agent"] == "dqn") & (curves["step"] == 3000)]
    found = stats.bootstrap((rows["return"].to_numpy(),), np.mean, method="percentile", n_resamples=20_000, rng=0)
    assert series.y[3] == pytest.approx(rows["return"].mean(), rel=1e-4)
    ends = [found.confidence_interval.low, found.confidence_interval.high]
    # Two thousand draws: the ends are quantiles, with a Monte-Carlo error of a few hundredths of the spread.
    assert [series.low[3], series.high[3]] == pytest.approx(ends, abs=0.1 * (ends[1] - ends[0]))


def test_an_interval_stays_within_the_runs_and_one_seed_has_none(tables):
    curves = tables["atari"]["curves"]
    for panel in make_chart("curves", {"curves": curves}).panels:
        rows = curves[curves["game"] == panel.title]
        assert all(min(line.low) >= numbers([rows["return"].min()])[0] for line in panel.series)
        assert all(max(line.high) <= numbers([rows["return"].max()])[0] for line in panel.series)
    chart = make_chart("curves", {"curves": curves[curves["seed"] == curves["seed"].iloc[0]]})
    assert all(line.low is None and line.high is None for panel in chart.panels for line in panel.series)
    assert chart.note == "One seed, without an interval."


def test_random_actions_have_a_line_of_their_own(tables):
    curves = tables["atari"]["curves"]
    paying = curves.assign(random_return=curves["game"].map({"Alien": 200.0, "Pong": -20.0}))
    for panel, value in zip(make_chart("curves", {"curves": paying}).panels, (200.0, -20.0), strict=True):
        line = panel.series[-1]
        assert (line.name, line.dashed, line.strong, line.y) == ("random actions", True, False, [value] * 2)
        assert line.x == [panel.series[0].x[0], panel.series[0].x[-1]]


def test_the_best_agent_stands_first_among_means_over_all_tasks(tables):
    scores = final_scores(tables["nchain"]["curves"])
    chart = make_chart("aggregate", tables["nchain"])
    order = [label(name) for name in scores.groupby("agent")["score"].mean().sort_values(ascending=False).index]
    assert list(chart.panels[0].y_names) == order
    marks = {series.name: series for series in chart.panels[1].series}
    assert marks["DQN"].x[0] == pytest.approx(scores.loc[scores["agent"] == "dqn", "score"].mean(), rel=1e-4)
    assert marks["DQN"].y[0] == order.index("DQN")


@pytest.fixture(scope="module")
def bandits():
    """Regret of three algorithms on two problems, which grows by 1, 2 and 3 a round and differs by seed."""
    return pd.DataFrame(
        {"problem": p, "algorithm": a, "seed": s, "round": t, "regret": (rate + s) * t * scale, "setting": "x"}
        for p, scale in (("wheel-0.5", 1.0), ("linear-20d", 10.0))
        for a, rate in (("greedy", 3), ("lin_ts", 1), ("lin_ucb", 2))
        for s in (0.0, 0.5)
        for t in (1, 10, 100)
    )


def test_regret_of_bandits_is_drawn_against_rounds_with_a_panel_for_each_problem(bandits):
    first, second = make_chart("curves", {"curves": bandits}).panels
    assert (first.title, second.title, first.x_label, first.x_log) == ("wheel-0.5", "linear-20d", "round", True)
    assert {line.name: line.y for line in second.series}["LinTS"] == [12.5, 125.0, 1250.0]
    assert [line.name for line in first.series if line.strong] == ["LinTS"]


def test_the_least_regret_is_best_in_every_figure(bandits):
    one = {"curves": bandits[bandits["problem"] == "wheel-0.5"]}
    means, _ = make_chart("aggregate", one).panels
    assert list(means.y_names) == ["LinTS", "LinUCB", "greedy"]
    chart = make_chart("profiles", one)
    (panel,) = chart.panels
    assert panel.y_label == "share of runs at most τ"
    ends = {line.name: dict(zip(line.x, line.y, strict=True)) for line in panel.series}
    assert {name: share[350.0] for name, share in ends.items()} == {"LinTS": 1.0, "LinUCB": 1.0, "greedy": 1.0}
    assert {name: share[100.0] for name, share in ends.items()} == {"LinTS": 0.5, "LinUCB": 0.0, "greedy": 0.0}
    assert all(
        low <= y <= high for line in panel.series for low, y, high in zip(line.low, line.y, line.high, strict=True)
    )
    table = scores_table({"curves": bandits})
    assert table.html.index("LinTS") < table.html.index("LinUCB") < table.html.index("greedy")
    assert table.note.startswith("Regret at the last round, averaged over up to 2 seeds")


@pytest.mark.parametrize("kind", ["aggregate", "efficiency"])
@pytest.mark.parametrize(("study", "what"), [("regret", "mdp"), ("atari", "game")])
def test_scores_of_different_units_are_not_averaged(tables, kind, study, what):
    with pytest.raises(ValueError, match=f"needs scores on one scale, and each {what} has its own"):
        make_chart(kind, tables[study])


def test_scores_of_one_task_are_averaged_in_any_unit(tables):
    curves = tables["atari"]["curves"]
    one = curves[curves["game"] == curves["game"].iloc[0]]
    assert make_chart("aggregate", {"curves": one}).panels


def test_diverged_runs_are_reported(tables):
    curves = tables["nchain"]["curves"].copy()
    assert "diverged" not in make_chart("curves", {"curves": curves}).note
    of_dqn = (curves["agent"] == "dqn") & (curves["length"] == 25)
    last = of_dqn & (curves["seed"] == 0) & (curves["step"] == curves["step"].max())
    runs = curves[curves["agent"] == "dqn"].groupby(["length", "seed"]).ngroups
    curves.loc[last, "return"] = np.nan
    for kind, what in (("curves", "count until then"), ("profiles", "are left out"), ("aggregate", "are left out")):
        assert make_chart(kind, {"curves": curves}).note.endswith(f" Runs that diverged {what}: 1 of {runs} of dqn.")


def test_an_agent_that_diverged_on_a_whole_task_is_not_averaged_over_the_others(tables):
    curves = tables["nchain"]["curves"].copy()
    curves.loc[(curves["agent"] == "dqn") & (curves["length"] == 25), "return"] = np.nan
    assert "DQN" in make_chart("aggregate", tables["nchain"]).panels[0].y_names
    assert "DQN" not in make_chart("aggregate", {"curves": curves}).panels[0].y_names


def test_curves_of_mixed_settings_are_not_drawn(tables):
    curves = tables["atari"]["curves"]
    with pytest.raises(ValueError, match="must have one row per run and time, got two of"):
        make_chart("curves", {"curves": pd.concat([curves, curves.assign(feel_good_weight=1.0)])})


def test_agents_without_all_tasks_are_left_out_of_means_over_all_tasks(tables):
    curves = tables["nchain"]["curves"]
    part = curves[(curves["agent"] != "dqn") | (curves["length"] == 25)]
    for kind in ("aggregate", "profiles", "efficiency"):
        names = {series.name for series in make_chart(kind, {"curves": part}).panels[0].series}
        assert "FG-ULMCDQN" in names
        assert "DQN" not in names


def test_a_sweep_shows_the_two_parameters_that_matter_most():
    rows = [
        {"agent": "a", "weak": w, "strong": s, "middling": m, "count": 4, "score": w + 10 * s + 3 * m, "won": w > 0}
        for w in (0, 1)
        for s in (0, 1)
        for m in (0, 1)
    ]
    (panel,) = make_chart("sweep", {"sweep": pd.DataFrame(rows)}).panels
    assert (panel.x_label, panel.y_label) == ("strong", "middling")
    assert panel.heat.z == [[0.5, 10.5], [3.5, 13.5]]  # means over the weak one
    with pytest.raises(ValueError, match="must vary a hyper-parameter"):
        make_chart("sweep", {"sweep": pd.DataFrame({"agent": ["a"], "score": [1.0]})})
    alone = pd.DataFrame(rows).drop(columns=["agent", "weak", "middling"])
    (panel,) = make_chart("sweep", {"sweep": alone}).panels
    assert (panel.title, panel.heat.y, panel.heat.z) == ("", [""], [[2.0, 12.0]])


def test_a_sweep_keeps_points_that_diverged():
    table = pd.DataFrame({"a": [1, 1, 2, 2], "b": [1, 2, 1, 2], "count": 4, "score": [np.nan, 1.0, np.nan, 2.0]})
    chart = make_chart("sweep", {"sweep": table})
    (panel,) = chart.panels
    assert (panel.x_label, panel.heat.x, panel.heat.y) == ("a", ["1", "2"], ["1", "2"])
    np.testing.assert_equal(panel.heat.z, [[np.nan, np.nan], [1.0, 2.0]])
    figures.draw(chart)
    with pytest.raises(ValueError, match="needs a point with a score, got none: runs of every point diverged"):
        make_chart("sweep", {"sweep": table.assign(score=np.nan)})


def test_a_heat_map_is_legible_if_all_scores_are_equal_and_its_labels_are_long():
    def drawn(names, score):
        heat = Heat(names, ["1"], [[score] * len(names)], 1.0, 1.0)
        return figures.draw(Chart("sweep", "", "", "sweep", [Panel("", "x", "y", heat=heat)])).axes[0]

    axes = drawn(["0.001", "0.003"], 1.0)
    assert {text.get_color() for text in axes.texts} == {"white"}  # the colour of the lowest score is dark
    assert {text.get_rotation() for text in axes.get_xticklabels()} == {0}
    assert {text.get_rotation() for text in drawn(["0.001"] * 5, 1.0).get_xticklabels()} == {40}


def test_random_actions_are_never_the_best_agent():
    ends = {"a": 1.0, "b": 2.0, RANDOM: 3.0}
    panel = Panel("", "x", "y", [Series(name, "#112233", [0, 1], [0, end]) for name, end in ends.items()])
    assert [one.strong for one in strongest([panel])[0].series] == [False, True, False]


def test_zero_has_a_place_on_a_logarithmic_axis(tables):
    weights = make_chart("sensitivity", tables["nchain"]).panels[1]
    assert (weights.x_label, weights.x_zero) == ("feel-good weight λ", weights.series[0].x[0])
    assert weights.series[0].x == pytest.approx([0.1 / np.sqrt(10), 0.1, 1.0], rel=1e-4)


def test_exponents_of_a_power_law_are_its_powers(tables):
    chart = make_chart("exponents", tables["regret"])
    for panel, power in zip(chart.panels, (0.5, 1.0, 1.5), strict=True):
        measured = [series for series in panel.series if not series.dashed]
        assert len(measured) == 3
        assert all(series.x[0] == pytest.approx(power, rel=1e-3) for series in measured)
    bounds = [series.x[0] for series in chart.panels[1].series if series.dashed]
    assert bounds == [1.5, 1.0]  # Table 1's powers of d for LSVI-UCB and LSVI-ASE; exact draws have none


def test_names_keep_their_colours_and_others_take_free_ones():
    colours = colours_of(["new", "dqn", "ulmcdqn", "other"])
    assert colours["dqn"] == "#000000"
    assert colours == colours_of(["new", "dqn", "ulmcdqn", "other"])
    assert len(set(colours.values())) == 4


def test_unknown_names_in_a_table_give_a_sentence(tables):
    strange = {"budget": tables["regret"]["budget"].assign(sampler="magic")}
    with pytest.raises(ValueError, match=r"table 'budget' has a value unknown to charts of kind 'budget': 'magic'"):
        make_chart("budget", strange)


def trained(folder, agent, value, seeds, step_size):
    """A folder as training leaves it."""
    settings = {"agent": agent, "env": "x", "hyper": {"step_size": step_size}, "config": {"num_steps": 20}}
    rows = [
        {"agent": agent, "environment": "x", "seed": seed, "step": step, "return": value + seed}
        for seed in seeds
        for step in (0, 10, 20)
    ]
    options = TrainOptions("x", agent=agent, output=folder)
    with store.recorded(folder, "train", options, seeds={"training": seeds}, settings=settings):
        store.write_table(folder / "curves.parquet", pd.DataFrame(rows))
    return folder


def test_folders_are_overlaid_by_agent_and_settings(tmp_path):
    folders = [
        trained(tmp_path / "a", "dqn", 0.0, [0, 1], 0.1),
        trained(tmp_path / "b", "dqn", 0.0, [2], 0.1),  # the same with another seed
        trained(tmp_path / "c", "iqn", 5.0, [0, 1, 2], 0.1),
    ]
    (panel,) = make_chart("curves", overlaid(folders)).panels
    assert {line.name: line.y for line in panel.series} == {"DQN": [1.0] * 3, "IQN": [6.0] * 3}
    folders.append(trained(tmp_path / "d", "dqn", 9.0, [0, 1], 0.2))
    (panel,) = make_chart("curves", overlaid([folders[0], *folders[2:]])).panels
    assert {line.name: line.y[0] for line in panel.series} == {"DQN, in a": 0.5, "DQN, in d": 9.5, "IQN": 6.0}
    page = build_report(folders)
    assert page.count("<article") == 1
    assert "<h1>DQN, IQN on x</h1>" in page
    assert "<title>DQN, IQN on x · feelgood</title>" in page
    assert "20 steps" in page
    assert "± ?" not in page
    assert ">train</a>" not in page
    alone = build_report([trained(tmp_path / "e", "dqn", 0.0, [3], 0.1)])
    assert "<title>DQN on x · feelgood</title>" in alone
    assert "of one seed, without an interval" in alone
    kinds_shown = re.findall(r'data-kind="(\w+)"', alone)
    assert kinds_shown == ["curves"]  # means over tasks add nothing for one task


def deep_sea(folder, prior_scale, sizes=(10, 20)):
    rows = [
        {
            "environment": "deep_sea",
            "agent": "dqn",
            "size": size,
            "median": prior_scale * size,
            "low": size,
            "high": 9 * size,
            "budget_episodes": 1000,
        }
        for size in sizes
    ]
    spec = {"agents": ["dqn"], "sizes": list(sizes), "hyper": [f"prior_scale={prior_scale}"]}
    return write(folder, {"study": "deepsea", "spec": spec, "finished": True}, summary=pd.DataFrame(rows))


def test_agents_of_tables_without_curves_are_named_by_folder_if_their_settings_differ(tmp_path):
    first, second = deep_sea(tmp_path / "first", 3), deep_sea(tmp_path / "second", 5)
    table = overlaid([first, second])["summary"]
    assert table.groupby("agent")["median"].apply(list).to_dict() == {
        "dqn in first": [30, 60],
        "dqn in second": [50, 100],
    }
    assert {"DQN, in first: N^1.0", "DQN, in second: N^1.0"} < {
        line.name for line in make_chart("deepsea", overlaid([first, second])).panels[0].series
    }
    # Other sizes of the same settings are one line, and other settings are two lines at other sizes too.
    longer = deep_sea(tmp_path / "longer", 3, (30, 40))
    assert set(overlaid([first, longer])["summary"]["agent"]) == {"dqn"}
    assert set(overlaid([second, longer])["summary"]["agent"]) == {"dqn in second", "dqn in longer"}


def test_scores_of_one_experiment_in_two_folders_are_two_panels(tmp_path):
    table = pd.DataFrame({"experiment": ["catch", "bandit"], "agent": "dqn", "score": [0.1, 0.2]})
    folders = [
        write(tmp_path / name, {"study": "bsuite", "spec": {"seed": seed}}, scores=table)
        for seed, name in enumerate(("a", "b"))
    ]
    chart = make_chart("bsuite", overlaid(folders))
    assert [panel.title for panel in chart.panels] == ["DQN, in a", "DQN, in b"]
    assert [len(panel.series) for panel in chart.panels] == [2, 2]


def test_algorithms_and_samplers_are_named_by_folder_if_their_settings_differ(studies, tmp_path):
    tables, folders = tables_of(studies["regret"]), [tmp_path / "short", tmp_path / "long"]
    for folder, episodes in zip(folders, (20, 40), strict=True):
        write(folder, {"study": "regret", "spec": {"num_episodes": episodes}}, **tables)
    together = overlaid(folders)
    for kind, column in (
        ("curves", "algorithm"),
        ("budget", "sampler"),
        ("errors", "sampler"),
        ("complexity", "scheme"),
    ):
        assert set(together[kind][column]) == {
            f"{name} in {folder.name}" for name in tables[kind][column] for folder in folders
        }
    (panel,) = make_chart("budget", together).panels
    assert len({line.colour for line in panel.series}) == len(panel.series) == 4
    exact = [line for line in panel.series if line.name.startswith("exact")]
    assert [(line.dashed, line.x) for line in exact] == [(True, [4, 16])] * 2
    for kind in ("curves", "exponents", "errors", "complexity"):
        figures.draw(make_chart(kind, together))


def test_sweeps_of_two_agents_are_two_panels(tmp_path):
    points = {"dqn": {"step_size": [0.1, 0.2]}, "ulmcdqn": {"friction": [1, 2], "step_size": 0.1}}
    folders = [
        write(
            tmp_path / agent,
            {"study": "sweep", "spec": {"agent": agent}},
            sweep=pd.DataFrame(columns).assign(count=4, score=[1.0, 2.0], area=0.5, error=0.1, won=False),
        )
        for agent, columns in points.items()
    ]
    panels = make_chart("sweep", overlaid(folders)).panels
    assert [(panel.title, panel.x_label, panel.heat.z) for panel in panels] == [
        ("DQN", "step_size", [[1.0, 2.0]]),
        ("ULMCDQN", "friction", [[1.0, 2.0]]),
    ]
