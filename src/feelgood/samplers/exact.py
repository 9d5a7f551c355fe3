"""Exact draws from known posteriors: Gaussians, with and without a feel-good term.

Their arguments define the target; `step` ignores its potential, which may be None. They are for linear Q, and the
reference for approximate samplers.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from feelgood import noise
from feelgood.algebra import cholesky, solve_lower, solve_lower_transposed, solve_positive
from feelgood.checks import check_non_negative, check_positive
from feelgood.samplers.base import Info, Sampler, SamplerState, info, initial_state, is_finite, like, widen
from feelgood.typing import Array, Normal, Params, Potential, PRNGKey, Scalar


class GaussianPosterior(NamedTuple):
    """The Gaussian exp(−½ (w − m)ᵀ Λ (w − m)) by its mean m (any pytree of d numbers) and its precision Λ (d × d)."""

    mean: Params
    precision: Array


def linear_regression(
    features: Array, targets: Array, *, weight: Scalar = 0.5, prior_precision: Scalar = 1.0
) -> GaussianPosterior:
    r"""Posterior of linear regression, U(w) = η Σᵢ (yᵢ − ⟨φᵢ, w⟩)² + ρ/2 ‖w‖².

        Λ = 2η ΦᵀΦ + ρI,    m = Λ⁻¹ · 2η Φᵀy

    Args:
      features: Φ, (n, d).
      targets: y, (n,).
      weight: η > 0; 1/2 is unit noise.
      prior_precision: ρ > 0.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import samplers
      >>> posterior = samplers.linear_regression(jnp.eye(2), jnp.array([2.0, 4.0]))
      >>> posterior.mean.round(3).tolist()
      [1.0, 2.0]
    """
    check_positive("weight", weight)
    check_positive("prior_precision", prior_precision)
    precision = 2 * weight * features.T @ features + prior_precision * jnp.eye(features.shape[1], dtype=features.dtype)
    return GaussianPosterior(solve_positive(precision, 2 * weight * features.T @ targets), precision)


def _flat(mean: Params, precision: Array) -> tuple[Array, Callable[[Array], Params], Array]:
    """The mean as a vector, the function that gives a vector the mean's form, and the factor L of the precision."""
    flat, unravel = ravel_pytree(widen(mean))
    if precision.shape != (flat.size, flat.size):
        raise ValueError(f"precision must have shape {(flat.size, flat.size)} to match mean, got {precision.shape}")
    return flat, lambda draw: like(unravel(draw), mean), cholesky(widen(precision))


def exact_gaussian(
    mean: Params, precision: Array, inverse_temperature: Scalar = 1.0, *, normal: Normal = noise.normal
) -> Sampler:
    r"""Draws from N(m, (βΛ)⁻¹), independently in every step.

        w = m + L⁻ᵀ ξ / √β,    Λ = L Lᵀ

    Args:
      mean: m, any pytree of d numbers.
      precision: Λ, symmetric positive definite (d, d), in the order of `ravel_pytree(mean)`.
      inverse_temperature: β > 0, finite.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> posterior = samplers.linear_regression(jnp.eye(2), jnp.array([1.0, 2.0]))
      >>> sampler = samplers.exact_gaussian(*posterior)
      >>> state, _ = sampler.step(jax.random.key(0), sampler.init(posterior.mean), None)
      >>> state.params.shape
      (2,)
    """
    check_positive("inverse_temperature", inverse_temperature)
    flat_mean, unravel, factor = _flat(mean, precision)

    def step(key: PRNGKey, state: SamplerState, potential: Potential | None = None) -> tuple[SamplerState, Info]:
        del state, potential
        xi = normal(key, flat_mean.shape, flat_mean.dtype)
        offset = solve_lower_transposed(factor, xi) / jnp.sqrt(jnp.asarray(inverse_temperature))
        params = unravel((flat_mean + offset).astype(flat_mean.dtype))
        return SamplerState(params), info(num_gradients=0, diverged=~is_finite(params))

    return Sampler(initial_state, step)


