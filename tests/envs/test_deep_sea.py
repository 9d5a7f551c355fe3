"""The deep sea against bsuite's own, step for step, and against all policies of a small one."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.envs import check_environment, deep_sea, deep_sea_mapping

# Of bsuite 0.3.5, DeepSea(size, mapping_seed=...), at each size two episodes of random actions and one of always right:
# actions, cells (row · size + column, size² at the end) and rewards.
EPISODES = json.loads((Path(__file__).parent / "deep_sea_bsuite.json").read_text())


def play(environment, actions, key=None):
    """Codes of the observations, rewards and ends of an episode."""
    key = jax.random.key(0) if key is None else key
    state, observation = environment.reset(key)
    _, steps = jax.lax.scan(
        lambda state, step: environment.step(step[0], state, step[1]),
        state,
        (jax.random.split(key, len(actions)), jnp.asarray(actions)),
    )
    codes = [environment.encode(observation), *environment.encode(steps.observation)]
    return [int(code) for code in codes], steps.reward, steps.terminated, steps.truncated


@pytest.mark.parametrize("episode", EPISODES, ids=lambda episode: f"{episode['size']}-{episode['mapping_seed']}")
def test_it_is_bsuites_step_for_step(episode):
    environment = deep_sea(episode["size"], mapping_seed=episode["mapping_seed"])
    check_environment(environment)
    cells, rewards, terminated, truncated = play(environment, episode["actions"])
    assert cells == episode["cells"]
    np.testing.assert_allclose(rewards, episode["rewards"], rtol=1e-6)
    assert terminated.tolist() == [False] * (episode["size"] - 1) + [True]
    assert not truncated.any()


def test_of_all_plans_one_finds_the_treasure_and_no_other_is_paid():
    size = 7
    environment = deep_sea(size, mapping_seed=3)
    plans = jnp.array(list(itertools.product((0, 1), repeat=size)))
    returns = np.asarray(jax.jit(jax.vmap(lambda plan: play_return(environment, plan)))(plans))
    assert returns.max() == pytest.approx(0.99)
    assert (returns > 0).sum() == 1
    assert np.sort(returns)[-2] <= 0


def play_return(environment, plan):
    state, _ = environment.reset(jax.random.key(0))
    step = lambda state, action: environment.step(jax.random.key(0), state, action)
    return jax.lax.scan(step, state, plan)[1].reward.sum()


WINDY = json.loads((Path(__file__).parent / "bsuite.json").read_text())["windy_dives"]


@pytest.mark.parametrize("dive", WINDY, ids=lambda dive: f"{dive['size']}-{dive['columns']}")
def test_with_wind_it_is_bsuites_step_for_step(dive):
    """Keys are drawn until the wind blows as it did in bsuite's episode; noise on rewards is left out."""
    size, step = dive["size"], jax.jit(deep_sea(dive["size"], windy=True, mapping_seed=42).step)
    state, _ = deep_sea(size).reset(jax.random.key(0))
    for row, (action, column, reward) in enumerate(zip(dive["actions"], dive["columns"], dive["rewards"], strict=True)):
        is_outer = row == size - 1 and int(state.column) in (0, size - 1)
        outcomes = (step(jax.random.key(i), state, action) for i in range(100))
        state, outcome = next(pair for pair in outcomes if int(pair[0].column) == column)
        assert is_outer or float(outcome.reward) == pytest.approx(reward)
    assert bool(state.is_bad) == dive["bad"]


def test_without_wind_an_episode_is_bad_if_it_misses_the_treasure():
    size = 5
    sea = deep_sea(size, mapping_seed=3)
    plans = jnp.array(list(itertools.product((0, 1), repeat=size)))

    def dive(plan):
        state, _ = sea.reset(jax.random.key(0))
        state, steps = jax.lax.scan(lambda state, action: sea.step(jax.random.key(0), state, action), state, plan)
        return state.is_bad, steps.reward.sum() > 0.9

    is_bad, has_treasure = jax.vmap(dive)(plans)
    assert (is_bad == ~has_treasure).all()
    assert has_treasure.sum() == 1


def test_a_mapping_can_be_given_and_traced():
    mapping = deep_sea_mapping(4, 7)
    actions = jnp.array([0, 1, 1, 0])
    codes = jax.jit(lambda mapping: play_codes(deep_sea(4, mapping=mapping), actions))(mapping)
    assert codes.tolist() == play(deep_sea(4, mapping_seed=7), actions)[0][1:]


def play_codes(environment, actions):
    state, _ = environment.reset(jax.random.key(0))
    step = lambda state, action: environment.step(jax.random.key(0), state, action)
    return environment.encode(jax.lax.scan(step, state, actions)[1].observation)


def test_observations_survive_being_stored():
    environment = deep_sea(4)
    codes = jnp.arange(17)
    observations = environment.decode(codes)
    assert observations.shape == (17, 4, 4)
    assert observations.sum((1, 2)).tolist() == [1.0] * 16 + [0.0]
    assert environment.encode(observations).tolist() == codes.tolist()
    assert environment.encode(observations).dtype == np.uint8


def test_the_index_of_a_code_is_the_place_of_its_one():
    sea = deep_sea(4)
    assert sea.spec.is_one_hot
    for code in range(17):
        vector = np.asarray(sea.decode(code)).ravel()
        assert vector.tolist() == [float(place == code) for place in range(16)]


def test_wind_stops_one_move_in_n_and_adds_noise_to_rewards():
    size, num = 4, 20_000
    environment = deep_sea(size, windy=True, mapping_seed=None, move_cost=0.0)
    assert environment.spec.is_random
    assert not deep_sea(size).spec.is_random

    def right(key):
        state, _ = environment.reset(key)
        step = lambda state, key: environment.step(key, state, 1)
        after, steps = jax.lax.scan(step, state, jax.random.split(key, size))
        return after.column, steps.reward

    columns, rewards = jax.jit(jax.vmap(right))(jax.random.split(jax.random.key(0), num))
    # Before the last step the column is the number of three moves that succeeded, each with probability 3/4.
    treasure = np.asarray(rewards)[:, -1]
    share = (3 / 4) ** 3
    assert abs(treasure.mean() - share) < 4 * np.sqrt((share * (1 - share) + 1) / num)
    assert not np.asarray(rewards)[:, :-1].any()
    # Noise in the right cell (share) and in the left one (1/64), none in between.
    outer = share + (1 / 4) ** 3
    assert np.mean(treasure != 0) == pytest.approx(outer, abs=0.02)
    assert set(np.unique(columns)) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 1}, "size must be a whole number of at least 2, got 1"),
        ({"size": 5, "move_cost": -1.0}, "move_cost must be"),
        ({"size": 5, "mapping": np.ones((4, 4))}, r"mapping must have shape \(5, 5\), got \(4, 4\)"),
        ({"size": 5, "mapping_seed": -1}, "mapping_seed must be a whole number of at least 0, got -1"),
    ],
)
def test_an_impossible_sea_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        deep_sea(**settings)
