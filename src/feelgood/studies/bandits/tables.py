"""Tables of the bandits study in Markdown, and its figures."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, series, unique
from feelgood.figures.curves import learning_curves
from feelgood.figures.style import COLOURS, LOOKS, STYLE, colours_of, label, shades
from feelgood.studies.output import markdown_table, plus_minus

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PUBLISHED = {"linear-20d": 56.2, "linear-40d": 100.6, "logistic-20d": 176.9}
"""The least mean regret at T = 10,000 in the published comparison (Anand and Liaw, 2025), ten seeds."""


def final(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean regret at the last round and half the width of its 95 % interval, a row per problem and algorithm."""
    last = curves[curves["round"] == curves.groupby("problem")["round"].transform("max")]
    groups = last.groupby(["problem", "algorithm", "setting", "round"], sort=False)["regret"]
    return _means(groups)


def _means(groups: Any) -> pd.DataFrame:
    """Mean of every group of numbers and half the width of its 95 % interval."""
    table = groups.agg(["mean", "std", "count"]).reset_index()
    return table.assign(half=1.96 * table["std"] / np.sqrt(table["count"]))


def as_markdown(tables: Mapping[str, pd.DataFrame]) -> str:
    """All tables as Markdown."""
    return "\n".join(_MAKE[part](table) for part, table in tables.items())


def _curves(table: pd.DataFrame) -> str:
    ends = final(table)
    problems = list(ends["problem"].unique())
    cells = {(row.problem, row.algorithm): plus_minus(row.mean, row.half, ".1f") for row in ends.itertuples()}
    # Best mean rank over problems first, as each problem has its own scale.
    ranks = ends.groupby("problem")["mean"].rank(pct=True).groupby(ends["algorithm"]).mean().sort_values(kind="stable")
    rows = [[label(str(name)), *(cells.get((problem, name), "–") for problem in problems)] for name in ranks.index]
    rounds, seeds = table["round"].max(), table["seed"].nunique()
    head = f"Mean regret after {rounds:,} rounds, {seeds} fresh seeds, ± 1.96 standard errors (a 95% interval):"
    settings = [[row.problem, label(row.algorithm), row.setting] for row in ends.itertuples() if row.setting]
    tuned = markdown_table(["problem", "algorithm", "chosen on tuning seeds"], settings)
    return f"{head}\n\n{markdown_table(['algorithm', *problems], rows)}\n{tuned}"


def _weights(table: pd.DataFrame) -> str:
    ends = _means(table.groupby(["draws", "temperature", "decay", "weight"], sort=False)["regret"])
    rows = []
    for index, own in ends.groupby(["draws", "temperature", "decay"], sort=False):
        texts = (f"{row.weight:g}: {plus_minus(row.mean, row.half, '.1f')}" for row in own.itertuples())
        rows.append([*map(str, index), ", ".join(texts)])
    head = f"Mean regret after {table['rounds'].max():,} rounds against the feel-good weight λ·(1 + t)^−p:"
    return f"{head}\n\n{markdown_table(['draws', 'temperature', 'p', 'λ: regret'], rows)}"


def _errors(table: pd.DataFrame) -> str:
    rows = []
    for (name, steps), own in table.groupby(["sampler", "steps"], sort=False):
        last = own.iloc[-1]
        ends = own["total_variation"].mean(), last["total_variation"], last["wasserstein"]
        regret = plus_minus(last["regret"], 1.96 * last["standard_error"], ".1f")
        rows.append([str(name), str(steps), *(f"{end:.3f}" for end in ends), regret])
    header = ["sampler", "steps a round", "TV, mean over rounds", "TV, last round", "W₂ / spread, last round", "regret"]
    head = f"Exact distance to the posterior, and regret after {table['round'].max():,} rounds:"
    return f"{head}\n\n{markdown_table(header, rows)}"


_MAKE = {"curves": _curves, "weights": _weights, "errors": _errors}


# Figures.


def _colour(name: str) -> str:
    if name.startswith(("released", "corrected")):
        return COLOURS["grey" if name.startswith("released") else "orange"]
    return COLOURS["red" if name.startswith(("fg", "sfg")) or "_fg_" in name else "blue"]