def exact_feel_good(
    mean: Params,
    precision: Array,
    features: Array,
    weight: Scalar,
    inverse_temperature: Scalar = 1.0,
    *,
    normal: Normal = noise.normal,
) -> Sampler:
    r"""Draws from the feel-good posterior of a linear Q exactly: exp(−β [½ (w−m)ᵀΛ(w−m) − λ max_a ⟨w, φ_a⟩]).

    Feel-Good Thompson Sampling was thought to lack this oracle. With Σ = Λ⁻¹, each action's tilt of the Gaussian is
    again a Gaussian, so propose from their mixture and thin it to the maximum:

        choose a with probability ∝ exp(β [λ⟨m, φ_a⟩ + λ²/2 · φ_aᵀ Σ φ_a]),
        propose w ~ N(m + λΣφ_a, Σ/β),
        accept with max_b e^{βλ⟨w, φ_b⟩} / Σ_b e^{βλ⟨w, φ_b⟩} ≥ 1/|A|.

    The number of proposals is geometric with mean at most |A|, and near 1 when one action leads clearly.

    Args:
      mean: m, any pytree of d numbers.
      precision: Λ, symmetric positive definite (d, d), in the order of `ravel_pytree(mean)`.
      features: φ_a at the initial state, (num_actions, d).
      weight: λ ≥ 0, the feel-good weight.
      inverse_temperature: β > 0, finite.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> mean, precision, features = jnp.zeros(2), jnp.eye(2), jnp.eye(2)  # two actions
      >>> sampler = samplers.exact_feel_good(mean, precision, features, weight=1.0)
      >>> draws, _ = samplers.sample(jax.random.key(0), sampler, None, mean, 4000)
      >>> round(float(draws.mean()), 1)  # optimism: the posterior without the term has mean 0
      0.5
    """
    check_non_negative("weight", weight)
    check_positive("inverse_temperature", inverse_temperature)
    flat_mean, unravel, factor = _flat(mean, precision)
    if features.ndim != 2 or features.shape[1] != flat_mean.size:
        raise ValueError(f"features must have shape (num_actions, {flat_mean.size}), got {features.shape}")
    # In whitened coordinates w = m + L⁻ᵀz every tilt is a shift of z ~ N(0, I/β) by λ·L⁻¹φ_a, and only |A| inner
    # products per proposal are needed to judge it; w itself is formed once, at the end.
    features = widen(features)
    tilts = weight * solve_lower(factor, features.T).T
    offsets = weight * features @ flat_mean
    log_weights = inverse_temperature * (offsets + jnp.sum(tilts**2, axis=1) / 2)
    spread = 1 / jnp.sqrt(jnp.asarray(inverse_temperature))

    def step(key: PRNGKey, state: SamplerState, potential: Potential | None = None) -> tuple[SamplerState, Info]:
        del state, potential

        def propose(carry):
            key, _, _, _, rejections = carry
            key, key_action, key_noise, key_accept = jax.random.split(key, 4)
            action = jax.random.categorical(key_action, log_weights)
            z = (tilts[action] + spread * normal(key_noise, flat_mean.shape, flat_mean.dtype)).astype(flat_mean.dtype)
            scores = inverse_temperature * (offsets + tilts @ z)
            probability = jnp.exp(jnp.max(scores) - jax.nn.logsumexp(scores)).astype(jnp.float32)
            accepted = ~(jax.random.uniform(key_accept) >= probability)  # NaN ends the loop, and shows in the draw
            return key, z, probability, accepted, rejections + 1 - accepted.astype(jnp.int32)

        zero = jnp.zeros((), jnp.float32)
        start = (key, jnp.zeros_like(flat_mean), zero, zero.astype(bool), zero.astype(jnp.int32))
        _, z, probability, _, rejections = jax.lax.while_loop(lambda carry: ~carry[3], propose, start)
        params = unravel(flat_mean + solve_lower_transposed(factor, z))
        return SamplerState(params), info(
            acceptance=probability, num_gradients=0, num_rejections=rejections, diverged=~is_finite(params)
        )

    return Sampler(initial_state, step)
