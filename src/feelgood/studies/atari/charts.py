"""Charts of the Atari study."""

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, mean_series, numbers
from feelgood.figures.curves import learning_curves
from feelgood.figures.style import COLOURS, SYMBOLS, colours_of, label, shades
from feelgood.studies.atari.tables import sensitivity, varied_agent


def curves_and_published(curves: pd.DataFrame, published: pd.DataFrame | None = None) -> Chart:
    """Learning curves, a panel for each game.

    Args:
      curves: a row per run and evaluation.
      published: curves of others; for agents that `curves` has on the same game, the median over their seeds is drawn
        dashed, with the range of their seeds as its band.
    """
    chart = learning_curves(curves)
    if published is None:
        return chart
    colours = colours_of(dict.fromkeys(curves["agent"].astype(str)))
    panels = []
    for panel, (game, own) in zip(chart.panels, curves.groupby("game", sort=False), strict=True):
        theirs = published[published["game"] == game]
        lines = [
            _median(f"{label(agent)}, published", colours[agent], theirs[theirs["agent"] == agent])
            for agent in dict.fromkeys(own["agent"].astype(str))
            if (theirs["agent"] == agent).any()
        ]
        panels.append(panel._replace(series=[*lines, *panel.series]))
    note = f"{chart.note} Dashed: the median of published seeds, with their range."
    return chart._replace(note=note, panels=panels)


def _median(name: str, colour: str, rows: pd.DataFrame) -> Series:
    wide = rows.pivot_table(index="frame", columns="seed", values="return").sort_index()
    values = wide.to_numpy(float)
    low, middle, high = (numbers(end(values, axis=-1)) for end in (np.nanmin, np.nanmedian, np.nanmax))
    return Series(name, colour, numbers(wide.index), middle, low, high, dashed=True)


def sensitivity_curves(curves: pd.DataFrame) -> Chart:
    """For each game, agent and parameter: learning curves of every value, then the score against the value.

    Curves and scores are means over seeds, as in the paper's Figure 3, with 95% intervals: bootstrap for curves,
    Student's t for scores.
    """
    scores = sensitivity(curves)
    table = curves.assign(agent=[varied_agent(str(agent)) for agent in curves["agent"]])
    keys = ["game", "agent", "parameter"]
    panels = []
    for (game, agent, parameter), group in table.groupby(keys, sort=False):
        values = sorted(group["value"].unique())
        symbol = SYMBOLS.get(str(parameter), str(parameter))
        lines = [
            mean_series(f"{symbol} = {value:g}", colour, group[group["value"] == value], "frame", "return")
            for value, colour in zip(values, shades(len(values)), strict=True)
        ]
        title = f"{label(str(agent))}, {game}"
        panels.append(Panel(title, "frames", "evaluation return", lines))
        own = scores[(scores[keys] == [game, agent, parameter]).all(axis=1)].sort_values("value")
        means, halves = own["last_10"].to_numpy(float), np.nan_to_num(own["last_10_ci"].to_numpy(float))
        band = numbers(means - halves), numbers(means + halves)
        line = Series("score", COLOURS["grey"], numbers(values), numbers(means), *band, points=True)
        panels.append(Panel(title, symbol, "mean of the last 10 evaluations", [line], x_log=bool(min(values) > 0)))
    seeds = curves["seed"].nunique()
    note = f"Means over {seeds} seed{'s' if seeds > 1 else ''} with 95% intervals."
    return Chart("values", "Sensitivity", note, "curves", panels)
