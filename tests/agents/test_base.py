"""Updates of agents against their equations in NumPy and float64, and actions against the action values behind them."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from feelgood import networks, noise, samplers
from feelgood.agents import ZOO, Options, Spaces, epsilon_greedy, greedy, make_agent, one_member_an_episode, value_agent
from feelgood.objectives import (
    categorical_losses,
    categorical_td,
    categorical_values,
    feel_good,
    gaussian_prior,
    potential,
    quantile_losses,
    quantile_td,
    quantile_values,
    td,
    td_errors,
)
from feelgood.replay import Batch

SPACES = Spaces((5,), 3)
OPTIONS = {form: Options(hidden=(8, 6), form=form) for form in ("released", "paper", "corrected", "bounded")}
HYPER = {
    "step_size": 0.02,
    "inverse_temperature": 300.0,
    "bias_factor": 0.3,
    "bias_epsilon": 2e-3,
    "friction": 0.7,
    "feel_good_weight": 0.4,
}


def minibatch(seed, batch_size=16):
    rng = np.random.default_rng(seed)
    observations = [jnp.asarray(rng.normal(size=(batch_size, 5)), jnp.float32) for _ in range(3)]
    return Batch(
        observation=observations[0],
        action=jnp.asarray(rng.integers(3, size=batch_size), jnp.uint8),
        return_=jnp.asarray(rng.normal(size=batch_size), jnp.float32),
        bootstrap_discount=jnp.asarray(0.9 * (rng.random(batch_size) < 0.7), jnp.float32),
        next_observation=observations[1],
        first_observation=observations[2],
        slot=jnp.arange(batch_size),
    )


def update(agent, key, state, batch, num_data):
    """One update as the training loop makes it: the target looks ahead, then the network moves."""

    @jax.jit
    def move(key, state, batch):
        return agent.update(key, state, batch, num_data, agent.look_ahead(key, state, batch))

    return move(key, state, batch)


def in_numpy(tree):
    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def forward(params, x):
    """Values of an MLP, and the input of each layer for the way back."""
    inputs = []
    for i in range(0, len(params), 2):
        x = np.maximum(x, 0) if i else x
        inputs.append(x)
        x = x @ params[i] + params[i + 1]
    return x, inputs


def backward(params, inputs, slope):
    """Gradient of Σ slope·values with respect to the parameters."""
    gradient = []
    for i in reversed(range(len(inputs))):
        gradient = [inputs[i].T @ slope, slope.sum(0), *gradient]
        slope = (slope @ params[2 * i].T) * (inputs[i] > 0)
    return gradient


def gradient(params, target, batch, weight):
    """∇ of (1/B)·Σ_b (r + γ·max_a Q_target(o', a) − Q(o, a_b))² − (weight/B)·Σ_b max_a Q(first, a), by hand."""
    batch = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), batch)
    rows = np.arange(len(batch.return_))
    actions = batch.action.astype(int)
    values, inputs = forward(params, batch.observation)
    best_next = forward(target, batch.next_observation)[0].max(-1)
    errors = batch.return_ + batch.bootstrap_discount * best_next - values[rows, actions]
    slope = np.zeros_like(values)
    slope[rows, actions] = -2 * errors / len(rows)
    total = backward(params, inputs, slope)
    value = np.mean(errors**2)
    if weight:
        values, inputs = forward(params, batch.first_observation)
        slope = np.zeros_like(values)
        slope[rows, values.argmax(-1)] = -weight / len(rows)
        total = [a + b for a, b in zip(total, backward(params, inputs, slope), strict=True)]
        value -= weight * np.mean(values.max(-1))
    return value, total


