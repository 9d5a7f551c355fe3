"""The laws are compared with the update equations themselves, written once more in plain NumPy."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from feelgood.samplers.diagnostics import (
    GaussianLaw,
    adaptive_underdamped_kernel,
    langevin_kernel,
    law_after,
    spectral_radius,
    stationary_law,
    target_law,
    underdamped_exact_kernel,
    underdamped_kernel,
    underdamped_splitting_kernel,
)

TAU, GAMMA, BETA = 0.3, 1.3, 2.0
MEAN = np.array([0.5, -1.0, 2.0])
PRECISION = np.array([[2.0, 0.6, -0.3], [0.6, 1.2, 0.4], [-0.3, 0.4, 0.7]])
START = np.array([1.0, 0.0, -1.5])
START_COVARIANCE = np.array([[0.5, 0.2, 0.1], [0.2, 0.4, -0.1], [0.1, -0.1, 0.3]])
MOMENTUM = (np.array([0.3, -0.2, 0.8]), np.array([[0.3, -0.1, 0.0], [-0.1, 0.6, 0.2], [0.0, 0.2, 0.2]]))


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


def gradient(w):
    return (w - MEAN) @ PRECISION


def langevin(w, v, xi, eta):
    return w - TAU * gradient(w) + math.sqrt(2 * TAU / BETA) * xi, 0 * v


def euler(w, v, xi, eta):
    noise = math.sqrt(2 * GAMMA * TAU / BETA) * xi
    return w + TAU * v, v - TAU * gradient(w) - GAMMA * TAU * v + noise


def exact(w, v, xi, eta):
    x = GAMMA * TAU
    decay = math.exp(-x)
    var_v = (1 - decay**2) / BETA
    cov = (1 - decay) ** 2 / (GAMMA * BETA)
    var_w = (2 * x - 3 + 4 * decay - decay**2) / (GAMMA**2 * BETA)
    noise_w = math.sqrt(var_w) * xi
    noise_v = cov / math.sqrt(var_w) * xi + math.sqrt(var_v - cov**2 / var_w) * eta
    g = gradient(w)
    new_w = w + (1 - decay) / GAMMA * v - (x - 1 + decay) / GAMMA**2 * g + noise_w
    return new_w, decay * v - (1 - decay) / GAMMA * g + noise_v


def thermostat(v, xi, time=TAU):
    return math.exp(-GAMMA * time) * v + math.sqrt((1 - math.exp(-2 * GAMMA * time)) / BETA) * xi


def baoab(w, v, xi, eta):
    v = v - TAU * gradient(w)
    w = w + TAU / 2 * v
    v = thermostat(v, xi)
    return w + TAU / 2 * v, v


def obabo(w, v, xi, eta):
    g = gradient(w)
    v = v - TAU / 2 * g
    v = thermostat(v, xi)
    v = v - TAU / 2 * g
    return w + TAU * v, v


def baoab_in_its_usual_order(w, v, xi, eta):
    v = v - TAU / 2 * gradient(w)
    w = w + TAU / 2 * v
    v = thermostat(v, xi)
    w = w + TAU / 2 * v
    return w, v - TAU / 2 * gradient(w)


def obabo_in_its_usual_order(w, v, xi, eta):
    v = thermostat(v, xi, TAU / 2)
    v = v - TAU / 2 * gradient(w)
    w = w + TAU * v
    v = v - TAU / 2 * gradient(w)
    return w, thermostat(v, eta, TAU / 2)


def adaptive_momentum(w, v, xi, eta):
    v = (1 - GAMMA * TAU) * v - TAU * gradient(w) + math.sqrt(2 * GAMMA * TAU / BETA) * xi
    return w + TAU * v, v


def adaptive_params(w, v, xi, eta):
    v = (1 - GAMMA * TAU) * v - TAU * gradient(w)
    return w + TAU * v + math.sqrt(2 * GAMMA * TAU / BETA) * xi, v


FACTORIES = {
    "langevin": lambda tau: langevin_kernel(tau, BETA),
    "euler": lambda tau: underdamped_kernel(tau, GAMMA, BETA),
    "exact": lambda tau: underdamped_exact_kernel(tau, GAMMA, BETA),
    "BAOAB": lambda tau: underdamped_splitting_kernel(tau, GAMMA, BETA, "BAOAB"),
    "OBABO": lambda tau: underdamped_splitting_kernel(tau, GAMMA, BETA, "OBABO"),
    "adaptive, noise in momentum": lambda tau: adaptive_underdamped_kernel(tau, GAMMA, BETA, "momentum"),
    "adaptive, noise in params": lambda tau: adaptive_underdamped_kernel(tau, GAMMA, BETA, "params"),
}
UPDATES = dict(zip(FACTORIES, (langevin, euler, exact, baoab, obabo, adaptive_momentum, adaptive_params), strict=True))
every_sampler = pytest.mark.parametrize("name", FACTORIES)


def affine_form(update):
    """Reads z' = A z + c + G ξ off an update by feeding it unit vectors."""
    d = len(MEAN)

    def apply(z, noise):
        return np.concatenate(update(z[:d], z[d:], noise[:d], noise[d:]))

    zero = np.zeros(2 * d)
    constant = apply(zero, zero)
    matrix = np.stack([apply(unit, zero) - constant for unit in np.eye(2 * d)], axis=1)
    gain = np.stack([apply(zero, unit) - constant for unit in np.eye(2 * d)], axis=1)
    return matrix, constant, gain @ gain.T


