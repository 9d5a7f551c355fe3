"""Whole numbers as observations: stored unchanged, decoded to one-hot vectors."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from feelgood.typing import Array


def is_index(space: gymnasium.Space) -> bool:
    """Whether observations are whole numbers from 0 on."""
    return isinstance(space, gymnasium.spaces.Discrete) and int(space.start) == 0


def one_hot_decoder(shape: Sequence[int]) -> Callable[[Any], Array]:
    """`index -> one-hot array` of a shape; any leading axes. An index past the end gives zeros."""
    length = int(np.prod(shape))

    def decode(index: Any) -> Array:
        import jax

        vector = jax.nn.one_hot(index, length)
        return vector.reshape(*vector.shape[:-1], *shape)

    return decode


def one_hot_index(observation: Any, shape: Sequence[int]) -> np.ndarray:
    """The index of the 1 in one-hot arrays of a shape, the index past the end for zeros; any leading axes."""
    observation = np.asarray(observation)
    flat = observation.reshape(*observation.shape[: observation.ndim - len(shape)], -1)
    return np.where(flat.any(-1), flat.argmax(-1), flat.shape[-1])
