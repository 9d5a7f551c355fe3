"""Batches of functional runs with a budget of episodes, which end as soon as their results are known."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feelgood.checks import check_count
from feelgood.pairs import read_numbers, read_values
from feelgood.studies.options import SeedOptions, check_agents, grouped, read_options


@dataclass(frozen=True)
class ChosenAgent:
    """An agent of the zoo and the settings that differ from its defaults, as words; see `EpisodeOptions`."""

    name: str
    hyper: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    config: tuple[str, ...] = ()

    def spec(self):
        """The agent as `feelgood.train` makes it."""
        from feelgood import agents
        from feelgood.api.agent_spec import agent_spec, options_of

        options = options_of(read_options(self.options), {})
        return agent_spec(self.name, read_numbers("hyper", self.hyper), options, agents.anneal)

    def training(self, most_steps: int, period: int, is_one_hot: bool):
        """The config of its training, with room for `most_steps`, in chunks of `period` steps or little more."""
        from feelgood.api.functional import functional_config
        from feelgood.training import FunctionalConfig

        given = read_values("config", self.config)
        frequency = check_count("train_frequency", given.get("train_frequency", FunctionalConfig.train_frequency))
        period = -(-period // frequency) * frequency
        chunks = {"num_steps": -(-most_steps // period) * period, "evaluation_period": period}
        if taken := {*given} & {*chunks, "num_evaluation_episodes"}:
            raise ValueError(f"config must not have {min(taken)!r}, which the study sets")
        return functional_config(self.spec(), {**given, **chunks, "num_evaluation_episodes": 1}, is_one_hot)

    def digest(self, config: Any, *facts: Any) -> str:
        """A hash of everything that runs of this agent depend on; `facts` are plain records."""
        from feelgood.runs.store import fingerprint

        spec = self.spec()
        return fingerprint(self.name, dict(spec.hyper), vars(spec.options), dataclasses.asdict(config), *facts)


@dataclass(frozen=True, kw_only=True)
class EpisodeOptions(SeedOptions):
    """Options of studies with an option `agents` that train each of them for a number of episodes."""

    hyper: tuple[str, ...] = grouped("agent and training", ())
    """Hyper-parameters of all agents that differ from their defaults, as in step_size=1e-3 final_epsilon=0.05."""
    options: tuple[str, ...] = grouped("agent and training", ())
    """Options of all agents that differ from their defaults, as in network=mlp num_members=10; the names are those of
    `feelgood.agents.Options`."""
    config: tuple[str, ...] = grouped("agent and training", ())
    """Training settings that differ from the agents', as in batch_size=128 target_update_period=4; the names are those
    of `FunctionalConfig`."""

    def chosen(self, agent: str) -> ChosenAgent:
        """One of the agents, with the settings of the study."""
        return ChosenAgent(agent, self.hyper, self.options, self.config)

    def check_agents(self) -> None:
        """Requires agents of the zoo, and settings that each of them has."""
        names: Sequence[str] = vars(self)["agents"]
        check_agents(names)
        for name in names:
            self.chosen(name).training(1000, 10, is_one_hot=False)


def run_tallied(
    name: str,
    digest: str,
    spec: Any,
    variants: tuple[Callable[[Any], Any], Any],
    seeds: Sequence[int],
    config: Any,
    tally: Any,
    until: Callable[[Any], bool],
    progress: Any,
    checkpoint: Path | None,
) -> tuple[Any, float]:
    """Trains one run for each seed; returns their totals, and environment steps per second of all runs together.

    `spec` is the agent. `variants` is a function that makes an environment from settings, and the settings of all runs;
    see `varied_trainer` and `run_batch` for the others. The speed is NaN if only the first chunk ran, which compiles.
    """
    import jax.numpy as jnp
    import numpy as np

    from feelgood.training import Varied, run_batch, varied_trainer

    environment_of, settings = variants
    points = {key: jnp.full(len(seeds), value, jnp.float32) for key, value in spec.hyper.items()}
    times: list[tuple[int, float]] = []  # chunks and the clock after each of them

    def watch(moment: Any) -> None:
        times.append((moment.chunk, time.monotonic()))
        report(moment)

    one, varied = varied_trainer(environment_of, spec.make, config, spec.schedule, tally), Varied(settings, points)
    where: dict[str, Any] = {"label": f"{name} {digest}", "path": checkpoint}
    with progress.task(name, config.num_chunks) as report:
        batch = run_batch(one, config.num_chunks, np.array(seeds), varied, report=watch, until=until, **where)
    if len(times) < 2:
        return batch.totals, float("nan")
    (first, began), (last, ended) = times[0], times[-1]
    return batch.totals, (last - first) * config.evaluation_period * len(seeds) / max(ended - began, 1e-9)
