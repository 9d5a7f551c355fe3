"""Whole regret curves of `learn` against a loop in NumPy that keeps every episode and regresses on all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import linear

NUM_EPISODES = 60


def values_of(transitions, rewards, policy=None):
    """Values of a policy, or of the best one, at the first stage."""
    value = np.zeros(rewards.shape[1])
    for stage in reversed(range(len(rewards))):
        q = rewards[stage] + transitions[stage] @ value
        value = q.max(1) if policy is None else q[np.arange(len(q)), policy[stage]]
    return value


def lsvi_ucb(features, horizon, episodes, bonus, ridge):
    """The greedy policy of LSVI-UCB after `episodes`, each a list of (state, action, reward, next state)."""
    policy, value = np.zeros((horizon, len(features)), int), np.zeros(len(features))
    for stage in reversed(range(horizon)):
        rows = [episode[stage] for episode in episodes]
        phi = np.array([features[s, a] for s, a, _, _ in rows]).reshape(-1, features.shape[-1])
        targets = np.array([reward + value[after] for _, _, reward, after in rows])
        gram = ridge * np.eye(features.shape[-1]) + phi.T @ phi
        width = np.sqrt(np.einsum("sad,de,sae->sa", features, np.linalg.inv(gram), features))
        q = np.clip(features @ np.linalg.solve(gram, phi.T @ targets) + bonus * width, 0, horizon - stage)
        policy[stage], value = q.argmax(1), q.max(1)
    return policy


def regret_curve(key, mdp, bonus, ridge):
    """The regret of every episode; only the uniform numbers that draw the next states are those of `learn`."""
    transitions, rewards = (np.asarray(table, float) for table in linear.mdps.tables(mdp))
    features, best, episodes, regret = np.asarray(mdp.features, float), values_of(transitions, rewards), [], []
    for key_episode in jax.random.split(key, NUM_EPISODES):
        policy = lsvi_ucb(features, mdp.horizon, episodes, bonus, ridge)
        regret.append(best[0] - values_of(transitions, rewards, policy)[0])
        state, episode = 0, []
        for stage, uniform in enumerate(
            np.asarray(jax.random.uniform(jax.random.split(key_episode, 3)[2], mdp.horizon))
        ):
            action = policy[stage, state]
            after = int(np.searchsorted(np.cumsum(transitions[stage, state, action]), uniform, side="right"))
            episode.append((state, action, rewards[stage, state, action], after))
            state = after
        episodes.append(episode)
    return np.array(regret)


@pytest.mark.parametrize(
    ("mdp", "bonus", "ridge"),
    [
        (linear.mdps.combination_lock(horizon=4, num_actions=3), 1.0, 1.0),
        (linear.mdps.random_simplex(0, dimension=3, num_states=4, num_actions=3, horizon=3), 0.3, 0.5),
    ],
    ids=["lock", "simplex"],
)
def test_the_regret_of_lsvi_ucb_is_that_of_a_numpy_loop_in_every_episode(mdp, bonus, ridge):
    learner = linear.lsvi_ucb(mdp.features, mdp.horizon, bonus=bonus, ridge=ridge)
    curve = linear.learn(jax.random.key(3), mdp, learner, NUM_EPISODES, lambda key, gaps: jnp.int32(0))
    expected = regret_curve(jax.random.key(3), mdp, bonus, ridge)
    np.testing.assert_allclose(curve.regret, expected, atol=1e-5)
    assert len(np.unique(expected.round(6))) > 1  # the policy changes while it learns
