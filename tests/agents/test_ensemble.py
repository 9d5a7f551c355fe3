"""The parts of the ensemble agent: priors, perturbed rewards, horizons, draws per episode and votes."""

from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import envs, networks, objectives
from feelgood.agents import (
    ZOO,
    Agent,
    AgentState,
    Options,
    Spaces,
    bounded_rewards,
    complete,
    fitted_bounds,
    make_agent,
    mixed_horizons,
    one_draw_an_episode,
    own_reward_noise,
    restless,
    without_step_cost,
)
from feelgood.networks.models import cosine
from feelgood.training import run_batch, trainer
from feelgood.training.config import FunctionalConfig

# One type for all batches: JAX compiles a function again for each new one.
Batch = namedtuple(
    "Batch",
    "observation action return_ bootstrap_discount next_observation first_observation slot weight",
)


def batch(**fields):
    defaults = {
        "observation": jnp.zeros((2, 1)),
        "action": jnp.zeros(2, jnp.int32),
        "return_": jnp.array([1.0, 2.0]),
        "bootstrap_discount": jnp.zeros(2),
        "next_observation": jnp.zeros((2, 1)),
        "first_observation": jnp.zeros((2, 1)),
        "slot": jnp.array([3, 4]),
        "weight": None,
    }
    return Batch(**{**defaults, **fields})


def test_a_random_prior_has_unit_variance_and_independent_values_on_one_hot_inputs_of_any_size():
    for size in (10, 100):
        inputs = networks.OneHot(jnp.arange(2))
        draw = lambda key, size=size, inputs=inputs: networks.random_prior(key, size, (50, 50), 1)(inputs)[:, 0]
        values = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 2000)))  # (draws, inputs)
        # The standard error of a variance of 2,000 normals is √(2/2000) = 0.03, of a correlation 0.02. The first
        # layer's biases are the same for both inputs: 0.3²/(1 + 0.3²) = 0.08 of their variance.
        np.testing.assert_allclose(values.var(0), 1, atol=0.15)
        assert abs(np.corrcoef(values.T)[0, 1]) < 0.08 + 4 * 0.02
    plain = lambda key: networks.mlp(key, 2500, (50, 50), 1)(networks.OneHot(jnp.arange(2)))[:, 0]
    alike = np.asarray(jax.jit(jax.vmap(plain))(jax.random.split(jax.random.key(0), 50)))
    assert np.corrcoef(alike.T)[0, 1] > 0.9  # the problem that it solves


def test_the_cosine_is_that_of_float64_up_to_the_rounding_of_its_angle():
    angles = np.concatenate([np.linspace(-300, 300, 100_001), np.pi * np.arange(-8, 8.5, 0.5), [0.0, -0.0, 1e-8]])
    angles = angles.astype(np.float32)
    error = np.abs(np.asarray(cosine(jnp.asarray(angles)), np.float64) - np.cos(angles.astype(np.float64)))
    assert (error < 2e-7 * (1 + np.abs(angles))).all()


def test_a_fourier_prior_has_the_covariance_of_its_gaussian_process():
    points = jnp.array([[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, -1.0, 1.0], [3.0, 3.0, 3.0]])
    for length_scale in (0.5, 2.0):
        draw = lambda key, scale=length_scale: networks.fourier_prior(key, 3, 64, 2, scale)(points)
        values = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), 10_000)))  # (draws, points, 2)
        distances = np.sum((points[:, None] - points[None]) ** 2, -1)
        expected = np.exp(-distances / (2 * length_scale**2))
        # The standard error of a product of two normals over 10,000 draws is at most √(2/10,000) = 0.014, and a few
        # percent more as a sum of 64 cosines is not exactly normal.
        for action in range(2):
            np.testing.assert_allclose(values[..., action].T @ values[..., action] / 10_000, expected, atol=0.07)
        np.testing.assert_allclose(values[..., 0].T @ values[..., 1] / 10_000, 0, atol=0.07)
        np.testing.assert_allclose(values.mean(0), 0, atol=0.05)
    with pytest.raises(ValueError, match="length_scale must be positive and finite, got 0"):
        networks.fourier_prior(jax.random.key(0), 3, 64, 2, 0.0)
    with pytest.raises(ValueError, match="num_features must be"):
        networks.fourier_prior(jax.random.key(0), 3, 0, 2, 1.0)


@pytest.mark.parametrize(("num_inputs", "is_smooth"), [(2, True), (16, True), (17, False)])
def test_priors_are_smooth_functions_of_a_few_coordinates(num_inputs, is_smooth):
    # On a line through the origin the other priors depend on little but the direction, far from their biases of 0.3.
    spaces = Spaces((num_inputs,), 2, bound=1.0)
    agent = make_agent("ensemble_dqn", spaces, options=Options(hidden=(64, 64), num_members=100))
    state, key = agent.init(jax.random.key(0)), jax.random.key(1)
    near, far = (agent.values(key, state, jnp.full(num_inputs, value)) for value in (20.0, 40.0))
    correlation = np.corrcoef(np.ravel(near), np.ravel(far))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(200) if is_smooth else correlation > 0.99


