"""The record of a sampler, and how first-order samplers are built.

A sampler moves a pytree of parameters so that, after many steps, it is distributed as exp(−β·U), for a potential
`U: params -> scalar` and an inverse temperature β. It is a record of pure functions and holds no state of its own.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from feelgood.checks import check_count, check_kind
from feelgood.typing import Array, Params, Potential, PRNGKey


class SamplerState(NamedTuple):
    """The state of a chain: the parameters, and the sampler's memory between steps (momentum, moments)."""

    params: Params
    memory: Any = ()


class Info(NamedTuple):
    """The record of one step, the same for every sampler.

    Attributes:
      potential: U at the point where the step first evaluated it; NaN for samplers that do not evaluate U.
      acceptance: probability with which the last proposal was accepted; 1 for samplers that never reject.
      num_gradients: gradients of U evaluated in this step.
      num_rejections: proposals rejected in this step.
      diverged: whether the step size was too large: the new parameters are not finite, or, in `mala` and `hmc`, the
        log of the acceptance ratio is below −1000 or not a number.
      gave_up: whether `proximal` reached its cap of rejections, so that this step was not exact.
    """

    potential: Array
    acceptance: Array
    num_gradients: Array
    num_rejections: Array
    diverged: Array | np.ndarray = np.zeros((), bool)
    gave_up: Array | np.ndarray = np.zeros((), bool)


class Sampler(NamedTuple):
    """A sampler as two pure functions.

    Attributes:
      init: `params -> state`.
      step: `(key, state, potential) -> (state, info)`. The potential is an argument, so it may change from step to
        step (another minibatch, a new target network); nothing of it is cached in the state.
      transform: the same sampler as an Optax gradient transformation, if it needs only one gradient at the current
        parameters; None if it must evaluate the potential elsewhere. See `to_optax`.
      fixed: `potential -> Sampler`, the same sampler for a potential that never changes, if it then needs fewer
        gradients because the state keeps U and its gradient. `sample` uses it. None if it would save nothing.
    """

    init: Callable[[Params], SamplerState]
    step: Callable[[PRNGKey, SamplerState, Any], tuple[SamplerState, Info]]
    transform: optax.GradientTransformationExtraArgs | None = None
    fixed: Callable[[Potential], "Sampler"] | None = None


def info(
    potential=jnp.nan, *, acceptance=1.0, num_gradients=1, num_rejections=0, diverged=False, gave_up=False
) -> Info:
    """Builds an `Info` whose leaves have the same types for every sampler."""
    return Info(
        widen(jnp.asarray(potential)),
        jnp.asarray(acceptance, jnp.float32),
        jnp.asarray(num_gradients, jnp.int32),
        jnp.asarray(num_rejections, jnp.int32),
        jnp.asarray(diverged, bool),
        jnp.asarray(gave_up, bool),
    )


def widen(tree: Params) -> Params:
    """Casts float16 and bfloat16 to float32: moments, norms and differences of U need its digits."""
    return jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)), tree)


