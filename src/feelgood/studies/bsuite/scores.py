"""bsuite's scores (bsuite 0.3.6, the modules `analysis` of its experiments), and their tables and chart."""

from typing import Any

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, numbers, unique
from feelgood.figures.style import colours_of, label
from feelgood.statistics import interval
from feelgood.studies.bsuite.experiments import EXPERIMENTS, is_sea
from feelgood.studies.output import markdown_table, plus_minus

# Return of a good episode, and regret of an episode that scores 0.
_REGRETS = {
    "bandit": (1.0, 0.5),
    "catch": (1.0, 1.6),
    "mountain_car": (-100.0, 1000.0),
    "cartpole": (1000.0, 1000.0),
    "cartpole_swingup": (700.0, 700.0),
}
# Return from which the best episode of a run is good, which gives half of the score.
_GOOD_EPISODES = {"cartpole": 500.0, "cartpole_swingup": 100.0}
FORGIVENESS = 100
"""A deep sea of size N counts if it is solved before the episode 2^N + 100."""


def score(experiment: str, runs: pd.DataFrame) -> float:
    """The score in [0, 1] of runs of one seed, a row per id.

    The columns are `episodes`, `total_return` and `best_episode`, or for a deep sea `size` and `solved_episode`, which
    is NaN if it was not solved.
    """
    if is_sea(experiment):
        limits = 2.0 ** runs["size"].to_numpy(float) + FORGIVENESS
        return float(np.mean(runs["solved_episode"].to_numpy(float) < limits))
    good, base = _REGRETS[experiment]
    regrets = good - (runs["total_return"] / runs["episodes"]).to_numpy(float)
    if experiment != "cartpole_swingup":  # where each id is scored alone
        regrets = regrets.mean()
    shares = np.clip(1 - regrets / base, 0, 1)
    if experiment in _GOOD_EPISODES:
        is_good = runs["best_episode"].to_numpy(float) > _GOOD_EPISODES[experiment]
        shares = 0.5 * (np.mean(shares) + np.mean(is_good))
    return float(np.mean(shares))


def summarise(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per experiment and agent: the mean score over seeds with its 95% interval, and the counts behind it."""
    rows = []
    for (experiment, agent), group in runs.groupby(["experiment", "agent"], sort=False):
        known = EXPERIMENTS[str(experiment)]
        row: dict[str, Any] = {"experiment": experiment, "kind": known.kind, "agent": agent}
        each = [score(str(experiment), own) for _, own in group.groupby("seed", sort=False)]
        row["score"], row["score_ci"] = interval(each)
        row |= {"seeds": len(each), "ids": group["bsuite_id"].nunique(), "bsuite_ids": len(known.settings)}
        row |= {"episodes": int(group["budget_episodes"].iloc[0]), "bsuite_episodes": known.num_episodes}
        rows.append(row)
    return pd.DataFrame(rows)


def as_markdown(summary: pd.DataFrame) -> str:
    """Scores of all agents, a row per experiment; a note names the experiments that were cut short."""
    agents = unique(summary["agent"])
    rows = []
    for (experiment, kind), group in summary.groupby(["experiment", "kind"], sort=False):
        cells = {str(row.agent): plus_minus(row.score, row.score_ci) for row in group.itertuples()}
        first = group.iloc[0]
        counts = [f"{first['ids']} of {first['bsuite_ids']}", f"{first['episodes']:,} of {first['bsuite_episodes']:,}"]
        rows.append([str(experiment), str(kind), *(cells.get(agent, "–") for agent in agents), *counts])
    text = markdown_table(["experiment", "kind", *map(label, agents), "ids", "episodes"], rows)
    if (summary["seeds"] > 1).any():
        text += "\n± is a 95% confidence interval over seeds by Student's t.\n"
    if (summary["ids"] < summary["bsuite_ids"]).any() or (summary["episodes"] < summary["bsuite_episodes"]).any():
        text += "\nScores of fewer ids or episodes than bsuite's are not bsuite scores.\n"
    return text


def chart(table: pd.DataFrame) -> Chart:
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