def test_a_normalised_network_starts_at_zero_and_ignores_the_scale_of_its_input():
    model = networks.normalized_mlp(jax.random.key(0), 3, (8,), 2)
    x = jnp.array([[1.0, -2.0, 0.5]])
    np.testing.assert_array_equal(model(x), np.zeros((1, 2)))
    prior = networks.random_prior(jax.random.key(1), 3, (8,), 2, bias_scale=0.0)
    np.testing.assert_allclose(prior(1000 * x), prior(x), rtol=1e-3)
    with pytest.raises(ValueError, match="hidden must have at least one width"):
        networks.random_prior(jax.random.key(0), 3, (), 2)


def test_reward_noise_is_standard_normal_and_fixed_for_each_slot_and_member():
    noise = objectives.reward_noise(jnp.arange(4000), 5)
    np.testing.assert_array_equal(objectives.reward_noise(jnp.array([7, 3999]), 5), noise[jnp.array([7, 3999])])
    assert abs(float(noise.mean())) < 4 / np.sqrt(20_000)
    assert abs(float(noise.var()) - 1) < 4 * np.sqrt(2 / 20_000)
    assert np.abs(np.corrcoef(np.asarray(noise).T) - np.eye(5)).max() < 4 / np.sqrt(4000)


def test_members_that_minimise_perturbed_errors_spread_like_a_posterior():
    # One parameter for each member, its value everywhere: the minimiser is the mean of the perturbed rewards, whose
    # variance over members is σ²/n, that of the posterior of a mean under a flat prior.
    num_data, num_members, sigma = 64, 3000, 0.5
    data = batch(
        observation=jnp.zeros((num_data, 1)),
        action=jnp.zeros(num_data, jnp.int32),
        return_=jnp.full(num_data, 2.0),
        bootstrap_discount=jnp.zeros(num_data),
        next_observation=jnp.zeros((num_data, 1)),
        slot=jnp.arange(num_data),
    )
    q = lambda params, observation, key: jnp.broadcast_to(params[None, :, None], (num_data, num_members, 1))
    target_q = lambda observation, key: jnp.zeros((num_data, num_members, 1))
    term = objectives.td(perturbation=sigma)
    loss = objectives.potential(term, q, target_q, data)
    best = 2.0 + sigma * objectives.reward_noise(data.slot, num_members).mean(0)
    np.testing.assert_allclose(jax.grad(loss)(best), np.zeros(num_members), atol=1e-5)
    assert float(best.var()) == pytest.approx(sigma**2 / num_data, rel=4 * np.sqrt(2 / num_members))


