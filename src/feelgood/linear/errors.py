"""Sampling error measured: the total variation δ between a sampler's law after J steps and the posterior it aims at.

At stages h > 1 of a linear MDP the conditional posterior is Gaussian and the law of the sampler's iterates is known, so
δ is exact. At stage 1 the feel-good term bends the posterior at the ties between actions; there δ is enclosed between
two certain bounds, which meet if one action leads clearly.

Samplers start from a point with zero momentum, as Algorithm 1 does with its warm start.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr, ndtr
from jax.typing import ArrayLike

from feelgood.checks import check_count, check_non_negative, check_positive
from feelgood.samplers.diagnostics import Kernel, law_after, total_variation_of_modes
from feelgood.samplers.diagnostics.kernels import in_order
from feelgood.typing import Array, Scalar


def stage_error(
    kernel: Kernel,
    precision: ArrayLike,
    mean: ArrayLike,
    start: ArrayLike,
    num_steps: ArrayLike,
    inverse_temperature: Scalar = 1.0,
) -> Array:
    """δ of a stage with Gaussian posterior: TV(law of w after J steps from w⁰, N(m, (βΛ)⁻¹)), exact.

    In the eigenbasis of Λ, scaled so that the target is N(0, I), the modes are independent and the law after J steps is
    N(μ, diag σ²) with μᵢ² = βpᵢ · (mean offset)ᵢ² and σᵢ² = βpᵢ · varianceᵢ.

    Args:
      kernel: the sampler's step, from `samplers.diagnostics`, with the same β.
      precision: Λ, (d, d), symmetric positive definite.
      mean: m, (d,).
      start: w⁰, (d,).
      num_steps: J ≥ 0; may be traced. At 0 the law is a point and δ = 1.
      inverse_temperature: β.

    Returns:
      δ in [0, 1], in the dtype of `precision`; NaN if Λ is not positive definite or the iterates overflow. In float32
      it is within 2e-5 of float64 for condition numbers up to 100 and within 1e-3 up to 1e4, by way of the eigenvalues
      of Λ; beyond, use float64 (`jax.enable_x64`).
    """
    num_steps = check_count("num_steps", num_steps, minimum=0)
    check_positive("inverse_temperature", inverse_temperature)
    curvature, basis = jnp.linalg.eigh(jnp.asarray(precision))
    offset = jnp.asarray(start, curvature.dtype) - jnp.asarray(mean, curvature.dtype)
    return stage_error_of_modes(kernel, curvature, _dot(basis.T, offset), num_steps, inverse_temperature)


def stage_error_of_modes(
    kernel: Kernel, curvature: Array, offset: Array, num_steps: ArrayLike, inverse_temperature: Scalar = 1.0
) -> Array:
    """`stage_error` in the eigenbasis of Λ, where the modes are separate problems.

    Args:
      kernel: the sampler's step.
      curvature: eigenvalues of Λ, (d,).
      offset: w⁰ − m in the eigenbasis, (d,).
      num_steps: J ≥ 0; may be traced.
      inverse_temperature: β.
    """

    def mode(p: Array, x: Array) -> tuple[Array, Array]:
        law = law_after(kernel, jnp.zeros(1, p.dtype), p[None, None], num_steps, x[None])
        return law.mean[0], law.covariance[0, 0]

    mean, variance = jax.vmap(mode)(curvature, offset)
    scaling = jnp.sqrt(jnp.asarray(inverse_temperature, curvature.dtype) * curvature)
    return total_variation_of_modes(scaling * mean, scaling * jnp.sqrt(variance))


class ErrorBounds(NamedTuple):
    """Certain bounds on a total variation; 0 and 1 if nothing is known."""

    lower: Array
    upper: Array


def feel_good_error(
    kernel: Kernel,
    precision: ArrayLike,
    mean: ArrayLike,
    start: ArrayLike,
    num_steps: ArrayLike,
    features: ArrayLike,
    feel_good_weight: Scalar,
    inverse_temperature: Scalar = 1.0,
) -> ErrorBounds:
    r"""Bounds on δ of the stage with the feel-good term, π ∝ exp(−β [½ (w−m)ᵀΛ(w−m) − λ max_a ⟨w, φ_a⟩]).

    Fix an action a and let it lead everywhere: the posterior becomes the tilt ν_a = N(m + λΛ⁻¹φ_a, (βΛ)⁻¹), for which
    the sampler's error s_a is that of `stage_error`. By the triangle inequality, for each a,

      |δ − s_a| ≤ t_a + g_a,   t_a ≥ TV(π, ν_a),   g_a ≥ TV(law of w, law of w where a leads everywhere),

    and the best bounds over all a are returned. X_b = ⟨w, φ_b − φ_a⟩ is normal under ν_a, and at every step of the
    chain where a leads everywhere.

    - Target. dπ/dν_a = D/E D with D = exp(βλ max_b X_b⁺) ≥ 1, so TV(π, ν_a) ≤ 1 − 1/E D, and
      E D ≤ 1 + Σ_b (E exp(βλ X_b⁺) − 1), whose terms have a closed form. With two actions TV itself has one.
    - Chain. The chains coincide until an action other than a leads, so g_a ≤ Σ_j Σ_b P(X_b ≥ 0 at step j). And by
      Girsanov's argument the paths differ by KL ≤ ½ c λ² Σ_j E ‖φ_lead − φ_a‖², so g_a ≤ √(KL/2) (Pinsker) and
      g_a ≤ √(1 − e^{−KL}) (Bretagnolle and Huber). Either argument may take over from the other: g_a is at most the
      second bound over the first i steps plus the first bound over the others, for any i. Here c = gᵀQ⁻¹g, where a
      unit gradient moves (w, momentum) by g and Q is the covariance of a step's noise: τβ/2 for Langevin, τβ/2γ for the
      Euler scheme of ULMC. c is infinite where the noise does not reach all that the gradient moves, as for BAOAB; then
      a must lead from the start.

    Args:
      kernel: the sampler's step, from `samplers.diagnostics`, with the same β. It must evaluate the gradient once a
        step, where the step starts, as all kernels there do.
      precision: Λ, (d, d), symmetric positive definite.
      mean: m, (d,).
      start: w⁰, (d,).
      num_steps: J ≥ 0; may be traced. The time taken grows with it.
      features: φ_a at the initial state, (num_actions, d). With one action the bounds agree.
      feel_good_weight: λ ≥ 0.
      inverse_temperature: β.
    """
    num_steps = check_count("num_steps", num_steps, minimum=0)
    check_non_negative("feel_good_weight", feel_good_weight)
    check_positive("inverse_temperature", inverse_temperature)
    curvature, basis = jnp.linalg.eigh(jnp.asarray(precision))
    dtype = curvature.dtype
    # Everything below happens in the eigenbasis of Λ, with the origin at m.
    start = _dot(basis.T, jnp.asarray(start, dtype) - jnp.asarray(mean, dtype))
    features = jnp.asarray(features, dtype)
    if features.ndim != 2 or features.shape[1] != curvature.size:
        raise ValueError(f"features must have shape (num_actions, {curvature.size}), got {features.shape}")
    values = _dot(features, jnp.asarray(mean, dtype))
    features = _dot(features, basis)
    weight, beta = (jnp.asarray(x, dtype) for x in (feel_good_weight, inverse_temperature))

    def bounds_by(action: Array) -> tuple[Array, Array]:
        tilt = weight * features[action] / curvature
        contrasts = features - features[action][None]
        gaps = values - values[action]
        error = stage_error_of_modes(kernel, curvature, start - tilt, num_steps, beta)
        deviation = jnp.sqrt(_dot(contrasts**2, 1 / (beta * curvature)))
        target = _tilt_error(gaps + _dot(contrasts, tilt), deviation, beta * weight)
        chain = _chain_error(kernel, curvature, start - tilt, tilt, num_steps, contrasts, gaps, weight)
        return error - (target + chain), error + (target + chain)

    lower, upper = jax.vmap(bounds_by)(jnp.arange(features.shape[0]))
    # A NaN in one action's bounds gives no bound on δ.
    return ErrorBounds(
        jnp.clip(jnp.nanmax(jnp.append(lower, 0)), 0, 1), jnp.clip(jnp.nanmin(jnp.append(upper, 1)), 0, 1)
    )


def _dot(a: Array, b: Array) -> Array:
    return jnp.matmul(a, b, precision="highest")


def _tilt_error(mean: Array, deviation: Array, rate: Array) -> Array:
    """A bound on TV(π, ν_a) from the laws N(μ_b, s_b²) of X_b under ν_a, all (num_actions,), and βλ."""
    # Actions with the features of a, among them a itself, have X = 0 and no part in it.
    same = deviation <= 0
    deviation = jnp.where(same, 1, deviation)
    score = mean / deviation
    spread = rate * deviation
    # E exp(rX⁺) = P(X < 0) + exp(rμ + r²s²/2) P(X > 0 under the tilt by r)
    log_lift = rate * mean + spread**2 / 2
    if mean.size == 2:
        log_normaliser = jnp.logaddexp(log_ndtr(-score), log_lift + log_ndtr(score + spread))
        # TV = P(D < E D) under ν_a less that under π; D < E D where X < x
        x = jnp.where(rate > 0, log_normaliser / jnp.where(rate > 0, rate, 1), 0) / deviation
        ours = jnp.exp(log_ndtr(-score) - log_normaliser)
        ours = ours + jnp.exp(log_lift - log_normaliser + log_ndtr(x - score - spread))
        ours = ours - jnp.exp(log_lift - log_normaliser + log_ndtr(-score - spread))
        error = ndtr(x - score) - ours
        return jnp.clip(jnp.sum(jnp.where(same | (rate <= 0), 0, error)), 0, 1)
    excess = jnp.exp(log_lift + log_ndtr(score + spread)) - ndtr(score)
    excess = jnp.sum(jnp.where(same, 0, jnp.maximum(excess, 0)))
    return 1 - 1 / (1 + excess)


def _chain_error(
    kernel: Kernel,
    curvature: Array,
    offset: Array,
    tilt: Array,
    num_steps: ArrayLike,
    contrasts: Array,
    gaps: Array,
    weight: Array,
) -> Array:
    """A bound on the distance of the chain to the one in which action a leads everywhere, whose law is known."""
    size = jnp.sum(contrasts**2, axis=1)
    cost = _noise_cost(kernel, curvature.dtype) * weight**2 / 2
    step = kernel.affine(curvature)
    nothing = jnp.broadcast_to(jnp.eye(2, dtype=curvature.dtype)[None], step[0].shape), jnp.zeros_like(step[1])

    def add(_, carry):
        (transition, noise), departures, divergence, best = carry
        mean = gaps + _dot(contrasts, tilt + transition[:, 0, 0] * offset)
        deviation = jnp.sqrt(_dot(contrasts**2, noise[:, 0, 0]))
        certain = deviation <= 0
        leads = jnp.where(certain, mean >= 0, ndtr(mean / jnp.where(certain, 1, deviation)))
        leads = jnp.where(size > 0, leads, 0)
        departure = jnp.minimum(jnp.sum(leads), 1)
        square = jnp.minimum(jnp.sum(size * leads), jnp.max(size) * departure)
        departures = departures + departure
        # Without departures there is no divergence, even if c is infinite.
        divergence = divergence + jnp.where(square > 0, cost * square, 0)
        by_paths = jnp.minimum(jnp.sqrt(divergence / 2), jnp.sqrt(-jnp.expm1(-divergence)))
        return in_order((transition, noise), step), departures, divergence, jnp.minimum(best, by_paths - departures)

    zero = jnp.zeros((), curvature.dtype)
    # Up to any step count divergence, and departures from there on: `best` is the least of the first less the second.
    _, departures, _, best = jax.lax.fori_loop(0, jnp.asarray(num_steps, int), add, (nothing, zero, zero, zero))
    return jnp.where(weight > 0, departures + best, 0)


def _noise_cost(kernel: Kernel, dtype) -> Array:
    """c = gᵀQ⁻¹g of `feel_good_error`; infinite if g is not in the range of Q."""
    transition, noise = kernel.affine(jnp.array([0.0, 1.0], dtype))
    # A step is affine in the gradient p·w, with noise independent of p: curvature 1 less curvature 0 is the gradient.
    move, noise = transition[1, :, 0] - transition[0, :, 0], noise[0]
    # Units of both rows differ; scaled by the noise's deviations its correlation is left.
    deviation = jnp.sqrt(jnp.diagonal(noise))
    reached = deviation > 0
    scaled = jnp.where(reached, move / jnp.where(reached, deviation, 1), 0)
    missed = jnp.any(~reached & (move != 0))
    both = jnp.all(reached)
    correlation = jnp.where(both, noise[0, 1] / jnp.where(both, deviation[0] * deviation[1], 1), 0)
    eps = jnp.finfo(dtype).eps
    # In the directions (1, ±1)/√2 the correlation matrix has the eigenvalues 1 ± correlation.
    sums = jnp.stack([scaled[0] + scaled[1], scaled[0] - scaled[1]]) / jnp.sqrt(jnp.asarray(2, dtype))
    spread = jnp.stack([1 + correlation, 1 - correlation])
    flat = spread < 64 * eps
    missed = missed | jnp.any(flat & (jnp.abs(sums) > 64 * eps * jnp.max(jnp.abs(scaled))))
    return jnp.where(missed, jnp.inf, jnp.sum(jnp.where(flat, 0, sums**2 / jnp.where(flat, 1, spread))))
