"""A sweep: a grid search for one agent in one environment by successive halving.

The winner's score on its tuning seeds is the largest of many noisy means, and so too high on average. The winner is
therefore run again on fresh seeds, and both scores are reported. On an external environment each run is a task with the
settings of `feelgood train`.
"""

import itertools
import math
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from feelgood.checks import check_choice, check_count
from feelgood.pairs import grid_points, read_lists
from feelgood.studies.cells import Cell, CellOptions, check_budget, environment_by_name, one_table
from feelgood.studies.engine import Plan, Task, run_plans
from feelgood.studies.nchain.study import GRIDS, best, tune, tuning_seeds
from feelgood.studies.options import check_options, grouped, read_options
from feelgood.studies.output import figure_files, markdown_table, plus_minus, write_files


@dataclass(frozen=True)
class SweepStudy(CellOptions):
    """Grid search for one agent in one environment; the winner is measured on fresh seeds."""

    agent: str = "fg_ulmcdqn"
    """Agent; `feelgood list agents` lists them."""
    environment: str = "nchain-25"
    """Environment: nchain-N, deep_sea-N, cart_pole, mountain_car, acrobot, or a diagnostic one, see
    `feelgood list environments`; a Gymnasium name such as CartPole-v1; or an Atari game as in atari:venture. In the
    last two each run is a task of its own, with the defaults of `feelgood train`."""
    grid: tuple[str, ...] = ()
    """Values to try, as in step_size=1e-2,1e-3 friction=1,0.1; empty for the agent's grid in the study nchain. Other
    hyper-parameters keep their defaults."""
    tuning_seeds: tuple[int, ...] = grouped("tuning", (4, 8))
    """Number of fresh tuning seeds in each round of halving."""
    num_kept: int = grouped("tuning", 8)
    """Smallest number of points that advance to the next round; ties and near ties advance too."""
    num_seeds: int = 20
    """Number of fresh seeds for the winner."""
    num_steps: int = 10_000
    """Environment steps of a run."""
    options: tuple[str, ...] = grouped("agent", ())
    """Agent options, as in form=paper double=true; the names are those of `feelgood.agents.Options`."""
    output: Path = Path("runs/sweep")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("agent", self.agent, GRIDS)
        check_options(self.options)
        read_lists("grid", self.grid)
        if not self.tuning_seeds:
            raise ValueError("tuning_seeds must name at least one round, got ()")
        for count in self.tuning_seeds:
            check_count("tuning_seeds", count)
        check_count("num_kept", self.num_kept)
        check_budget(self.num_steps, self.num_seeds)


FILES = {
    "sweep.csv": "every point of the grid: mean score on tuning seeds, standard error, number of seeds, and the winner",
    "curves.parquet": "the winner on fresh seeds, a row per run and evaluation",
    "summary.md": "the winner, and its score on tuning seeds and on fresh seeds",
    **figure_files("sweep", "heat-map of the scores on tuning seeds"),
}


def plan(study: SweepStudy, grid: Mapping[str, Sequence[float]]) -> Plan:
    """Halving on tuning seeds, then the winner on fresh seeds; returns all points and the winner's curves."""

    def table_of(stage: str, points: Sequence[Mapping[str, float]], seeds: Sequence[int]) -> Generator[Any, Any, Any]:
        cell = Cell(study.environment, study.agent, stage, points, seeds, study.num_steps, study.options)
        return external_table(cell) if is_external(study.environment) else one_table(cell, study.seeds_per_task)

    points = yield from tune(table_of, grid, study.tuning_seeds, study.num_kept)
    hyper = best(points, grid)
    curves = yield from table_of("report", [hyper], study.seed_list)
    won = (points[list(hyper)] == list(hyper.values())).all(axis=1) & points["score"].notna()
    return points.assign(won=won), curves.assign(**hyper)