def test_each_member_has_its_own_discount():
    values = jnp.ones((2, 2, 1))
    q, target_q = (lambda params, observation, key: 0 * values), (lambda observation, key: values)
    data = batch(bootstrap_discount=jnp.array([[0.81, 0.9], [0.0, 0.0]]))
    errors = objectives.td_errors(q, target_q, (), data)
    np.testing.assert_allclose(errors, [[1 + 0.81, 1 + 0.9], [2.0, 2.0]], rtol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_horizons_become_equal_as_rewards_become_frequent(share):
    seen = lambda key, state, batch, num_data, next_values: (state, batch.bootstrap_discount)
    agent = idle(action=0)._replace(update=seen, priorities=lambda *data: data[2].bootstrap_discount)
    agent = mixed_horizons(agent, jnp.array([10.0, 1.0]))
    rewards = (jnp.arange(8) < 8 * share).astype(jnp.float32)
    data = batch(return_=rewards, bootstrap_discount=jnp.full(8, 0.9))
    fresh = agent.init(jax.random.key(0))
    after, discounts = agent.update(None, fresh, data, 1, None)
    np.testing.assert_allclose(discounts, np.tile([0.9**10, 0.9], (8, 1)), rtol=1e-5)
    assert float(after.rewarded) == pytest.approx(share / 100)
    late = fresh._replace(rewarded=jnp.asarray(share))
    after, discounts = agent.update(None, late, data, 1, None)
    np.testing.assert_allclose(discounts, np.tile([0.9**10 ** (1 - share), 0.9], (8, 1)), rtol=1e-5)
    np.testing.assert_array_equal(agent.priorities(None, late, data, None), discounts)
    assert float(after.rewarded) == pytest.approx(share)


@pytest.mark.parametrize(("best", "discount", "share"), [(0, 0.9, 0), (0, 0, 0.75), (-0.5, 0.9, 1), (0.5, 0.9, 1)])
def test_horizons_stay_different_as_long_as_costs_can_be_avoided_and_nothing_is_earned(best, discount, share):
    agent = mixed_horizons(idle(action=0), jnp.array([10.0, 1.0]))
    returns, discounts = jnp.array([best, -1.0, -2.0, -1.0]), jnp.full(4, 0.9).at[0].set(discount)
    data = batch(return_=returns, bootstrap_discount=discounts)
    after, _ = agent.update(None, agent.init(jax.random.key(0)), data, 1, None)
    assert float(after.rewarded) == pytest.approx(share / 100)


def test_optimism_may_be_about_replayed_observations_and_a_prior_may_have_an_anchor():
    q = lambda params, observation, key: params * observation
    data = batch(observation=jnp.array([[3.0], [5.0]]), first_observation=jnp.array([[1.0], [1.0]]))
    none = lambda observation, key: None
    for at, expected in (("first_observation", -0.1 * 2), ("observation", -0.1 * 2 * 4)):
        loss = objectives.potential(objectives.feel_good(0.1, at=at), q, none, data)
        assert float(loss(2.0)) == pytest.approx(expected)
    with pytest.raises(ValueError, match="at must be one of"):
        objectives.feel_good(0.1, at="next_observation")
    prior = objectives.anchored_prior({"w": jnp.array([1.0, 2.0])}, 0.5)
    loss = objectives.potential(prior, q, none, data, reduction="sum", num_data=10)
    assert float(loss({"w": jnp.array([2.0, 4.0])})) == pytest.approx((1 + 4) / (2 * 0.25))


def actions_of(exploration, values, num_episodes, num_steps):
    """Actions (episodes, steps) at the same values throughout."""
    key_begin, key_act = jax.random.split(jax.random.key(0))
    contexts = jax.vmap(exploration.begin)(jax.random.split(key_begin, num_episodes))
    keys = jax.random.split(key_act, (num_episodes, num_steps))
    act = jax.vmap(lambda key, context: exploration.explore(key, context, values, 0.0), (0, None))
    return np.asarray(jax.vmap(act)(keys, contexts))


def test_an_episode_follows_one_member():
    actions = actions_of(one_draw_an_episode(4), jnp.eye(4), 4000, 5)  # member m prefers action m
    assert np.all(actions == actions[:, :1])
    np.testing.assert_allclose(np.bincount(actions[:, 0]) / 4000, 0.25, atol=4 * np.sqrt(0.25 * 0.75 / 4000))


def test_dithered_episodes_have_uniform_actions_or_one_steady_action():
    # The member prefers action 0, so any other action is a random one.
    actions = actions_of(one_draw_an_episode(1, 0.5), jnp.array([[1.0, 0.0, 0.0]]), 4000, 500)
    shares = np.stack([np.mean(actions == action, 1) for action in (1, 2)], 1)
    is_steady = (shares.max(1) > 0.1) & (shares.min(1) == 0)
    is_uniform = shares.min(1) > 0.1
    within = lambda share, num: pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / num))
    # A quarter of the episodes has a steady action, in a third of them the greedy one; P(1 − u² > 0.1) = √0.9.
    assert np.mean(is_steady) == within(0.25 * 2 / 3 * np.sqrt(0.9), 4000)
    assert np.mean(shares[is_steady, 0] > 0) == within(0.5, is_steady.sum())
    # E[ε | ε > 0.1] for ε = 1 − u² with u uniform in [0, √0.9): 1 − 0.9/3; its standard deviation is below 0.3.
    assert shares[is_steady].max(1).mean() == pytest.approx(0.7, abs=4 * 0.3 / np.sqrt(is_steady.sum()))
    # Another quarter has uniform actions, each other action with probability ε/3 > 0.1; E[ε/3 | ε > 0.3] = 0.65/3.
    assert np.mean(is_uniform) == pytest.approx(0.25 * 0.7, abs=0.03)
    np.testing.assert_allclose(shares[is_uniform].mean(0), 0.65 / 3, atol=0.02)


def test_a_thousand_members_are_enough():
    with pytest.raises(ValueError, match="num_members must be at most 1024, got 1025"):
        one_draw_an_episode(1025)


def test_evaluation_counts_votes_and_breaks_ties_by_the_mean():
    exploit = one_draw_an_episode(3).exploit
    # Two members vote for action 0, one with a huge value for action 1.
    assert exploit(None, None, jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 99.0]])) == 0
    assert exploit(None, None, jnp.array([[1.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 2.0]])) == 1


def test_a_fresh_member_is_its_prior_times_the_scale():
    spaces = Spaces((3,), 2)
    values = {}
    for scale in (0.1, 0.2):
        agent = make_agent("ensemble_dqn", spaces, {"prior_scale": scale}, Options(hidden=(8,), num_members=3))
        values[scale] = agent.values(jax.random.key(1), agent.init(jax.random.key(0)), jnp.ones(3))
    assert values[0.1].shape == (3, 2)
    np.testing.assert_allclose(values[0.2], 2 * values[0.1], rtol=1e-5)
    assert np.ptp(np.asarray(values[0.1])[:, 0]) > 0


