"""Training in one call: `feelgood.train("fg_ulmcdqn", "CartPole-v1")`.

Whatever is not said has a default that suits the kind of environment: the paper's protocol on Atari, the released
N-chain protocol inside XLA, and `CONTROL` for everything else.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import pandas as pd

from feelgood.agents import Options, anneal
from feelgood.api.defaults import ATARI_OPTIONS, CONTROL, CONTROL_OPTIONS, CONTROL_PROTOCOL
from feelgood.api.inside import train_inside
from feelgood.api.learner import Learner, MakeAgent, check_kinds, make_learner, options_of, seeds_of
from feelgood.api.outside import Job, carry_out, prepare, task_of
from feelgood.api.result import Result
from feelgood.checks import check_kind
from feelgood.envs import Environment
from feelgood.envs.external import Task
from feelgood.runs import store
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

Env = str | Task | Environment | Callable[[int, bool], Any]


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
      options: of an agent of the zoo, such as widths of layers and double targets: those that differ from the defaults
        for such an environment, as in `{"double": True}`; or a `feelgood.agents.Options`, which sets them all.
      env_settings: for `feelgood.envs.external.gym_task` or `atari`, where `env` is a name.
      schedule: `(hyper, progress) -> hyper`.
      folder: where to keep checkpoints, from which the same call goes on, and at the end the curve, for
        `feelgood.load_results`.
      report: called with a seed and each row of its curve as it is known.
      say: called with a sentence where something happens that the user should know.
      protocol: other fields of `feelgood.training.protocol.HostProtocol`, or of `feelgood.training.Protocol` for
        functional environments: batch_size, n_step, num_envs and so on.

    Raises:
      ValueError: if something is unknown or does not fit.
      Interrupted: after Ctrl-C; with a folder, the same call goes on.

    Example:
      >>> result = train("fg_ulmcdqn", "CartPole-v1", num_steps=50_000)  # doctest: +SKIP
      >>> result.plot()  # doctest: +SKIP
      >>> result.policy.evaluate(num_episodes=20).mean()  # doctest: +SKIP
    """
    seeds = seeds_of(seeds)
    check_kinds(env, hyper, options, env_settings)
    check_kind("folder", folder, (str, Path, NoneType), "a path")
    if num_steps is not None:
        protocol["num_steps"] = num_steps
    kept = None if folder is None else Path(folder)
    if isinstance(env, Environment):
        learner = make_learner(agent, hyper, options_of(options, {}), {}, schedule)
        work = lambda: train_inside(learner, env, seeds, protocol, kept, report, say)
    else:
        job = prepare(agent, env, seeds, hyper, options, env_settings, schedule, protocol)
        work = lambda: carry_out(job, kept, report, say)
    if kept is None:
        return work()
    with store.locked(kept):
        result = work()
        store.write_table(kept / "curves.parquet", _with_others(result.curve, kept / "curves.parquet"))
        return result


def _with_others(curve: pd.DataFrame, path: Path) -> pd.DataFrame:
    """A curve, and the rows of other seeds that a table holds already."""
    if not path.exists():
        return curve
    there = store.read_table(path)
    return pd.concat([there[~there["seed"].isin(curve["seed"])], curve], ignore_index=True)