class Recomputed:
    """The samplers of the paper on lists of arrays, each parameter by itself."""

    def __init__(self, name, form, params):
        self.name, self.form, self.params = name, form, params
        self.momentum, self.m, self.v = ([np.zeros_like(p) for p in params] for _ in range(3))
        self.count = 0

    def step(self, gradient, xi):
        tau, beta, a = HYPER["step_size"], HYPER["inverse_temperature"], HYPER["bias_factor"]
        gamma, second = HYPER["friction"], 0.99 if self.form == "paper" else 0.999
        epsilon = HYPER["bias_epsilon"]
        self.count += 1
        for i, g in enumerate(gradient):
            if self.name == "lmcdqn":
                self.params[i] = self.params[i] - tau * g + np.sqrt(2 * tau / beta) * xi[i]
                continue
            corrected = self.form in ("corrected", "bounded")
            first = 0.0 if corrected and "ulmc" in self.name else 0.9
            self.m[i] = first * self.m[i] + (1 - first) * g
            self.v[i] = second * self.v[i] + (1 - second) * g**2
            m, v = self.m[i], self.v[i]
            if corrected:
                m, v = m / (1 - first**self.count), v / (1 - second**self.count)
            drift = g + a * m / (np.sqrt(v + epsilon) if self.form == "paper" else np.sqrt(v) + epsilon)
            if self.form == "bounded":
                drift = drift * min(1.0, a / np.sqrt(np.mean(drift**2)))
            if self.name in ("fg_lmcdqn", "adam_lmcdqn"):
                self.params[i] = self.params[i] - tau * drift + np.sqrt(2 * tau / beta) * xi[i]
                continue
            kick = np.sqrt(2 * gamma * tau / beta) * xi[i]
            self.momentum[i] = (1 - gamma * tau) * self.momentum[i] - tau * drift
            if self.form == "paper":
                self.momentum[i] = self.momentum[i] + kick
            self.params[i] = self.params[i] + tau * self.momentum[i]
            if self.form != "paper":
                self.params[i] = self.params[i] + kick


CASES = [
    ("fg_ulmcdqn", "released"),
    ("fg_ulmcdqn", "paper"),
    ("fg_ulmcdqn", "corrected"),
    ("fg_ulmcdqn", "bounded"),
    ("ulmcdqn", "released"),
    ("fg_lmcdqn", "released"),
    ("fg_lmcdqn", "paper"),
    ("fg_lmcdqn", "corrected"),
    ("adam_lmcdqn", "released"),
    ("lmcdqn", "released"),
]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_five_updates_are_those_of_the_equations_in_float64(name, form):
    agent = make_agent(name, SPACES, {key: HYPER[key] for key in ZOO[name].hyper}, OPTIONS[form])
    state = agent.init(jax.random.key(0))
    state = state._replace(target=agent.init(jax.random.key(1)).target)
    ours = Recomputed(name, form, in_numpy(state.sampler.params))
    target = in_numpy(state.target)
    weight = HYPER["feel_good_weight"] if name.startswith("fg") else 0.0
    step = jax.jit(lambda *inputs: update(agent, *inputs))
    for i in range(5):
        key = jax.random.fold_in(jax.random.key(2), i)
        batch = minibatch(i)
        value, slope = gradient(ours.params, target, batch, weight)
        ours.step(slope, in_numpy(noise.normal_like(jax.random.split(key)[1], state.sampler.params)))
        state, info = step(key, state, batch, 100)
        np.testing.assert_allclose(info.potential, value, rtol=1e-5)
        # Per leaf, relative to its largest entry: the rounding error after i + 1 steps in float32.
        for mine, theirs in zip(ours.params, in_numpy(state.sampler.params), strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-5 * np.abs(mine).max())
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, in_numpy(state.target), target)))


def frequency(choose, num_draws=20_000):
    """Share of action 0 over independent keys."""
    actions = jax.vmap(choose)(jax.random.split(jax.random.key(0), num_draws))
    return float((actions == 0).mean())


VALUES = jnp.array([1.0, 3.0, 2.0])


def test_greedy_takes_the_best_action_in_training_and_in_evaluation():
    exploration = greedy()
    context = exploration.begin(jax.random.key(0))
    assert exploration.explore(jax.random.key(0), context, VALUES, 0.0) == 1
    assert exploration.exploit(jax.random.key(0), context, VALUES) == 1


@pytest.mark.parametrize(("progress", "epsilon"), [(0.0, 0.8), (0.125, 0.5), (0.25, 0.2), (1.0, 0.2)])
def test_epsilon_falls_linearly_over_its_share_of_the_budget_and_stays(progress, epsilon):
    exploration = epsilon_greedy(0.8, 0.2, 0.25)
    context = exploration.begin(jax.random.key(0))
    found = frequency(lambda key: exploration.explore(key, context, VALUES, progress))
    # A uniform draw falls on action 0, which is not the best, one time in three.
    expected = epsilon / 3
    assert abs(found - expected) < 4 * np.sqrt(expected * (1 - expected) / 20_000)
    assert frequency(lambda key: exploration.exploit(key, context, VALUES)) == 0