@pytest.mark.parametrize(("size", "is_one_hot", "ratio"), [(100, True, 0.5), (99, True, 1.0), (100, False, 1.0)])
def test_first_layers_start_smaller_for_one_hot_observations_of_many_cells_and_only_there(size, is_one_hot, ratio):
    spaces, options = Spaces((size,), 2, is_one_hot=is_one_hot), Options(hidden=(8,), num_members=3, network="mlp")

    def params(scale):
        return make_agent("ensemble_dqn", spaces, {"one_hot_scale": scale}, options).init(jax.random.key(0)).target

    whole, half = jax.tree.leaves(params(1.0)), jax.tree.leaves(params(0.5))
    is_first = [leaf.shape in ((3, size, 8), (3, 8)) for leaf in whole]
    assert sum(is_first) == 2  # weights and biases of the first layers; the others are the last layers'
    for leaf, same, first in zip(whole, half, is_first, strict=True):
        np.testing.assert_allclose(same, ratio * leaf if first else leaf, rtol=1e-6)
    assert ZOO["ensemble_dqn"].hyper["one_hot_scale"] == 0.1


@pytest.mark.parametrize("perturbation", [0.0, 0.5])
def test_on_one_hot_observations_the_default_agent_is_q_learning_on_tables_with_the_rates_of_visits(perturbation):
    """Against a loop over transitions in NumPy: three members, 32 cells, 40 minibatches with repeated pairs."""
    spaces, hyper = Spaces((32,), 2, is_one_hot=True), {"action_gap": 0.0, "horizon_spread": 4.0, "table_rate": 0.3}
    agent = make_agent("ensemble_dqn", spaces, hyper | {"perturbation": perturbation}, Options(num_members=3))
    key = jax.random.key(0)
    state, random = agent.init(key), np.random.default_rng(0)
    noise = perturbation * np.asarray(objectives.reward_noise(jnp.arange(8, dtype=jnp.uint32) + state.noise_slot, 3))
    update, look_ahead = jax.jit(agent.update), jax.jit(agent.look_ahead)
    codes = jnp.arange(32)
    values = jax.jit(lambda state: jax.vmap(lambda code: agent.values(key, state, code))(codes))  # (states, members, 2)
    table = np.asarray(values(state), np.float64)
    assert 0.1 < table.std() < 0.6  # priors of scale 0.3
    target, visits, rewarded = table.copy(), np.zeros((32, 2)), 0.0
    rate = lambda n, t: max(1 / (n + 1), min(0.3, t / (50 * n)))
    for step in range(40):
        o, a, then = random.integers(5, size=8), random.integers(2, size=8), random.integers(5, size=8)
        reward, discount = random.integers(2, size=8) * random.uniform(-1, 1, 8), 0.9 * random.integers(2, size=8)
        horizons = np.array([4.0, 2.0, 1.0]) ** (1 - rewarded)
        data = batch(
            observation=jnp.asarray(o),
            action=jnp.asarray(a, jnp.int32),
            return_=jnp.asarray(reward, jnp.float32),
            bootstrap_discount=jnp.asarray(discount, jnp.float32),
            next_observation=jnp.asarray(then),
            first_observation=jnp.asarray(o),
            slot=jnp.arange(8),
        )
        state, _ = update(key, state, data, 8, look_ahead(key, state, data))
        errors = {}
        for i in range(8):
            y = reward[i] + noise[i] + discount[i] ** horizons * target[then[i]].max(-1)
            errors.setdefault((o[i], a[i]), []).append(y - table[o[i], :, a[i]])
        is_searching = reward.max() <= 0 and np.any((reward == 0) & (discount > 0))
        share = 0.0 if is_searching else np.mean(reward != 0)
        rewarded += (share - rewarded) / 100
        for (cell, action), found in errors.items():
            visits[cell, action] += 1
            table[cell, :, action] += rate(visits[cell, action], step + 1) * np.mean(found, 0)
        if step % 8 == 7:
            state, target = agent.sync(state), table.copy()
    np.testing.assert_allclose(values(state), table, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "is_one_hot", "network", "is_table"),
    [(32, True, "auto", True), (31, True, "auto", False), (32, False, "auto", False), (32, True, "mlp", False)],
)
def test_tables_are_for_one_hot_observations_of_many_cells_unless_a_network_is_chosen(
    size, is_one_hot, network, is_table
):
    spaces, options = Spaces((size,), 2, is_one_hot=is_one_hot), Options(num_members=3, network=network)
    params = make_agent("ensemble_dqn", spaces, options=options).init(jax.random.key(0)).target
    assert ([leaf.shape for leaf in jax.tree.leaves(params)] == [(3, size, 2)]) == is_table


