"""Figures of the Atari study: learning curves beside published ones, and what scores depend on."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from feelgood.figures.style import STYLE, colours_of
from feelgood.statistics import interval
from feelgood.studies.atari.tables import sensitivity
from feelgood.studies.nchain.tables import SYMBOLS

__all__ = ["draw_curves", "draw_sensitivity"]


def _wide(curves: pd.DataFrame) -> pd.DataFrame:
    """Returns by frame (rows) and seed (columns), NaN where a run has ended."""
    return curves.pivot_table(index="frame", columns="seed", values="return").sort_index()


def _median_band(values: np.ndarray, num_draws: int = 1000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The median over the last axis, and its 95% percentile interval by drawing seeds anew, the same for all rows."""
    num_seeds = values.shape[-1]
    drawn = np.random.default_rng(0).integers(num_seeds, size=(num_draws, num_seeds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a draw of none but seeds that have diverged
        medians = np.nanmedian(values[:, drawn], axis=-1)
    low, high = np.nanquantile(medians, [0.025, 0.975], axis=-1)
    return np.nanmedian(values, axis=-1), low, high


def draw_curves(curves: pd.DataFrame, published: pd.DataFrame | None = None) -> Figure:
    """Learning curves, a panel for each game: the median over seeds with its 95% bootstrap interval.

    Args:
      curves: ours; with a single seed only its line is drawn.
      published: curves of others; of agents that we have on the same game, their median is drawn dashed, and the range
        of their seeds behind it.
    """
    games = list(curves["game"].unique())
    columns = min(len(games), 4)
    rows = -(-len(games) // columns)
    with rc_context(STYLE):
        figure = Figure(figsize=(2.7 * columns + 1.9, 2.2 * rows + 0.5), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        handles: dict[str, Any] = {}
        colours = colours_of(map(str, curves["agent"].unique()))
        for panel, game in zip(panels, games, strict=False):
            mine = curves[curves["game"] == game]
            for agent, group in mine.groupby("agent", sort=False):
                colour = colours[str(agent)]
                if published is not None:
                    theirs = published[(published["game"] == game) & (published["agent"] == agent)]
                    if len(theirs):
                        _draw_published(panel, _wide(theirs), colour, handles)
                table = _wide(group)
                if table.empty:
                    continue
                median, low, high = _median_band(table.to_numpy(float))
                (line,) = panel.plot(table.index, median, color=colour, zorder=3)
                if table.shape[1] > 1:
                    panel.fill_between(table.index, low, high, color=colour, alpha=0.22, lw=0, zorder=2)
                handles.setdefault(str(agent), line)
            panel.set_title(f"{game}, {_seeds(mine)}")
            panel.xaxis.set_major_formatter(lambda frame, _: f"{frame / 1e6:g}")
            panel.set_xlabel("million frames")
        for panel in panels[::columns]:
            panel.set_ylabel("evaluation return")
        for panel in panels[len(games) :]:
            panel.set_axis_off()
        ours = {name: handle for name, handle in handles.items() if not name.startswith("published")}
        ordered = {**ours, **handles}
        figure.legend(list(ordered.values()), list(ordered), loc="outside right center")
        return figure


def _draw_published(panel: Axes, table: pd.DataFrame, colour: str, handles: dict[str, Any]) -> None:
    values = table.to_numpy(float)
    panel.plot(table.index, np.nanmedian(values, axis=-1), "--", color=colour, linewidth=0.9, alpha=0.9, zorder=1)
    panel.fill_between(
        table.index, np.nanmin(values, axis=-1), np.nanmax(values, axis=-1), color=colour, alpha=0.1, lw=0, zorder=0
    )
    handles.setdefault("published, median", Line2D([], [], color="0.3", linestyle="--", linewidth=0.9))
    handles.setdefault("published, all seeds", Patch(color="0.3", alpha=0.15, linewidth=0))


def _seeds(curves: pd.DataFrame) -> str:
    count = curves["seed"].nunique()
    return f"{count} seed" if count == 1 else f"{count} seeds"


def draw_sensitivity(curves: pd.DataFrame) -> Figure:
    """For each game, agent and parameter: learning curves of every value, and the score against the value.

    Curves are means over seeds with 95% confidence intervals (Student's t), as in the paper's Figure 3.
    """
    scores = sensitivity(curves)
    table = curves.assign(agent=[str(agent).partition(" ")[0] for agent in curves["agent"]])
    keys = ["game", "agent", "parameter"]
    groups = list(table.groupby(keys, sort=False))
    with rc_context(STYLE):
        figure = Figure(figsize=(7.6, 2.6 * len(groups) + 0.2), layout="constrained")
        panels = figure.subplots(len(groups), 2, squeeze=False)
        for (left, right), (names, group) in zip(panels, groups, strict=True):
            values = sorted(group["value"].unique())
            colours = colormaps["viridis"](np.linspace(0, 0.88, len(values)))
            own = scores[(scores[keys] == list(names)).all(axis=1)].sort_values("value")
            for value, colour in zip(values, colours, strict=True):
                wide = _wide(group[group["value"] == value])
                means, errors = np.array([interval(row[np.isfinite(row)]) for row in wide.to_numpy(float)]).T
                left.plot(wide.index, means, color=colour, label=f"{value:g}")
                left.fill_between(wide.index, means - errors, means + errors, color=colour, alpha=0.15, lw=0)
                at = own[own["value"] == value]
                right.errorbar(at["value"], at["last_10"], at["last_10_ci"].fillna(0), fmt="o", color=colour, capsize=2)
            right.plot(own["value"], own["last_10"], color="0.6", linewidth=1, zorder=0)
            symbol = SYMBOLS.get(names[2], names[2])
            left.set_title(f"{names[1]} on {names[0]}, {_seeds(group)}")
            left.xaxis.set_major_formatter(lambda frame, _: f"{frame / 1e6:g}")
            left.set_xlabel("million frames")
            left.set_ylabel("evaluation return")
            left.legend(title=symbol, title_fontsize=8, loc="upper left", ncols=2)
            if min(values) > 0:
                right.set_xscale("log")
            else:
                right.set_xscale("symlog", linthresh=min([value for value in values if value > 0], default=1.0))
            right.xaxis.set_minor_locator(NullLocator())
            right.set_xlabel(symbol)
            right.set_ylabel("mean of the last 10 evaluations")
        return figure
