"""Tiny environments with values in closed form; each isolates one ability of an agent.

Every factory returns a `Diagnostic`: the environment, all its observations, and its optimal action values at them. The
name of a failed diagnostic is the ability that an agent lacks. With several actions, a greedy agent may never learn the
values of actions that it does not take; compare its `greedy_actions` instead.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count
from feelgood.envs.base import Environment, Spec, Step
from feelgood.typing import Array, PRNGKey, Scalar


class Diagnostic(NamedTuple):
    """An environment with its solution.

    Attributes:
      environment: the environment.
      observations: float32 (num_observations, dimension), all observations before an action.
      action_values: `discount -> (num_observations, num_actions)`, the optimal Q at those observations.
    """

    environment: Environment
    observations: Array
    action_values: Callable[[Scalar], Array]

    def greedy_actions(self, discount: Scalar) -> Array:
        """Marks the optimal actions, bool (num_observations, num_actions); ties are all marked."""
        values = self.action_values(discount)
        return values == values.max(-1, keepdims=True)


class DiagnosticState(NamedTuple):
    """State of all diagnostic environments: the step count and the present observation."""

    time: Array
    observation: Array


def _diagnostic(
    observations, num_actions, num_steps, start, move, action_values, *, truncates=False, is_random=False
) -> Diagnostic:
    """Builds an episode of `num_steps` from `start(key) -> o` and `move(time, o, action) -> (successor, reward)`."""
    table = jnp.asarray(observations, jnp.float32)

    def reset(key: PRNGKey) -> tuple[DiagnosticState, Array]:
        observation = jnp.asarray(start(key), jnp.float32)
        return DiagnosticState(jnp.asarray(0, jnp.int32), observation), observation

    def step(key: PRNGKey, state: DiagnosticState, action: ArrayLike) -> tuple[DiagnosticState, Step]:
        del key  # only the start is random
        observation, reward = move(state.time, state.observation, jnp.asarray(action))
        observation, reward = jnp.asarray(observation, jnp.float32), jnp.asarray(reward, jnp.float32)
        end = state.time + 1 >= num_steps
        step = Step(observation, reward, end & (not truncates), end & truncates)
        return DiagnosticState(state.time + 1, observation), step

    low, high = float(table.min()), float(table.max())
    spec = Spec(table.shape[1:], np.dtype(np.float32), num_actions, num_steps, low, high, is_random=is_random)

    def values(discount: Scalar) -> Array:
        return jnp.asarray(action_values(discount), jnp.float32)

    return Diagnostic(Environment(reset, step, spec), table, values)


def constant_reward(reward: float = 1.0) -> Diagnostic:
    """One step, one action, always `reward`: can the value be learnt at all? Q = reward.

    Examples:
      >>> constant_reward(2.0).action_values(0.5).tolist()
      [[2.0]]
    """
    return _diagnostic([[1.0]], 1, 1, lambda key: [1.0], lambda t, o, a: (o, reward), lambda discount: [[reward]])


def discounting(reward: float = 1.0) -> Diagnostic:
    """Two steps, one action, `reward` at the second: is the future discounted? Q = (discount·reward, reward).

    Examples:
      >>> discounting(2.0).action_values(0.5).tolist()
      [[1.0], [2.0]]
    """
    return _diagnostic(
        [[0.0], [1.0]],
        1,
        2,
        lambda key: [0.0],
        lambda t, o, a: ([1.0], jnp.where(t == 1, reward, 0.0)),
        lambda discount: [[discount * reward], [reward]],
    )


def two_armed(rewards: tuple[float, float] = (-1.0, 1.0)) -> Diagnostic:
    """One step, two actions with a reward each: is the better one taken? Q = rewards.

    Examples:
      >>> two_armed().greedy_actions(0.5).tolist()
      [[False, True]]
    """
    arms = jnp.asarray(rewards, jnp.float32)
    return _diagnostic([[1.0]], 2, 1, lambda key: [1.0], lambda t, o, a: (o, arms[a]), lambda discount: [list(rewards)])


def observation_reward() -> Diagnostic:
    """One step, observation o = ±1 at random, reward o·action: does the agent react to its observation? Q(o) = (0, o).

    Examples:
      >>> observation_reward().greedy_actions(0.5).tolist()  # of the observations -1 and 1
      [[True, False], [False, True]]
    """
    return _diagnostic(
        [[-1.0], [1.0]],
        2,
        1,
        lambda key: jax.random.rademacher(key, (1,)),
        lambda t, o, a: (o, o[0] * a),
        lambda discount: [[0.0, -1.0], [0.0, 1.0]],
        is_random=True,
    )


def credit() -> Diagnostic:
    """Two steps, the first action is the reward of the second step: is credit passed back?

    Observations are (time, first action as ∓1): Q(0, 0) = (0, discount), Q(1, −1) = (0, 0), Q(1, 1) = (1, 1).

    Examples:
      >>> credit().action_values(0.5).tolist()
      [[0.0, 0.5], [0.0, 0.0], [1.0, 1.0]]
    """

    def move(time, observation, action):
        successor = jnp.where(time == 0, jnp.stack([1.0, 2.0 * action - 1.0]), observation)
        return successor, jnp.where(observation[1] > 0, 1.0, 0.0)

    return _diagnostic(
        [[0.0, 0.0], [1.0, -1.0], [1.0, 1.0]],
        2,
        2,
        lambda key: [0.0, 0.0],
        move,
        lambda discount: [[0.0, discount], [0.0, 0.0], [1.0, 1.0]],
    )


def truncation(num_steps: int = 4) -> Diagnostic:
    """One action, reward 1 forever, cut every `num_steps` steps: Q = 1/(1 − discount) if truncations bootstrap.

    Examples:
      >>> truncation().action_values(0.5).tolist()
      [[2.0]]
    """
    num_steps = check_count("num_steps", num_steps)
    return _diagnostic(
        [[1.0]],
        1,
        num_steps,
        lambda key: [1.0],
        lambda t, o, a: (o, 1.0),
        lambda discount: [[1 / (1 - discount)]],
        truncates=True,
    )


_ALL = (constant_reward, discounting, two_armed, observation_reward, credit, truncation)
DIAGNOSTICS: dict[str, Callable[[], Diagnostic]] = {make.__name__: make for make in _ALL}
"""All of them by name, to run an agent over."""