def test_without_reward_the_default_agent_leaves_values_of_zero_alone_and_the_feel_good_term_raises_them():
    key, data = jax.random.key(0), batch(return_=jnp.zeros(2), bootstrap_discount=jnp.full(2, 0.99))

    @jax.jit
    def values(weight):
        hyper = {"prior_scale": 0.0, "feel_good_weight": weight}  # without priors all values are 0 at first
        agent = make_agent("ensemble_dqn", Spaces((1,), 2), hyper, Options(hidden=(4,), num_members=2))
        before = agent.init(key)
        after, _ = agent.update(key, before, data, 10, agent.look_ahead(key, before, data))
        return agent.values(key, after, jnp.zeros(1))

    np.testing.assert_array_equal(values(ZOO["ensemble_dqn"].hyper["feel_good_weight"]), 0)
    assert np.all(values(1e-3).max(-1) > 0)


def idle(action, frozen=None):
    """An agent that always takes one action and learns nothing."""
    return Agent(
        init=lambda key: AgentState(None, frozen, None),
        begin=lambda key: jnp.zeros((), jnp.int32),
        explore=lambda key, state, context, observation, progress: jnp.int32(action),
        exploit=lambda key, state, context, observation: jnp.int32(action),
        look_ahead=lambda key, state, batch: None,
        update=lambda key, state, batch, num_data, next_values: (state, None),
        sync=lambda state: state,
    )


def value_iteration(returns, discounts, next_states):
    """Action values (S, A) of deterministic transitions, by a thousand sweeps in double precision."""
    values = np.zeros(returns.shape)
    for _ in range(1000):
        values = returns + discounts * values.max(-1)[next_states]
    return values


@pytest.mark.parametrize("end_return", [-3.0, 0.0, 50.0])
def test_without_its_step_cost_a_problem_has_the_same_values_measured_from_an_endless_episode(end_return):
    random, discount, cost = np.random.default_rng(0), 0.9, 3.0
    next_states = random.integers(20, size=(20, 2))
    returns, discounts = np.full((20, 2), -cost), np.full((20, 2), discount)
    returns[3, 0], discounts[3, 0] = end_return, 0.0  # the end of an episode
    returns[5, 1], returns[8, 0] = -10.0, 2.0
    values = value_iteration(returns, discounts, next_states)
    seen = lambda key, state, batch, num_data, next_values: (state, batch.return_)
    plain = idle(action=0)._replace(
        update=seen, priorities=lambda *data: data[2].return_, values=lambda key, state, observation: observation
    )
    agent = without_step_cost(plain)
    data = batch(return_=jnp.asarray(returns.ravel()), bootstrap_discount=jnp.asarray(discounts.ravel()))
    fresh = agent.init(jax.random.key(0))
    state, replaced = agent.update(None, fresh, data, 1, None)
    np.testing.assert_array_equal(agent.priorities(None, fresh, data, None), replaced)
    assert float(state.endless_cost) == pytest.approx(cost / (1 - discount))
    assert np.count_nonzero(replaced) == 3  # all other steps have the return 0
    inside = value_iteration(np.asarray(replaced, np.float64).reshape(20, 2), discounts, next_states)
    np.testing.assert_allclose(agent.values(None, state, jnp.asarray(inside)), values, rtol=1e-4, atol=1e-4)
    # Other costs do not change what the first minibatch has decided.
    later, replaced_later = agent.update(None, state, data._replace(return_=2 * data.return_), 1, None)
    assert float(later.endless_cost) == float(state.endless_cost)
    assert np.count_nonzero(replaced_later) == 40


@pytest.mark.parametrize(
    ("usual", "share", "discount"), [(-1.0, 0.8, 0.9), (0.0, 1.0, 0.9), (1.0, 1.0, 0.9), (-1.0, 1.0, 1.0)]
)
def test_returns_stay_unless_nearly_all_steps_have_the_same_cost(usual, share, discount):
    seen = lambda key, state, batch, num_data, next_values: (state, batch.return_)
    plain = idle(action=0)._replace(update=seen, values=lambda key, state, observation: observation)
    agent = without_step_cost(plain)
    returns = jnp.where(jnp.arange(10) < 10 * share, usual, 0.25)
    data = batch(return_=returns, bootstrap_discount=jnp.full(10, discount))
    state, replaced = agent.update(None, agent.init(jax.random.key(0)), data, 1, None)
    np.testing.assert_array_equal(replaced, returns)
    np.testing.assert_array_equal(agent.values(None, state, returns), returns)
    # Costs that appear later are left as they are, too.
    costs = data._replace(return_=jnp.full(10, -1.0))
    np.testing.assert_array_equal(agent.update(None, state, costs, 1, None)[1], costs.return_)


def test_the_default_agent_replaces_step_costs_if_its_members_are_networks_and_not_if_they_are_tables():
    key, data = jax.random.key(0), batch(return_=jnp.full(2, -1.0), bootstrap_discount=jnp.full(2, 0.99))
    networks = make_agent("ensemble_dqn", Spaces((1,), 2), options=Options(hidden=(4,), num_members=2))
    before = networks.init(key)
    after, _ = networks.update(key, before, data, 10, networks.look_ahead(key, before, data))
    assert float(after.endless_cost) == pytest.approx(100, rel=1e-4)
    tables = make_agent("ensemble_dqn", Spaces((32,), 2, is_one_hot=True), options=Options(num_members=2))
    assert tables.init(key).endless_cost == ()


