"""Every member of the family on every diagnostic environment, through the training loop.

One compilation serves an agent: the environments are joined into one whose task is a traced number, and tasks,
behaviours and seeds are the lanes of a `vmap`.
"""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.agents import ZOO, Options, Spaces, anneal, atari_hyper, control_hyper, critics, make_agent
from feelgood.envs import Environment, Spec
from feelgood.envs.diagnostic import DIAGNOSTICS
from feelgood.objectives import categorical_values, quantile_values
from feelgood.protocols import CONTROL
from feelgood.replay import Batch
from feelgood.training import ExternalConfig, FunctionalConfig, trainer
from marks import fast_only

NAMES = tuple(DIAGNOSTICS)
TASKS = [make() for make in DIAGNOSTICS.values()]
PROTOCOL = FunctionalConfig(
    num_steps=1500,
    learning_starts=32,
    train_frequency=5,
    replay_ratio=1.0,
    batch_size=32,
    capacity=400,
    discount=0.8,
    target_update_period=25,
    evaluation_period=1500,
)
OPTIONS = Options(hidden=(16,), num_members=3, v_max=5.0)
VALUES = {"c51": categorical_values(np.linspace(-5, 5, 51)), "iqn": quantile_values}
NUM_SEEDS = 3

# Steps that converge within the budget; optimism and noise too small to be seen in the values.
_CALM = {"inverse_temperature": 1e12}
_UNDERDAMPED = {**_CALM, "step_size": 0.1, "friction": 1.0, "bias_factor": 0.01}
HYPER = {
    "fg_ulmcdqn": {**_UNDERDAMPED, "feel_good_weight": 1e-5},
    "steady_fg_ulmcdqn": {**_UNDERDAMPED, "feel_good_weight": 1e-5},
    "fg_lmcdqn": {**_CALM, "step_size": 0.05, "bias_factor": 0.01, "feel_good_weight": 1e-5},
    "ulmcdqn": _UNDERDAMPED,
    "adam_lmcdqn": {**_CALM, "step_size": 0.05, "bias_factor": 0.01},
    "lmcdqn": {**_CALM, "step_size": 0.05},
    "langevin_dqn": {**_CALM, "step_size": 5e-3},
    "dqn": {"step_size": 5e-3},
    "prioritized_dqn": {"step_size": 5e-3},
    "c51": {"step_size": 2e-2},
    "iqn": {"step_size": 5e-3},
    "bootstrapped_dqn": {"step_size": 5e-3},
    "noisynet_dqn": {"step_size": 5e-3},
}


def _joined(task):
    """The diagnostic environment number `task`, its observation padded to two numbers and its actions to two.

    If the environment has one action, the second does the same as the first.
    """
    widen = lambda observation: jnp.concatenate([observation, jnp.zeros(2 - observation.shape[0])])

    def reset(key):
        starts = [one.environment.reset(key) for one in TASKS]
        return tuple(state for state, _ in starts), jax.lax.select_n(task, *[widen(seen) for _, seen in starts])

    def step(key, states, action):
        results = [
            one.environment.step(key, state, jnp.minimum(action, one.environment.spec.num_actions - 1))
            for one, state in zip(TASKS, states, strict=True)
        ]
        steps = [step._replace(observation=widen(step.observation)) for _, step in results]
        chosen = jax.tree.map(lambda *leaves: jax.lax.select_n(task, *leaves), *steps)
        return tuple(state for state, _ in results), chosen

    return Environment(reset, step, Spec((2,), np.dtype(np.float32), 2, 4))


def _learn(name, key, task, at_random):
    """Trains one run and returns its action values at up to three observations, averaged over members."""

    def make(spaces, hyper):
        agent = make_agent(name, spaces, hyper, OPTIONS)

        def explore(key, state, context, observation, progress):
            own = agent.explore(key, state, context, observation, progress)
            uniform = jax.random.randint(jax.random.fold_in(key, 1), (), 0, spaces.num_actions, jnp.int32)
            return jnp.where(at_random, uniform, own)

        return agent._replace(explore=explore)

    one = trainer(_joined(task), make, PROTOCOL)
    run, record = one.advance(one.init(key, HYPER[name]), HYPER[name], 0)
    model = eqx.combine(run.agent.sampler.params, run.agent.frozen)
    values = VALUES.get(name, lambda outputs: outputs)(model(OBSERVATIONS[task]))
    return (values.mean(1) if values.ndim == 3 else values), record.is_finite


