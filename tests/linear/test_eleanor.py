"""The objective against NumPy in float64, the search against brute force, and that it learns."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.linear import learning, mdps
from feelgood.linear.eleanor import eleanor, eleanor_radius, eleanor_values
from feelgood.linear.least_squares import fit, lsvi, lsvi_ucb

RIDGE = 0.7


def data_of(mdp, num_episodes, seed):
    """Episodes of a uniform policy from uniform first states."""
    rng = np.random.default_rng(seed)
    transitions, rewards = (np.asarray(table, np.float64) for table in mdps.tables(mdp))
    data, add = learning.no_data(mdp.features, mdp.horizon), jax.jit(learning.add_episode)
    for _ in range(num_episodes):
        states, actions = [rng.integers(mdp.num_states)], rng.integers(mdp.num_actions, size=mdp.horizon)
        for h, a in enumerate(actions):
            law = np.maximum(transitions[h, states[-1], a], 0)
            states.append(rng.choice(mdp.num_states, p=law / law.sum()))
        got = rewards[np.arange(mdp.horizon), states[:-1], actions]
        data = add(data, mdp.features, np.array(states), actions, got.astype(np.float32))
    return data


def instance(seed, num_episodes):
    """A tiny one: d = 2, H = 2, three states and two actions."""
    mdp = mdps.random_simplex(seed, dimension=2, num_states=3, num_actions=2, horizon=2)
    return mdp, data_of(mdp, num_episodes, seed)


def test_the_objective_is_the_recursion_in_numpy():
    mdp = mdps.random_simplex(3, dimension=4, num_states=6, num_actions=3, horizon=4)
    data = data_of(mdp, 25, 0)
    rng = np.random.default_rng(1)
    offsets = rng.standard_normal((4, 4))
    values = jax.jit(lambda u: eleanor_values(fit(mdp.features, data, RIDGE), 0.6, u))
    ours = values(offsets.astype(np.float32))
    gram, rewarded, arrived = (np.asarray(x, np.float64) for x in (data.gram, data.rewarded, data.arrived))
    phi, value = np.asarray(mdp.features, np.float64), np.zeros(6)
    for h in reversed(range(4)):
        precision = gram[h] + RIDGE * np.eye(4)
        shift = 0.6 * np.linalg.solve(np.linalg.cholesky(precision).T, offsets[h])
        assert np.sqrt(shift @ precision @ shift) == pytest.approx(0.6 * np.linalg.norm(offsets[h]))  # ‖ξ‖_Λ
        w = np.linalg.solve(precision, rewarded[h] + arrived[h] @ value) + shift
        q = np.clip(phi @ w, 0, 4 - h)
        np.testing.assert_allclose(ours[h], q, atol=3e-5)
        value = q.max(-1)


@pytest.fixture(scope="module")
def brute_force():
    """The largest value on a grid of 121 points of each unit disc."""
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], -1)
    disc = np.concatenate([np.zeros((1, 2)), 0.5 * circle, circle])
    grid = jnp.asarray(np.array(list(itertools.product(disc, disc))), jnp.float32)

    @jax.jit
    def largest(features, data, radius):
        model = fit(features, data, RIDGE)
        return jnp.max(jax.vmap(lambda u: jnp.max(eleanor_values(model, radius, u)[0, 0]))(grid))

    return largest


@pytest.fixture(scope="module")
def search():
    @jax.jit
    def plan(features, data, radius, key):
        learner = eleanor(features, 2, radius=radius, ridge=RIDGE, num_starts=8)
        return learner.plan(key, learner.init(), data, jnp.int32(0))

    return plan


@pytest.mark.parametrize("radius", [0.3, 1.0, 2.0])
@pytest.mark.parametrize(("seed", "num_episodes"), [(0, 2), (4, 2), (31, 2), (42, 5), (44, 30), (57, 5)])
def test_the_search_agrees_with_brute_force(brute_force, search, seed, num_episodes, radius):
    mdp, data = instance(seed, num_episodes)
    found = search(mdp.features, data, radius, jax.random.key(0))
    best = float(brute_force(mdp.features, data, radius))
    # No point of the disc is further than 3° from the grid's directions, which costs at most 1 − cos 3° of the bonus.
    assert best - 1e-3 <= found.facts.objective <= best + 0.005 * radius * mdp.horizon
    assert jnp.all(jnp.linalg.norm(found.state, axis=-1) <= 1 + 1e-5)
    assert found.values[0, 0].max() == pytest.approx(float(found.facts.objective), abs=1e-5)


def test_the_value_lies_between_greedy_least_squares_and_ucb():
    mdp = mdps.riverswim(num_states=3, horizon=4)  # tabular, so P̂ ≥ 0 and a bonus for each (s, a) is the more generous

    @jax.jit
    def values(data):
        learners = (
            lsvi(mdp.features, 4, ridge=1.0),
            eleanor(mdp.features, 4, radius=0.5, num_starts=0),
            lsvi_ucb(mdp.features, 4, bonus=0.5),
        )
        plans = (one.plan(jax.random.key(0), one.init(), data, jnp.int32(0)) for one in learners)
        return jnp.stack([plan.values[0, 0].max() for plan in plans])

    low, middle, high = np.array([values(data_of(mdp, n, seed=n)) for n in (1, 5, 20, 60)]).T
    assert np.all(low + 1e-3 < middle)
    assert np.all(middle < high - 1e-3)


def test_the_last_maximiser_is_not_lost(search):
    mdp, data = instance(31, 2)  # where the three fixed starts lead to a lesser maximum
    best = search(mdp.features, data, 1.0, jax.random.key(0))
    learner = eleanor(mdp.features, 2, radius=1.0, ridge=RIDGE, num_starts=0)
    plan = jax.jit(lambda last: learner.plan(jax.random.key(0), last, data, jnp.int32(0)).facts.objective)
    assert plan(jnp.zeros((2, 2))) < best.facts.objective - 0.05
    assert plan(best.state) >= best.facts.objective - 1e-5


def test_with_one_stage_it_is_linucb():
    mdp = mdps.random_simplex(2, dimension=3, num_states=4, num_actions=5, horizon=1)
    data = data_of(mdp, 12, 0)

    @jax.jit
    @jax.vmap
    def values(s):
        learners = eleanor(mdp.features, 1, radius=0.4), lsvi_ucb(mdp.features, 1, bonus=0.4)
        return [one.plan(jax.random.key(0), one.init(), data, s).values[0, s] for one in learners]

    ours, theirs = values(jnp.arange(4))
    np.testing.assert_allclose(ours.max(-1), theirs.max(-1), atol=1e-5)
    np.testing.assert_array_equal(ours.argmax(-1), theirs.argmax(-1))


def test_with_plenty_of_data_the_policy_is_optimal():
    mdp = mdps.nchain(4)
    phi, (transitions, rewards) = mdp.features, mdps.tables(mdp)
    count = 1e5
    data = learning.Data(
        jnp.asarray(1, jnp.int32),
        count * jnp.tile(jnp.eye(mdp.dimension)[None], (mdp.horizon, 1, 1)),
        count * jnp.einsum("sad,hsa->hd", phi, rewards),
        count * jnp.einsum("sad,hsat->hdt", phi, transitions),
        count * transitions,
        count * rewards,
    )
    learner = eleanor(phi, mdp.horizon, radius=0.5, num_starts=0)
    plan = jax.jit(learner.plan)(jax.random.key(0), learner.init(), data, jnp.int32(1))
    value = jax.jit(mdps.policy_values)(mdp, mdps.greedy_policy(plan.values))[0, 1]
    assert float(value) == pytest.approx(10.0, abs=1e-3)


def test_it_opens_the_lock_and_without_a_radius_does_not():
    mdp = mdps.combination_lock(horizon=4, num_actions=2)

    def run(radius, key):
        learner = eleanor(mdp.features, mdp.horizon, radius=radius, num_starts=0, num_ascent_steps=2)
        return learning.learn(key, mdp, learner, 200).regret

    keys = jax.random.split(jax.random.key(1), 4)
    curves = np.asarray(jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(jnp.array([0.0, 1.0]), keys))
    assert curves.min() >= -1e-5
    assert curves[0, :, -50:].mean() > 0.9
    assert curves[1, :, -50:].mean() < 0.05


def test_the_theory_radius_by_hand():
    assert eleanor_radius(2, 3, 5, failure=0.1) == pytest.approx(3 * math.sqrt(2 * 6.39693), rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"radius": -1.0}, "radius must be non-negative"),
        ({"radius": 1.0, "ridge": 0.0}, "ridge must be positive"),
        ({"radius": 1.0, "num_starts": -1}, "num_starts must be a whole number"),
        ({"radius": 1.0, "num_ascent_steps": 0}, "num_ascent_steps must be a whole number"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        eleanor(jnp.ones((1, 1, 1)), 2, **arguments)