def test_without_any_reward_every_other_member_acts_at_random_until_there_is_one():
    plain = idle(action=3)
    agent, keys = restless(plain, num_actions=4, patience=2), jax.random.split(jax.random.key(0), 400)
    learn = lambda state, returns: agent.update(None, state, batch(return_=jnp.asarray(returns)), 10, None)[0]
    act = lambda state, context: np.asarray(jax.vmap(lambda key: agent.explore(key, state, context, None, 0.0))(keys))
    state = agent.init(keys[0])
    for _ in range(2):
        np.testing.assert_array_equal(act(state, 5), 3)
        state = learn(state, [0.0, 0.0])
    np.testing.assert_array_equal(act(state, 4), 3)
    counts = np.bincount(act(state, 5), minlength=4)
    assert np.abs(counts - 100).max() < 4 * np.sqrt(400 * 3 / 16)
    assert int(agent.exploit(None, state, 5, None)) == 3
    state = learn(state, [0.0, -0.1])
    for returns in ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]):  # for good
        np.testing.assert_array_equal(act(state, 5), 3)
        state = learn(state, returns)


def test_returns_are_scaled_into_their_bounds_and_small_ones_are_left_alone():
    seen = []
    plain = Agent(
        init=lambda key: AgentState(None, None, None),
        begin=lambda key: jnp.zeros((), jnp.int32),
        explore=lambda key, state, context, observation, progress: jnp.int32(0),
        exploit=lambda key, state, context, observation: jnp.int32(0),
        look_ahead=lambda key, state, batch: None,
        update=lambda key, state, batch, num_data, next_values: (state, seen.append(np.asarray(batch.return_))),
        sync=lambda state: state,
        priorities=lambda key, state, batch, next_values: jnp.abs(batch.return_),
    )
    for cases in (
        [
            ([0.5, -0.01, 0.0], [0.5, -0.01, 0.0]),
            ([1.0, -100.0, -1.0], [1.0, -100.0, -1.0]),
            ([4.0, -4.0, 0.0], [1.0, -1.0, 0.0]),
            ([1.0, 0.0, 0.0], [0.25, 0.0, 0.0]),
            ([50.0, -10_000.0, 0.0], [0.5, -100.0, 0.0]),
        ],
        [
            ([0.0, -1.0, -16.0], [0.0, -1.0, -16.0]),
            ([-4.0, -5.0, -16.0], [-0.8, -1.0, -3.2]),  # half of the losses are 5 or more
            ([0.0, -1.0, -1.0], [0.0, -0.2, -0.2]),
        ],
    ):
        agent = bounded_rewards(plain)
        state = agent.init(jax.random.key(0))
        for returns, expected in cases:
            data = batch(return_=jnp.asarray(returns), bootstrap_discount=jnp.full(3, 0.9))
            np.testing.assert_allclose(agent.priorities(None, state, data, None), np.abs(expected), rtol=1e-6)
            state, _ = agent.update(None, state, data, 10, None)
            np.testing.assert_allclose(seen[-1], expected, rtol=1e-6)


def seen_returns(**settings):
    """`(state, returns) -> (state, returns inside)` of `bounded_rewards`, and a first state.

    The discount is 0.75, and the last transition ends an episode.
    """
    seen = lambda key, state, batch, num_data, next_values: (state, batch.return_)
    agent = bounded_rewards(idle(action=0)._replace(update=seen), **settings)

    def update(state, returns):
        data = batch(return_=jnp.asarray(returns), bootstrap_discount=jnp.array([*[0.75] * (len(returns) - 1), 0.0]))
        return agent.update(None, state, data, 10, None)

    return update, agent.init(jax.random.key(0))


@pytest.mark.parametrize(
    ("first", "unit"),
    [
        ([0.0, -1.5, -3.0], 12.0),  # twice the median loss of 1.5 for four steps
        ([0.0, -0.01, -0.02], 1.0),  # a search costs less than 1
        ([0.0, 0.0, -3.0], 1.0),  # most steps are free
        ([0.5, -1.5, -3.0], 1.5),  # a reward was found: only the median counts
        ([-3.0, -1.5, 0.0], 1.5),  # only the end is free
    ],
)
def test_if_some_steps_cost_and_others_are_free_the_unit_is_the_cost_of_an_endless_search(first, unit):
    update, state = seen_returns(search_factor=2.0)
    for returns in (first, [-0.3, -0.3, 0.0]):
        state, inside = update(state, returns)
        np.testing.assert_allclose(inside, np.array(returns) / unit, rtol=1e-6)
        assert float(state.reward_scale) == pytest.approx(unit)
    update, state = seen_returns()
    np.testing.assert_allclose(update(state, first)[1], np.array(first) / max(1.0, -np.median(first)), rtol=1e-6)


