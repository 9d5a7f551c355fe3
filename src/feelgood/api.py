"""Training in one call: `feelgood.train("fg_ulmcdqn", "CartPole-v1")`.

Whatever is not said has a default that suits the kind of environment: the paper's protocol on Atari, the released
N-chain protocol inside XLA, and `CONTROL` for everything else.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from feelgood.agents import ZOO, Agent, AgentState, Options, Spaces, anneal, atari_hyper, check_hyper
from feelgood.checks import check_choice, check_count, check_finite, check_kind
from feelgood.envs import Environment
from feelgood.envs.external import Task, vector_task
from feelgood.envs.gym import GymEnv
from feelgood.results import charts, figures, store, style
from feelgood.training.batch import Curves, run_batch
from feelgood.training.evaluation import policy_of
from feelgood.training.host import Point
from feelgood.training.host import train as train_outside
from feelgood.training.ingraph import Protocol, Record, trainer
from feelgood.training.machinery import HostProtocol
from feelgood.training.policy import Origin, Policy, make_task, save_policy, zoo_agent
from feelgood.typing import Scalar

__all__ = [
    "ATARI_OPTIONS",
    "CONTROL",
    "CONTROL_OPTIONS",
    "CONTROL_PROTOCOL",
    "Job",
    "Learner",
    "Result",
    "carry_out",
    "prepare",
    "task_of",
    "train",
]

# The temperature falls as data grow, as that of a posterior does: noise that is there at the start makes draws differ
# enough to explore, which the zoo's 1e10 does not here. The step falls to 0, so that the last policy stays.
_LANGEVIN = {"inverse_temperature": 1e3, "inverse_temperature_end": 1e5, "step_size_end": 0.0}
_UNDERDAMPED = {"step_size": 2e-2, "friction": 10.0, **_LANGEVIN}
_FEEL_GOOD = {"feel_good_weight": 0.1, "feel_good_weight_end": 0.0}
_ADAM = {"step_size": 2e-3, "step_size_end": 0.0}
_EPSILON = {"final_epsilon": 0.05, "epsilon_fraction": 0.2}

CONTROL: dict[str, Mapping[str, float]] = {
    "fg_ulmcdqn": {**_UNDERDAMPED, **_FEEL_GOOD},
    "steady_fg_ulmcdqn": {**_UNDERDAMPED, **_FEEL_GOOD, "average": 0.95},
    "fg_lmcdqn": {"step_size": 2e-3, **_LANGEVIN, **_FEEL_GOOD},
    "ulmcdqn": _UNDERDAMPED,
    "adam_lmcdqn": {"step_size": 2e-3, **_LANGEVIN},
    "dqn": {**_ADAM, "step_size": 4e-3, **_EPSILON},
    "prioritized_dqn": {**_ADAM, **_EPSILON},
    "c51": {**_ADAM, **_EPSILON},
    "iqn": {**_ADAM, **_EPSILON},
    "bootstrapped_dqn": {**_ADAM, **_EPSILON},
    "noisynet_dqn": _ADAM,
}
"""What differs from the zoo's hyper-parameters on small control tasks such as CartPole; see `feelgood.agents.anneal`.

Those of fg_ulmcdqn and dqn were chosen on tuning seeds of CartPole; the others follow them and were not tuned.
"""

CONTROL_PROTOCOL: Mapping[str, Any] = {
    "num_steps": 50_000,
    "num_envs": 8,
    "num_groups": 1,
    "num_draws": 1,
    "num_warmup_steps": 1_000,
    "steps_per_update": 1,
    "batch_size": 64,
    "capacity": 50_000,
    "n_step": 1,
    "target_period": 200,
    "num_evaluation_episodes": 10,
}
"""What differs from `HostProtocol`'s defaults on tasks that are not Atari games; there are 25 evaluations."""

CONTROL_OPTIONS: Mapping[str, Any] = {"hidden": (64, 64), "v_max": 100.0}
"""What differs from the zoo's options there; returns reach into the hundreds."""

ATARI_OPTIONS: Mapping[str, Any] = {"double": True}
"""What differs from the zoo's options on Atari games: the paper's targets are double."""

_NUM_EVALUATIONS = 25

MakeAgent = Callable[[Spaces, Any], Agent]
Env = str | Task | Environment | Callable[[int, bool], Any]


