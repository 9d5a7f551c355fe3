"""Charts of any table of curves: learning, final scores over all tasks, profiles, sample efficiency."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from feelgood import statistics
from feelgood.figures import chart
from feelgood.figures.chart import Chart, Panel, Series, mean_series, numbers, series, series_of, strongest, unique
from feelgood.figures.style import COLOURS, colours_of, label

_TIMES = {"step": "environment steps", "frame": "frames", "episode": "episode", "round": "round"}
_SCORES = {"return": "evaluation return", "regret": "cumulative regret"}


def learning_curves(curves: pd.DataFrame) -> Chart:
    """A panel for each task, a curve for each agent.

    Raises:
      ValueError: if a run has two rows at one time.
    """
    statistics.check_runs(curves)
    columns = statistics.layout(curves)
    table = curves.assign(
        _task=columns.task_names(curves), **{columns.score: statistics.finite_scores(curves, columns.score)}
    )
    if "length" in columns.tasks:
        table = table.sort_values("length", kind="stable")
    has_theory = "constants" in columns.tasks and set(table["constants"]) == {"tuned", "theory"}
    if has_theory:  # hardly anything is learned with the constants of a theory, so all of its curves would coincide
        table = table[table["constants"] == "tuned"]
    looks = colours_of(unique(curves[columns.agent]))
    chain = "length" in columns.tasks and columns.score == "return"
    make = partial(mean_series, x=columns.time, y=columns.score)
    x_label, y_label = _TIMES[columns.time], _SCORES.get(columns.score, columns.score)
    axes: dict[str, Any] = {"x_log": columns.time == "round", "y_log": columns.lower_is_better}
    if chain:
        axes |= {"y_range": (0, 10.4), "guides": (10,)}
    panels = []
    for task, rows in table.groupby("_task", sort=False):
        lines = series_of(rows, columns.agent, make, looks)
        if "random_return" in rows and rows["random_return"].notna().any():
            ends = numbers([rows[columns.time].min(), rows[columns.time].max()])
            level = numbers([rows["random_return"].mean()] * 2)
            lines.append(Series(chart.RANDOM, COLOURS["grey"], ends, level, dashed=True))
        if columns.lower_is_better:  # without the first few episodes, in which all curves coincide
            later = [y for line in lines for x, y in zip(line.x, line.y, strict=True) if x >= 5 and y > 0]
            axes["y_range"] = (0.8 * min(later), None) if later else None
        panels.append(Panel("" if task == "all" else str(task), x_label, y_label, lines, **axes))
    seeds = curves["seed"].nunique()
    note = "One seed, without an interval."
    if seeds > 1:
        note = f"Mean over {seeds} seeds with its 95% bootstrap interval."
    note += " Tuned constants; the table has the regret with those of the theories." if has_theory else ""
    note += _lost(curves, "count until then")
    title = "Regret" if columns.lower_is_better else "Learning curves"
    return Chart("curves", title, note, "curves", strongest(panels, lowest=columns.lower_is_better))


def _lost(curves: pd.DataFrame, what: str = "are left out") -> str:
    """A sentence on the runs that diverged, if any."""
    which = statistics.diverged(curves)
    return f" Runs that diverged {what}: {which}." if which else ""


def profiles(curves: pd.DataFrame) -> Chart:
    """Performance profiles: over all tasks if they have one scale, else a panel for each. Higher is better in all."""
    columns = statistics.layout(curves)
    scores = statistics.final_scores(curves)
    looks = colours_of(unique(scores["agent"]))
    groups = [("", _of_all_tasks(scores))] if columns.one_scale else list(scores.groupby("task", sort=False))
    side = "at most" if columns.lower_is_better else "above"
    panels = []
    for task, rows in groups:
        table = statistics.performance_profile(rows)
        if columns.lower_is_better:
            table = table.assign(share=1 - table["share"], low=1 - table["high"], high=1 - table["low"])
        make = partial(series, x="threshold", y="share", band=("low", "high"))
        lines = series_of(table, "agent", make, looks)
        panels.append(Panel(str(task), f"{columns.score} τ", f"share of runs {side} τ", lines, y_range=(0, 1.04)))
    note = f"Share of runs whose final {columns.score} is {side} τ"
    note += f", with a pointwise 95% interval by the stratified bootstrap.{_lost(curves)}"
    return Chart("profiles", "Performance profiles", note, "curves", panels)


def _of_all_tasks(scores: pd.DataFrame) -> pd.DataFrame:
    """Scores of the agents that have all tasks; a mean over tasks cannot compare them with the others."""
    tasks = scores.dropna(subset="score").groupby("agent")["task"].nunique()
    return scores[scores["agent"].isin(tasks.index[tasks == scores["task"].nunique()])]


def _check_one_scale(columns: statistics.Layout, curves: pd.DataFrame) -> None:
    if not columns.one_scale and columns.task_names(curves).nunique() > 1:
        raise ValueError(f"a mean over tasks needs scores on one scale, and each {columns.tasks[0]} has its own")


def aggregates(curves: pd.DataFrame) -> Chart:
    """Interquartile mean and mean over all tasks, for each agent that has all tasks."""
    columns = statistics.layout(curves)
    _check_one_scale(columns, curves)
    scores = _of_all_tasks(statistics.final_scores(curves))
    looks = colours_of(unique(curves[columns.agent]))
    tables = {"interquartile mean": statistics.aggregate(scores, "iqm"), "mean": statistics.aggregate(scores, "mean")}
    ranked = tables["interquartile mean"].sort_values("value", kind="stable", ascending=columns.lower_is_better)
    order = list(ranked["agent"])
    panels = []
    for title, table in tables.items():
        table = table.assign(_place=table["agent"].map(order.index))
        mark = partial(series, x="value", y="_place", band=("low", "high"), points=True)
        marks = [mark(label(agent), looks[agent], rows) for agent, rows in table.groupby("agent", sort=False)]
        panels.append(Panel(title, columns.score, "", marks, y_names=[label(name) for name in order]))
    note = "Final scores of all runs and tasks together, with 95% intervals by the stratified bootstrap."
    note += _lost(curves)
    return Chart("aggregate", "Over all tasks", note, "curves", panels)


def efficiency(curves: pd.DataFrame) -> Chart:
    """Sample efficiency: the interquartile mean over all tasks as training goes on."""
    columns = statistics.layout(curves)
    _check_one_scale(columns, curves)
    looks = colours_of(unique(curves[columns.agent]))
    shown = set(_of_all_tasks(statistics.final_scores(curves))["agent"])
    times = np.sort(curves[columns.time].unique())
    thinned = curves[columns.time].isin(times[:: max(1, len(times) // 25)])
    table = statistics.sample_efficiency(curves[curves[columns.agent].astype(str).isin(shown) & thinned])
    make = partial(series, x=columns.time, y="value", band=("low", "high"))
    lines = series_of(table, "agent", make, looks)
    note = "Interquartile mean over all tasks and seeds, with a pointwise 95% interval by the stratified bootstrap."
    note += _lost(curves, "count until then")
    panel = Panel("", _TIMES[columns.time], "interquartile mean", lines)
    return Chart("efficiency", "Sample efficiency", note, "curves", strongest([panel]))
