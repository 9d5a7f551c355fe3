"""Exact samplers against closed forms, numerical integration and a long MALA chain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import samplers

MEAN = jnp.array([0.4, -0.3])
PRECISION = jnp.array([[2.0, 0.7], [0.7, 1.5]])
FEATURES = jnp.array([[1.0, 0.2], [-0.8, 0.9], [0.1, -1.0]])


def draw(sampler, start, num_draws, seed=0):
    run = jax.jit(jax.vmap(lambda key: sampler.step(key, sampler.init(start), None)))
    state, record = run(jax.random.split(jax.random.key(seed), num_draws))
    return np.asarray(state.params, np.float64), record


def scores(draws, mean, second):
    """How many standard errors the empirical first and second moments are away."""
    outer = draws[:, :, None] * draws[:, None, :]
    n = len(draws)
    return np.concatenate(
        [
            ((draws.mean(0) - mean) / (draws.std(0) / np.sqrt(n))).ravel(),
            ((outer.mean(0) - second) / (outer.std(0) / np.sqrt(n))).ravel(),
        ]
    )


def test_linear_regression_matches_the_normal_equations():
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(30, 4)), rng.normal(size=30)
    weight, rho = 0.7, 0.2
    # Ridge regression as ordinary least squares on a system extended by the prior.
    extended = np.vstack([np.sqrt(2 * weight) * features, np.sqrt(rho) * np.eye(4)])
    solution = np.linalg.lstsq(extended, np.concatenate([np.sqrt(2 * weight) * targets, np.zeros(4)]), rcond=None)[0]
    posterior = samplers.linear_regression(
        jnp.asarray(features, jnp.float32), jnp.asarray(targets, jnp.float32), weight=weight, prior_precision=rho
    )
    np.testing.assert_allclose(posterior.mean, solution, rtol=1e-4, atol=1e-5)
    potential = lambda w: weight * jnp.sum((targets - features @ w) ** 2) + rho / 2 * jnp.sum(w**2)
    np.testing.assert_allclose(posterior.precision, jax.hessian(potential)(posterior.mean), rtol=1e-4, atol=1e-4)


def test_exact_gaussian_has_the_requested_mean_and_covariance():
    beta = 2.5
    draws, _ = draw(samplers.exact_gaussian(MEAN, PRECISION, beta), MEAN, 100_000)
    covariance = np.linalg.inv(PRECISION) / beta
    assert np.abs(scores(draws, MEAN, covariance + np.outer(MEAN, MEAN))).max() < 4


def integrate_feel_good(weight, beta):
    """First and second moments of the 2-D feel-good posterior, and its mass relative to the Gaussian, on a grid."""
    axis = np.linspace(-9, 9, 1201)
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    centred = w - np.asarray(MEAN)
    gaussian = -0.5 * np.einsum("...i,ij,...j", centred, np.asarray(PRECISION), centred)
    bonus = weight * np.max(w @ np.asarray(FEATURES).T, axis=-1)
    density = np.exp(beta * (gaussian + bonus))
    density /= density.sum()
    return np.einsum("xy,xyi->i", density, w), np.einsum("xy,xyi,xyj->ij", density, w, w)


@jax.jit
def feel_good_steps(keys, weight, beta):
    """One compilation for all weights and temperatures."""
    sampler = samplers.exact_feel_good(MEAN, PRECISION, FEATURES, weight, beta)
    return jax.vmap(lambda key: sampler.step(key, sampler.init(MEAN), None))(keys)


@pytest.mark.parametrize(
    ("weight", "beta"),
    [
        # Without weight test_laws_of_samplers holds it against the Gaussian.
        pytest.param(0.0, 1.0, marks=pytest.mark.slow),
        pytest.param(0.5, 1.0, marks=pytest.mark.slow),
        (2.0, 1.0),
        (1.0, 3.0),
    ],
)
def test_exact_feel_good_agrees_with_numerical_integration(weight, beta):
    state, record = feel_good_steps(jax.random.split(jax.random.key(0), 100_000), weight, beta)
    draws = np.asarray(state.params, np.float64)
    assert np.abs(scores(draws, *integrate_feel_good(weight, beta))).max() < 4
    assert record.acceptance.min() >= 1 / 3 - 1e-6
    assert record.num_rejections.mean() <= 2 + 4 * np.sqrt(6 / 100_000)  # geometric with success at least 1/3


@pytest.mark.slow
def test_exact_feel_good_agrees_with_a_long_mala_chain_in_eight_dimensions():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(8, 8)) / 2
    precision = jnp.asarray(root @ root.T + 0.5 * np.eye(8), jnp.float32)
    mean = jnp.asarray(rng.normal(size=8) / 2, jnp.float32)
    features = jnp.asarray(rng.normal(size=(5, 8)) / 2, jnp.float32)
    weight = 1.5

    def potential(w):
        return (w - mean) @ precision @ (w - mean) / 2 - weight * jnp.max(features @ w)

    exact, _ = draw(samplers.exact_feel_good(mean, precision, features, weight), mean, 200_000)
    run = jax.jit(jax.vmap(lambda k: samplers.sample(k, samplers.mala(0.12), potential, mean, 4000, thin=10)))
    chains, record = run(jax.random.split(jax.random.key(5), 256))
    chains = np.asarray(chains[:, 40:], np.float64)
    assert 0.4 < record.acceptance.mean() < 0.95
    functions = lambda w: np.concatenate([w, w**2, np.max(w @ np.asarray(features).T, axis=-1)[..., None]], axis=-1)
    per_chain = functions(chains).mean(axis=1)
    difference = per_chain.mean(0) - functions(exact).mean(0)
    error = np.hypot(per_chain.std(0) / np.sqrt(256), functions(exact).std(0) / np.sqrt(200_000))
    assert np.abs(difference / error).max() < 4.2


def test_the_feel_good_term_raises_the_value_of_the_first_state():
    plain, _ = draw(samplers.exact_feel_good(MEAN, PRECISION, FEATURES, 0.0), MEAN, 20_000)
    happy, _ = draw(samplers.exact_feel_good(MEAN, PRECISION, FEATURES, 1.0), MEAN, 20_000)
    value = lambda w: np.max(w @ np.asarray(FEATURES).T, axis=1).mean()
    assert value(happy) > value(plain) + 0.3


def test_a_posterior_that_is_nan_gives_a_draw_of_nan_and_does_not_hang():
    sampler = samplers.exact_feel_good(jnp.array([jnp.nan, 0.0]), jnp.eye(2), jnp.eye(2), 1.0)
    state, _ = jax.jit(lambda key: sampler.step(key, sampler.init(jnp.zeros(2)), None))(jax.random.key(0))
    assert jnp.isnan(state.params).any()