def test_without_time_to_fall_epsilon_is_at_its_end_from_the_start():
    exploration = epsilon_greedy(0.0, 1.0, 0.0)
    context = exploration.begin(jax.random.key(0))
    found = frequency(lambda key: exploration.explore(key, context, VALUES, 0.0))
    assert abs(found - 1 / 3) < 4 * np.sqrt(2 / 9 / 20_000)


def test_one_member_is_drawn_uniformly_and_followed():
    exploration = one_member_an_episode(4, 0.0, 0.0)
    members = jax.vmap(exploration.begin)(jax.random.split(jax.random.key(0), 20_000))
    shares = np.bincount(members, minlength=4) / 20_000
    assert np.abs(shares - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 20_000)
    values = jnp.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 2.0, 0.0]])
    for member, best in enumerate([0, 1, 2, 1]):
        assert exploration.exploit(jax.random.key(1), jnp.int32(member), values) == best
        assert exploration.explore(jax.random.key(1), jnp.int32(member), values, 0.5) == best


def test_one_member_is_perturbed_in_training_only():
    exploration = one_member_an_episode(2, 0.5, 0.5)
    values = jnp.stack([VALUES, -VALUES])
    found = frequency(lambda key: exploration.explore(key, jnp.int32(0), values, 0.0))
    assert abs(found - 0.5 / 3) < 4 * np.sqrt(0.5 / 3 * (1 - 0.5 / 3) / 20_000)
    assert frequency(lambda key: exploration.exploit(key, jnp.int32(0), values)) == 0


def linear_agent(objective, sampler=None, **settings):
    network = networks.network(lambda key: networks.mlp(key, 5, (), 3))
    return value_agent(network, objective, sampler or samplers.langevin(0.1, float("inf")), **settings)


def test_the_sum_reduction_multiplies_the_data_and_leaves_the_prior():
    state = linear_agent(td()).init(jax.random.key(0))
    batch = minibatch(0)

    def value(objective, num_data, **settings):
        agent = linear_agent(objective, **settings)
        return float(update(agent, jax.random.key(1), state, batch, num_data)[1].potential)

    data = value(td(), 40)
    prior = sum((p**2).sum() for p in in_numpy(state.sampler.params)) / 2
    assert value(td() + gaussian_prior(1.0), 40) == pytest.approx(data + prior / 40)
    assert value(td() + gaussian_prior(1.0), 40, reduction="sum") == pytest.approx(40 * data + prior)


def test_synchronising_copies_the_network_to_the_target_exactly_and_nothing_else():
    agent = linear_agent(td())
    state, _ = update(agent, jax.random.key(1), agent.init(jax.random.key(0)), minibatch(0), 16)
    synced = agent.sync(state)
    same = lambda a, b: jax.tree.all(jax.tree.map(np.array_equal, a, b))
    assert not same(state.target, state.sampler.params)
    assert same(synced.target, state.sampler.params)
    assert same(synced.sampler, state.sampler)


def test_the_average_moves_when_the_target_does_and_evaluation_alone_acts_on_it():
    agent = linear_agent(td(), average_decay=0.75)
    start = agent.init(jax.random.key(0))
    first, _ = update(agent, jax.random.key(1), start, minibatch(0), 16)
    assert jax.tree.all(jax.tree.map(np.array_equal, first.average, start.sampler.params))
    second, _ = update(agent, jax.random.key(2), agent.sync(first), minibatch(1), 16)
    state = agent.sync(second)
    whole = zip(*(in_numpy(tree) for tree in (start.target, first.sampler.params, state.target)), strict=True)
    expected = [0.75 * (0.75 * w0 + 0.25 * w1) + 0.25 * w2 for w0, w1, w2 in whole]
    for found, wanted in zip(in_numpy(state.average), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    # The average upside down: its best action is the worst of the draw.
    turned = state._replace(average=jax.tree.map(jnp.negative, state.sampler.params))
    values = np.asarray(state.sampler.params(jnp.ones(5)))
    assert agent.explore(jax.random.key(3), turned, 0, jnp.ones(5), 0.0) == values.argmax()
    assert agent.exploit(jax.random.key(3), turned, 0, jnp.ones(5)) == values.argmin()


def test_looking_ahead_gives_the_potential_that_the_target_network_itself_would_with_its_own_noise():
    network = networks.network(lambda key: networks.noisy_mlp(key, 5, (4,), 3))
    agent = value_agent(network, td(double=True), samplers.langevin(0.1, float("inf")))
    state = agent.init(jax.random.key(0))._replace(target=network.init(jax.random.key(1))[0])
    batch, key = minibatch(0), jax.random.key(2)
    q = lambda params, observation, key: network.apply(params, state.frozen, observation, key)
    target_q = lambda observation, key: network.apply(state.target, state.frozen, observation, key)
    expected = potential(td(double=True), q, target_q, batch, jax.random.split(key)[0])(state.sampler.params)
    assert update(agent, key, state, batch, 16)[1].potential == pytest.approx(float(expected), rel=1e-6)


def test_a_noisy_network_acts_and_learns_with_a_new_draw_for_every_key():
    agent = make_agent("noisynet_dqn", SPACES, options=Options(hidden=(4,)))
    state = agent.init(jax.random.key(0))
    context = agent.begin(jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), 200)
    observation = jnp.ones(5)

    @jax.jit
    @jax.vmap
    def draw(key):
        explored = agent.explore(key, state, context, observation, 0.0)
        exploited = agent.exploit(key, state, context, observation)
        return explored, exploited, update(agent, key, state, minibatch(0), 16)[1].potential

    explored, exploited, potentials = draw(keys)
    assert len(np.unique(explored)) > 1
    assert len(np.unique(exploited)) > 1
    assert len(np.unique(potentials)) > 100


