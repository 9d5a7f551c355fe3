"""Functional CartPole-v1, MountainCar-v0 and Acrobot-v1 with Gymnasium's physics and time limits.

Gymnasium computes in float64 and these in float32, so states agree up to rounding. The time limit truncates.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count
from feelgood.envs.base import Environment, Spec, Step
from feelgood.typing import Array, PRNGKey


class ControlState(NamedTuple):
    """State of a control task: float32 coordinates of the system, and int32 count of steps in this episode."""

    system: Array
    time: Array


def _control(
    name: str,
    num_actions: int,
    bound: tuple[float, ...],
    max_episode_steps: int,
    start: Callable[[PRNGKey], Array],
    move: Callable[[Array, Array], tuple[Array, Array, Array]],
    show: Callable[[Array], Array] = lambda system: system,
) -> Environment:
    """Builds a task from `start(key) -> system` and `move(system, action) -> (system, reward, terminated)`."""
    max_episode_steps = check_count("max_episode_steps", max_episode_steps)

    def reset(key: PRNGKey) -> tuple[ControlState, Array]:
        system = start(key)
        return ControlState(system, jnp.asarray(0, jnp.int32)), show(system)

    def step(key: PRNGKey, state: ControlState, action: ArrayLike) -> tuple[ControlState, Step]:
        del key  # only the start is random
        system, reward, terminated = move(state.system, jnp.asarray(action))
        time = state.time + 1
        truncated = (time >= max_episode_steps) & ~terminated
        return ControlState(system, time), Step(show(system), jnp.asarray(reward, jnp.float32), terminated, truncated)

    low = tuple(-x for x in bound)
    spec = Spec((len(bound),), np.dtype(np.float32), num_actions, max_episode_steps, low, bound, name=name)
    return Environment(reset, step, spec)


def pole_accelerations(force: Array, angle: Array, spin: Array) -> tuple[Array, Array]:
    """Accelerations of a cart of mass 1 under a force, and of the angle of its pole of mass 0.1 and length 1."""
    gravity, mass_pole, mass, half_length = 9.8, 0.1, 1.1, 0.5
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    pushed = (force + mass_pole * half_length * spin**2 * sine) / mass
    turned = (gravity * sine - cosine * pushed) / (half_length * (4 / 3 - mass_pole * cosine**2 / mass))
    return pushed - mass_pole * half_length * turned * cosine / mass, turned


def cart_pole(max_episode_steps: int = 500) -> Environment:
    """Builds CartPole-v1: a pole on a cart, pushed left or right; reward 1 a step until it falls or leaves.

    Observations are (x, ẋ, θ, θ̇). An episode ends if |x| > 2.4 or |θ| > 12°.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import envs
      >>> env, key = envs.cart_pole(), jax.random.key(0)
      >>> still = envs.ControlState(jnp.zeros(4), time=jnp.array(0))
      >>> step = jax.jit(env.step)(key, still, 1)[1]  # a push to the right tilts the pole to the left
      >>> [round(x, 3) for x in step.observation.tolist()]
      [0.0, 0.195, 0.0, -0.293]
    """
    push, seconds, most_x, most_angle = 10.0, 0.02, 2.4, math.radians(12)

    def start(key):
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    def move(system, action):
        _, speed, angle, spin = system
        accelerated, turned = pole_accelerations(jnp.where(action == 1, push, -push), angle, spin)
        after = system + seconds * jnp.stack([speed, accelerated, spin, turned])
        return after, 1.0, (jnp.abs(after[0]) > most_x) | (jnp.abs(after[2]) > most_angle)

    bound = (2 * most_x, math.inf, 2 * most_angle, math.inf)
    return _control("cart_pole", 2, bound, max_episode_steps, start, move)


def mountain_car(max_episode_steps: int = 200) -> Environment:
    """Builds MountainCar-v0: a car in a valley, too weak for the slope, must swing to the flag; reward −1 a step.

    Actions push left, not at all, or right. Observations are (position, velocity).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import envs
      >>> env, key = envs.mountain_car(), jax.random.key(0)
      >>> bottom = envs.ControlState(jnp.array([-jnp.pi / 6, 0.0]), time=jnp.array(0))
      >>> [round(x, 4) for x in jax.jit(env.step)(key, bottom, 2)[1].observation.tolist()]
      [-0.5226, 0.001]
    """

    def start(key):
        return jnp.stack([jax.random.uniform(key, minval=-0.6, maxval=-0.4), jnp.zeros(())])

    def move(system, action):
        position, velocity = system
        velocity = velocity + (action - 1) * 0.001 - 0.0025 * jnp.cos(3 * position)
        velocity = jnp.clip(velocity, -0.07, 0.07)
        position = jnp.clip(position + velocity, -1.2, 0.6)
        velocity = jnp.where(position <= -1.2, jnp.maximum(velocity, 0.0), velocity)
        return jnp.stack([position, velocity]), -1.0, (position >= 0.5) & (velocity >= 0)

    return _control("mountain_car", 3, (1.2, 0.07), max_episode_steps, start, move)


def acrobot(max_episode_steps: int = 500) -> Environment:
    """Builds Acrobot-v1: two links with a motor at the elbow must swing their tip one link above the pivot.

    Actions are torques −1, 0 and 1; the reward is −1 a step and 0 at the goal. Observations are (cos θ₁, sin θ₁,
    cos θ₂, sin θ₂, θ̇₁, θ̇₂). Both links have length and mass 1, their centre of mass at ½ and moment of inertia 1.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import envs
      >>> env, key = envs.acrobot(), jax.random.key(0)
      >>> hanging = envs.ControlState(jnp.zeros(4), time=jnp.array(0))
      >>> jax.jit(env.step)(key, hanging, 1)[1].observation.tolist()  # without torque it stays as it is
      [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    """
    gravity, seconds, most_spins = 9.8, 0.2, (4 * math.pi, 9 * math.pi)

    def start(key):
        return jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)

    def flow(system, torque):
        angle, elbow, spin, elbow_spin = system
        cosine, sine = jnp.cos(elbow), jnp.sin(elbow)
        inertia = 0.25 + (1.25 + cosine) + 2.0
        coupling = 0.25 + 0.5 * cosine + 1.0
        weight_2 = 0.5 * gravity * jnp.sin(angle + elbow)
        weight_1 = -0.5 * elbow_spin * (elbow_spin + 2 * spin) * sine + 1.5 * gravity * jnp.sin(angle) + weight_2
        pull = torque + coupling / inertia * weight_1 - 0.5 * spin**2 * sine - weight_2
        turned_2 = pull / (1.25 - coupling**2 / inertia)
        turned_1 = -(coupling * turned_2 + weight_1) / inertia
        return jnp.stack([spin, elbow_spin, turned_1, turned_2])

    def move(system, action):
        torque = jnp.asarray(action, jnp.float32) - 1
        k1 = flow(system, torque)
        k2 = flow(system + seconds / 2 * k1, torque)
        k3 = flow(system + seconds / 2 * k2, torque)
        k4 = flow(system + seconds * k3, torque)
        after = system + seconds / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = jnp.mod(after[:2] + math.pi, 2 * math.pi) - math.pi
        most = jnp.asarray(most_spins, jnp.float32)
        after = jnp.concatenate([angles, jnp.clip(after[2:], -most, most)])
        is_up = -jnp.cos(after[0]) - jnp.cos(after[0] + after[1]) > 1
        return after, jnp.where(is_up, 0.0, -1.0), is_up

    def show(system):
        angle, elbow, spin, elbow_spin = system
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.cos(elbow), jnp.sin(elbow), spin, elbow_spin])

    return _control("acrobot", 3, (1.0, 1.0, 1.0, 1.0, *most_spins), max_episode_steps, start, move, show)
