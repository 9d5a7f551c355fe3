"""Chains against the exact laws of their steps, and against the posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits, samplers
from feelgood.bandits import chains, feel_good, statistics
from feelgood.bandits.base import Context, Model
from feelgood.samplers import diagnostics
from marks import fast_only

MODEL = Model(2, 2, False)


def some_state(algorithm, num_rounds=12):
    rng = np.random.default_rng(0)
    state = algorithm.init(jax.random.key(0))
    learn = jax.jit(algorithm.learn)
    for i in range(num_rounds):
        context = Context(jnp.asarray(rng.normal(size=(1, 2)), jnp.float32))
        action, reward = jnp.int32(rng.integers(2)), jnp.float32(rng.normal())
        state = learn(jax.random.key(i), state, context, action, reward)
    return state


def moved(state, chain, settings, num=20_000):
    keys = jax.random.split(jax.random.key(1), num)
    return np.asarray(jax.jit(jax.vmap(lambda key: chains.move(key, state, chain, settings).params))(keys))


@pytest.mark.parametrize("preconditioned", [False, True])
def test_the_law_of_a_round_of_lmc_is_the_exact_law_of_its_steps(preconditioned):
    chain = bandits.Chain(lambda t, largest: samplers.langevin(0.3 / largest, 2.0), 4, preconditioned)
    state = some_state(bandits.chain_ts(MODEL, chain, loss_weight=0.8))
    draws = moved(state, chain, None)
    largest = float(statistics.largest_curvature(state.statistics.precision))
    for g in range(2):
        _, precision, factor, mean = (np.asarray(leaf[g]) if leaf.ndim else leaf for leaf in state.statistics)
        start = np.asarray(state.chain.params[g])
        if preconditioned:
            kernel = diagnostics.langevin_kernel(0.3, 2.0)
            law = diagnostics.law_after(kernel, np.zeros(2), np.eye(2), 4, factor.T @ (start - mean))
            back = np.linalg.inv(factor.T)
            expected_mean, covariance = mean + back @ law.mean, back @ law.covariance @ back.T
        else:
            kernel = diagnostics.langevin_kernel(0.3 / largest, 2.0)
            expected_mean, covariance = diagnostics.law_after(kernel, mean, precision, 4, start)
        error = np.sqrt(np.diag(covariance) / len(draws))
        assert (np.abs(draws[:, g].mean(0) - expected_mean) < 4.5 * error).all()
        np.testing.assert_allclose(np.cov(draws[:, g].T), covariance, atol=6 * np.max(covariance) / np.sqrt(len(draws)))


def test_the_bound_on_the_curvature_is_close_and_from_above():
    rng = np.random.default_rng(0)
    for k in (1, 4, 20):
        a = rng.normal(size=(3, k, k))
        precision = np.einsum("gij,gkj->gik", a, a) + 0.1 * np.eye(k)
        largest = max(np.linalg.eigvalsh(p)[-1] for p in precision)
        bound = float(statistics.largest_curvature(jnp.asarray(precision, jnp.float32)))
        assert largest * (1 - 1e-5) <= bound <= largest * k ** (1 / 16) * (1 + 1e-5)


MAKERS = {
    "mala": (bandits.mala_ts, {"step_size": 0.8, "num_steps": 60}),
    "hmc": (bandits.hmc_ts, {"step_size": 0.5, "num_steps": 12}),
    "baoab": (bandits.baoab_ts, {"step_size": 0.5, "num_steps": 60}),
    "ulmc": (bandits.ulmc_ts, {"step_size": 0.2, "num_steps": 600}),
    "lmc": (bandits.lmc_ts, {"step_size": 0.1, "num_steps": 1000}),
}


# `test_the_law_of_a_round_of_lmc…` checks the exact law of one chain with preconditioning and of `lmc`, which takes a
# thousand steps here.
@pytest.mark.parametrize("name", fast_only(set(MAKERS) - {"lmc"}, MAKERS))
@pytest.mark.parametrize("preconditioned", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_chain_ends_at_the_feel_good_posterior(name, preconditioned, optimised_jit):
    """Choices after a long round have the frequencies of importance sampling from the Gaussian part."""
    make, options = MAKERS[name]
    settings = bandits.FeelGood(0.1, capacity=20)
    algorithm = make(MODEL, temperature=0.7, preconditioned=preconditioned, feel_good=settings, **options)
    state = some_state(algorithm)
    context = Context(jnp.array([[0.9, 0.4]]))
    num = 4000
    jit = optimised_jit if options["num_steps"] > 100 else jax.jit
    choose = jit(jax.vmap(lambda key: algorithm.choose(key, state, context)[0]))
    share = float(np.mean(np.asarray(choose(jax.random.split(jax.random.key(2), num))) == 0))
    rng = np.random.default_rng(3)
    stats = state.statistics
    theta = np.stack(
        [rng.multivariate_normal(stats.mean[g], 0.7 * np.linalg.inv(stats.precision[g]), size=100_000) for g in (0, 1)],
        1,
    )
    seen = np.asarray(state.past.features[0, :, :12])
    total = np.einsum("ngk,ks->nsg", theta, seen).max(-1).sum(-1)
    weights = np.exp(0.1 * (total - total.max()) / 0.7)
    first = (theta @ np.asarray(context.features[0])).argmax(1) == 0
    expected = np.sum(weights * first) / weights.sum()
    # A little for the bias of a finite step in the samplers that do not reject.
    slack = 0.0 if name in ("mala", "hmc") else 0.02
    assert abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) * (1 / num + 1 / 2000)) + slack


@pytest.mark.parametrize("settings", [None, bandits.FeelGood(0.2, capacity=8)], ids=["plain", "feel-good"])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_many_chains_at_once_move_as_few_do(settings, preconditioned):
    """A fused sum inside the loop once read overwritten values from 8,192 chains on."""
    chain = bandits.Chain(lambda t, largest: samplers.langevin(0.3 / largest, 2.0), 3, preconditioned)
    state = some_state(bandits.chain_ts(MODEL, chain, settings))
    keys = jax.random.split(jax.random.key(1), 20_000)
    move = jax.jit(jax.vmap(lambda key: chains.move(key, state, chain, settings).params))
    together = np.asarray(move(keys))
    apart = np.concatenate([np.asarray(move(part)) for part in keys.reshape(10, 2000)])
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-5)


def test_the_reservoir_is_kept_only_if_there_is_a_feel_good_term():
    assert some_state(bandits.lmc_ts(MODEL), 1).past is None
    past = some_state(bandits.lmc_ts(MODEL, feel_good=bandits.FeelGood(0.1, capacity=3)), 5).past
    assert isinstance(past, feel_good.Past)
    assert int(past.num_seen) == 5
    assert past.features.shape == (1, 2, 3)
