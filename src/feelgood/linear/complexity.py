"""How many gradients a sampler needs for a given total variation, and how that grows with κ, d and 1/ε.

Theorem 2 rests on upper bounds: N = Θ̃(κ²d/ε²) for LMC and Θ̃(κ^{3/2}√d/ε) for ULMC. On Gaussian targets the sampler's
law is known, so N can be found rather than bounded, with the best step size and friction for each target. Exponents
measured here may be smaller than the theorem's: it holds for all smooth and strongly log-concave targets, ours are the
Gaussian ones that linear MDPs have.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from feelgood.checks import check_choice, check_count, check_positive
from feelgood.samplers import diagnostics
from feelgood.samplers.diagnostics import Kernel, total_variation_of_modes
from feelgood.typing import Array, Scalar


class Family(NamedTuple):
    """A sampler with one gradient per step.

    Attributes:
      kernel: `(step_size, friction) -> kernel` at inverse temperature 1.
      has_friction: whether the friction matters.
      exponents: the powers of κ, d and 1/ε in the theorem behind Theorem 2; None if no theorem covers the scheme.
    """

    kernel: Callable[[Array, Array], Kernel]
    has_friction: bool
    exponents: tuple[float, float, float] | None


SCHEMES: dict[str, Family] = {
    "lmc": Family(lambda tau, _: diagnostics.langevin_kernel(tau, 1.0), False, (2.0, 1.0, 2.0)),
    "ulmc": Family(lambda tau, gamma: diagnostics.underdamped_exact_kernel(tau, gamma, 1.0), True, (1.5, 0.5, 1.0)),
    "ulmc_euler": Family(lambda tau, gamma: diagnostics.underdamped_kernel(tau, gamma, 1.0), True, None),
    "baoab": Family(lambda tau, gamma: diagnostics.underdamped_splitting_kernel(tau, gamma, 1.0), True, None),
}
"""LMC; ULMC in closed form, the subject of Theorem 2; its Euler scheme, which the paper runs; and a splitting."""


class Need(NamedTuple):
    """The least number of gradients for a total variation, how to run the sampler, and the total variation reached."""

    num_gradients: int
    step_size: float
    friction: float
    total_variation: float


def spectrum(condition: Scalar, dimension: int) -> np.ndarray:
    """Curvatures from 1 to κ, equally spaced in the logarithm; all 1 in one dimension."""
    dimension = check_count("dimension", dimension)
    if not condition >= 1:
        raise ValueError(f"condition must be at least 1, got {condition}")
    return np.geomspace(1.0, float(condition), dimension)


def gradients_needed(
    scheme: Family,
    curvature: np.ndarray,
    offset: np.ndarray,
    target: Scalar,
    *,
    friction: Scalar | None = None,
    tolerance: Scalar = 0.01,
    limit: int = 10**7,
) -> Need:
    """The least J for which some step size (and friction) brings the sampler's law within `target` in total variation.

    Laws are exact, in float64. For each J, τ and γ are searched on a grid in the logarithm, over the stable ones, which
    closes in on its best point. The total variation is computed only at the points that are nearest in Hellinger's
    distance, which costs far less. J is found by doubling and bisection, as the minimum falls with J.

    Args:
      scheme: the sampler.
      curvature: eigenvalues of the precision, (d,), all positive.
      offset: offset of the starting point from the mean, in the same basis, (d,).
      target: ε in (0, 1).
      friction: γ; the best one if not given.
      tolerance: relative tolerance of J; 0 finds J itself.
      limit: the largest J tried.

    Examples:
      >>> need = gradients_needed(SCHEMES["lmc"], spectrum(10, 4), spectrum(10, 4) ** -0.5, 0.1, tolerance=0)
      >>> need.num_gradients
      38
    """
    check_positive("curvature", curvature)
    check_positive("target", target)
    if target >= 1:
        raise ValueError(f"target must be a total variation below 1, got {target}")
    curvature, offset = np.asarray(curvature, float), np.asarray(offset, float)
    smallest, largest = math.sqrt(curvature.min()), math.sqrt(curvature.max())
    steps = np.geomspace(1e-4, 2, _STEP_SIZES) / largest**2
    frictions = np.zeros(1) if friction is None else np.array([float(friction)])
    if scheme.has_friction:
        steps = np.geomspace(1e-4, 10, _STEP_SIZES) / largest
        if friction is None:
            frictions = np.geomspace(smallest / 4, 10 * largest, _FRICTIONS)
    low, high, need = 0, 1, Need(0, math.nan, math.nan, 1.0)
    with jax.enable_x64(True):
        for _ in range(_ROUNDS):
            candidates = _candidates(scheme, curvature, steps, frictions)
            while need.total_variation > target:
                if high > limit:
                    raise ValueError(f"target {target} is not reached within limit={limit} gradients")
                need = _best(candidates, curvature, offset, high)
                low, high = (high, 2 * high) if need.total_variation > target else (low, high)
            while high - low > max(1, tolerance * high):
                middle = (low + high) // 2
                attempt = _best(candidates, curvature, offset, middle)
                if attempt.total_variation <= target:
                    high, need = middle, attempt
                else:
                    low = middle
            steps = _around(need.step_size, steps)
            frictions = _around(need.friction, frictions)
            # A finer grid around the best point does no worse there, and may do with less.
            low = max(high // 2 - 1, 0)
    return need


def sweep(
    schemes: Iterable[str] = tuple(SCHEMES),
    *,
    conditions: Iterable[Scalar] = (10, 30, 100, 300, 1000),
    dimensions: Iterable[int] = (4, 8, 16, 32, 64),
    errors: Iterable[Scalar] = (0.2, 0.1, 0.05, 0.025, 0.0125),
    base: tuple[Scalar, int, Scalar] = (100, 8, 0.1),
    shift: Scalar = 1.0,
    friction: Scalar | None = None,
    tolerance: Scalar = 0.01,
) -> list[dict[str, Any]]:
    """Gradients needed if one of κ, d and ε varies and the others stay at `base`.

    Curvatures are those of `spectrum`. Every chain starts `shift` standard deviations of the target away from its mean
    in each eigendirection. This imitates a warm start from the previous episode's draw when the posterior has changed
    little.
    `friction` is in units of √M, as in Theorem 2; the best one for each setting if not given.

    Returns:
      One row per scheme and setting: scheme, varied ("condition", "dimension" or "error"), condition, dimension, error,
      num_gradients, step_size, friction, total_variation.
    """
    condition, dimension, error = base
    settings = [("condition", (value, dimension, error)) for value in conditions]
    settings += [("dimension", (condition, value, error)) for value in dimensions]
    settings += [("error", (condition, dimension, value)) for value in errors]
    rows: list[dict[str, Any]] = []
    for name in schemes:
        check_choice("schemes", name, SCHEMES)
        needs: dict[tuple[Scalar, int, Scalar], Need] = {}
        for varied, setting in settings:
            if setting not in needs:
                curvature = spectrum(setting[0], setting[1])
                needs[setting] = gradients_needed(
                    SCHEMES[name],
                    curvature,
                    shift / np.sqrt(curvature),
                    setting[2],
                    friction=None if friction is None else friction * math.sqrt(curvature.max()),
                    tolerance=tolerance,
                )
            labels = dict(zip(("condition", "dimension", "error"), setting, strict=True))
            rows.append({"scheme": name, "varied": varied} | labels | needs[setting]._asdict())
    return rows


def exponents(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The powers of κ, d and 1/ε with which the gradients of a `sweep` grow, by least squares in the logarithms.

    Returns:
      One row per scheme and varied quantity: scheme, varied, exponent, low and high (a 95% confidence interval, of
      Student's t for the scatter about the line, which is curvature rather than noise), and theorem, the exponent of
      Theorem 2 or None.
    """
    results = []
    for name in dict.fromkeys(row["scheme"] for row in rows):
        for index, varied in enumerate(("condition", "dimension", "error")):
            chosen = [row for row in rows if row["scheme"] == name and row["varied"] == varied]
            if len(chosen) < 3:
                continue
            x = np.log([float(row[varied]) for row in chosen]) * (-1 if varied == "error" else 1)
            fit = stats.linregress(x, np.log([row["num_gradients"] for row in chosen]))
            margin = stats.t.ppf(0.975, len(chosen) - 2) * fit.stderr
            theorem = SCHEMES[name].exponents
            row = {"scheme": name, "varied": varied, "exponent": float(fit.slope)}
            row |= {"low": float(fit.slope - margin), "high": float(fit.slope + margin)}
            results.append(row | {"theorem": None if theorem is None else theorem[index]})
    return results


