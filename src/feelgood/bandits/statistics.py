"""The Gaussian posterior of a linear model from sufficient statistics, at a cost per round that does not grow.

    U(θ) = η Σ_s (⟨θ_g, φ_s⟩ − r_s)² + ρ/2 ‖θ‖² = ½ Σ_g (θ_g − m_g)ᵀ Λ_g (θ_g − m_g) + const,    Λ_g = 2ηΣφφᵀ + ρI.

Only the group of the arm that was played changes, so a round needs one rank-one update of a k × k Cholesky factor.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood import algebra
from feelgood.algebra import raised
from feelgood.bandits.base import Context, Model
from feelgood.typing import Array, Scalar

solve_lower = partial(algebra.solve_lower, in_loop=True)
solve_lower_transposed = partial(algebra.solve_lower_transposed, in_loop=True)


class Statistics(NamedTuple):
    """The posterior N(m_g, Λ_g⁻¹) of every group.

    Attributes:
      num_rounds: rewards seen.
      precision: Λ, (G, k, k).
      factor: L with L Lᵀ = Λ, (G, k, k).
      mean: m, (G, k).
    """

    num_rounds: Array
    precision: Array
    factor: Array
    mean: Array


def no_rewards(model: Model, prior_precision: Scalar) -> Statistics:
    """The prior N(0, I/ρ)."""
    eye = jnp.broadcast_to(jnp.eye(model.num_features), (model.num_groups, model.num_features, model.num_features))
    precision = prior_precision * eye
    return Statistics(jnp.zeros((), jnp.int32), precision, jnp.sqrt(prior_precision) * eye, model.zeros())


def add_reward(
    statistics: Statistics, model: Model, context: Context, action: Array, target: Array, weight: Scalar
) -> Statistics:
    """Takes in one observation ⟨θ_g, φ⟩ ≈ target with curvature `weight` = 2η, by recursive least squares.

    The mean moves by Λ⁻¹φ·2η(r − ⟨m, φ⟩): no sums that grow, hence no cancellation in float32. The factor of Λ is
    updated, not computed from Λ, which in float32 may have lost its smallest eigenvalues (collinear features, small ρ).
    """
    phi = context.row(action)
    mask = model.mask(action)
    pick = lambda leaf: jnp.sum(mask.reshape((-1,) + (1,) * (leaf.ndim - 1)) * leaf, 0)
    put = lambda leaf, new: jnp.where(mask.reshape((-1,) + (1,) * (leaf.ndim - 1)) > 0, new[None], leaf)
    precision = pick(statistics.precision) + weight * phi[:, None] * phi[None, :]
    factor, mean = raised(pick(statistics.factor), jnp.sqrt(weight) * phi), pick(statistics.mean)
    step = solve_lower_transposed(factor, solve_lower(factor, weight * (target - mean @ phi) * phi))
    return Statistics(
        statistics.num_rounds + 1,
        put(statistics.precision, precision),
        put(statistics.factor, factor),
        put(statistics.mean, mean + step),
    )


def values(theta: Array, features: Array) -> Array:
    """⟨θ_{g(a)}, φ_a⟩ of every arm, (A,). One of the two has a row for each arm; the other has one row or as many."""
    if theta.shape[-1] != features.shape[-1]:
        raise ValueError(f"features must have {theta.shape[-1]} columns, as the model has, got {features.shape[-1]}")
    return jnp.sum(theta * features, -1)


def multiply(precision: Array, offset: Array) -> Array:
    """Λ_g v_g of every group, (G, k), unrolled: faster than a batch of tiny matrix products.

    A `jnp.sum` over the last axis must not be used here. Inside a loop that carries `offset`, jaxlib 0.10 on a CPU
    fuses it with the update of the carry, and from about 8,000 chains on it reads values that are overwritten already.
    """
    return sum((precision[:, :, j] * offset[:, j, None] for j in range(offset.shape[1])), jnp.zeros_like(offset))


def quadratic(precision: Array, offset: Array) -> Array:
    """½ Σ_g v_gᵀ Λ_g v_g with gradient Λ v; differentiating it costs one product with Λ and not two."""
    force = jax.lax.stop_gradient(multiply(precision, offset))
    value = jnp.sum(force * offset)
    return value - jax.lax.stop_gradient(value) / 2


def whiten(factor: Array, offset: Array) -> Array:
    """Lᵀ v of every group, (G, k)."""
    return sum((factor[:, j] * offset[:, j, None] for j in range(offset.shape[1])), jnp.zeros_like(offset))


def unwhiten(factor: Array, z: Array) -> Array:
    """L⁻ᵀ z of every group, (G, k)."""
    return jax.vmap(solve_lower_transposed)(factor, z)


def widths(factor: Array, features: Array) -> Array:
    """√(φ_aᵀ Λ_g⁻¹ φ_a) of every arm, (A,)."""
    if factor.shape[0] == 1:
        return jnp.linalg.norm(solve_lower(factor[0], features.T), axis=0)
    rows = jnp.broadcast_to(features, factor.shape[:2])
    return jnp.linalg.norm(jax.vmap(solve_lower)(factor, rows), axis=-1)


def largest_curvature(precision: Array) -> Array:
    """M, at least the largest eigenvalue of any Λ_g and within k^(1/16) of it: ‖Λ⁸‖^(1/8) in the Frobenius norm."""

    def of_group(matrix: Array) -> Array:
        log_scale = jnp.zeros(())
        for power in (1, 2, 4):
            norm = jnp.linalg.norm(matrix)
            matrix, log_scale = matrix / norm, log_scale + jnp.log(norm) / power
            matrix = jnp.sum(matrix[:, :, None] * matrix[None, :, :], 1)
        return jnp.exp(log_scale + jnp.log(jnp.linalg.norm(matrix)) / 8)

    return jnp.max(jax.vmap(of_group)(precision))
