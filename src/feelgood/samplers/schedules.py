"""A step size that changes along the chain."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar, cast

import jax.numpy as jnp
import optax

from feelgood.samplers.base import Info, Sampler, SamplerState, to_optax
from feelgood.typing import Array, Params, Potential, PRNGKey, Scalar

Schedule: TypeAlias = Callable[[Array], Any]
"""`number of steps taken -> step size`, as Optax's schedules are."""

if TYPE_CHECKING:
    StepSize: TypeAlias = Any  # a factory's body has a number; only its callers may pass a schedule
else:
    StepSize = Scalar | Schedule
"""A number, or a schedule."""

Factory = TypeVar("Factory", bound=Callable[..., Sampler])


class ScheduledState(NamedTuple):
    """The number of steps taken, and the memory of the sampler that is scheduled."""

    num_steps: Array
    memory: Any


def schedulable(factory: Factory) -> Factory:
    """Allows the first argument of a factory, `step_size`, to be a schedule: a function of the number of steps taken.

    The sampler of each step is the factory's at that step's size, so its memory must not depend on the size.
    """

    @functools.wraps(factory)
    def make(step_size, *args, **settings):
        if callable(step_size):
            return _scheduled(lambda size: factory(size, *args, **settings), step_size)
        return factory(step_size, *args, **settings)

    return cast(Factory, make)


def _scheduled(make: Callable[[Any], Sampler], schedule: Callable[[Array], Any]) -> Sampler:
    any_size = make(1.0)  # checks the other arguments, too

    def init(params: Params) -> SamplerState:
        state = any_size.init(params)
        return SamplerState(state.params, ScheduledState(jnp.zeros((), jnp.int32), state.memory))

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        num_steps, memory = state.memory
        new, info = make(schedule(num_steps)).step(key, SamplerState(state.params, memory), potential)
        return SamplerState(new.params, ScheduledState(optax.safe_increment(num_steps), new.memory)), info

    if any_size.transform is None:
        return Sampler(init, step)

    def update(gradient, state: ScheduledState, params=None, **extra):
        transform = to_optax(make(schedule(state.num_steps)))
        updates, memory = transform.update(gradient, state.memory, params, **extra)
        return updates, ScheduledState(optax.safe_increment(state.num_steps), memory)

    return Sampler(init, step, optax.GradientTransformationExtraArgs(lambda params: init(params).memory, update))
