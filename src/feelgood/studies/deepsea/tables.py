"""Tables and the chart of the DeepSea study, and published results."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import linregress

from feelgood.figures.chart import Chart, Panel, Series, numbers, series, series_of
from feelgood.figures.style import COLOURS, label
from feelgood.studies.output import markdown_table


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per environment, agent and size: the runs that solved it, and quartiles of the episodes until then.

    A run that did not solve its size counts as slower than all others, so a quartile is infinite if too few runs did.
    """
    rows = []
    for (environment, agent, size), group in runs.groupby(["environment", "agent", "size"], sort=False):
        episodes = group["episodes_to_solve"].astype(float).fillna(np.inf).to_numpy()
        row: dict[str, Any] = {"environment": environment, "agent": agent, "size": size}
        row |= {"mapping": group["mapping"].iloc[0], "runs": len(group), "solved": int(np.isfinite(episodes).sum())}
        row |= {name: quantile(episodes, q) for name, q in (("median", 0.5), ("low", 0.25), ("high", 0.75))}
        rows.append(row | {"budget_episodes": group["budget_episodes"].iloc[0]})
    return pd.DataFrame(rows)


def quantile(values: np.ndarray, q: float) -> float:
    """A quantile by linear interpolation of values that may be infinite.

    Examples:
      >>> quantile(np.array([1.0, 3.0, np.inf]), 0.25), quantile(np.array([1.0, np.inf]), 0.5)
      (2.0, inf)
    """
    place = q * (len(values) - 1)
    low, high = np.sort(values)[[int(np.floor(place)), int(np.ceil(place))]]
    return float(low if low == high else low + (place - np.floor(place)) * (high - low))


class Fit(NamedTuple):
    """The power law median ≈ factor · N^exponent, the exponent's standard error, and the number of sizes."""

    factor: float
    exponent: float
    error: float
    num_sizes: int


def fit(summary: pd.DataFrame) -> Fit | None:
    """Least squares of log median on log N, over the sizes with a finite median; None for less than two of them.

    The standard error is NaN for two sizes.
    """
    known = summary[np.isfinite(summary["median"])]
    if known["size"].nunique() < 2:
        return None
    line = linregress(np.log(known["size"].to_numpy(float)), np.log(known["median"].to_numpy(float)))
    error = line.stderr if len(known) > 2 else np.nan
    return Fit(float(np.exp(line.intercept)), float(line.slope), float(error), len(known))


def as_markdown(summary: pd.DataFrame) -> str:
    """The summary as a Markdown table, and a sentence for each fitted exponent."""
    head = ["N", "agent", "solved", "median episodes", "interquartile range", "budget"]
    rows = []
    for row in summary.sort_values("size", kind="stable").to_dict("records"):
        budget = f"{row['budget_episodes']:,}"
        middle, low, high = (
            f"{row[name]:,.0f}" if np.isfinite(row[name]) else f"> {budget}" for name in ("median", "low", "high")
        )
        solved = f"{row['solved']} of {row['runs']}"
        rows.append([str(row["size"]), label(str(row["agent"])), solved, middle, f"{low} to {high}", budget])
    text = markdown_table(head, rows)
    for agent, own in summary.groupby("agent", sort=False):
        if found := fit(own):
            error = "" if np.isnan(found.error) else f" ± {found.error:.2f}"
            text += (
                f"\n{label(str(agent))}: median episodes ≈ {found.factor:.2g} · N^{found.exponent:.2f}{error} "
                f"(least squares in logarithms and standard error, over {found.num_sizes} sizes with a median).\n"
            )
    return text


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


def chart(summary: pd.DataFrame) -> Chart:
    """Median episodes to solve with their quartiles against N, next to published results.

    Raises:
      ValueError: if there is nothing to draw.
    """
    panels = []
    for environment, rows in summary.groupby("environment", sort=False):
        known = rows[np.isfinite(rows["median"])].sort_values("size", kind="stable")
        shown = known.assign(high=known["high"].where(np.isfinite(known["high"]), known["budget_episodes"]))
        lines = series_of(shown, "agent", _line)
        if environment == "deep_sea":
            lines += [
                Series(name, colour, numbers(list(counts)), numbers(list(counts.values())), dashed=True)
                for name, (colour, counts) in PUBLISHED.items()
            ]
        title = "" if environment == "deep_sea" else "stochastic"
        panels.append(Panel(title, "size N", "episodes to solve", lines, x_log=True, y_log=True))
    if not any(panel.series for panel in panels):
        raise ValueError("episodes to solve need a size that half of the runs have solved, got none")
    note = (
        "Median over runs with the interquartile range, and its fit a·N^b; sizes that half of the runs did not solve "
        "are left out, and a quartile beyond the budget ends there. Published counts (dashed) follow their authors' "
        "own rules for a solved size."
    )
    return Chart("deepsea", "Episodes to solve DeepSea", note, "summary", panels)


def _line(name: str, colour: str, rows: pd.DataFrame, **look: Any) -> Series:
    law = fit(rows)
    name = f"{name}: N^{law.exponent:.1f}" if law else name
    return series(name, colour, rows, "size", "median", ("low", "high"), points=True, strong=True, **look)
