"""Environments of other JAX libraries as functional environments.

The libraries are not imported: an environment of theirs is recognised by the functions that it has. Their automatic
resets are avoided, so the observation of a step is the true successor, also at the end of an episode.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count
from feelgood.envs.base import Environment, Spec, Step, check_environment
from feelgood.typing import PRNGKey

# Names of the time limit in the parameters of gymnax and Craftax.
_LIMITS = ("max_steps_in_episode", "max_timesteps")


def from_gymnax(environment: Any, params: Any = None, *, max_episode_steps: int | None = None) -> Environment:
    """Adapts an environment of gymnax, or of a library with its interface such as Craftax.

    An end at the time limit is a truncation unless the environment would have ended there without the limit.

    Args:
      environment: has `reset_env`, `step_env`, `is_terminal`, `action_space` and `observation_space`.
      params: its parameters; `environment.default_params` if not given.
      max_episode_steps: a time limit shorter than the one in the parameters.

    Examples:
      `feelgood.train("ensemble_dqn", from_gymnax(*gymnax.make("Catch-bsuite")), num_steps=10_000)`
    """
    _require(environment, "gymnax", ("reset_env", "step_env", "is_terminal", "action_space", "observation_space"))
    params = environment.default_params if params is None else params
    limit = next((name for name in _LIMITS if hasattr(params, name)), None)
    limits = [] if limit is None else [int(getattr(params, limit))]
    if max_episode_steps is not None:
        max_episode_steps = check_count("max_episode_steps", max_episode_steps)
        limits.append(max_episode_steps)
    if not limits:
        raise ValueError(f"max_episode_steps must be given for parameters without {_LIMITS[0]}, got None")
    last = min(limits)
    endless = params if limit is None else dataclasses.replace(params, **{limit: 2**30})

    def reset(key: PRNGKey):
        observation, state = environment.reset_env(key, params)
        return (state, jnp.asarray(0, jnp.int32)), observation

    def step(key: PRNGKey, state: Any, action: ArrayLike):
        inner, time = state
        observation, inner, reward, done, *_ = environment.step_env(key, inner, action, params)
        is_late = time + 1 >= last
        terminated = done & (~is_late | environment.is_terminal(inner, endless))
        return (inner, time + 1), _step(observation, reward, terminated, is_late & ~terminated)

    num_actions = getattr(environment.action_space(params), "n", None)
    space = environment.observation_space(params)
    ends = getattr(space, "low", -math.inf), getattr(space, "high", math.inf)
    name = getattr(environment, "name", type(environment).__name__)
    return _environment(reset, step, num_actions, ends, last, name)


def from_navix(environment: Any) -> Environment:
    """Adapts an environment of navix.

    Args:
      environment: has `reset`, `step`, `max_steps`, `action_space` and `observation_space`; its `step` returns a
        timestep whose `step_type` is 0 within an episode, 1 for a truncation and 2 for a termination.

    Examples:
      `feelgood.train("ensemble_dqn", from_navix(navix.make("Navix-DoorKey-5x5-v0")), num_steps=50_000)`
    """
    _require(environment, "navix", ("reset", "step", "max_steps", "action_space", "observation_space"))

    def reset(key: PRNGKey):
        timestep = environment.reset(key)
        return timestep.replace(info={}), timestep.observation

    def step(key: PRNGKey, state: Any, action: ArrayLike):
        del key  # the state has its own
        timestep = environment.step(state, jnp.asarray(action))
        kind = timestep.step_type
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), timestep.replace(info={}), state)
        return after, _step(timestep.observation, timestep.reward, kind == 2, kind == 1)

    space = environment.observation_space
    ends = getattr(space, "minimum", -math.inf), getattr(space, "maximum", math.inf)
    num_actions = int(environment.action_space.maximum) + 1
    return _environment(reset, step, num_actions, ends, int(environment.max_steps), type(environment).__name__)


def _require(environment: Any, library: str, names: tuple[str, ...]) -> None:
    missing = [name for name in names if not hasattr(environment, name)]
    if missing:
        kind = type(environment).__name__
        raise ValueError(f"environment must have {library}'s {', '.join(missing)}, got an object of type {kind}")


def _step(observation: Any, reward: ArrayLike, terminated: ArrayLike, truncated: ArrayLike) -> Step:
    return Step(observation, jnp.asarray(reward, jnp.float32), jnp.asarray(terminated), jnp.asarray(truncated))


def _environment(reset, step, num_actions, ends, max_episode_steps: int, name: str) -> Environment:
    if num_actions is None:
        raise ValueError("action_space of an environment must be discrete, got one without n")
    _, observation = jax.eval_shape(reset, jax.random.key(0))
    if not hasattr(observation, "shape"):
        kind = type(observation).__name__
        raise ValueError(f"observations of an environment must be one array, got {kind}")
    shape, dtype = observation.shape, np.dtype(observation.dtype)
    low, high = (_end(end, shape) for end in ends)
    spec = Spec(shape, dtype, int(num_actions), max_episode_steps, low, high, name=name)
    adapted = Environment(reset, step, spec)
    check_environment(adapted)
    return adapted


def _end(values: ArrayLike, shape: tuple[int, ...]) -> float | tuple[float, ...]:
    """Returns the bounds of a vector per entry, and of an image as one number if they are equal; otherwise none."""
    filled = np.asarray(values, np.float64)
    if len(shape) == 1 and filled.shape == shape:
        return tuple(float(value) for value in filled)
    return float(filled.flat[0]) if np.all(filled == filled.flat[0]) else math.copysign(math.inf, filled.flat[0])