def _rows(table):
    """Three rows, the last repeated."""
    return np.pad(table, ((0, 3 - len(table)), (0, 0)), mode="edge")


OBSERVATIONS = jnp.stack([_rows(np.pad(one.observations, ((0, 0), (0, 2)))[:, :2]) for one in TASKS])
SOLUTIONS = np.stack([_rows(np.pad(one.action_values(0.8), ((0, 0), (0, 1)), mode="edge")[:, :2]) for one in TASKS])
# If actions do not matter, the value is learnt from any behaviour; otherwise a greedy agent need not try every action.
WITHOUT_CHOICE = [NAMES.index(name) for name in ("constant_reward", "discounting", "truncation")]


# The slow ones are made of the same parts as the others, and their updates are checked number by number in test_base.
FAST = ("fg_ulmcdqn", "dqn")


@pytest.fixture(scope="module", params=fast_only(FAST, ZOO))
def learnt(request):
    """A name, and its action values (tasks, own or random behaviour, seeds, observations, actions)."""
    name = request.param
    lanes = list(itertools.product(range(len(TASKS)), (False, True), range(NUM_SEEDS)))
    tasks, randoms, seeds = (jnp.asarray(column) for column in zip(*lanes, strict=True))
    keys = jax.vmap(jax.random.key)(seeds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(critics, "_NUM_LEARNING_FRACTIONS", 8)  # 64 take ten minutes
        values, finite = jax.jit(jax.vmap(lambda *lane: _learn(name, *lane)))(keys, tasks, randoms)
    assert finite.all()
    return name, np.asarray(values).reshape(len(TASKS), 2, NUM_SEEDS, 3, 2)


def tolerance(name, values):
    # Noisy layers are read at their mean weights, which is not quite the mean of the values; quantiles never come to
    # rest, as their fractions are drawn again in every update.
    return 0.03 + 0.03 * np.abs(values) if name in ("noisynet_dqn", "iqn") else 0.01


def test_all_action_values_of_every_diagnostic_are_learnt_from_random_behaviour(learnt):
    name, values = learnt
    errors = np.abs(values[:, 1] - SOLUTIONS[:, None])
    wrong = (errors > tolerance(name, SOLUTIONS[:, None])).any((1, 2, 3))
    assert not wrong.any(), {task: errors[i].max() for i, task in enumerate(NAMES) if wrong[i]}


def test_an_agent_on_its_own_data_learns_values_without_a_choice_and_finds_the_best_actions(learnt):
    name, values = learnt
    best, solution = values[:, 0].max(-1), SOLUTIONS.max(-1)[:, None]
    errors = np.abs(best - solution) - tolerance(name, solution)
    assert (errors[[*WITHOUT_CHOICE, NAMES.index("two_armed")]] < 0).all()
    # Every agent leaves an arm that disappoints; only agents that try every action must find all values.
    tries_all = name in ("dqn", "prioritized_dqn", "c51", "iqn", "bootstrapped_dqn")
    for task in range(len(TASKS)) if tries_all else [NAMES.index("two_armed")]:
        chosen = np.take_along_axis(SOLUTIONS[task], values[task, 0].argmax(-1).T, -1)
        assert (chosen == SOLUTIONS[task].max(-1, keepdims=True)).all(), NAMES[task]


SPACES = Spaces((3,), 2)
SMALL = Options(hidden=(4,), num_members=3)


@pytest.mark.parametrize("name", ZOO)
def test_an_agent_begins_with_its_target_at_the_network_and_seeds_give_other_networks(name):
    agent = make_agent(name, SPACES, options=SMALL)
    first, second = agent.init(jax.random.key(0)), agent.init(jax.random.key(1))
    assert jax.tree.all(jax.tree.map(np.array_equal, first.sampler.params, first.target))
    same = jax.tree.leaves(jax.tree.map(np.array_equal, first.sampler.params, second.sampler.params))
    # Scales of noisy layers begin alike: two arrays of four in each of the two layers.
    # The ensemble starts as its priors: the last layer and the biases after the first start at 0.
    assert sum(same) == {"noisynet_dqn": 4, "ensemble_dqn": 2}.get(name, 0)


def test_only_ensembles_noisy_networks_and_drawn_quantiles_evaluate_at_random():
    random = {name for name in ZOO if make_agent(name, SPACES, options=SMALL).is_random}
    assert random == {"bootstrapped_dqn", "noisynet_dqn", "iqn"}


def test_noisy_layers_use_mean_weights_in_evaluation_if_requested():
    observations = jax.random.normal(jax.random.key(1), (200, 3))
    keys = jax.random.split(jax.random.key(2), 200)
    actions = {}
    for noisy in (True, False):
        agent = make_agent("noisynet_dqn", SPACES, options=dataclasses.replace(SMALL, noisy_evaluation=noisy))
        assert agent.is_random == noisy
        state = agent.init(jax.random.key(0))
        exploit = jax.vmap(lambda key, x, agent=agent, state=state: agent.exploit(key, state, agent.begin(key), x))
        actions[noisy] = [exploit(keys, observations), exploit(keys[::-1], observations)]
    assert (actions[True][0] != actions[True][1]).any()
    assert actions[False][0].tolist() == actions[False][1].tolist()
    # The means of the layers alone, by hand.
    x, layers = np.asarray(observations), state.sampler.params.layers
    for i, layer in enumerate(layers):
        x = x @ np.asarray(layer.weight) + np.asarray(layer.bias)
        x = np.maximum(x, 0) if i < len(layers) - 1 else x
    assert actions[False][0].tolist() == x.argmax(-1).tolist()


def test_members_of_the_ensemble_and_their_priors_all_differ():
    state = make_agent("bootstrapped_dqn", SPACES, options=SMALL).init(jax.random.key(0))
    arrays = [leaf for leaf in jax.tree.leaves((state.sampler.params, state.frozen)) if leaf.ndim == 3]
    members = [np.asarray(member) for leaf in arrays for member in leaf if member.shape == (3, 4)]
    assert len(members) == 2 * SMALL.num_members
    assert all(not np.array_equal(a, b) for a, b in itertools.combinations(members, 2))


def test_the_double_option_lets_the_online_network_choose():
    batch = Batch(
        observation=jnp.ones((1, 3)),
        action=jnp.array([0]),
        return_=jnp.array([1.0]),
        bootstrap_discount=jnp.array([0.9]),
        next_observation=jnp.array([[1.0, -1.0, 2.0]]),
        first_observation=jnp.ones((1, 3)),
        slot=jnp.array([0]),
    )
    losses = []
    for double in (False, True):
        agent = make_agent("dqn", SPACES, options=Options(hidden=(), double=double))
        state = agent.init(jax.random.key(0))
        # The target network is the online one upside down, so that they disagree on the best action.
        state = state._replace(target=jax.tree.map(jnp.negative, state.target))
        next_values = jax.jit(agent.look_ahead)(jax.random.key(1), state, batch)
        losses.append(float(jax.jit(agent.update)(jax.random.key(1), state, batch, 1, next_values)[1].potential))
    dense = state.sampler.params.layers[0]
    value, after = (np.asarray(o @ dense.weight + dense.bias[None])[0] for o in (jnp.ones((1, 3)), batch[4]))
    expected = [(1 + 0.9 * (-after).max() - value[0]) ** 2, (1 - 0.9 * after.max() - value[0]) ** 2]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)


