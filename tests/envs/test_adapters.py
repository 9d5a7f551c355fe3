"""Adapters of other JAX libraries, on stand-ins with the interfaces of gymnax 1.0 and navix 0.7.

gymnax does not install next to the newest JAX without conflicts, so the tests need neither library.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import feelgood
from feelgood.envs.adapters import from_gymnax, from_navix


@dataclass(frozen=True)
class Space:
    """A space of gymnax (`n`, `low`, `high`) or of navix (`minimum`, `maximum`)."""

    n: Any = None
    low: Any = None
    high: Any = None
    minimum: Any = None
    maximum: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WalkParams:
    max_steps_in_episode: int = 6


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class WalkState:
    place: Any
    time: Any


class Walk:
    """A gymnax environment: steps left or right from 0, reward 1 and the end at 3."""

    name = "Walk"
    default_params = WalkParams()

    def reset_env(self, key, params):
        state = WalkState(jnp.zeros(()), jnp.asarray(0))
        return jnp.stack([state.place, 0.0]), state

    def step_env(self, key, state, action, params):
        state = WalkState(state.place + 2.0 * action - 1, state.time + 1)
        reward = (state.place == 3).astype(int)
        observation = jnp.stack([state.place, state.time / params.max_steps_in_episode])
        return observation, state, reward, self.is_terminal(state, params), {}

    def is_terminal(self, state, params):
        return (state.place == 3) | (state.time >= params.max_steps_in_episode)

    def action_space(self, params):
        return Space(n=2)

    def observation_space(self, params):
        return Space(low=np.array([-9.0, 0.0]), high=np.array([9.0, 1.0]))


def ends(environment, actions):
    """Observations, rewards and the kinds of end of an episode."""
    state, observation = environment.reset(jax.random.key(0))
    steps = [(observation.tolist(), 0.0, False, False)]
    for action in actions:
        state, step = environment.step(jax.random.key(0), state, action)
        steps.append((step.observation.tolist(), float(step.reward), bool(step.terminated), bool(step.truncated)))
    return steps


def test_a_gymnax_environment_keeps_its_observations_and_ends_as_it_should():
    walk = from_gymnax(Walk())
    assert walk.spec.num_actions == 2
    assert walk.spec.max_episode_steps == 6
    assert (walk.spec.observation_low, walk.spec.observation_high) == ((-9.0, 0.0), (9.0, 1.0))
    assert walk.spec.name == "Walk"
    assert ends(walk, [1, 1, 1])[-1] == ([3.0, 0.5], 1.0, True, False)
    # Lost at the limit: cut off. Won in the very step of the limit: terminal.
    assert ends(walk, [0, 1, 0, 1, 0, 1])[-1] == ([0.0, 1.0], 0.0, False, True)
    won_late = ends(from_gymnax(Walk(), WalkParams(3)), [1, 1, 1])[-1]
    assert won_late == ([3.0, 1.0], 1.0, True, False)


def test_a_shorter_time_limit_truncates():
    walk = from_gymnax(Walk(), max_episode_steps=2)
    assert walk.spec.max_episode_steps == 2
    assert [step[2:] for step in ends(walk, [0, 0])] == [(False, False), (False, False), (False, True)]


def test_an_agent_learns_on_a_gymnax_environment():
    result = feelgood.train("dqn", from_gymnax(Walk()), num_steps=2_000, seeds=(0,), evaluation_period=500)
    # Uniform actions reach the goal in a fifth of the episodes; these are the last 1,500 steps.
    assert result.curve["training_return"].iloc[-3:].mean() > 0.8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Timestep:
    t: Any
    observation: Any
    reward: Any
    step_type: Any
    state: Any
    info: dict = field(default_factory=dict)

    def replace(self, **changes):
        return replace(self, **changes)


class Corridor:
    """A navix environment: the state counts moves to the right, the third one terminates, the fourth step truncates.

    As in navix, `step` resets after an end, `info` grows within an episode, and weak types come and go.
    """

    max_steps = 4
    action_space = Space(minimum=0, maximum=jnp.asarray(1))
    observation_space = Space(minimum=jnp.asarray(0), maximum=jnp.asarray(3))

    def reset(self, key):
        zero = jnp.asarray(0)
        return Timestep(zero, jnp.zeros((2, 2), jnp.uint8), jnp.asarray(0.0), zero, zero, {"return": jnp.asarray(0.0)})

    def step(self, timestep, action):
        place, t = timestep.state + action, timestep.t + 1
        kind = jnp.where(place == 3, 2, jnp.where(t >= self.max_steps, 1, 0))
        observation = jnp.full((2, 2), place, jnp.uint8)
        moved = Timestep(t, observation, (place == 3) * 1.0, kind, place, {"return": jnp.asarray(1.0), "more": t})
        began = self.reset(None)
        began = began.replace(info=moved.info)
        return jax.tree.map(lambda a, b: jnp.where(timestep.step_type > 0, a, b), began, moved)


def test_a_navix_environment_separates_truncation_from_termination():
    corridor = from_navix(Corridor())
    assert corridor.spec.observation_shape == (2, 2)
    assert corridor.spec.observation_dtype == np.uint8
    assert (corridor.spec.observation_low, corridor.spec.observation_high) == (0.0, 3.0)
    assert (corridor.spec.num_actions, corridor.spec.max_episode_steps) == (2, 4)
    assert ends(corridor, [1, 1, 1])[-1] == ([[3, 3], [3, 3]], 1.0, True, False)
    assert [step[2:] for step in ends(corridor, [0, 1, 0, 0])][-2:] == [(False, False), (False, True)]


class NoLimit(Walk):
    default_params = Space()  # no field of a time limit

    def is_terminal(self, state, params):
        return state.place == 3


class Continuous(Walk):
    def action_space(self, params):
        return Space()


class Parts(Walk):
    def reset_env(self, key, params):
        observation, state = super().reset_env(key, params)
        return {"place": observation}, state


@pytest.mark.parametrize(
    ("adapt", "words"),
    [
        (
            lambda: from_gymnax(Corridor()),
            "environment must have gymnax's reset_env, .* got an object of type Corridor",
        ),
        (lambda: from_navix(Walk()), "environment must have navix's reset, step, max_steps, .* of type Walk"),
        (lambda: from_gymnax(NoLimit()), "max_episode_steps must be given .* got None"),
        (lambda: from_gymnax(Walk(), max_episode_steps=0), "max_episode_steps must be .* got 0"),
        (lambda: from_gymnax(Continuous()), "action_space of an environment must be discrete"),
        (lambda: from_gymnax(Parts()), "observations of an environment must be one array, got dict"),
    ],
)
def test_unknown_environments_are_refused(adapt, words):
    with pytest.raises(ValueError, match=words):
        adapt()
