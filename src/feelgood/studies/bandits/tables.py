"""Summary tables of the bandits study in Markdown."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from feelgood.figures.style import label
from feelgood.studies.output import markdown_table, plus_minus

PUBLISHED = {"linear-20d": 56.2, "linear-40d": 100.6, "logistic-20d": 176.9}
"""The least mean regret at T = 10,000 in the published comparison (Anand and Liaw, 2025), ten seeds."""


def final(curves: pd.DataFrame) -> pd.DataFrame:
    """Mean regret at the last round and half the width of its 95 % interval, a row per problem and algorithm."""
    last = curves[curves["round"] == curves.groupby("problem")["round"].transform("max")]
    groups = last.groupby(["problem", "algorithm", "setting", "round"], sort=False)["regret"]
    table = groups.agg(["mean", "std", "count", "median"]).reset_index()
    return table.assign(half=1.96 * table["std"] / np.sqrt(table["count"]))


def as_markdown(tables: Mapping[str, pd.DataFrame]) -> str:
    """All tables as Markdown."""
    return "\n".join(_MAKE[part](table) for part, table in tables.items())


def _curves(table: pd.DataFrame) -> str:
    ends = final(table)
    problems = list(ends["problem"].unique())
    cells = {(row.problem, row.algorithm): plus_minus(row.mean, row.half, ".1f") for row in ends.itertuples()}
    # Best mean rank over problems first, as each problem has its own scale.
    ranks = ends.groupby("problem")["mean"].rank(pct=True).groupby(ends["algorithm"]).mean().sort_values(kind="stable")
    rows = [[label(str(name)), *(cells.get((problem, name), "–") for problem in problems)] for name in ranks.index]
    rounds, seeds = table["round"].max(), table["seed"].nunique()
    head = f"Mean regret after {rounds:,} rounds, {seeds} fresh seeds, ± 1.96 standard errors (a 95% interval):"
    settings = [[row.problem, label(row.algorithm), row.setting] for row in ends.itertuples() if row.setting]
    tuned = markdown_table(["problem", "algorithm", "chosen on tuning seeds"], settings)
    return f"{head}\n\n{markdown_table(['algorithm', *problems], rows)}\n{tuned}"


def _weights(table: pd.DataFrame) -> str:
    groups = table.groupby(["draws", "temperature", "decay", "weight"], sort=False)["regret"]
    ends = groups.agg(["mean", "std", "count"]).reset_index()
    halves = 1.96 * ends["std"] / np.sqrt(ends["count"])
    ends["text"] = [plus_minus(mean, half, ".1f") for mean, half in zip(ends["mean"], halves, strict=True)]
    rows = []
    for index, own in ends.groupby(["draws", "temperature", "decay"], sort=False):
        rows.append([*map(str, index), ", ".join(f"{row.weight:g}: {row.text}" for row in own.itertuples())])
    head = f"Mean regret after {table['rounds'].max():,} rounds against the feel-good weight λ·(1 + t)^−p:"
    return f"{head}\n\n{markdown_table(['draws', 'temperature', 'p', 'λ: regret'], rows)}"


def _errors(table: pd.DataFrame) -> str:
    rows = []
    for (name, steps), own in table.groupby(["sampler", "steps"], sort=False):
        last = own.iloc[-1]
        ends = own["total_variation"].mean(), last["total_variation"], last["wasserstein"]
        regret = plus_minus(last["regret"], 1.96 * last["standard_error"], ".1f")
        rows.append([str(name), str(steps), *(f"{end:.3f}" for end in ends), regret])
    header = ["sampler", "steps a round", "TV, mean over rounds", "TV, last round", "W₂ / spread, last round", "regret"]
    head = f"Exact distance to the posterior, and regret after {table['round'].max():,} rounds:"
    return f"{head}\n\n{markdown_table(header, rows)}"


_MAKE = {"curves": _curves, "weights": _weights, "errors": _errors}
