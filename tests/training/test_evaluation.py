"""Evaluations in parallel: each gives the same result as alone, and a failure does not affect the others."""

import threading
from concurrent.futures import CancelledError

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from feelgood.envs.external import ExternalEnvironment
from feelgood.training.acting import Acting
from feelgood.training.evaluation import Evaluator


class Counting(gymnasium.Env):
    """Shows its time and seed; pays time·action; ends after 2 to 40 steps, depending on its seed; breaks at action 9.

    And at action 10 it ends the program.
    """

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 2**20, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(11)

    def reset(self, *, seed=None, options=None):
        self.time, self.name = 0, 0 if seed is None else seed % 39
        return self.seen(), {}

    def seen(self):
        return np.array([self.time, self.name], np.float32)

    def step(self, action):
        if action >= 9:
            raise RuntimeError("broken") if action == 9 else SystemExit
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
TASK = ExternalEnvironment("counting", make, (2,), np.dtype(np.float32), 11)


@jax.jit
def exploit(key, time, agent, context, observations, hyper):
    """Depends on all that it is given."""
    noise = jax.vmap(lambda i: jax.random.randint(jax.random.fold_in(key, time * 10 + i), (), 0, 3))(jnp.arange(3))
    return (noise + agent["best"] + context + jnp.asarray(observations.sum(1), int) * hyper) % 9


def begin(key, num_lanes, hyper):
    return jax.random.randint(key, (num_lanes,), 0, 4)


def evaluator(environment=TASK, num_places=1, exploit=exploit, max_steps=MAX_STEPS):
    each = jax.jit(jax.vmap(exploit, (0, 0, 0, 0, 0, None)))
    acting = Acting(init=None, begin=begin, exploit=exploit, exploit_each=each)
    settings = {"num_episodes": NUM_EPISODES, "max_steps": max_steps, "num_places": num_places}
    return Evaluator(environment, acting, 2, **settings)


def asked(evaluator, which):
    return [evaluator.submit(jax.random.key(i), {"best": jnp.int32(i)}) for i in which]


def played_by_hand(i):
    """The evaluation of `asked` number i."""
    key_seed, key_context, key_act = jax.random.split(jax.random.key(i), 3)
    seed, context = int(jax.random.randint(key_seed, (), 0, 2**30)), begin(key_context, NUM_EPISODES, 2)
    returns, lengths, num_cut = [], [], 0
    for lane in range(NUM_EPISODES):
        name, total, time = (seed + lane) % 39, 0, 0
        while time < min(2 + name, MAX_STEPS):
            seen = jnp.array([[time, name]] * NUM_EPISODES)
            action = int(exploit(key_act, time, {"best": i}, context, seen, 2)[lane])
            time += 1
            total += time * action
        returns.append(total)
        lengths.append(time)
        num_cut += 2 + name > MAX_STEPS
    return returns, lengths, num_cut


@pytest.mark.parametrize("num_places", [1, 3])
@pytest.mark.parametrize("by_themselves", [False, True])
def test_each_evaluation_equals_the_same_evaluation_alone(num_places, by_themselves):
    log = []
    environment = TASK
    if by_themselves:
        environment = TASK._replace(make=lambda num_envs, _: ByThemselves(num_envs, log), steps_by_itself=True)
    these = evaluator(environment, num_places)
    try:
        answers = [future.result(600) for future in asked(these, range(7))]
    finally:
        these.close()
    for i, played in enumerate(answers):
        expected_returns, expected_lengths, expected_cut = played_by_hand(i)
        assert played.num_cut == expected_cut
        np.testing.assert_array_equal(played.returns, expected_returns)
        np.testing.assert_array_equal(played.lengths, expected_lengths)
    if by_themselves:
        together = "send" * num_places + "recv" * num_places
        assert together in "".join(log)
        assert "send" * (num_places + 1) not in "".join(log)


@pytest.mark.parametrize(("action", "error"), [(9, RuntimeError), (10, SystemExit)])
def test_a_failed_evaluation_raises_and_others_continue(action, error):
    breaking = lambda *arguments: jnp.where(arguments[2]["best"] == 5, action, exploit(*arguments))
    these = evaluator(num_places=2, exploit=breaking)
    try:
        beside, broken, after = asked(these, (1, 5, 6))
        with pytest.raises(error):
            broken.result(600)
        for i, future in ((1, beside), (6, after)):
            np.testing.assert_array_equal(future.result(600).returns, played_by_hand(i)[0])
    finally:
        these.close()


def test_an_environment_that_cannot_be_made_fails_its_own_evaluation():
    made = []

    def make_once_in_two(num_envs, training):
        made.append(num_envs)
        if len(made) == 2:
            raise OSError("no more of these")
        return make(num_envs, training)

    these = evaluator(TASK._replace(make=make_once_in_two), num_places=2)
    try:
        futures = asked(these, range(4))
        outcomes = [future.exception(60) for future in futures]
    finally:
        these.close()
    assert [type(outcome) for outcome in outcomes].count(OSError) == 1
    assert outcomes.count(None) == 3


class Endless(Counting):
    """One that does not end."""

    def step(self, action):
        seen, reward, _, _, info = super().step(action)
        return seen, reward, False, False, info


def test_closing_ends_active_and_waiting_evaluations():
    environment = TASK._replace(make=lambda num_envs, _: SyncVectorEnv([Endless] * num_envs))
    these = evaluator(environment, num_places=2, max_steps=10**9)
    futures = asked(these, range(4))
    these.close()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(0)
    with pytest.raises(RuntimeError, match="closed"):
        asked(these, [4])


def test_a_cancelled_evaluation_is_left_out():
    go_on = threading.Event()
    environment = TASK._replace(make=lambda *settings: go_on.wait(600) and make(*settings))
    these = evaluator(environment)
    try:
        first, unwanted, last = asked(these, range(3))
        assert unwanted.cancel()
        go_on.set()
        for i, future in ((0, first), (2, last)):
            np.testing.assert_array_equal(future.result(600).returns, played_by_hand(i)[0])
    finally:
        these.close()
