"""Logistic bandits against batch fits, closed-form moments and a posterior by quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from feelgood import bandits
from feelgood.bandits.base import Context, Model
from feelgood.bandits.polya_gamma import polya_gamma
from marks import fast_only


def data(num=200, k=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num, k)).astype(np.float32)
    y = (rng.uniform(size=num) < 1 / (1 + np.exp(-x @ np.linspace(1, -1, k)))).astype(np.float32)
    return x, y


def taught(algorithm, x, y):
    state = algorithm.init(jax.random.key(0))
    step = lambda state, one: (
        algorithm.learn(jax.random.key(0), state, Context(one[0][None]), jnp.int32(0), one[1]),
        None,
    )
    return jax.jit(lambda state: jax.lax.scan(step, state, (jnp.asarray(x), jnp.asarray(y)))[0])(state)


def test_the_online_laplace_fit_is_close_to_the_batch_fit():
    x, y = data()
    state = taught(bandits.lin_ts(Model(1, 2, True), link="logistic"), x, y)
    loss = lambda w: np.sum(np.logaddexp(0, x @ w) - y * (x @ w)) + w @ w / 2
    best = minimize(loss, np.zeros(2)).x
    chance = 1 / (1 + np.exp(-x @ best))
    precision = (x * (chance * (1 - chance))[:, None]).T @ x + np.eye(2)
    deviation = np.sqrt(np.diag(np.linalg.inv(precision)))
    assert (np.abs(np.asarray(state.mean[0]) - best) < 0.5 * deviation).all()
    np.testing.assert_allclose(state.precision[0], precision, rtol=0.15, atol=2.0)


@pytest.mark.parametrize("z", [0.0, 0.5, 3.0, 10.0])
def test_polya_gamma_draws_have_the_moments_of_the_law(z):
    draws = np.asarray(polya_gamma(jax.random.key(0), jnp.full(200_000, z)))
    mean = 0.25 if z == 0 else np.tanh(z / 2) / (2 * z)
    variance = 1 / 24 if z == 0 else (np.sinh(z) - z) / (4 * z**3 * np.cosh(z / 2) ** 2)
    assert abs(draws.mean() - mean) < 4 * np.sqrt(variance / 200_000)
    np.testing.assert_allclose(draws.var(), variance, rtol=0.03)


def test_gibbs_draws_have_the_logistic_posterior_of_quadrature():
    x, y = data(12)
    algorithm = bandits.polya_gamma_ts(Model(1, 2, True), window=16)
    state = taught(algorithm, x, y)
    context = Context(jnp.ones((1, 2)))

    def chain(key):
        def step(state, key):
            state = algorithm.choose(key, state, context)[1]
            return state, state.theta[0]

        return jax.lax.scan(step, state, jax.random.split(key, 60))[1][20:]

    draws = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), 500))).reshape(-1, 2)
    grid = np.linspace(-6, 6, 241)
    w = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1)
    linear = w @ x.T
    log_density = np.sum(y * linear - np.logaddexp(0, linear), -1) - np.sum(w**2, -1) / 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()
    mean = np.einsum("ij,ijk->k", density, w)
    deviation = np.sqrt(np.einsum("ij,ijk->k", density, (w - mean) ** 2))
    # 500 chains of 40 correlated draws each: at least 500 · 10 independent ones.
    assert (np.abs(draws.mean(0) - mean) < 4 * deviation / np.sqrt(5000)).all()
    np.testing.assert_allclose(draws.std(0), deviation, rtol=0.05)


def test_rewards_that_leave_the_window_enter_the_gaussian():
    x, y = data(40)
    model = Model(1, 2, True)
    state = taught(bandits.polya_gamma_ts(model, window=10), x, y)
    older = taught(bandits.lin_ts(model, link="logistic"), x[:30], y[:30])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), state.settled, older)
    np.testing.assert_array_equal(np.sort(state.features[:, 0]), np.sort(x[30:, 0]))


# test_loops has the regret curves of the other two, and the fit that they take from the link is compared above.
@pytest.mark.parametrize("name", fast_only(("polya_gamma_ts",), ("lin_ts", "lin_ucb", "polya_gamma_ts")))
def test_learning_beats_chance_in_the_logistic_bandit(name):
    """A random arm has the mean regret E[max − mean] of the arms' means, known for every context."""
    bandit = bandits.logistic(num_arms=10, num_features=3)
    options = {"window": 32} if name == "polya_gamma_ts" else {"link": "logistic"}
    algorithm = bandits.ALGORITHMS[name](bandit.model, **options)

    def one(key):
        instance = bandit.init(jax.random.split(key, 3)[0])
        means = jax.vmap(lambda k: bandit.round(k, instance, jnp.int32(0)).means)(jax.random.split(key, 50))
        regret = bandits.simulate(key, bandit, algorithm, 300).regret
        return regret[150:].mean(), jnp.mean(jnp.max(means, 1) - jnp.mean(means, 1))

    ours, random = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 24)))
    assert ours.mean() < 0.5 * random.mean()


def test_features_of_the_logistic_bandit_have_spectral_norm_one():
    bandit = bandits.logistic()
    instance = bandit.init(jax.random.key(0))
    for i in range(3):
        now = bandit.round(jax.random.key(i), instance, jnp.int32(i))
        norm = np.linalg.norm(np.asarray(now.context.features), ord=2)
        np.testing.assert_allclose(norm, 1, rtol=5e-3)
        np.testing.assert_allclose(now.means, 1 / (1 + np.exp(-np.asarray(now.context.features @ instance))), rtol=1e-5)


def test_polya_gamma_needs_shared_parameters():
    with pytest.raises(ValueError, match="polya_gamma_ts needs a model with shared parameters"):
        bandits.polya_gamma_ts(Model(3, 2, False))
