"""Linear MDPs against brute force: every policy enumerated, every norm recomputed, every bad input named."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.linear import mdps


@pytest.mark.parametrize("name", mdps.SUITE)
def test_the_suite_satisfies_the_definition_of_a_linear_mdp(name):
    mdp = mdps.SUITE[name]()
    d = mdp.dimension
    transitions, rewards = (np.asarray(x, np.float64) for x in mdps.tables(mdp))
    assert transitions.shape == (mdp.horizon, mdp.num_states, mdp.num_actions, mdp.num_states)
    assert transitions.min() > -1e-6
    np.testing.assert_allclose(transitions.sum(-1), 1, atol=1e-5)
    assert rewards.min() > -1e-6
    assert rewards.max() < 1 + 1e-6
    assert np.linalg.norm(mdp.features, axis=-1).max() <= 1 + 1e-6
    assert np.linalg.norm(mdp.measures.sum(-1), axis=-1).max() <= np.sqrt(d) + 1e-5
    assert np.linalg.norm(mdp.weights, axis=-1).max() <= np.sqrt(d) + 1e-5
    np.testing.assert_allclose(mdp.initial.sum(), 1, atol=1e-6)


def test_planning_finds_the_best_of_all_policies():
    mdp = mdps.random_simplex(3, dimension=3, num_states=2, num_actions=2, horizon=3)
    transitions, rewards = (np.asarray(x, np.float64) for x in mdps.tables(mdp))
    best, values_of = np.full(2, -np.inf), jax.jit(mdps.policy_values)
    for actions in itertools.product(range(2), repeat=6):
        policy = np.array(actions).reshape(3, 2)
        value = np.zeros(2)
        for h in (2, 1, 0):
            value = np.array([rewards[h, s, policy[h, s]] + transitions[h, s, policy[h, s]] @ value for s in (0, 1)])
        np.testing.assert_allclose(values_of(mdp, jnp.asarray(policy))[0], value, rtol=1e-5)
        best = np.maximum(best, value)
    q, v = mdps.optimal_values(mdp)
    np.testing.assert_allclose(v[0], best, rtol=1e-5)
    np.testing.assert_allclose(values_of(mdp, mdps.greedy_policy(q)), v, rtol=1e-5)
    np.testing.assert_array_equal(v[-1], 0)


def test_known_optimal_values():
    assert mdps.optimal_values(mdps.nchain(6))[1][0, 1] == pytest.approx(10, abs=1e-4)
    assert mdps.optimal_values(mdps.combination_lock(4, 3))[1][0, 0] == pytest.approx(1)
    # Waiting wins with probability (1 + gap)/(2H) a stage if played best, and a win pays 1 in each later stage.
    horizon, gap = 4, 0.5
    win, value = (1 + gap) / (2 * horizon), 0.0
    for left in range(horizon):
        value = win * left + (1 - win) * value
    cube = mdps.hypercube(5, horizon, gap)
    assert mdps.optimal_values(cube)[1][0, 0] == pytest.approx(value, rel=1e-5)


def test_the_hypercube_hides_one_corner_among_all_at_every_stage():
    cube = mdps.hypercube(5, 3, 0.6, seed=1)
    wins = np.asarray(mdps.tables(cube).transitions)[:, 0, :, 1]
    assert wins.shape == (3, 8)
    np.testing.assert_allclose(wins.max(1), 1.6 / 6, rtol=1e-5)
    np.testing.assert_allclose(wins.min(1), 0.4 / 6, rtol=1e-5)
    assert (np.isclose(wins, wins.max(1, keepdims=True)).sum(1) == 1).all()


def test_riverswim_pulls_back():
    transitions, rewards = mdps.tables(mdps.riverswim(4, 2))
    np.testing.assert_allclose(transitions[0, 1, 1], [0.05, 0.6, 0.35, 0], atol=1e-6)
    np.testing.assert_allclose(transitions[1, 3, 1], [0, 0, 0.4, 0.6], atol=1e-6)
    np.testing.assert_allclose(transitions[0, 2, 0], [0, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(rewards[0], [[0.005, 0], [0, 0], [0, 0], [0, 1]], atol=1e-6)


def test_tables_that_are_linear_are_recognised():
    mdp = mdps.random_simplex(0, dimension=3, num_states=4, num_actions=2, horizon=2)
    transitions, rewards = mdps.tables(mdp)
    again = mdps.from_tables(mdp.features, transitions, rewards, mdp.initial)
    np.testing.assert_allclose(again.measures, mdp.measures, atol=1e-4)
    np.testing.assert_allclose(again.weights, mdp.weights, atol=1e-4)


def _arrays():
    mdp = mdps.random_simplex(0, dimension=3, num_states=4, num_actions=2, horizon=2)
    return [np.array(x) for x in mdp]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f, m, w, i: (2 * f, m / 2, w / 2, i), "norms of features must be at most 1"),
        (lambda f, m, w, i: (f, 2 * m, w, i), "sums of transition probabilities must be 1"),
        (lambda f, m, w, i: (f, m, w + 1, i), r"rewards must be in \[0, 1\]"),
        (lambda f, m, w, i: (f / 4, m * 4, w * 4, i), "norms of measures of all states must be at most"),
        (lambda f, m, w, i: (f[0], m, w, i), "features must have shape"),
        (lambda f, m, w, i: (f, m[:, :2], w, i), r"measures must have shape \(horizon, 3, 4\)"),
        (lambda f, m, w, i: (f, m, w[:1], i), r"weights must have shape \(2, 3\)"),
        (lambda f, m, w, i: (f, m[:0], w[:0], i), "horizon must be a whole number of at least 1, got 0"),
        (lambda f, m, w, i: (f, m, w, 2 * i), "initial must be a law over 4 states"),
        (lambda f, m, w, i: (f, m, w, i * np.nan), "initial must be a law over 4 states"),
        (lambda f, m, w, i: (f, m, w, 99), "initial must be a law over 4 states or the number of one, got 99"),
    ],
)
def test_tables_that_are_no_linear_mdp_are_refused(spoil, message):
    with pytest.raises(ValueError, match=message):
        mdps.linear_mdp(*spoil(*_arrays()))


def test_negative_probabilities_are_named():
    features, measures, weights, initial = _arrays()
    measures[0, :, 0] -= 1
    measures[0, :, 1] += 1
    with pytest.raises(ValueError, match="transition probabilities must be at least 0, got -"):
        mdps.linear_mdp(features, measures, weights, initial)


def test_features_that_do_not_fit_the_tables_are_named():
    features, measures, weights, initial = _arrays()
    transitions, rewards = mdps.tables(mdps.LinearMDP(*map(jnp.asarray, (features, measures, weights, initial))))
    with pytest.raises(ValueError, match=r"features do not make this a linear MDP.*transitions of stage"):
        mdps.from_tables(features[..., :2], transitions, rewards, initial)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mdps.riverswim(4, 0), "horizon must be a whole number of at least 1, got 0"),
        (lambda: mdps.nchain(2), "length must be"),
        (lambda: mdps.hypercube(2), "dimension must be"),
        (lambda: mdps.hypercube(5, gap=1.5), r"gap must be in \(0, 1\], got 1.5"),
        (lambda: mdps.combination_lock(num_actions=1), "num_actions must be"),
        (lambda: mdps.random_simplex(dimension=0), "dimension must be"),
        (lambda: mdps.tabular(np.ones((3, 2, 3)) / 3, np.ones((3, 2)), 0), r"must have shape \(H, S, A, S\)"),
        (
            lambda: mdps.tabular(np.ones((4, 3, 2, 3)) / 3, np.ones((4, 2, 3)), 0),
            r"rewards must have shape \(H, S, A\) = \(4, 3, 2\), got \(4, 2, 3\)",
        ),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_planning_can_be_mapped_over_mdps():
    two = [mdps.random_simplex(i, dimension=3, num_states=4, num_actions=2, horizon=2) for i in (0, 1)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *two)
    values = jax.vmap(lambda mdp: mdps.optimal_values(mdp)[1])(stacked)
    for value, mdp in zip(values, two, strict=True):
        np.testing.assert_allclose(value, mdps.optimal_values(mdp)[1], rtol=1e-5)
