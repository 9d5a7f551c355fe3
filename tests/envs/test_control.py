"""Classic control against Gymnasium's own, step for step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.envs import acrobot, cart_pole, check_environment, mountain_car

PAIRS = [(cart_pole, "CartPole-v1"), (mountain_car, "MountainCar-v0"), (acrobot, "Acrobot-v1")]


@pytest.mark.parametrize(("make", "name"), PAIRS, ids=lambda value: getattr(value, "__name__", None))
def test_a_step_is_gymnasiums(make, name):
    ours, theirs = make(), gymnasium.make(name).unwrapped
    check_environment(ours)
    step, rng, ended = jax.jit(ours.step), np.random.default_rng(0), 0
    start, _ = ours.reset(key := jax.random.key(0))
    for episode in range(20):
        theirs.reset(seed=episode)
        for _ in range(60):
            action = int(rng.integers(ours.spec.num_actions))
            # From Gymnasium's own state at every step, so that rounding does not add up.
            state = start._replace(system=jnp.asarray(theirs.state, jnp.float32))
            observation, reward, terminated, *_ = theirs.step(action)
            _, mine = step(key, state, action)
            np.testing.assert_allclose(mine.observation, observation, rtol=1e-4, atol=2e-5)
            assert (float(mine.reward), bool(mine.terminated)) == (reward, terminated)
            if terminated:
                ended += 1
                break
    assert ended > 0 or name != "CartPole-v1"


@pytest.mark.parametrize(
    ("make", "start", "action"), [(mountain_car, [0.49, 0.06], 2), (acrobot, [3.1, 0.0, 0.5, 0.0], 1)]
)
def test_the_goal_terminates(make, start, action):
    environment = make()
    state, _ = environment.reset(jax.random.key(0))
    _, step = environment.step(jax.random.key(0), state._replace(system=jnp.asarray(start)), action)
    assert step.terminated
    assert not step.truncated


@pytest.mark.parametrize(("make", "name"), PAIRS, ids=lambda value: getattr(value, "__name__", None))
def test_spaces_starts_and_time_limits_are_gymnasiums(make, name):
    ours, theirs = make(), gymnasium.make(name)
    spec = ours.spec
    assert spec.observation_shape == theirs.observation_space.shape
    assert spec.num_actions == theirs.action_space.n
    assert spec.max_episode_steps == theirs.spec.max_episode_steps
    bound = np.maximum(np.abs(theirs.observation_space.low), np.abs(theirs.observation_space.high))
    np.testing.assert_allclose(spec.observation_high, bound, rtol=1e-6)
    starts = jax.jit(jax.vmap(lambda key: ours.reset(key)[1]))(jax.random.split(jax.random.key(1), 4_000))
    others = np.stack([theirs.reset(seed=seed)[0] for seed in range(4_000)])
    np.testing.assert_allclose(starts.min(0), others.min(0), atol=2e-3)
    np.testing.assert_allclose(starts.max(0), others.max(0), atol=2e-3)
    np.testing.assert_allclose(starts.mean(0), others.mean(0), atol=5e-3)


def test_the_time_limit_truncates_and_does_not_terminate():
    environment = mountain_car(max_episode_steps=3)
    state, _ = environment.reset(jax.random.key(0))
    ends = []
    for _ in range(3):
        state, step = environment.step(jax.random.key(0), state, 1)
        ends.append((bool(step.terminated), bool(step.truncated)))
    assert ends == [(False, False), (False, False), (False, True)]


def test_a_time_limit_of_zero_is_refused():
    with pytest.raises(ValueError, match=r"max_episode_steps must be .* got 0"):
        cart_pole(0)
