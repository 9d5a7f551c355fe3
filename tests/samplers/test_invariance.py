"""Adjusted samplers leave the target invariant: chains that start from exact draws keep their law, step for step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from feelgood import samplers
from marks import fast_only

BETA = 1.5
GRID = np.linspace(-6, 6, 200_001)


def quartic(w):
    """A lopsided quartic well, convex."""
    return jnp.sum(w**4 / 4 + w**2 / 10 + 0.3 * w)


def double_well(w):
    """Two wells of unequal depth and width; about a third of the mass is on the left."""
    return jnp.sum((w**2 - 1.5) ** 2 / 2 - 0.2 * w)


def distribution_function(potential):
    """Points and the distribution function of exp(−βU) on them, by the trapezoid rule in float64."""
    with jax.enable_x64(True):
        density = np.exp(-BETA * np.asarray(jax.vmap(lambda w: potential(w[None]))(jnp.asarray(GRID))))
    cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return cumulative / cumulative[-1]


# Steps at which a fifth to a half of the proposals are rejected, so that a wrong accept test shows.
CASES = {
    "mala": (samplers.mala(0.4, BETA), quartic),
    "mala, two wells": (samplers.mala(0.15, BETA), double_well),
    "hmc": (samplers.hmc(0.9, 3, BETA), quartic),
    "hmc of fixed length": (samplers.hmc(0.9, 3, BETA, jitter=0.0), quartic),
    "hmc, two wells": (samplers.hmc(0.6, 4, BETA), double_well),
    "proximal": (samplers.proximal(0.4, BETA), quartic),
}


# The proximal sampler takes long; test_metropolis holds its moments on the same well against quadrature.
@pytest.mark.parametrize("name", fast_only(set(CASES) - {"proximal"}, CASES))
def test_exact_draws_keep_their_law(name, optimised_jit):
    sampler, potential = CASES[name]
    cumulative = distribution_function(potential)
    num_chains = 4_000 if name == "proximal" else 40_000  # all wait for the one with most rejections
    uniforms = (np.random.default_rng(0).permutation(num_chains) + 0.5) / num_chains  # stratified
    start = np.interp(uniforms, cumulative, GRID)
    keys = jax.random.split(jax.random.key(0), num_chains)
    run = lambda key, w: samplers.sample(key, sampler, potential, w[None], 3, thin=3)
    compiled = (optimised_jit if name == "proximal" else jax.jit)(jax.vmap(run))
    draws, record = compiled(keys, jnp.asarray(start, jnp.float32))
    end = np.asarray(draws[:, 0, 0], np.float64)
    assert record.num_rejections.mean() > 0.1
    # Differences between end and start of the same chain have less noise than the draws themselves.
    functions = (np.sin, np.cos, np.tanh, lambda w: w, lambda w: w**2, lambda w: w**4)
    change = np.stack([f(end) - f(start) for f in functions])
    score = change.mean(1) / (change.std(1) / np.sqrt(num_chains))
    assert np.abs(score).max() < 4, score
    assert stats.kstest(np.interp(end, GRID, cumulative), "uniform").pvalue > 1e-4


@pytest.mark.parametrize("sampler", [samplers.mala(0.15, BETA), samplers.hmc(0.6, 4, BETA)], ids=["mala", "hmc"])
def test_chains_that_start_in_one_well_find_the_weights_of_both(sampler, optimised_jit):
    left = np.interp(0.0, GRID, distribution_function(double_well))
    assert 0.2 < left < 0.45
    num_chains = 4000
    run = lambda key: samplers.sample(key, sampler, double_well, -jnp.ones(1), 300, thin=300)[0][0, 0]
    ends = optimised_jit(jax.vmap(run))(jax.random.split(jax.random.key(1), num_chains))
    share = float(np.mean(np.asarray(ends) < 0))
    assert abs(share - left) < 4 * np.sqrt(left * (1 - left) / num_chains)


def test_jitter_mixes_a_mode_at_which_a_fixed_length_resonates():
    """Each leapfrog step turns a unit mode by arccos(1 − τ²/2), so L = 5 of these steps turn it by π, exactly."""
    num_steps, step_size, num_chains = 5, 2 * np.sin(np.pi / 10), 8192
    potential = lambda w: jnp.sum(w**2) / 2

    def run(jitter):
        sampler = samplers.hmc(step_size, num_steps, jitter=jitter)
        chain = lambda key: samplers.sample(key, sampler, potential, jnp.full(1, 3.0), 30, thin=30)
        draws, record = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), num_chains))
        return np.asarray(draws[:, 0, 0], np.float64), record

    stuck, record = run(0.0)
    np.testing.assert_allclose(stuck, 3.0, rtol=1e-3)  # mirrored an even number of times
    assert record.acceptance.mean() > 0.99
    mixed, record = run(0.5)
    assert abs(mixed.mean()) < 4 / np.sqrt(num_chains)
    assert abs(mixed.var() - 1) < 4 * np.sqrt(2 / num_chains)
    assert record.acceptance.mean() > 0.9
