"""Figures as records of plain numbers: Matplotlib, the report page and `--json` are made from them."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feelgood.figures.style import LOOKS, colours_of, is_ablation, label
from feelgood.statistics import mean_band

RANDOM = "random actions"
"""Name of the level that agents are compared with."""


class Series(NamedTuple):
    """A curve at rising x, with a band from low to high, if any.

    A single mark that is `dashed` is hollow. With `points` every value is marked. A `strong` curve is drawn in front of
    the others and thicker.
    """

    name: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dashed: bool = False
    points: bool = False
    strong: bool = False


class Heat(NamedTuple):
    """A matrix of values; `z[i][j]` lies at `y[i]` and `x[j]`."""

    x: Sequence[str]
    y: Sequence[str]
    z: Sequence[Sequence[float]]
    low: float
    high: float


class Panel(NamedTuple):
    """Axes with series on them, or a heat-map.

    Attributes:
      x_log: whether the horizontal axis is logarithmic; likewise `y_log`.
      y_range: ends of the vertical axis; None for an end that follows the data.
      guides: levels to mark.
      y_names: names at y = 0, 1, …; each series is then one mark with its interval.
      x_zero: the position that stands for 0 on a logarithmic axis, if any.
      x_range: ends of the horizontal axis, if they do not follow the data.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series] = ()
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float | None] | None = None
    guides: Sequence[float] = ()
    y_names: Sequence[str] = ()
    heat: Heat | None = None
    x_zero: float | None = None
    x_range: tuple[float, float] | None = None


class Chart(NamedTuple):
    """Panels under one title, with one line that explains them and the name of the table they come from."""

    kind: str
    title: str
    note: str
    table: str
    panels: Sequence[Panel]


def numbers(values: Any, digits: int = 5) -> list[float]:
    """Plain numbers, rounded to `digits` significant digits so that a page stays small."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, float)]


def plain(value: Any, number: Callable[[float], Any] = lambda number: number) -> Any:
    """Records as JSON: fields by name, null for numbers that are not finite, and `number` of the others."""
    if hasattr(value, "_asdict"):
        return {name: plain(item, number) for name, item in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(item, number) for item in value]
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else None
    return value


def unique(values: pd.Series) -> list[str]:
    """The distinct values as text, in order of first appearance."""
    return list(dict.fromkeys(values.astype(str)))


def series(
    name: str, colour: str, rows: pd.DataFrame, x: str, y: str, band: tuple[str, str] | None = None, **look
) -> Series:
    """A series from columns of a table; `band` names the columns of its lower and its upper end."""
    low, high = (numbers(rows[band[0]]), numbers(rows[band[1]])) if band else (None, None)
    return Series(name, colour, numbers(rows[x]), numbers(rows[y]), low, high, **look)


def mean_series(name: str, colour: str, rows: pd.DataFrame, x: str, y: str, **look) -> Series:
    """Mean over seeds at every x with its 95% bootstrap interval; one seed has no interval."""
    wide = rows.pivot_table(index=x, columns="seed", values=y)
    means, *ends = map(numbers, mean_band(wide.to_numpy(float)))
    low, high = ends if wide.shape[1] > 1 else (None, None)
    return Series(name, colour, numbers(wide.index), means, low, high, **look)


def series_of(table: pd.DataFrame, column: str, make: Any, colours: dict[str, str] | None = None) -> list[Series]:
    """`make(label, colour, rows, dashed=…)` for every name in a column that has rows, with published names."""
    looks = colours or colours_of(unique(table[column]))
    groups = {str(name): rows for name, rows in table.groupby(table[column].astype(str), sort=False)}
    return [
        make(label(name), colour, groups[name], dashed=LOOKS[name].dashed if name in LOOKS else is_ablation(name))
        for name, colour in looks.items()
        if name in groups
    ]


def strongest(panels: Sequence[Panel], *, lowest: bool = False) -> list[Panel]:
    """Marks the series whose end values rank best on average over the panels, among the longest series."""
    counts: dict[str, int] = {}
    ranks: dict[str, list[int]] = {}
    for panel in panels:
        ends = {one.name: [y for y in one.y if np.isfinite(y)] for one in panel.series if one.name != RANDOM}
        order = sorted({values[-1] for values in ends.values() if values}, reverse=not lowest)
        for name, values in ends.items():
            counts[name] = counts.get(name, 0) + len(values)
            ranks.setdefault(name, []).extend([order.index(values[-1])] if values else [])
    whole = [name for name, count in counts.items() if count == max(counts.values()) and ranks[name]]
    if len(counts) < 2 or not whole:
        return list(panels)
    best = min(whole, key=lambda name: float(np.mean(ranks[name])))
    return [panel._replace(series=[one._replace(strong=one.name == best) for one in panel.series]) for panel in panels]