def test_every_agent_has_a_description_and_defaults_that_its_sampler_accepts():
    for name, recipe in ZOO.items():
        assert recipe.summary
        assert make_agent(name, SPACES, recipe.hyper, SMALL)


def test_hyper_parameters_with_an_end_change_linearly_and_others_stay():
    hyper = {"step_size": 0.4, "step_size_end": 0.0, "average_decay": 0.9, "friction": 1.0, "friction_end": 3.0}
    assert anneal(hyper, 0.0) == hyper
    assert anneal(hyper, 0.25) == pytest.approx({**hyper, "step_size": 0.3, "friction": 1.5})
    assert anneal(hyper, 1.0) == pytest.approx({**hyper, "step_size": 0.0, "friction": 3.0})


def test_every_end_belongs_to_a_hyper_parameter():
    for recipe in ZOO.values():
        assert all(name.removesuffix("_end") in recipe.hyper for name in recipe.hyper)


def test_wrong_names_are_refused_with_the_nearest_match():
    with pytest.raises(ValueError, match=r"agent must be one of .* got 'fg_ulmcdq'; did you mean 'fg_ulmcdqn'\?"):
        make_agent("fg_ulmcdq", SPACES)
    with pytest.raises(ValueError, match=r"hyper-parameter of dqn must be one of 'step_size', .* got 'friction'"):
        make_agent("dqn", SPACES, {"friction": 1.0})
    with pytest.raises(ValueError, match=r"hyper-parameter of ulmcdqn .* did you mean 'step_size'\?"):
        make_agent("ulmcdqn", SPACES, {"stepsize": 1.0})