@dataclass(frozen=True, eq=False)
class Result:
    """What training leaves behind.

    Attributes:
      curve: one row for each seed and evaluation, the untrained network's first: `agent`, `environment`, `seed`,
        `step`, `return` and more.
      policies: the last policy of each seed.
    """

    curve: pd.DataFrame
    policies: tuple[Policy, ...]

    @property
    def policy(self) -> Policy:
        """The policy of the first seed."""
        return self.policies[0]

    def plot(self) -> Figure:
        """Draws the evaluation return against steps, with a 95% interval where there are several seeds."""
        return figures.draw(charts.make_chart("curves", {"curves": self.curve}))

    def save(self, folder: str | Path) -> list[Path]:
        """Writes `curves.parquet`, its figure, and `policy/` (with a folder for each seed where there are several).

        Returns:
          The files.
        """
        folder = Path(folder)
        store.write_table(folder / "curves.parquet", self.curve)
        paths = [folder / "curves.parquet", *style.save(self.plot(), folder / "curves")]
        seeds = list(dict.fromkeys(self.curve["seed"]))
        for seed, policy in zip(seeds, self.policies, strict=True):
            paths += save_policy(folder / "policy" if len(seeds) == 1 else folder / "policy" / f"seed-{seed}", policy)
        return paths


class Learner(NamedTuple):
    """Who learns: everything about an agent but its state.

    Attributes:
      name: in the zoo, or "own".
      make: `(spaces, hyper) -> Agent`.
      hyper: all hyper-parameters.
      options: of an agent of the zoo.
      schedule: `(hyper, progress) -> hyper`.
    """

    name: str
    make: MakeAgent
    hyper: Mapping[str, float]
    options: Options
    schedule: Callable[[Any, Scalar], Any]

    def policy(self, state: AgentState, task: Task, origin: Origin, num_chains: int = 1) -> Policy:
        """What it has learnt, to be used."""
        return Policy(
            task,
            self.make,
            self.hyper,
            policy_of(state),
            self.name,
            origin,
            self.options,
            num_chains,
            self.schedule,
        )


def train(
    agent: str | MakeAgent,
    env: Env,
    *,
    num_steps: int | None = None,
    seeds: int | Sequence[int] = 0,
    hyper: Mapping[str, float] | None = None,
    options: Options | None = None,
    env_settings: Mapping[str, Any] | None = None,
    schedule: Callable[[Any, Scalar], Any] = anneal,
    folder: str | Path | None = None,
    report: Callable[[int, Mapping[str, Any]], None] = lambda seed, row: None,
    say: Callable[[str], None] = lambda text: None,
    **protocol: Any,
) -> Result:
    """Trains an agent in an environment.

    Args:
      agent: a name of the zoo (`feelgood list agents`), or your own `(spaces, hyper) -> Agent`.
      env: a Gymnasium name such as "CartPole-v1"; an Atari game as in "atari:venture"; a functional environment, which
        trains inside XLA, all seeds at once; a `Task`; or your own function `(num_envs, training) -> VectorEnv`, see
        `feelgood.envs.external.vector_task`.
      num_steps: environment steps in all.
      seeds: of initialisation, noise, minibatches and environments; several make a run each.
      hyper: hyper-parameters that differ from the defaults.
      options: of an agent of the zoo: widths of layers, double targets and so on.
      env_settings: for `feelgood.envs.external.gym_task` or `atari`, where `env` is a name.
      schedule: `(hyper, progress) -> hyper`.
      folder: where to keep checkpoints, from which the same call goes on.
      report: called with a seed and each row of its curve as it is known.
      say: called with a sentence where something happens that the user should know.
      protocol: other fields of `feelgood.training.machinery.HostProtocol`, or of `feelgood.training.Protocol` for
        functional environments: batch_size, n_step, num_envs and so on.

    Raises:
      ValueError: if something is unknown or does not fit.
      Interrupted: after Ctrl-C; with a folder, the same call goes on.

    Example:
      >>> result = train("fg_ulmcdqn", "CartPole-v1", num_steps=50_000)  # doctest: +SKIP
      >>> result.plot()  # doctest: +SKIP
      >>> result.policy.evaluate(num_episodes=20).mean()  # doctest: +SKIP
    """
    seeds = _seeds(seeds)
    _check_kinds(env, hyper, options, env_settings)
    check_kind("folder", folder, (str, Path, NoneType), "a path")
    if num_steps is not None:
        protocol["num_steps"] = num_steps
    kept = None if folder is None else Path(folder)
    hold = lambda: contextlib.nullcontext() if kept is None else store.locked(kept)
    if isinstance(env, Environment):
        learner = _learner(agent, hyper, options or Options(), {}, schedule)
        with hold():
            return _train_inside(learner, env, seeds, protocol, kept, report, say)
    job = prepare(agent, env, seeds, hyper, options, env_settings, schedule, protocol)
    with hold():
        return carry_out(job, kept, report, say)


