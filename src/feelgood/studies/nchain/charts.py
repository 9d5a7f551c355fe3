"""Charts of the studies on the N-chain, and of sweeps."""

import math
from functools import partial

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Heat, Panel, Series, numbers, series, series_of, strongest, unique
from feelgood.figures.style import SYMBOLS, colours_of, label

_BUDGETS = {"fixed": "fixed budget", "growing": "budget in proportion to N"}


def _scores(table: pd.DataFrame, x: str) -> list[Series]:
    """Score with its 95% interval against x, for each agent."""
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
        title = _BUDGETS.get(str(budget), str(budget))
        panel = Panel(title, "chain length N", "share of seeds", lines, x_log=True, y_range=(0, 1.04), guides=(0.8,))
        panels.append(panel)
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