def ranking(table: pd.DataFrame) -> "Figure":
    """For every problem, mean regret by round and the final regret with its interval, best at the top."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ends = final(table)
    problems = list(ends["problem"].unique())
    heights = [1.0 + max(0.17 * np.sum(ends["problem"] == name), 1.6) for name in problems]
    with rc_context(STYLE):
        figure = Figure(figsize=(9.5, sum(heights)), layout="constrained")
        rows = figure.subplots(len(problems), 2, squeeze=False, gridspec_kw={"height_ratios": heights})
        for (left, right), name in zip(rows, problems, strict=True):
            own = ends[ends["problem"] == name].sort_values("mean", ascending=False)
            _by_round(left, table[table["problem"] == name], list(own["algorithm"])[::-1])
            _at_the_end(right, own, name)
            right.set_xlabel(f"regret after {table[table['problem'] == name]['round'].max():,} rounds")
            left.set_title(name, loc="left")
        note = "Means and 95% intervals. Blue: plain. Red: with a feel-good term. Grey: as released. "
        figure.supxlabel(f"{note}Orange: as released, accept test corrected.", fontsize=8, color="0.3")
    return figure


def _by_round(panel, table: pd.DataFrame, ranked: list[str]) -> None:
    """Mean regret of every algorithm, the best six in colour; an algorithm has the same colour in every panel."""
    means = table.groupby(["algorithm", "round"])["regret"].mean()
    faint = {"color": "0.8", "linewidth": 0.8}
    for i, name in enumerate(ranked):
        look = {"color": LOOKS[name].colour, "label": label(name), "zorder": 3} if i < 6 else faint
        panel.plot(means[name].index, means[name], **look)
    if len(ranked) > 6:
        panel.plot([], [], label="others", **faint)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(bottom=means[ranked[0]].iloc[-1] / 30)
    panel.set_xlim(left=3)
    panel.set_xlabel("round")
    panel.set_ylabel("regret")
    panel.legend(fontsize=7, loc="upper left")


def _at_the_end(panel, ends: pd.DataFrame, name: str) -> None:
    for i, row in enumerate(ends.to_dict("records")):
        look = {"color": _colour(row["algorithm"]), "fmt": "o", "markersize": 4, "elinewidth": 1.2}
        panel.errorbar(row["mean"], i, xerr=row["half"], **look)
    panel.set_yticks(range(len(ends)), [label(each) for each in ends["algorithm"]], fontsize=7)
    if name in PUBLISHED and ends["round"].max() == 10_000:
        panel.axvline(PUBLISHED[name], color=COLOURS["black"], linestyle=":", linewidth=1)
        above = panel.get_xaxis_transform()
        panel.text(PUBLISHED[name], 1.01, "best published", fontsize=7, va="bottom", ha="center", transform=above)
    panel.set_ylim(-0.6, len(ends) - 0.4)
    panel.set_xscale("log")
    for which in (panel.xaxis.set_major_formatter, panel.xaxis.set_minor_formatter):
        which("{x:,.0f}")
    ratio = ends["mean"].max() / ends["mean"].min()
    if ratio > 2:
        from matplotlib.ticker import LogLocator

        panel.xaxis.set_minor_locator(LogLocator(subs=(2, 3, 5) if ratio < 12 else (3,)))
    panel.tick_params(axis="x", which="both", labelsize=7, length=3, width=0.8)


_LINES = {
    ("exact", 0.0): ("exact draws, λ constant", COLOURS["red"]),
    ("exact", 0.5): ("exact draws, λ ∝ t^−½", COLOURS["orange"]),
    ("exact", 1.0): ("exact draws, λ ∝ 1/t", COLOURS["pink"]),
    ("lmc", 0.0): ("LMC, 5 steps, λ constant", COLOURS["blue"]),
}


def weights(table: pd.DataFrame) -> Chart:
    """Regret against λ, with exact draws and with a short chain; one panel per temperature."""
    ends = _means(table.groupby(["temperature", "draws", "decay", "weight"])["regret"])
    ends = ends.assign(weight=ends["weight"].clip(lower=1e-3), low=ends["mean"] - ends["half"])
    ends = ends.assign(high=ends["mean"] + ends["half"])
    panels = []
    for heat, rows in reversed(list(ends.groupby("temperature"))):
        groups = dict(list(rows.groupby(["draws", "decay"])))
        lines = [
            series(name, colour, groups[key], "weight", "mean", ("low", "high"), points=True)
            for key, (name, colour) in _LINES.items()
            if key in groups
        ]
        title = f"temperature {heat:g} ({'the posterior' if heat == 0.25 else 'a cooler one'})"
        axes = "feel-good weight λ in the first round", "regret"
        panels.append(Panel(title, *axes, lines, x_log=True, y_log=True, x_zero=1e-3))
    note = f"Mean regret after {table['rounds'].max():,} rounds with its 95% interval."
    return Chart("weights", "Regret against the feel-good weight", note, "weights", panels)


def total_variation(table: pd.DataFrame) -> Chart:
    """Exact total variation by round, then regret against its mean."""
    chains = table[table["sampler"] != "exact"]
    colours, tones = colours_of(unique(chains["sampler"])), shades(chains["steps"].nunique())
    panels, marks = [], []
    for name, own in chains.groupby("sampler", sort=False):
        groups = zip(tones, own.groupby("steps"), strict=False)
        named = lambda steps: f"{steps} step{'s' if steps > 1 else ''} a round"
        lines = [series(named(n), tone, rows, "round", "total_variation") for tone, (n, rows) in groups]
        axes = "round", "total variation to the posterior"
        panels.append(Panel(str(name), *axes, lines, x_log=True, y_range=(-0.02, 1.02)))
        ends = own.groupby("steps").last().assign(mean=own.groupby("steps")["total_variation"].mean())
        ends = ends.assign(low=ends["regret"] - 1.96 * ends["standard_error"]).sort_values("mean")
        ends = ends.assign(high=ends["regret"] + 1.96 * ends["standard_error"])
        marks.append(series(str(name), colours[str(name)], ends, "mean", "regret", ("low", "high"), points=True))
    level = float(table.loc[table["sampler"] == "exact", "regret"].iloc[-1])
    panels.append(Panel("grey: exact draws", "mean total variation", "regret", marks, y_log=True, guides=(level,)))
    note = (
        f"Last panel: regret after {table['round'].max():,} rounds with its 95% interval; the "
        "level is that of exact draws."
    )
    return Chart("total_variation", "Sampling error and regret", note, "errors", panels)


DRAW: dict[str, dict[str, Callable[[pd.DataFrame], Any]]] = {
    "curves": {"curves": learning_curves, "ranking": ranking},
    "weights": {"weights": weights},
    "errors": {"errors": total_variation},
}
"""Figures of each part by name: functions of its table."""
