"""Tables of the DeepSea study."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import linregress

from feelgood.figures.style import label
from feelgood.studies.output import markdown_table


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per environment, agent and size: the runs that solved it, and quartiles of the episodes until then.

    A run that did not solve its size counts as slower than all others, so a quartile is infinite if too few runs did.
    """
    rows = []
    for (environment, agent, size), group in runs.groupby(["environment", "agent", "size"], sort=False):
        episodes = group["episodes_to_solve"].astype(float).fillna(np.inf).to_numpy()
        rows.append(
            {
                "environment": environment,
                "agent": agent,
                "size": size,
                "mapping": group["mapping"].iloc[0],
                "runs": len(group),
                "solved": int(np.isfinite(episodes).sum()),
                **{name: quantile(episodes, q) for name, q in (("median", 0.5), ("low", 0.25), ("high", 0.75))},
                "budget_episodes": group["budget_episodes"].iloc[0],
            }
        )
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
    """Least squares of log median episodes on log N, over the sizes with a finite median; None for less than two.

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
    rows = [
        [
            f"{row.size}",
            label(str(row.agent)),
            f"{row.solved} of {row.runs}",
            _episodes(row.median, row.budget_episodes),
            f"{_episodes(row.low, row.budget_episodes)} to {_episodes(row.high, row.budget_episodes)}",
            f"{row.budget_episodes:,}",
        ]
        for row in summary.sort_values(["size"], kind="stable").itertuples(index=False, name="Row")
    ]
    text = markdown_table(head, rows)
    for agent, own in summary.groupby("agent", sort=False):
        if found := fit(own):
            error = "" if np.isnan(found.error) else f" ± {found.error:.2f}"
            text += (
                f"\n{label(str(agent))}: median episodes ≈ {found.factor:.2g} · N^{found.exponent:.2f}{error} "
                f"(least squares in logarithms and standard error, over {found.num_sizes} sizes with a median).\n"
            )
    return text


def _episodes(value: float, budget: int) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else f"> {budget:,}"
