"""Distances between normal laws: Kullback–Leibler, Wasserstein and, to machine precision, total variation.

A law is a `GaussianLaw` or any pair (mean (d,), covariance (d, d)).
"""

import math
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from feelgood.algebra import cholesky, solve_lower
from feelgood.samplers.diagnostics.laws import GaussianLaw
from feelgood.typing import Array

Law: TypeAlias = GaussianLaw | tuple[ArrayLike, ArrayLike]

# Spacing of the contour in `total_variation`. At twice this spacing, quadrature errs by 1e-11 in the worst cases found.
_SPACING = 0.07
_LARGEST_TILT = math.pi / 8
_PHASE_SCALE = 6.0


def kl(p: Law, q: Law) -> Array:
    """The Kullback–Leibler divergence of p from q, in nats.

    KL(p ‖ q) = E_p log(p/q) = ½ [tr Σq⁻¹Σp + (mp−mq)ᵀΣq⁻¹(mp−mq) − d − log det Σq⁻¹Σp].

    Args:
      p: a normal law.
      q: a normal law of the same dimension.

    Returns:
      A non-negative number; infinity if exactly one covariance is singular, NaN if both are.

    Examples:
      >>> import jax.numpy as jnp
      >>> float(kl((jnp.ones(2), jnp.eye(2)), (jnp.zeros(2), jnp.eye(2))))
      1.0
    """
    p, q = _as_laws(p, q)
    factor, shift = _whiten(p, q)
    half_log_determinant = jnp.sum(jnp.log(jnp.diagonal(factor)))
    value = (jnp.sum(factor**2) + jnp.sum(shift**2) - shift.size) / 2 - half_log_determinant
    return _unless_singular(p, q, jnp.maximum(value, 0), jnp.inf)


def wasserstein2(p: Law, q: Law) -> Array:
    """The 2-Wasserstein distance, for covariances that may be singular.

    W₂² = |mp−mq|² + tr(Σp + Σq − 2(Σp^½ Σq Σp^½)^½) = |mp−mq|² + min_R ‖Fp R − Fq‖², over rotations R and any factors
    with F Fᵀ = Σ. The second form does not cancel, so that distances far below √eps come out right.

    Args:
      p: a normal law.
      q: a normal law of the same dimension.

    Returns:
      The distance, not its square.

    Examples:
      >>> import jax.numpy as jnp
      >>> float(wasserstein2((jnp.zeros(1), jnp.eye(1)), (jnp.full(1, 3.0), 25 * jnp.eye(1))))
      5.0
    """
    p, q = _as_laws(p, q)
    variances, bases = jnp.linalg.eigh(jnp.stack([p.covariance, q.covariance]))
    ours, theirs = bases * jnp.sqrt(jnp.maximum(variances, 0))[:, None, :]
    left, _, right = jnp.linalg.svd(jnp.matmul(ours.T, theirs, precision="highest"))
    rotation = jnp.matmul(left, right, precision="highest")
    gap = jnp.matmul(ours, rotation, precision="highest") - theirs
    return jnp.sqrt(jnp.sum((p.mean - q.mean) ** 2) + jnp.sum(gap**2))


def total_variation(p: Law, q: Law) -> Array:
    """The total variation distance, ½ ∫ |p − q|, exact in any dimension.

    With M(s) = ∫ pˢ q¹⁻ˢ, an inverse Mellin transform of min(p/q, 1) gives, at s = ½ + ½i sinh z,

      1 − TV = ∫ min(p, q) = (1/2πi) ∫ M(s) / (s(1−s)) ds = (1/π) ∫ M(s(z)) / cosh z dz,

    along any line from −∞ to ∞ in |Im z| < π/2. Where q = N(0, I) and p = N(μ, diag r), as holds after a change of
    variables, log M(s) = Σᵢ [½(1−s) log rᵢ − ½ log(s + (1−s)rᵢ) − s(1−s)μᵢ² / 2(s + (1−s)rᵢ)].

    On the real line M turns without end, like e^{iω sinh z}, and no rule with a fixed step can follow. So the line
    is z(t) = t + iα(t) and leans to the side where M decays, α = (π/8) tanh(t) tanh(θ/6), with θ the phase of M met at
    t on the real line. The integrand is then smooth and dies off; the trapezoid rule converges exponentially.

    Args:
      p: a normal law.
      q: a normal law of the same dimension.

    Returns:
      A number in [0, 1]; 1 if exactly one covariance is singular, NaN if both are. Quadrature contributes an absolute
      error below 1e-14 in float64, near or far, from dimension 1 to 100. Rounding in the change of variables adds about
      eps times the condition number of the covariances, so the whole error is below 1e-10 for condition numbers up to
      1e6. In float32 it is below 1e-6 for well-conditioned covariances.

    Examples:
      >>> import jax.numpy as jnp
      >>> p, q = (jnp.ones(3), jnp.eye(3)), (jnp.zeros(3), 2 * jnp.eye(3))
      >>> round(float(total_variation(p, q)), 4)
      0.5847
    """
    p, q = _as_laws(p, q)
    factor, shift = _whiten(p, q)
    basis, scale, _ = jnp.linalg.svd(factor)  # in this basis p's covariance is diagonal
    shift = jnp.matmul(basis.T, shift, precision="highest")
    return _unless_singular(p, q, total_variation_of_modes(shift, scale), 1.0)


