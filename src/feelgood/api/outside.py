"""Training on environments outside XLA, one run after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from feelgood.agents import ZOO, Options, Spaces, anneal, atari_hyper
from feelgood.api.defaults import ATARI_OPTIONS, CONTROL, CONTROL_OPTIONS, CONTROL_PROTOCOL, NUM_EVALUATIONS
from feelgood.api.learner import (
    Learner,
    MakeAgent,
    check_kinds,
    label_of,
    make_learner,
    options_of,
    protocol_of,
    seeds_of,
)
from feelgood.api.result import Result
from feelgood.checks import check_choice, check_count
from feelgood.envs.external import Task, vector_task
from feelgood.runs.identity import in_words
from feelgood.training.host import Point, train
from feelgood.training.policy import Origin, make_task
from feelgood.training.protocol import HostProtocol, most_groups
from feelgood.typing import Scalar

__all__ = ["Job", "carry_out", "prepare", "task_of"]


def task_of(env: Any, settings: Mapping[str, Any] | None = None) -> tuple[Origin, Task]:
    """The task of whatever `train` takes as an external environment, and where it comes from."""
    settings = settings or {}
    if isinstance(env, str):
        kind, colon, name = env.partition(":")
        if colon and kind == "atari":
            origin = Origin("atari", name, {"pixel_scale": 1 / 255, **settings})
        else:
            origin = Origin("gym", env, settings)
        return origin, make_task(origin)
    if settings:
        raise ValueError(f"env_settings must be left out where env is no name, got {dict(settings)!r}")
    task = env if isinstance(env, Task) else vector_task(env)
    return Origin("own", task.name), task


class Job(NamedTuple):
    """Runs on an external environment, all settled: what `carry_out` needs.

    Attributes:
      learner: who learns.
      origin: where the task comes from.
      task: where it learns.
      seeds: of the runs.
      protocol: how they go.
    """

    learner: Learner
    origin: Origin
    task: Task
    seeds: Sequence[int]
    protocol: HostProtocol


def prepare(
    agent: str | MakeAgent,
    env: str | Task | Callable[[int, bool], Any],
    seeds: Sequence[int] = (0,),
    hyper: Mapping[str, float] | None = None,
    options: Options | Mapping[str, Any] | None = None,
    env_settings: Mapping[str, Any] | None = None,
    schedule: Callable[[Any, Scalar], Any] = anneal,
    protocol: Mapping[str, Any] | None = None,
) -> Job:
    """Fills in what `train` was not told, and finds what is wrong before anything runs.

    Raises:
      ValueError: if something is unknown or does not fit.
    """
    protocol = protocol or {}
    check_kinds(env, hyper, options, env_settings)
    if not callable(agent):
        check_choice("agent", agent, ZOO)
    origin, task = task_of(env, env_settings)
    is_atari = origin.kind == "atari"
    options = options_of(options, ATARI_OPTIONS if is_atari else CONTROL_OPTIONS)
    own = CONTROL
    if is_atari:
        own = {name: atari_hyper(name, origin.settings["pixel_scale"], options.form) for name in ZOO}
    learner = make_learner(agent, hyper, options, own, schedule)
    # Values that no agent can have are found here.
    learner.make(Spaces(task.observation_shape, task.num_actions, task.decode), schedule(dict(learner.hyper), 0.0))
    defaults: dict[str, Any] = {}
    if is_atari:
        counts = {name: protocol.get(name, getattr(HostProtocol, name)) for name in ("num_envs", "num_chains")}
        for name, value in counts.items():
            check_count(name, value)
        defaults = {"num_groups": most_groups(**counts)}
    if not is_atari:
        num_steps = protocol.get("num_steps", CONTROL_PROTOCOL["num_steps"])
        check_count("num_steps", num_steps)
        num_envs = protocol.get("num_envs", CONTROL_PROTOCOL["num_envs"])
        check_count("num_envs", num_envs)
        defaults = {**CONTROL_PROTOCOL, "evaluation_period": max(num_envs, num_steps // NUM_EVALUATIONS)}
    whole = protocol_of(HostProtocol, defaults, protocol)
    if whole.num_warmup_steps >= whole.num_steps:
        if "num_warmup_steps" in protocol:
            raise ValueError(
                f"num_warmup_steps must be below num_steps = {whole.num_steps}, all steps of a run, "
                f"got {whole.num_warmup_steps}"
            )
        whole = replace(whole, num_warmup_steps=whole.num_steps // 2)  # so short a run is to learn something too
    return Job(learner, origin, task, seeds_of(seeds), whole)


def _row(learner: Learner, environment: str, seed: int, point: Point) -> dict[str, Any]:
    about = {"agent": learner.name, "environment": environment, "seed": seed}
    names = {"return_": "return", "is_finite": "finite"}
    return about | {names.get(name, name): value for name, value in point._asdict().items()}


def carry_out(
    job: Job,
    folder: Path | None = None,
    report: Callable[[int, Mapping[str, Any]], None] = lambda seed, row: None,
    say: Callable[[str], None] = lambda text: None,
    tick: Callable[[int, int, float], None] = lambda seed, step, speed: None,
) -> Result:
    """Trains one run after the other; see `train`. `tick` is that of `feelgood.training.host.train`, with the seed."""
    learner, origin, task, seeds, protocol = job
    label = label_of(learner, origin, in_words(task) if origin.kind == "own" else None)
    rows, policies = [], []

    def known(seed: int, point: Point) -> None:
        report(seed, _row(learner, task.name, seed, point))

    for seed in seeds:
        outcome = train(
            task,
            learner.make,
            protocol,
            learner.hyper,
            seed,
            schedule=learner.schedule,
            folder=None if folder is None else folder / f"seed-{seed}",
            label=label,
            report=partial(known, seed),
            tick=partial(tick, seed),
            say=say,
        )
        rows += [_row(learner, task.name, seed, point) for point in outcome.curve]
        policies.append(learner.policy(outcome.agent, task, origin, protocol.num_chains))
    return Result(pd.DataFrame(rows), tuple(policies))
