"""One run of the Atari study: its settings, its training and its table of evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from feelgood.studies.engine import Plan, Task, task_of

FRAMES_PER_STEP = 4


@dataclass(frozen=True)
class Run:
    """One run, and all that it depends on.

    `point` holds hyper-parameters, among them the `varied` one, if any; others keep the agent's defaults on Atari. The
    mappings are arguments of `ExternalConfig`, of `Options` and of `feelgood.envs.external.atari`.
    """

    game: str
    agent: str
    seed: int
    point: Mapping[str, float]
    varied: tuple[str, float] | None
    config: Mapping[str, Any]
    options: Mapping[str, Any]
    env_settings: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The agent's name in tables, followed by the varied hyper-parameter if there is one."""
        return self.agent if self.varied is None else f"{self.agent} {self.varied[0]}={self.varied[1]:g}"

    @property
    def name(self) -> str:
        """Name for progress and logs."""
        return f"{self.game}/{self.label}/seed-{self.seed}"


class Settings(NamedTuple):
    """Hyper-parameters, an `ExternalConfig` and an agent's `Options`."""

    hyper: dict[str, float]
    config: Any
    options: Any


def settings(run: Run) -> Settings:
    """The complete settings of a run."""
    from feelgood import agents
    from feelgood.training.config import ExternalConfig

    options = agents.complete(run.agent, agents.Options(**run.options))
    hyper = {**agents.atari_hyper(run.agent, run.env_settings["pixel_scale"], options.form), **run.point}
    return Settings(hyper, ExternalConfig(**run.config), options)


def _digest(run: Run) -> str:
    from feelgood.runs.store import fingerprint

    hyper, config, options = settings(run)
    return fingerprint(run.game, run.agent, run.seed, hyper, asdict(config), asdict(options), dict(run.env_settings))


def run_task(run: Run, *, checkpoints: bool = True) -> Task:
    """The task of a run."""
    return task_of(run.name, _digest(run), partial(_run, run, checkpoints))


def plan(run: Run, *, checkpoints: bool = True) -> Plan:
    """One run; returns its curve."""
    (table,) = yield [run_task(run, checkpoints=checkpoints)]
    varied = {} if run.varied is None else {"parameter": run.varied[0], "value": run.varied[1]}
    return table.assign(agent=run.label, **varied)


def _run(run: Run, checkpoints: bool, progress: Any, checkpoint: Path | None):
    from feelgood import agents
    from feelgood.envs.external import atari
    from feelgood.runs import store
    from feelgood.runs.progress import Moment
    from feelgood.training.external import train

    hyper, config, options = settings(run)
    make = lambda spaces, hyper: agents.make_agent(run.agent, spaces, hyper, options)
    environment = atari(run.game, **run.env_settings)
    resumed: list[str] = []
    points: list[Any] = []
    with progress.task(run.name, config.num_steps) as report:
        step, speed = 0, 0.0

        def show(now: int, a_second: float) -> None:
            nonlocal step, speed
            step, speed = max(step, now), a_second  # evaluations are late
            parts = [f"{FRAMES_PER_STEP * step:,} frames"] if step else []
            parts += [f"{FRAMES_PER_STEP * speed:,.0f} a second"] if speed else []
            if points:
                parts.append(f"score {points[-1].return_:,.0f}" if points[-1].is_finite else "diverged")
            report(Moment(step, ", ".join(parts)))

        def record(point) -> None:
            points.append(point)
            if checkpoint is not None:
                so_far = tabulate(run, hyper, points, resumed=bool(resumed))
                store.write_so_far(checkpoint, so_far.assign(agent=run.label))
            show(point.step, speed)

        def say(text: str) -> None:
            if text.startswith("continuing"):
                resumed.append(text)
            report(Moment(None, text))

        # The engine's checkpoint path is a file name; a run needs a folder.
        folder = checkpoint.with_suffix("") if checkpoints and checkpoint is not None else None
        where: dict[str, Any] = {"folder": folder, "label": f"{run.name} {_digest(run)}"}
        hears: dict[str, Any] = {"report": record, "tick": show, "say": say}
        outcome = train(environment, make, config, hyper, run.seed, schedule=agents.anneal, **where, **hears)
    return tabulate(run, hyper, outcome.curve, resumed=bool(resumed))


def tabulate(run: Run, hyper: dict[str, float], curve: Sequence[Any], *, resumed: bool):
    """One row per evaluation, starting with the untrained network."""
    import pandas as pd

    where = {"game": run.game, "agent": run.agent, "seed": run.seed}
    time = lambda step: {"step": step, "frame": FRAMES_PER_STEP * step}
    return pd.DataFrame([where | time(p.step) | p.row() | {"resumed": resumed} | hyper for p in curve])
