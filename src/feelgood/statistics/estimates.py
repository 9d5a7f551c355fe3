"""Scores of runs: means, interquartile means and profiles over tasks, with bootstrap intervals.

The statistics are those of Agarwal et al. (2021). Runs of one task are resampled among themselves (a stratified
bootstrap), so that an interval holds for these tasks and for other seeds. Scores of an agent are one array per task,
and tasks may have unequal numbers of runs.

References:
  Agarwal, Schwarzer, Castro, Courville, Bellemare (2021), Deep reinforcement learning at the edge of the statistical
  precipice, and its library rliable, which the tests compare with. (rliable itself needs arch < 8, which is
  incompatible with pandas 3.)
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from feelgood.checks import check_choice, check_count

NUM_DRAWS = 2000
LEVEL = 0.95

_AGENTS = ("agent", "algorithm", "sampler")
_TASKS = ("length", "game", "mdp", "problem", "environment", "task", "constants", "budget", "form")
# In a table of regret "step" is a step size.
_TIMES = ("episode", "round", "frame", "step")
_SCORES = ("return", "score", "regret")


class Estimate(NamedTuple):
    """A statistic and the ends of its confidence interval."""

    value: float
    low: float
    high: float


class Layout(NamedTuple):
    """The columns of a tidy table; the columns `tasks` identify a task."""

    agent: str
    tasks: tuple[str, ...]
    time: str
    score: str

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller score is better, as for regret."""
        return self.score == "regret"

    @property
    def one_scale(self) -> bool:
        """Whether scores of different tasks have the same units and can be averaged."""
        return {"length", "budget", "form"}.issuperset(self.tasks)

    def task_names(self, table: pd.DataFrame) -> pd.Series:
        """A name for the task of every row."""
        if not self.tasks:
            return pd.Series("all", index=table.index)
        codes = table.groupby(list(self.tasks), sort=False, dropna=False).ngroup()
        firsts = table[list(self.tasks)].loc[~codes.duplicated()].itertuples(index=False)
        label = lambda column, value: f"N = {value}" if column == "length" else str(value)
        names = [", ".join(itertools.starmap(label, zip(self.tasks, row, strict=True))) for row in firsts]
        return pd.Series(np.array(names, dtype=object)[codes], index=table.index)


def layout(table: pd.DataFrame) -> Layout:
    """Finds the columns of a table of curves: a row per run and evaluation.

    Raises:
      ValueError: if it has no agents, seeds, times or scores.
    """
    found = []
    for what, names in (("agent", _AGENTS), ("seed", ("seed",)), ("time", _TIMES), ("score", _SCORES)):
        present = [name for name in names if name in table.columns]
        if not present:
            columns = ", ".join(map(repr, table.columns)) or "none"
            wanted = " or ".join(map(repr, names))
            raise ValueError(f"a table of curves needs a column {wanted} for the {what}, got the columns {columns}")
        found.append(present[0])
    agent, _, time, score = found
    if not len(table):
        raise ValueError("a table of curves must have rows, got none")
    for name in (time, score):
        if not pd.api.types.is_numeric_dtype(table[name]):
            raise ValueError(f"column {name!r} of a table of curves must hold numbers, got {table[name].iloc[0]!r}")
    return Layout(agent, tuple(name for name in _TASKS if name in table.columns), time, score)


def finite_scores(curves: pd.DataFrame, score: str) -> pd.Series:
    """The column of scores, NaN where it or the parameters (`finite`) are not finite.

    A diverged run still reports returns, because argmax selects an action even from NaN values.
    """
    values = curves[score].astype(float)
    return values.where(np.isfinite(values) & (curves["finite"].astype(bool) if "finite" in curves else True))


def _plain(curves: pd.DataFrame, columns: Layout) -> pd.DataFrame:
    """The columns agent, task, seed, time and score, see `finite_scores`, one row per run and time."""
    table = pd.DataFrame({"agent": curves[columns.agent].astype(str), "task": columns.task_names(curves)})
    table = table.assign(seed=curves["seed"], time=curves[columns.time], score=finite_scores(curves, columns.score))
    twice = table.duplicated(["agent", "task", "seed", "time"])
    if twice.any():
        run = table.loc[twice.idxmax()]
        where = f"{run['agent']} on {run['task']}, seed {run['seed']}, at {columns.time} {run['time']}"
        raise ValueError(f"a table of curves must have one row per run and time, got two of {where}")
    return table


def check_runs(curves: pd.DataFrame) -> None:
    """Requires one row per run and time; tables that mix several settings have more."""
    _plain(curves, layout(curves))


def diverged(curves: pd.DataFrame) -> str:
    """Describes how many runs of each agent diverged; empty if none did."""
    table = _plain(curves, layout(curves)).sort_values("time", kind="stable")
    ends = table.groupby(["agent", "task", "seed"], sort=False).tail(1)
    by_agent = ends.assign(lost=ends["score"].isna()).groupby("agent", sort=False)["lost"].agg(["sum", "count"])
    return ", ".join(f"{lost} of {runs} of {agent}" for agent, lost, runs in by_agent.itertuples() if lost)


