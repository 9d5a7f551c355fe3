"""The joint law of the stages against quadrature, its error in the number of particles, and that it learns."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.linear import learning, mdps, schemes
from feelgood.linear.ase import lsvi_ase
from feelgood.linear.cps import cps, effective_share, residual_error

# One feature, two stages, two states and two actions: the joint law of (w_0, w_1) fits on a grid.
FEATURES = jnp.array([[[0.9], [0.4]], [[-0.3], [0.6]]])
TARGET = {"loss_weight": 0.5, "feel_good_weight": 4.0, "prior_variance": 1.0}


@functools.cache
def data():
    """Six episodes through both states; actions and arrivals by hand."""
    past, add = learning.no_data(FEATURES, 2), jax.jit(learning.add_episode)
    for states, actions, rewards in (
        ([0, 1, 0], [0, 1], [0.3, 0.5]),
        ([0, 0, 1], [1, 0], [0.1, 0.7]),
        ([1, 1, 1], [1, 0], [0.2, 0.0]),
        ([0, 1, 0], [0, 0], [0.3, 0.0]),
        ([1, 0, 0], [0, 1], [0.0, 0.3]),
        ([0, 1, 1], [0, 1], [0.3, 0.5]),
    ):
        past = add(past, FEATURES, np.array(states), np.array(actions), np.array(rewards, np.float32))
    return past


def grid_law(loss_weight, feel_good_weight, prior_variance):
    """Weights of a fine grid of w_1, those of the conditional law without the tilt, W = Z/E[Z], and Q_0, Q_1 on it."""
    past = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), data())
    phi = np.asarray(FEATURES, np.float64)[..., 0]
    precision = 2 * loss_weight * past.gram[:, 0, 0] + 1 / prior_variance
    w1 = np.linspace(-6, 6, 1601)
    mean1 = 2 * loss_weight * past.rewarded[1, 0] / precision[1]
    plain = np.exp(-precision[1] / 2 * (w1 - mean1) ** 2)
    plain /= plain.sum()
    q1 = np.clip(w1[:, None, None] * phi, 0, 1)
    mean0 = 2 * loss_weight * (past.rewarded[0, 0] + q1.max(-1) @ past.arrived[0, 0]) / precision[0]
    w0 = np.linspace(-4, 10, 1601)
    inner = np.exp(-precision[0] / 2 * (w0 - mean0[:, None]) ** 2)
    inner /= inner.sum(1, keepdims=True)
    inner *= np.exp(feel_good_weight * (w0[:, None] * phi[0]).max(-1))
    normaliser = inner.sum(1)
    q0 = np.einsum("ij,jsa->isa", inner / normaliser[:, None], np.clip(w0[:, None, None] * phi, 0, 2))
    return plain, normaliser / (plain @ normaliser), q0, q1


def joint_means(plain, w, q0, q1, num_particles=math.inf):
    """E[Q_0] and E[Q_1] under the joint law, or to order 1/M under that of a choice out of M particles."""
    chosen = plain * w * (1 + (plain @ w**2 - w) / num_particles)
    return np.array([np.tensordot(chosen, q0, 1), np.tensordot(chosen, q1, 1)])


def statistics(plan, num_draws, seed=0):
    """Means of the (2, 2, 2) values with their standard errors, and the mean of all facts."""
    keys = jax.random.split(jax.random.key(seed), num_draws).reshape(-1, 2_000)
    plans = jax.jit(lambda keys: jax.lax.map(jax.vmap(plan), keys))(keys)
    values = np.asarray(plans.values, np.float64).reshape(-1, 2, 2, 2)
    errors = values.std(0) / math.sqrt(num_draws)
    return values.mean(0), errors, jax.tree.map(lambda fact: float(fact.mean()), plans.facts)


def plan_of(learner, past=None):
    past = data() if past is None else past
    return lambda key: learner.plan(key, learner.init(), past, jnp.int32(0))


@pytest.fixture(scope="module")
def many_particles(optimised_jit):
    """Statistics of 40,000 draws with 128 particles for λ = 0, 2 and 4; one compilation."""

    @optimised_jit
    def run(weight, keys, past):
        learner = cps(FEATURES, 2, **{**TARGET, "feel_good_weight": weight}, num_particles=128)
        return jax.lax.map(jax.vmap(plan_of(learner, past)), keys)

    keys = jax.random.split(jax.random.key(0), 40_000).reshape(-1, 2_000)
    found = {}
    for weight in (0.0, 2.0, 4.0):
        plans = run(weight, keys, data())
        values = np.asarray(plans.values, np.float64).reshape(-1, 2, 2, 2)
        facts = jax.tree.map(lambda fact: float(fact.mean()), plans.facts)
        found[weight] = values.mean(0), values.std(0) / math.sqrt(len(values)), facts
    return found


def assert_same_means(one, other):
    np.testing.assert_array_less(np.abs(one[0] - other[0]), 5 * np.hypot(one[1], other[1]) + 1e-6)


@pytest.mark.parametrize("weight", [2.0, 4.0])
def test_with_many_particles_the_law_is_the_joint_one(many_particles, weight):
    plain, w, q0, q1 = grid_law(**{**TARGET, "feel_good_weight": weight})
    mean, error, _ = many_particles[weight]
    expected = joint_means(plain, w, q0, q1)
    np.testing.assert_array_less(np.abs(mean - expected), 5 * error + 1e-6)
    # The tilt must reach w_1: without the reweighting its law would be the plain one, far away.
    assert np.abs(expected[1] - np.tensordot(plain, q1, 1)).max() > 20 * error[1].max()


def test_the_facts_judge_the_particles(many_particles):
    plain, w, _, _ = grid_law(**TARGET)
    facts = many_particles[4.0][2]
    # The bound on Z that the facts go by is close to Z here, where one action leads.
    assert facts.effective_share == pytest.approx(1 / (plain @ w**2), rel=0.1)
    assert facts.residual_error == pytest.approx(plain @ np.abs(w * (plain @ w**2 - w)) / 2 / 128, rel=0.1)


def test_the_error_falls_as_one_over_the_number_of_particles():
    law = grid_law(**TARGET)
    exact = joint_means(*law)[1, 0, 0]
    biases = {}
    for m in (4, 16):
        mean, error, _ = statistics(plan_of(cps(FEATURES, 2, **TARGET, num_particles=m)), 60_000)
        biases[m] = exact - mean[1, 0, 0]
        predicted = exact - joint_means(*law, num_particles=m)[1, 0, 0]
        assert abs(biases[m] - predicted) < 5 * error[1, 0, 0] + 1.5 * predicted / m  # next order
        assert biases[m] > 6 * error[1, 0, 0]  # the error can be measured
    assert 3.2 < biases[4] / biases[16] < 5.2


def test_one_particle_is_lsvi_ase_with_exact_sampling():
    ase = lsvi_ase(FEATURES, 2, schemes.exact(), num_updates=1, **TARGET)
    one = cps(FEATURES, 2, **TARGET, num_particles=1)
    assert_same_means(statistics(plan_of(one), 40_000), statistics(plan_of(ase), 40_000, seed=1))


def test_without_the_feel_good_term_draws_are_the_conditional_gaussians(many_particles):
    mean, error, facts = many_particles[0.0]
    plain, w, q0, q1 = grid_law(**{**TARGET, "feel_good_weight": 0.0})
    np.testing.assert_allclose(w, 1, atol=1e-6)
    np.testing.assert_array_less(np.abs(mean - joint_means(plain, w, q0, q1)), 5 * error + 1e-6)
    assert facts.effective_share == pytest.approx(1, abs=1e-5)
    assert facts.residual_error == pytest.approx(0, abs=1e-6)
    assert facts.num_proposals == pytest.approx(2, abs=0.05)  # all actions tie, so each of two is thinned to half


def test_with_one_stage_there_is_nothing_to_reweight():
    features = jnp.array([[[0.5], [-0.8]]])
    past = learning.no_data(features, 1)._replace(gram=jnp.full((1, 1, 1), 0.5), rewarded=jnp.full((1, 1), 0.3))
    learner = cps(features, 1, loss_weight=4.0, feel_good_weight=2.0, prior_variance=0.5, num_particles=4)
    keys = jax.random.split(jax.random.key(0), 20_000)
    plans = jax.jit(jax.vmap(lambda key: learner.plan(key, learner.init(), past, jnp.int32(0))))(keys)
    w = np.linspace(-4, 5, 4001)
    law = np.exp(-((2 * 4 * 0.5 + 2) * w**2) / 2 + 2 * 4 * 0.3 * w + 2 * np.maximum(0.5 * w, -0.8 * w))
    exact = law @ np.clip(w[:, None] * np.array([0.5, -0.8]), 0, 1) / law.sum()
    values = np.asarray(plans.values[:, 0, 0])
    np.testing.assert_array_less(np.abs(values.mean(0) - exact), 5 * values.std(0) / math.sqrt(len(keys)))
    np.testing.assert_allclose(plans.facts.effective_share, 1, atol=1e-5)


def test_the_residual_error_is_that_of_a_case_worked_out_by_hand():
    # Particles weigh 1 or 3 with even odds; of M, B ~ Bin(M, 1/2) weigh 3, and one of those is chosen with
    # probability 3B / (M + 2B), against 3/4 as M → ∞.
    m = 60
    b = np.arange(m + 1)
    law = np.array([math.comb(m, k) for k in b]) / 2.0**m
    distance = 0.75 - law @ (3 * b / (m + 2 * b))
    masses = jnp.log(jnp.where(jnp.arange(m) % 2 == 0, 1.0, 3.0))
    assert float(residual_error(masses)) == pytest.approx(distance, rel=0.05)
    assert float(effective_share(masses)) == pytest.approx(4**2 / (2 * (1 + 9)), rel=1e-5)
    assert jnp.isnan(residual_error(jnp.zeros(1)))
    assert float(residual_error(masses + 200)) == pytest.approx(float(residual_error(masses)), rel=1e-4)


def test_with_plenty_of_data_the_policy_is_optimal():
    mdp = mdps.nchain(4)
    phi, (transitions, rewards) = mdp.features, mdps.tables(mdp)
    count = 1e5
    past = learning.Data(
        jnp.asarray(1, jnp.int32),
        count * jnp.tile(jnp.eye(mdp.dimension)[None], (mdp.horizon, 1, 1)),
        count * jnp.einsum("sad,hsa->hd", phi, rewards),
        count * jnp.einsum("sad,hsat->hdt", phi, transitions),
        count * transitions,
        count * rewards,
    )
    learner = cps(phi, mdp.horizon, loss_weight=1.0, feel_good_weight=1.0)
    plan = jax.jit(learner.plan)(jax.random.key(0), learner.init(), past, jnp.int32(1))
    value = jax.jit(mdps.policy_values)(mdp, mdps.greedy_policy(plan.values))[0, 1]
    assert float(value) == pytest.approx(10.0, abs=1e-3)


@pytest.mark.slow
def test_it_opens_the_lock():
    mdp = mdps.combination_lock(horizon=4, num_actions=2)

    def run(key):
        learner = cps(
            mdp.features, mdp.horizon, loss_weight=2.0, feel_good_weight=1.0, prior_variance=1.0, num_particles=16
        )
        return learning.learn(key, mdp, learner, 400).regret

    curves = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), 8)))
    assert curves.min() >= -1e-5
    assert curves[:, :5].mean() > 0.5
    assert curves[:, -100:].mean() < 0.05


def test_a_draw_ends_even_if_a_number_is_not_finite():
    learner = cps(FEATURES, 2, **TARGET, num_particles=4)
    broken = data()._replace(rewarded=jnp.full((2, 1), jnp.nan))
    plan = jax.jit(learner.plan)(jax.random.key(0), (), broken, jnp.int32(0))
    assert int(plan.facts.num_proposals) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loss_weight": 0.0}, "loss_weight must be positive"),
        ({"feel_good_weight": -1.0}, "feel_good_weight must be non-negative"),
        ({"prior_variance": 0.0}, "prior_variance must be positive"),
        ({"num_particles": 0}, "num_particles must be a whole number"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        cps(FEATURES, 2, **{**TARGET, **arguments})
