"""Overdamped Langevin samplers: one gradient and one normal per parameter and step."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood import noise
from feelgood.checks import check_fraction, check_positive
from feelgood.samplers.base import Sampler, first_order
from feelgood.samplers.schedules import StepSize, schedulable
from feelgood.typing import Array, Normal, Params, PRNGKey, Scalar


def thermal_noise(key: PRNGKey, params: Params, inverse_temperature: Scalar, normal: Normal) -> Params:
    """Draws a standard normal per parameter, divided by √β. If β is an infinite Python float, nothing is drawn."""
    if isinstance(inverse_temperature, float) and math.isinf(inverse_temperature):
        return jax.tree.map(jnp.zeros_like, params)
    scale = jnp.sqrt(1 / inverse_temperature)
    return jax.tree.map(lambda xi: scale * xi, noise.normal_like(key, params, normal))


@schedulable
def langevin(
    step_size: StepSize,
    inverse_temperature: Scalar = 1.0,
    *,
    drift: optax.GradientTransformation | None = None,
    normal: Normal = noise.normal,
) -> Sampler:
    r"""Langevin Monte Carlo (LMC), the Euler–Maruyama scheme.

        w ← w − τ ∇U(w) + √(2τ/β) ξ,    ξ ~ N(0, I)

    For a quadratic U with curvature p the chain is stable for τ < 2/p and its stationary variance is
    1 / (β p (1 − τp/2)): too wide by a factor that vanishes linearly in τ.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      inverse_temperature: β > 0; infinity gives gradient descent.
      drift: an Optax transformation whose output replaces ∇U(w), as `adam_langevin` does with
        `adaptive_bias`. The noise is unchanged, so any drift other than the gradient changes the stationary law.
      normal: the generator of standard normals, `normal(key, shape, dtype)`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.langevin(step_size=0.1)
      >>> draws, info = samplers.sample(jax.random.key(0), sampler, lambda w: (w**2).sum() / 2, jnp.zeros(3), 1000)
      >>> draws.shape
      (1000, 3)

    References:
      Section 3.2 of the paper; Durmus and Majewski (2019), "Analysis of Langevin Monte Carlo via convex optimization".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature, infinite=True)
    transform = optax.with_extra_args_support(optax.identity() if drift is None else drift)

    def update(gradient, state, params, *, key: PRNGKey, **extra):
        direction, state = transform.update(gradient, state, params, **extra)
        xi = thermal_noise(key, params, inverse_temperature, normal)
        noise_scale = jnp.sqrt(2 * jnp.asarray(step_size))
        return jax.tree.map(lambda g, x: -step_size * g + noise_scale * x, direction, xi), state

    return first_order(transform.init, update)


class PreconditionedState(NamedTuple):
    """Moving average v of the squared gradient."""

    second_moment: Params


