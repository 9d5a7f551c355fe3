"""bsuite's bandit, catch, cart-pole, swing-up and mountain car, step for step (Osband et al., 2020).

Observations have bsuite's shapes, and no bounds if bsuite gives none. As in bsuite, the state at the time limit is
terminal. bsuite's deep sea is `feelgood.envs.deep_sea`; Gymnasium's tasks of the same names, which differ, are in
`feelgood.envs.control`.

References:
  Osband et al. (2020), Behaviour suite for reinforcement learning. Version 0.3.6 of the package.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.envs.base import Environment, Spec, Step
from feelgood.envs.control import pole_accelerations
from feelgood.typing import Array, PRNGKey, Scalar

_FLOAT = np.dtype(np.float32)


def _ended(observation: Array, reward: ArrayLike, end: ArrayLike) -> Step:
    """A step whose episode ends, if it does, in a terminal state."""
    return Step(observation, jnp.asarray(reward, jnp.float32), jnp.asarray(end, bool), jnp.zeros((), bool))


def bandit_rewards(mapping_seed: int) -> np.ndarray:
    """The rewards 0, 0.1, …, 1 in the order in which bsuite gives them to eleven arms.

    Examples:
      >>> bandit_rewards(0).round(1).tolist()
      [0.4, 0.9, 0.2, 1.0, 0.6, 0.1, 0.7, 0.8, 0.3, 0.0, 0.5]
    """
    return np.linspace(0, 1, 11)[np.random.RandomState(mapping_seed).choice(11, size=11, replace=False)]


def bandit(rewards: ArrayLike) -> Environment:
    """A bandit with a fixed reward for each arm, and episodes of one step.

    Args:
      rewards: (arms,) reward of each arm; may be traced. See `bandit_rewards`.

    Examples:
      >>> import jax, numpy as np
      >>> from feelgood.envs import bsuite
      >>> env, key = bsuite.bandit(np.array([0.25, 0.75])), jax.random.key(0)
      >>> float(env.step(key, env.reset(key)[0], 1)[1].reward)
      0.75
    """
    arms = jnp.asarray(rewards, jnp.float32)
    seen = jnp.ones((1, 1), jnp.float32)

    def step(key: PRNGKey, state: Array, action: ArrayLike) -> tuple[Array, Step]:
        del key  # rewards are fixed
        return state, _ended(seen, arms[jnp.asarray(action)], True)

    spec = Spec((1, 1), _FLOAT, arms.shape[0], 1, fixed_start=True, is_random=False, name="bandit")
    return Environment(lambda key: (jnp.zeros((), jnp.int32), seen), step, spec)


class CatchState(NamedTuple):
    """State of catch, all int32: row and column of the ball, and column of the paddle."""

    row: Array
    column: Array
    paddle: Array


def catch(rows: int = 10, columns: int = 5) -> Environment:
    """A ball falls from a random column onto a paddle that moves left, stays or moves right.

    The last step pays 1 if the paddle is under the ball and −1 if not. Observations are (rows, columns), 1 at the ball
    and at the paddle.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood.envs import bsuite
      >>> env, key = bsuite.catch(), jax.random.key(0)
      >>> move = jax.jit(env.step)
      >>> state = bsuite.CatchState(row=jnp.array(8), column=jnp.array(3), paddle=jnp.array(2))
      >>> [float(move(key, state, action)[1].reward) for action in range(3)]  # left, stay, right
      [-1.0, -1.0, 1.0]
    """

    def show(state: CatchState) -> Array:
        board = jnp.zeros((rows, columns), jnp.float32).at[state.row, state.column].set(1.0)
        return board.at[rows - 1, state.paddle].set(1.0)

    def reset(key: PRNGKey) -> tuple[CatchState, Array]:
        zero, middle = jnp.zeros((), jnp.int32), jnp.asarray(columns // 2, jnp.int32)
        state = CatchState(zero, jax.random.randint(key, (), 0, columns, jnp.int32), middle)
        return state, show(state)

    def step(key: PRNGKey, state: CatchState, action: ArrayLike) -> tuple[CatchState, Step]:
        del key  # only the start is random
        paddle = jnp.clip(state.paddle + jnp.asarray(action, jnp.int32) - 1, 0, columns - 1)
        after = CatchState(state.row + 1, state.column, paddle)
        end = after.row == rows - 1
        reward = jnp.where(end, jnp.where(paddle == state.column, 1.0, -1.0), 0.0)
        return after, _ended(show(after), reward, end)

    spec = Spec((rows, columns), _FLOAT, 3, rows - 1, observation_low=0, observation_high=1, name="catch")
    to_byte, to_float = lambda board: jnp.asarray(board, jnp.uint8), lambda code: jnp.asarray(code, jnp.float32)
    return Environment(reset, step, spec, to_byte, to_float)


class CarState(NamedTuple):
    """State of the mountain car: position, velocity and int32 number of steps."""

    position: Array
    velocity: Array
    time: Array


def mountain_car(max_steps: int = 1000) -> Environment:
    """An underpowered car in a valley, with the reward −1 until it is out or `max_steps` are over.

    Observations are (1, 3): position, velocity and share of the time.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood.envs import bsuite
      >>> env, key = bsuite.mountain_car(max_steps=100), jax.random.key(0)
      >>> bottom = bsuite.CarState(position=jnp.array(-jnp.pi / 6), velocity=jnp.array(0.0), time=jnp.array(0))
      >>> [round(x, 4) for x in jax.jit(env.step)(key, bottom, 2)[1].observation[0].tolist()]
      [-0.5226, 0.001, 0.01]
    """

    def show(state: CarState) -> Array:
        return jnp.stack([state.position, state.velocity, state.time / max_steps])[None]

    def reset(key: PRNGKey) -> tuple[CarState, Array]:
        start = jax.random.uniform(key, (), jnp.float32, -0.6, -0.4)
        state = CarState(start, jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32))
        return state, show(state)

    def step(key: PRNGKey, state: CarState, action: ArrayLike) -> tuple[CarState, Step]:
        del key  # only the start is random
        push = 0.001 * (jnp.asarray(action, jnp.float32) - 1)
        velocity = jnp.clip(state.velocity + push - 0.0025 * jnp.cos(3 * state.position), -0.07, 0.07)
        position = jnp.clip(state.position + velocity, -1.2, 0.6)
        velocity = jnp.where(position == jnp.float32(-1.2), jnp.maximum(velocity, 0.0), velocity)
        after = CarState(position, velocity, state.time + 1)
        return after, _ended(show(after), -1.0, (position >= 0.5) | (after.time >= max_steps))

    return Environment(reset, step, Spec((1, 3), _FLOAT, 3, max_steps, name="mountain_car"))


class PoleState(NamedTuple):
    """State of a cart with a pole: position, angle from upright, their velocities, and int32 number of steps."""

    x: Array
    x_dot: Array
    theta: Array
    theta_dot: Array
    time: Array


_TIMESCALE, _MAX_TIME = 0.01, 10.0
# bsuite adds up steps of 0.01 until the sum exceeds 10; after 1,000 of them, rounding keeps it just below.
_MAX_POLE_STEPS = 1001
_EDGE = 3.0


def _push(state: PoleState, action: ArrayLike) -> PoleState:
    """One Euler step of the cart under the force −10, 0 or 10."""
    force = 10.0 * (jnp.asarray(action, jnp.float32) - 1)
    x_acc, theta_acc = pole_accelerations(force, state.theta, state.theta_dot)
    return PoleState(
        state.x + _TIMESCALE * state.x_dot,
        state.x_dot + _TIMESCALE * x_acc,
        jnp.remainder(state.theta + _TIMESCALE * state.theta_dot, 2 * jnp.pi),
        state.theta_dot + _TIMESCALE * theta_acc,
        state.time + 1,
    )


def _pole_start(key: PRNGKey, theta: float) -> PoleState:
    x, x_dot, offset, theta_dot = jax.random.uniform(key, (4,), jnp.float32, -0.05, 0.05)
    return PoleState(x, x_dot, theta + offset, theta_dot, jnp.zeros((), jnp.int32))


def _pole_features(state: PoleState) -> list[Array]:
    angle = [jnp.sin(state.theta), jnp.cos(state.theta), state.theta_dot]
    return [state.x / _EDGE, state.x_dot / _EDGE, *angle, state.time * (_TIMESCALE / _MAX_TIME)]


def cartpole() -> Environment:
    """A pole that starts upright on a cart, with the reward 1 until it falls, the cart leaves, or ten seconds are over.

    Observations are (1, 6): position and velocity of the cart, sine, cosine and velocity of the angle, and share of
    the time.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood.envs import bsuite
      >>> env, key = bsuite.cartpole(), jax.random.key(0)
      >>> upright = bsuite.PoleState(*jnp.zeros(4), time=jnp.array(0))
      >>> step = jax.jit(env.step)(key, upright, 1)[1]  # no force
      >>> [round(x, 3) for x in step.observation[0].tolist()], float(step.reward)
      ([0.0, 0.0, 0.0, 1.0, 0.0, 0.001], 1.0)
    """

    def show(state: PoleState) -> Array:
        return jnp.stack(_pole_features(state))[None]

    def reset(key: PRNGKey) -> tuple[PoleState, Array]:
        state = _pole_start(key, 0.0)
        return state, show(state)

    def step(key: PRNGKey, state: PoleState, action: ArrayLike) -> tuple[PoleState, Step]:
        del key  # only the start is random
        after = _push(state, action)
        stands = (jnp.cos(after.theta) > 0.8) & (jnp.abs(after.x) < _EDGE)
        return after, _ended(show(after), jnp.where(stands, 1.0, 0.0), ~stands | (after.time >= _MAX_POLE_STEPS))

    return Environment(reset, step, Spec((1, 6), _FLOAT, 3, _MAX_POLE_STEPS, name="cartpole"))


def cartpole_swingup(height_threshold: Scalar = 0.5, x_reward_threshold: Scalar = 1.0) -> Environment:
    """A pole that starts hanging; a push costs 0.1, and a step with the pole up, slow and in the middle pays 1.

    Observations are those of `cartpole` and two signs: whether the cart is in the middle, and whether the pole is slow
    (below one radian a second). Episodes end when the cart leaves or ten seconds are over.

    Args:
      height_threshold: cosine of the angle from which the pole is up; may be traced.
      x_reward_threshold: distance from the middle within which the cart is in the middle; may be traced.

    Examples:
      >>> import jax
      >>> from feelgood.envs import bsuite
      >>> env, key = bsuite.cartpole_swingup(), jax.random.key(0)
      >>> (state, observation), move = env.reset(key), jax.jit(env.step)
      >>> [round(float(move(key, state, action)[1].reward), 1) for action in range(3)]  # left, no force, right
      [-0.1, 0.0, -0.1]
    """

    def signs(state: PoleState) -> tuple[Array, Array]:
        return jnp.abs(state.x) < x_reward_threshold, jnp.abs(state.theta_dot) < 1.0

    def show(state: PoleState) -> Array:
        return jnp.stack([*_pole_features(state), *(jnp.where(sign, 1.0, -1.0) for sign in signs(state))])[None]

    def reset(key: PRNGKey) -> tuple[PoleState, Array]:
        state = _pole_start(key, np.pi)
        return state, show(state)

    def step(key: PRNGKey, state: PoleState, action: ArrayLike) -> tuple[PoleState, Step]:
        del key  # only the start is random
        after = _push(state, action)
        is_central, is_slow = signs(after)
        is_up = (jnp.cos(after.theta) > height_threshold) & is_central & is_slow
        reward = jnp.where(is_up, 1.0, 0.0) - 0.1 * jnp.abs(jnp.asarray(action, jnp.float32) - 1)
        return after, _ended(show(after), reward, (jnp.abs(after.x) > _EDGE) | (after.time >= _MAX_POLE_STEPS))

    return Environment(reset, step, Spec((1, 8), _FLOAT, 3, _MAX_POLE_STEPS, name="cartpole_swingup"))