def run(study: SweepStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables."""
    from feelgood.runs import store
    from feelgood.studies.nchain.tables import sweep as heat_map

    grid = read_lists("grid", study.grid) or GRIDS[study.agent]
    _check(study, grid)
    seeds = {"reporting": study.seed_list, **tuning_seeds(study.tuning_seeds)}
    with store.recorded(study.output, "sweep", study, seeds=seeds, files=FILES) as facts:
        ((points, curves),) = run_plans(study, [plan(study, grid)], study.output, facts)
        text = as_markdown(study, points, curves)
        report(text)
        files = {"sweep.csv": points, "curves.parquet": curves, "summary.md": text}
        if len(points) > 1 and points["score"].notna().any():
            files["sweep"] = heat_map(points)
        return write_files(study.output, files)


def _check(study: SweepStudy, grid: Mapping[str, Sequence[float]]) -> None:
    """Raises errors before anything is written: unknown environments and invalid hyper-parameters."""
    from feelgood import agents
    from feelgood.training.policy import zoo_agent

    options, known = agents.Options(**read_options(study.options)), agents.ZOO[study.agent].hyper
    if is_external(study.environment):
        from feelgood.training.acting import spaces_of

        job = defaults(study.environment, study.agent, study.num_steps, study.options)
        spaces, options, known = spaces_of(job.environment), job.spec.options, job.spec.hyper
    else:
        spec = environment_by_name(study.environment).spec
        spaces = agents.Spaces(spec.observation_shape, spec.num_actions)
    for name in grid:
        check_choice(f"grid of {study.agent}", name, known)
    for point in grid_points(grid):
        agents.check_hyper(point)
        zoo_agent(study.agent, options)(spaces, {**known, **point})


def as_markdown(study: SweepStudy, points: Any, curves: Any, num_shown: int = 10) -> str:
    """A table of the best points, and a sentence with the winner's two scores."""
    from feelgood.statistics import bootstrap, diverged, final_scores, mean

    names = list(itertools.takewhile(lambda name: name != "count", points.columns))
    ranked = points.sort_values(["count", "score", "area"], ascending=False)
    shown = ranked.head(num_shown).to_dict("records")
    measured = lambda row: [f"{row['count']}", *(plus_minus(row[name], math.nan) for name in ("score", "error"))]
    rows = [[*(f"{row[name]:g}" for name in names), *measured(row)] for row in shown]
    lines = [markdown_table([*names, "tuning seeds", "score", "standard error"], rows)]
    if len(points) > num_shown:
        lines += [f"{len(points) - num_shown} further points are in sweep.csv.", ""]
    lost = diverged(curves)
    scores = final_scores(curves)["score"].dropna().to_numpy(float)
    fresh, low, high = bootstrap(mean, [scores]) if len(scores) else (math.nan,) * 3
    band = f" (95% bootstrap interval [{low:.2f}, {high:.2f}])" if len(scores) > 1 else ""
    winner = ranked.iloc[0]
    chosen = ", ".join(f"{name} = {winner[name]:g}" for name in names)
    if math.isnan(winner["score"]):
        last = int((points["count"] == winner["count"]).sum())
        lines += [
            f"No point won: none of the {last} for {study.agent} on {study.environment} that passed all rounds has a "
            f"score, because runs of each diverged. The curves are those of {chosen}."
        ]
    else:
        lines += [
            f"Of {len(points)} points for {study.agent} on {study.environment}, {chosen} won.",
            f"Its score on the {_seeds(int(winner['count']), 'tuning')} that chose it is {winner['score']:.2f}; as the "
            f"best of {len(points)} it is too high on average. On {_seeds(study.num_seeds, 'fresh')} it is "
            f"{fresh:.2f}{band}: report this one." + (f" Runs that diverged are left out: {lost}." if lost else ""),
        ]
    return "\n".join(lines) + "\n"


def _seeds(count: int, kind: str) -> str:
    return f"{count} {kind} {'seed' if count == 1 else 'seeds'}"


# Runs on external environments.


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
    name = f"{cell.name} {' '.join(f'{name}={value:g}' for name, value in point.items())}"
    return Task(name, file, partial(_run, cell, name))


def _run(cell: Cell, name: str, progress: Any, checkpoint: Path | None):
    import sys

    from feelgood.api import prepare, train_external
    from feelgood.runs.progress import follow

    (point,), config = cell.points, {"num_steps": cell.num_steps}
    job = prepare(cell.agent, cell.environment, cell.seeds, point, read_options(cell.options), config=config)
    folder = None if checkpoint is None else checkpoint.with_suffix("")  # a run needs a folder
    with follow(progress, name, job.seeds, cell.num_steps) as (report, tick):
        return train_external(job, folder, report, lambda text: print(text, file=sys.stderr), tick).curve