def final_scores(curves: pd.DataFrame, last: int = 10) -> pd.DataFrame:
    """One row per run, with columns agent, task, seed, score, from a table of curves, see `layout`.

    The score is the mean of a run's `last` evaluations, without the one before training; for cumulative regret it is
    the last value. If one of them is not finite, as in a run that diverged, the score is NaN.
    """
    last = check_count("last", last)
    columns = layout(curves)
    table = _plain(curves, columns)
    # Agents and tasks in order of appearance; lengths ascending.
    rising = curves["length"] if "length" in columns.tasks else 0
    tasks = table.assign(rising=rising).drop_duplicates("task").sort_values("rising", kind="stable")["task"]
    places = {"agent": list(table["agent"].unique()), "task": list(tasks)}
    keys = ["agent", "task", "seed"]
    ends = table.groupby(keys, sort=False)["time"].transform("max")
    table = table[(table["time"] > 0) | (ends == 0)].sort_values("time", kind="stable")
    tail = table.groupby(keys, sort=False).tail(1 if columns.lower_is_better else last)
    scores = tail.groupby(keys, sort=False, as_index=False)["score"].agg(lambda score: score.mean(skipna=False))
    place = lambda column: column.map(places[column.name].index) if column.name in places else column
    return scores.sort_values(keys, key=place, ignore_index=True)


Runs = Sequence[np.ndarray]
"""Scores of one agent: for each task an array whose last axis runs over runs."""

Numbers = np.ndarray | np.floating
"""A statistic: a number, or one for each of the leading axes."""


def scores_of(scores: pd.DataFrame) -> dict[str, dict[str, np.ndarray]]:
    """Scores by agent and task, from a table of final scores; runs without a finite score are left out."""
    found: dict[str, dict[str, np.ndarray]] = {}
    for (agent, task), group in scores.groupby(["agent", "task"], sort=False):
        finite = group["score"].to_numpy(float)
        finite = finite[np.isfinite(finite)]
        if len(finite):
            found.setdefault(str(agent), {})[str(task)] = finite
    return found


def mean(runs: Runs) -> Numbers:
    """The mean over tasks of the mean over runs, each of shape (..., runs)."""
    return np.mean([np.mean(task, axis=-1) for task in runs], axis=0)


def interquartile_mean(runs: Runs) -> Numbers:
    """The mean of the middle half of all runs of all tasks together: a quarter is cut off at each end."""
    from scipy import stats

    return stats.trim_mean(np.concatenate(list(runs), axis=-1), 0.25, axis=-1)


def improvement(runs: Runs, others: Runs) -> Numbers:
    """P(X > Y) + P(X = Y)/2 for a run X of one agent and a run Y of the other, on average over tasks.

    By ranks: U = Σ ranks of X − n(n + 1)/2 counts the pairs that X wins, of n·m.
    """
    from scipy import stats

    shares = []
    for x, y in zip(runs, others, strict=True):
        n, m = x.shape[-1], y.shape[-1]
        ranks = stats.rankdata(np.concatenate([x, y], axis=-1), axis=-1)[..., :n]
        shares.append((ranks.sum(axis=-1) - n * (n + 1) / 2) / (n * m))
    return np.mean(shares, axis=0)


STATISTICS: dict[str, Callable[[Runs], Numbers]] = {"mean": mean, "iqm": interquartile_mean}


