"""The score and the posterior of `benchmarks/testbed.py`, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from scripts import benchmark

testbed = benchmark("testbed")


def test_the_score_of_a_few_functions_is_that_of_their_mixture(testbed):
    rng = np.random.default_rng(0)
    values, picks, labels = rng.normal(size=(3, 4, 2)), rng.integers(0, 2, (4, 5)), rng.normal(size=(4, 5))
    marginal, joint = [], []
    for pair in range(4):
        likelihoods = np.array(
            [[stats.norm.pdf(labels[pair, t], f[pair, picks[pair, t]], 0.7) for t in range(5)] for f in values]
        )
        marginal += list(np.log(likelihoods.mean(0)))
        joint.append(np.log(likelihoods.prod(1).mean()))
    found = testbed.log_likelihoods(jnp.asarray(values), jnp.asarray(picks), jnp.asarray(labels), 0.7)
    np.testing.assert_allclose(found, [np.mean(marginal), np.mean(joint)], rtol=1e-5)


def test_the_joint_score_of_exact_draws_is_the_gaussian_predictive_density(testbed):
    # Linear functions w·x with prior N(0, I): the posterior and the predictive density of all labels are Gaussian.
    rng = np.random.default_rng(1)
    x, weights, sigma = rng.normal(size=(6, 3)), rng.normal(size=3), 0.5
    y = x @ weights + sigma * rng.normal(size=6)
    covariance = np.linalg.inv(np.eye(3) + x.T @ x / sigma**2)
    center = covariance @ x.T @ y / sigma**2
    pair, picks = rng.normal(size=(2, 3)), rng.integers(0, 2, (1, 10))
    labels = pair[picks[0]] @ weights + sigma * rng.normal(size=10)
    draws = rng.multivariate_normal(center, covariance, size=100_000)
    found = testbed.log_likelihoods(
        jnp.asarray(draws @ pair.T)[:, None], jnp.asarray(picks), jnp.asarray(labels)[None], sigma
    )
    at = pair[picks[0]]
    joint = stats.multivariate_normal.logpdf(labels, at @ center, at @ covariance @ at.T + sigma**2 * np.eye(10))
    marginal = stats.norm.logpdf(labels, at @ center, np.sqrt(np.einsum("ti,ij,tj->t", at, covariance, at) + sigma**2))
    # The relative error of a mean of likelihoods is their spread over √M, here below 1%.
    np.testing.assert_allclose(found, [marginal.mean(), joint], atol=0.03)
    assert abs(joint - marginal.sum()) > 0.3  # so the joint score differs from the sum of marginal ones


def test_the_potential_is_the_posterior_and_ignores_padding(testbed):
    problem = jax.jit(testbed.make_problem)(3, 2, 10)
    apply = lambda params, x: testbed.function(params, x, 2)
    two = [testbed.prior_draw(jax.random.key(seed)) for seed in (0, 1)]
    _, _, prior = testbed.start("mlp", jax.random.key(0), 1.0, 2)
    potential = jax.jit(testbed.potential_of(problem, apply, prior))
    beta = 10 / (2 * testbed.NOISE**2)

    def log_density(params):
        fit = stats.norm.logpdf(problem.y[:10], apply(params, problem.x)[:10, 0], testbed.NOISE).sum()
        return fit + sum(stats.norm.logpdf(leaf).sum() for leaf in jax.tree.leaves(params))

    found = beta * (potential(two[1]) - potential(two[0]))
    np.testing.assert_allclose(found, log_density(two[0]) - log_density(two[1]), rtol=1e-4)


def test_diverged_chains_score_minus_infinity(testbed):
    values = jnp.array([[[0.0, jnp.nan]], [[0.0, 0.0]]])
    found = testbed.log_likelihoods(values, jnp.zeros((1, 3), int), jnp.zeros((1, 3)))
    assert np.all(np.isneginf(found))
