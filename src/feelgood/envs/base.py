"""What an environment is.

An environment is a record of pure functions and holds no state of its own. It never resets itself: the observation of a
step is the true successor, also at the end of an episode, and the training loop calls `reset`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.typing import Array, PRNGKey

__all__ = ["Environment", "Spec", "Step", "check_environment"]


class Spec(NamedTuple):
    """What an agent must know of an environment before the first step.

    Attributes:
      observation_shape: shape of one observation.
      observation_dtype: its NumPy dtype.
      num_actions: actions are the integers 0, …, num_actions − 1.
      max_episode_steps: what the environment itself keeps to: no episode lasts longer; None where nothing bounds it.
      observation_low: lower bound of every entry of an observation.
      observation_high: upper bound of every entry of an observation.
      fixed_start: whether every episode begins with the same observation, so that it need not be stored.
      is_random: whether `reset` or `step` draws anything. Where neither does, nor the agent, one episode tells all that
        an evaluation could.
      name: what it is called in tables and figures.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: Any
    num_actions: int
    max_episode_steps: int | None = None
    observation_low: float = float("-inf")
    observation_high: float = float("inf")
    fixed_start: bool = False
    is_random: bool = True
    name: str = "functional"


class Step(NamedTuple):
    """What one action leads to.

    Attributes:
      observation: the true successor, of shape `spec.observation_shape`.
      reward: float32 scalar.
      terminated: bool; nothing follows, so the value of the successor is 0.
      truncated: bool; the episode was cut off, so the successor still has a value.
    """

    observation: Array
    reward: Array
    terminated: Array
    truncated: Array


def _identity(observation: Array) -> Array:
    return observation


class Environment(NamedTuple):
    """An environment as pure functions.

    Attributes:
      reset: `key -> (state, observation)`.
      step: `(key, state, action) -> (state, Step)`. What it does after the end of an episode is undefined.
      spec: the static facts.
      encode: `observation -> code`, a smaller form for storage; any leading axes.
      decode: `code -> observation`, with `decode(encode(o)) == o` for every observation; any leading axes.
    """

    reset: Callable[[PRNGKey], tuple[Any, Array]]
    step: Callable[[PRNGKey, Any, ArrayLike], tuple[Any, Step]]
    spec: Spec
    encode: Callable[[Array], Array] = _identity
    decode: Callable[[Array], Array] = _identity


def check_environment(environment: Environment) -> None:
    """Requires that `reset` and `step` give what they should, by their shapes: nothing is run.

    Raises:
      ValueError: if one does not; the message says which, what it gives and what is allowed.
    """
    spec, key = environment.spec, jax.random.key(0)
    shape = tuple(spec.observation_shape)
    began = jax.eval_shape(environment.reset, key)
    if not isinstance(began, tuple) or len(began) != 2 or getattr(began[1], "shape", None) != shape:
        raise ValueError(
            f"reset of an environment must return (state, observation) with an observation of shape {shape}, "
            f"as its spec says, got {_in_words(began)}"
        )
    state, observation = began
    moved = jax.eval_shape(environment.step, key, state, jnp.zeros((), jnp.int32))
    if not isinstance(moved, tuple) or len(moved) != 2 or not isinstance(moved[1], Step):
        raise ValueError(f"step of an environment must return (state, Step), got {_in_words(moved)}")
    after, step = moved
    for name, wanted in (("observation", shape), ("reward", ()), ("terminated", ()), ("truncated", ())):
        found = getattr(getattr(step, name), "shape", None)
        if found != wanted:
            raise ValueError(f"{name} of an environment's step must have shape {wanted}, got {found}")
    for found in (observation.dtype, step.observation.dtype):
        if found != spec.observation_dtype:
            wanted = np.dtype(spec.observation_dtype)
            raise ValueError(f"observations of an environment must be {wanted}, as its spec says, got {found}")
    for name in ("terminated", "truncated"):
        if getattr(step, name).dtype != jnp.bool_:
            raise ValueError(f"{name} of an environment's step must be bool, got {getattr(step, name).dtype}")
    shapes = lambda tree: [jax.tree.structure(tree), *((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree))]
    if shapes(after) != shapes(state):
        raise ValueError(
            f"step of an environment must return a state like that of reset, {_in_words(state)}, got {_in_words(after)}"
        )


def _in_words(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree)).replace("'", "")
