"""Training in one call: `feelgood.train("fg_ulmcdqn", "CartPole-v1")`.

Defaults depend on the kind of environment: the paper's protocol for Atari games, the released N-chain protocol for
functional environments, and `CONTROL` for everything else.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import pandas as pd

from feelgood.agents import Options, anneal
from feelgood.api.agent_spec import AgentSpec, MakeAgent, agent_spec, check_kinds, options_of, seeds_of
from feelgood.api.defaults import ATARI_OPTIONS, CONTROL, CONTROL_CONFIG, CONTROL_OPTIONS
from feelgood.api.external import Job, external_environment, prepare, train_external
from feelgood.api.functional import train_functional
from feelgood.api.result import Result
from feelgood.checks import check_kind
from feelgood.envs import Environment
from feelgood.envs.external import ExternalEnvironment
from feelgood.runs import store
from feelgood.typing import Scalar

__all__ = [
    "ATARI_OPTIONS",
    "CONTROL",
    "CONTROL_CONFIG",
    "CONTROL_OPTIONS",
    "AgentSpec",
    "Job",
    "Result",
    "external_environment",
    "prepare",
    "train",
    "train_external",
]

Env = str | ExternalEnvironment | Environment | Callable[[int, bool], Any]


def train(
    agent: str | MakeAgent,
    env: Env,
    *,
    num_steps: int | None = None,
    seeds: int | Sequence[int] = 0,
    hyper: Mapping[str, float] | None = None,
    options: Options | Mapping[str, Any] | None = None,
    env_settings: Mapping[str, Any] | None = None,
    schedule: Callable[[Any, Scalar], Any] = anneal,
    folder: str | Path | None = None,
    report: Callable[[int, Mapping[str, Any]], None] = lambda seed, row: None,
    say: Callable[[str], None] = lambda text: None,
    **config: Any,
) -> Result:
    """Trains an agent in an environment.

    Args:
      agent: a name of the zoo (`feelgood list agents`), or your own `(spaces, hyper) -> Agent`.
      env: a Gymnasium name such as "CartPole-v1"; an Atari game as in "atari:venture"; a functional environment, which
        trains inside XLA, all seeds at once; an `ExternalEnvironment`; or your own function
        `(num_envs, training) -> VectorEnv`, see `feelgood.envs.external.vector_environment`.
      num_steps: environment steps in all.
      seeds: seeds of initialisation, noise, minibatches and environments; one run for each.
      hyper: hyper-parameters that differ from the defaults.
      options: options of an agent of the zoo that differ from the defaults, such as `{"double": True}`; or a
        `feelgood.agents.Options`, which sets them all.
      env_settings: keyword arguments of `feelgood.envs.external.gym_environment` or `atari`, if `env` is a name.
      schedule: `(hyper, progress) -> hyper`.
      folder: folder for checkpoints, from which the same call continues, and for the final curve, which
        `feelgood.load_results` reads.
      report: called with a seed and each new row of its curve.
      say: called with messages to the user.
      config: other fields of `feelgood.training.ExternalConfig`, or of `feelgood.training.FunctionalConfig` for
        functional environments: batch_size, n_step, num_envs and so on.

    Raises:
      ValueError: if an argument is not valid.
      Interrupted: after Ctrl-C; with a folder, the same call continues the run.

    Example:
      >>> result = train("fg_ulmcdqn", "CartPole-v1", num_steps=50_000)  # doctest: +SKIP
      >>> result.plot()  # doctest: +SKIP
      >>> result.policy.evaluate(num_episodes=20).mean()  # doctest: +SKIP
    """
    seeds = seeds_of(seeds)
    check_kinds(env, hyper, options, env_settings)
    check_kind("folder", folder, (str, Path, NoneType), "a path")
    if num_steps is not None:
        config["num_steps"] = num_steps
    kept = None if folder is None else Path(folder)
    if isinstance(env, Environment):
        spec = agent_spec(agent, hyper, options_of(options, {}), {}, schedule)
        work = lambda: train_functional(spec, env, seeds, config, kept, report, say)
    else:
        job = prepare(agent, env, seeds, hyper, options, env_settings, schedule, config)
        work = lambda: train_external(job, kept, report, say)
    if kept is None:
        return work()
    with store.locked(kept):
        if (kept / "manifest.json").exists():
            study = store.read_study(kept)["study"]
            raise ValueError(f"folder {kept} holds results of the command line ({study}); choose another folder")
        result = work()
        store.write_table(kept / "curves.parquet", _with_others(result.curve, kept / "curves.parquet"))
        return result


def _with_others(curve: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A curve together with the rows of other seeds in an existing table."""
    if not path.exists():
        return curve
    there = store.read_table(path)
    return pd.concat([there[~there["seed"].isin(curve["seed"])], curve], ignore_index=True)
