"""Runs of one batch in different environments of the same shape, such as bandits with different rewards."""

from collections.abc import Callable
from typing import Any, NamedTuple

from feelgood.agents import Agent, Spaces, constant
from feelgood.envs import Environment
from feelgood.training.config import FunctionalConfig
from feelgood.training.functional import Tally, Trainer, trainer
from feelgood.typing import Scalar


class Varied(NamedTuple):
    """Hyper-parameters of a varied trainer: settings of the environment, and hyper-parameters of the agent."""

    environment: Any
    agent: Any


def varied_trainer(
    environment_of: Callable[[Any], Environment],
    make_agent: Callable[[Spaces, Any], Agent],
    config: FunctionalConfig,
    schedule: Callable[[Any, Scalar], Any] = constant,
    tally: Tally | None = None,
) -> Trainer:
    """A `trainer` whose hyper-parameters are `Varied`, so that every run of a batch has its own environment.

    `environment_of` maps settings, a pytree of traced arrays, to the environment; its spec must not depend on them.
    """
    one = lambda hyper: trainer(environment_of(hyper.environment), make_agent, config, schedule, tally)
    return Trainer(
        init=lambda key, hyper: one(hyper).init(key, hyper.agent),
        evaluate=lambda key, run, hyper: one(hyper).evaluate(key, run, hyper.agent),
        advance=lambda run, hyper, chunk: one(hyper).advance(run, hyper.agent, chunk),
    )
