"""Training in one call: `feelgood.train("fg_ulmcdqn", "CartPole-v1")`.

Defaults depend on the kind of environment: a protocol of `feelgood.protocols` for Atari games, the released N-chain
protocol for functional environments, and `feelgood.protocols.CONTROL` for everything else.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import gymnasium
import pandas as pd

from feelgood.agents import Options, anneal
from feelgood.api.agent_spec import (
    FINGERPRINTS,
    AgentSpec,
    MakeAgent,
    agent_spec,
    check_function,
    check_kinds,
    options_of,
    seeds_of,
    settings_of,
)
from feelgood.api.external import Job, check_protocol, external_environment, prepare, train_external
from feelgood.api.functional import functional_config, train_functional
from feelgood.api.result import Result, merged, pair_name
from feelgood.checks import check_kind
from feelgood.envs import Environment
from feelgood.envs.external import ExternalEnvironment
from feelgood.runs import store
from feelgood.runs.progress import bar, follow
from feelgood.typing import Scalar

__all__ = [
    "AgentSpec",
    "Job",
    "Result",
    "external_environment",
    "merged",
    "pair_name",
    "prepare",
    "train",
    "train_external",
]

Env = str | ExternalEnvironment | Environment | gymnasium.Env | Callable[..., Any]


def train(
    agent: str | MakeAgent,
    env: Env,
    *,
    num_steps: int | None = None,
    seeds: int | Sequence[int] | None = None,
    seed: int | None = None,
    hyper: Mapping[str, float] | None = None,
    options: Options | Mapping[str, Any] | None = None,
    env_settings: Mapping[str, Any] | None = None,
    preset: str | None = None,
    schedule: Callable[[Any, Scalar], Any] = anneal,
    folder: str | Path | None = None,
    callback: Callable[[int, Mapping[str, Any]], None] = lambda seed, row: None,
    progress: bool = True,
    **config: Any,
) -> Result:
    """Trains an agent in an environment.

    Args:
      agent: a name of the zoo (`feelgood list agents`), or your own `(spaces, hyper) -> Agent`.
      env: a Gymnasium name such as "CartPole-v1"; an Atari game as in "atari:venture"; a functional environment, on
        which all seeds train at once; an `ExternalEnvironment`; a Gymnasium environment, its class, or a
        function without arguments that makes one; or your own function `(num_envs, training) -> VectorEnv`. See
        `feelgood.envs.conversion.as_external`.
      num_steps: environment steps in all.
      seeds: seeds of initialisation, noise, minibatches and environments; one run for each. 0 if not given.
      seed: one seed; the same as `seeds` with one number.
      hyper: hyper-parameters that differ from the defaults.
      options: options of an agent of the zoo that differ from the defaults, such as `{"double": True}`; or a
        `feelgood.agents.Options`, which sets them all.
      env_settings: keyword arguments of `feelgood.envs.external.gym_environment` or `atari`, if `env` is a name.
      preset: protocol of an Atari game, see `feelgood.protocols`: "prioritized", which is the default,
        "paper" or "dopamine". The arguments above and `config` replace its settings one by one.
      schedule: `(hyper, progress) -> hyper`.
      folder: folder for checkpoints, from which the same call continues, and for the final curve, which
        `feelgood.load_results` reads.
      callback: called with a seed and each row of its curve; a run that continues starts with the rows that it has.
      progress: whether to show progress and messages on standard error.
      config: other fields of `feelgood.training.ExternalConfig`, or of `feelgood.training.FunctionalConfig` for
        functional environments: batch_size, n_step, num_envs and so on.

    Raises:
      ValueError: if an argument is not valid.
      Interrupted: after Ctrl-C; with a folder, the same call continues the run. On external environments its
        attribute `so_far` is the result at this time.

    Examples:
      >>> result = train("fg_ulmcdqn", "CartPole-v1", num_steps=50_000)  # doctest: +SKIP
      >>> result.plot()  # doctest: +SKIP
      >>> result.policy.evaluate(num_episodes=20).mean()  # doctest: +SKIP
    """
    if seeds is not None and seed is not None:
        raise ValueError(f"seed and seeds mean the same; give one of them, got {seed!r} and {seeds!r}")
    numbers = seeds_of(next((given for given in (seeds, seed) if given is not None), 0))
    check_kinds(hyper, options, env_settings)
    check_kind("folder", folder, (str, Path, NoneType), "a path")
    for name, function, call in (("callback", callback, "(seed, row)"), ("schedule", schedule, "(hyper, progress)")):
        check_function(name, function, call)
    if num_steps is not None:
        config["num_steps"] = num_steps
    kept = None if folder is None else Path(folder)
    if kept is not None and kept.exists() and not kept.is_dir():
        raise ValueError(f"folder must be a folder or a new name, got the file {folder}")
    if isinstance(env, Environment):
        check_protocol(preset, is_atari=False)
        if env_settings:
            raise ValueError(f"env_settings must be empty unless env is a name, got {dict(env_settings)!r}")
        spec = agent_spec(agent, hyper, options_of(options, {}), schedule)
        whole = functional_config(spec, config, env.spec.is_one_hot)
        name, budget = f"{env.spec.name} {spec.name}", whole.num_steps
        settings = settings_of(spec, env.spec.name, whole, own=env)
        work = lambda report, tick, say: train_functional(spec, env, numbers, whole, kept, report, say)
    else:
        job = prepare(agent, env, numbers, hyper, options, env_settings, schedule, config, preset)
        spec, origin, environment, _, external = job
        name, budget = f"{environment.name} {spec.name}", external.num_steps
        own = environment if origin.kind == "own" else None
        settings = settings_of(spec, environment.name, external, own, origin.settings)
        work = lambda report, tick, say: train_external(job, kept, report, say, tick)

    def shown() -> Result:
        if not progress:
            return work(callback, lambda *news: None, lambda text: None)
        together = isinstance(env, Environment)
        with bar(stderr=True) as display, follow(display, name, numbers, budget, together) as (report, tick):

            def both(seed: int, row: Mapping[str, Any]) -> None:
                report(seed, row)
                callback(seed, row)

            return work(both, tick, lambda text: print(text, file=sys.stderr))

    if kept is None:
        return shown()
    with store.locked(kept):
        if (kept / "manifest.json").exists():
            study = store.read_study(kept)["study"]
            raise ValueError(f"folder {kept} holds results of the command line ({study}); choose another folder")
        _check_same_runs(kept, settings)
        result, file = shown(), kept / "curves.parquet"
        table = result.curve
        if file.exists():  # keep the rows of other seeds
            there = store.read_table(file)
            table = pd.concat([there[~there["seed"].isin(table["seed"])], table], ignore_index=True)
        store.write_table(file, table, {"settings": settings})
        return result


def _check_same_runs(folder: Path, settings: Mapping[str, Any]) -> None:
    """Requires that a folder has no runs with other settings; its table holds theirs."""
    if not (folder / "curves.parquet").exists():
        return
    there = store.read_with_facts(folder / "curves.parquet")[1].get("settings", {})
    for name, given in json.loads(json.dumps(settings, default=str)).items():
        found = there.get(name, given)
        if isinstance(given, dict):
            name = next((key for key in {**found, **given} if found.get(key) != given.get(key)), name)
            found, given = (values.get(name) for values in (found, given))
        if found != given:
            how = f"{name} is {found!r} there, not {given!r}" if name not in FINGERPRINTS else f"{name} differs"
            raise ValueError(f"folder {folder} belongs to another run: {how}; choose another folder")
