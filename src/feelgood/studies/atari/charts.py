"""Charts of the Atari study."""

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, mean_series, numbers, unique
from feelgood.figures.curves import learning_curves
from feelgood.figures.style import COLOURS, SYMBOLS, colours_of, label, shades
from feelgood.studies.atari.tables import sensitivity, varied_agent


def curves_and_published(curves: pd.DataFrame, published: pd.DataFrame | None = None) -> Chart:
    """Learning curves, a panel for each game.

    Of agents that have `published` curves on the same game, the median over published seeds is drawn dashed, with their
    range as its band.
    """
    chart = learning_curves(curves)
    if published is None:
        return chart
    colours = colours_of(unique(curves["agent"]))
    panels = []
    for panel, (game, own) in zip(chart.panels, curves.groupby("game", sort=False), strict=True):
        lines = []
        for agent in unique(own["agent"]):
            theirs = published[(published["game"] == game) & (published["agent"] == agent)]
            if theirs.empty:
                continue
            wide = theirs.pivot_table(index="frame", columns="seed", values="return").sort_index()
            ends = (numbers(end(wide.to_numpy(float), axis=-1)) for end in (np.nanmedian, np.nanmin, np.nanmax))
            name = f"{label(agent)}, published"
            lines.append(Series(name, colours[agent], numbers(wide.index), *ends, dashed=True))
        panels.append(panel._replace(series=[*lines, *panel.series]))
    note = f"{chart.note} Dashed: the median of published seeds, with their range."
    return chart._replace(note=note, panels=panels)


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
