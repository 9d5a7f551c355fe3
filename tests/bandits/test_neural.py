"""Neural bandits: parts against direct formulas, and every algorithm learns a task that linear ones cannot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits
from feelgood.bandits import perceptron
from feelgood.bandits.base import Context, Model

SMALL = bandits.Training(width=16, num_steps=2, batch_size=16, capacity=400)
MAKERS = {
    "neural_ucb": lambda model: bandits.neural_ucb(model, 0.05, training=SMALL),
    "neural_ts": lambda model: bandits.neural_ts(model, 0.05, training=SMALL),
    "neural_linear": lambda model: bandits.neural_linear(model, 0.1, num_rows=64, training=SMALL),
    "neural_greedy": lambda model: bandits.neural_greedy(model, 0.05, training=SMALL),
    "neural_ensemble": lambda model: bandits.neural_ensemble(model, 3, 0.3, training=SMALL),
    "neural_langevin": lambda model: bandits.neural_langevin(
        model, 3e-2, 1e-6, bandits.FeelGood(0.01), training=SMALL._replace(num_steps=4)
    ),
}


BANDIT = bandits.quadratic(num_arms=4, num_features=4, noise_std=0.1)


@pytest.fixture(scope="module")
def random_regret():
    """Mean regret of a uniform arm, over fresh instances."""
    means = lambda key: BANDIT.round(key, BANDIT.init(jax.random.fold_in(key, 1)), jnp.int32(0)).means
    drawn = np.asarray(jax.jit(jax.vmap(means))(jax.random.split(jax.random.key(9), 4000)))
    return np.mean(drawn.max(1) - drawn.mean(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_every_neural_algorithm_learns_a_quadratic_bandit(name, random_regret, optimised_jit):
    keys = jax.random.split(jax.random.key(0), 4)
    run = optimised_jit(jax.vmap(lambda key: bandits.simulate(key, BANDIT, MAKERS[name](BANDIT.model), 500).regret))
    assert np.asarray(run(keys))[:, -150:].mean() < 0.5 * random_regret


def test_a_common_context_goes_into_the_block_of_the_arm():
    model, context = Model(2, 3, False), jnp.array([[1.0, 2.0, 3.0]])
    blocks = np.array([[1, 2, 3, 0, 0, 0], [0, 0, 0, 1, 2, 3]])
    weights = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    np.testing.assert_allclose(
        perceptron.first_layer(model, jnp.asarray(weights), context), blocks @ weights, rtol=1e-6
    )
    both = perceptron.played(model, jnp.stack([context, context]), jnp.array([1, 0]))
    np.testing.assert_array_equal(both, blocks[::-1])


def test_the_replay_keeps_the_newest_rewards():
    parts = perceptron.parts_of(Model(2, 1, True), SMALL._replace(capacity=4), None)
    memory = parts.no_memory()
    for i in range(6):
        memory = parts.keep(memory, Context(jnp.full((2, 1), float(i))), jnp.int32(i % 2), jnp.float32(i))
    assert sorted(memory.rewards.tolist()) == [2, 3, 4, 5]
    features, actions, rewards = parts.draw(jax.random.key(0), memory)
    np.testing.assert_array_equal(features[:, 0, 0], rewards)
    np.testing.assert_array_equal(actions, rewards % 2)


def test_bad_training_gives_one_sentence():
    with pytest.raises(ValueError, match="width must be a whole number of at least 1, got 0"):
        bandits.neural_ts(Model(2, 2, True), training=bandits.Training(width=0))
