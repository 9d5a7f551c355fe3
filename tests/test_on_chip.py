"""The kernel in Pallas' interpreter, against NumPy in float64 and the agents' own updates."""

import sys
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import envs, noise
from feelgood.agents import ZOO, Options, Spaces, make_agent
from feelgood.replay import Batch
from scripts import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))
from learn_on_chip import learn_on_chip
from onchip_kernel import Plan, _tiles

pytestmark = pytest.mark.slow

LENGTH, WIDTH, STEPS = 20, 16, 2
HYPER = {
    "step_size": 0.01,
    "inverse_temperature": 100.0,
    "bias_factor": 1.0,
    "bias_epsilon": 1e-3,
    "friction": 0.5,
    "feel_good_weight": 0.3,
}
ARRAYS = ("observation", "action", "return_", "bootstrap_discount", "next_observation", "first_observation", "slot")


def minibatches(batch_size, num_starts, num_actions=2, seed=0):
    draw = np.random.default_rng(seed)
    codes = lambda count: jnp.asarray(draw.integers(0, LENGTH, (STEPS, count)), jnp.uint8)
    return Batch(
        codes(batch_size),
        jnp.asarray(draw.integers(0, num_actions, (STEPS, batch_size)), jnp.uint8),
        jnp.asarray(draw.normal(size=(STEPS, batch_size)), jnp.float32),
        jnp.full((STEPS, batch_size), 0.9),
        codes(batch_size),
        codes(num_starts),
        jnp.zeros((STEPS, batch_size), jnp.int32),
    )


@cache
def agent_of(name, num_actions=2, step_size=HYPER["step_size"], **options):
    spaces = Spaces((LENGTH,), num_actions, envs.nchain(LENGTH).decode)
    hyper = {key: value for key, value in HYPER.items() if key in ZOO[name].hyper} | {"step_size": step_size}
    return make_agent(name, spaces, hyper, Options(hidden=(WIDTH, WIDTH), **options))


def plan_of(**settings):
    return Plan(LENGTH, (WIDTH, WIDTH), **{"num_actions": 2, "code": "thermometer", "tile_rows": 32, **settings})


def sampler_keys(keys):
    return jax.vmap(lambda key: jax.random.split(key)[1])(keys)


@cache
def problem(agent, batch_size=5, num_starts=1, num_actions=2, seed=0):
    """Keys of the updates, a state whose target has parameters of its own, minibatches, and the target's values."""
    batches = minibatches(batch_size, num_starts, num_actions, seed)

    @jax.jit
    def draw(key, batches):
        key_online, key_target, key_updates = jax.random.split(key, 3)
        state = agent.init(key_online)._replace(target=agent.init(key_target).target)
        keys = jax.random.split(key_updates, STEPS)
        return keys, state, batches, jax.vmap(agent.look_ahead, (0, None, 0))(keys, state, batches)

    return draw(jax.random.key(seed), batches)


@partial(jax.jit, static_argnums=0)
def by_scan(agent, keys, state, batches, next_values):
    def update(state, inputs):
        key, batch, values = inputs
        state, info = agent.update(key, state, batch, 100, values)
        return state, info.potential

    state, potentials = jax.lax.scan(update, state, (keys, batches, next_values))
    return state.sampler, potentials


def assert_close(ours, theirs, tolerance=1e-5):
    jax.tree.map(partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance), ours, theirs)


def by_hand(params, target, batches, xi):
    """Steps of FG-ULMCDQN in float64: forward, backward and sampler written out. Returns w, P, m, v and potentials."""
    step, friction, beta = HYPER["step_size"], HYPER["friction"], HYPER["inverse_temperature"]
    w = [np.asarray(leaf, np.float64) for leaf in params]
    p, m, v = ([np.zeros_like(leaf) for leaf in w] for _ in range(3))
    vectors = lambda codes: (np.arange(LENGTH) <= np.asarray(codes, int)[:, None]).astype(float)
    potentials = []

    def layers(w, x):
        h1 = np.maximum(x @ w[0] + w[1], 0)
        h2 = np.maximum(h1 @ w[2] + w[3], 0)
        return h1, h2, h2 @ w[4] + w[5]

    def gradient(x, h1, h2, dq):
        dz2 = dq @ w[4].T * (h2 > 0)
        dz1 = dz2 @ w[2].T * (h1 > 0)
        return [x.T @ dz1, dz1.sum(0), h1.T @ dz2, dz2.sum(0), h2.T @ dq, dq.sum(0)]

    for k in range(STEPS):
        batch = Batch(*(np.asarray(getattr(batches, name))[k] for name in ARRAYS))
        size, rows = len(batch.action), np.arange(len(batch.action))
        x, starts = vectors(batch.observation), vectors(batch.first_observation)
        next_q = layers([np.asarray(leaf, np.float64) for leaf in target], vectors(batch.next_observation))[2]
        h1, h2, q = layers(w, x)
        error = batch.return_ + batch.bootstrap_discount * next_q.max(1) - q[rows, batch.action]
        dq = np.zeros_like(q)
        dq[rows, batch.action] = -2 * error / size
        f1, f2, start_q = layers(w, starts)
        df = np.zeros_like(start_q)
        df[np.arange(len(starts)), start_q.argmax(1)] = -HYPER["feel_good_weight"] / len(starts)
        potentials.append(np.mean(error**2) - HYPER["feel_good_weight"] * start_q.max(1).mean())
        g = [a + b for a, b in zip(gradient(x, h1, h2, dq), gradient(starts, f1, f2, df), strict=True)]
        place = 0
        for i in range(6):
            z = np.asarray(xi[k][place : place + w[i].size], np.float64).reshape(w[i].shape)
            place += w[i].size
            m[i], v[i] = 0.9 * m[i] + 0.1 * g[i], 0.999 * v[i] + 0.001 * g[i] ** 2
            drift = g[i] + HYPER["bias_factor"] * m[i] / (np.sqrt(v[i]) + HYPER["bias_epsilon"])
            p[i] = (1 - friction * step) * p[i] - step * drift
            w[i] = w[i] + step * p[i] + np.sqrt(2 * friction * step / beta) * z
    return w, p, m, v, potentials


