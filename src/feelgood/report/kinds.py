"""Every kind of chart, and the tables that each is made from."""

import os
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from feelgood.figures.chart import Chart
from feelgood.figures.curves import aggregates, efficiency, learning_curves, profiles
from feelgood.runs.store import fingerprint, load_results, read_manifest
from feelgood.studies.atari.tables import sensitivity_curves
from feelgood.studies.bandits.tables import total_variation, weights
from feelgood.studies.bsuite import scores
from feelgood.studies.deepsea.tables import chart as deepsea
from feelgood.studies.nchain.tables import frontier, lengths, sensitivity, sweep
from feelgood.studies.regret.tables import budget, complexity, errors, regret_exponents
from feelgood.studies.samplers.charts import distances


class Maker(NamedTuple):
    """How a kind of chart is made: the table, the columns that the table must have as words, and the function."""

    table: str
    columns: str
    make: Callable[[pd.DataFrame], Chart]


MAKERS = {
    "lengths": Maker("summary", "length agent score score_ci", lengths),
    "curves": Maker("curves", "seed", learning_curves),
    "values": Maker("curves", "game agent parameter value seed frame return", sensitivity_curves),
    "aggregate": Maker("curves", "seed", aggregates),
    "profiles": Maker("curves", "seed", profiles),
    "efficiency": Maker("curves", "seed", efficiency),
    "sensitivity": Maker("sensitivity", "agent parameter value score score_ci length seeds", sensitivity),
    "frontier": Maker("frontier", "agent length budget seeds seeds_at_9", frontier),
    "deepsea": Maker("summary", "environment agent size median low high budget_episodes", deepsea),
    "bsuite": Maker("scores", "experiment agent score", scores.chart),
    "sweep": Maker("sweep", "score", sweep),
    "distances": Maker("distances", "sampler step distance floor", distances),
    "exponents": Maker("exponents", "algorithm dimension horizon seed episode regret", regret_exponents),
    "budget": Maker("budget", "mdp sampler budget seed regret", budget),
    "errors": Maker(
        "errors", "sampler steps seed episode weight later first_low first_high stages allowed regret origin", errors
    ),
    "complexity": Maker("complexity", "scheme varied condition dimension error num_gradients", complexity),
    "weights": Maker("weights", "draws temperature decay weight regret rounds", weights),
    "total_variation": Maker("errors", "sampler steps round total_variation regret standard_error", total_variation),
}
"""Every kind of chart by name."""


def tables_of(folder: Path) -> dict[str, pd.DataFrame]:
    """All tables of a folder by name; for a study that is still running, its curves so far."""
    names = {file.stem for ending in ("csv", "parquet") for file in folder.glob(f"*.{ending}")}
    if not names:
        return {"curves": load_results(folder)}  # raises an error that names the reason
    return {name: load_results(folder, name) for name in sorted(names)}


# Columns that name what is compared, columns that are panels, and columns along an axis.
_NAMES = ("agent", "algorithm", "sampler", "scheme")
_PANELS = ("environment", "game", "mdp", "problem", "task", "constants")
_AXES = ("length", "size", "experiment", "dimension", "horizon", "budget", "steps")
# Options that say which runs a study has, not how each is made.
_WHICH = ("output", "seed", "num_seeds", "seeds", "length", "lengths", "sizes", "ids")


def overlaid(folders: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """Joins the tables of several folders by name.

    Runs of an agent with the same settings and different seeds are joined. If an agent has other settings in another
    folder, or both folders have the same run of it, the name of the folder is appended: "dqn in first". The same holds
    for algorithms and samplers.

    Raises:
      ValueError: if a folder is given twice.
    """
    check_different(folders)
    if len(folders) == 1:
        return tables_of(folders[0])
    found = [_with_agent(folder, tables_of(folder)) for folder in folders]
    marks: dict[tuple[str, ...], set[str]] = {}
    for folder, tables in zip(folders, found, strict=True):
        for run in {run for table in tables.values() for run in _runs(table, _PANELS)}:
            marks.setdefault(run, set()).add(_mark(folder, run))
    differing = {name for (name, *_), different in marks.items() if len(different) > 1}
    short = [folder.resolve().name for folder in folders]
    names = short if len({*short}) == len(short) else list(map(str, folders))
    together = {}
    for kind in dict.fromkeys(kind for tables in found for kind in tables):
        parts = [(name, tables[kind]) for name, tables in zip(names, found, strict=True) if kind in tables]
        counts = Counter(run for _, table in parts for run in _runs(table, (*_PANELS, *_AXES, "seed")))
        ambiguous = differing | {name for (name, *_), count in counts.items() if count > 1}
        together[kind] = pd.concat([_renamed(table, ambiguous, name) for name, table in parts], ignore_index=True)
    return together


def check_different(folders: Sequence[Path]) -> None:
    """Requires folders that are all different."""
    places = list(map(os.path.realpath, folders))
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise ValueError(f"folders must be different, got {folder} twice")


def _with_agent(folder: Path, tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables. A sweep's table gets a column with the one agent that its manifest names."""
    path = folder / "manifest.json"
    spec = read_manifest(path).get("spec") if path.exists() else None
    if "sweep" in tables and "agent" not in tables["sweep"] and isinstance(spec, dict) and "agent" in spec:
        return tables | {"sweep": tables["sweep"].assign(agent=spec["agent"])}
    return tables


def _runs(table: pd.DataFrame, columns: Sequence[str]) -> set[tuple[str, ...]]:
    """The distinct names in a table, each with its values in the columns that exist in the table."""
    own = [name for name in _NAMES if name in table][:1]
    chosen = table[[*own, *(name for name in columns if name in table)]].astype(str)
    return {*chosen.itertuples(index=False, name=None)} if own else set()


def _renamed(table: pd.DataFrame, ambiguous: Container[str], folder: str) -> pd.DataFrame:
    """The table with the folder after every ambiguous name."""
    for column in [name for name in _NAMES if name in table][:1]:
        own = [f"{name} in {folder}" if name in ambiguous else name for name in table[column].astype(str)]
        table = table.assign(**{column: own})
    return table


def _mark(folder: Path, run: tuple[str, ...]) -> str:
    """Identifies the settings of runs in a folder, by the agent and the environment of training runs."""
    path = folder / "manifest.json"
    manifest = read_manifest(path) if path.exists() else {"spec": {"folder": str(folder)}}
    settings = manifest.get("settings") or []
    for each in settings if isinstance(settings, list) else [settings]:
        if isinstance(each, dict) and (each.get("agent"), each.get("env")) == run:
            return fingerprint(each)
    spec = manifest.get("spec")
    return fingerprint({k: v for k, v in spec.items() if k not in _WHICH} if isinstance(spec, dict) else spec)


def available(tables: Mapping[str, pd.DataFrame]) -> dict[str, Maker]:
    """The kinds of chart whose tables and columns are present."""
    return {
        kind: maker
        for kind, maker in MAKERS.items()
        if len(table := tables.get(maker.table, ())) and set(maker.columns.split()).issubset(table)
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