def _check_kinds(env: Any, hyper: Any, options: Any, env_settings: Any) -> None:
    for name, value in (("hyper", hyper), ("env_settings", env_settings)):
        check_kind(name, value, (Mapping, NoneType), "a mapping from names to values")
    check_kind("options", options, (Options, NoneType), "a feelgood.agents.Options")
    if not callable(env):
        check_kind("env", env, (str, Task, Environment), "a name, a Task, an Environment or a function")


def _seeds(seeds: int | Sequence[int]) -> list[int]:
    check_kind("seeds", seeds, (int, np.integer, Iterable), "a whole number or several")
    several = [seeds] if isinstance(seeds, int | np.integer) else list(seeds)
    for seed in several:
        check_count("seeds", seed, minimum=0)
    if not several or len({*several}) < len(several) or max(several) >= 2**32:
        raise ValueError(f"seeds must be different whole numbers below 2^32, at least one, got {several!r}")
    return [int(seed) for seed in several]


def _learner(agent: str | MakeAgent, hyper, options: Options, own: Mapping[str, Mapping], schedule) -> Learner:
    given = dict(hyper or {})
    for name, value in given.items():
        check_finite(f"hyper-parameter {name}", value)
    if callable(agent):
        return Learner("own", agent, given, options, schedule)
    check_choice("agent", agent, ZOO)
    whole = {**ZOO[agent].hyper, **own.get(agent, {})}
    for name in given:
        # Any of them may have an end to move to.
        check_choice(f"hyper-parameter of {agent}", name if name in whole else name.removesuffix("_end"), whole)
    check_hyper(given)
    whole |= given
    return Learner(agent, zoo_agent(agent, options), whole, options, schedule)


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


