"""Evaluations side by side: each is what it would be alone, and none stands or falls with another."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from feelgood.envs.external import Task
from feelgood.training.evaluation import Evaluator


class Counting(gymnasium.Env):
    """Shows its time and seed; pays time·action; ends after 2 to 40 steps, as its seed says; breaks at action 9."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 2**20, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(10)

    def reset(self, *, seed=None, options=None):
        self.time, self.name = 0, 0 if seed is None else seed % 39
        return self.seen(), {}

    def seen(self):
        return np.array([self.time, self.name], np.float32)

    def step(self, action):
        if action == 9:
            raise RuntimeError("broken")
        self.time += 1
        return self.seen(), float(self.time * action), self.time >= 2 + self.name, False, {}


def make(num_envs, training):
    assert not training
    return SyncVectorEnv([Counting] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


class ByThemselves:
    """The same, as environments that step by themselves: all are sent actions before any is asked for answers."""

    def __init__(self, num_envs, log):
        self.inner, self.num_envs, self.log = make(num_envs, False), num_envs, log

    def reset(self, **settings):
        return self.inner.reset(**settings)

    def send(self, actions):
        self.log.append("send")
        self.answer = self.inner.step(actions)

    def recv(self):
        self.log.append("recv")
        return self.answer

    def close(self):
        self.inner.close()


NUM_EPISODES, MAX_STEPS = 3, 25
TASK = Task("counting", make, (2,), np.dtype(np.float32), 10)


@jax.jit
def exploit(key, time, agent, context, observations, hyper):
    """Depends on all that it is given."""
    noise = jax.vmap(lambda i: jax.random.randint(jax.random.fold_in(key, time * 10 + i), (), 0, 3))(jnp.arange(3))
    return (noise + agent["best"] + context + jnp.asarray(observations.sum(1), int) * hyper) % 9


def begin(key, num_lanes, hyper):
    return jax.random.randint(key, (num_lanes,), 0, 4)


def evaluator(task=TASK, num_places=1, exploit=exploit, max_steps=MAX_STEPS):
    return Evaluator(task, exploit, begin, 2, num_episodes=NUM_EPISODES, max_steps=max_steps, num_places=num_places)


def asked(evaluator, which):
    return [evaluator.submit(jax.random.key(i), {"best": jnp.int32(i)}) for i in which]


def played_by_hand(i):
    """The evaluation of `asked` number i."""
    key_seed, key_context, key_act = jax.random.split(jax.random.key(i), 3)
    seed, context = int(jax.random.randint(key_seed, (), 0, 2**30)), begin(key_context, NUM_EPISODES, 2)
    returns, lengths = [], []
    for lane in range(NUM_EPISODES):
        name, total, time = (seed + lane) % 39, 0, 0
        while time < min(2 + name, MAX_STEPS):
            seen = jnp.array([[time, name]] * NUM_EPISODES)
            action = int(exploit(key_act, time, {"best": i}, context, seen, 2)[lane])
            time += 1
            total += time * action
        returns.append(total)
        lengths.append(time)
    return returns, lengths


@pytest.mark.parametrize("num_places", [1, 3])
@pytest.mark.parametrize("by_themselves", [False, True])
def test_each_evaluation_is_what_it_would_be_alone(num_places, by_themselves):
    log = []
    task = TASK._replace(make=lambda num_envs, _: ByThemselves(num_envs, log)) if by_themselves else TASK
    these = evaluator(task, num_places)
    try:
        answers = [future.result(60) for future in asked(these, range(7))]
    finally:
        these.close()
    for i, (returns, lengths) in enumerate(answers):
        expected_returns, expected_lengths = played_by_hand(i)
        np.testing.assert_array_equal(returns, expected_returns)
        np.testing.assert_array_equal(lengths, expected_lengths)
    if by_themselves:
        together = "send" * num_places + "recv" * num_places
        assert together in "".join(log)
        assert "send" * (num_places + 1) not in "".join(log)


def test_those_that_fail_say_why_and_later_ones_do_not():
    breaking = jax.jit(lambda *arguments: jnp.where(arguments[2]["best"] == 5, 9, exploit(*arguments)))
    these = evaluator(exploit=breaking)
    try:
        futures = asked(these, (5, 6))
        with pytest.raises(RuntimeError, match="broken"):
            futures[0].result(60)
        np.testing.assert_array_equal(futures[1].result(60)[0], played_by_hand(6)[0])
    finally:
        these.close()


class Endless(Counting):
    """One that does not end."""

    def step(self, action):
        seen, reward, _, _, info = super().step(action)
        return seen, reward, False, False, info


def test_closing_ends_what_is_played_and_what_waits():
    task = TASK._replace(make=lambda num_envs, _: SyncVectorEnv([Endless] * num_envs))
    these = evaluator(task, num_places=2, max_steps=10**9)
    futures = asked(these, range(4))
    these.close()
    assert all(future.cancelled() for future in futures)
