"""What to draw, in plain numbers, for whatever draws it: matplotlib, the page of a report, a program."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feelgood.figures.style import AGENT_COLOURS, LOOKS, colours_of
from feelgood.statistics import interval

__all__ = [
    "Chart",
    "Heat",
    "Panel",
    "Series",
    "as_hex",
    "colours",
    "is_dashed",
    "label",
    "mean_series",
    "numbers",
    "series",
    "unique",
]


class Series(NamedTuple):
    """A curve: points in rising order of x, a band around them where `low` and `high` are given."""

    name: str
    colour: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    dashed: bool = False
    points: bool = False


class Heat(NamedTuple):
    """A matrix of values; `z[i][j]` lies at `y[i]` and `x[j]`."""

    x: Sequence[str]
    y: Sequence[str]
    z: Sequence[Sequence[float]]
    low: float
    high: float


class Panel(NamedTuple):
    """Axes with series on them, or a heat-map. `guides` are levels to mark, `y_names` stand for y = 0, 1, …

    An end of `y_range` that is None is where the data end.
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


class Chart(NamedTuple):
    """Panels under one title with a line on what they show, and the table they come from."""

    kind: str
    title: str
    note: str
    table: str
    panels: Sequence[Panel]


def colours(names: Iterable[str]) -> dict[str, str]:
    """Colours of agents and algorithms, see `colours_of`."""
    known = AGENT_COLOURS | {name: look[1] for name, look in LOOKS.items()}
    return colours_of(names, {name: as_hex(colour) for name, colour in known.items()})


def as_hex(colour: str) -> str:
    """A colour as every program understands it; matplotlib also knows grey levels such as 0.6."""
    return colour if colour.startswith("#") else "#" + 3 * f"{round(float(colour) * 255):02x}"


def label(agent: str) -> str:
    """The name of an agent or algorithm as people write it."""
    return LOOKS[agent][0] if agent in LOOKS else agent


def is_dashed(agent: str) -> bool:
    """Whether an algorithm shares its colour with another and differs from it by its line."""
    return agent in LOOKS and LOOKS[agent][2] != "-"


def numbers(values: Any, digits: int = 5) -> list[float]:
    """Plain numbers, rounded to what an eye can tell, so that a page stays small."""
    return [float(f"{value:.{digits}g}") for value in np.asarray(values, float)]


def unique(values: pd.Series) -> list[str]:
    """The values in the order in which they first come."""
    return list(dict.fromkeys(values.astype(str)))


def series(
    name: str, colour: str, rows: pd.DataFrame, x: str, y: str, band: tuple[str, str] | None = None, **look
) -> Series:
    """A series from columns of a table; `band` names those of its lower and its upper end."""
    low, high = (numbers(rows[band[0]]), numbers(rows[band[1]])) if band else (None, None)
    return Series(name, colour, numbers(rows[x]), numbers(rows[y]), low, high, **look)


def mean_series(name: str, colour: str, rows: pd.DataFrame, x: str, y: str, bounds=(-np.inf, np.inf), **look) -> Series:
    """Mean over seeds with its 95% interval (Student's t), cut at `bounds`, at every x."""
    wide = rows.pivot_table(index=x, columns="seed", values=y)
    pairs = [interval(row[~np.isnan(row)]) for row in wide.to_numpy(float)]
    means, halves = np.array(pairs).reshape(-1, 2).T
    halves = np.nan_to_num(halves)  # one seed has no interval
    low, high = (means - halves).clip(*bounds), (means + halves).clip(*bounds)
    return Series(name, colour, numbers(wide.index), numbers(means), numbers(low), numbers(high), **look)