def _protocol(kind: Any, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    known: dict[str, Any] = {each.name: type(each.default) for each in fields(kind)}
    for name, value in given.items():
        check_choice("setting of the protocol", name, known)
        check_count(name, value, minimum=0) if known[name] is int else check_finite(name, value)
    return kind(**{**defaults, **{name: known[name](value) for name, value in given.items()}})


# Outside XLA.


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
    options: Options | None = None,
    env_settings: Mapping[str, Any] | None = None,
    schedule: Callable[[Any, Scalar], Any] = anneal,
    protocol: Mapping[str, Any] | None = None,
) -> Job:
    """Fills in what `train` was not told, and finds what is wrong before anything runs.

    Raises:
      ValueError: if something is unknown or does not fit.
    """
    protocol = protocol or {}
    _check_kinds(env, hyper, options, env_settings)
    if not callable(agent):
        check_choice("agent", agent, ZOO)
    origin, task = task_of(env, env_settings)
    is_atari = origin.kind == "atari"
    options = options or Options(**(ATARI_OPTIONS if is_atari else CONTROL_OPTIONS))
    own = CONTROL
    if is_atari:
        own = {name: atari_hyper(name, origin.settings["pixel_scale"], options.form) for name in ZOO}
    learner = _learner(agent, hyper, options, own, schedule)
    # Values that no agent can have are found here.
    learner.make(Spaces(task.observation_shape, task.num_actions, task.decode), schedule(dict(learner.hyper), 0.0))
    defaults: dict[str, Any] = {}
    if is_atari and protocol.get("num_envs") == 1:  # as in the paper
        defaults = {"num_groups": 1}
    if not is_atari:
        num_steps = protocol.get("num_steps", CONTROL_PROTOCOL["num_steps"])
        check_count("num_steps", num_steps)
        num_envs = protocol.get("num_envs", CONTROL_PROTOCOL["num_envs"])
        check_count("num_envs", num_envs)
        defaults = {**CONTROL_PROTOCOL, "evaluation_period": max(num_envs, num_steps // _NUM_EVALUATIONS)}
    whole = _protocol(HostProtocol, defaults, protocol)
    if whole.num_warmup_steps >= whole.num_steps:
        if "num_warmup_steps" in protocol:
            raise ValueError(
                f"num_warmup_steps must be below num_steps = {whole.num_steps}, all steps of a run, "
                f"got {whole.num_warmup_steps}"
            )
        whole = replace(whole, num_warmup_steps=whole.num_steps // 2)  # so short a run is to learn something too
    return Job(learner, origin, task, _seeds(seeds), whole)


def _label(learner: Learner, *facts: Any) -> str:
    """What a checkpoint belongs to. Of functions that are your own it knows the code, not what that calls."""
    make = None if learner.name in ZOO else store.in_words(learner.make)
    return f"{learner.name} {store.fingerprint(dict(learner.hyper), vars(learner.options), make, *facts)}"


def _row(learner: Learner, environment: str, seed: int, point: Point) -> dict[str, Any]:
    about = {"agent": learner.name, "environment": environment, "seed": seed}
    names = {"return_": "return", "is_finite": "finite"}
    return about | {names.get(name, name): value for name, value in point._asdict().items()}


def carry_out(
    job: Job,
    folder: Path | None = None,
    report: Callable[[int, Mapping[str, Any]], None] = lambda seed, row: None,
    say: Callable[[str], None] = lambda text: None,
) -> Result:
    """Trains one run after the other; see `train`."""
    learner, origin, task, seeds, protocol = job
    label = _label(learner, origin, store.in_words(task.make) if origin.kind == "own" else None)
    rows, policies = [], []

    def known(seed: int, point: Point) -> None:
        report(seed, _row(learner, task.name, seed, point))

    for seed in seeds:
        outcome = train_outside(
            task,
            learner.make,
            protocol,
            learner.hyper,
            seed,
            schedule=learner.schedule,
            folder=None if folder is None else folder / f"seed-{seed}",
            label=label,
            report=partial(known, seed),
            say=say,
        )
        rows += [_row(learner, task.name, seed, point) for point in outcome.curve]
        policies.append(learner.policy(outcome.agent, task, origin, protocol.num_chains))
    return Result(pd.DataFrame(rows), tuple(policies))


# Inside XLA.


def _train_inside(
    learner: Learner,
    environment: Environment,
    seeds: Sequence[int],
    given: Mapping[str, Any],
    folder: Path | None,
    report: Callable[[int, Mapping[str, Any]], None],
    say: Callable[[str], None],
) -> Result:
    """All runs at once, spread over the devices."""
    num_updates = ZOO[learner.name].num_updates if learner.name in ZOO else 1
    protocol = _protocol(Protocol, {"num_updates": num_updates}, given)
    name = "functional"
    rows: list[list[dict[str, Any]]] = [[] for _ in seeds]

    def tell(curves: Curves, num_chunks: int) -> None:
        """Rows that are known and have not been told."""
        for chunk in range(len(rows[0]), num_chunks + 1):
            for i, seed in enumerate(seeds):
                where = {"agent": learner.name, "environment": name, "seed": seed}
                step = chunk * protocol.evaluation_period
                rows[i].append({**where, "step": step, **_evaluation(curves, i, chunk)})
                report(seed, rows[i][-1])

    task, origin = _as_task(environment, name), Origin("own", name)
    path = None if folder is None else folder / "runs.checkpoint"
    if path is not None and path.exists():
        say(f"continuing from {path}")
    curves = run_batch(
        trainer(environment, learner.make, protocol, learner.schedule),
        protocol.num_chunks,
        np.asarray(seeds),
        {name: jnp.full(len(seeds), value, jnp.float32) for name, value in learner.hyper.items()},
        label=_label(learner, protocol, *map(store.in_words, environment[:2]), environment.spec),
        path=path,
        keep_last=True,
        report=lambda progress: tell(progress.curves, progress.chunk),
    )
    tell(curves, protocol.num_chunks)
    one_of = lambda i: jax.tree.map(lambda leaf: leaf[i], curves.agents)
    policies = tuple(learner.policy(one_of(i), task, origin) for i in range(len(seeds)))
    return Result(pd.DataFrame([row for of_seed in rows for row in of_seed]), policies)


def _evaluation(curves: Curves, run: int, chunk: int) -> dict[str, Any]:
    """What a row of the curve tells of a run after so many chunks."""
    if chunk == 0:
        before = {"training_return": np.nan, "num_episodes": 0, "potential": np.nan}
        return {"return": curves.initial[run].item(), **before, "finite": True}
    record: Record = jax.tree.map(lambda values: values[run, chunk - 1].item(), curves.record)
    return {
        "return": record.evaluation,
        "training_return": record.training_return / record.num_episodes if record.num_episodes else np.nan,
        "num_episodes": record.num_episodes,
        "potential": record.potential,
        "finite": record.is_finite,
    }


def _as_task(environment: Environment, name: str) -> Task:
    """A functional environment to be played step by step."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    def make(num_envs: int, training: bool) -> SyncVectorEnv:
        del training
        return SyncVectorEnv([lambda: GymEnv(environment)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)

    return vector_task(make, name)
