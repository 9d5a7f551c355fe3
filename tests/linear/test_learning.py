"""The loop against a plain Python one, and the statistics against a recomputation from stored episodes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.linear import learning, mdps

MDP = mdps.random_simplex(0, dimension=3, num_states=4, num_actions=3, horizon=3)


def constant_learner(values):
    return learning.Learner(lambda: jnp.zeros(()), lambda key, state, data, first: learning.Plan(state, values, data))


def noisy_learner():
    """Random values every episode; its facts hold all its inputs."""

    def plan(key, state, data, first):
        return learning.Plan(state + 1, jax.random.uniform(key, (3, 4, 3)), (data, first, state))

    return learning.Learner(lambda: jnp.zeros(()), plan)


@functools.cache  # not at import, which every worker does
def noisy_curve():
    return jax.jit(lambda key: learning.learn(key, MDP, noisy_learner(), 300))(jax.random.key(0))


def test_statistics_equal_a_batch_recomputation():
    rng = np.random.default_rng(0)
    states, actions = rng.integers(4, size=(50, 4)), rng.integers(3, size=(50, 3))
    rewards = rng.uniform(size=(50, 3))
    data = learning.no_data(MDP.features, 3)
    for s, a, r in zip(states, actions, rewards, strict=True):
        data = learning.add_episode(data, MDP.features, jnp.asarray(s), jnp.asarray(a), jnp.asarray(r, jnp.float32))
    features = np.asarray(MDP.features, np.float64)
    value = rng.uniform(size=4)
    assert data.num_episodes == 50
    for h in range(3):
        phi = features[states[:, h], actions[:, h]]
        np.testing.assert_allclose(data.gram[h], phi.T @ phi, rtol=1e-4, atol=1e-5)
        targets = rewards[:, h] + value[states[:, h + 1]]
        got = learning.moments(data, h, jnp.asarray(value, jnp.float32))
        np.testing.assert_allclose(got, phi.T @ targets, rtol=1e-4, atol=1e-5)
        for s in range(4):
            for a in range(3):
                seen = (states[:, h] == s) & (actions[:, h] == a)
                np.testing.assert_allclose(data.rewards[h, s, a], rewards[seen, h].sum(), rtol=1e-5)
                expected = np.bincount(states[seen, h + 1], minlength=4)
                np.testing.assert_array_equal(data.visits[h, s, a], expected)


def test_regret_is_the_exact_gap_of_the_greedy_policy():
    rng = np.random.default_rng(1)
    values = jnp.asarray(rng.uniform(size=(3, 4, 3)), jnp.float32)
    start = lambda key, gaps: jnp.int32(2)
    curve = learning.learn(jax.random.key(0), MDP, constant_learner(values), 3, start)
    transitions, rewards = (np.asarray(x, np.float64) for x in mdps.tables(MDP))
    gap = []
    for policy in (np.asarray(values).argmax(-1), np.asarray(mdps.optimal_values(MDP)[0]).argmax(-1)):
        value = np.zeros(4)
        for h in (2, 1, 0):
            value = np.array([rewards[h, s, policy[h, s]] + transitions[h, s, policy[h, s]] @ value for s in range(4)])
        gap.append(value[2])
    np.testing.assert_allclose(curve.regret, gap[1] - gap[0], rtol=1e-4)
    np.testing.assert_allclose(curve.optimism, values[0, 2].max() - gap[1], rtol=1e-4)
    assert gap[1] - gap[0] > 0.05


def test_regret_is_never_negative():
    assert noisy_curve().regret.shape == (300,)
    assert noisy_curve().regret.min() >= -1e-6
    assert noisy_curve().regret.max() > 0.1


def test_the_optimal_policy_has_no_regret():
    q = mdps.optimal_values(MDP)[0]
    curve = learning.learn(jax.random.key(0), MDP, constant_learner(q), 20)
    np.testing.assert_array_equal(curve.regret, 0)
    np.testing.assert_allclose(curve.optimism, 0, atol=1e-6)


def test_a_learner_sees_the_past_and_keeps_its_state():
    data, _, state = noisy_curve().facts
    np.testing.assert_array_equal(data.num_episodes, np.arange(300))
    np.testing.assert_array_equal(state, np.arange(300))
    np.testing.assert_array_equal(data.visits[17].sum((1, 2, 3)), 17)
    np.testing.assert_allclose(
        data.gram[-1], np.einsum("hsat,sai,saj->hij", data.visits[-1], MDP.features, MDP.features), rtol=1e-4
    )
    np.testing.assert_allclose(
        data.arrived[-1], np.einsum("hsat,sai->hit", data.visits[-1], MDP.features), rtol=1e-4, atol=1e-4
    )


def test_transitions_follow_their_law():
    data, first, _ = noisy_curve().facts
    transitions, rewards = mdps.tables(MDP)
    visits = np.asarray(data.visits[-1])
    pairs = visits.sum(-1, keepdims=True)
    expected = pairs * np.asarray(transitions)
    likely = expected > 5
    chi = ((visits - expected) ** 2 / np.where(likely, expected, 1))[likely]
    assert likely.sum() > 30
    assert chi.sum() < likely.sum() + 5 * np.sqrt(2 * likely.sum())
    np.testing.assert_allclose(data.rewards[-1], pairs[..., 0] * np.asarray(rewards), rtol=1e-4, atol=1e-4)
    counts = np.bincount(np.asarray(first), minlength=4)
    assert abs(counts - 75).max() < 5 * np.sqrt(75)


def test_stages_follow_one_another():
    """Every arrival is a departure of the next stage."""
    visits = np.asarray(noisy_curve().facts[0].visits[-1])
    for h in (0, 1):
        np.testing.assert_array_equal(visits[h].sum((0, 1)), visits[h + 1].sum((1, 2)))


def test_the_adversary_starts_in_the_worst_state_of_the_last_policy():
    gaps = jnp.array([0.1, 0.5, 0.5, 0.2])
    start = learning.worst_start(MDP)
    drawn = {int(start(key, gaps)) for key in jax.random.split(jax.random.key(0), 30)}
    assert drawn == {1, 2}
    seen = learning.learn(jax.random.key(0), MDP, noisy_learner(), 30, start).facts[1]
    assert len(set(np.asarray(seen).tolist())) > 1


@pytest.mark.slow
def test_each_seed_is_its_own_run():
    curves = jax.vmap(lambda key: learning.learn(key, MDP, noisy_learner(), 20))(jax.random.split(jax.random.key(0), 3))
    alone = learning.learn(jax.random.split(jax.random.key(0), 3)[1], MDP, noisy_learner(), 20)
    np.testing.assert_allclose(curves.regret[1], alone.regret, rtol=1e-5, atol=1e-6)
    assert not np.allclose(curves.regret[0], curves.regret[1])


def test_values_are_truncated_to_the_remaining_horizon():
    np.testing.assert_array_equal(learning.clip_values(jnp.array([-1.0, 1.0, 7.0]), 3), [0, 1, 3])


def test_a_bad_length_is_named_and_a_learner_can_object():
    with pytest.raises(ValueError, match="num_episodes must be a whole number of at least 1, got 0"):
        learning.learn(jax.random.key(0), MDP, noisy_learner(), 0)

    def check(num_episodes):
        raise ValueError(f"no to {num_episodes}")

    with pytest.raises(ValueError, match="no to 5"):
        learning.learn(jax.random.key(0), MDP, noisy_learner()._replace(check=check), 5)


def test_values_that_are_nan_have_a_regret_of_nan():
    values = jnp.zeros((3, 4, 3)).at[1, 2, 0].set(jnp.nan)
    assert jnp.isnan(learning.learn(jax.random.key(0), MDP, constant_learner(values), 3).regret).all()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (lambda state, values: values, "plan of a learner must return a linear.Plan"),
        (lambda state, values: learning.Plan(state, values[0]), r"values .* must have shape \(3, 4, 3\).*got \(4, 3\)"),
        (lambda state, values: learning.Plan((state, 1), values), "state of a learner's plan must have the structure"),
    ],
)
def test_a_plan_of_the_wrong_form_is_explained(plan, message):
    learner = learning.Learner(lambda: jnp.zeros(()), lambda key, state, *_: plan(state, jnp.zeros((3, 4, 3))))
    with pytest.raises(ValueError, match=message):
        learning.learn(jax.random.key(0), MDP, learner, 5)


def test_cumulative_regret_is_the_sum_so_far():
    curve = noisy_curve()
    np.testing.assert_allclose(curve.cumulative_regret[9], np.sum(curve.regret[:10], dtype=np.float64), rtol=1e-5)
