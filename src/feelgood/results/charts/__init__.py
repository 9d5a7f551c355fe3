"""Tables as charts: records of plain numbers that matplotlib, the page of a report or a program can draw."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from feelgood.results.charts.agents import aggregates, efficiency, learning_curves, profiles
from feelgood.results.charts.base import Chart, Heat, Panel, Series
from feelgood.results.charts.nchain import distances, frontier, lengths, sensitivity, sweep
from feelgood.results.charts.regret import budget, complexity, errors, regret_exponents
from feelgood.results.store import load_results

__all__ = ["MAKERS", "Chart", "Heat", "Maker", "Panel", "Series", "available", "make_chart", "tables_of"]


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
