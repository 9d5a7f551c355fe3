"""How far a chain's law is from the posterior, round by round and exact.

Without a feel-good term the potential of every round is quadratic, so K steps of LMC, ULMC or BAOAB map a normal law to
a normal law. The law is carried through the potentials that a run has met, from N(0, I) before the first round. The
data of the run are taken as given: this is the law over the chain's own noise.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag

from feelgood.samplers.diagnostics import Kernel, total_variation


class SamplingError(NamedTuple):
    """One entry per marked round.

    Attributes:
      rounds: rewards seen.
      total_variation: total variation between the chain's law and the posterior N(m, Λ⁻¹/β), all groups together.
      wasserstein: their 2-Wasserstein distance, in units of the posterior's own spread √(tr Λ⁻¹/β).
    """

    rounds: np.ndarray
    total_variation: np.ndarray
    wasserstein: np.ndarray


def largest_eigenvalue(precision: np.ndarray) -> np.ndarray:
    """M of every round, (T,), from precisions (T, G, k, k)."""
    return np.linalg.eigvalsh(precision).max((1, 2))


def sampling_error(
    precision: ArrayLike,
    mean: ArrayLike,
    kernel: Callable[[float, float], Kernel],
    num_steps: int,
    temperature: float,
    marks: ArrayLike,
    *,
    preconditioned: bool = False,
) -> SamplingError:
    """Carries the law of a chain through the potentials of one run.

    Args:
      precision: Λ of every round, (T, G, k, k).
      mean: m of every round, (T, G, k).
      kernel: `(t, M) -> Kernel` for round t = 1, 2, … and largest curvature M.
      num_steps: K.
      temperature: 1/β of the target.
      marks: rounds at which distances are computed, whole numbers from 0 to T − 1.
      preconditioned: whether the chain runs on z = Lᵀ(θ − m), where all curvatures are 1.

    Returns:
      The distances, in float64.
    """
    precision, mean = np.asarray(precision, float), np.asarray(mean, float)
    rounds, groups, k = mean.shape
    largest = np.ones(rounds) if preconditioned else largest_eigenvalue(precision)
    law_mean = np.zeros((groups, 2 * k))
    law_covariance = np.zeros((groups, 2 * k, 2 * k))
    law_covariance[:, :k, :k] = np.eye(k)
    found = []
    wanted = set(np.asarray(marks).tolist())
    transitions, noises = _affine(precision, kernel, largest, num_steps, preconditioned)
    for t, (transition, noise) in enumerate(zip(transitions, noises, strict=True)):
        centre = np.concatenate([mean[t], np.zeros((groups, k))], -1)
        law_mean = centre + np.einsum("gij,gj->gi", transition, law_mean - centre)
        law_covariance = transition @ law_covariance @ transition.transpose(0, 2, 1) + noise
        if t in wanted:
            law = law_mean[:, :k], law_covariance[:, :k, :k]
            found.append((t, *_distances(law, mean[t], temperature * np.linalg.inv(precision[t]))))
    return SamplingError(*(np.array(column) for column in zip(*found, strict=True)))


def _affine(
    precision: np.ndarray,
    kernel: Callable[[float, float], Kernel],
    largest: np.ndarray,
    num_steps: int,
    preconditioned: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """The affine map of K steps on (θ − m, momentum) in every round and group, (T, G, 2k, 2k), and its noise."""
    rounds, groups, k, _ = precision.shape
    if preconditioned:
        factor = np.linalg.cholesky(precision)
        to, back = factor.swapaxes(-1, -2), np.linalg.inv(factor).swapaxes(-1, -2)
        curvature = np.ones((rounds, groups, k))
    else:
        curvature, back = np.linalg.eigh(precision)
        to = back.swapaxes(-1, -2)
    times = np.maximum(np.arange(rounds), 1)
    one = lambda t, m, p: kernel(t, m).affine(p)
    flat = (jnp.asarray(leaf, jnp.float32) for leaf in (times, largest, curvature.reshape(rounds, -1)))
    a, q = (np.asarray(part, float).reshape(rounds, groups, k, 2, 2) for part in jax.vmap(one)(*flat))
    power, total = np.broadcast_to(np.eye(2), a.shape), np.zeros_like(q)
    for _ in range(num_steps):
        power, total = a @ power, a @ total @ a.swapaxes(-1, -2) + q
    # A whitened chain keeps its momentum in z coordinates.
    same = np.broadcast_to(np.eye(k), to.shape)
    right, left = ([to, same], [back, same]) if preconditioned else ([to, to], [back, back])

    def blocks(modes: np.ndarray, outer) -> np.ndarray:
        rows = [[left[i] @ (modes[..., i, j, None] * outer[j]) for j in range(2)] for i in range(2)]
        return np.block(rows)

    return blocks(power, right), blocks(total, [side.swapaxes(-1, -2) for side in left])


def _distances(law, mean: np.ndarray, covariance: np.ndarray) -> tuple[float, float]:
    # Whitened by the posterior, so that float32 is accurate enough for badly conditioned ones.
    factor = np.linalg.cholesky(covariance)
    inverse = np.linalg.inv(factor)
    shift = np.einsum("gij,gj->gi", inverse, law[0] - mean)
    spread = inverse @ law[1] @ inverse.transpose(0, 2, 1)
    ours = jnp.asarray(shift.reshape(-1), jnp.float32), jnp.asarray(block_diag(*spread), jnp.float32)
    variation = float(_variation(ours, (jnp.zeros(shift.size), jnp.eye(shift.size))))
    squared = sum(_wasserstein2_squared(m, s, n, c) for m, s, n, c in zip(*law, mean, covariance, strict=True))
    return variation, float(np.sqrt(squared / np.trace(covariance, axis1=1, axis2=2).sum()))


_variation = jax.jit(total_variation)


def _wasserstein2_squared(mean, covariance, other_mean, other_covariance) -> float:
    values, basis = np.linalg.eigh(other_covariance)
    root = basis * np.sqrt(values) @ basis.T
    cross = np.linalg.eigvalsh(root @ covariance @ root)
    trace = np.trace(covariance) + np.trace(other_covariance) - 2 * np.sum(np.sqrt(np.maximum(cross, 0)))
    return float(np.sum((mean - other_mean) ** 2) + max(trace, 0))
