"""One step of each sampler on a quadratic potential, as an affine map per mode.

For U(w) = ½ (w−m)ᵀΛ(w−m) and an eigenvalue p of Λ, a step moves z = (position − m, momentum) along that eigenvector by

  z' = A(p) z + ξ,   ξ ~ N(0, Q(p)),   A, Q of shape 2 × 2.

Langevin has no momentum: its second row and column are zero. τ is the step size, γ the friction, β the inverse
temperature.
"""

from collections.abc import Callable
from math import factorial
from typing import Literal, NamedTuple

import jax.numpy as jnp

from feelgood.checks import check_choice, check_non_negative, check_positive
from feelgood.typing import Array, Scalar


class Kernel(NamedTuple):
    """One step of a sampler on a quadratic potential.

    Attributes:
      affine: `curvature (d,) -> (A, Q)`, both (d, 2, 2): the matrix that moves (position − m, momentum) of each mode,
        and the covariance of the noise added to it.
    """

    affine: Callable[[Array], tuple[Array, Array]]


def langevin_kernel(step_size: Scalar, inverse_temperature: Scalar) -> Kernel:
    """Langevin Monte Carlo: w' = w − τ∇U(w) + √(2τ/β) ξ.

    Examples:
      >>> import jax.numpy as jnp
      >>> matrix, noise = langevin_kernel(0.25, 1.0).affine(jnp.array([2.0]))  # one mode, of curvature 2
      >>> print(matrix[0, 0, 0], noise[0, 0, 0])  # 1 − τp and 2τ/β
      0.5 0.5
    """

    def affine(p: Array, tau: Array, _: Array, beta: Array) -> tuple[Array, Array]:
        return _fill(p, (1 - tau * p, 0), (0, 0)), _fill(p, (2 * tau / beta, 0), (0, 0))

    return _kernel(affine, step_size, 0.0, inverse_temperature)