def test_the_unit_of_rewards_falls_with_the_floor_to_the_largest_reward_once_there_is_one():
    floors = {floor: seen_returns(floor=floor) for floor in (1.0, 0.5, 0.1)}
    state = floors[1.0][1]
    for floor, returns, unit in (
        (0.5, [0.0, 0.0, -0.1], 1.0),  # no reward so far
        (0.5, [0.0, 0.2, -0.1], 0.5),
        (0.1, [0.0, 0.1, -0.1], 0.2),
        (0.1, [0.0, 0.0, -0.4], 0.2),
        (0.1, [0.0, 0.0, -40.0], 0.4),  # a hundredth of the largest loss
    ):
        state, inside = floors[floor][0](state, returns)
        np.testing.assert_allclose(inside, np.array(returns) / unit, rtol=1e-6)
        assert float(state.reward_scale) == pytest.approx(unit)


def test_a_search_is_costly_as_soon_as_a_free_step_is_seen():
    update, state = seen_returns(search_factor=2.0)
    for returns, unit in (
        ([-1.0, -1.5, -3.0], 1.5),  # no step is free
        ([-1.0, 0.0, 0.0], 12.0),
        ([0.0, -2.0, -2.0], 16.0),
        ([0.0, 0.0, 0.0], 16.0),
    ):
        state, inside = update(state, returns)
        np.testing.assert_allclose(inside, np.array(returns) / unit, rtol=1e-6)


def test_each_minibatch_with_a_reward_and_a_falling_floor_lower_the_hope():
    high, state = seen_returns(search_factor=2.0)
    low, _ = seen_returns(search_factor=2.0, floor=0.25)
    for update, returns, unit in (
        (high, [0.0, -1.5, -3.0], 12.0),
        (low, [0.0, -1.5, 0.0], 12.0),  # no reward so far
        (high, [0.0, 1.5, 0.0], 0.99 * 12.0),
        (low, [0.0, 1.5, 0.0], 0.25 * 0.99**2 * 12.0),
        (high, [0.0, -2.0, -2.0], 0.99**2 * 12.0),  # a reward was found, so costs change nothing
        (low, [0.0, 5.0, 0.0], 5.0),
    ):
        state, inside = update(state, returns)
        np.testing.assert_allclose(inside, np.array(returns) / unit, rtol=1e-6)
    for _ in range(400):
        state, _ = high(state, [0.0, 0.1, 0.0])
    assert float(state.units.hope) == 1


def test_the_default_agent_scales_costs_and_small_rewards_if_its_members_are_networks():
    """The hope is 0.1/((1 − 0.99)·0.3); the floor is the cube of `reward_floor`."""
    key, hyper = jax.random.key(0), {"prior_scale": 0.3, "reward_floor": 0.5}
    discounts = jnp.full(2, 0.99)
    costs = batch(return_=jnp.array([0.0, -0.2]), bootstrap_discount=discounts)  # of median 0.1
    rewards = batch(return_=jnp.array([0.0, 0.01]), bootstrap_discount=discounts)
    agent = make_agent("ensemble_dqn", Spaces((1,), 2), hyper, Options(hidden=(4,), num_members=2))
    update = jax.jit(lambda state, data: agent.update(key, state, data, 10, agent.look_ahead(key, state, data))[0])
    state = update(agent.init(key), costs)
    assert float(state.reward_scale) == pytest.approx(0.1 / 0.01 / 0.3, rel=1e-4)
    assert float(state.rewarded) == 0
    assert float(update(state, rewards).reward_scale) == pytest.approx(0.99 * 0.125 * 0.1 / 0.01 / 0.3, rel=1e-4)
    assert float(update(agent.init(key), rewards).reward_scale) == pytest.approx(0.125)


def test_the_noise_on_rewards_is_fixed_in_a_run_and_independent_between_runs():
    seen = lambda key, state, batch, *_: (state, objectives.reward_noise(batch.slot, 4))
    agent, data = own_reward_noise(idle(action=0)._replace(update=seen)), batch(slot=jnp.arange(2_000))
    draw = jax.jit(lambda key: agent.update(None, agent.init(key), data, 10, None)[1].ravel())
    noise = np.stack([draw(jax.random.key(seed)) for seed in range(3)])
    np.testing.assert_array_equal(draw(jax.random.key(0)), noise[0])
    correlations = np.corrcoef(noise) - np.eye(3)
    assert np.abs(correlations).max() < 4 / np.sqrt(8_000)