def bootstrap(statistic: Callable[..., Any], *samples: Runs, num_draws: int = NUM_DRAWS, seed: int = 0) -> Estimate:
    """A statistic with its 95% percentile interval; runs of each task are resampled among themselves.

    Args:
      statistic: a function of the samples that keeps leading axes.
      samples: for each agent, an array of runs for each task; the same runs are drawn at all positions of leading axes.
      num_draws: number of resampled data sets.
      seed: seed of the resampling.
    """
    num_draws = check_count("num_draws", num_draws)
    rng = np.random.default_rng(seed)
    again = lambda task, n: task[..., rng.integers(n, size=(num_draws, n))]
    drawn = [[again(task, task.shape[-1]) for task in sample] for sample in samples]
    low, high = np.quantile(statistic(*drawn), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return Estimate(statistic(*samples), low, high)


def interval(values) -> tuple[float, float]:
    """Mean and half-width of its 95% confidence interval (Student's t)."""
    values = np.asarray(values, float)
    n = len(values)
    if n < 2:
        return float(values.mean()) if n else np.nan, np.nan
    return float(values.mean()), float(special.stdtrit(n - 1, 0.975) * values.std(ddof=1) / np.sqrt(n))


def mean_band(values: np.ndarray, num_draws: int = NUM_DRAWS) -> np.ndarray:
    """Mean over runs with its 95% bootstrap interval, which stays between the smallest and the largest run.

    Whole runs are resampled, the same ones at every time.

    Args:
      values: (times, runs); NaN where a run has no value.
      num_draws: number of resampled sets of runs.

    Returns:
      (3, times): mean, low and high; NaN where no run has a value.
    """
    found = np.full((3, len(values)), np.nan)
    there = ~np.isnan(values)
    for mask in np.unique(there, axis=0):
        if mask.any():
            times, n = (there == mask).all(axis=1), int(mask.sum())
            runs = values[np.ix_(times, mask)]
            counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=num_draws)
            ends = np.quantile(runs @ counts.T / n, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
            found[:, times] = runs.mean(axis=1), *np.clip(ends, runs.min(axis=1), runs.max(axis=1))
    return found


def aggregate(scores: pd.DataFrame, statistic: str = "iqm", num_draws: int = NUM_DRAWS) -> pd.DataFrame:
    """One row per agent over all of its tasks: runs, tasks, value, low, high; `statistic` is "mean" or "iqm"."""
    check_choice("statistic", statistic, STATISTICS)
    rows = []
    for agent, tasks in scores_of(scores).items():
        runs = list(tasks.values())
        estimate = bootstrap(STATISTICS[statistic], runs, num_draws=num_draws)
        rows.append({"agent": agent, "tasks": len(runs), "runs": sum(map(len, runs)), **estimate._asdict()})
    return pd.DataFrame(rows, columns=["agent", "tasks", "runs", "value", "low", "high"])


def performance_profile(scores: pd.DataFrame, thresholds: Any = None, num_draws: int = NUM_DRAWS) -> pd.DataFrame:
    """The share of each agent's runs above each threshold, with a pointwise 95% interval.

    There are 51 thresholds between the smallest and the largest score if none are given.
    """
    finite = scores.loc[np.isfinite(scores["score"]), "score"]
    if thresholds is None:
        thresholds = np.linspace(finite.min(), finite.max(), 51) if len(finite) else np.zeros(0)
    rows = []
    for agent, tasks in scores_of(scores).items():
        for threshold in np.asarray(thresholds, float):
            # Drawing n of n runs again, of which k are above, gives Binomial(n, k/n) runs above.
            above = [(int(np.sum(task > threshold)), len(task)) for task in tasks.values()]
            rng, total = np.random.default_rng(0), sum(n for _, n in above)
            draws = sum(rng.binomial(n, k / n, size=num_draws) for k, n in above) / total
            low, high = map(float, np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
            rows.append((agent, float(threshold), sum(k for k, _ in above) / total, low, high))
    return pd.DataFrame(rows, columns=["agent", "threshold", "share", "low", "high"])


def probability_of_improvement(
    runs: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
    lower_is_better: bool = False,
    num_draws: int = NUM_DRAWS,
) -> Estimate:
    """The probability that a run of one agent beats a run of another, averaged over their common tasks.

    `runs` and `others` are the scores of the two agents by task; if `lower_is_better`, the smaller score wins.
    """
    common = [task for task in runs if task in others]
    if not common:
        raise ValueError(f"agents must share a task, got {', '.join(runs) or 'none'} and {', '.join(others) or 'none'}")
    sign = -1.0 if lower_is_better else 1.0
    samples = [[sign * scores[task] for task in common] for scores in (runs, others)]
    return bootstrap(improvement, *samples, num_draws=num_draws)


def sample_efficiency(curves: pd.DataFrame, statistic: str = "iqm", num_draws: int = 200) -> pd.DataFrame:
    """The statistic of each agent over all of its tasks at every time that all its runs have: agent, time, value, …

    Whole curves are resampled. A diverged run counts until it diverged; times at which a task has no run are omitted.
    """
    check_choice("statistic", statistic, STATISTICS)
    columns = layout(curves)
    parts, names = [], ["agent", columns.time, "value", "low", "high"]
    for agent, group in _plain(curves, columns).groupby("agent", sort=False):
        each = pd.MultiIndex.from_frame(group[["task", "seed"]].drop_duplicates())
        shared = group.groupby("time").size() == len(each)
        wide = group.pivot(index="time", columns=["task", "seed"], values="score").loc[shared.index[shared], each]
        values, tasks, found = wide.to_numpy(), each.get_level_values("task"), np.full((3, len(wide)), np.nan)
        for mask in np.unique(there := ~np.isnan(values), axis=0):
            if set(tasks[mask]) == set(tasks):
                times = (there == mask).all(axis=1)
                runs = [values[np.ix_(times, mask & (tasks == task))] for task in tasks.unique()]
                found[:, times] = bootstrap(STATISTICS[statistic], runs, num_draws=num_draws)
        parts.append(pd.DataFrame(dict(zip(names, [str(agent), wide.index, *found], strict=True))).dropna())
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=names)