def test_random_priors_are_held_fixed_while_the_rest_learns():
    agent = make_agent("bootstrapped_dqn", SPACES, options=Options(hidden=(4,), num_members=2))
    state = jax.jit(agent.init)(jax.random.key(0))
    moved, _ = update(agent, jax.random.key(1), state, minibatch(0), 16)
    assert jax.tree.all(jax.tree.map(np.array_equal, moved.frozen, state.frozen))
    assert not any(jax.tree.leaves(jax.tree.map(np.array_equal, moved.sampler.params, state.sampler.params)))


ATOMS = np.linspace(-3, 3, 7)


def linear_c51():
    make = lambda key: networks.categorical(networks.mlp(key, 5, (), 3 * 7), 7)
    return networks.network(make, categorical_values(ATOMS)), categorical_td(ATOMS)


def small_iqn():
    def make(key):
        key_trunk, key_embedding, key_head = jax.random.split(key, 3)
        head = lambda num_features: networks.mlp(key_head, num_features, (), 3)
        return networks.implicit_quantiles(
            key_embedding, networks.mlp_features(key_trunk, 5, (6,)), head, num_fractions=8, num_cosines=4
        )

    return networks.network(make, quantile_values), quantile_td()


@pytest.mark.parametrize("make", [linear_c51, small_iqn])
def test_distributions_feel_good_and_underdamped_langevin_go_together(make):
    network, objective = make()
    sampler = samplers.adaptive_underdamped(0.1, 0.5, 1e3, bias_factor=0.1)
    agent = value_agent(network, objective + feel_good(0.3, values=network.values), sampler)
    state = agent.init(jax.random.key(0))._replace(target=network.init(jax.random.key(1))[0])
    batch, key = minibatch(0), jax.random.key(2)
    key_networks, key_sampler = jax.random.split(key)
    key_online, key_target = jax.random.split(key_networks)

    @jax.jit
    def by_hand(state):
        """The same update from its parts: a potential written out, and the sampler's own step."""
        ahead = network.apply(state.target, state.frozen, batch.next_observation, key_target)

        def loss(params):
            q = lambda _, observation, key: network.apply(params, state.frozen, observation, key)
            data = potential(objective, q, lambda o, k: ahead, batch, key_networks)(params)
            best = network.values(network.apply(params, state.frozen, batch.first_observation, key_online)).max(-1)
            return data - 0.3 * best.mean()

        return sampler.step(key_sampler, state.sampler, loss)

    moved, info = jax.jit(lambda state: update(agent, key, state, batch, 16))(state)
    expected, expected_info = by_hand(state)
    assert info.potential == pytest.approx(float(expected_info.potential), rel=1e-5)
    for a, b in zip(in_numpy(moved.sampler), in_numpy(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert not np.array_equal(in_numpy(moved.sampler)[0], in_numpy(state.sampler)[0])


def test_acting_uses_the_means_of_distributions():
    network, objective = linear_c51()
    agent = value_agent(network, objective, samplers.langevin(0.1, 1.0))
    state = agent.init(jax.random.key(4))
    observation = jnp.linspace(-1, 1, 5)
    logits = np.asarray(network.apply(state.sampler.params, state.frozen, observation), np.float64)
    means = (np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)) @ ATOMS
    assert agent.explore(jax.random.key(1), state, 0, observation, 0.0) == means.argmax()
    assert agent.exploit(jax.random.key(1), state, 0, observation) == means.argmax()
    assert logits.max(-1).argmax() != means.argmax()  # otherwise the test shows nothing


def test_acting_uses_the_network_for_acting_if_there_is_one_and_learning_does_not():
    network, objective = small_iqn()
    calls = []

    def act(*inputs):
        calls.append(1)
        return network.apply(*inputs, num_fractions=3)

    agent = value_agent(network._replace(act=act), objective, samplers.langevin(0.1, 1.0))
    state = jax.jit(agent.init)(jax.random.key(0))
    jax.jit(agent.explore)(jax.random.key(1), state, 0, jnp.ones(5), 0.0)
    jax.jit(agent.exploit)(jax.random.key(1), state, 0, jnp.ones(5))
    assert len(calls) == 2
    assert jax.jit(agent.look_ahead)(jax.random.key(1), state, minibatch(0)).values.shape == (16, 3, 8)
    update(agent, jax.random.key(1), state, minibatch(0), 16)
    assert len(calls) == 2


PRIORITIES = {
    "mean": td_errors,
    "categorical": lambda *inputs: categorical_losses(*inputs, atoms=np.linspace(-10, 10, 5)),
    "quantile": quantile_losses,
}


@pytest.mark.parametrize("critic", PRIORITIES)
def test_priorities_are_the_sizes_of_the_errors_that_the_update_is_about_to_learn_from(critic):
    options = Options(hidden=(4,), critic=critic, num_atoms=5, prioritized=True)
    agent = make_agent("dqn", SPACES, {}, options)
    state = agent.init(jax.random.key(0))._replace(target=agent.init(jax.random.key(1)).target)
    key, batch = jax.random.key(2), minibatch(0)

    @jax.jit
    def both(state):
        ahead = agent.look_ahead(key, state, batch)
        q = lambda params, observation, key: params(observation, key=key)
        errors = PRIORITIES[critic](q, lambda o, k: ahead, state.sampler.params, batch, jax.random.split(key)[0])
        return agent.priorities(key, state, batch, ahead), errors, agent.update(key, state, batch, 16, ahead)[1]

    found, errors, info = both(state)
    np.testing.assert_allclose(found, np.abs(errors), rtol=1e-5)
    losses = errors**2 if critic == "mean" else errors
    assert info.potential == pytest.approx(float(losses.mean()), rel=1e-5)
    assert make_agent("dqn", SPACES, {}, Options(hidden=(4,), critic=critic)).priorities is None


def test_the_priority_of_an_ensemble_is_the_mean_size_of_its_members_errors():
    agent = make_agent("bootstrapped_dqn", SPACES, {}, Options(hidden=(), num_members=3, prioritized=True))
    state = agent.init(jax.random.key(0))
    batch, key = minibatch(0), jax.random.key(1)
    ahead = np.asarray(agent.look_ahead(key, state, batch))
    model = eqx.combine(state.sampler.params, state.frozen)
    values = np.take_along_axis(np.asarray(model(batch.observation)), np.asarray(batch.action, int)[:, None, None], -1)
    errors = np.asarray(batch.return_)[:, None] + np.asarray(batch.bootstrap_discount)[:, None] * ahead.max(-1)
    expected = np.abs(errors - values[..., 0]).mean(-1)
    np.testing.assert_allclose(agent.priorities(key, state, batch, jnp.asarray(ahead)), expected, rtol=1e-4)


def test_parts_of_another_kind_are_refused_in_one_sentence(unchecked_types):
    network, adam = networks.network(lambda key: networks.mlp(key, 3, [4], 2)), optax.adam(0.1)
    model = networks.mlp(jax.random.key(0), 3, [4], 2)
    adapted = samplers.from_optax(adam)
    sentences = {
        "sampler must be a Sampler (feelgood.samplers.from_optax makes one from an optimiser)": (network, td(), adam),
        "network must be a Network (feelgood.networks.network makes one from a model)": (model, td(), adapted),
        "objective must be an Objective": (network, lambda *_: 0.0, adapted),
    }
    for sentence, parts in sentences.items():
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}, got "):
            value_agent(*parts)
