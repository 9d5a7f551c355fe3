"""Comparison of two agents or two runs, task by task, with confidence intervals."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feelgood.checks import check_choice
from feelgood.runs.store import load_results
from feelgood.statistics import estimates
from feelgood.statistics.estimates import Estimate, Layout, bootstrap, final_scores, layout, mean, scores_of

ALL = "all tasks"


class Side(NamedTuple):
    """One side of a comparison: name, place, curves, their columns, and caveats."""

    name: str
    place: str
    curves: pd.DataFrame
    columns: Layout
    notes: tuple[str, ...] = ()

    @property
    def agents(self) -> list[str]:
        """Names of its agents, in order of appearance."""
        return list(dict.fromkeys(self.curves[self.columns.agent].astype(str)))

    @property
    def end(self) -> float:
        """The time at which its longest run ends."""
        return float(self.curves[self.columns.time].max())


class Comparison(NamedTuple):
    """Both names, the kind of score, whether lower is better, a row per agent and task, and caveats."""

    a: str
    b: str
    score: str
    lower_is_better: bool
    rows: pd.DataFrame
    notes: list[str]


def read_side(place: str, table: str | None = None) -> Side:
    """Reads FOLDER, or FOLDER:AGENT for one agent of it; a CSV or Parquet file of curves may take the folder's place.

    `table` is the name of the table of curves in a folder; the study's `curves` if not given. Published curves may have
    an evaluation twice, after a restart. If no other column distinguishes the two, their mean is used, with a note.
    """
    folder, agent = place, None
    if not Path(place).exists() and ":" in place:
        folder, _, agent = place.rpartition(":")
    curves = load_results(folder, table)
    columns = layout(curves)
    if agent is not None:
        names = curves[columns.agent].astype(str)
        check_choice(f"agent of {folder}", agent, sorted(names.unique()))
        curves = curves[names == agent]
    name = place if agent is None else agent
    notes = []
    keys = [columns.agent, *columns.tasks, "seed", columns.time]
    if set(curves.columns) == {*keys, columns.score} and curves.duplicated(keys).any():
        count = int(curves.duplicated(keys).sum())
        notes.append(f"repeated evaluations of {name}, {count} in all, are averaged")
        curves = curves.groupby(keys, sort=False, as_index=False)[columns.score].mean()
    return Side(name, place, curves, columns, tuple(notes))


def agents_of(folder: str, table: str | None = None) -> list[str]:
    """FOLDER:AGENT for each agent of a folder.

    Raises:
      ValueError: if it has only one.
    """
    if not Path(folder).exists() and Path(folder.rpartition(":")[0]).exists():
        raise ValueError(f"compare needs a second FOLDER:AGENT, got {folder!r} alone")
    curves = load_results(folder, table)
    names = list(dict.fromkeys(curves[layout(curves).agent].astype(str)))
    if len(names) < 2:
        raise ValueError(f"folder {folder} has one agent, {names[0]}; name a second folder to compare it with")
    return [f"{folder}:{name}" for name in names]


def _pairs(a: Side, b: Side) -> list[tuple[str, str]]:
    """The pairs of agents to compare: those of the same name, or the only agent of each side."""
    ours, theirs = a.agents, b.agents
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    common = [(agent, agent) for agent in ours if agent in theirs]
    if len(ours) > 1 and len(theirs) > 1 and common:
        return common
    raise ValueError(
        f"the agents to compare are ambiguous: {a.name} holds {', '.join(ours)} and {b.name} holds "
        f"{', '.join(theirs)}; name one of each as FOLDER:AGENT"
    )


def _at_same_times(a: Side, b: Side) -> tuple[Side, Side]:
    """Keeps the evaluations of each task at the times that all of its runs have, on both sides.

    Raises:
      ValueError: if the sides count time differently, or if there is no such time.
    """
    if a.columns.time != b.columns.time:
        kinds = f"{a.columns.time} in {a.name} and {b.columns.time} in {b.name}"
        raise ValueError(f"times must be of one kind, got {kinds}")

    def keys(name: str, side: Side) -> pd.DataFrame:
        agent, seed = (side.curves[column].astype(str) for column in (side.columns.agent, "seed"))
        tasks, times = side.columns.task_names(side.curves), side.curves[side.columns.time]
        return pd.DataFrame({"task": tasks, "time": times, "run": name + " " + agent + " " + seed})

    both = pd.concat([keys("a", a), keys("b", b)], ignore_index=True)
    num_runs = both.groupby("task")["run"].transform("nunique")
    is_kept = (both.groupby(["task", "time"])["run"].transform("nunique") == num_runs).to_numpy()
    in_a, in_b = np.split(is_kept, [len(a.curves)])
    a, b = a._replace(curves=a.curves[in_a]), b._replace(curves=b.curves[in_b])
    if a.end > 0 and b.end > 0:
        return a, b
    raise ValueError(f"all runs of {a.name} and {b.name} must share a time after the start, got none")


def compare(a: Side, b: Side, *, same_times: bool = False) -> Comparison:
    """Compares final scores task by task.

    The difference of means, a − b, and the probability that a run of a beats a run of b, P(X > Y) + P(X = Y)/2, have
    95% bootstrap intervals; the runs of a and of b are resampled separately. With several tasks, the last row gives
    both averaged over tasks; scores with different units are not averaged.

    With `same_times`, only evaluations at times that all runs of a task have are used, so that budgets and numbers of
    evaluations are equal.

    Raises:
      ValueError: if the sides share no task, no kind of score or, with `same_times`, no time, or if the agents to
        compare are ambiguous.
    """
    if a.name == b.name:
        a, b = (side._replace(name=side.place) for side in (a, b))
    if a.columns.score != b.columns.score:
        kinds = f"{a.columns.score} in {a.name} and {b.columns.score} in {b.name}"
        raise ValueError(f"scores must be of one kind, got {kinds}")
    lower, one_scale = a.columns.lower_is_better, a.columns.one_scale and b.columns.one_scale
    pairs = _pairs(a, b)
    if same_times:
        a, b = _at_same_times(a, b)
    scores = [final_scores(side.curves) for side in (a, b)]
    ours, theirs = map(scores_of, scores)
    rows: list[dict[str, Any]] = []
    notes = [*a.notes, *b.notes]
    for one, other in pairs:
        x, y = ours.get(one, {}), theirs.get(other, {})
        common = [task for task in x if task in y]
        alone = [task for task in (*x, *y) if task not in common]
        if alone:
            notes.append(f"left out, as only one side has them: {', '.join(dict.fromkeys(alone))}")
        groups = [(task, [task]) for task in common] + ([(ALL, common)] if len(common) > 1 else [])
        agent = one if one == other else f"{one} − {other}"
        for name, tasks in groups:
            rows.append({"agent": agent, "task": name, **_row(x, y, tasks, lower, one_scale or name != ALL)})
    if not rows:
        for side, own in zip((a, b), scores, strict=True):
            if own["score"].isna().all():
                raise ValueError(f"there is nothing to compare: all runs of {side.name} diverged")
        raise ValueError(f"{a.name} and {b.name} have no task in common")
    if (a.end, a.columns.time) != (b.end, b.columns.time):
        ends = " and ".join(f"{side.columns.time} {side.end:,.0f} in {side.name}" for side in (a, b))
        notes.append(f"budgets differ: runs end at {ends}")
    for side, own in zip((a, b), scores, strict=True):
        if lost := int(own["score"].isna().sum()):
            notes.append(f"{lost} of {len(own)} runs of {side.name} diverged and are left out")
    fewest = min(min(row["runs_a"], row["runs_b"]) for row in rows)
    if fewest < 2:
        notes.append("with 1 run a task there is no interval, so nothing can be concluded")
    elif fewest < 10:
        notes.append(f"with {fewest} runs a task an interval is narrower than it should be")
    return Comparison(a.name, b.name, a.columns.score, lower, pd.DataFrame(rows), list(dict.fromkeys(notes)))


def _row(
    x: dict[str, np.ndarray], y: dict[str, np.ndarray], tasks: list[str], lower: bool, means: bool
) -> dict[str, Any]:
    runs, others = [x[task] for task in tasks], [y[task] for task in tasks]
    unknown = Estimate(np.nan, np.nan, np.nan)
    difference = bootstrap(lambda p, q: mean(p) - mean(q), runs, others) if means else unknown
    better = estimates.probability_of_improvement(
        {t: x[t] for t in tasks}, {t: y[t] for t in tasks}, lower_is_better=lower
    )
    if min(map(len, (*runs, *others))) < 2:  # resampling a single run gives an interval of width 0
        difference, better = (Estimate(each.value, np.nan, np.nan) for each in (difference, better))
    counts = {"runs_a": sum(map(len, runs)), "runs_b": sum(map(len, others))}
    ends = {"a": float(mean(runs)), "b": float(mean(others))} if means else {"a": np.nan, "b": np.nan}
    names = ("difference", "low", "high", "p_better", "p_low", "p_high")
    return {**counts, **ends, **dict(zip(names, (*difference, *better), strict=True))}


def sentence(comparison: Comparison) -> str:
    """A sentence that summarises the comparison."""
    rows = comparison.rows[comparison.rows["task"] != ALL]
    above, below = int((rows["low"] > 0).sum()), int((rows["high"] < 0).sum())
    better, worse = (below, above) if comparison.lower_is_better else (above, below)
    open_ = len(rows) - better - worse
    word = "lower" if comparison.lower_is_better else "higher"
    a, b = comparison.a, comparison.b
    if len(rows) == 1:
        if open_:
            return f"These runs do not separate {a} and {b} (95% interval of the difference in {comparison.score})."
        winner, loser = (a, b) if better else (b, a)
        return f"{winner} has a {word} {comparison.score} than {loser} ({word} is better; 95% interval)."
    counts = {f"{a} is better on": better, f"{b} is better on": worse, "the data do not separate them on": open_}
    parts = [f"{words} {count}" for words, count in counts.items() if count]
    what = "comparisons" if rows["task"].duplicated().any() else "tasks"
    return (
        f"Of {len(rows)} {what}, {'; '.join(parts)} ({word} {comparison.score} is better; each at 95%, "
        "not corrected for their number)."
    )
