"""Every kind of chart, and the tables that each is made from."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from feelgood.figures.chart import Chart
from feelgood.figures.curves import aggregates, efficiency, learning_curves, profiles
from feelgood.runs.store import fingerprint, load_results, read_manifest
from feelgood.statistics import layout
from feelgood.studies.atari.charts import sensitivity_curves
from feelgood.studies.bsuite.charts import scores
from feelgood.studies.deepsea.charts import deepsea
from feelgood.studies.nchain.charts import frontier, lengths, sensitivity, sweep
from feelgood.studies.regret.charts import budget, complexity, errors, regret_exponents
from feelgood.studies.samplers.charts import distances


class Maker(NamedTuple):
    """How a kind of chart is made: the table, the columns that the table must have, and the function."""

    table: str
    columns: frozenset[str]
    make: Callable[[pd.DataFrame], Chart]


def _maker(table: str, columns: str, make: Callable[[pd.DataFrame], Chart]) -> Maker:
    return Maker(table, frozenset(columns.split()), make)


MAKERS = {
    "lengths": _maker("summary", "length agent score score_ci", lengths),
    "curves": _maker("curves", "seed", learning_curves),
    "values": _maker("curves", "game agent parameter value seed frame return", sensitivity_curves),
    "aggregate": _maker("curves", "seed", aggregates),
    "profiles": _maker("curves", "seed", profiles),
    "efficiency": _maker("curves", "seed", efficiency),
    "sensitivity": _maker("sensitivity", "agent parameter value score score_ci length seeds", sensitivity),
    "frontier": _maker("frontier", "agent length budget seeds seeds_at_9", frontier),
    "deepsea": _maker("summary", "environment agent size median low high budget_episodes", deepsea),
    "bsuite": _maker("scores", "experiment agent score", scores),
    "sweep": _maker("sweep", "score", sweep),
    "distances": _maker("distances", "sampler step distance floor", distances),
    "exponents": _maker("exponents", "algorithm dimension horizon seed episode regret", regret_exponents),
    "budget": _maker("budget", "mdp sampler budget seed regret", budget),
    "errors": _maker(
        "errors",
        "sampler steps seed episode weight later first_low first_high stages allowed regret origin",
        errors,
    ),
    "complexity": _maker("complexity", "scheme varied condition dimension error num_gradients", complexity),
}
"""Every kind of chart by name."""


def tables_of(folder: Path) -> dict[str, pd.DataFrame]:
    """All tables of a folder by name; for a study that is still running, its curves so far."""
    names = {file.stem for ending in ("csv", "parquet") for file in folder.glob(f"*.{ending}")}
    if not names:
        return {"curves": load_results(folder)}  # raises an error that names the reason
    return {name: load_results(folder, name) for name in sorted(names)}


_SEEDS = ("output", "seed", "num_seeds", "seeds")


def overlaid(folders: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """The tables of several folders, those of one name as one table.

    Runs of an agent with the same settings and different seeds are joined. If an agent has other settings in another
    folder, its name gets that of its folder: "dqn in first".
    """
    found = [tables_of(folder) for folder in folders]
    if len(folders) == 1:
        return found[0]
    marks: dict[tuple[str, str], set[str]] = {}
    for folder, tables in zip(folders, found, strict=True):
        for pair in _pairs(tables):
            marks.setdefault(pair, set()).add(_mark(folder, *pair))
    ambiguous = {agent for (agent, _), different in marks.items() if len(different) > 1}
    short = [folder.resolve().name for folder in folders]
    names = short if len({*short}) == len(short) else list(map(str, folders))
    parts: dict[str, list[pd.DataFrame]] = {}
    for name, tables in zip(names, found, strict=True):
        for kind, table in tables.items():
            if "agent" in table:
                own = [f"{agent} in {name}" if agent in ambiguous else agent for agent in table["agent"].astype(str)]
                table = table.assign(agent=own)
            parts.setdefault(kind, []).append(table)
    return {kind: pd.concat(tables, ignore_index=True) for kind, tables in parts.items()}


def _pairs(tables: Mapping[str, pd.DataFrame]) -> set[tuple[str, str]]:
    """The agents of the curves, each with its tasks."""
    try:
        curves, columns = tables["curves"], layout(tables["curves"])
    except (KeyError, ValueError):
        return set()
    curves = curves.drop_duplicates([columns.agent, *columns.tasks])
    return {*zip(curves[columns.agent].astype(str), columns.task_names(curves), strict=True)}


def _mark(folder: Path, agent: str, task: str) -> str:
    """Identifies the settings of an agent on a task in a folder, seeds aside."""
    path = folder / "manifest.json"
    manifest = read_manifest(path) if path.exists() else {"spec": {"folder": str(folder)}}
    settings = manifest.get("settings") or []
    for each in settings if isinstance(settings, list) else [settings]:
        if isinstance(each, dict) and (each.get("agent"), each.get("env")) == (agent, task):
            return fingerprint(each)
    spec = manifest.get("spec")
    return fingerprint({k: v for k, v in spec.items() if k not in _SEEDS} if isinstance(spec, dict) else spec)


def available(tables: Mapping[str, pd.DataFrame]) -> dict[str, Maker]:
    """The kinds of chart whose tables and columns are present."""
    return {
        kind: maker
        for kind, maker in MAKERS.items()
        if maker.table in tables and maker.columns.issubset(tables[maker.table].columns) and len(tables[maker.table])
    }


def make_chart(kind: str, tables: Mapping[str, pd.DataFrame]) -> Chart:
    """Makes a chart of one of the `available` kinds.

    Raises:
      ValueError: if the contents of the table do not allow it; the message gives the reason.
    """
    maker = MAKERS[kind]
    try:
        return maker.make(tables[maker.table])
    except (KeyError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"table {maker.table!r} has a value unknown to charts of kind {kind!r}: {reason}") from error
