"""Matplotlib's drawing of a chart."""

from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator
from scipy.optimize import isotonic_regression

from feelgood.figures.chart import Chart, Panel, Series
from feelgood.figures.style import STYLE

_COLUMNS = 5
_MOST_PLACES = 8
_MOST_LETTERS = 18  # below a heat-map; more are slanted
# Labels at the ends of curves, in shares of the height: the gap between two, and the farthest that one may be moved.
_GAP, _FAR = 0.06, 0.2


def draw(chart: Chart) -> Figure:
    """Draws any chart."""
    rows = -(-len(chart.panels) // _COLUMNS)
    columns = -(-len(chart.panels) // rows)
    named = max((len(panel.y_names) for panel in chart.panels), default=0)
    size = (2.4, 2.3) if rows > 1 or columns > 3 else (3.4, 2.9) if columns > 1 else (4.6, 3.1)
    height = 0.28 * named + 0.9 if named else size[1]
    with rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns + 1.9, height * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        handles: dict[str, Artist] = {}
        for i, (axes, panel) in enumerate(zip(panels, chart.panels, strict=False)):
            (_heat if panel.heat else _lines)(axes, panel, handles)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x_label)
            if i % columns == 0 or panel.y_label != chart.panels[i - 1].y_label:
                axes.set_ylabel(panel.y_label)
            if panel.y_names and i % columns:
                axes.set_yticklabels([])
        for axes in panels[len(chart.panels) :]:
            axes.set_axis_off()
        if handles and not named and not (len(chart.panels) == 1 and _labelled(panels[0], chart.panels[0])):
            figure.legend(list(handles.values()), list(handles), loc="outside right center")
        figure.suptitle(chart.title, fontsize=10)
        return figure


def _lines(axes: Axes, panel: Panel, handles: dict[str, Artist]) -> None:
    ranked = any(one.strong for one in panel.series)
    for one in panel.series:
        if panel.y_names:
            _mark(axes, one)
            continue
        light = ranked and not one.strong
        width = 1.0 if light else 2.4 if one.strong else 1.6
        look: Any = {"linewidth": width, "alpha": 0.75 if light else 1.0, "zorder": 2 if light else 4}
        line, marker = "--" if one.dashed else "-", "o" if one.points else None
        (handle,) = axes.plot(one.x, one.y, line, color=one.colour, marker=marker, markersize=3, label=one.name, **look)
        if one.low is not None and one.high is not None:
            axes.fill_between(one.x, one.low, one.high, color=one.colour, alpha=0.08 if light else 0.18, lw=0)
        handles.setdefault(one.name, handle)
    for level in panel.guides:
        axes.axhline(level, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xscale("log" if panel.x_log else "linear")
    axes.set_yscale("log" if panel.y_log else "linear")
    if panel.y_log:
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda y, _: _between_decades(y, *axes.get_ylim())))
    if panel.x_log:
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda x, _: _between_decades(x, *axes.get_xlim())))
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
    if panel.x_range:
        axes.set_xlim(*panel.x_range)
    if panel.y_names:
        axes.set_yticks(range(len(panel.y_names)), list(panel.y_names))
        axes.set_ylim(len(panel.y_names) - 0.5, -0.5)
        return
    # Few marked positions, such as chain lengths, are the ticks themselves.
    places = sorted({x for one in panel.series for x in one.x})
    if any(one.points for one in panel.series) and len(places) <= _MOST_PLACES:
        axes.set_xticks(places, ["0" if place == panel.x_zero else _short(place) for place in places])
        axes.xaxis.set_minor_locator(NullLocator())
    elif panel.x_zero or not panel.x_log:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: "0" if x == panel.x_zero else _short(x)))


def _labelled(axes: Axes, panel: Panel) -> bool:
    """Writes the name of each curve at its end; returns False, and writes nothing, if ends are too close together."""
    ends = []
    axes.autoscale_view()  # the limits are otherwise set when the figure is drawn
    for one in panel.series:
        known = [(x, y) for x, y in zip(one.x, one.y, strict=True) if np.isfinite(y)]
        at = (axes.transData - axes.transAxes).transform(known[-1] if known else (0, 0))
        if not known or at[0] < 0.9:  # ends before the others
            return False
        ends.append((float(np.clip(at[1], 0, 1)), one))
    ends.sort(key=lambda end: end[0])
    places = np.array([place for place, _ in ends])
    # The nearest places, in squared distance, with a gap between any two.
    gaps = _GAP * np.arange(len(ends))
    moved = isotonic_regression(places - gaps).x + gaps
    if (len(ends) > 1 and np.ptp(places) < _GAP) or np.max(np.abs(moved - places), initial=0.0) > _FAR:
        return False
    for place, (_, one) in zip(moved, ends, strict=True):
        weight = "bold" if one.strong else "normal"
        look: Any = {"color": one.colour, "fontsize": 8, "fontweight": weight, "va": "center"}
        axes.text(1.02, place, one.name, transform=axes.transAxes, **look)
    return True


def _short(value: float) -> str:
    """A number for an axis: 25k, 1.5M."""
    for least, unit, letter in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _between_decades(value: float, low: float, high: float) -> str:
    """A label at 2 and 5 times a power of ten, if the axis is too short for powers of ten alone."""
    leading = round(value / 10 ** np.floor(np.log10(value)), 3)
    return _short(value) if high / low < 30 and leading in (2, 5) else ""


def _mark(axes: Axes, one: Series) -> None:
    face = "white" if one.dashed else one.colour
    axes.plot(one.x, one.y, "o", markersize=4, mfc=face, mec=one.colour, zorder=3)
    if one.low is not None and one.high is not None:
        axes.hlines(one.y, one.low, one.high, color=one.colour, linewidth=1.4)


def _heat(axes: Axes, panel: Panel, handles: dict[str, Artist]) -> None:
    assert panel.heat is not None
    x, y, values, low, high = panel.heat
    z = np.array(values, float)
    axes.imshow(z, vmin=low, vmax=high, cmap="viridis", aspect="auto", origin="lower")
    slant: Any = {"rotation": 40, "ha": "right"} if sum(map(len, x)) + len(x) > _MOST_LETTERS else {}
    axes.set_xticks(range(len(x)), list(x), **slant)
    axes.set_yticks(range(len(y)), list(y))
    for i, j in np.ndindex(*z.shape):
        if np.isfinite(z[i, j]):
            ink = "black" if high > low and z[i, j] - low >= (high - low) / 2 else "white"
            axes.text(j, i, f"{z[i, j]:.3g}", ha="center", va="center", color=ink, fontsize=6.5)
