"""Functional environments: records of pure functions.

An environment holds no state. It never resets itself: the observation of a step is the true successor, also at the end
of an episode, and the training loop calls `reset`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.typing import Array, PRNGKey


class Spec(NamedTuple):
    """Static facts about an environment.

    Attributes:
      observation_shape: shape of one observation.
      observation_dtype: its NumPy dtype.
      num_actions: actions are the integers 0, …, num_actions − 1.
      max_episode_steps: the environment ends every episode within this number of steps; None if there is no bound.
      observation_low: lower bound of the entries of an observation; a number, or a tuple with one for each.
      observation_high: their upper bound, likewise.
      fixed_start: whether every episode begins with the same observation, so that it need not be stored.
      is_one_hot: whether observations are one-hot and `encode` gives the index of their 1; any index past the end
        stands for zeros. Networks then look up rows of their first layer.
      is_random: whether `reset` or `step` draws random numbers. If neither they nor the agent do, an evaluation needs
        only one episode.
      name: its name in tables and figures.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: Any
    num_actions: int
    max_episode_steps: int | None = None
    observation_low: float | tuple[float, ...] = float("-inf")
    observation_high: float | tuple[float, ...] = float("inf")
    fixed_start: bool = False
    is_random: bool = True
    name: str = "functional"
    is_one_hot: bool = False


class Step(NamedTuple):
    """The outcome of one action.

    Attributes:
      observation: the true successor, of shape `spec.observation_shape`.
      reward: float32 scalar.
      terminated: bool; the successor is terminal, so its value is 0.
      truncated: bool; the episode was cut off, so the successor still has a value.
    """

    observation: Array
    reward: Array
    terminated: Array
    truncated: Array


def _identity(observation: Array) -> Array:
    return observation


class Environment(NamedTuple):
    """A functional environment.

    Attributes:
      reset: `key -> (state, observation)`.
      step: `(key, state, action) -> (state, Step)`. Its result after the end of an episode is undefined.
      spec: the static facts.
      encode: `observation -> code`, a smaller form for storage; any leading axes.
      decode: `code -> observation`, with `decode(encode(o)) == o` for every observation; any leading axes.
    """

    reset: Callable[[PRNGKey], tuple[Any, Array]]
    step: Callable[[PRNGKey, Any, ArrayLike], tuple[Any, Step]]
    spec: Spec
    encode: Callable[[Array], Array] = _identity
    decode: Callable[[Array], Array] = _identity


def observation_bound(low: ArrayLike | tuple[float, ...], high: ArrayLike | tuple[float, ...]) -> np.ndarray:
    """Largest absolute value of each entry of an observation between `low` and `high`; from a million on, infinite.

    Examples:
      >>> low, high = np.array([-1.2, 0.0, -3.4e38]), np.array([0.6, 0.0, 3.4e38])
      >>> observation_bound(low, high)  # 1 where only 0 is possible
      array([1.2, 1. , inf])
    """
    bound = np.maximum(np.abs(np.asarray(low, np.float64)), np.abs(np.asarray(high, np.float64)))
    return np.where(bound == 0, 1.0, np.where(bound < 1e6, bound, np.inf))


def check_environment(environment: Environment) -> None:
    """Checks the shapes and dtypes of `reset` and `step`, without running them.

    Raises:
      ValueError: if one does not fit the spec.

    Examples:
      >>> from feelgood import envs
      >>> env = envs.nchain(4)
      >>> check_environment(env)  # nothing is wrong
      >>> check_environment(env._replace(spec=env.spec._replace(observation_dtype=float)))
      Traceback (most recent call last):
      ...
      ValueError: observations of an environment must be float64, as in its spec, got int8
    """
    spec, key = environment.spec, jax.random.key(0)
    shape = tuple(spec.observation_shape)
    began = jax.eval_shape(environment.reset, key)
    if not isinstance(began, tuple) or len(began) != 2 or getattr(began[1], "shape", None) != shape:
        raise ValueError(
            f"reset of an environment must return (state, observation) with an observation of shape {shape}, "
            f"as in its spec, got {_shapes(began)}"
        )
    state, observation = began
    moved = jax.eval_shape(environment.step, key, state, jnp.zeros((), jnp.int32))
    if not isinstance(moved, tuple) or len(moved) != 2 or not isinstance(moved[1], Step):
        raise ValueError(f"step of an environment must return (state, Step), got {_shapes(moved)}")
    after, step = moved
    for name, wanted in (("observation", shape), ("reward", ()), ("terminated", ()), ("truncated", ())):
        found = getattr(getattr(step, name), "shape", None)
        if found != wanted:
            raise ValueError(f"{name} of an environment's step must have shape {wanted}, got {found}")
    for found in (observation.dtype, step.observation.dtype):
        if found != spec.observation_dtype:
            wanted = np.dtype(spec.observation_dtype)
            raise ValueError(f"observations of an environment must be {wanted}, as in its spec, got {found}")
    for name in ("terminated", "truncated"):
        if getattr(step, name).dtype != jnp.bool_:
            raise ValueError(f"{name} of an environment's step must be bool, got {getattr(step, name).dtype}")
    shapes = lambda tree: [jax.tree.structure(tree), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))]
    if shapes(after) != shapes(state):
        raise ValueError(
            f"step of an environment must return a state like that of reset, {_shapes(state)}, got {_shapes(after)}"
        )


def _shapes(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree)).replace("'", "")
