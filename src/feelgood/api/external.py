"""Training on external environments, one seed after the other."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import pandas as pd

from feelgood.agents import ZOO, Options, anneal, atari_hyper, control_hyper
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
from feelgood.api.result import Result
from feelgood.checks import check_choice, check_count
from feelgood.envs.conversion import as_external
from feelgood.envs.external import ExternalEnvironment
from feelgood.envs.rules import check_playable
from feelgood.protocols import ATARI, CONTROL, DEFAULT_PRESET, NUM_EVALUATIONS
from feelgood.runs.identity import identity
from feelgood.signals import Interrupted
from feelgood.training.acting import spaces_of
from feelgood.training.config import ExternalConfig, most_groups
from feelgood.training.evaluation import external_random_return
from feelgood.training.external import train
from feelgood.training.external_run import Outcome
from feelgood.training.external_steps import external_steps
from feelgood.training.policy import Origin, Policy, make_environment
from feelgood.typing import Scalar


def check_protocol(preset: str | None, is_atari: bool) -> Mapping[str, Any]:
    """Returns the protocol of an environment. Only Atari games have presets; the default is the recommended one."""
    if is_atari:
        check_choice("preset", preset or DEFAULT_PRESET, ATARI)
        return ATARI[preset or DEFAULT_PRESET]
    if preset is not None:
        raise ValueError(f"preset must be left out unless env is an Atari game such as atari:venture, got {preset!r}")
    return CONTROL


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
    """Runs on an external environment with all settings filled in, one for each seed, for `train_external`."""

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
    """Fills in the defaults of `train`, and checks all arguments before anything runs."""
    config = config or {}
    check_kinds(hyper, options, env_settings)
    if not callable(agent):
        check_choice("agent", agent, ZOO)
    origin, environment = external_environment(env, env_settings, preset)
    is_atari = origin.kind == "atari"
    protocol = check_protocol(preset, is_atari)
    options = options_of(options, protocol["options"])
    on_atari = lambda name: atari_hyper(name, origin.settings["pixel_scale"], options.form)
    spec = agent_spec(agent, hyper, options, schedule, on_atari if is_atari else control_hyper)
    check_agent(spec, spaces_of(environment))
    base = protocol["config"]
    if is_atari:  # as many groups as the environments allow
        counts = {name: check_count(name, config.get(name, base[name])) for name in ("num_envs", "num_chains")}
        own = {**base, "num_groups": most_groups(**counts)}
    else:
        own = _control_config(base, config, spec.name, environment)
    whole = config_of(ExternalConfig, own, config)
    if whole.learning_starts >= whole.num_steps:
        if "learning_starts" in config:
            least = f"num_steps = {whole.num_steps}, all steps of a run"
            raise ValueError(f"learning_starts must be below {least}, got {whole.learning_starts}")
        whole = replace(whole, learning_starts=whole.num_steps // 2)  # so that a short run also learns
    return Job(spec, origin, environment, seeds_of(seeds), whole)


def _control_config(
    defaults: Mapping[str, Any], given: Mapping[str, Any], agent: str, environment: ExternalEnvironment
) -> dict[str, Any]:
    """The defaults with the agent's own settings, and evaluations that suit the budget and the time limit."""
    num_steps, num_envs = (check_count(name, given.get(name, defaults[name])) for name in ("num_steps", "num_envs"))
    recipe = ZOO.get(agent)  # your own agent has none
    own = recipe.control_config if recipe else {}
    one_hot = recipe.one_hot_config if recipe and environment.is_one_hot else {}
    period, limit = max(num_envs, num_steps // NUM_EVALUATIONS), environment.time_limit
    evaluation = {"evaluation_period": period, "max_evaluation_steps": limit or defaults["max_evaluation_steps"]}
    return {**defaults, **own, **one_hot, **evaluation}


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
    rows: list[dict[str, Any]] = []
    last: list[Policy] = []
    best: list[Policy] = []
    row = lambda seed, point: {**about, "seed": seed, **point.row(), "random_return": random}
    report_point = lambda seed, point: report(seed, row(seed, point))

    def take(seed: int, outcome: Outcome) -> None:
        rows.extend(row(seed, point) for point in outcome.curve)
        training = {"seed": seed, **asdict(config)}
        last.append(spec.policy(outcome.agent, environment, origin, {**training, "step": outcome.step}))
        best.append(spec.policy(outcome.best, environment, origin, {**training, "step": outcome.best_step}))

    def result() -> Result:
        columns = None if rows else [*about, "seed", "step", "return", "random_return"]
        return Result(pd.DataFrame(rows, columns=columns), tuple(last), tuple(best))

    for seed in seeds:
        try:
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
        except KeyboardInterrupt as stop:  # not only in the loop of a run, but also while it begins or ends
            if isinstance(stop, Interrupted):
                take(seed, stop.so_far)
            raise Interrupted(result()) from None
        take(seed, outcome)
    return result()
