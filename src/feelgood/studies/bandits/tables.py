"""Tables of the bandits study in Markdown, and its figures."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from feelgood.figures.chart import Chart
from feelgood.figures.curves import learning_curves
from feelgood.figures.style import COLOURS, LOOKS, STYLE, label, shades
from feelgood.studies.output import markdown_table, plus_minus

PUBLISHED = {"linear-20d": 56.2, "linear-40d": 100.6, "logistic-20d": 176.9}
"""The least mean regret at T = 10,000 in the published comparison (Anand and Liaw, 2025), ten seeds."""


def final(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean regret at the last round and half the width of its 95 % interval, a row per problem and algorithm."""
    last = curves[curves["round"] == curves.groupby("problem")["round"].transform("max")]
    groups = last.groupby(["problem", "algorithm", "setting", "round"], sort=False)["regret"]
    table = groups.agg(["mean", "std", "count", "median"]).reset_index()
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
    groups = table.groupby(["draws", "temperature", "decay", "weight"], sort=False)["regret"]
    ends = groups.agg(["mean", "std", "count"]).reset_index()
    halves = 1.96 * ends["std"] / np.sqrt(ends["count"])
    ends["text"] = [plus_minus(mean, half, ".1f") for mean, half in zip(ends["mean"], halves, strict=True)]
    rows = []
    for index, own in ends.groupby(["draws", "temperature", "decay"], sort=False):
        rows.append([*map(str, index), ", ".join(f"{row.weight:g}: {row.text}" for row in own.itertuples())])
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


def ranking(table: pd.DataFrame) -> Figure:
    """For every problem, mean regret by round and the final regret with its interval, best at the top."""
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
        panel.xaxis.set_minor_locator(LogLocator(subs=(2, 3, 5) if ratio < 12 else (3,)))
    panel.tick_params(axis="x", which="both", labelsize=7, length=3, width=0.8)


_LINES = {
    ("exact", 0.0): ("exact draws, λ constant", {"color": COLOURS["red"]}),
    ("exact", 0.5): ("exact draws, λ ∝ t^−½", {"color": COLOURS["red"], "linestyle": "--"}),
    ("exact", 1.0): ("exact draws, λ ∝ 1/t", {"color": COLOURS["red"], "linestyle": ":"}),
    ("lmc", 0.0): ("LMC, 5 steps, λ constant", {"color": COLOURS["blue"]}),
}


def _weight_figure(table: pd.DataFrame) -> Figure:
    """Regret against λ, with exact draws and with a short chain; one panel per temperature."""
    heats = sorted(table["temperature"].unique(), reverse=True)
    with rc_context(STYLE):
        figure = Figure(figsize=(4.6 * len(heats), 3.4), layout="constrained")
        panels = figure.subplots(1, len(heats), squeeze=False, sharey=True).ravel()
        for panel, heat in zip(panels, heats, strict=True):
            for (draws, decay), (label, look) in _LINES.items():
                own = table[(table["temperature"] == heat) & (table["draws"] == draws) & (table["decay"] == decay)]
                if own.empty:
                    continue
                groups = own.groupby("weight")["regret"]
                mean, half = groups.mean(), 1.96 * groups.std() / np.sqrt(groups.count())
                place = np.maximum(mean.index.to_numpy(float), 1e-3)
                panel.errorbar(place, mean, half, capsize=2, label=label, **look)
            panel.set_xscale("log")
            powers = [1e-2, 1e-1, 1, 10]
            panel.set_xticks([1e-3, *powers], ["0", *(f"{power:g}" for power in powers)])
            panel.set_yscale("log")
            panel.yaxis.set_major_formatter("{x:.0f}")
            panel.yaxis.set_minor_formatter("{x:.0f}")
            panel.tick_params(axis="y", which="minor", labelsize=7)
            panel.set_xlabel("feel-good weight λ in the first round")
            whose = "the posterior" if heat == 0.25 else "a cooler one"
            panel.set_title(f"temperature {heat:g} ({whose})", loc="left")
        panels[0].set_ylabel(f"regret after {table['rounds'].max():,} rounds")
        panels[-1].legend(loc="upper left", fontsize=7)
    return figure


def _error_figure(table: pd.DataFrame) -> Figure:
    """Exact total variation by round, and regret against its mean."""
    names = [name for name in table["sampler"].unique() if name != "exact"]
    steps = sorted(table[table["sampler"] != "exact"]["steps"].unique())
    tones = dict(zip(steps, shades(len(steps)), strict=True))
    marks = dict(zip(names, "os^D", strict=False))
    with rc_context(STYLE):
        figure = Figure(figsize=(3.0 * (len(names) + 1), 3.0), layout="constrained")
        panels = figure.subplots(1, len(names) + 1, squeeze=False).ravel()
        for panel, name in zip(panels, names, strict=False):
            for count in steps:
                own = table[(table["sampler"] == name) & (table["steps"] == count)]
                label = f"{count} step{'s' if count > 1 else ''} a round"
                panel.plot(own["round"], own["total_variation"], color=tones[count], label=label)
            panel.set_xscale("log")
            panel.set_ylim(-0.02, 1.02)
            panel.set_xlabel("round")
            panel.set_title(name, loc="left")
        panels[0].set_ylabel("total variation to the posterior")
        panels[0].legend(fontsize=7)
        right = panels[-1]
        for (name, count), own in table[table["sampler"] != "exact"].groupby(["sampler", "steps"], sort=False):
            end = own.iloc[-1]
            look = {"color": tones[count], "fmt": marks[str(name)], "markersize": 5}
            right.errorbar(own["total_variation"].mean(), end["regret"], 1.96 * end["standard_error"], **look)
        for name, mark in marks.items():
            right.plot([], [], mark, color=COLOURS["grey"], label=name)
        exact = table[table["sampler"] == "exact"].iloc[-1]
        right.axhline(exact["regret"], color=COLOURS["black"], linewidth=1, label="exact draws")
        right.set_yscale("log")
        right.yaxis.set_major_formatter("{x:.0f}")
        right.yaxis.set_minor_formatter("{x:.0f}")
        right.set_xlabel("total variation, mean over marked rounds")
        right.set_ylabel(f"regret after {table['round'].max():,} rounds")
        right.legend(fontsize=7)
    return figure


DRAW: dict[str, dict[str, Callable[[pd.DataFrame], Chart | Figure]]] = {
    "curves": {"curves": learning_curves, "ranking": ranking},
    "weights": {"weights": _weight_figure},
    "errors": {"errors": _error_figure},
}
"""Figures of each part by name: functions of its table."""