def underdamped_kernel(step_size: Scalar, friction: Scalar, inverse_temperature: Scalar) -> Kernel:
    """Explicit Euler: w' = w + τP, P' = P − τ∇U(w) − γτP + √(2γτ/β) ξ, both from the old (w, P).

    Examples:
      >>> import jax.numpy as jnp
      >>> matrix, noise = underdamped_kernel(0.5, 1.0, 1.0).affine(jnp.array([2.0]))
      >>> print(matrix[0].tolist(), noise[0, 1, 1])
      [[1.0, 0.5], [-1.0, 0.5]] 1.0
    """

    def affine(p: Array, tau: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
        return _fill(p, (1, tau), (-tau * p, 1 - gamma * tau)), _fill(p, (0, 0), (0, 2 * gamma * tau / beta))

    return _kernel(affine, step_size, friction, inverse_temperature)


def underdamped_exact_kernel(step_size: Scalar, friction: Scalar, inverse_temperature: Scalar) -> Kernel:
    """Underdamped dynamics solved exactly over a step, with the gradient frozen at its start.

    dw = P dt, dP = −∇U(w₀) dt − γP dt + √(2γ/β) dB over time τ. With x = γτ, φ₁ = (1−e⁻ˣ)/x, φ₂ = (x−1+e⁻ˣ)/x² and
    φ₃ = (2x−3+4e⁻ˣ−e⁻²ˣ)/x³:

      w' = w + τφ₁P − τ²φ₂∇U(w) + ξ_w,   P' = e⁻ˣP − τφ₁∇U(w) + ξ_P,
      Var ξ_w = γτ³φ₃/β,   Cov(ξ_w, ξ_P) = γτ²φ₁²/β,   Var ξ_P = (1−e⁻²ˣ)/β.

    Examples:
      >>> import jax.numpy as jnp
      >>> matrix, noise = underdamped_exact_kernel(1.0, 50.0, 2.0).affine(jnp.array([4.0]))
      >>> print(noise[0, 1, 1])  # with much friction the new momentum has forgotten the old: Var P = 1/β
      0.5
    """

    def affine(p: Array, tau: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
        x = gamma * tau
        phi1, phi2, phi3 = _phi(x)
        covariance = x * phi1 * (tau * phi1) / beta
        return (
            _fill(p, (1 - tau * (tau * phi2) * p, tau * phi1), (-tau * phi1 * p, jnp.exp(-x))),
            _fill(p, (x * phi3 * tau * tau / beta, covariance), (covariance, -jnp.expm1(-2 * x) / beta)),
        )

    return _kernel(affine, step_size, friction, inverse_temperature)


def underdamped_splitting_kernel(
    step_size: Scalar, friction: Scalar, inverse_temperature: Scalar, scheme: Literal["BAOAB", "OBABO"] = "BAOAB"
) -> Kernel:
    """Splitting into kicks B, drifts A and the thermostat O, each solved exactly.

    The cycle starts where one gradient serves the whole step; positions have the law of the usual order.

      BAOAB: B(τ), A(τ/2), O(τ), A(τ/2);   OBABO: B(τ/2), O(τ), B(τ/2), A(τ).

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.samplers.diagnostics import stationary_law
      >>> for scheme in ("BAOAB", "OBABO"):  # on U = w²/2 the first is exact, the second has 1/(1 − τ²/4)
      ...     law = stationary_law(underdamped_splitting_kernel(1.0, 1.0, 1.0, scheme), jnp.zeros(1), jnp.eye(1))
      ...     print(scheme, law.covariance[0, 0].round(4))
      BAOAB 1.0
      OBABO 1.3333
    """
    check_choice("scheme", scheme, ("BAOAB", "OBABO"))

    def affine(p: Array, tau: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
        noiseless = _fill(p, (0, 0), (0, 0))
        kick = lambda time: (_fill(p, (1, 0), (-time * p, 1)), noiseless)
        drift = lambda time: (_fill(p, (1, time), (0, 1)), noiseless)
        x = gamma * tau
        thermostat = _fill(p, (1, 0), (0, jnp.exp(-x))), _fill(p, (0, 0), (0, -jnp.expm1(-2 * x) / beta))
        if scheme == "BAOAB":
            return in_order(kick(tau), drift(tau / 2), thermostat, drift(tau / 2))
        return in_order(kick(tau / 2), thermostat, kick(tau / 2), drift(tau))

    return _kernel(affine, step_size, friction, inverse_temperature)


def adaptive_underdamped_kernel(
    step_size: Scalar,
    friction: Scalar,
    inverse_temperature: Scalar,
    noise_in: Literal["momentum", "params"] = "momentum",
) -> Kernel:
    """Adaptive underdamped sampler at bias factor 0: P' = (1−γτ)P − τ∇U(w), w' = w + τP' with the new momentum.

    √(2γτ/β) ξ is added to P' (and so also moves w') or to w' alone, depending on `noise_in`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.samplers.diagnostics import stationary_law
      >>> for noise_in in ("momentum", "params"):  # U = 4w²/2: near 1/4, and near 1 + γ²/4, another law
      ...     kernel = adaptive_underdamped_kernel(0.01, 1.0, 1.0, noise_in)
      ...     print(noise_in, stationary_law(kernel, jnp.zeros(1), 4 * jnp.eye(1)).covariance[0, 0].round(2))
      momentum 0.25
      params 1.25
    """
    check_choice("noise_in", noise_in, ("momentum", "params"))

    def affine(p: Array, tau: Array, gamma: Array, beta: Array) -> tuple[Array, Array]:
        noise = 2 * gamma * tau / beta
        in_momentum, in_params = (noise, 0) if noise_in == "momentum" else (0, noise)
        return in_order(
            (_fill(p, (1, 0), (-tau * p, 1 - gamma * tau)), _fill(p, (0, 0), (0, in_momentum))),
            (_fill(p, (1, tau), (0, 1)), _fill(p, (in_params, 0), (0, 0))),
        )

    return _kernel(affine, step_size, friction, inverse_temperature)


def in_order(*maps: tuple[Array, Array]) -> tuple[Array, Array]:
    """Composes affine maps, the first given applied first."""
    transition, noise = maps[0]
    for matrix, added in maps[1:]:
        transition = product(matrix, transition)
        noise = product(matrix, noise, jnp.swapaxes(matrix, -1, -2)) + added
    return transition, noise


def product(*factors: Array) -> Array:
    """Matrix product, in full precision on every device."""
    result = factors[0]
    for factor in factors[1:]:
        result = jnp.matmul(result, factor, precision="highest")
    return result


def _kernel(affine: Callable, step_size: Scalar, friction: Scalar, inverse_temperature: Scalar) -> Kernel:
    """The kernel of `affine(curvature, τ, γ, β)`, with the scales in the dtype of the curvature."""
    check_positive("step_size", step_size)
    check_non_negative("friction", friction)
    check_positive("inverse_temperature", inverse_temperature, infinite=True)
    scales = step_size, friction, inverse_temperature
    return Kernel(lambda p: affine(p, *(jnp.asarray(scale, p.dtype) for scale in scales)))


def _fill(curvature: Array, *rows: tuple) -> Array:
    """One 2×2 matrix per mode from entries that are numbers or arrays over modes."""
    entries = [jnp.broadcast_to(jnp.asarray(entry, curvature.dtype), curvature.shape) for row in rows for entry in row]
    return jnp.stack(entries, axis=-1).reshape(*curvature.shape, 2, 2)


def _phi(x: Array) -> tuple[Array, Array, Array]:
    """φ₁, φ₂, φ₃ of `underdamped_exact_kernel`, by their power series for x < 1, where the formulas cancel."""
    orders = range(25)
    series = (
        [(-1) ** k / factorial(k + 1) for k in orders],
        [(-1) ** k / factorial(k + 2) for k in orders],
        [(-1) ** k * (2 ** (k + 3) - 4) / factorial(k + 3) for k in orders],
    )
    small, large = jnp.where(x < 1, x, 0), jnp.where(x < 1, 1, x)
    decay = jnp.exp(-large)
    inverse = 1 / large  # in float32 x² overflows from 2e19 on, and XLA divides twice by dividing by the square
    closed = (
        (1 - decay) * inverse,
        (large - 1 + decay) * inverse * inverse,
        (2 * large - 3 + 4 * decay - decay**2) * inverse * inverse * inverse,
    )
    powers = [jnp.polyval(jnp.asarray(coefficients[::-1], x.dtype), small) for coefficients in series]
    phi1, phi2, phi3 = (jnp.where(x < 1, power, formula) for power, formula in zip(powers, closed, strict=True))
    return phi1, phi2, phi3