def like(tree: Params, old: Params) -> Params:
    """Casts each leaf to the dtype of its counterpart in `old`."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), tree, old)


def is_finite(tree: Params) -> Array:
    """Whether every number of a pytree is finite."""
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)], bool))


def initial_state(params: Params) -> SamplerState:
    """The state at the start of a chain. A single Python number becomes an array.

    Raises:
      ValueError: for a leaf that is not a floating-point array.
    """
    return SamplerState(_as_params(params))


def _as_array(tree: Params) -> Params:
    is_number = isinstance(tree, int | float) and not isinstance(tree, bool)
    return jnp.asarray(tree, float) if is_number else tree


def _as_params(params: Params) -> Params:
    params = _as_array(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not _is_floating(leaf):
            got = f"an array of {leaf.dtype}" if hasattr(leaf, "dtype") else repr(leaf)
            where = f"params{jax.tree_util.keystr(path)}"
            raise ValueError(f"params must be a pytree of floating-point arrays, got {got} at {where}")
    return params


def _is_floating(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def from_optax(transform: optax.GradientTransformation) -> Sampler:
    """Turns an Optax gradient transformation into a sampler.

    A plain optimiser is the case β = ∞: it adds no noise. A transformation whose `update` takes a `key` (as those of
    this package do) is a sampler proper. Optimisers that evaluate the loss again, such as `optax.lbfgs`, get `value`,
    `grad` and `value_fn`.

    Examples:
      >>> import jax, optax
      >>> sampler = from_optax(optax.adam(0.1))
      >>> state = sampler.init(jax.numpy.ones(3))
      >>> state, info = sampler.step(jax.random.key(0), state, lambda w: (w**2).sum())
      >>> float(info.potential)
      3.0
    """
    transform = optax.with_extra_args_support(transform)

    def init(params: Params) -> SamplerState:
        params = _as_params(params)
        return SamplerState(params, transform.init(params))

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        value, gradient = jax.value_and_grad(potential)(state.params)
        # Optax passes unknown arguments on to the `value_fn` of its line searches, so the key arrives here.
        again = lambda params, key=None: potential(params)
        updates, memory = transform.update(
            gradient, state.memory, state.params, key=key, value=value, grad=gradient, value_fn=again
        )
        params = optax.apply_updates(state.params, updates)
        return SamplerState(params, memory), info(value, diverged=~is_finite(params))

    return Sampler(init, step, transform)


def first_order(init: Callable, update: Callable) -> Sampler:
    """Builds a sampler from `init(params) -> memory` and `update(gradient, memory, params, *, key, **extra)`.

    The update returns an increment and the new memory, as in Optax. It computes in float32 at least: gradient,
    parameters and memory are float32 even if the parameters are float16 or bfloat16, and the increment is rounded to
    the parameters' dtype at the end. Increment and memory keep their dtypes for hyper-parameters of any dtype, so that
    a chain can be scanned.
    """

    def wide_init(params: Params):
        return init(widen(_as_params(params)))

    def wide_update(gradient, memory, params=None, **extra):
        if params is None:
            raise ValueError("update of a sampler needs the parameters, as in update(gradient, state, params, key=key)")
        params = _as_params(params)
        increment, new_memory = update(widen(_as_array(gradient)), memory, widen(params), **extra)
        return like(increment, params), like(new_memory, memory)

    return from_optax(optax.GradientTransformationExtraArgs(wide_init, wide_update))


def to_optax(sampler: Sampler) -> optax.GradientTransformationExtraArgs:
    """Returns a first-order sampler as an Optax gradient transformation, for use in your own loop.

    Its `update` needs the parameters and, by name, a key: `update(gradient, state, params, key=key)`. It chains with
    other transformations like any optimiser.

    Raises:
      TypeError: for samplers that evaluate the potential at points other than the current one (`mala`, `hmc`,
        `proximal`) or that do not use gradients at all (`exact_gaussian`, `exact_feel_good`).

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> from feelgood import samplers
      >>> transform = samplers.to_optax(samplers.langevin(0.1))
      >>> params = jnp.ones(3)
      >>> gradient = params  # of U(w) = ‖w‖²/2
      >>> updates, state = transform.update(gradient, transform.init(params), params, key=jax.random.key(0))
      >>> optax.apply_updates(params, updates).shape
      (3,)
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
    potential: Potential | None,
    params: Params,
    num_steps: int | float,
    *,
    burn_in: int | float = 0,
    thin: int | float = 1,
) -> tuple[Params, Info]:
    """Runs one chain and returns its positions.

    For several chains, `jax.vmap` this function over keys (and over `params` for different starts).

    Args:
      key: randomness of the whole chain.
      sampler: any sampler of this package.
      potential: U, held fixed along the chain.
      params: the start of the chain: a pytree of floating-point arrays, or a number. Leaves that are not arrays or not
        floating-point (such as functions and counters in a model of Equinox) are not changed, and `potential` gets them
        in their places.
      num_steps: steps taken after the burn-in.
      burn_in: steps taken first, whose positions are not returned.
      thin: keep every `thin`-th position only.

    Returns:
      The positions after steps thin, 2·thin, … after the burn-in, stacked along a new leading axis of
      `num_steps // thin`; and the info records of the same steps, stacked likewise.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> potential = lambda w: jnp.sum(w["mean"] ** 2) / 2
      >>> start = {"mean": jnp.zeros(2)}
      >>> draws, info = samplers.sample(
      ...     jax.random.key(0), samplers.hmc(0.5, 4), potential, start, 1000, burn_in=100, thin=10
      ... )
      >>> draws["mean"].shape, bool(info.diverged.any())
      ((100, 2), False)
    """
    check_kind("sampler", sampler, Sampler, "a Sampler such as samplers.langevin(0.1)")
    check_key(key)
    check_count("num_steps", num_steps)
    check_count("burn_in", burn_in, minimum=0)
    check_count("thin", thin)
    num_steps, burn_in, thin = int(num_steps), int(burn_in), int(thin)
    if thin > num_steps:
        raise ValueError(f"thin must be at most num_steps, {num_steps}, or no position is kept, got {thin}")
    moving, whole = split_params(params)

    def evaluate(params: Params) -> Array:
        assert potential is not None  # exact samplers take None and never evaluate it
        value = potential(whole(params))
        if jnp.shape(value) != ():
            raise ValueError(f"potential must return a number, an array of shape (), got shape {jnp.shape(value)}")
        return value

    # In half precision a new position is rounded, so the gradient at the proposal is not the one there.
    is_half = any(leaf.dtype.itemsize < 4 for leaf in jax.tree.leaves(moving))
    if sampler.fixed is not None and not is_half:
        sampler = sampler.fixed(evaluate)

    def advance(state: SamplerState, key: PRNGKey):
        moved = sampler.step(key, state, evaluate)
        check_kind("first result of a sampler's step", moved[0], SamplerState, "a SamplerState, and the second an Info")
        return moved

    def keep(state: SamplerState, keys):
        state, infos = jax.lax.scan(advance, state, keys)
        return state, (state.params, jax.tree.map(lambda leaf: leaf[-1], infos))

    state = sampler.init(moving)
    check_kind("result of a sampler's init", state, SamplerState, "a SamplerState")
    if burn_in:
        key, key_burn_in = jax.random.split(key)
        forget = lambda state, key: (advance(state, key)[0], None)
        state, _ = jax.lax.scan(forget, state, jax.random.split(key_burn_in, burn_in))
    _, (draws, infos) = jax.lax.scan(keep, state, jax.random.split(key, (num_steps // thin, thin)))
    return whole(draws), infos


def check_key(key: Any) -> None:
    """Requires a JAX key, new or old."""
    if not hasattr(key, "dtype") or not (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32):
        raise ValueError(f"key must be a JAX key such as jax.random.key(0), got {key!r}")


def split_params(params: Params) -> tuple[Params, Callable[[Params], Params]]:
    """The floating-point arrays of a pytree, with None for the rest; and the function that puts the rest back."""
    params = _as_array(params)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if isinstance(leaf, float) and not hasattr(leaf, "dtype"):
            raise ValueError(
                f"params{jax.tree_util.keystr(path)} is the Python number {leaf!r}: make it an array to sample it"
            )
    moving = jax.tree.map(lambda leaf: leaf if _is_floating(leaf) else None, params)
    if not jax.tree.leaves(moving):
        raise ValueError(f"params must have at least one floating-point array, got {params!r}")
    is_none = lambda leaf: leaf is None
    return moving, lambda moving: jax.tree.map(lambda m, p: p if m is None else m, moving, params, is_leaf=is_none)
