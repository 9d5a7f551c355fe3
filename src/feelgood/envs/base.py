"""What an environment is.

An environment is a record of pure functions and holds no state of its own. It never resets itself: the observation of a
step is the true successor, also at the end of an episode, and the training loop calls `reset`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jax.typing import ArrayLike

from feelgood.typing import Array, PRNGKey

__all__ = ["Environment", "Spec", "Step"]


class Spec(NamedTuple):
    """What an agent must know of an environment before the first step.

    Attributes:
      observation_shape: shape of one observation.
      observation_dtype: its NumPy dtype.
      num_actions: actions are the integers 0, …, num_actions − 1.
      max_episode_steps: no episode lasts longer; None where nothing bounds it.
      observation_low: lower bound of every entry of an observation.
      observation_high: upper bound of every entry of an observation.
      fixed_start: whether every episode begins with the same observation, so that it need not be stored.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: Any
    num_actions: int
    max_episode_steps: int | None = None
    observation_low: float = float("-inf")
    observation_high: float = float("inf")
    fixed_start: bool = False


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
