"""Gymnasium's view of the environments."""

import warnings

import jax
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from feelgood.envs import diagnostic, nchain  # noqa: E402
from feelgood.envs.gym import GymEnv  # noqa: E402


@pytest.mark.parametrize("variant", ["released", "paper"])
def test_the_registered_chain_passes_gymnasiums_own_checker_without_a_warning(variant):
    env = gymnasium.make("feelgood/NChain-v0", num_states=8, variant=variant)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


@pytest.mark.parametrize(("variant", "timeout"), [("released", "terminated"), ("paper", "truncated")])
def test_the_registered_chain_equals_the_functional_one_step_for_step(variant, timeout):
    settings = {"variant": variant, "timeout": timeout}
    env = gymnasium.make("feelgood/NChain-v0", num_states=7, **settings)
    functional, key = nchain(7, **settings), jax.random.key(0)
    functional = functional._replace(step=jax.jit(functional.step))
    rng = np.random.default_rng(0)
    for episode in range(3):
        observation, info = env.reset(seed=episode)
        state, expected = functional.reset(key)
        np.testing.assert_array_equal(observation, expected)
        assert info == {}
        ended, steps = False, 0
        while not ended:
            action = int(rng.random() < 0.7)
            observation, reward, terminated, truncated, _ = env.step(action)
            state, step = functional.step(key, state, action)
            np.testing.assert_array_equal(observation, step.observation)
            assert observation.dtype == np.int8
            assert (reward, terminated, truncated) == (float(step.reward), bool(step.terminated), bool(step.truncated))
            assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
            ended, steps = terminated or truncated, steps + 1
        assert steps == functional.spec.max_episode_steps


def test_always_right_returns_ten():
    env = gymnasium.make("feelgood/NChain-v0", num_states=25)
    env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        _, reward, ended, _, _ = env.step(1)
        total += reward
    assert total == 10


def test_equal_seeds_start_alike_and_an_unseeded_reset_moves_on():
    env = GymEnv(diagnostic.observation_reward().environment)
    starts = [[env.reset(seed=3 if i == 0 else None)[0].item() for i in range(20)] for _ in range(2)]
    assert starts[0] == starts[1]
    assert set(starts[0]) == {-1.0, 1.0}


def test_spaces_follow_the_spec():
    env = gymnasium.make("feelgood/NChain-v0", num_states=9)
    assert env.observation_space == gymnasium.spaces.Box(0, 1, (9,), np.int8)
    assert env.action_space == gymnasium.spaces.Discrete(2)


def test_wrong_use_is_refused_in_one_sentence():
    env = gymnasium.make("feelgood/NChain-v0", num_states=5).unwrapped
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(0)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action must be a whole number from 0 to 1, got 2"):
        env.step(2)
    with pytest.raises(ValueError, match="num_states must be a whole number of at least 4, got 3"):
        gymnasium.make("feelgood/NChain-v0", num_states=3)
