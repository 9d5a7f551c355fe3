"""Tables and figures of the N-chain study."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from feelgood.figures.style import AGENT_COLOURS, STYLE
from feelgood.statistics import interval

__all__ = [
    "SYMBOLS",
    "as_markdown",
    "draw_curves",
    "draw_frontier",
    "draw_lengths",
    "draw_sensitivity",
    "frontier_as_markdown",
    "per_seed",
    "sensitivity_as_markdown",
    "summarise",
]


def _colour(agent) -> str:
    return AGENT_COLOURS.get(str(agent), "0.5")


def per_seed(curves: pd.DataFrame, optimum: float) -> pd.DataFrame:
    """One row per run: its score and what the score hides."""
    rows = []
    for (length, agent, seed), run in curves.groupby(["length", "agent", "seed"], sort=False):
        run = run.sort_values("step")
        trained = run[run["step"] > 0]
        late = trained[trained["step"] > run["step"].max() / 2]
        reached = trained.loc[trained["first_success"] >= 0, "first_success"]
        rows.append(
            {
                "length": length,
                "agent": agent,
                "seed": seed,
                "score": trained["return"].iloc[-10:].mean(),
                "starts_right": run["return"].iloc[0] >= 0.99 * optimum,
                "training_success": trained["successes"].sum() / max(trained["episodes"].sum(), 1),
                "first_success": reached.min() if len(reached) else np.nan,
                "late_optimal": (late["return"] >= 0.99 * optimum).mean(),
                "diverged_at": trained.loc[~trained["finite"].astype(bool), "step"].min(),
            }
        )
    return pd.DataFrame(rows)


def summarise(curves: pd.DataFrame, optimum: float) -> pd.DataFrame:
    """One row per length and agent, with 95% confidence intervals over seeds.

    Beside the paper's score (mean of the last ten evaluations): the score of the seeds whose untrained network does
    not already go right all the way, the share of training episodes at the optimum, the share of runs that ever reach
    it in training and when (median over those), and the share of evaluations at the optimum in the second half.
    """
    runs = per_seed(curves, optimum)
    rows = []
    for (length, agent), group in runs.groupby(["length", "agent"], sort=False):
        left = group[~group["starts_right"]]
        score, error = interval(group["score"])
        left_score, left_error = interval(left["score"]) if len(left) else (np.nan, np.nan)
        success, success_error = interval(group["training_success"])
        rows.append(
            {
                "length": length,
                "agent": agent,
                "seeds": len(group),
                "score": score,
                "score_ci": error,
                "left_seeds": len(left),
                "left_score": left_score,
                "left_score_ci": left_error,
                "training_success": success,
                "training_success_ci": success_error,
                "ever_succeeds": group["first_success"].notna().mean(),
                "median_first_success": group["first_success"].median(),
                "late_optimal": group["late_optimal"].mean(),
                "diverged": int(group["diverged_at"].notna().sum()),
            }
        )
    return pd.DataFrame(rows)


def as_markdown(summary: pd.DataFrame) -> str:
    """The summary as a table for people."""
    lines = [
        "| N | agent | seeds | score | score, left-initialised seeds | training episodes at the optimum "
        "| runs that ever succeed | first success (median step) | late evaluations at the optimum | diverged |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in summary.itertuples():
        first = "–" if np.isnan(row.median_first_success) else f"{row.median_first_success:,.0f}"
        lines.append(
            f"| {row.length} | {row.agent} | {row.seeds} | {row.score:.2f} ± {row.score_ci:.2f} "
            f"| {row.left_score:.2f} ± {row.left_score_ci:.2f} ({row.left_seeds}) "
            f"| {row.training_success:.1%} ± {row.training_success_ci:.1%} | {row.ever_succeeds:.0%} | {first} "
            f"| {row.late_optimal:.0%} | {row.diverged} |"
        )
    seeds = int(summary["seeds"].min())
    lines += [
        "",
        "± is a 95% confidence interval by Student's t, too narrow where nearly all seeds succeed or nearly all fail: "
        f"when {seeds} seeds do the same, up to {1 - 0.05 ** (1 / seeds):.1%} of all may do otherwise (95%, exact).",
    ]
    return "\n".join(lines) + "\n"


def draw_curves(curves: pd.DataFrame) -> Figure:
    """Learning curves: mean evaluation return with 95% confidence interval, a panel for each length."""
    lengths = sorted(curves["length"].unique())
    with rc_context(STYLE):
        figure = Figure(figsize=(3.2 * len(lengths) + 1.8, 2.8), layout="constrained")
        panels = figure.subplots(1, len(lengths), sharey=True, squeeze=False)[0]
        for panel, length in zip(panels, lengths, strict=True):
            for agent, group in curves[curves["length"] == length].groupby("agent", sort=False):
                table = group.pivot_table(index="step", columns="seed", values="return")
                means, errors = np.array([interval(row) for row in table.to_numpy()]).T
                colour = _colour(agent)
                panel.plot(table.index, means, color=colour, label=agent)
                low, high = means - errors, means + errors
                # Returns are bounded and nearly all-or-nothing; with few seeds the interval reaches past the bounds.
                panel.fill_between(table.index, low.clip(0, 10), high.clip(0, 10), color=colour, alpha=0.15, lw=0)
            panel.axhline(10, color="0.7", linewidth=0.8, zorder=0)
            panel.set_title(f"N = {length}, {group['seed'].nunique()} seeds")
            panel.set_xlabel("thousand environment steps")
            panel.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:g}")
            panel.set_ylim(-0.3, 10.5)
        panels[0].set_ylabel("evaluation return")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure


def draw_lengths(summary: pd.DataFrame) -> Figure:
    """The paper's Figure 1: score against chain length, mean and 95% confidence interval."""
    with rc_context(STYLE):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        panel = figure.subplots()
        for agent, group in summary.sort_values("length", kind="stable").groupby("agent", sort=False):
            colour = _colour(agent)
            panel.plot(group["length"], group["score"], "o-", markersize=3, color=colour, label=agent)
            low, high = group["score"] - group["score_ci"], group["score"] + group["score_ci"]
            panel.fill_between(group["length"], low, high, color=colour, alpha=0.2, lw=0)
        panel.axhline(10, color="0.7", linewidth=0.8, zorder=0)
        panel.set_xticks(sorted(summary["length"].unique()))
        panel.set_xlabel("chain length N")
        panel.set_ylabel("mean of the last 10 evaluations")
        panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure


