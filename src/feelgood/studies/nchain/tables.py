"""Tables and charts of the N-chain studies, and of sweeps."""

import math
from functools import partial

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Heat, Panel, Series, numbers, series, series_of, strongest, unique
from feelgood.figures.style import SYMBOLS, colours_of, is_ablation, label
from feelgood.statistics import finite_scores, interval
from feelgood.studies.cells import OPTIMUM
from feelgood.studies.output import markdown_table, plus_minus

LONGEST_SHORT = 50
SHORT = (
    f"Chains of at most {LONGEST_SHORT} states are too short for the feel-good term to help; at N = 100 it does "
    "(docs/reproduction.md)."
)


def per_seed(curves: pd.DataFrame) -> pd.DataFrame:
    """One row per run: its score, NaN if it diverged, and further statistics."""
    rows = []
    curves = curves.assign(**{"return": finite_scores(curves, "return")})
    for (length, agent, seed), run in curves.groupby(["length", "agent", "seed"], sort=False):
        run = run.sort_values("step")
        trained = run[run["step"] > 0]
        late = trained[trained["step"] > run["step"].max() / 2]
        reached = trained.loc[trained["first_success"] >= 0, "first_success"]
        row = {
            "score": trained["return"].iloc[-10:].mean(skipna=False),
            "starts_right": run["return"].iloc[0] >= 0.99 * OPTIMUM,
            "training_success": trained["successes"].sum() / max(trained["episodes"].sum(), 1),
            "first_success": reached.min(),  # NaN if there is none
            "late_optimal": (late["return"] >= 0.99 * OPTIMUM).mean(),
            "diverged_at": trained.loc[~trained["finite"].astype(bool), "step"].min(),
        }
        rows.append({"length": length, "agent": agent, "seed": seed, **row})
    return pd.DataFrame(rows)


def summarise(curves: pd.DataFrame) -> pd.DataFrame:
    """One row per length and agent, with 95% confidence intervals over seeds; diverged runs have no score.

    The columns are the paper's score (mean of the last ten evaluations), the score of seeds whose untrained network is
    not already optimal, the share of training episodes at the optimum, the share of runs that reach it in training and
    the median step at which they do, and the share of evaluations at the optimum in the second half.
    """
    runs = per_seed(curves)
    rows = []
    for (length, agent), group in runs.groupby(["length", "agent"], sort=False):
        left = group[~group["starts_right"]]
        row = {"length": length, "agent": agent, "seeds": len(group)}
        row["score"], row["score_ci"] = interval(group["score"].dropna())
        row["left_seeds"] = len(left)
        row["left_score"], row["left_score_ci"] = interval(left["score"].dropna())
        row["training_success"], row["training_success_ci"] = interval(group["training_success"])
        row["ever_succeeds"] = group["first_success"].notna().mean()
        row["median_first_success"] = group["first_success"].median()
        row["late_optimal"] = group["late_optimal"].mean()
        row["diverged"] = int(group["diverged_at"].notna().sum())
        rows.append(row)
    return pd.DataFrame(rows)


def as_markdown(summary: pd.DataFrame) -> str:
    """The summary as a Markdown table."""
    ablated = summary["agent"].astype(str).map(is_ablation)
    text = _score_table(summary[~ablated])
    if ablated.any():
        text += "\nAblations:\n\n" + _score_table(summary[ablated])
    seeds = int(summary["seeds"].min())
    text += f"\n{SHORT}\n" if summary["length"].max() <= LONGEST_SHORT else ""
    lost = " Runs that diverged are left out of the scores." if summary["diverged"].any() else ""
    return (
        f"{text}\n± is a 95% confidence interval by Student's t. It is too narrow where nearly all seeds succeed or "
        f"nearly all fail: if all {seeds} seeds agree, up to {1 - 0.05 ** (1 / seeds):.1%} of all seeds may differ "
        f"(95%, exact).{lost}\n"
    )


def _score_table(summary: pd.DataFrame) -> str:
    head = ["N", "agent", "seeds", "score", "score, left-initialised seeds", "training episodes at the optimum"]
    head += ["runs that ever succeed", "first success (median step)", "late evaluations at the optimum", "diverged"]
    rows = []
    for row in summary.sort_values(["length", "score"], ascending=[True, False], kind="stable").itertuples():
        scores = [plus_minus(row.score, row.score_ci)]
        scores.append(f"{plus_minus(row.left_score, row.left_score_ci)} ({row.left_seeds})")
        shares = [plus_minus(row.training_success, row.training_success_ci, ".1%"), f"{row.ever_succeeds:.0%}"]
        first = plus_minus(row.median_first_success, np.nan, ",.0f")
        counts = [first, f"{row.late_optimal:.0%}", f"{row.diverged}"]
        rows.append([f"{row.length}", label(str(row.agent)), f"{row.seeds}", *scores, *shares, *counts])
    return markdown_table(head, rows)


def sensitivity_as_markdown(table: pd.DataFrame) -> str:
    """Score of every agent at every value of every hyper-parameter."""
    tables = []
    for parameter, group in table.groupby("parameter", sort=False):
        head = [SYMBOLS[str(parameter)], *(f"{value:g}" for value in group["value"].unique())]
        rows = [
            [label(str(agent)), *(plus_minus(row.score, row.score_ci) for row in own.itertuples())]
            for agent, own in group.groupby("agent", sort=False)
        ]
        tables.append(markdown_table(head, rows))
    return "\n".join([*tables, "± is a 95% confidence interval over seeds by Student's t.\n"])


