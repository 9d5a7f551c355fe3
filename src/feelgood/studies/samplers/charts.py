"""The chart of the samplers study."""

from functools import partial

import pandas as pd

from feelgood.figures.chart import Chart, Panel, series, series_of


def distances(table: pd.DataFrame) -> Chart:
    """Distance of every sampler's chains to their target."""
    make = partial(series, x="step", y="distance")
    lines = series_of(table.sort_values("step", kind="stable"), "sampler", make)
    floor = float(table["floor"].iloc[0])
    panel = Panel("", "steps", "distance to the target", lines, x_log=True, y_log=True, guides=(floor,))
    note = "Sliced 2-Wasserstein distance between chains and exact draws; the level is that of two sets of exact draws."
    return Chart("distances", "Distance to the target", note, "distances", [panel])
