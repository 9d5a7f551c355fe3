"""Matplotlib's drawing of a chart."""

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from feelgood.figures.chart import Chart, Panel, Series
from feelgood.figures.style import STYLE

__all__ = ["draw", "save_as"]

_COLUMNS = 4


def draw(chart: Chart) -> Figure:
    """Draws any chart."""
    columns = min(len(chart.panels), _COLUMNS)
    rows = -(-len(chart.panels) // columns)
    size = (2.6, 2.3) if rows > 1 else (3.4, 2.9)
    with rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns + 1.8, size[1] * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        handles: dict[str, Artist] = {}
        for axes, panel in zip(panels, chart.panels, strict=False):
            (_heat if panel.heat else _lines)(axes, panel, handles)
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x_label)
            axes.set_ylabel(panel.y_label)
        for axes in panels[len(chart.panels) :]:
            axes.set_axis_off()
        if handles and not any(panel.y_names for panel in chart.panels):
            figure.legend(list(handles.values()), list(handles), loc="outside right center")
        figure.suptitle(chart.title, fontsize=10)
        return figure


def _lines(axes: Axes, panel: Panel, handles: dict[str, Artist]) -> None:
    for one in panel.series:
        if panel.y_names:
            _mark(axes, one)
            continue
        line = "--" if one.dashed else "-"
        marker = "o" if one.points else None
        (handle,) = axes.plot(one.x, one.y, line, color=one.colour, marker=marker, markersize=3, label=one.name)
        if one.low is not None and one.high is not None:
            axes.fill_between(one.x, one.low, one.high, color=one.colour, alpha=0.15, lw=0)
        handles.setdefault(one.name, handle)
    for level in panel.guides:
        axes.axhline(level, color="0.7", linewidth=0.8, zorder=0)
    if panel.x_log:
        axes.set_xscale("log")
    if panel.y_log:
        axes.set_yscale("log")
    if panel.y_range:
        axes.set_ylim(*panel.y_range)
    if panel.y_names:
        axes.set_yticks(range(len(panel.y_names)), list(panel.y_names))
        axes.invert_yaxis()


def _mark(axes: Axes, one: Series) -> None:
    """A value with its interval beside a name."""
    face = "white" if one.dashed else one.colour
    axes.plot(one.x, one.y, "o", markersize=4, mfc=face, mec=one.colour, zorder=3)
    if one.low is not None and one.high is not None:
        axes.hlines(one.y, one.low, one.high, color=one.colour, linewidth=1.4)


def _heat(axes: Axes, panel: Panel, handles: dict[str, Artist]) -> None:
    assert panel.heat is not None
    z = np.array(panel.heat.z, float)
    axes.imshow(z, vmin=panel.heat.low, vmax=panel.heat.high, cmap="viridis", aspect="auto", origin="lower")
    axes.set_xticks(range(len(panel.heat.x)), list(panel.heat.x))
    axes.set_yticks(range(len(panel.heat.y)), list(panel.heat.y))
    middle = (panel.heat.low + panel.heat.high) / 2
    for i, j in np.ndindex(*z.shape):
        if np.isfinite(z[i, j]):
            ink = "white" if z[i, j] < middle else "black"
            axes.text(j, i, f"{z[i, j]:.3g}", ha="center", va="center", color=ink, fontsize=6.5)


def save_as(figure: Figure, path: Path) -> None:
    """Writes a figure in the format of the file's ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(STYLE):
        figure.savefig(path)
