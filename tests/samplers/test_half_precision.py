"""Samplers of float16 and bfloat16 parameters have the laws that they have in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import samplers
from marks import fast_only

CURVATURE = np.array([1.0, 2.0, 4.0])
MEAN = np.array([0.5, -1.0, 0.0])
NUM_CHAINS = 4096
HALF = [jnp.float16, jnp.bfloat16]

# sampler, steps until it has forgotten its start at 0
TABLE = {
    "langevin": (samplers.langevin(0.1), 60),
    "adam_langevin": (samplers.adam_langevin(0.1, bias_factor=0.5, second_decay=0.999), 60),
    "preconditioned_langevin": (samplers.preconditioned_langevin(0.1, decay=0.999, epsilon=0.1), 60),
    "preconditioned_adam_langevin": (samplers.preconditioned_adam_langevin(0.05), 150),
    "underdamped": (samplers.underdamped(0.1, 2.0), 100),
    "underdamped_exact": (samplers.underdamped_exact(0.1, 2.0), 100),
    "underdamped_splitting": (samplers.underdamped_splitting(0.3, 2.0), 60),
    "adaptive_underdamped": (samplers.adaptive_underdamped(0.1, 2.0, bias_factor=0.5, second_decay=0.999), 100),
    "adaptive_underdamped_corrected": (
        samplers.adaptive_underdamped(0.1, 2.0, bias_factor=0.5, second_decay=0.999, corrected=True),
        100,
    ),
    "adam_langevin_matched": (samplers.adam_langevin(0.1, bias_factor=0.5, matched_noise=True, epsilon=0.1), 60),
    "adaptive_underdamped_matched": (
        samplers.adaptive_underdamped(0.1, 2.0, bias_factor=0.5, matched_noise=True, epsilon=0.1),
        100,
    ),
    "mala": (samplers.mala(0.2), 60),
    "hmc": (samplers.hmc(0.5, 3), 30),
    "proximal": (samplers.proximal(0.1), 60),
}


def potential(w):
    return jnp.sum(jnp.asarray(CURVATURE, w.dtype) * (w - jnp.asarray(MEAN, w.dtype)) ** 2) / 2


def ends(sampler, num_steps, dtype, seed, num_chains=NUM_CHAINS):
    run = lambda key: samplers.sample(key, sampler, potential, jnp.zeros(3, dtype), num_steps, thin=num_steps)[0][0]
    draws = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(seed), num_chains))
    assert draws.dtype == dtype
    return np.asarray(draws, np.float64)


# The others are built from the same parts; acceptance is tested below.
FAST = ("langevin", "adaptive_underdamped", "hmc")


@pytest.mark.parametrize("name", fast_only(FAST, TABLE))
def test_the_law_in_half_precision_is_the_law_in_single_precision(name):
    sampler, num_steps = TABLE[name]
    num_chains = 512 if name == "proximal" else NUM_CHAINS  # all wait for the one with most rejections
    single = ends(sampler, num_steps, jnp.float32, 0, num_chains)
    spread = single.std(0)
    for seed, dtype in enumerate(HALF, start=1):
        half = ends(sampler, num_steps, dtype, seed, num_chains)
        # Monte-Carlo errors of two samples, six statistics in all; and the dtype's spacing at two spreads.
        resolution = 2 * float(jnp.finfo(dtype).eps)
        mean_error = np.abs(half.mean(0) - single.mean(0)) / spread
        spread_error = np.abs(half.std(0) / spread - 1)
        assert mean_error.max() < 4 * np.sqrt(2 / num_chains) + resolution, dtype
        assert spread_error.max() < 4 * np.sqrt(1 / num_chains) + resolution, dtype


@pytest.mark.parametrize("dtype", HALF)
def test_exact_draws_in_half_precision_have_the_posterior_as_their_law(dtype):
    mean, precision = jnp.asarray(MEAN, dtype), jnp.diag(jnp.asarray(CURVATURE, dtype))
    shift = np.array([0.7 / CURVATURE[0], 0.0, 0.0])  # a single action makes the feel-good term linear
    for sampler, centre in (
        (samplers.exact_gaussian(mean, precision), MEAN),
        (samplers.exact_feel_good(mean, precision, jnp.eye(2, 3, dtype=dtype), 0.0), MEAN),
        (samplers.exact_feel_good(mean, precision, jnp.eye(1, 3, dtype=dtype), 0.7), MEAN + shift),
    ):
        draws = ends(sampler, 1, dtype, 0)
        resolution = 2 * float(jnp.finfo(dtype).eps)
        scaled = (draws - centre) * np.sqrt(CURVATURE)
        assert np.abs(scaled.mean(0)).max() < 4 / np.sqrt(NUM_CHAINS) + resolution
        assert np.abs(scaled.std(0) - 1).max() < 4 / np.sqrt(2 * NUM_CHAINS) + resolution


@pytest.mark.parametrize(
    "sampler",
    [
        samplers.mala(0.005),
        samplers.hmc(0.05, 3),
        samplers.proximal(5e-6),
    ],
    ids=["mala", "hmc", "proximal"],
)
def test_acceptance_in_many_dimensions_does_not_depend_on_the_dtype(sampler):
    start = jax.random.normal(jax.random.key(0), (200_000,))

    def acceptance(dtype):
        step = jax.jit(lambda key: sampler.step(key, sampler.init(start.astype(dtype)), lambda w: jnp.sum(w**2) / 2)[1])
        return float(np.mean([step(key).acceptance for key in jax.random.split(jax.random.key(1), 4)]))

    single = acceptance(jnp.float32)
    assert single > 0.3
    for dtype in HALF:
        assert abs(acceptance(dtype) - single) < 0.15


def test_moments_are_single_precision_and_forget():
    """With a decay of 0.999 rounded to bfloat16, 1.0, the second moment would stay zero."""
    gradient = jnp.full(3, 2.0, jnp.bfloat16)
    bias = samplers.adaptive_bias(1.0, second_decay=0.999)
    biased, state = bias.update(gradient, bias.init(gradient))
    assert biased.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype(jnp.float32)}
    np.testing.assert_allclose(state.second_moment, 0.004, rtol=1e-4)


@pytest.mark.parametrize("corrected", [samplers.preconditioned_adam_langevin(0.01), None], ids=["adam", "bias"])
def test_a_counter_at_its_largest_value_stays_there(corrected):
    sampler = corrected or samplers.adam_langevin(0.01, corrected=True)
    state = sampler.init(jnp.ones(3))
    full = jax.tree.map(lambda x: jnp.full_like(x, 2**31 - 1) if x.dtype == jnp.int32 else x, state)
    for key in jax.random.split(jax.random.key(0), 2):
        full, info = sampler.step(key, full, lambda w: jnp.sum(w**2))
    assert jnp.isfinite(full.params).all()
    assert not info.diverged
