"""Training on external environments, one seed after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import pandas as pd

from feelgood.agents import ZOO, Options, anneal, atari_hyper
from feelgood.api.agent_spec import (
    AgentSpec,
    MakeAgent,
    agent_spec,
    check_agent,
    check_kinds,
    config_of,
    label_of,
    options_of,
    seeds_of,
)
from feelgood.api.defaults import (
    CONTROL,
    CONTROL_CONFIG,
    CONTROL_CONFIGS,
    CONTROL_OPTIONS,
    NUM_EVALUATIONS,
    ONE_HOT_CONFIGS,
    STEPS_WITHOUT_LIMIT,
)
from feelgood.api.result import Result
from feelgood.checks import check_choice, check_count
from feelgood.envs.conversion import as_external
from feelgood.envs.external import ExternalEnvironment
from feelgood.envs.rules import check_playable
from feelgood.protocols import ATARI, DEFAULT_PRESET
from feelgood.runs.identity import identity
from feelgood.training.acting import spaces_of
from feelgood.training.config import ExternalConfig, most_groups
from feelgood.training.evaluation import external_random_return
from feelgood.training.external import Point, train
from feelgood.training.external_steps import external_steps
from feelgood.training.policy import Origin, make_environment
from feelgood.typing import Scalar


def check_protocol(preset: str | None, is_atari: bool) -> Mapping[str, Any]:
    """Returns the protocol of a preset (default: the recommended one). Only Atari games have presets."""
    if preset is not None and not is_atari:
        raise ValueError(f"preset must be left out unless env is an Atari game such as atari:venture, got {preset!r}")
    check_choice("preset", preset or DEFAULT_PRESET, ATARI)
    return ATARI[preset or DEFAULT_PRESET]


def external_environment(
    env: Any, settings: Mapping[str, Any] | None = None, preset: str | None = None
) -> tuple[Origin, ExternalEnvironment]:
    """Makes the external environment that `train` was given; returns its origin and the environment."""
    settings = settings or {}
    if isinstance(env, str):
        kind, colon, name = env.partition(":")
        if colon and kind == "atari":
            origin = Origin("atari", name, {**check_protocol(preset, True)["env_settings"], **settings})
        else:
            origin = Origin("gym", env, settings)
            own = {name: value for name, value in settings.items() if name != "vectorization"}
            check_playable(env, lambda: gymnasium.make(env, disable_env_checker=True, **own))
        return origin, make_environment(origin)
    if settings:
        raise ValueError(f"env_settings must be empty unless env is a name, got {dict(settings)!r}")
    environment = as_external(env)
    return Origin("own", environment.name), environment


class Job(NamedTuple):
    """Runs on an external environment with all settings filled in, for `train_external`.

    Attributes:
      spec: the agent.
      origin: the origin of the environment.
      environment: the environment.
      seeds: one for each run.
      config: settings of the runs.
    """

    spec: AgentSpec
    origin: Origin
    environment: ExternalEnvironment
    seeds: Sequence[int]
    config: ExternalConfig

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the runs, without the seeds, as they are stored in a manifest."""
        return {
            "agent": self.spec.name,
            "env": self.origin.name,
            "env_settings": dict(self.origin.settings),
            "hyper": dict(self.spec.hyper),
            "options": asdict(self.spec.options),
            "config": asdict(self.config),
        }