def total_variation_of_modes(shift: Array, scale: Array) -> Array:
    """The total variation between N(μ, diag σ²) and N(0, I): `total_variation` after its change of variables.

    It spares the cubic cost of that change and its rounding, so the error does not depend on any condition number.

    Args:
      shift: μ, (d,).
      scale: σ ≥ 0, (d,); 0 gives 1.

    Examples:
      >>> import jax.numpy as jnp
      >>> print(total_variation_of_modes(jnp.array([2.0]), jnp.ones(1)).round(4))  # 2Φ(1) − 1
      0.6827
    """
    if jnp.ndim(shift) != 1 or jnp.shape(shift) != jnp.shape(scale):
        shapes = f"{jnp.shape(shift)} and {jnp.shape(scale)}"
        raise ValueError(f"shift and scale must have the same shape (d,), got shapes {shapes}")
    collapsed = jnp.any(scale <= 0)
    scale = jnp.where(scale <= 0, 1, scale)
    dtype = scale.dtype
    # Beyond t = log(4/eps) even the integral of 1/cosh is below rounding.
    size = int(math.log(4 / float(jnp.finfo(dtype).eps)) / _SPACING) + 1
    nodes = _SPACING * jnp.arange(size, dtype=dtype)
    weights = jnp.full(size, 2 * _SPACING / jnp.pi, dtype).at[0].divide(2)

    def log_moment(z: Array) -> Array:
        s = 0.5 + 0.5j * jnp.sinh(z)[:, None]
        mixed = 1 + (1 - s) * ((scale - 1) * (scale + 1))[None, :]
        stretch = (1 - s) * jnp.log(scale)[None, :] - jnp.log(mixed) / 2
        return jnp.sum(stretch - s * ((1 - s) / mixed) * (shift**2 / 2)[None, :], axis=1)

    def contour(t: Array) -> Array:
        phase = jnp.imag(log_moment(jax.lax.complex(t, jnp.zeros_like(t))))
        return jax.lax.complex(t, _LARGEST_TILT * jnp.tanh(t) * jnp.tanh(phase / _PHASE_SCALE))

    z, slope = jax.jvp(contour, (nodes,), (jnp.ones_like(nodes),))
    overlap = jnp.real(jnp.exp(log_moment(z)) * slope / jnp.cosh(z))
    # ∫ 1/cosh = π: taking the difference node by node keeps small distances accurate.
    value = jnp.sum(weights * (1 / jnp.cosh(nodes) - overlap))
    return jnp.where(collapsed, 1.0, jnp.clip(value, 0, 1))


def _as_laws(p: Law, q: Law) -> tuple[GaussianLaw, GaussianLaw]:
    dtype = jnp.result_type(float, *p, *q)
    p, q = (GaussianLaw(*(jnp.asarray(part, dtype) for part in law)) for law in (p, q))
    d = p.mean.size
    if p.mean.shape != (d,) or q.mean.shape != (d,) or p.covariance.shape != (d, d) or q.covariance.shape != (d, d):
        shapes = ", ".join(str(part.shape) for part in (*p, *q))
        raise ValueError(f"laws must be pairs (mean (d,), covariance (d, d)) of the same d, got shapes {shapes}")
    return p, q


def _whiten(p: GaussianLaw, q: GaussianLaw) -> tuple[Array, Array]:
    """In coordinates where q = N(0, I): a lower triangular factor of p's covariance, and p's mean."""
    both = jnp.concatenate([cholesky(p.covariance), (p.mean - q.mean)[:, None]], axis=1)
    whitened = solve_lower(cholesky(q.covariance), both)
    return whitened[:, :-1], whitened[:, -1]


def _unless_singular(p: GaussianLaw, q: GaussianLaw, value: Array, otherwise: float) -> Array:
    """`value`, or its limit as one law collapses onto a lower dimension while the other does not."""
    factors = [jnp.all(jnp.isfinite(cholesky(law.covariance))) for law in (p, q)]
    finite = jnp.all(jnp.isfinite(p.covariance)) & jnp.all(jnp.isfinite(q.covariance))
    return jnp.where(finite & (factors[0] ^ factors[1]), otherwise, value)
