"""Single steps: the exact one against matrix exponentials, and the largest stable step of each sampler."""

import functools
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from feelgood.samplers.diagnostics import (
    adaptive_underdamped_kernel,
    langevin_kernel,
    largest_stable_step,
    law_after,
    spectral_radius,
    stationary_law,
    target_law,
    total_variation_of_modes,
    underdamped_exact_kernel,
    underdamped_kernel,
    underdamped_splitting_kernel,
)

TAU, GAMMA, BETA = 0.3, 1.3, 2.0
MEAN = np.array([0.5, -1.0, 2.0])
PRECISION = np.array([[2.0, 0.6, -0.3], [0.6, 1.2, 0.4], [-0.3, 0.4, 0.7]])
FACTORIES = {
    "langevin": lambda tau: langevin_kernel(tau, BETA),
    "euler": lambda tau: underdamped_kernel(tau, GAMMA, BETA),
    "exact": lambda tau: underdamped_exact_kernel(tau, GAMMA, BETA),
    "BAOAB": lambda tau: underdamped_splitting_kernel(tau, GAMMA, BETA, "BAOAB"),
    "OBABO": lambda tau: underdamped_splitting_kernel(tau, GAMMA, BETA, "OBABO"),
    "adaptive, noise in momentum": lambda tau: adaptive_underdamped_kernel(tau, GAMMA, BETA, "momentum"),
    "adaptive, noise in params": lambda tau: adaptive_underdamped_kernel(tau, GAMMA, BETA, "params"),
}


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("x", [1e-8, 1e-5, 1e-3, 0.1, 0.9, 1.0, 1.1, 3.0, 20.0])
@pytest.mark.parametrize("tau", [1.0, 0.01])
def test_exact_step_agrees_with_matrix_exponentials(x, tau):
    p = 1.7
    a, q = underdamped_exact_kernel(tau, x / tau, BETA).affine(jnp.array([p]))
    # In the time unit τ, for (position, momentum·τ, frozen position).
    units = np.array([1, tau])
    drift = np.array([[0, 1, 0], [0, -x, -p * tau**2], [0, 0, 0]])
    flow = scipy.linalg.expm(drift)
    expected = np.array([[flow[0, 0] + flow[0, 2], flow[0, 1]], [flow[1, 0] + flow[1, 2], flow[1, 1]]])
    np.testing.assert_allclose(np.asarray(a[0]) * units[:, None] / units, expected, rtol=1e-12)
    # Van Loan: expm([[−F, D], [0, Fᵀ]]) = [[·, H], [0, Gᵀ]] gives the covariance G H, which cancels for large x.
    f, diffusion = drift[:2, :2], np.diag([0, 2 * x * tau**2 / BETA])
    block = scipy.linalg.expm(np.block([[-f, diffusion], [np.zeros((2, 2)), f.T]]))
    if x < 5:
        expected = block[2:, 2:].T @ block[:2, 2:]
        np.testing.assert_allclose(np.asarray(q[0]) * np.outer(units, units), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "x", [Fraction(1, 10**8), Fraction(1, 100), Fraction(999, 1000), Fraction(1001, 1000), Fraction(9)]
)
def test_noise_of_the_exact_step_has_full_relative_precision(x):
    decay = sum((-x) ** k / Fraction(math.factorial(k)) for k in range(60))
    _, q = underdamped_exact_kernel(1.0, float(x), 1.0).affine(jnp.array([1.0]))
    expected = [(2 * x - 3 + 4 * decay - decay**2) / x**2, (1 - decay) ** 2 / x, 1 - decay**2]
    np.testing.assert_allclose([q[0, 0, 0], q[0, 0, 1], q[0, 1, 1]], [float(e) for e in expected], rtol=3e-15)


CURVATURE = float(np.linalg.eigvalsh(PRECISION)[-1])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("langevin", 2 / CURVATURE),
        ("euler", GAMMA / CURVATURE),
        ("exact", None),
        ("BAOAB", 2 / math.sqrt(CURVATURE)),
        ("OBABO", 2 / math.sqrt(CURVATURE)),
        ("adaptive, noise in momentum", (math.sqrt(GAMMA**2 + 4 * CURVATURE) - GAMMA) / CURVATURE),
    ],
)
def test_stability_ends_at_the_largest_stable_step(name, expected):
    step = float(jax.jit(functools.partial(largest_stable_step, FACTORIES[name]))(PRECISION))
    if expected is not None:
        np.testing.assert_allclose(step, expected, rtol=1e-12)
    below, above = FACTORIES[name](step * (1 - 1e-6)), FACTORIES[name](step * (1 + 1e-6))
    assert spectral_radius(below, PRECISION) < 1 < spectral_radius(above, PRECISION)
    assert np.isfinite(stationary_law(below, MEAN, PRECISION).covariance).all()
    assert np.isnan(stationary_law(above, MEAN, PRECISION).covariance).all()


@pytest.mark.parametrize("friction", [1e3, 1e9, 1e15])
def test_the_exact_scheme_at_large_friction_is_stable_up_to_twice_friction_over_curvature(friction):
    # For γτ ≫ 1 the matrix is [[1 − τp/γ + p/γ², 1/γ], [−p/γ, 0]], with an eigenvalue of −1 at τ = 2γ/p + 2/γ.
    curvature = np.float32(4.0)
    precision = curvature * np.eye(1, dtype=np.float32)
    step = largest_stable_step(lambda tau: underdamped_exact_kernel(tau, friction, 1.0), precision)
    assert step.dtype == np.float32
    np.testing.assert_allclose(step, 2 * friction / curvature + 2 / friction, rtol=1e-5)


def test_explicit_euler_without_friction_is_never_stable():
    assert largest_stable_step(lambda tau: underdamped_kernel(tau, 0.0, BETA), PRECISION) == 0


@pytest.mark.parametrize("curvature", [0.0, 1e-15])
def test_there_is_no_stationary_law_where_the_potential_is_flat_up_to_rounding(curvature):
    flat = np.diag([1.0, 0.5, curvature])
    for name in FACTORIES:
        assert np.isnan(stationary_law(FACTORIES[name](TAU), MEAN, flat).covariance).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: langevin_kernel(-1.0, 1.0), "step_size must be positive and finite, got -1.0"),
        (lambda: underdamped_kernel(0.1, -1.0, 1.0), "friction must be non-negative and finite, got -1.0"),
        (lambda: law_after(langevin_kernel(0.1, 1.0), MEAN, PRECISION, -1, MEAN), "num_steps must be a whole number"),
        (lambda: target_law(MEAN, np.ones(3), 1.0), "precision must be a square matrix, got shape (3,)"),
        (lambda: target_law(MEAN, PRECISION, 0.0), "inverse_temperature must be positive (infinity allowed), got 0.0"),
        (lambda: target_law(np.ones(2), PRECISION, 1.0), "mean must have shape (3,), as precision has, got shape (2,)"),
        (lambda: stationary_law(langevin_kernel(0.1, 1.0), np.ones(2), PRECISION), "mean must have shape (3,)"),
        (
            lambda: law_after(langevin_kernel(0.1, 1.0), MEAN, PRECISION, 1, np.ones((3, 1))),
            "initial_mean must have shape (3,), as precision has, got shape (3, 1)",
        ),
        (
            lambda: total_variation_of_modes(jnp.zeros(3), jnp.ones(2)),
            "shift and scale must have the same shape (d,), got shapes (3,) and (2,)",
        ),
    ],
)
def test_wrong_input_is_named_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")):
        call()
