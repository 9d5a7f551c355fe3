"""Runs on external environments as tasks of a study: one task a run, with the settings of `feelgood train`."""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from feelgood.studies.cells import Cell
from feelgood.studies.engine import Task
from feelgood.studies.options import read_options


def is_external(name: str) -> bool:
    """Whether a name is one of Gymnasium, such as CartPole-v1 or module:Name-v0, or of an Atari game.

    Examples:
      >>> [is_external(name) for name in ("CartPole-v1", "atari:venture", "cart_pole", "nchain-25")]
      [True, True, False, False]
    """
    return ":" in name or re.search(r"-v\d+$", name) is not None


@cache
def defaults(environment: str, agent: str, num_steps: int, options: tuple[str, ...]) -> Any:
    """A `feelgood.api.Job` with the defaults of `feelgood train`.

    Raises:
      ValueError: if the environment cannot be made.
    """
    from feelgood.api import prepare

    return prepare(agent, environment, options=read_options(options), config={"num_steps": num_steps})


def external_table(cell: Cell) -> Generator[Sequence[Task], list, Any]:
    """Part of a plan: runs every point of a cell on every seed; returns a table in the form of `cells.tables_of`."""
    import pandas as pd

    runs = [(i, replace(cell, points=[point], seeds=[s])) for i, point in enumerate(cell.points) for s in cell.seeds]
    tables = yield [run_task(run) for _, run in runs]
    return pd.concat([table.assign(point=i) for (i, _), table in zip(runs, tables, strict=True)], ignore_index=True)


def run_task(cell: Cell) -> Task:
    """The task of a cell of one run; the file name holds a hash of everything that the run depends on."""
    from feelgood.api import pair_name
    from feelgood.runs.store import fingerprint

    (point,), (seed,) = cell.points, cell.seeds
    settings = defaults(cell.environment, cell.agent, cell.num_steps, cell.options).settings
    digest = fingerprint({**settings, "hyper": {**settings["hyper"], **point}}, seed)
    file = f"{pair_name(cell.agent, cell.environment)}-{cell.stage}-seed-{seed}-{digest}.parquet"
    return Task(f"{cell.name} {_point_text(point)}", file, partial(_run, cell))


def _point_text(point: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:g}" for name, value in point.items())


def _run(cell: Cell, progress: Any, checkpoint: Path | None):
    """Trains one run; returns its curve."""
    import sys

    from feelgood.api import prepare, train_external
    from feelgood.runs.progress import follow

    (point,), config = cell.points, {"num_steps": cell.num_steps}
    job = prepare(cell.agent, cell.environment, cell.seeds, point, read_options(cell.options), config=config)
    folder = None if checkpoint is None else checkpoint.with_suffix("")  # a run needs a folder
    with follow(progress, f"{cell.name} {_point_text(point)}", job.seeds, cell.num_steps) as (report, tick):
        return train_external(job, folder, report, lambda text: print(text, file=sys.stderr), tick).curve
