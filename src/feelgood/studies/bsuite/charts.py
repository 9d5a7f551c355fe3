"""The chart of the bsuite study."""

import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, numbers, unique
from feelgood.figures.style import colours_of, label


def scores(table: pd.DataFrame) -> Chart:
    """The score of every experiment as a bar from 0, a panel for each agent."""
    experiments, agents = unique(table["experiment"]), unique(table["agent"])
    panels = []
    for agent, colour in colours_of(agents).items():
        own = table[table["agent"].astype(str) == agent].set_index("experiment")["score"]
        bars = [
            Series(name, colour, numbers([own[name]]), [i], [0.0], numbers([own[name]]))
            for i, name in enumerate(experiments)
            if name in own.index
        ]
        panels.append(Panel(label(agent), "score", "", bars, y_names=experiments, x_range=(-0.02, 1.04)))
    note = "Scores by bsuite's formulas, 0 to 1 (higher is better); see the table for the ids and episodes behind them."
    return Chart("bsuite", "bsuite scores", note, "scores", panels)
