"""Training on functional environments: all seeds at once, spread over the devices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from feelgood.agents import ZOO
from feelgood.api.agent_spec import AgentSpec, check_agent, config_of, label_of
from feelgood.api.result import Result
from feelgood.checks import check_count, check_multiple
from feelgood.envs import Environment
from feelgood.envs.conversion import functional_as_external
from feelgood.envs.rules import random_return
from feelgood.protocols import NUM_EVALUATIONS
from feelgood.runs.identity import identity
from feelgood.training.batch import Curves, run_batch
from feelgood.training.functional import FunctionalConfig, Record, functional_spaces, trainer
from feelgood.training.policy import Origin


def functional_config(spec: AgentSpec, given: Mapping[str, Any], is_one_hot: bool) -> FunctionalConfig:
    """The settings of a run: those given, and the defaults of the agent, which may depend on the observations.

    If no evaluation period is given and the default one does not divide the budget, there are about 25 evaluations.
    """
    defaults = ZOO[spec.name].functional_config(is_one_hot) if spec.name in ZOO else {"replay_ratio": 1.0}
    num_steps = check_count("num_steps", given.get("num_steps", FunctionalConfig.num_steps))
    frequency = check_count("train_frequency", given.get("train_frequency", FunctionalConfig.train_frequency))
    if "evaluation_period" not in given and num_steps % FunctionalConfig.evaluation_period:
        check_multiple("num_steps", num_steps, "train_frequency", frequency)
        periods = [n for n in range(frequency, num_steps + 1, frequency) if num_steps % n == 0]
        defaults["evaluation_period"] = min(periods, key=lambda n: abs(n - num_steps / NUM_EVALUATIONS))
    config = config_of(FunctionalConfig, defaults, given)
    if "learning_starts" in given and config.learning_starts > config.num_steps:
        most = f"num_steps = {config.num_steps}"
        raise ValueError(f"learning_starts must be at most {most}, got {config.learning_starts}")
    return config


def train_functional(
    spec: AgentSpec,
    environment: Environment,
    seeds: Sequence[int],
    config: FunctionalConfig,
    folder: Path | None,
    report: Callable[[int, Mapping[str, Any]], None],
    say: Callable[[str], None],
) -> Result:
    """Trains all seeds at once."""
    name = environment.spec.name
    check_agent(spec, functional_spaces(environment))
    external, origin = functional_as_external(environment), Origin("own", name)
    trains = trainer(environment, spec.make, config, spec.schedule)
    about, random = {"agent": spec.name, "environment": name}, random_return(environment)
    rows: list[list[dict[str, Any]]] = [[] for _ in seeds]

    def report_rows(curves: Curves, num_chunks: int) -> None:
        """Reports the rows that are new."""
        for chunk in range(len(rows[0]), num_chunks + 1):
            for i, seed in enumerate(seeds):
                where = {**about, "seed": seed, "step": chunk * config.evaluation_period}
                rows[i].append({**where, **_evaluation(curves, i, chunk), "random_return": random})
                report(seed, rows[i][-1])

    path = None if folder is None else folder / "runs.checkpoint"
    if path is not None and path.exists():
        say(f"continuing from {path}")
    curves = run_batch(
        trains,
        config.num_chunks,
        np.asarray(seeds),
        {name: jnp.full(len(seeds), value, jnp.float32) for name, value in spec.hyper.items()},
        label=label_of(spec, config, identity(environment)),
        path=path,
        keep_last=True,
        report=lambda progress: report_rows(progress.curves, progress.chunk),
    )
    report_rows(curves, config.num_chunks)
    one_of = lambda i: jax.tree.map(lambda leaf: leaf[i], curves.agents)
    training = asdict(config)
    policies = tuple(spec.policy(one_of(i), external, origin, {"seed": s, **training}) for i, s in enumerate(seeds))
    return Result(pd.DataFrame([row for of_seed in rows for row in of_seed]), policies)


def _evaluation(curves: Curves, run: int, chunk: int) -> dict[str, Any]:
    """The measurements of a run after `chunk` evaluation periods."""
    if chunk == 0:
        before = {"training_return": np.nan, "num_episodes": 0, "potential": np.nan}
        return {"return": curves.initial[run].item(), **before, "finite": True}
    record: Record = jax.tree.map(lambda values: values[run, chunk - 1].item(), curves.record)
    return {
        "return": record.evaluation if record.is_finite else np.nan,  # argmax returns an action even for NaN
        "training_return": record.training_return / record.num_episodes if record.num_episodes else np.nan,
        "num_episodes": record.num_episodes,
        "potential": record.potential,
        "finite": record.is_finite,
    }
