"""Training inside XLA: all runs at once, spread over the devices."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from feelgood.agents import ZOO
from feelgood.api.learner import Learner, label_of, protocol_of
from feelgood.api.result import Result
from feelgood.envs import Environment
from feelgood.envs.external import functional_task
from feelgood.runs.identity import in_words
from feelgood.training.batch import Curves, run_batch
from feelgood.training.ingraph import Protocol, Record, trainer
from feelgood.training.policy import Origin

__all__ = ["train_inside"]


def train_inside(
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
    protocol = protocol_of(Protocol, {"num_updates": num_updates}, given)
    name = environment.spec.name
    rows: list[list[dict[str, Any]]] = [[] for _ in seeds]

    def tell(curves: Curves, num_chunks: int) -> None:
        """Rows that are known and have not been told."""
        for chunk in range(len(rows[0]), num_chunks + 1):
            for i, seed in enumerate(seeds):
                where = {"agent": learner.name, "environment": name, "seed": seed}
                step = chunk * protocol.evaluation_period
                rows[i].append({**where, "step": step, **_evaluation(curves, i, chunk)})
                report(seed, rows[i][-1])

    task, origin = functional_task(environment), Origin("own", name)
    path = None if folder is None else folder / "runs.checkpoint"
    if path is not None and path.exists():
        say(f"continuing from {path}")
    curves = run_batch(
        trainer(environment, learner.make, protocol, learner.schedule),
        protocol.num_chunks,
        np.asarray(seeds),
        {name: jnp.full(len(seeds), value, jnp.float32) for name, value in learner.hyper.items()},
        label=label_of(learner, protocol, in_words(environment)),
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
        "return": record.evaluation if record.is_finite else np.nan,  # NaN has no best action, but argmax gives one
        "training_return": record.training_return / record.num_episodes if record.num_episodes else np.nan,
        "num_episodes": record.num_episodes,
        "potential": record.potential,
        "finite": record.is_finite,
    }