def test_values_are_in_the_unit_of_the_rewards_and_otherwise_the_same_whatever_it_is():
    observations = {name: jnp.eye(3)[:2] for name in ("observation", "next_observation", "first_observation")}
    data = batch(return_=jnp.array([1.0, -0.5]), bootstrap_discount=jnp.full(2, 0.9), **observations)
    agent = make_agent("ensemble_dqn", Spaces((3,), 2), {}, Options(hidden=(8,), num_members=3))

    @jax.jit
    def values(unit):
        scaled = data._replace(return_=unit * data.return_)

        def update(state, key):
            return agent.update(key, state, scaled, 10, agent.look_ahead(key, state, scaled))[0], None

        state, _ = jax.lax.scan(update, agent.init(jax.random.key(0)), jax.random.split(jax.random.key(1), 3))
        return agent.values(jax.random.key(2), state, jnp.ones(3))

    np.testing.assert_array_equal(64 * values(1.0), values(64.0))


def test_bounds_of_observations_shrink_by_powers_of_sixteen_to_observed_values_and_grow_again():
    declared = np.array([255.0, 1.0, np.inf, 7.0, 1000.0], np.float32)
    model = networks.scaled(networks.mlp(jax.random.key(0), 5, (), 2), declared, (5,))
    plain = idle(action=0, frozen=networks.partition(model)[1])
    agent = fitted_bounds(plain, declared, lambda code: code / 2)
    state = agent.init(jax.random.key(0))
    for decoded, expected in (
        ([[0, 0, 0, 0, 0]], declared),
        ([[3, 0.3, 5, 0, -1], [-10, 0.2, 0, 0, 0]], [255 / 16, 1, np.inf, 7, 1000 / 256]),
        ([[0, 0, 0, 0.4, 0]], [255 / 16, 1, np.inf, 7 / 16, 1000 / 256]),
        ([[0, 0, 0, -0.5, 900]], [255 / 16, 1, np.inf, 7, 1000]),
    ):
        state, _ = agent.update(None, state, batch(observation=2 * jnp.asarray(decoded, jnp.float32)), 10, None)
        np.testing.assert_allclose(state.frozen.bound.value, expected, rtol=1e-6)


def test_values_are_the_same_whatever_loose_bound_an_observation_has():
    values, observations = {}, jnp.array([[0.5, 1.0, 0.0], [0.0, 0.6, 0.9]])
    data = batch(observation=observations, next_observation=observations, first_observation=observations)
    for bound in (1.0, 256.0):
        spaces = Spaces((3,), 2, bound=np.full(3, bound))
        agent = make_agent("ensemble_dqn", spaces, {}, Options(hidden=(8,), num_members=3))

        def before_and_after(key, agent=agent):
            state = agent.init(jax.random.key(0))
            moved, _ = agent.update(key, state, data, 10, agent.look_ahead(key, state, data))
            return [agent.values(key, each, observations[0]) for each in (state, moved)]

        values[bound] = jax.jit(before_and_after)(jax.random.key(1))
    assert np.abs(values[1.0][0] - values[256.0][0]).max() > 0.1
    np.testing.assert_allclose(values[1.0][1], values[256.0][1], rtol=1e-6)  # two programs, which may round differently


def test_it_solves_a_small_deep_sea():
    # Uniform play finds the treasure of N = 6 once in 64 episodes; a draw that explores finds it and stays.
    hyper = {name: jnp.full(2, value) for name, value in ZOO["ensemble_dqn"].hyper.items()}
    config = FunctionalConfig(
        num_steps=1200, evaluation_period=300, learning_starts=30, replay_ratio=1.0, batch_size=32,
        target_update_period=4, success_return=0.9,
    )  # fmt: skip
    make = lambda spaces, hyper: make_agent("ensemble_dqn", spaces, hyper, Options(hidden=(16, 16), num_members=5))
    curves = run_batch(trainer(envs.deep_sea(6, mapping_seed=42), make, config), 4, np.arange(2), hyper)
    np.testing.assert_allclose(curves.record.evaluation[:, -1], 0.99, atol=1e-3)


@pytest.mark.parametrize(("name", "num_members"), [("ensemble_dqn", 20), ("bootstrapped_dqn", 10)])
def test_records_of_a_run_hold_the_number_of_members(name, num_members):
    assert complete(name, Options()).num_members == num_members
    assert complete(name, Options(num_members=3)).num_members == 3
    agent = make_agent(name, Spaces((2,), 4))
    values = jax.eval_shape(lambda key: agent.values(key, agent.init(key), jnp.zeros(2)), jax.random.key(0))
    assert values.shape == (num_members, 4)


def test_an_agent_without_members_has_its_widths_alone():
    assert complete("dqn", Options()) == Options(hidden=(32, 32))
    assert complete("dqn", Options(hidden=(5,))) == Options(hidden=(5,))


@pytest.mark.parametrize(("name", "option"), [("dqn", "hidden"), ("ensemble_dqn", "num_members")])
def test_a_recipe_refuses_options_that_are_not_complete(name, option):
    with pytest.raises(ValueError, match=rf"option {option} must be a value, got None; feelgood.agents.complete gives"):
        ZOO[name].make(Spaces((4,), 2), ZOO[name].hyper, Options())
