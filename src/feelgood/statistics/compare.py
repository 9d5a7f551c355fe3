"""Comparison of two agents or two runs, task by task, with confidence intervals."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feelgood.checks import check_choice
from feelgood.runs.store import load_results
from feelgood.statistics.estimates import (
    Estimate,
    Layout,
    bootstrap,
    final_scores,
    layout,
    mean,
    probability_of_improvement,
    scores_of,
)

ALL = "all tasks"


class Side(NamedTuple):
    """One side of a comparison: name, place, final scores, columns, and the time at which its runs end."""

    name: str
    place: str
    scores: pd.DataFrame
    columns: Layout
    end: float


class Comparison(NamedTuple):
    """Both names, the kind of score, whether lower is better, a row per agent and task, and caveats."""

    a: str
    b: str
    score: str
    lower_is_better: bool
    rows: pd.DataFrame
    notes: list[str]


def read_side(place: str, table: str | None = None) -> Side:
    """Reads FOLDER, or FOLDER:AGENT for one agent of it.

    Args:
      place: a study's folder, with the name of one of its agents after a colon or without.
      table: name of the table of curves; the study's `curves` if not given.
    """
    folder, agent = place, None
    if not Path(place).is_dir() and ":" in place:
        folder, _, agent = place.rpartition(":")
    curves = load_results(folder, table)
    columns = layout(curves)
    if agent is not None:
        names = curves[columns.agent].astype(str)
        check_choice(f"agent of {folder}", agent, sorted(names.unique()))
        curves = curves[names == agent]
    name = place if agent is None else agent
    return Side(name, place, final_scores(curves), columns, float(curves[columns.time].max()))


def agents_of(folder: str, table: str | None = None) -> list[str]:
    """FOLDER:AGENT for each agent of a folder.

    Raises:
      ValueError: if it has only one.
    """
    if not Path(folder).is_dir() and Path(folder.rpartition(":")[0]).is_dir():
        raise ValueError(f"compare needs a second FOLDER:AGENT, got {folder!r} alone")
    curves = load_results(folder, table)
    names = list(dict.fromkeys(curves[layout(curves).agent].astype(str)))
    if len(names) < 2:
        raise ValueError(f"folder {folder} has one agent, {names[0]}; name a second folder to compare it with")
    return [f"{folder}:{name}" for name in names]


def _pairs(a: Side, b: Side) -> list[tuple[str, str]]:
    """The pairs of agents to compare: those of the same name, or the only agent of each side."""
    ours, theirs = list(dict.fromkeys(a.scores["agent"])), list(dict.fromkeys(b.scores["agent"]))
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])]
    common = [(agent, agent) for agent in ours if agent in theirs]
    if len(ours) > 1 and len(theirs) > 1 and common:
        return common
    raise ValueError(
        f"the agents to compare are ambiguous: {a.name} holds {', '.join(ours)} and {b.name} holds "
        f"{', '.join(theirs)}; name one of each as FOLDER:AGENT"
    )


def compare(a: Side, b: Side) -> Comparison:
    """Compares final scores task by task.

    The difference of means, a − b, and the probability that a run of a beats a run of b, P(X > Y) + P(X = Y)/2, have
    95% bootstrap intervals; the runs of a and of b are resampled separately. With several tasks, the last row gives
    both averaged over tasks; scores with different units are not averaged.

    Raises:
      ValueError: if the sides share no task or no kind of score, or if the agents to compare are ambiguous.
    """
    if a.name == b.name:
        a, b = (side._replace(name=side.place) for side in (a, b))
    if a.columns.score != b.columns.score:
        scores = f"{a.columns.score} in {a.name} and {b.columns.score} in {b.name}"
        raise ValueError(f"scores must be of one kind, got {scores}")
    lower, one_scale = a.columns.lower_is_better, a.columns.one_scale and b.columns.one_scale
    pairs = _pairs(a, b)
    ours, theirs = scores_of(a.scores), scores_of(b.scores)
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for one, other in pairs:
        x, y = ours.get(one, {}), theirs.get(other, {})
        common = [task for task in x if task in y]
        alone = [task for task in (*x, *y) if task not in common]
        if alone:
            notes.append(f"left out, as only one side has them: {', '.join(dict.fromkeys(alone))}")
        groups = [(task, [task]) for task in common] + ([(ALL, common)] if len(common) > 1 else [])
        for name, tasks in groups:
            rows.append(
                {
                    "agent": one if one == other else f"{one} − {other}",
                    "task": name,
                    **_row(x, y, tasks, lower, one_scale or name != ALL),
                }
            )
    if not rows:
        for side in (a, b):
            if side.scores["score"].isna().all():
                raise ValueError(f"there is nothing to compare: all runs of {side.name} diverged")
        raise ValueError(f"{a.name} and {b.name} have no task in common")
    if (a.end, a.columns.time) != (b.end, b.columns.time):
        ends = " and ".join(f"{side.columns.time} {side.end:,.0f} in {side.name}" for side in (a, b))
        notes.append(f"budgets differ: runs end at {ends}")
    for side in (a, b):
        lost = int(side.scores["score"].isna().sum())
        if lost:
            notes.append(f"{lost} of {len(side.scores)} runs of {side.name} diverged and are left out")
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
    better = probability_of_improvement({t: x[t] for t in tasks}, {t: y[t] for t in tasks}, lower_is_better=lower)
    if min(map(len, (*runs, *others))) < 2:  # resampling a single run gives an interval of width 0
        difference, better = (Estimate(each.value, np.nan, np.nan) for each in (difference, better))
    return {
        "runs_a": sum(map(len, runs)),
        "runs_b": sum(map(len, others)),
        "a": float(mean(runs)) if means else np.nan,
        "b": float(mean(others)) if means else np.nan,
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "p_better": better.value,
        "p_low": better.low,
        "p_high": better.high,
    }


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
    parts = []
    if better:
        parts.append(f"{a} is better on {better}")
    if worse:
        parts.append(f"{b} is better on {worse}")
    if open_:
        parts.append(f"the data do not separate them on {open_}")
    what = "comparisons" if rows["task"].duplicated().any() else "tasks"
    return (
        f"Of {len(rows)} {what}, {'; '.join(parts)} ({word} {comparison.score} is better; each at 95%, "
        "not corrected for their number)."
    )
