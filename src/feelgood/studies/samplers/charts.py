"""The figure of the samplers study, and the chart of its distances."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, series, series_of
from feelgood.figures.style import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINES = ["-", "--", "-.", ":"]


def draw_samplers(
    grid: np.ndarray,
    densities: Mapping[str, np.ndarray],
    draws: Mapping[str, np.ndarray],
    distances: Mapping[str, np.ndarray],
    steps: np.ndarray,
    floor: float,
    caption: str,
) -> "Figure":
    """Draws a 2-D posterior with and without its feel-good term, the draws of each sampler, and their distances.

    Args:
      grid: (n,) coordinates of both axes.
      densities: two densities on the grid, (n, n) each, indexed [x, y]; the last is the target of the samplers.
      draws: (num_chains, 2) final positions for each sampler.
      distances: (len(steps),) distance of the chains to the target after `steps`, for each sampler.
      floor: distance between two sets of exact draws of the same size.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    colours = [colour for name, colour in COLOURS.items() if name not in ("yellow", "black")]
    looks = {name: (colours[i % len(colours)], _LINES[i // len(colours)]) for i, name in enumerate(draws)}
    num_rows = -(-len(draws) // 4)
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 3 + 2.3 * num_rows), layout="constrained")
        above, below = np.asarray(figure.subfigures(2, 1, height_ratios=[3, 2.3 * num_rows]))
        left, middle, right = above.subplots(1, 3, width_ratios=[1, 1, 1.6])
        target = list(densities.values())[-1]
        for panel, (title, density) in zip((left, middle), densities.items(), strict=True):
            panel.contourf(grid, grid, density.T, levels=12, cmap="Greys")
            panel.set_title(title)
            _square(panel, grid)
        for name, distance in distances.items():
            colour, line = looks[name]
            right.loglog(steps, distance, line, color=colour, label=name)
        right.axhline(floor, color=COLOURS["black"], linewidth=0.8)
        right.text(steps[0], floor * 0.62, "line: two sets of exact draws", va="top", fontsize=7)
        right.set_ylim(bottom=floor * 0.4)
        right.set_xlabel("steps")
        right.set_ylabel("distance to the target\n(sliced 2-Wasserstein)")
        right.legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.2)
        panels = below.subplots(num_rows, 4, squeeze=False).ravel()
        for panel in panels[len(draws) :]:
            panel.set_axis_off()
        for panel, (name, points) in zip(panels, draws.items(), strict=False):
            panel.contour(grid, grid, target.T, levels=5, colors="0.6", linewidths=0.6)
            panel.scatter(points[:, 0], points[:, 1], s=1.5, color=looks[name][0], alpha=0.5, linewidths=0)
            panel.set_title(name)
            _square(panel, grid)
        below.supxlabel(caption, fontsize=8, color="0.3")
        return figure


def _square(panel, grid: np.ndarray) -> None:
    panel.set_xlim(grid[0], grid[-1])
    panel.set_ylim(grid[0], grid[-1])
    panel.set_aspect("equal")
    panel.set_xticks([])
    panel.set_yticks([])


def distances(table: pd.DataFrame) -> Chart:
    """Distance of every sampler's chains to their target."""
    make = partial(series, x="step", y="distance")
    lines = series_of(table.sort_values("step", kind="stable"), "sampler", make)
    floor = float(table["floor"].iloc[0])
    panel = Panel("", "steps", "distance to the target", lines, x_log=True, y_log=True, guides=(floor,))
    note = "Sliced 2-Wasserstein distance between chains and exact draws; the level is that of two sets of exact draws."
    return Chart("distances", "Distance to the target", note, "distances", [panel])
