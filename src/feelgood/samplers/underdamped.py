"""Underdamped Langevin samplers: parameters w with a momentum P, unit mass.

All discretise

    dw = P dt,    dP = −∇U(w) dt − γ P dt + √(2γ/β) dB,

whose stationary law is exp(−β (U(w) + ‖P‖²/2)), so that w alone follows exp(−β·U). (The paper prints the friction with
a plus sign; its discretised scheme has it right.) Each step evaluates one gradient, at the current parameters.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from feelgood import noise
from feelgood.checks import check_choice, check_positive
from feelgood.samplers.base import Sampler, first_order
from feelgood.samplers.langevin import thermal_noise
from feelgood.samplers.schedules import StepSize, schedulable
from feelgood.typing import Array, Normal, Params, PRNGKey, Scalar


class UnderdampedState(NamedTuple):
    """The momentum P, zero at the start."""

    momentum: Params


def check_scales(step_size: Scalar, friction: Scalar, inverse_temperature: Scalar) -> None:
    """Requires that τ, γ and β are positive; β may be infinite."""
    check_positive("step_size", step_size)
    check_positive("friction", friction)
    check_positive("inverse_temperature", inverse_temperature, infinite=True)


def _with_momentum(
    step_size: Scalar, friction: Scalar, inverse_temperature: Scalar, normal: Normal, make_move, num_normals: int = 1
) -> Sampler:
    """The sampler whose `make_move() -> move` moves each array by `move(P, ∇U, *normals) -> (increment of w, P')`."""
    check_scales(step_size, friction, inverse_temperature)

    def init(params: Params) -> UnderdampedState:
        return UnderdampedState(jax.tree.map(jnp.zeros_like, params))

    def update(gradient, state: UnderdampedState, params, *, key: PRNGKey, **_):
        normals = thermal_noise(key, (params,) * num_normals, inverse_temperature, normal)
        pairs = jax.tree.map(make_move(), state.momentum, gradient, *normals)
        increment, momentum = jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0, 0)), pairs)
        return increment, UnderdampedState(momentum)

    return first_order(init, update)


@schedulable
def underdamped(
    step_size: StepSize, friction: Scalar = 1.0, inverse_temperature: Scalar = 1.0, *, normal: Normal = noise.normal
) -> Sampler:
    r"""Underdamped Langevin Monte Carlo (ULMC), the explicit Euler scheme.

        w' = w + τ P
        P' = P − τ ∇U(w) − γτ P + √(2γτ/β) ξ

    For a quadratic U with curvature p it is stable only if τp < γ (and γτ < 2 + τ²p/2), hence the small steps it needs
    on stiff losses; `underdamped_splitting` does not have this limit.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      friction: γ > 0.
      inverse_temperature: β > 0; infinity gives damped descent without noise.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.underdamped(0.1, friction=2.0)
      >>> draws, info = samplers.sample(jax.random.key(0), sampler, lambda w: (w**2).sum() / 2, jnp.zeros(3), 1000)
      >>> draws.shape
      (1000, 3)

    References:
      Eq. `ulmc_EM_scheme` of the paper.
    """

    def make_move():
        noise_scale = jnp.sqrt(2 * jnp.asarray(friction) * step_size)
        return lambda p, g, x: (step_size * p, p - step_size * g - friction * step_size * p + noise_scale * x)

    return _with_momentum(step_size, friction, inverse_temperature, normal, make_move)


class ExactCoefficients(NamedTuple):
    """The scheme of `underdamped_exact` at one step, before the factor 1/√β on the noise."""

    decay: Array  # e^{−γτ}
    momentum_to_params: Array  # τ φ₁
    gradient_to_params: Array  # τ² φ₂
    noise_momentum: Array  # standard deviation of the noise in P
    noise_shared: Array  # effect of the same normal on w
    noise_params: Array  # standard deviation of the rest of the noise in w


def exact_coefficients(step_size: Scalar, friction: Scalar) -> ExactCoefficients:
    r"""Integrates the linear SDE with frozen gradient over one step, without cancellation for small x = γτ.

    With φ₁ = (1 − e^{−x})/x, φ₂ = (x − 1 + e^{−x})/x² and y = x/2, the noise has

        Var P = (1 − e^{−2x}) / β,    Cov(w, P) = (1 − e^{−x})² / (γβ),    Var(w | P) = 4 (y − tanh y) / (γ²β),

    the last being the Schur complement of the textbook covariance. As x → 0 the closed forms of φ₂ and of
    χ = (y − tanh y)/y³ lose their digits to cancellation, so there their Taylor series are summed.
    """
    tau, gamma = jnp.asarray(step_size, float), jnp.asarray(friction, float)
    x = gamma * tau
    y = x / 2
    phi1 = -jnp.expm1(-x) / x
    small = x < 0.6  # where float32 keeps six digits on one side and the series ten on the other
    phi2 = jnp.where(small, jnp.polyval(jnp.asarray(_PHI2_SERIES[::-1]), x), (x + jnp.expm1(-x)) / x**2)
    chi = jnp.where(small, jnp.polyval(jnp.asarray(_CHI_SERIES[::-1]), y * y), (y - jnp.tanh(y)) / y**3)
    return ExactCoefficients(
        decay=jnp.exp(-x),
        momentum_to_params=tau * phi1,
        gradient_to_params=tau**2 * phi2,
        noise_momentum=jnp.sqrt(-jnp.expm1(-2 * x)),
        noise_shared=tau * phi1 * jnp.sqrt(jnp.tanh(y)),  # Cov(w, P) / √Var P
        noise_params=tau * jnp.sqrt(chi * y),
    )


_PHI2_SERIES = [(-1) ** k / math.factorial(k + 2) for k in range(14)]
# (y − tanh y)/y³ in powers of y², from the Taylor series of tanh.
_CHI_SERIES = [
    1 / 3,
    -2 / 15,
    17 / 315,
    -62 / 2835,
    1382 / 155925,
    -21844 / 6081075,
    929569 / 638512875,
    -6404582 / 10854718875,
]


@schedulable
def underdamped_exact(
    step_size: StepSize, friction: Scalar = 1.0, inverse_temperature: Scalar = 1.0, *, normal: Normal = noise.normal
) -> Sampler:
    r"""ULMC integrated in closed form over each step, the gradient frozen at its start.

        P' = e^{−γτ} P − τφ₁ ∇U(w) + ξ_P
        w' = w + τφ₁ P − τ²φ₂ ∇U(w) + ξ_w

    with φ₁, φ₂ and the joint Gaussian (ξ_w, ξ_P) of `exact_coefficients`. This is the scheme of the paper's analysis,
    which avoids it in practice because of an O(d³) Cholesky factor. But the noise covariance is one 2×2 block, the same
    for every coordinate, so its factor is three numbers and a step costs O(d): a gradient and two normals a parameter.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      friction: γ > 0.
      inverse_temperature: β > 0; infinity leaves out the noise.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.underdamped_exact(1.0, friction=1.0, inverse_temperature=jnp.inf)
      >>> step = jax.jit(sampler.step, static_argnums=2)
      >>> state, info = step(jax.random.key(0), sampler.init(jnp.ones(1)), lambda w: w[0] ** 2 / 2)
      >>> round(float(state.params[0]), 4)  # from rest, 1 - τ²φ₂ with τ²φ₂ = 1/e
      0.6321

    References:
      Eq. `ulmc:exact` of the paper; Cheng et al. (2018), "Underdamped Langevin MCMC: a non-asymptotic analysis".
    """

    def make_move():
        c = exact_coefficients(step_size, friction)
        # ξ_w given P' instead of given ξ_P: with the same ξ in two results, compilers draw it twice.
        slope = c.noise_shared / c.noise_momentum
        from_momentum = c.momentum_to_params - slope * c.decay
        from_gradient = slope * c.momentum_to_params - c.gradient_to_params

        def move(p, g, x, z):
            new = c.decay * p - c.momentum_to_params * g + c.noise_momentum * x
            return from_momentum * p + from_gradient * g + slope * new + c.noise_params * z, new

        return move

    return _with_momentum(step_size, friction, inverse_temperature, normal, make_move, num_normals=2)


@schedulable
def underdamped_splitting(
    step_size: StepSize,
    friction: Scalar = 1.0,
    inverse_temperature: Scalar = 1.0,
    *,
    scheme: Literal["BAOAB", "OBABO"] = "BAOAB",
    normal: Normal = noise.normal,
) -> Sampler:
    r"""ULMC by splitting into kick B, drift A and Ornstein–Uhlenbeck O; second order in the step.

        A: w ← w + τP    B: P ← P − τ ∇U(w)    O: P ← e^{−γτ} P + √((1 − e^{−2γτ})/β) ξ

    A palindrome such as BAOAB evaluates the gradient twice at the same w, at the end of one step and at the start of
    the next. We start the cycle elsewhere, so that one step is

        BAOAB:  B(τ) A(τ/2) O(τ) A(τ/2)            OBABO:  B(τ/2) O(τ) B(τ/2) A(τ)

    with one gradient, and nothing cached that a new minibatch would make stale. As B and O leave w alone, the
    parameters visited have the law of the palindrome begun elsewhere in its cycle; from P = 0, BAOAB's first kick is a
    whole one, which is the palindrome from P = −τ/2·∇U.

    On a quadratic U with curvature p both are stable for τ√p < 2; BAOAB samples the right variance 1/(βp) whatever τ,
    OBABO samples 1/(βp(1 − τ²p/4)).

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      friction: γ > 0.
      inverse_temperature: β > 0; infinity leaves out the noise.
      scheme: "BAOAB" or "OBABO".
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.underdamped_splitting(1.5, friction=1.0)  # a long step, and yet the variance is right
      >>> draws, info = samplers.sample(jax.random.key(0), sampler, lambda w: (w**2).sum() / 2, jnp.zeros(3), 2000)
      >>> round(float(draws.var()), 1)
      1.0

    References:
      Leimkuhler and Matthews (2013), "Rational construction of stochastic numerical methods for molecular sampling".
    """
    check_choice("scheme", scheme, ("BAOAB", "OBABO"))

    def make_move():
        x = jnp.asarray(friction) * step_size
        decay, noise_scale = jnp.exp(-x), jnp.sqrt(-jnp.expm1(-2 * x))

        def baoab(p, g, x):
            p = p - step_size * g
            new = decay * p + noise_scale * x
            return step_size / 2 * (p + new), new

        def obabo(p, g, x):
            new = decay * (p - step_size / 2 * g) + noise_scale * x - step_size / 2 * g
            return step_size * new, new

        return baoab if scheme == "BAOAB" else obabo

    return _with_momentum(step_size, friction, inverse_temperature, normal, make_move)
