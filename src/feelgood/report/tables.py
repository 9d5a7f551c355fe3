"""Tables of a report: sortable HTML with escaped cells."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from feelgood.figures.style import is_ablation, label
from feelgood.statistics import Estimate, bootstrap, diverged, final_scores, layout, mean, scores_of


class Scores(NamedTuple):
    """A table of final scores, and a note that defines them."""

    html: str
    note: str


def _html(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table from HTML cells; every column head is a button that sorts the rows."""
    top = "".join(f'<th scope="col"><button type="button">{escape(head)}</button></th>' for head in heads)
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def breakable(name: str) -> str:
    """A name as HTML in which lines may break after underscores."""
    return escape(name).replace("_", "_<wbr>")


def _number(value: float) -> str:
    form = ",.0f" if abs(value) >= 1000 else ".2f" if abs(value) >= 0.01 or not value else ".3g"
    return f"{value:{form}}"


def table_of(table: pd.DataFrame) -> str:
    """A data frame as an HTML table."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return f'<td data-v="{value}">{value:.4g}</td>' if math.isfinite(value) else '<td data-v="">–</td>'
        return f"<td>{escape(str(value))}</td>"

    return _html(list(map(str, table.columns)), [list(map(cell, row)) for row in table.itertuples(index=False)])


def _intervals(tables: Mapping[str, pd.DataFrame]) -> tuple[dict[str, dict[str, Estimate]], Any] | None:
    """Mean score with its 95% bootstrap interval by agent and task, or None without a valid table of curves."""
    try:
        columns = layout(tables["curves"])
        scores = scores_of(final_scores(tables["curves"]))
    except (KeyError, ValueError):
        return None

    def estimate(runs: np.ndarray) -> Estimate:
        return bootstrap(mean, [runs]) if len(runs) > 1 else Estimate(runs[0], math.nan, math.nan)

    return {agent: {task: estimate(runs) for task, runs in own.items()} for agent, own in scores.items()}, columns


def _ends(score: Estimate) -> str:
    return "" if math.isnan(score.low) else f"[{_number(score.low)}, {_number(score.high)}]"


def scores_table(tables: Mapping[str, pd.DataFrame]) -> Scores | None:
    """Final scores, one row per agent, best first and ablations last; the best of each task in bold."""
    if (found := _intervals(tables)) is None:
        return None
    scores, columns = found
    pick, sign = (min, -1) if columns.lower_is_better else (max, 1)
    tasks = list(dict.fromkeys(task for own in scores.values() for task in own))
    tops = {task: pick(own[task][0] for own in scores.values() if task in own) for task in tasks}
    rows = []
    # Best mean rank over tasks first, as tasks may have different scales.
    better = lambda own, task: sum((o[task][0] - own[task][0]) * sign > 0 for o in scores.values() if task in o)
    ranks = {agent: sum(better(own, task) for task in own) / len(own) for agent, own in scores.items()}
    for agent, own in sorted(scores.items(), key=lambda pair: (is_ablation(pair[0]), ranks[pair[0]])):
        cells = [f"<td>{breakable(label(agent))}</td>"]
        for task in tasks:
            if task not in own:
                cells.append('<td data-v="">–</td>')
                continue
            value = own[task].value
            top = ' class="top"' if value == tops[task] else ""
            ends = f" <small>{_ends(own[task])}</small>" if _ends(own[task]) else ""
            cells.append(f'<td{top} data-v="{value}">{_number(value)}{ends}</td>')
        rows.append(cells)
    seeds = tables["curves"]["seed"].nunique()
    note = f"Mean {columns.score} of the last ten evaluations"
    if columns.lower_is_better:
        note = f"Regret at the last {columns.time}"
    if seeds == 1:
        note += ", of one seed, without an interval."
    else:
        note += f", averaged over up to {seeds} seeds, with its 95% bootstrap interval in brackets."
        note += " With fewer than ten seeds such an interval is narrower than it should be." if seeds < 10 else ""
    lost = diverged(tables["curves"])
    note += f" Runs that diverged are left out: {lost}." if lost else ""
    return Scores(_html([columns.agent, *tasks], rows), escape(note))


def best(tables: Mapping[str, pd.DataFrame], most: int = 10) -> list[tuple[str, str, str, str, str]]:
    """For each of at most `most` tasks: its name, the best agent, its score and interval, and the runner-up."""
    if (found := _intervals(tables)) is None:
        return []
    scores, columns = found
    sign = 1 if columns.lower_is_better else -1
    tasks = list(dict.fromkeys(task for own in scores.values() for task in own))
    cards = []
    for task in tasks if len(tasks) <= most else []:
        ranked = sorted((sign * own[task][0], agent) for agent, own in scores.items() if task in own)
        (_, first), *rest = ranked
        top, runner_up = scores[first][task], ""
        for _, agent in rest[:1]:
            next_ = scores[agent][task]
            overlap = top.low <= next_.high and next_.low <= top.high  # False where a single run has no interval
            runner_up = f"{'intervals overlap' if overlap else 'next'}: {label(agent)}, {_number(next_.value)}"
        cards.append((task, label(first), _number(top.value), _ends(top), runner_up))
    return cards