def test_two_updates_equal_a_computation_by_hand_in_float64():
    agent = agent_of("fg_ulmcdqn")
    keys, state, batches, next_values = problem(agent, num_starts=5)
    keys = sampler_keys(keys)
    plan = plan_of(tile_rows=16)
    moved, potentials = learn_on_chip(plan, HYPER, keys, state.sampler, batches, next_values, interpret=True)
    leaves = jax.tree.leaves(state.sampler.params)
    xi = [noise.normal(key, (sum(leaf.size for leaf in leaves),)) for key in keys]
    *parts, expected = by_hand(leaves, jax.tree.leaves(state.target), batches, xi)
    assert_close(jax.tree.leaves(moved), [leaf for part in parts for leaf in part])
    assert_close(potentials, np.array(expected))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings", "num_starts", "num_actions"),
    [
        ("fg_ulmcdqn", {"held": "all", "double": True}, 1, 3),
        ("ulmcdqn", {"held": "params", "feel_good": False, "code": "vector"}, 1, 2),
        ("adam_lmcdqn", {"sampler": "adam_langevin", "feel_good": False}, 1, 2),
    ],
)
def test_a_stretch_equals_the_scan_of_the_agents_updates(name, settings, num_starts, num_actions):
    agent = agent_of(name, num_actions, double=settings.get("double", False))
    keys, state, batches, next_values = problem(agent, num_starts=num_starts, num_actions=num_actions)
    expected = by_scan(agent, keys, state, batches, next_values)
    if settings.get("code") == "vector":
        decode = envs.nchain(LENGTH).decode
        batches = batches._replace(observation=decode(batches.observation))
    plan = plan_of(num_actions=num_actions, **settings)
    ours = learn_on_chip(plan, HYPER, sampler_keys(keys), state.sampler, batches, next_values, interpret=True)
    assert_close(ours, expected)


@pytest.mark.slow
def test_runs_of_a_vmap_have_their_own_hyper_parameters():
    agents, steps = [agent_of("adam_lmcdqn", step_size=step) for step in (0.01, 0.02)], jnp.array([0.01, 0.02])
    problems = [problem(agent, seed=seed) for seed, agent in enumerate(agents)]
    plan = plan_of(sampler="adam_langevin", feel_good=False, held="all")

    def learn(step, keys, state, batches, next_values):
        hyper = {**HYPER, "step_size": step}
        return learn_on_chip(plan, hyper, sampler_keys(keys), state.sampler, batches, next_values, interpret=True)

    together = jax.vmap(learn)(steps, *jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems))
    for i, agent in enumerate(agents):
        assert_close(jax.tree.map(lambda x, i=i: x[i], together), by_scan(agent, *problems[i]))


def test_tiles_hold_every_parameter_once_and_padding_gets_no_noise():
    found, words = [], (jnp.uint32(1), jnp.uint32(2))
    for tile in _tiles(plan_of(num_actions=3, tile_rows=16)):
        indices, mask = tile.indices(0)
        used = np.ones(tile.shape, bool) if mask is None else np.asarray(mask)
        found.append(np.asarray(indices)[used])
        np.testing.assert_array_equal(np.asarray(tile.normals(words, 0)) != 0, used)
    size = (LENGTH + 1) * WIDTH + (WIDTH + 1) * WIDTH + (WIDTH + 1) * 3
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.arange(size))


@pytest.mark.parametrize("held", ["all", pytest.param("none", marks=pytest.mark.slow)])
def test_the_kernel_lowers_to_triton(held):
    agent, plan = agent_of("fg_ulmcdqn", double=True), plan_of(held=held, double=True)
    keys, state, batches, next_values = problem(agent)
    learn = lambda *rest: learn_on_chip(plan, HYPER, *rest, interpret=False)
    inputs = jax.tree.map(lambda x: x[None], (sampler_keys(keys), state.sampler, batches, next_values))
    lowered = jax.jit(jax.vmap(learn)).trace(*inputs).lower(lowering_platforms=("cuda",))
    assert "triton" in lowered.as_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": (24, 16)}, "hidden must be a power of two of at least 16 on the chip, got 24"),
        ({"tile_rows": 8}, "tile_rows must be a power of two of at least 16 on the chip, got 8"),
        ({"num_inputs": 21}, "params must be an MLP with arrays of shapes"),
        ({"sampler": "hmc"}, "sampler must be"),
    ],
)
def test_unsupported_settings_of_the_kernel_are_refused_in_one_sentence(change, message):
    agent = agent_of("fg_ulmcdqn")
    keys, state, batches, next_values = problem(agent)
    with pytest.raises(ValueError, match=message):
        learn_on_chip(plan_of()._replace(**change), HYPER, keys, state.sampler, batches, next_values)