@pytest.mark.parametrize("name", ZOO)
def test_updates_leave_the_types_of_the_state_as_they_begin(name):
    agent, batch, key = make_agent(name, SPACES, options=SMALL), fixed_batch((3,), jnp.float32), jax.random.key(0)

    def later(key, state):
        return agent.sync(agent.update(key, state, batch, 100, agent.look_ahead(key, state, batch))[0])

    types = lambda tree: [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]
    state = jax.eval_shape(agent.init, key)
    assert types(jax.eval_shape(later, key, state)) == types(state)


def fixed_batch(shape, dtype, batch_size=8):
    rng = np.random.default_rng(0)
    images = [jnp.asarray(rng.integers(5, size=(batch_size, *shape)), dtype) for _ in range(3)]
    return Batch(
        observation=images[0],
        action=jnp.asarray(rng.integers(2, size=batch_size), jnp.uint8),
        return_=jnp.asarray(rng.normal(size=batch_size), jnp.float32),
        bootstrap_discount=jnp.full(batch_size, 0.9),
        next_observation=images[1],
        first_observation=images[2],
        slot=jnp.arange(batch_size),
        weight=jnp.linspace(0.5, 1, batch_size),
    )


CALM = {"bias_factor": 0.01, "inverse_temperature": 1e12, "feel_good_weight": 1e-3, "friction": 10.0}


def potentials(name, spaces, batch, adam_rate, num_updates, options):
    """Potentials along updates on one batch with the target held fixed."""
    # Friction and step of the underdamped ones undo their momentum, which would overshoot.
    step_size = adam_rate if name in ADAM else 0.1 if "ulmc" in name else 0.02
    hyper = {key: value for key, value in CALM.items() if key in ZOO[name].hyper}
    agent = make_agent(name, spaces, {**hyper, "step_size": step_size}, options)

    @jax.jit
    def learn(key):
        state = agent.init(key)

        def step(state, key):
            state, info = agent.update(key, state, batch, 100, agent.look_ahead(key, state, batch))
            return state, info.potential

        return jax.lax.scan(step, state, jax.random.split(key, num_updates))[1]

    return np.asarray(learn(jax.random.key(0)))


def falls(found):
    # Means of both ends, as noisy networks and drawn fractions make single potentials scatter.
    return np.isfinite(found).all() and found[-5:].mean() < found[:5].mean()


ADAM = ("langevin_dqn", "dqn", "prioritized_dqn", "c51", "iqn", "bootstrapped_dqn", "noisynet_dqn")


@pytest.mark.parametrize("name", fast_only(("fg_ulmcdqn", "c51", "iqn", "noisynet_dqn"), ZOO))
def test_fifty_updates_on_one_batch_lower_the_potential(name):
    found = potentials(name, SPACES, fixed_batch((3,), jnp.float32), 5e-3, 50, SMALL)
    assert falls(found)
    assert found[0] > 0


