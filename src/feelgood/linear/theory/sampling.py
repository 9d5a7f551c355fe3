"""Theorem 2: the number of sampling steps."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count, check_positive
from feelgood.linear.theory.regret import check_sizes
from feelgood.typing import Array, Scalar


class Curvature(NamedTuple):
    """The extreme eigenvalues m, M of a Hessian, and their ratio κ = M/m."""

    smallest: Array
    largest: Array
    condition: Array


class Schedule(NamedTuple):
    """How to run a sampler: step size τ, friction γ (zero if there is none) and number of steps N, of one shape."""

    step_size: np.ndarray
    friction: np.ndarray
    num_steps: np.ndarray


def curvature(gram: Array, loss_weight: Scalar, prior_precision: Scalar) -> Curvature:
    """The curvature of a stage's loss and prior, ∇²(L − ln p₀) = 2ηG + ρI.

    Theorem 2 requires it of the loss alone, which is flat in some direction until the features seen span the space. It
    also requires a loss without the feel-good term, whose kinks make stage 1 neither smooth nor convex.

    Args:
      gram: G = Σ_τ φ_τ φ_τᵀ, (d, d), positive semi-definite.
      loss_weight: η.
      prior_precision: ρ > 0; 1/(√d H) for the paper's prior.

    Examples:
      >>> m, M, condition = curvature(jnp.diag(jnp.array([0.0, 3.0])), loss_weight=0.5, prior_precision=0.5)
      >>> float(m), float(M), float(condition)
      (0.5, 3.5, 7.0)
    """
    check_positive("loss_weight", loss_weight)
    check_positive("prior_precision", prior_precision)
    # Rounding can push the eigenvalues of a singular G below zero, by more than ρ.
    extremes = jnp.maximum(jnp.linalg.eigvalsh(gram), 0)
    smallest = 2 * loss_weight * extremes[0] + prior_precision
    largest = 2 * loss_weight * extremes[-1] + prior_precision
    return Curvature(smallest, largest, largest / smallest)


def allowed_error(
    episodes: ArrayLike, dimension: int, horizon: int, num_episodes: int, constant: Scalar = 1.0
) -> np.ndarray:
    """The total variation that Theorem 2 grants each stage of episode k: ε_k = c · d √ln(dT) / (Hk).

    Above 1, as in the first d√ln(dT)/H episodes, it is no requirement.

    Examples:
      >>> allowed_error(np.array([1, 2, 4]), 4, 2, 100).round(3).tolist()  # 2 · √ln 800, divided by the episode
      [5.171, 2.585, 1.293]
    """
    check_sizes(dimension, horizon, num_episodes)
    episodes = check_count("episodes", episodes)
    log_term = math.sqrt(math.log(dimension * horizon * num_episodes))
    return np.asarray(constant * dimension * log_term / (horizon * np.asarray(episodes, float)))


def lmc_schedule(
    error: ArrayLike,
    dimension: int,
    smallest: ArrayLike,
    largest: ArrayLike,
    *,
    step_constant: Scalar = 1.0,
    steps_constant: Scalar = 1.0,
) -> Schedule:
    """Langevin Monte Carlo to total variation ε: τ = c ε²/(κMd), N = ⌈c' κ²d/ε²⌉.

    Args:
      error: ε > 0.
      dimension: d.
      smallest: m > 0.
      largest: M ≥ m.
      step_constant: c.
      steps_constant: c', which also stands for the logarithms in Θ̃.

    Examples:
      >>> schedule = lmc_schedule(0.1, 4, smallest=1.0, largest=2.0)
      >>> round(float(schedule.step_size), 6), int(schedule.num_steps)  # 0.01/(2·2·4) and 2²·4/0.01
      (0.000625, 1600)
    """
    epsilon, m, M = _check_spectrum(error, dimension, smallest, largest)
    condition = M / m
    step_size = step_constant * epsilon**2 / (condition * M * dimension)
    return Schedule(step_size, np.zeros_like(M), np.ceil(steps_constant * condition**2 * dimension / epsilon**2))


def ulmc_schedule(
    error: ArrayLike,
    dimension: int,
    smallest: ArrayLike,
    largest: ArrayLike,
    *,
    step_constant: Scalar = 1.0,
    friction_constant: Scalar = 1.0,
    steps_constant: Scalar = 1.0,
) -> Schedule:
    """Underdamped LMC in closed form, to total variation ε: τ = c ε√m/(M√d), γ = c'' √M, N = ⌈c' κ^{3/2} √d/ε⌉.

    The paper writes the first moment E‖w‖ for m in the step size, and Theorem 2 nothing at all. Only with the smallest
    curvature has τ the unit of a time, 1/√M, and Nτ = √M/m is the time the dynamics takes to mix. Its dynamics has +γP
    where −γP is meant.

    Args:
      error: ε > 0.
      dimension: d.
      smallest: m > 0.
      largest: M ≥ m.
      step_constant: c.
      friction_constant: c''.
      steps_constant: c', which also stands for the logarithms in Θ̃.

    Examples:
      >>> schedule = ulmc_schedule(0.1, 4, smallest=1.0, largest=4.0)
      >>> [round(float(x), 4) for x in schedule]  # 0.1·1/(4·2), √4 and 4^1.5·2/0.1
      [0.0125, 2.0, 160.0]
    """
    epsilon, m, M = _check_spectrum(error, dimension, smallest, largest)
    condition = M / m
    step_size = step_constant * epsilon * np.sqrt(m) / (M * math.sqrt(dimension))
    num_steps = np.ceil(steps_constant * condition**1.5 * math.sqrt(dimension) / epsilon)
    return Schedule(step_size, friction_constant * np.sqrt(M), num_steps)


def cumulative_steps(schedule: Schedule, horizon: int) -> float:
    """Cumulative sampling complexity SC = Σ_k Σ_h N_{k,h}, for schedules of shape (K,), alike at all stages, or (K, H).

    The paper defines SC = Σ_k J_k, which counts one of the H stages; its theorem sums over all of them, as here.

    Examples:
      >>> cumulative_steps(lmc_schedule(np.array([0.1, 0.2]), 4, 1.0, 2.0), horizon=3)  # 3 · (1600 + 400)
      6000.0
    """
    num_steps = np.asarray(schedule.num_steps, float)
    return float(num_steps.sum() * (horizon if num_steps.ndim < 2 else 1))


def _check_spectrum(
    error: ArrayLike, dimension: int, smallest: ArrayLike, largest: ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    check_positive("error", error)
    dimension = check_count("dimension", dimension)
    check_positive("smallest", smallest)
    arrays = np.broadcast_arrays(*(np.asarray(value, float) for value in (error, smallest, largest)))
    if np.any(arrays[2] < arrays[1]):
        raise ValueError(f"largest must be at least smallest, got {largest} and {smallest}")
    return arrays[0], arrays[1], arrays[2]
