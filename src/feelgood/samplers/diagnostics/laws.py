"""The exact law of a sampler's iterates on a quadratic potential U(w) = ½ (w−m)ᵀΛ(w−m).

There every sampler without rejections is linear with Gaussian noise, and in the eigenbasis of Λ the modes do not mix
(see `kernels`). So the law after any number of steps, and the law the iterates converge to, are computed without
sampling.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike

from feelgood.checks import check_count, check_positive
from feelgood.samplers.diagnostics.kernels import Kernel, in_order, product
from feelgood.typing import Array, Scalar


class GaussianLaw(NamedTuple):
    """A normal law on R^d: mean (d,) and covariance (d, d)."""

    mean: Array
    covariance: Array


def target_law(mean: ArrayLike, precision: ArrayLike, inverse_temperature: Scalar) -> GaussianLaw:
    """The law exp(−βU) the samplers aim at: N(m, (βΛ)⁻¹).

    Examples:
      >>> import jax.numpy as jnp
      >>> law = target_law(jnp.zeros(2), jnp.diag(jnp.array([1.0, 4.0])), inverse_temperature=2.0)
      >>> print(law.covariance.diagonal())
      [0.5   0.125]
    """
    check_positive("inverse_temperature", inverse_temperature, infinite=True)
    curvature, basis = _modes(precision)
    beta = jnp.asarray(inverse_temperature, curvature.dtype)
    return GaussianLaw(_as_mean("mean", mean, curvature), _rotate(basis, jnp.diag(1 / (beta * curvature))))


def law_after(
    kernel: Kernel,
    mean: ArrayLike,
    precision: ArrayLike,
    num_steps: ArrayLike,
    initial_mean: ArrayLike,
    initial_covariance: ArrayLike | None = None,
    initial_momentum: GaussianLaw | tuple[ArrayLike, ArrayLike] | None = None,
) -> GaussianLaw:
    """The law of the positions after `num_steps` steps; a million steps are as fast as ten.

    n steps of a mode are again affine, with Aⁿ and Qₙ = Σ_{k<n} Aᵏ Q Aᵏᵀ, both found by repeated doubling over the
    binary digits of n. Modes i, j that start correlated stay so: S_ij becomes Aᵢⁿ S_ij Aⱼⁿᵀ (+ Qₙ where i = j).

    Args:
      kernel: the sampler's step.
      mean: m, (d,).
      precision: Λ, (d, d), symmetric.
      num_steps: any whole number from 0; may be traced.
      initial_mean: mean of the starting position, (d,).
      initial_covariance: its covariance, (d, d); zero if not given.
      initial_momentum: law of the starting momentum, independent of the position; zero if not given.

    Returns:
      The exact law of the positions, in the dtype of `precision`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.samplers.diagnostics import langevin_kernel
      >>> kernel = langevin_kernel(step_size=0.5, inverse_temperature=1.0)
      >>> law = law_after(kernel, jnp.zeros(1), jnp.eye(1), 2, initial_mean=jnp.ones(1))
      >>> float(law.mean[0]), float(law.covariance[0, 0])
      (0.25, 1.25)
    """
    check_count("num_steps", num_steps, minimum=0)
    curvature, basis = _modes(precision)
    mean, initial_mean = (
        _as_mean(name, value, curvature) for name, value in (("mean", mean), ("initial_mean", initial_mean))
    )
    transition, noise = _repeat(kernel.affine(curvature), num_steps)

    def through(gain: Array, law_mean: ArrayLike, law_covariance: ArrayLike | None):
        offset = gain * product(basis.T, jnp.asarray(law_mean, curvature.dtype))
        if law_covariance is None:
            return offset, 0
        return offset, jnp.outer(gain, gain) * _rotate(basis.T, jnp.asarray(law_covariance, curvature.dtype))

    offset, covariance = through(transition[:, 0, 0], initial_mean - mean, initial_covariance)
    covariance = covariance + jnp.diag(noise[:, 0, 0])
    if initial_momentum is not None:
        kicked, spread = through(transition[:, 0, 1], *initial_momentum)
        offset, covariance = offset + kicked, covariance + spread
    return GaussianLaw(mean + product(basis, offset), _rotate(basis, covariance))


def stationary_law(kernel: Kernel, mean: ArrayLike, precision: ArrayLike) -> GaussianLaw:
    """The law the positions converge to: mean m and, per mode, the S that solves S = A S Aᵀ + Q.

    Args:
      kernel: the sampler's step.
      mean: m, (d,).
      precision: Λ, (d, d), symmetric.

    Returns:
      The stationary law of the positions, with relative error of order eps / (1 − spectral radius). The covariance is
      NaN throughout if any mode is unstable, for then there is no such law.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.samplers.diagnostics import langevin_kernel
      >>> law = stationary_law(langevin_kernel(step_size=1.0, inverse_temperature=1.0), jnp.zeros(1), jnp.eye(1))
      >>> print(law.covariance[0, 0])  # 1/(1 − τ/2): the target has variance 1
      2.0
    """
    curvature, basis = _modes(precision)
    transition, noise = kernel.affine(curvature)
    doubled = jnp.einsum("nij,nkl->nikjl", transition, transition, precision="highest").reshape(-1, 4, 4)
    solution = jnp.linalg.solve(jnp.eye(4, dtype=curvature.dtype)[None] - doubled, noise.reshape(-1, 4, 1))
    covariance = _rotate(basis, jnp.diag(solution[:, 0, 0]))
    stable = _is_stable(transition)
    return GaussianLaw(_as_mean("mean", mean, curvature), jnp.where(stable, covariance, jnp.nan))


def spectral_radius(kernel: Kernel, precision: ArrayLike) -> Array:
    """Largest |eigenvalue| of A(p) over the modes; the iterates converge to a law if and only if it is below 1.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.samplers.diagnostics import langevin_kernel
      >>> print(spectral_radius(langevin_kernel(0.5, 1.0), jnp.diag(jnp.array([1.0, 5.0]))))  # |1 − 0.5·5|
      1.5
    """
    return jnp.max(_radius(kernel.affine(_modes(precision)[0])[0]))


def largest_stable_step(kernel_factory: Callable[[Array], Kernel], precision: ArrayLike) -> Array:
    """The step size up to which a sampler is stable, by bisection down to machine precision.

    Args:
      kernel_factory: `step_size -> kernel`.
      precision: Λ, (d, d), symmetric.

    Returns:
      The supremum of the step sizes in [2⁻⁶⁰, 2⁶⁰] with spectral radius below 1, where these form an interval, as they
      do for all kernels here; 0 if there are none, infinity if even the largest is stable.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.samplers.diagnostics import langevin_kernel
      >>> step_size = largest_stable_step(lambda step_size: langevin_kernel(step_size, 1.0), 4 * jnp.eye(1))
      >>> round(float(step_size), 4)
      0.5
    """
    curvature, _ = _modes(precision)

    def is_stable(step_size: Array) -> Array:
        return _is_stable(kernel_factory(step_size).affine(curvature)[0])

    def halve(_, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        stable = is_stable(middle)
        return jnp.where(stable, middle, low), jnp.where(stable, high, middle)

    # Rounding hides the stability of the tiniest steps, so look for the last stable one and not for the first unstable.
    grid = jnp.exp2(jnp.arange(-60, 61, dtype=curvature.dtype))
    last = jnp.max(jnp.where(jax.vmap(is_stable)(grid), jnp.arange(grid.size), -1))
    low, _ = jax.lax.fori_loop(0, jnp.finfo(grid.dtype).nmant + 1, halve, (grid[last], 2 * grid[last]))
    return jnp.where(last < 0, 0.0, jnp.where(last == grid.size - 1, jnp.inf, low))


def _rotate(basis: Array, matrix: Array) -> Array:
    rotated = product(basis, matrix, basis.T)
    return (rotated + rotated.T) / 2


def _as_mean(name: str, value: ArrayLike, curvature: Array) -> Array:
    """A mean as an array, of a shape that fits the precision matrix."""
    array = jnp.asarray(value, curvature.dtype)
    if array.shape != curvature.shape:
        raise ValueError(f"{name} must have shape {curvature.shape}, as precision has, got shape {array.shape}")
    return array


def _modes(precision: ArrayLike) -> tuple[Array, Array]:
    precision = jnp.asarray(precision)
    if precision.ndim != 2 or precision.shape[0] != precision.shape[1]:
        raise ValueError(f"precision must be a square matrix, got shape {precision.shape}")
    if precision.shape == (1, 1):  # a single mode needs no search
        return precision[0], jnp.ones_like(precision)
    curvature, basis = jnp.linalg.eigh(precision)
    return curvature, basis


def _repeat(step: tuple[Array, Array], num_steps: ArrayLike) -> tuple[Array, Array]:
    """The affine map of `num_steps` steps, from the binary digits of `num_steps`."""

    def double(_, carry):
        done, power, bits = carry
        done = optax.tree.where(bits % 2 == 1, in_order(done, power), done)
        # Powers that are not needed would overflow where a mode is unstable.
        power = optax.tree.where(bits > 1, in_order(power, power), power)
        return done, power, bits // 2

    bits = jnp.asarray(num_steps).astype(int)
    nothing = jnp.broadcast_to(jnp.eye(2, dtype=step[0].dtype)[None], step[0].shape), jnp.zeros_like(step[1])
    return jax.lax.fori_loop(0, jnp.iinfo(bits.dtype).bits - 1, double, (nothing, step, bits))[0]


def _radius(matrix: Array) -> Array:
    half_trace = (matrix[..., 0, 0] + matrix[..., 1, 1]) / 2
    # (a−d)²/4 + bc loses far less than trace²/4 − det where the eigenvalues almost agree.
    discriminant = ((matrix[..., 0, 0] - matrix[..., 1, 1]) / 2) ** 2 + matrix[..., 0, 1] * matrix[..., 1, 0]
    real = jnp.abs(half_trace) + jnp.sqrt(jnp.maximum(discriminant, 0))
    return jnp.where(discriminant >= 0, real, jnp.sqrt(half_trace**2 + jnp.abs(discriminant)))


def _is_stable(matrix: Array) -> Array:
    return jnp.max(_radius(matrix)) < 1 - 4 * jnp.finfo(matrix.dtype).eps
