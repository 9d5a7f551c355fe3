"""Every environment is bsuite's, step for step: from the state before a recorded step to its outcome."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.envs import bsuite, check_environment

# Made by record_bsuite.py.
BSUITE = json.loads((Path(__file__).parent / "bsuite.json").read_text())
KEY = jax.random.key(0)


def assert_outcome(step, recorded):
    np.testing.assert_allclose(step.observation[0], recorded["observation"], rtol=2e-5, atol=2e-6)
    assert float(step.reward) == pytest.approx(recorded["reward"])
    assert bool(step.terminated) == recorded["end"]
    assert not step.truncated


def from_states(environment, state_of, recorded):
    """Takes all recorded steps at once, each from its own state."""
    states = jax.tree.map(lambda *x: jnp.stack(x), *(state_of(each) for each in recorded))
    actions = jnp.array([each["action"] for each in recorded])
    _, steps = jax.jit(jax.vmap(lambda state, action: environment.step(KEY, state, action)))(states, actions)
    for i, each in enumerate(recorded):
        assert_outcome(jax.tree.map(lambda x, i=i: x[i], steps), each)


def before(each):
    return (*map(jnp.float32, each["before"]), jnp.int32(each["time"] - 1))


@pytest.mark.parametrize(
    ("environment", "state", "name"),
    [
        (bsuite.mountain_car(), bsuite.CarState, "mountain_car"),
        (bsuite.cartpole(), bsuite.PoleState, "cartpole"),
    ],
)
def test_a_step_is_bsuites(environment, state, name):
    check_environment(environment)
    recorded = BSUITE[name]
    assert sum(each["end"] for each in recorded) == 2  # one by the outcome, one by time
    assert recorded[-1]["time"] == environment.spec.max_episode_steps
    from_states(environment, lambda each: state(*before(each)), recorded)


@pytest.mark.parametrize("i", [0, 7, 19])
def test_a_step_of_the_swing_up_is_bsuites_at_every_height(i):
    environment = bsuite.cartpole_swingup(**BSUITE["sweeps"]["cartpole_swingup"]["settings"][i])
    check_environment(environment)
    recorded = [each for each in BSUITE["cartpole_swingup"] if each["id"] == i]
    assert {each["reward"] > 0 for each in recorded} == {True, False}
    assert sum(each["end"] for each in recorded) == 3
    from_states(environment, lambda each: bsuite.PoleState(*before(each)), recorded)


@pytest.mark.parametrize("seed", range(20))
def test_the_arms_of_a_bandit_pay_as_in_bsuite(seed):
    rewards = bsuite.bandit_rewards(seed)
    environment = bsuite.bandit(rewards)
    check_environment(environment)
    state, observation = environment.reset(KEY)
    steps = [environment.step(KEY, state, action)[1] for action in range(11)]
    np.testing.assert_allclose([float(step.reward) for step in steps], BSUITE["bandit"][seed], rtol=1e-6)
    assert all(bool(step.terminated) for step in steps)
    assert observation.tolist() == [[1.0]]


@pytest.mark.parametrize("episode", BSUITE["catch"], ids=lambda episode: str(episode["actions"]))
def test_an_episode_of_catch_is_bsuites(episode):
    environment = bsuite.catch()
    check_environment(environment)
    state, _ = environment.reset(KEY)
    state = state._replace(column=jnp.int32(episode["ball"]))
    _, steps = jax.lax.scan(lambda s, a: environment.step(KEY, s, a), state, jnp.array(episode["actions"]))
    assert [np.flatnonzero(board).tolist() for board in steps.observation] == episode["observations"][1:]
    assert steps.reward.tolist() == episode["rewards"]
    assert steps.terminated.tolist() == episode["ends"]
    assert environment.spec.max_episode_steps == len(episode["actions"])
    stored = environment.decode(environment.encode(steps.observation))
    assert (stored == steps.observation).all()


@pytest.mark.parametrize(
    ("environment", "low", "high"),
    [
        (bsuite.mountain_car(), [-0.6, 0, 0], [-0.4, 0, 0]),
        (bsuite.cartpole(), [-0.05 / 3, -0.05 / 3, -0.05, 0.99, -0.05, 0], [0.05 / 3, 0.05 / 3, 0.05, 1, 0.05, 0]),
        (
            bsuite.cartpole_swingup(),
            [-0.05 / 3, -0.05 / 3, -0.05, -1, -0.05, 0, 1, 1],
            [0.05 / 3, 0.05 / 3, 0.05, -0.99, 0.05, 0, 1, 1],
        ),
    ],
    ids=["mountain_car", "cartpole", "cartpole_swingup"],
)
def test_episodes_start_anywhere_in_bsuites_range(environment, low, high):
    observations = np.asarray(jax.vmap(lambda key: environment.reset(key)[1][0])(jax.random.split(KEY, 4000)))
    low, high = np.array(low), np.array(high)
    assert (observations >= low - 1e-6).all()
    assert (observations <= high + 1e-6).all()
    spread = np.ptp(observations, 0)
    free = (high - low > 0.02) & ~np.isclose(np.abs(high + low), 1.99)  # not the cosine
    assert (spread[free] > 0.99 * (high - low)[free]).all()


def test_the_ball_starts_in_all_columns_alike():
    columns = jax.vmap(lambda key: bsuite.catch().reset(key)[0].column)(jax.random.split(KEY, 5000))
    counts = np.bincount(columns, minlength=5)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(1000 * 0.8)
