"""Whole numbers as observations: stored unchanged, decoded to one-hot vectors."""

from collections.abc import Callable
from typing import Any

import gymnasium

from feelgood.typing import Array


def is_index(space: gymnasium.Space) -> bool:
    """Whether observations are whole numbers from 0 on."""
    return isinstance(space, gymnasium.spaces.Discrete) and int(space.start) == 0


def one_hot_decoder(length: int) -> Callable[[Any], Array]:
    """`index -> one-hot vector` of `length` numbers; any leading axes."""

    def decode(index: Any) -> Array:
        import jax

        return jax.nn.one_hot(index, length)

    return decode
