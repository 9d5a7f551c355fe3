"""Cells: batches of functional runs. A cell is points × seeds of one agent in one environment.

The results of a cell depend only on the cell, so it can run anywhere; they are stored under a name that identifies it.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from feelgood.checks import check_choice, check_count
from feelgood.studies.engine import Task, task_of
from feelgood.studies.options import FIRST_TUNING_SEED, SeedOptions, grouped, read_options

OPTIMUM = 10.0
"""Return of the best policy on the N-chain."""


@dataclass(frozen=True, kw_only=True)
class CellOptions(SeedOptions):
    """Options of studies that run cells."""

    seeds_per_task: int | None = grouped("engine", None)
    """Seeds per task (default: all seeds in one task). Smaller tasks spread better over a cluster, and a lost worker
    loses less. Another batch size can change results by rounding; the choice of engine does not."""

    def __post_init__(self):
        super().__post_init__()
        if self.seeds_per_task is not None:
            check_count("seeds_per_task", self.seeds_per_task)


def check_budget(num_steps: int, num_seeds: int) -> None:
    """Requires a budget of whole evaluation periods, and reporting seeds below the tuning seeds."""
    check_count("num_steps", num_steps, minimum=1000)
    if num_steps % 1000:
        raise ValueError(f"num_steps must be a multiple of 1000, got {num_steps}")
    check_count("num_seeds", num_seeds, maximum=FIRST_TUNING_SEED)


@dataclass(frozen=True)
class Cell:
    """Points × seeds of an agent of the zoo in one environment, see `environment_by_name`.

    `stage` is the purpose of the cell. Hyper-parameters that the points lack, and options of the agent that `options`
    lacks (as in form=paper), keep their defaults.
    """

    environment: str
    agent: str
    stage: str
    points: Sequence[Mapping[str, float]]
    seeds: Sequence[int]
    num_steps: int
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name for progress and logs."""
        return f"{self.environment}/{self.agent}/{self.stage}"


def environment_by_name(name: str):
    """A functional environment by name: `nchain-N`, `deep_sea-N`, a control task, or a diagnostic environment.

    Raises:
      ValueError: if the name is unknown.
    """
    from feelgood import envs
    from feelgood.envs.diagnostic import DIAGNOSTICS

    sized: dict[str, Callable[[int], envs.Environment]] = {"nchain": envs.nchain, "deep_sea": envs.deep_sea}
    control = {"cart_pole": envs.cart_pole, "mountain_car": envs.mountain_car, "acrobot": envs.acrobot}
    kind, _, size = name.partition("-")
    if kind in sized and size.isdecimal():
        return sized[kind](int(size))
    check_choice("environment", name, (*(f"{kind}-N" for kind in sized), *control, *DIAGNOSTICS))
    if name.endswith("-N"):
        raise ValueError(f"environment must have a number for N, as in '{kind}-25', got {name!r}")
    return control[name]() if name in control else DIAGNOSTICS[name]().environment


def _settings(cell: Cell):
    """The complete hyper-parameters of each point, the training config and the agent's options."""
    from feelgood import agents
    from feelgood.training.config import FunctionalConfig

    recipe, environment = agents.ZOO[cell.agent], environment_by_name(cell.environment)
    success = {"nchain": OPTIMUM, "deep_sea": 0.99}.get(cell.environment.partition("-")[0], math.inf) - 1e-3
    settings: dict[str, Any] = recipe.functional_config(environment.spec.is_one_hot)
    config = FunctionalConfig(num_steps=cell.num_steps, success_return=success, **settings)
    options = agents.complete(cell.agent, agents.Options(**read_options(cell.options)))
    return [{**recipe.hyper, **point} for point in cell.points], config, options


def _digest(cell: Cell) -> str:
    from feelgood.runs.store import fingerprint

    whole, config, options = _settings(cell)
    return fingerprint(whole, list(cell.seeds), dataclasses.asdict(config), dataclasses.asdict(options))


def tables_of(cells: Sequence[Cell], seeds_per_task: int | None = None) -> Generator[Sequence[Task], list, list]:
    """Part of a plan: requests cells and returns a table for each.

    Returns:
      A list of tables: one row per run and evaluation, with columns `point` (index into `points`), `seed`, `step`,
      `return` and so on, ordered by point and then by seed.
    """
    import pandas as pd

    size = lambda cell: seeds_per_task or len(cell.seeds)
    parts = [
        (i, dataclasses.replace(cell, seeds=cell.seeds[start : start + size(cell)]))
        for i, cell in enumerate(cells)
        for start in range(0, len(cell.seeds), size(cell))
    ]
    done = yield [task_of(part.name, _digest(part), partial(_run, part)) for _, part in parts]
    own = [[table for (j, _), table in zip(parts, done, strict=True) if j == i] for i in range(len(cells))]
    return [
        each[0] if len(each) == 1 else pd.concat(each).sort_values("point", kind="stable", ignore_index=True)
        for each in own
    ]


def one_table(cell: Cell, seeds_per_task: int | None = None) -> Generator[Sequence[Task], list, Any]:
    """Part of a plan: requests one cell and returns its table, see `tables_of`."""
    (table,) = yield from tables_of([cell], seeds_per_task)
    return table


def _run(cell: Cell, progress: Any, checkpoint: Path | None):
    import jax.numpy as jnp
    import numpy as np

    from feelgood import agents
    from feelgood.training import run_batch, trainer

    whole, config, options = _settings(cell)
    make = lambda spaces, hyper: agents.make_agent(cell.agent, spaces, hyper, options)
    one = trainer(environment_by_name(cell.environment), make, config, agents.anneal)
    pairs = list(itertools.product(range(len(whole)), cell.seeds))
    hyper = {key: jnp.asarray([whole[i][key] for i, _ in pairs], jnp.float32) for key in agents.ZOO[cell.agent].hyper}
    seeds, label = np.array([seed for _, seed in pairs]), f"{cell.name} {_digest(cell)}"
    with progress.task(cell.name, config.num_chunks) as report:
        curves = run_batch(one, config.num_chunks, seeds, hyper, label=label, path=checkpoint, report=report)
    kind, _, size = cell.environment.partition("-")
    where = {"length": int(size)} if kind == "nchain" else {"environment": cell.environment}
    return _tabulate(curves, pairs, config).assign(**where, agent=cell.agent)


def _tabulate(curves, pairs, config):
    """One row per run and evaluation, starting with the untrained network."""
    import numpy as np
    import pandas as pd

    record = curves.record
    steps = np.arange(record.evaluation.shape[1] + 1, dtype=np.int32) * config.evaluation_period
    points, seeds = np.repeat(np.array(pairs, np.int32), len(steps), axis=0).T
    prepend = lambda first, rest: np.concatenate([np.broadcast_to(first, (len(rest), 1)), rest], axis=1).ravel()
    reached = np.where(record.num_successes > 0, record.first_success + steps[:-1], -1)
    columns = {
        "point": points,
        "seed": seeds,
        "step": np.tile(steps, len(pairs)),
        "return": prepend(curves.initial[:, None], record.evaluation),
        "episodes": prepend(0, record.num_episodes),
        "successes": prepend(0, record.num_successes),
        "first_success": prepend(-1, reached).astype(np.int32),
        "potential": prepend(np.float32(np.nan), record.potential),
        "finite": prepend(True, record.is_finite),
    }
    return pd.DataFrame(columns)
