"""The exact law of a chain over rounds against many chains on the same potentials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits, samplers
from feelgood.bandits import chains, errors
from feelgood.bandits.statistics import Statistics
from feelgood.samplers import diagnostics

ROUNDS, HEAT = 12, 0.4


def some_run():
    bandit = bandits.linear(num_arms=2, num_features=2)
    algorithm = bandits.lin_ts(bandit.model, loss_weight=1.0)
    return bandits.simulate(jax.random.key(0), bandit, algorithm, ROUNDS, record=lambda state: state).facts


@pytest.mark.parametrize(
    ("kernel", "sampler", "preconditioned"),
    [
        (
            lambda t, m: diagnostics.langevin_kernel(0.1 / t, 1 / HEAT),
            lambda t, m: samplers.langevin(0.1 / t, 1 / HEAT),
            False,
        ),
        (
            lambda t, m: diagnostics.langevin_kernel(0.2, 1 / HEAT),
            lambda t, m: samplers.langevin(0.2, 1 / HEAT),
            True,
        ),
        (
            lambda t, m: diagnostics.underdamped_splitting_kernel(0.3 / t**0.5, 1.0, 1 / HEAT),
            lambda t, m: samplers.underdamped_splitting(0.3 / t**0.5, 1.0, 1 / HEAT),
            False,
        ),
    ],
    ids=["lmc", "preconditioned lmc", "baoab"],
)
def test_the_law_is_that_of_many_chains(kernel, sampler, preconditioned):
    facts = some_run()
    found = errors.sampling_error(
        facts.precision, facts.mean, kernel, 3, HEAT, np.array([4, ROUNDS - 1]), preconditioned=preconditioned
    )
    chain = bandits.Chain(sampler, 3, preconditioned)

    def one(key):
        key_start, key_rounds = jax.random.split(key)
        start = sampler(1.0, 1.0).init(jax.random.normal(key_start, (2, 2)))

        def step(state, inputs):
            key, stats = inputs
            state = chains.move(key, chains.ChainState(Statistics(*stats), state, None), chain, None)
            return state, state.params

        return jax.lax.scan(step, start, (jax.random.split(key_rounds, ROUNDS), facts))[1]

    num = 20_000
    draws = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), num)))
    for i, t in enumerate(found.rounds):
        target = HEAT * np.linalg.inv(np.asarray(facts.precision[t], float))
        squared = 0.0
        for g in range(2):
            own = draws[:, t, g]
            squared += errors._wasserstein2_squared(own.mean(0), np.cov(own.T), np.asarray(facts.mean[t, g]), target[g])
        empirical = np.sqrt(squared / np.trace(target, axis1=1, axis2=2).sum())
        np.testing.assert_allclose(found.wasserstein[i], empirical, rtol=0.05, atol=0.02)


def test_many_small_steps_leave_no_error_and_one_step_leaves_much():
    facts = some_run()
    kernel = lambda t, m: diagnostics.langevin_kernel(0.02 / m, 1 / HEAT)
    rough, fine = (
        errors.sampling_error(facts.precision, facts.mean, kernel, n, HEAT, np.array([ROUNDS - 1])) for n in (1, 3000)
    )
    assert rough.total_variation[0] > 0.5
    assert fine.total_variation[0] < 0.05
    assert fine.wasserstein[0] < 0.05


def test_the_largest_eigenvalue_is_over_all_groups():
    precision = np.stack([np.diag([1.0, 2.0]), np.diag([5.0, 3.0])])[None]
    assert errors.largest_eigenvalue(precision).tolist() == [5.0]
    assert jnp.asarray(precision).shape == (1, 2, 2, 2)
