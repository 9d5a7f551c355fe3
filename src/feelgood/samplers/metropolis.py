"""Metropolis-adjusted samplers: exp(−β·U) is exactly stationary, whatever the step.

Both evaluate U and its gradient anew at the current point in every step, as the potential may have changed since the
last one. With another minibatch in each step the accept test compares noisy values, and "exact" becomes a heuristic.
"""

import jax
import jax.numpy as jnp
import optax

from feelgood import noise
from feelgood.checks import check_count, check_positive
from feelgood.samplers.base import Info, Sampler, SamplerState, info
from feelgood.samplers.langevin import thermal_noise
from feelgood.typing import Array, Normal, Params, Potential, PRNGKey, Scalar

__all__ = ["hmc", "mala"]


def _accept(key: PRNGKey, log_ratio: Array, proposal: Params, current: Params) -> tuple[Params, Array, Array]:
    """Accepts with probability min(1, exp(log_ratio)); a proposal that is not a number is rejected."""
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    accepted = jax.random.uniform(key, dtype=probability.dtype) < probability
    return optax.tree.where(accepted, proposal, current), probability, accepted


def mala(step_size: Scalar, inverse_temperature: Scalar = 1.0, *, normal: Normal = noise.normal) -> Sampler:
    r"""Metropolis-adjusted Langevin algorithm.

        w' = w − τ ∇U(w) + √(2τ/β) ξ
        accept with min{1, exp(−β [U(w') − U(w)]) · q(w | w') / q(w' | w)},
        log q(w' | w) = −β ‖w' − w + τ ∇U(w)‖² / (4τ)

    Two gradients a step.

    Args:
      step_size: τ > 0.
      inverse_temperature: β > 0, finite.
      normal: the generator of standard normals.

    References:
      Roberts and Tweedie (1996), "Exponential convergence of Langevin distributions and their discrete approximations".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature)

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        key_proposal, key_accept = jax.random.split(key)
        current = state.params
        value, gradient = jax.value_and_grad(potential)(current)
        xi = thermal_noise(key_proposal, current, inverse_temperature, normal)
        noise_scale = jnp.sqrt(2 * jnp.asarray(step_size))
        proposal = jax.tree.map(
            lambda w, g, x: (w - step_size * g + noise_scale * x).astype(w.dtype), current, gradient, xi
        )
        proposal_value, proposal_gradient = jax.value_and_grad(potential)(proposal)

        def log_density(to, since, gradient):
            residual = jax.tree.map(lambda t, s, g: t - s + step_size * g, to, since, gradient)
            return -inverse_temperature * optax.tree.norm(residual, squared=True) / (4 * step_size)

        log_ratio = (
            inverse_temperature * (value - proposal_value)
            + log_density(current, proposal, proposal_gradient)
            - log_density(proposal, current, gradient)
        )
        params, probability, accepted = _accept(key_accept, log_ratio, proposal, current)
        return SamplerState(params), info(
            value, acceptance=probability, num_gradients=2, num_rejections=1 - accepted.astype(jnp.int32)
        )

    return Sampler(SamplerState, step)


def hmc(
    step_size: Scalar,
    num_leapfrog_steps: int | Array,
    inverse_temperature: Scalar = 1.0,
    *,
    normal: Normal = noise.normal,
) -> Sampler:
    r"""Hamiltonian Monte Carlo with unit mass and a fresh momentum in every step.

        P ~ N(0, I/β);  L times:  P ← P − τ/2 ∇U(w),  w ← w + τP,  P ← P − τ/2 ∇U(w)
        accept with min{1, exp(−β [H(w', P') − H(w, P)])},    H(w, P) = U(w) + ‖P‖²/2

    L + 1 gradients a step. With L = 1 and step √(2τ) it is `mala` with step τ.

    Args:
      step_size: τ > 0, of one leapfrog step.
      num_leapfrog_steps: L ≥ 1.
      inverse_temperature: β > 0, finite.
      normal: the generator of standard normals.

    References:
      Neal (2011), "MCMC using Hamiltonian dynamics".
    """
    check_positive("step_size", step_size)
    check_count("num_leapfrog_steps", num_leapfrog_steps)
    check_positive("inverse_temperature", inverse_temperature)

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        key_momentum, key_accept = jax.random.split(key)
        current = state.params
        value_and_gradient = jax.value_and_grad(potential)
        value, gradient = value_and_gradient(current)
        momentum = thermal_noise(key_momentum, current, inverse_temperature, normal)
        momentum = optax.tree.cast_like(momentum, current)

        def kick(p, g):
            return jax.tree.map(lambda p, g: (p - step_size / 2 * g).astype(p.dtype), p, g)

        def leapfrog(_, carry):
            w, p, _, g = carry
            p = kick(p, g)
            w = jax.tree.map(lambda w, p: (w + step_size * p).astype(w.dtype), w, p)
            value, g = value_and_gradient(w)
            return w, kick(p, g), value, g

        proposal, final_momentum, proposal_value, _ = jax.lax.fori_loop(
            0, num_leapfrog_steps, leapfrog, (current, momentum, value, gradient)
        )
        kinetic = optax.tree.norm(momentum, squared=True) / 2
        final_kinetic = optax.tree.norm(final_momentum, squared=True) / 2
        log_ratio = inverse_temperature * (value + kinetic - proposal_value - final_kinetic)
        params, probability, accepted = _accept(key_accept, log_ratio, proposal, current)
        return SamplerState(params), info(
            value,
            acceptance=probability,
            num_gradients=num_leapfrog_steps + 1,
            num_rejections=1 - accepted.astype(jnp.int32),
        )

    return Sampler(SamplerState, step)