def _around(centre: float, grid: np.ndarray) -> np.ndarray:
    """As many points, between the fourth neighbours of `centre` on a geometric grid; `centre` is one of them."""
    if grid.size == 1:
        return grid
    ratio = (grid[1] / grid[0]) ** 4
    return centre * np.geomspace(1 / ratio, ratio, grid.size)


# The search for the best step size and friction: points per axis over a range of a few decades; each further
# round looks around the last one's best.
_STEP_SIZES, _FRICTIONS, _ROUNDS = 81, 33, 3
_NUM_EXACT = 4


class _Candidates(NamedTuple):
    """Stable choices of τ and γ, (n,), and their modes' eigenvalues, matrices and stationary covariances, (n, d, …)."""

    step_size: np.ndarray
    friction: np.ndarray
    roots: tuple[np.ndarray, np.ndarray]
    matrix: np.ndarray
    stationary: np.ndarray


def _candidates(scheme: Family, curvature: np.ndarray, step_sizes: np.ndarray, frictions: np.ndarray) -> _Candidates:
    step_sizes, frictions = (axis.ravel() for axis in np.meshgrid(step_sizes, frictions, indexing="ij"))
    affine = jax.vmap(lambda step_size, friction: scheme.kernel(step_size, friction).affine(jnp.asarray(curvature)))
    matrix, noise = (np.asarray(part) for part in affine(jnp.asarray(step_sizes), jnp.asarray(frictions)))
    centre = (matrix[..., 0, 0] + matrix[..., 1, 1]) / 2
    square = ((matrix[..., 0, 0] - matrix[..., 1, 1]) / 2) ** 2 + matrix[..., 0, 1] * matrix[..., 1, 0]
    # Eigenvalues that agree are parted by far less than matters.
    square = np.where(np.abs(square) < 1e-14, 1e-14, square).astype(complex)
    roots = centre + np.sqrt(square), centre - np.sqrt(square)
    stable = np.all(np.maximum(np.abs(roots[0]), np.abs(roots[1])) < 1 - 1e-9, axis=1)
    matrix, noise, roots = matrix[stable], noise[stable], (roots[0][stable], roots[1][stable])
    doubled = np.einsum("...ij,...kl->...ikjl", matrix, matrix).reshape(*matrix.shape[:-2], 4, 4)
    stationary = np.linalg.solve(np.eye(4) - doubled, noise.reshape(*noise.shape[:-2], 4, 1))
    return _Candidates(step_sizes[stable], frictions[stable], roots, matrix, stationary.reshape(matrix.shape))