def frontier_as_markdown(table: pd.DataFrame) -> str:
    """The longest chain that each agent solves at each budget, and the seeds that score at least 9 at every length."""
    lengths = sorted(table["length"].unique())
    rows = []
    for (agent, budget), own in table.groupby(["agent", "budget"], sort=False):
        at = {row.length: f"{row.score:.2f} ({row.seeds_at_9}/{row.seeds})" for row in own.itertuples()}
        longest = own.loc[own["held"], "length"].max() if own["held"].any() else "none"
        rows.append([label(str(agent)), str(budget), f"{longest}", *(at.get(n, "–") for n in lengths)])
    return markdown_table(["agent", "budget", "longest held", *(f"N = {n}" for n in lengths)], rows)


# Charts.


_BUDGETS = {"fixed": "fixed budget", "growing": "budget in proportion to N"}


def _scores(table: pd.DataFrame, x: str) -> list[Series]:
    table = table.sort_values(x, kind="stable")
    low, high = (table["score"] - table["score_ci"]).clip(0, 10), (table["score"] + table["score_ci"]).clip(0, 10)
    table = table.assign(_low=low.fillna(table["score"]), _high=high.fillna(table["score"]))
    return series_of(table, "agent", partial(series, x=x, y="score", band=("_low", "_high"), points=True))


def lengths(summary: pd.DataFrame) -> Chart:
    """The paper's Figure 1: score against chain length."""
    if summary["length"].nunique() < 2:
        raise ValueError("score against length needs several lengths, got one")
    panel = Panel("", "chain length N", "score", _scores(summary, "length"), y_range=(0, 10.4), guides=(10,))
    note = "Mean of the last ten evaluations, with its 95% confidence interval over seeds (Student's t)."
    return Chart("lengths", "Score against chain length", note, "summary", strongest([panel]))


def sensitivity(table: pd.DataFrame) -> Chart:
    """Score against each hyper-parameter; zero is drawn half a decade left of the smallest other value."""
    panels = []
    for parameter, rows in table.groupby("parameter", sort=False):
        zero = rows["value"] == 0
        smallest = rows.loc[~zero, "value"].min()
        shown = rows.assign(value=rows["value"].mask(zero, smallest / np.sqrt(10)))
        x_label, lines = SYMBOLS.get(str(parameter), str(parameter)), _scores(shown, "value")
        x_zero = numbers([smallest / np.sqrt(10)])[0] if zero.any() else None
        panels.append(Panel("", x_label, "score", lines, x_log=True, y_range=(0, 10.4), guides=(10,), x_zero=x_zero))
    length, seeds = table["length"].iloc[0], table["seeds"].iloc[0]
    note = f"N = {length}, {seeds} seeds; mean and 95% confidence interval (Student's t)."
    return Chart("sensitivity", "Sensitivity", note, "sensitivity", panels)


def frontier(table: pd.DataFrame) -> Chart:
    """Share of seeds that score at least 9, against chain length."""
    table = table.assign(_share=table["seeds_at_9"] / table["seeds"]).sort_values("length", kind="stable")
    looks = colours_of(unique(table["agent"]))
    make = partial(series, x="length", y="_share", points=True)
    panels = []
    for budget, rows in sorted(table.groupby("budget", sort=False), key=lambda pair: str(pair[0])):
        lines = series_of(rows, "agent", make, looks)
        names = _BUDGETS.get(str(budget), str(budget)), "chain length N", "share of seeds"
        panels.append(Panel(*names, lines, x_log=True, y_range=(0, 1.04), guides=(0.8,)))
    note = "Share of seeds that score at least 9; an agent solves a length if the share is at least 80%."
    return Chart("frontier", "Share of seeds that score at least 9", note, "frontier", strongest(panels))


def sweep(table: pd.DataFrame) -> Chart:
    """Heat-maps of a sweep over the two hyper-parameters that change an agent's score most."""
    table = table if "agent" in table else table.assign(agent="")
    known = {"agent", "length", "count", "score", "area", "error", "won", "seeds", "diverged"}
    names = [name for name in table.columns if name not in known and pd.api.types.is_numeric_dtype(table[name])]
    low, high = float(table["score"].min()), float(table["score"].max())
    panels = []
    for agent, rows in table.groupby("agent", sort=False):
        varied = [name for name in names if rows[name].nunique() > 1]
        means = {name: rows.groupby(name)["score"].mean() for name in varied}
        spread = {name: mean.max() - mean.min() for name, mean in means.items()}
        if not varied:
            continue
        x, y = [*sorted(varied, key=lambda name: -spread[name]), ""][:2]
        for length, cell in rows.groupby("length") if "length" in rows.dropna(axis=1, how="all") else [(None, rows)]:
            wide = cell.assign(_one="").pivot_table(index=y or "_one", columns=x, values="score", dropna=False)
            x_names, y_names = ([f"{value:g}" for value in ends] for ends in (wide.columns, wide.index if y else ()))
            heat = Heat(x_names, y_names or [""], [numbers(row, 4) for row in wide.to_numpy(float)], low, high)
            title = ", ".join(part for part in (label(str(agent)), "" if length is None else f"N = {length}") if part)
            panels.append(Panel(title, x, y, heat=heat))
    if not panels:
        raise ValueError("a sweep must vary a hyper-parameter, got none that varies")
    if math.isnan(low):
        raise ValueError("a heat-map of a sweep needs a point with a score, got none: runs of every point diverged")
    note = (
        "Mean score on tuning seeds over all settings of the other hyper-parameters, for the two that change "
        "an agent's score most. The best of many scores is too high on average, so winners are measured on fresh seeds."
    )
    return Chart("sweep", "Sweep", note, "sweep", panels)
