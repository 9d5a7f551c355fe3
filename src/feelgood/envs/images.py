"""Images of Gymnasium environments, as convolutional networks take them."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from feelgood.envs.base import observation_bound
from feelgood.typing import Array

SMALLEST_SIDE = 36
"""Pixels that two sides of an image must have for the convolutions of Mnih et al. (2015)."""


def image_decoder(space: gymnasium.spaces.Box) -> Callable[[Any], Array] | None:
    """`stored -> observation`, with channels first and values divided by their bound; None for other spaces.

    An image has three axes, two of them with at least 36 pixels. Gymnasium's own order, (height, width, channels),
    becomes (channels, height, width), the order of the networks. Without a finite bound, values are unchanged.
    """
    if len(space.shape) != 3 or sorted(space.shape)[1] < SMALLEST_SIDE:
        return None
    bound = observation_bound(space.low, space.high).max()
    factor = 1 / bound if np.isfinite(bound) else 1.0
    has_channels_last = space.shape[-1] < SMALLEST_SIDE

    def decode(pixels: Any) -> Array:
        import jax.numpy as jnp

        observation = jnp.asarray(pixels, jnp.float32) * jnp.float32(factor)
        return jnp.moveaxis(observation, -1, -3) if has_channels_last else observation

    return decode