def looped_law(update, num_steps):
    matrix, constant, noise = affine_form(update)
    mean = np.concatenate([START, MOMENTUM[0]])
    covariance = scipy.linalg.block_diag(START_COVARIANCE, MOMENTUM[1])
    for _ in range(num_steps):
        mean = matrix @ mean + constant
        covariance = matrix @ covariance @ matrix.T + noise
    return mean[:3], covariance[:3, :3]


def our_law(kernel, num_steps):
    return law_after(kernel, MEAN, PRECISION, num_steps, START, START_COVARIANCE, GaussianLaw(*MOMENTUM))


@every_sampler
@pytest.mark.parametrize("num_steps", [0, 1, 2, 3, 7, 100])
def test_law_after_n_steps_is_that_of_n_updates_one_by_one(name, num_steps):
    law = our_law(FACTORIES[name](TAU), num_steps)
    mean, covariance = looped_law(UPDATES[name], num_steps)
    np.testing.assert_allclose(law.mean, mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(law.covariance, covariance, rtol=1e-12, atol=1e-12)


@every_sampler
def test_a_start_at_a_point_at_rest_is_the_default(name):
    kernel = FACTORIES[name](TAU)
    zero = np.zeros((3, 3))
    explicit = law_after(kernel, MEAN, PRECISION, 5, START, zero, GaussianLaw(np.zeros(3), zero))
    implicit = law_after(kernel, MEAN, PRECISION, 5, START)
    np.testing.assert_allclose(implicit.mean, explicit.mean, rtol=0, atol=1e-15)
    np.testing.assert_allclose(implicit.covariance, explicit.covariance, rtol=0, atol=1e-15)


@every_sampler
def test_simulated_chains_follow_the_law(name):
    num_chains, num_steps = 100_000, 6
    rng = np.random.default_rng(0)
    w = rng.multivariate_normal(START, START_COVARIANCE, num_chains)
    v = rng.multivariate_normal(*MOMENTUM, num_chains)
    for _ in range(num_steps):
        w, v = UPDATES[name](w, v, rng.normal(size=w.shape), rng.normal(size=w.shape))
    law = our_law(FACTORIES[name](TAU), num_steps)
    covariance = np.asarray(law.covariance)
    variance = np.diag(covariance)
    mean_error = np.sqrt(variance / num_chains)
    covariance_error = np.sqrt((np.outer(variance, variance) + covariance**2) / num_chains)
    # 63 comparisons over the samplers: 4.5 standard errors are exceeded by chance in 1 of 2000 such runs.
    assert np.all(np.abs(w.mean(0) - law.mean) < 4.5 * mean_error)
    assert np.all(np.abs(np.cov(w.T) - covariance) < 4.5 * covariance_error)


@every_sampler
def test_stationary_law_solves_the_lyapunov_equation_of_the_updates(name):
    matrix, _, noise = affine_form(UPDATES[name])
    expected = scipy.linalg.solve_discrete_lyapunov(matrix, noise)[:3, :3]
    law = stationary_law(FACTORIES[name](TAU), MEAN, PRECISION)
    np.testing.assert_allclose(law.mean, MEAN)
    np.testing.assert_allclose(law.covariance, expected, rtol=1e-11, atol=1e-12)


@every_sampler
def test_law_after_many_steps_is_the_stationary_law(name):
    kernel = FACTORIES[name](TAU)
    after, settled = our_law(kernel, 10**6), stationary_law(kernel, MEAN, PRECISION)
    np.testing.assert_allclose(after.mean, settled.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(after.covariance, settled.covariance, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("scheme", "update"), [("BAOAB", baoab_in_its_usual_order), ("OBABO", obabo_in_its_usual_order)]
)
def test_starting_the_cycle_elsewhere_does_not_change_the_law_of_positions(scheme, update):
    matrix, _, noise = affine_form(update)
    usual = scipy.linalg.solve_discrete_lyapunov(matrix, noise)[:3, :3]
    law = stationary_law(underdamped_splitting_kernel(TAU, GAMMA, BETA, scheme), MEAN, PRECISION)
    np.testing.assert_allclose(law.covariance, usual, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("langevin", lambda p: 1 / (BETA * p * (1 - TAU * p / 2))),
        ("OBABO", lambda p: 1 / (BETA * p * (1 - TAU**2 * p / 4))),
        ("BAOAB", lambda p: 1 / (BETA * p)),
    ],
)
def test_stationary_variance_has_its_closed_form(name, variance):
    curvature, basis = np.linalg.eigh(PRECISION)
    expected = basis @ np.diag(variance(curvature)) @ basis.T
    law = stationary_law(FACTORIES[name](TAU), MEAN, PRECISION)
    np.testing.assert_allclose(law.covariance, expected, rtol=1e-12, atol=1e-13)


def test_target_is_normal_with_covariance_one_over_beta_times_precision():
    law = target_law(MEAN, PRECISION, BETA)
    np.testing.assert_allclose(law.mean, MEAN)
    np.testing.assert_allclose(law.covariance, np.linalg.inv(PRECISION) / BETA, rtol=1e-13, atol=1e-14)


@every_sampler
@pytest.mark.parametrize("num_steps", [1, 2, 50])
def test_covariances_are_symmetric_and_positive_semidefinite(name, num_steps):
    kernel = FACTORIES[name](TAU)
    laws = [our_law(kernel, num_steps), law_after(kernel, MEAN, PRECISION, num_steps, START)]
    for law in [*laws, stationary_law(kernel, MEAN, PRECISION)]:
        covariance = np.asarray(law.covariance)
        assert np.array_equal(covariance, covariance.T)
        assert np.linalg.eigvalsh(covariance).min() >= -1e-15 * np.abs(covariance).max()


@every_sampler
def test_spectral_radius_is_that_of_the_updates(name):
    eigenvalues = np.linalg.eigvals(affine_form(UPDATES[name])[0])
    np.testing.assert_allclose(spectral_radius(FACTORIES[name](TAU), PRECISION), np.abs(eigenvalues).max(), rtol=1e-12)


def test_unstable_samplers_still_have_a_law_after_a_few_steps():
    law = law_after(langevin_kernel(1e3, 1.0), np.zeros(1), np.eye(1), 3, np.ones(1))
    np.testing.assert_allclose(law.mean, (1 - 1e3) ** 3)
    np.testing.assert_allclose(law.covariance, 2e3 * (1 + 999.0**2 + 999.0**4))


def test_without_noise_the_law_stays_a_point():
    law = law_after(langevin_kernel(TAU, np.inf), MEAN, PRECISION, 10, START)
    np.testing.assert_array_equal(law.covariance, np.zeros((3, 3)))


def test_number_of_steps_and_step_size_can_be_traced():
    steps, taus = jnp.array([0, 1, 5, 1000]), jnp.array([0.1, 0.2, 0.3, 0.4])

    @jax.jit
    @jax.vmap
    def covariances(num_steps, tau):
        return law_after(underdamped_kernel(tau, GAMMA, BETA), MEAN, PRECISION, num_steps, START).covariance

    expected = [
        law_after(underdamped_kernel(float(tau), GAMMA, BETA), MEAN, PRECISION, int(n), START).covariance
        for n, tau in zip(steps, taus, strict=True)
    ]
    np.testing.assert_allclose(covariances(steps, taus), np.stack(expected), rtol=0, atol=1e-13)


@pytest.mark.parametrize("tau", [TAU, 5.0])
def test_laws_can_be_differentiated_in_the_step_size_whether_stable_or_not(tau):
    @jax.jit
    def variance(tau):
        return law_after(langevin_kernel(tau, BETA), MEAN, PRECISION, 9, START).covariance[0, 0]

    difference = (variance(tau + 1e-5) - variance(tau - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.jit(jax.grad(variance))(tau), difference, rtol=1e-7)


def test_single_precision_in_gives_single_precision_out():
    mean, precision, start = (jnp.asarray(array, jnp.float32) for array in (MEAN, PRECISION, START))
    kernel = FACTORIES["exact"](TAU)
    for law in (law_after(kernel, mean, precision, 20, start), stationary_law(kernel, mean, precision)):
        assert law.mean.dtype == law.covariance.dtype == jnp.float32
    expected = stationary_law(kernel, MEAN, PRECISION).covariance
    np.testing.assert_allclose(stationary_law(kernel, mean, precision).covariance, expected, rtol=0, atol=2e-5)
