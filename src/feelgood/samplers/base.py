"""What a sampler is, and how first-order ones are built.

A sampler moves a pytree of parameters so that, after many steps, it is distributed as exp(−β·U), for a potential
`U: params -> scalar` and an inverse temperature β. It is a record of pure functions and holds no state of its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood.checks import check_count
from feelgood.typing import Array, Params, Potential, PRNGKey

__all__ = ["Info", "Sampler", "SamplerState", "from_optax", "sample", "to_optax"]


class SamplerState(NamedTuple):
    """Where a sampler stands: the parameters, and whatever else it carries from step to step (momentum, moments)."""

    params: Params
    memory: Any = ()


class Info(NamedTuple):
    """What one step tells, the same record for every sampler.

    Attributes:
      potential: U where the step first evaluated it; NaN for samplers that do not look at U.
      acceptance: probability with which the last proposal was accepted; 1 for samplers that never reject.
      num_gradients: gradients of U evaluated in this step.
      num_rejections: proposals rejected in this step.
    """

    potential: Array
    acceptance: Array
    num_gradients: Array
    num_rejections: Array


class Sampler(NamedTuple):
    """A sampler as two pure functions.

    Attributes:
      init: `params -> state`.
      step: `(key, state, potential) -> (state, info)`. The potential is an argument, so it may change from step to
        step (another minibatch, a new target network); nothing of it is cached in the state.
      transform: the same sampler as an Optax gradient transformation, where it needs only one gradient at the
        current parameters; None where it must evaluate the potential elsewhere. See `to_optax`.
    """

    init: Callable[[Params], SamplerState]
    step: Callable[[PRNGKey, SamplerState, Any], tuple[SamplerState, Info]]
    transform: optax.GradientTransformationExtraArgs | None = None


def info(potential=jnp.nan, *, acceptance=1.0, num_gradients=1, num_rejections=0) -> Info:
    """Builds an `Info` whose leaves have the same types for every sampler."""
    return Info(
        jnp.asarray(potential),
        jnp.asarray(acceptance, jnp.float32),
        jnp.asarray(num_gradients, jnp.int32),
        jnp.asarray(num_rejections, jnp.int32),
    )


def from_optax(transform: optax.GradientTransformation) -> Sampler:
    """Turns an Optax gradient transformation into a sampler.

    A plain optimiser is the case β = ∞: it adds no noise. A transformation whose `update` takes a `key` (as those of
    this package do) is a sampler proper. Optimisers that evaluate the loss again, such as `optax.lbfgs`, find `value`,
    `grad` and `value_fn` among their arguments.

    Example:
      >>> import jax, optax
      >>> sampler = from_optax(optax.adam(0.1))
      >>> state = sampler.init(jax.numpy.ones(3))
      >>> state, info = sampler.step(jax.random.key(0), state, lambda w: (w**2).sum())
      >>> float(info.potential)
      3.0
    """
    transform = optax.with_extra_args_support(transform)

    def init(params: Params) -> SamplerState:
        return SamplerState(params, transform.init(params))

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        value, gradient = jax.value_and_grad(potential)(state.params)
        # Optax hands its line searches' `value_fn` every argument that they do not know, so here the key.
        again = lambda params, key=None: potential(params)
        updates, memory = transform.update(
            gradient, state.memory, state.params, key=key, value=value, grad=gradient, value_fn=again
        )
        return SamplerState(optax.apply_updates(state.params, updates), memory), info(value)

    return Sampler(init, step, transform)


def first_order(init: Callable, update: Callable) -> Sampler:
    """Builds a sampler from `init(params) -> memory` and `update(gradient, memory, params, *, key, **extra)`.

    The update returns an increment and the new memory, as in Optax. Both keep the dtypes of the parameters and of the
    old memory, whatever the hyper-parameters' are, so that a chain can be scanned.
    """

    def keep_dtypes(new, old):
        return jax.tree.map(lambda n, o: jnp.asarray(n, o.dtype), new, old)

    def typed_update(gradient, memory, params=None, **extra):
        if params is None:
            raise ValueError("update of a sampler needs the parameters, as in update(gradient, state, params, key=key)")
        increment, new_memory = update(gradient, memory, params, **extra)
        return keep_dtypes(increment, params), keep_dtypes(new_memory, memory)

    return from_optax(optax.GradientTransformationExtraArgs(init, typed_update))


def to_optax(sampler: Sampler) -> optax.GradientTransformationExtraArgs:
    """Hands out a first-order sampler as an Optax gradient transformation, for use in your own loop.

    Its `update` needs the parameters and, by name, a key: `update(gradient, state, params, key=key)`. It chains with
    other transformations like any optimiser.

    Raises:
      TypeError: for samplers that evaluate the potential at other points than the current one (`mala`, `hmc`,
        `proximal`) or that do not use gradients at all (`exact_gaussian`, `exact_feel_good`).
    """
    if sampler.transform is None:
        raise TypeError(
            "this sampler cannot be an Optax transformation, as it needs more than one gradient at the current "
            "parameters; call its step(key, state, potential) instead"
        )
    return sampler.transform


def sample(
    key: PRNGKey,
    sampler: Sampler,
    potential: Potential,
    params: Params,
    num_steps: int,
    *,
    thin: int = 1,
) -> tuple[Params, Info]:
    """Runs one chain and returns what it visits.

    For several chains, `jax.vmap` this function over keys (and over `params` for different starts).

    Args:
      key: randomness of the whole chain.
      sampler: any sampler of this package.
      potential: U, held fixed along the chain.
      params: where the chain starts.
      num_steps: steps taken in all.
      thin: keep every `thin`-th position only.

    Returns:
      The positions after steps thin, 2·thin, …, stacked along a new leading axis of `num_steps // thin`; and the info
      records of the same steps, stacked likewise.
    """
    check_count("num_steps", num_steps)
    check_count("thin", thin)

    def advance(state: SamplerState, key: PRNGKey):
        return sampler.step(key, state, potential)

    def keep(state: SamplerState, keys):
        state, infos = jax.lax.scan(advance, state, keys)
        return state, (state.params, jax.tree.map(lambda leaf: leaf[-1], infos))

    keys = jax.random.split(key, (num_steps // thin, thin))
    return jax.lax.scan(keep, sampler.init(params), keys)[1]
