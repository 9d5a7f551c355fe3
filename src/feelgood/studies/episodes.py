"""Batches of functional runs with a budget of episodes, which end as soon as their results are known."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def episode_config(agent: str, most_steps: int, period: int):
    """The agent's training config with room for `most_steps`, in chunks of `period` steps."""
    from feelgood import agents
    from feelgood.training import FunctionalConfig

    settings: dict[str, Any] = {**agents.ZOO[agent].config}
    num_steps = -(-most_steps // period) * period
    return FunctionalConfig(num_steps=num_steps, evaluation_period=period, num_evaluation_episodes=1, **settings)


def records(agent: str, options: Any, batch: Any, config: Any) -> list[dict[str, Any]]:
    """A batch, its config and the agent's options as plain records, to hash everything that the runs depend on."""
    from feelgood import agents

    return [dataclasses.asdict(each) for each in (batch, config, agents.complete(agent, options))]


def run_tallied(
    name: str,
    digest: str,
    agent: str,
    hyper: Mapping[str, float],
    options: Any,
    variants: tuple[Callable[[Any], Any], Any],
    seeds: Sequence[int],
    config: Any,
    tally: Any,
    until: Callable[[Any], bool],
    progress: Any,
    checkpoint: Path | None,
) -> tuple[Any, float]:
    """Trains one run for each seed; returns their totals, and environment steps per second of all runs together.

    `variants` is a function that makes an environment from settings, and the settings of all runs; see
    `feelgood.training.varied_trainer` and `run_batch` for the others. The speed is measured after the first chunk,
    which compiles; NaN if there was no other.
    """
    import jax.numpy as jnp
    import numpy as np

    from feelgood import agents
    from feelgood.training import Varied, run_batch, varied_trainer

    environment_of, settings = variants
    make = lambda spaces, hyper: agents.make_agent(agent, spaces, hyper, options)
    points = {key: jnp.full(len(seeds), value, jnp.float32) for key, value in hyper.items()}
    times: list[tuple[int, float]] = []  # chunks and the clock after each of them

    def watch(moment: Any) -> None:
        times.append((moment.chunk, time.monotonic()))
        report(moment)

    with progress.task(name, config.num_chunks) as report:
        totals = run_batch(
            varied_trainer(environment_of, make, config, agents.anneal, tally),
            config.num_chunks,
            np.array(seeds),
            Varied(settings, points),
            label=f"{name} {digest}",
            path=checkpoint,
            report=watch,
            until=until,
        ).totals
    if len(times) < 2:
        return totals, float("nan")
    (first, began), (last, ended) = times[0], times[-1]
    return totals, (last - first) * config.evaluation_period * len(seeds) / max(ended - began, 1e-9)