SYMBOLS = {"feel_good_weight": "feel-good weight η", "friction": "friction γ"}
"""Hyper-parameters that studies vary, for people."""


def sensitivity_as_markdown(table: pd.DataFrame) -> str:
    """Score of every agent at every value of every hyper-parameter."""
    lines = []
    for parameter, group in table.groupby("parameter", sort=False):
        values = group["value"].unique()
        lines += ["| " + " | ".join([SYMBOLS[str(parameter)], *(f"{v:g}" for v in values)]) + " |"]
        lines += ["|---" * (len(values) + 1) + "|"]
        for agent, rows in group.groupby("agent", sort=False):
            cells = [f"{row.score:.2f} ± {row.score_ci:.2f}" for row in rows.itertuples()]
            lines += ["| " + " | ".join([str(agent), *cells]) + " |"]
        lines += [""]
    return "\n".join(lines)


def draw_sensitivity(table: pd.DataFrame) -> Figure:
    """Score against each hyper-parameter, mean and 95% confidence interval, a panel for each."""
    parameters = list(table["parameter"].unique())
    with rc_context(STYLE):
        figure = Figure(figsize=(3.2 * len(parameters) + 1.8, 2.8), layout="constrained")
        panels = figure.subplots(1, len(parameters), sharey=True, squeeze=False)[0]
        for panel, parameter in zip(panels, parameters, strict=True):
            rows = table[table["parameter"] == parameter]
            for agent, group in rows.groupby("agent", sort=False):
                group = group.sort_values("value")
                panel.plot(group["value"], group["score"], "o-", markersize=3, color=_colour(agent), label=agent)
                low, high = group["score"] - group["score_ci"], group["score"] + group["score_ci"]
                panel.fill_between(
                    group["value"], low.clip(0, 10), high.clip(0, 10), color=_colour(agent), alpha=0.2, lw=0
                )
            panel.axhline(10, color="0.7", linewidth=0.8, zorder=0)
            # Zero has a place on the axis too, where it is one of the values.
            if (rows["value"] == 0).any():
                smallest = rows.loc[rows["value"] > 0, "value"].min()
                panel.set_xscale("symlog", linthresh=smallest, linscale=0.5)
                panel.set_xlim(-0.15 * smallest, 1.5 * rows["value"].max())
            else:
                panel.set_xscale("log")
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_xlabel(SYMBOLS[parameter])
            panel.set_ylim(-0.3, 10.5)
        panels[0].set_ylabel("mean of the last 10 evaluations")
        panels[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.suptitle(f"N = {table['length'].iloc[0]}, {table['seeds'].iloc[0]} seeds", fontsize=9)
        return figure


def frontier_as_markdown(table: pd.DataFrame) -> str:
    """For each agent and budget the longest chain held, and at every length the seeds that score at least 9."""
    lengths = sorted(table["length"].unique())
    lines = ["| agent | budget | longest held | " + " | ".join(f"N = {n}" for n in lengths) + " |"]
    lines += ["|---" * (len(lengths) + 3) + "|"]
    for (agent, budget), rows in table.groupby(["agent", "budget"], sort=False):
        at = {row.length: f"{row.score:.2f} ({row.seeds_at_9}/{row.seeds})" for row in rows.itertuples()}
        cells = [str(agent), str(budget), _longest(rows), *(at.get(n, "–") for n in lengths)]
        lines += ["| " + " | ".join(cells) + " |"]
    return "\n".join(lines) + "\n"


def _longest(rows: pd.DataFrame) -> str:
    held = rows.loc[rows["held"], "length"]
    return f"{held.max()}" if len(held) else "none"


def draw_frontier(table: pd.DataFrame) -> Figure:
    """Share of seeds that score at least 9 against chain length, a panel for each budget; held lengths are filled."""
    budgets = list(table["budget"].unique())
    titles = {"fixed": "fixed budget", "growing": "budget in proportion to N"}
    lengths = sorted(table["length"].unique())
    with rc_context(STYLE):
        figure = Figure(figsize=(3.4 * len(budgets) + 1.8, 3.0), layout="constrained")
        panels = figure.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
        seen: dict[str, Any] = {}
        for panel, budget in zip(panels, budgets, strict=True):
            for i, (agent, rows) in enumerate(table[table["budget"] == budget].groupby("agent", sort=False)):
                rows, colour = rows.sort_values("length"), _colour(agent)
                shares = rows["seeds_at_9"] / rows["seeds"]
                (line,) = panel.plot(rows["length"], shares, color=colour, zorder=2 - 0.01 * i)
                seen.setdefault(str(agent), line)
                for held, face in ((True, colour), (False, "white")):
                    at = rows["held"] == held
                    panel.plot(rows.loc[at, "length"], shares[at], "o", markersize=4.5, mfc=face, mec=colour, zorder=3)
            panel.axhline(0.8, color="0.7", linewidth=0.8, linestyle="--", zorder=0)
            panel.set_title(titles[budget])
            panel.set_xscale("log")
            panel.set_xticks(lengths, [str(n) for n in lengths])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_xlabel("chain length N")
            panel.set_ylim(-0.06, 1.06)
        panels[0].set_ylabel("share of seeds that score at least 9")
        figure.legend(list(seen.values()), list(seen), loc="outside right center")
        return figure
