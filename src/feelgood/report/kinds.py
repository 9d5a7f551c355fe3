"""Tables as charts: records of plain numbers that matplotlib, the page of a report or a program can draw."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from feelgood.figures.chart import Chart, Heat, Panel, Series
from feelgood.figures.curves import aggregates, efficiency, learning_curves, profiles
from feelgood.figures.draw import draw
from feelgood.runs.store import load_results
from feelgood.statistics import check_runs
from feelgood.studies.atari import figures as atari
from feelgood.studies.nchain import tables as nchain
from feelgood.studies.nchain.charts import distances, frontier, lengths, sensitivity, sweep
from feelgood.studies.regret import tables as regret
from feelgood.studies.regret.charts import budget, complexity, errors, regret_exponents

__all__ = ["MAKERS", "Chart", "Heat", "Maker", "Panel", "Series", "available", "draw_kind", "make_chart", "tables_of"]


class Maker(NamedTuple):
    """How a kind of chart is made: from which table, and which columns that must have."""

    table: str
    columns: frozenset[str]
    make: Callable[[pd.DataFrame], Chart]


def _maker(table: str, columns: str, make: Callable[[pd.DataFrame], Chart]) -> Maker:
    return Maker(table, frozenset(columns.split()), make)


MAKERS = {
    "lengths": _maker("summary", "length agent score score_ci", lengths),
    "curves": _maker("curves", "seed", learning_curves),
    "aggregate": _maker("curves", "seed", aggregates),
    "profiles": _maker("curves", "seed", profiles),
    "efficiency": _maker("curves", "seed", efficiency),
    "sensitivity": _maker("sensitivity", "agent parameter value score score_ci length seeds", sensitivity),
    "frontier": _maker("frontier", "agent length budget seeds seeds_at_9", frontier),
    "sweep": _maker("sweep", "score", sweep),
    "distances": _maker("distances", "sampler step distance floor", distances),
    "exponents": _maker("exponents", "algorithm dimension horizon seed episode regret", regret_exponents),
    "budget": _maker("budget", "mdp sampler budget seed regret", budget),
    "errors": _maker("errors", "sampler steps seed weight later first_high regret origin", errors),
    "complexity": _maker("complexity", "scheme varied condition dimension error num_gradients", complexity),
}
"""Every kind of chart."""


def tables_of(folder: Path) -> dict[str, pd.DataFrame]:
    """All tables of a study's folder, by name; of one that is under way, its curves so far."""
    names = {file.stem for ending in ("csv", "parquet") for file in folder.glob(f"*.{ending}")}
    if not names:
        return {"curves": load_results(folder)}  # or says what is wrong
    return {name: load_results(folder, name) for name in sorted(names)}


def available(tables: Mapping[str, pd.DataFrame]) -> dict[str, Maker]:
    """The kinds of chart that tables may suffice for."""
    return {
        kind: maker
        for kind, maker in MAKERS.items()
        if maker.table in tables and maker.columns.issubset(tables[maker.table].columns) and len(tables[maker.table])
    }


def make_chart(kind: str, tables: Mapping[str, pd.DataFrame]) -> Chart:
    """Makes a chart of one of the `available` kinds.

    Raises:
      ValueError: if the table does not suffice after all; the sentence says why.
    """
    maker = MAKERS[kind]
    try:
        return maker.make(tables[maker.table])
    except (KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"table {maker.table!r} holds what a chart of {kind} does not know: {reason}") from error


class Drawing(NamedTuple):
    """A study's own figure: its kind, the columns that its table must have, and what draws it."""

    kind: str
    columns: frozenset[str]
    draw: Callable[[pd.DataFrame], Figure]


_OWN = (
    Drawing("curves", frozenset({"length", "agent", "seed", "step", "return"}), nchain.draw_curves),
    Drawing("curves", frozenset({"mdp", "algorithm", "constants", "seed", "episode", "regret"}), regret.DRAW["curves"]),
    Drawing("curves", frozenset({"game", "agent", "seed", "frame", "return"}), atari.draw_curves),
    Drawing("lengths", frozenset(), nchain.draw_lengths),
    Drawing("sensitivity", frozenset(), nchain.draw_sensitivity),
    Drawing("frontier", frozenset({"held"}), nchain.draw_frontier),
    *(Drawing(kind, frozenset(), regret.DRAW[kind]) for kind in ("exponents", "budget", "errors", "complexity")),
)


def draw_kind(kind: str, tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draws a kind of chart from a study's tables; the study's own figure where it has one.

    Raises:
      ValueError: if the tables do not suffice.
    """
    name = MAKERS[kind].table
    table = tables[name]
    if kind == "curves":
        check_runs(table)
    for drawing in _OWN:
        if drawing.kind == kind and drawing.columns.issubset(table.columns):
            try:
                return drawing.draw(table)
            except (KeyError, TypeError, IndexError) as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ValueError(f"table {name!r} holds what a figure of {kind} does not know: {reason}") from error
    return draw(make_chart(kind, tables))