def test_langevin_dqn_without_noise_takes_the_steps_of_dqn_with_its_epsilon():
    batch = fixed_batch((3,), jnp.float32)

    def parameters(name, epsilon, **noise):
        agent = make_agent(name, SPACES, {"step_size": 1e-2, "adam_epsilon": epsilon, **noise}, SMALL)
        state = agent.init(jax.random.key(0))
        for _ in range(3):
            state, _ = agent.update(
                jax.random.key(1), state, batch, 100, agent.look_ahead(jax.random.key(1), state, batch)
            )
        return jax.tree.leaves(state.sampler.params)

    expected = parameters("dqn", 0.3)
    for ours, theirs in zip(parameters("langevin_dqn", 0.3, inverse_temperature=jnp.inf), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    assert not np.allclose(parameters("dqn", 1e-8)[0], expected[0], atol=1e-4)


def test_summed_losses_are_a_sharper_posterior_in_shorter_steps():
    # n·U at the temperature 1/β is U at 1/(nβ), and a Langevin step τ on n·U is the step nτ on U.
    batch, num_data = fixed_batch((3,), jnp.float32), 50

    def parameters(reduction, step_size, beta):
        options = dataclasses.replace(SMALL, reduction=reduction)
        agent = make_agent("lmcdqn", SPACES, {"step_size": step_size, "inverse_temperature": beta}, options)
        key = jax.random.key(0)
        state = agent.init(key)
        state, _ = agent.update(key, state, batch, num_data, agent.look_ahead(key, state, batch))
        return jax.tree.leaves(state.sampler.params)

    moved = parameters("sum", 1e-3, 1e2)
    for ours, expected in zip(moved, parameters("mean", num_data * 1e-3, num_data * 1e2), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    assert not np.allclose(moved[0], parameters("mean", num_data * 1e-3, 1e2)[0], atol=1e-3)


PIXELS = Spaces((4, 36, 36), 2, lambda code: code.astype(jnp.float32) / 5)
# The others have the network and outputs of the first, and their samplers are tested on vectors; IQN's outputs are
# quantiles.
DISTINCT = ("fg_ulmcdqn", "iqn")


@pytest.mark.parametrize("name", fast_only(DISTINCT, ZOO))
def test_updates_on_one_batch_of_images_lower_the_potential(name):
    batch, num_updates = fixed_batch((4, 36, 36), jnp.uint8, 4), 15
    found = potentials(name, PIXELS, batch, 1e-4, num_updates, SMALL)
    assert falls(found)


def test_an_ensemble_on_images_shares_all_but_its_heads_and_its_prior_has_its_own():
    agent = make_agent("bootstrapped_dqn", PIXELS, options=SMALL)
    state = jax.jit(agent.init)(jax.random.key(0))
    model, (prior, scale) = state.sampler.params.model, state.frozen.prior.value
    for part in (model, prior):
        convolutions, dense = part.trunk.trunk.layers, part.trunk.head.model.layers
        assert [layer.weight.shape for layer in convolutions] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
        assert [layer.weight.shape for layer in dense] == [(64, 512)]
        assert [layer.weight.shape for layer in part.head.members.layers] == [(3, 512, 2)]
        assert part.gradient_scale == 1 / 3
    assert scale == 1
    assert not np.array_equal(model.trunk.trunk.layers[0].weight, prior.trunk.trunk.layers[0].weight)
    batch = fixed_batch((4, 36, 36), jnp.uint8, 4)
    assert jax.jit(agent.look_ahead)(jax.random.key(1), state, batch).shape == (4, 3, 2)
    # If the options name a network, it is used for a flat image too.
    flat = make_agent("dqn", PIXELS, options=Options(network="mlp", hidden=(4,)))
    assert jax.eval_shape(flat.init, jax.random.key(0)).target.layers[0].weight.shape == (4 * 36 * 36, 4)


@pytest.mark.parametrize("name", ["dqn", "iqn", "bootstrapped_dqn", "noisynet_dqn"])
def test_lanes_with_keys_of_their_own_act_as_each_would_alone(name):
    agent = make_agent(name, SPACES, options=SMALL)
    state = agent.init(jax.random.key(3))
    keys = jax.random.split(jax.random.key(1), 16)
    contexts = jax.vmap(agent.begin)(keys)
    seen = jax.random.normal(jax.random.key(2), (16, 3))
    explore = lambda key, context, observation: agent.explore(key, state, context, observation, 0.05)
    exploit = lambda key, context, observation: agent.exploit(key, state, context, observation)
    for act in (explore, exploit):
        together = np.asarray(jax.jit(jax.vmap(act))(keys, contexts, seen))
        alone = jax.jit(act)
        assert together.tolist() == [int(alone(*lane)) for lane in zip(keys, contexts, seen, strict=True)]
        assert act is exploit or set(together) == {0, 1}


def test_any_member_learns_distributions_by_one_option_but_the_ensemble():
    for critic, shape in (("categorical", (8, 2, 51)), ("quantile", (8, 2, 64))):
        agent = make_agent("fg_ulmcdqn", SPACES, options=Options(hidden=(4,), critic=critic))
        ahead = jax.eval_shape(
            agent.look_ahead, jax.random.key(0), agent.init(jax.random.key(0)), fixed_batch((3,), int)
        )
        assert jax.tree.leaves(ahead)[0].shape == shape
        with pytest.raises(ValueError, match="critic must be 'mean' for the ensemble of bootstrapped_dqn, got"):
            make_agent("bootstrapped_dqn", SPACES, options=Options(critic=critic))


def test_only_prioritised_agents_have_priorities():
    assert {name for name in ZOO if make_agent(name, SPACES, options=SMALL).priorities} == {"prioritized_dqn"}
    assert make_agent("iqn", SPACES, options=Options(hidden=(), prioritized=True)).priorities is not None


def test_atari_settings_are_hyper_parameters_on_the_papers_grid():
    for name, recipe in ZOO.items():
        assert make_agent(name, SPACES, recipe.atari, SMALL)
        assert set(recipe.raw) <= set(recipe.atari) <= set(recipe.hyper)
        assert "step_size" in recipe.atari
        assert atari_hyper(name, 1 / 255) == {**recipe.hyper, **recipe.atari}
        assert atari_hyper(name, 1.0) == {**recipe.hyper, **recipe.atari, **recipe.raw}
    grid = {
        "step_size": (1e-2, 1e-3, 1e-4),
        "inverse_temperature": (1e16, 1e14, 1e12, 1e10, 1e8),  # the last two from the released configurations
        "bias_factor": (0.1, 0.01),
        "friction": (10, 1),
        "feel_good_weight": (1, 1e-2, 1e-3, 1e-4, 1e-5),
    }
    for name in ("fg_ulmcdqn", "fg_lmcdqn", "ulmcdqn", "adam_lmcdqn"):
        assert set(ZOO[name].atari) - set(grid) == {"bias_epsilon"}  # which the paper does not sweep
        for pixel_scale, epsilon in ((1 / 255, ZOO["dqn"].atari["adam_epsilon"]), (1.0, 1e-8)):
            hyper = atari_hyper(name, pixel_scale)
            assert all(hyper[key] in grid[key] for key in set(hyper) & set(grid))
            assert hyper["bias_epsilon"] == epsilon
            assert atari_hyper(name, pixel_scale, "paper") == {**hyper, "bias_epsilon": 1e-8}  # under the root there
            rate = {} if pixel_scale == 1.0 else {"bias_factor": 0.03}
            assert atari_hyper(name, pixel_scale, "corrected") == {**hyper, "bias_epsilon": 1e-8, **rate}
    for name in ("lmcdqn", "dqn"):  # have no adaptive bias
        assert atari_hyper(name, 1 / 255, "corrected") == atari_hyper(name, 1 / 255)


def test_settings_of_control_are_hyper_parameters_and_settings_of_the_run():
    settings = {each.name for each in dataclasses.fields(ExternalConfig)}
    for name, recipe in ZOO.items():
        assert {each.removesuffix("_end") for each in recipe.control} <= set(recipe.hyper)
        assert {*recipe.control_config, *recipe.one_hot_config, *CONTROL["config"]} <= settings
        assert control_hyper(name).keys() >= recipe.hyper.keys()
        if recipe.control:
            assert control_hyper(name)["step_size_end"] == 0  # the final policy is stable
    assert control_hyper("lmcdqn") == ZOO["lmcdqn"].hyper
    chosen = {"step_size": 4e-3, "initial_epsilon": 1.0, "final_epsilon": 0.05, "epsilon_fraction": 0.2}
    assert control_hyper("dqn").items() >= chosen.items()  # on tuning seeds of CartPole


def test_wrong_options_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="v_max must be positive and finite, got 0"):
        Options(v_max=0.0)
    with pytest.raises(ValueError, match="num_atoms must be a whole number of at least 2, got 1"):
        Options(num_atoms=1)
    with pytest.raises(ValueError, match=r"must be \(stack, height, width\) for convolutions, got \(3,\)"):
        make_agent("dqn", SPACES, options=Options(network="nature"))


@pytest.mark.parametrize(
    ("name", "critic"), [("fg_ulmcdqn", "mean"), ("noisynet_dqn", "categorical"), ("dqn", "quantile")]
)
def test_fresh_networks_have_the_requested_weights(name, critic):
    def largest(kind, **changes):
        options = dataclasses.replace(SMALL, critic=critic, **changes)
        state = make_agent(name, SPACES, options=options).init(jax.random.key(0))
        paths = jax.tree_util.tree_leaves_with_path(state.sampler.params)
        return np.array([jnp.abs(leaf).max() for path, leaf in paths if path[-1].name == kind])

    assert min(largest("bias")) > 0
    assert max(largest("bias", init="unbiased")) == max(largest("bias", init="he")) == 0
    np.testing.assert_array_equal(largest("weight", init="unbiased"), largest("weight"))
    np.testing.assert_allclose(largest("weight", init="he"), 6**0.5 * largest("weight"), rtol=1e-6)


@pytest.mark.parametrize(("name", "hyper"), [(name, hyper) for name, recipe in ZOO.items() for hyper in recipe.hyper])
@pytest.mark.parametrize("value", [float("nan"), -1.0])
def test_a_wrong_hyper_parameter_is_refused_by_its_name(name, hyper, value):
    with pytest.raises(ValueError, match=rf"^{hyper} must be .*, got {value}"):
        make_agent(name, SPACES, {hyper: value})
