"""The chart of the DeepSea study, and published results."""

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, numbers, series, series_of
from feelgood.figures.style import COLOURS
from feelgood.studies.deepsea.tables import fit

_SIZES = (10, 20, 30, 40, 50)
PUBLISHED: dict[str, tuple[str, dict[int, float]]] = {
    # The fit 10^-0.5 · N³ of Osband, Aslanides and Cassirer (2018).
    "Bootstrapped DQN + prior (2018)": (COLOURS["grey"], {n: 10**-0.5 * n**3 for n in _SIZES}),
    # The authors' fit: Janz et al. (2019).
    "Successor Uncertainties (2019)": (COLOURS["pink"], {20: 201, 40: 1_100, 50: 2_000, 100: 11_000}),
    # Read off a figure of Li et al. (2024).
    "HyperAgent (2024)": (COLOURS["blue"], {20: 400, 50: 1_900, 100: 4_300}),
}
"""Published episodes to solve DeepSea without wind, by size."""


def deepsea(summary: pd.DataFrame) -> Chart:
    """Median episodes to solve with their quartiles against N, next to published results.

    Raises:
      ValueError: if there is nothing to draw.
    """
    panels = [
        _panel(str(environment), rows.sort_values("size", kind="stable"))
        for environment, rows in summary.groupby("environment", sort=False)
    ]
    if not any(panel.series for panel in panels):
        raise ValueError("episodes to solve need a size that half of the runs have solved, got none")
    note = (
        "Median over runs with the interquartile range, and its fit a·N^b; sizes that half of the runs did not solve "
        "are left out, and a quartile beyond the budget ends there. Published counts (dashed) follow their authors' "
        "own rules for a solved size."
    )
    return Chart("deepsea", "Episodes to solve DeepSea", note, "summary", panels)


def _panel(environment: str, rows: pd.DataFrame) -> Panel:
    known = rows[np.isfinite(rows["median"])]
    shown = known.assign(high=known["high"].where(np.isfinite(known["high"]), known["budget_episodes"]))
    found = {str(agent): fit(own) for agent, own in known.groupby("agent", sort=False)}

    def line(name, colour, own, **look) -> Series:
        law = found[own["agent"].iloc[0]]
        name = f"{name}: N^{law.exponent:.1f}" if law else name
        return series(name, colour, own, "size", "median", ("low", "high"), points=True, **look)

    ours = [one._replace(strong=True) for one in series_of(shown, "agent", line)] if len(shown) else []
    theirs = [] if environment != "deep_sea" else _published()
    title = "" if environment == "deep_sea" else "stochastic"
    return Panel(title, "size N", "episodes to solve", [*ours, *theirs], x_log=True, y_log=True)


def _published() -> list[Series]:
    return [
        Series(name, colour, numbers(list(counts)), numbers(list(counts.values())), dashed=True)
        for name, (colour, counts) in PUBLISHED.items()
    ]