def prepare(
    agent: str | MakeAgent,
    env: Any,
    seeds: Sequence[int] = (0,),
    hyper: Mapping[str, float] | None = None,
    options: Options | Mapping[str, Any] | None = None,
    env_settings: Mapping[str, Any] | None = None,
    schedule: Callable[[Any, Scalar], Any] = anneal,
    config: Mapping[str, Any] | None = None,
    preset: str | None = None,
) -> Job:
    """Fills in the defaults of `train`, and checks all arguments before anything runs.

    Raises:
      ValueError: if an argument is not valid.
    """
    config = config or {}
    check_kinds(hyper, options, env_settings)
    if not callable(agent):
        check_choice("agent", agent, ZOO)
    origin, environment = external_environment(env, env_settings, preset)
    is_atari = origin.kind == "atari"
    protocol = check_protocol(preset, is_atari)
    options = options_of(options, protocol["options"] if is_atari else CONTROL_OPTIONS)
    own = CONTROL
    if is_atari:
        own = {name: atari_hyper(name, origin.settings["pixel_scale"], options.form) for name in ZOO}
    spec = agent_spec(agent, hyper, options, own, schedule)
    check_agent(spec, spaces_of(environment))
    defaults: dict[str, Any] = {}
    if is_atari:
        defaults = {**protocol["config"]}
        counts = {name: config.get(name, defaults[name]) for name in ("num_envs", "num_chains")}
        for name, value in counts.items():
            check_count(name, value)
        defaults |= {"num_groups": most_groups(**counts)}
    else:
        num_steps = config.get("num_steps", CONTROL_CONFIG["num_steps"])
        num_steps = check_count("num_steps", num_steps)
        num_envs = config.get("num_envs", CONTROL_CONFIG["num_envs"])
        num_envs = check_count("num_envs", num_envs)
        own_config: Mapping[str, Any] = {} if callable(agent) else CONTROL_CONFIGS.get(agent, {})
        if environment.is_one_hot and not callable(agent):
            own_config = {**own_config, **ONE_HOT_CONFIGS.get(agent, {})}
        defaults = {
            **CONTROL_CONFIG,
            **own_config,
            "evaluation_period": max(num_envs, num_steps // NUM_EVALUATIONS),
            "max_evaluation_steps": environment.time_limit or STEPS_WITHOUT_LIMIT,
        }
    whole = config_of(ExternalConfig, defaults, config)
    if whole.learning_starts >= whole.num_steps:
        if "learning_starts" in config:
            raise ValueError(
                f"learning_starts must be below num_steps = {whole.num_steps}, all steps of a run, "
                f"got {whole.learning_starts}"
            )
        whole = replace(whole, learning_starts=whole.num_steps // 2)  # so that a short run also learns
    return Job(spec, origin, environment, seeds_of(seeds), whole)


def train_external(
    job: Job,
    folder: Path | None = None,
    report: Callable[[int, Mapping[str, Any]], None] = lambda seed, row: None,
    say: Callable[[str], None] = lambda text: None,
    tick: Callable[[int, int, float], None] = lambda seed, step, speed: None,
) -> Result:
    """Trains one run after the other; see `train`. For `tick` see `feelgood.training.external.train`."""
    spec, origin, environment, seeds, config = job
    label = label_of(spec, origin, identity(environment) if origin.kind == "own" else None)
    about = {"agent": spec.name, "environment": environment.name}
    random = external_random_return(environment, config.num_evaluation_episodes, config.max_evaluation_steps)
    steps = external_steps(environment, spec.make, config, spec.hyper, spec.schedule)
    rows, last, best = [], [], []

    def row(seed: int, point: Point) -> dict[str, Any]:
        return {**about, "seed": seed, **point.row(), "random_return": random}

    def report_point(seed: int, point: Point) -> None:
        report(seed, row(seed, point))

    for seed in seeds:
        outcome = train(
            environment,
            spec.make,
            config,
            spec.hyper,
            seed,
            schedule=spec.schedule,
            steps=steps,
            folder=None if folder is None else folder / f"seed-{seed}",
            label=label,
            report=partial(report_point, seed),
            tick=partial(tick, seed),
            say=say,
        )
        rows += [row(seed, point) for point in outcome.curve]
        training = {"seed": seed, **asdict(config)}
        last.append(spec.policy(outcome.agent, environment, origin, training))
        best.append(spec.policy(outcome.best, environment, origin, {**training, "step": outcome.best_step}))
    return Result(pd.DataFrame(rows), tuple(last), tuple(best))
