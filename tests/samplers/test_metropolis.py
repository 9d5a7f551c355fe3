"""Adjusted samplers have the target itself as their law, on targets that are not Gaussian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from feelgood import samplers
from feelgood.samplers import diagnostics

BETA = 1.5


def quartic(w):
    """A lopsided quartic well: convex, with heavier walls than a Gaussian."""
    return jnp.sum(w**4 / 4 + w**2 / 10 + 0.3 * w)


def quadrature_moments():
    density = lambda w: np.exp(-BETA * (w**4 / 4 + w**2 / 10 + 0.3 * w))
    moment = lambda k: integrate.quad(lambda w: w**k * density(w), -8, 8, epsabs=1e-13)[0]
    return np.array([moment(k) / moment(0) for k in (1, 2, 3, 4)])


@pytest.mark.parametrize(
    ("sampler", "num_chains"),
    [
        # test_invariance has more of these two: on the same well step for step, and from one of two wells to the other.
        pytest.param(samplers.mala(0.25, BETA), 1000, marks=pytest.mark.slow),
        pytest.param(samplers.hmc(0.5, 4, BETA), 1000, marks=pytest.mark.slow),
        (samplers.proximal(0.15, BETA), 400),
    ],
    ids=["mala", "hmc", "proximal"],
)
def test_moments_on_a_quartic_well_agree_with_quadrature(sampler, num_chains):
    keys = jax.random.split(jax.random.key(0), num_chains)
    run = jax.jit(jax.vmap(lambda k: samplers.sample(k, sampler, quartic, jnp.zeros((1,)), 300)))
    draws, record = run(keys)
    draws = np.asarray(draws[:, 50:, 0], np.float64)
    per_chain = np.stack([np.mean(draws**k, axis=1) for k in (1, 2, 3, 4)])
    error = per_chain.std(axis=1) / np.sqrt(per_chain.shape[1])
    score = (per_chain.mean(axis=1) - quadrature_moments()) / error
    assert np.abs(score).max() < 4, score
    assert 0.3 < record.acceptance.mean() <= 1
    assert record.num_rejections.sum() > 0


def test_mala_is_hmc_with_one_leapfrog_step():
    step = 0.02
    run = lambda sampler: jax.jit(lambda key: samplers.sample(key, sampler, quartic, jnp.array([0.3, -1.0, 2.0]), 50))(
        jax.random.key(0)
    )
    (mala, mala_info), (hmc, hmc_info) = (
        run(samplers.mala(step, BETA)),
        run(samplers.hmc((2 * step) ** 0.5, 1, BETA, jitter=0.0)),
    )
    np.testing.assert_allclose(mala, hmc, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(mala_info.acceptance, hmc_info.acceptance, rtol=1e-2, atol=1e-3)


def test_gradients_are_counted():
    for sampler, expected in [(samplers.mala(0.1), 2), (samplers.hmc(0.1, 5), 6), (samplers.proximal(0.1), 3)]:
        _, record = sampler.step(jax.random.key(0), sampler.init(jnp.zeros(2)), quartic)
        assert record.num_gradients == expected


@pytest.mark.parametrize("sampler", [samplers.mala(0.1), samplers.hmc(0.1, 2), samplers.proximal(0.1)])
def test_a_proposal_where_the_potential_is_not_a_number_is_rejected(sampler):
    hole = lambda w: jnp.where(w[0] == 0.0, 0.0, jnp.nan) + jnp.sum(w)
    state, record = sampler.step(jax.random.key(0), sampler.init(jnp.zeros(2)), hole)
    np.testing.assert_array_equal(state.params, jnp.zeros(2))
    assert record.acceptance == 0


def logistic_posterior():
    rng = np.random.default_rng(0)
    features = np.column_stack([np.ones(40), rng.normal(size=(40, 2)) * [1.0, 2.0]])
    labels = rng.random(40) < 1 / (1 + np.exp(-features @ [0.5, -1.0, 0.7]))
    features, signs = jnp.asarray(features, jnp.float32), jnp.asarray(2.0 * labels - 1.0, jnp.float32)
    return lambda w: jnp.sum(jax.nn.softplus(-signs * (features @ w))) + jnp.sum(w**2) / 8


@pytest.fixture(scope="module")
def reference_moments():
    """Means and variances of the logistic posterior from an independent library's NUTS."""
    import blackjax

    potential = logistic_posterior()
    nuts = blackjax.nuts(lambda w: -potential(w), step_size=0.4, inverse_mass_matrix=jnp.ones(3))

    def run(key):
        def advance(state, key):
            state, _ = nuts.step(key, state)
            return state, state.position

        return jax.lax.scan(advance, nuts.init(jnp.zeros(3)), jax.random.split(key, 1500))[1]

    return summary(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), 16))[:, 200:])


def summary(draws):
    """First and second moments with Monte-Carlo standard errors from the effective sample size."""
    moments = jnp.concatenate([draws, draws**2], axis=-1)
    ess = diagnostics.effective_sample_size(moments)
    return np.asarray(moments.mean((0, 1))), np.asarray(moments.std((0, 1)) / jnp.sqrt(ess))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "num_steps"),
    [
        (samplers.mala(0.05), 1500),
        (samplers.hmc(0.3, 5), 600),
        (samplers.proximal(0.02), 1500),
        (samplers.underdamped_splitting(0.15, 2.0), 1500),
        (samplers.underdamped_exact(0.01, 2.0), 6000),
        (samplers.langevin(0.002), 20000),
    ],
    ids=["mala", "hmc", "proximal", "underdamped_splitting", "underdamped_exact", "langevin"],
)
def test_moments_on_a_logistic_posterior_agree_with_nuts(sampler, num_steps, reference_moments):
    """Unadjusted samplers run at steps whose bias is below the Monte-Carlo error."""
    run = jax.jit(
        jax.vmap(lambda k: samplers.sample(k, sampler, logistic_posterior(), jnp.zeros(3), num_steps, thin=2)[0])
    )
    draws = run(jax.random.split(jax.random.key(2), 32))[:, num_steps // 10 :]
    mean, error = summary(draws)
    reference, reference_error = reference_moments
    score = (mean - reference) / np.hypot(error, reference_error)
    assert np.abs(score).max() < 4, score
    assert diagnostics.split_rhat(draws).max() < 1.05


@pytest.mark.parametrize("sampler", [samplers.mala(0.2), samplers.hmc(0.4, 3)], ids=["mala", "hmc"])
def test_a_fixed_potential_gives_the_same_chain_with_one_gradient_less(sampler):
    potential = lambda w: jnp.sum(w["a"] ** 4) / 4 + jnp.sum((w["a"][:2] - w["b"]) ** 2)
    params = {"a": jnp.ones(3), "b": jnp.zeros(2)}

    def chain(sampler):
        advance = lambda state, key: (lambda new: (new[0], (new[0].params, new[1])))(
            sampler.step(key, state, potential)
        )
        return jax.lax.scan(advance, sampler.init(params), jax.random.split(jax.random.key(1), 200))[1]

    (draws, records), (kept, fewer) = chain(sampler), chain(sampler.fixed(potential))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), draws, kept)
    np.testing.assert_allclose(records.potential, fewer.potential, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(records.num_gradients - 1, fewer.num_gradients)
    assert 0 < records.num_rejections.sum() < 200
