"""bsuite's log of a run, as a tally: totals over exactly its first episodes."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from feelgood.training import Tally
from feelgood.typing import Array


class Episodes(NamedTuple):
    """Totals over the first `num_episodes` episodes of a run.

    Attributes:
      episodes: int32, number of all episodes, which may exceed `num_episodes`.
      total: float32, sum of the returns.
      best: float32, largest return, at least 0 as in bsuite.
    """

    episodes: Array
    total: Array
    best: Array


def episodes(num_episodes: int) -> Tally:
    """Adds up the returns of the first `num_episodes` episodes."""

    def add(totals: Episodes, ended: Array, returns: Array, states) -> Episodes:
        del states
        numbers = totals.episodes + jnp.cumsum(ended, dtype=jnp.int32)
        counted = ended & (numbers <= num_episodes)
        total = totals.total + jnp.sum(jnp.where(counted, returns, 0.0))
        return Episodes(numbers[-1], total, jnp.maximum(totals.best, jnp.max(jnp.where(counted, returns, 0.0))))

    return Tally(Episodes(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros(())), add)


def have_ended(num_episodes: int, totals: Episodes) -> bool:
    """Whether all runs of a batch have had `num_episodes` episodes."""
    return bool(np.all(totals.episodes >= num_episodes))
