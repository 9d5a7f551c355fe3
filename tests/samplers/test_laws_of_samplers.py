"""Every sampler on an ill-conditioned Gaussian against the law that the recursion predicts for its scheme."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from feelgood import samplers
from feelgood.samplers import diagnostics
from marks import fast_only

DIMENSION, BETA = 10, 2.0
EIGENVALUES = np.logspace(0, 1.2, DIMENSION)  # condition number 16: chains forget their start in a few hundred steps
ROTATION = np.linalg.qr(np.random.default_rng(0).normal(size=(DIMENSION, DIMENSION)))[0]
PRECISION = ROTATION @ np.diag(EIGENVALUES) @ ROTATION.T
MEAN = np.linspace(-1, 1, DIMENSION)


def potential(w):
    offset = w - jnp.asarray(MEAN, jnp.float32)
    return offset @ jnp.asarray(PRECISION, jnp.float32) @ offset / 2


def predicted(kernel):
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, diagnostics.stationary_law(kernel, jnp.asarray(MEAN), jnp.asarray(PRECISION)))


def target():
    return MEAN, np.linalg.inv(PRECISION) / BETA


d = diagnostics
# sampler, the law it is held against, steps to stationarity (the flattest direction forgets its start), chains.
# Steps are large for the steepest direction, so that the error of a scheme shows.
TABLE = {
    "langevin": (samplers.langevin(0.06, BETA), lambda: predicted(d.langevin_kernel(0.06, BETA)), 180, 8192),
    "adam_langevin_without_bias": (
        samplers.adam_langevin(0.06, BETA, bias_factor=0.0),
        lambda: predicted(d.langevin_kernel(0.06, BETA)),
        180,
        8192,
    ),
    "underdamped": (
        samplers.underdamped(0.05, 2.0, BETA),
        lambda: predicted(d.underdamped_kernel(0.05, 2.0, BETA)),
        300,
        8192,
    ),
    "underdamped_exact": (
        samplers.underdamped_exact(0.05, 2.0, BETA),
        lambda: predicted(d.underdamped_exact_kernel(0.05, 2.0, BETA)),
        300,
        8192,
    ),
    "underdamped_baoab": (
        samplers.underdamped_splitting(0.25, 2.0, BETA),
        lambda: predicted(d.underdamped_splitting_kernel(0.25, 2.0, BETA, scheme="BAOAB")),
        80,
        8192,
    ),
    "underdamped_obabo": (
        samplers.underdamped_splitting(0.25, 2.0, BETA, scheme="OBABO"),
        lambda: predicted(d.underdamped_splitting_kernel(0.25, 2.0, BETA, scheme="OBABO")),
        80,
        8192,
    ),
    "adaptive_underdamped_noise_in_momentum": (
        samplers.adaptive_underdamped(0.25, 2.0, BETA, bias_factor=0.0),
        lambda: predicted(d.adaptive_underdamped_kernel(0.25, 2.0, BETA, noise_in="momentum")),
        80,
        8192,
    ),
    "adaptive_underdamped_noise_in_params": (
        samplers.adaptive_underdamped(0.25, 2.0, BETA, bias_factor=0.0, noise_in="params"),
        lambda: predicted(d.adaptive_underdamped_kernel(0.25, 2.0, BETA, noise_in="params")),
        80,
        8192,
    ),
    "mala": (samplers.mala(0.03, BETA), target, 250, 4096),
    # Ten frequencies turn by 0.6 to 2.3: none comes near a multiple of π, where HMC does not mix.
    "hmc": (samplers.hmc(0.113, 5, BETA, jitter=0.0), target, 70, 8192),
    "proximal": (samplers.proximal(0.009, BETA), target, 250, 1024),
    "exact_gaussian": (
        samplers.exact_gaussian(jnp.asarray(MEAN, jnp.float32), jnp.asarray(PRECISION, jnp.float32), BETA),
        target,
        1,
        8192,
    ),
    "exact_feel_good_without_weight": (
        samplers.exact_feel_good(
            jnp.asarray(MEAN, jnp.float32), jnp.asarray(PRECISION, jnp.float32), jnp.eye(3, 10), 0.0, BETA
        ),
        target,
        1,
        8192,
    ),
}


# Laws that are known in another way too.
CLOSED_FORMS = {
    "langevin": (MEAN, ROTATION @ np.diag(1 / (BETA * EIGENVALUES * (1 - 0.06 * EIGENVALUES / 2))) @ ROTATION.T)
}


# The law of the proximal sampler is also checked in test_invariance and test_metropolis.
@pytest.mark.parametrize("name", fast_only([name for name in TABLE if name != "proximal"], TABLE))
def test_mean_and_covariance_match_the_predicted_law(name, optimised_jit):
    sampler, law, num_steps, num_chains = TABLE[name]
    run = jax.vmap(lambda k: samplers.sample(k, sampler, potential, jnp.zeros(DIMENSION), num_steps, thin=num_steps)[0])
    jit = optimised_jit if num_steps > 1 else jax.jit
    draws = np.asarray(jit(run)(jax.random.split(jax.random.key(7), num_chains))[:, 0], np.float64)
    assert_has_law(draws, *law())
    if name in CLOSED_FORMS:
        assert_has_law(draws, *CLOSED_FORMS[name])


def assert_has_law(draws, mean, covariance):
    num_chains = len(draws)
    # In the eigenbasis, so that a wrong variance in the steepest direction is not hidden by the flattest one.
    draws = (draws - mean) @ ROTATION
    covariance = ROTATION.T @ covariance @ ROTATION
    scale = np.diag(covariance)
    mean_score = draws.mean(0) / np.sqrt(scale / num_chains)
    spread = np.sqrt((np.outer(scale, scale) + covariance**2) / num_chains)
    covariance_score = (draws.T @ draws / num_chains - covariance) / spread
    assert np.abs(mean_score).max() < 4, mean_score
    assert np.abs(covariance_score).max() < 4.5, np.diag(covariance_score)  # 55 distinct scores


def bias(kernel):
    """Relative error of the stationary variance along the steepest direction."""
    covariance = np.asarray(diagnostics.stationary_law(kernel, jnp.zeros(1), jnp.eye(1)).covariance)
    return abs(covariance[0, 0] - 1)


@pytest.mark.parametrize(
    ("kernel", "order"),
    [
        (lambda tau: d.langevin_kernel(tau, 1.0), 1),
        (lambda tau: d.underdamped_kernel(tau, 2.0, 1.0), 1),
        (lambda tau: d.underdamped_exact_kernel(tau, 2.0, 1.0), 1),
        (lambda tau: d.underdamped_splitting_kernel(tau, 2.0, 1.0, scheme="OBABO"), 2),
        (lambda tau: d.adaptive_underdamped_kernel(tau, 2.0, 1.0, noise_in="momentum"), 2),
    ],
    ids=["langevin", "underdamped", "underdamped_exact", "obabo", "adaptive_underdamped"],
)
def test_the_bias_on_a_gaussian_vanishes_with_the_order_of_the_scheme(kernel, order):
    with jax.enable_x64(True):
        biases = np.array([bias(kernel(tau)) for tau in (0.04, 0.02, 0.01)])
    np.testing.assert_allclose(np.log2(biases[:-1] / biases[1:]), order, atol=0.06)


def test_baoab_has_no_bias_on_a_gaussian():
    with jax.enable_x64(True):
        assert bias(d.underdamped_splitting_kernel(0.5, 2.0, 1.0, scheme="BAOAB")) < 1e-12


@pytest.mark.parametrize(
    ("make", "steps", "order"),
    [
        (samplers.langevin, (0.06, 0.03), 1),
        # Its law on a Gaussian, and the order of that, are checked above.
        pytest.param(lambda tau: samplers.underdamped(tau, 3.0), (0.08, 0.04), 1, marks=pytest.mark.slow),
        (lambda tau: samplers.underdamped_splitting(tau, 1.0, scheme="OBABO"), (0.4, 0.2), 2),
    ],
    ids=["langevin", "underdamped", "obabo"],
)
def test_the_bias_on_a_log_cosh_well_vanishes_with_the_order_of_the_scheme(make, steps, order, optimised_jit):
    """By simulation: halving the step divides the error of E[w²] by 2^order, within Monte-Carlo error."""
    density = lambda w: np.exp(-(w**2) / 4) / np.cosh(w) ** 4
    exact = integrate.quad(lambda w: w**2 * density(w), -9, 9)[0] / integrate.quad(density, -9, 9)[0]

    def error_and_noise(tau):
        num_steps, burn_in = int(60 / tau), int(10 / tau)

        def second_moment(key):
            potential = lambda w: w**2 / 4 + 4 * jnp.log(jnp.cosh(w))
            return jnp.mean(samplers.sample(key, make(tau), potential, jnp.zeros(()), num_steps)[0][burn_in:] ** 2)

        per_chain = np.asarray(optimised_jit(jax.vmap(second_moment))(jax.random.split(jax.random.key(11), 10_000)))
        return abs(per_chain.mean(dtype=np.float64) - exact), per_chain.std() / np.sqrt(len(per_chain))

    (coarse, coarse_noise), (fine, fine_noise) = (error_and_noise(tau) for tau in steps)
    tolerance = 3 * np.hypot(coarse_noise / coarse, fine_noise / fine) / np.log(2)
    assert tolerance < 0.5  # else there is nothing to measure
    assert abs(np.log2(coarse / fine) - order) < tolerance + 0.2  # 0.2: the next order in the step