@schedulable
def preconditioned_langevin(
    step_size: StepSize,
    inverse_temperature: Scalar = 1.0,
    *,
    decay: Scalar = 0.99,
    epsilon: Scalar = 1e-5,
    normal: Normal = noise.normal,
) -> Sampler:
    r"""Langevin Monte Carlo with an RMSprop preconditioner (pSGLD); the noise is preconditioned too.

        v ← α v + (1 − α) ∇U ⊙ ∇U,    G = 1 ⊘ (√v + ε)
        w ← w − τ G ⊙ ∇U(w) + √(2τ/β · G) ⊙ ξ

    For a constant G this keeps exp(−β·U) to first order in τ. As G moves with w, a term with the derivative of G would
    be needed; it is left out, as is usual, at a bias that shrinks as α → 1.

    Args:
      step_size: τ > 0 or a schedule, in units of √v: a step moves a parameter by about τ.
      inverse_temperature: β > 0; infinity gives RMSprop.
      decay: α in [0, 1).
      epsilon: ε > 0, which bounds the preconditioner by 1/ε.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.preconditioned_langevin(0.1, epsilon=0.1)
      >>> draws, info = samplers.sample(jax.random.key(0), sampler, lambda w: (w**2).sum() / 2, jnp.zeros(3), 1000)
      >>> draws.shape
      (1000, 3)

    References:
      Li et al. (2016), "Preconditioned stochastic gradient Langevin dynamics for deep neural networks".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature, infinite=True)
    check_fraction("decay", decay)
    check_positive("epsilon", epsilon)

    def init(params: Params) -> PreconditionedState:
        return PreconditionedState(jax.tree.map(jnp.zeros_like, params))

    def update(gradient, state: PreconditionedState, params, *, key: PRNGKey, **_):
        v = optax.tree.update_moment(gradient, state.second_moment, decay, 2)
        xi = thermal_noise(key, params, inverse_temperature, normal)

        def move(g, v, x):
            preconditioner = 1 / (jnp.sqrt(v) + epsilon)
            return -step_size * preconditioner * g + jnp.sqrt(2 * step_size * preconditioner) * x

        return jax.tree.map(move, gradient, v, xi), PreconditionedState(v)

    return first_order(init, update)


class PreconditionedAdamState(NamedTuple):
    """Number t of steps taken, and moving averages m of the gradient and v of its square."""

    num_steps: Array
    first_moment: Params
    second_moment: Params


@schedulable
def preconditioned_adam_langevin(
    step_size: StepSize,
    inverse_temperature: Scalar = 1.0,
    *,
    first_decay: Scalar = 0.9,
    second_decay: Scalar = 0.999,
    epsilon: Scalar = 1e-8,
    normal: Normal = noise.normal,
) -> Sampler:
    r"""Adam plus noise scaled by its preconditioner: the "Langevin DQN" of the released code.

        m ← α₁ m + (1 − α₁) ∇U,    c₁ = 1 − α₁ᵗ
        v ← α₂ v + (1 − α₂) ∇U ⊙ ∇U,    c₂ = 1 − α₂ᵗ
        w ← w − τ (m/c₁) ⊘ (√(v/c₂) + ε) + √(2τ √c₂ / (β c₁)) ξ ⊘ √(√v + ε)

    The drift is Adam's, averaged over past gradients, so exp(−β·U) is *not* stationary; the noise level is right where
    the gradient changes little over 1/(1 − α₁) steps.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      inverse_temperature: β > 0; infinity gives `optax.adam`.
      first_decay: α₁ in [0, 1).
      second_decay: α₂ in [0, 1).
      epsilon: ε > 0.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.preconditioned_adam_langevin(0.1, inverse_temperature=jnp.inf)
      >>> start, step = sampler.init(jnp.array([1.0, -5.0])), jax.jit(sampler.step, static_argnums=2)
      >>> state, info = step(jax.random.key(0), start, lambda w: (w**2).sum() / 2)
      >>> [round(w, 4) for w in state.params.tolist()]  # Adam's first step has size 0.1 everywhere
      [0.9, -4.9]

    References:
      Dwaracherla and Van Roy (2020), "Langevin DQN".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature, infinite=True)
    check_fraction("first_decay", first_decay)
    check_fraction("second_decay", second_decay)
    check_positive("epsilon", epsilon)

    def init(params: Params) -> PreconditionedAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return PreconditionedAdamState(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(gradient, state: PreconditionedAdamState, params, *, key: PRNGKey, **_):
        t = optax.safe_increment(state.num_steps)
        m = optax.tree.update_moment(gradient, state.first_moment, first_decay, 1)
        v = optax.tree.update_moment(gradient, state.second_moment, second_decay, 2)
        xi = thermal_noise(key, params, inverse_temperature, normal)

        def move(m, v, x):
            c1 = 1 - jnp.asarray(first_decay, m.dtype) ** t
            c2 = 1 - jnp.asarray(second_decay, v.dtype) ** t
            drift = step_size * (m / c1) / (jnp.sqrt(v / c2) + epsilon)
            return -drift + jnp.sqrt(2 * step_size * jnp.sqrt(c2) / c1) * x / jnp.sqrt(jnp.sqrt(v) + epsilon)

        return jax.tree.map(move, m, v, xi), PreconditionedAdamState(t, m, v)

    return first_order(init, update)