def _laws(candidates: _Candidates, curvature: np.ndarray, offset: np.ndarray, num_steps: int):
    """Shift and scale of each mode where the target is N(0, 1), from Aⁿ and Q_n = S − Aⁿ S Aⁿᵀ.

    With the eigenvalues p and q, Aⁿ = ½(pⁿ + qⁿ) I + (pⁿ − qⁿ)/(p − q) · (A − ½(p + q) I); its first row is needed.
    """
    first, second = (root**num_steps for root in candidates.roots)
    ratio = np.real((first - second) / (candidates.roots[0] - candidates.roots[1]))
    matrix, stationary = candidates.matrix, candidates.stationary
    half_difference = (matrix[..., 0, 0] - matrix[..., 1, 1]) / 2
    gain, cross = np.real(first + second) / 2 + ratio * half_difference, ratio * matrix[..., 0, 1]
    kept = gain**2 * stationary[..., 0, 0] + cross**2 * stationary[..., 1, 1]
    kept += 2 * gain * cross * stationary[..., 0, 1]
    variance = np.maximum(stationary[..., 0, 0] - kept, 0)
    return np.sqrt(curvature) * gain * offset, np.sqrt(curvature * variance)


def _best(candidates: _Candidates, curvature: np.ndarray, offset: np.ndarray, num_steps: int) -> Need:
    """The least total variation, among the candidates that are nearest in Hellinger's distance."""
    shift, scale = _laws(candidates, curvature, offset, num_steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.sum(np.log1p((scale - 1) ** 2 / (2 * scale)) / 2 + shift**2 / (4 * (1 + scale**2)), axis=1)
    distance = np.where(np.isnan(distance), np.inf, distance)
    nearest = np.argsort(distance)[:_NUM_EXACT]
    nearest = np.pad(nearest, (0, _NUM_EXACT - nearest.size), mode="edge")
    variations = np.asarray(_variations(shift[nearest], scale[nearest]))
    chosen = nearest[np.argmin(variations)]
    return Need(
        num_steps, float(candidates.step_size[chosen]), float(candidates.friction[chosen]), float(variations.min())
    )


_variations = jax.jit(jax.vmap(total_variation_of_modes))
