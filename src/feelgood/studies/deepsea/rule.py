"""bsuite's rule for a solved deep sea, as a tally of a training run."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from feelgood.training import Tally
from feelgood.typing import Array

FIRST_WINDY_CHECK = 100
"""Episodes before bsuite's first check with wind: luck alone avoids bad episodes for a while."""


class Dives(NamedTuple):
    """Totals over the episodes of a run, int32.

    Attributes:
      episodes: number of episodes.
      bad: number of bad ones, see `DeepSeaState`.
      solved: episodes at the first check at which the rule held; 0 if it has not held.
    """

    episodes: Array
    bad: Array
    solved: Array


def dives(checks: Sequence[int], tenths: int) -> Tally:
    """Counts bad episodes and finds the first check at which less than `tenths` in ten episodes were bad.

    Args:
      checks: numbers of episodes after which the rule is checked.
      tenths: 9, or 8 with wind, as in bsuite 0.3.6. (Version 0.3.5 has 8 without wind too; 0.3.6 corrects that.)
    """
    is_check = np.zeros(max(checks, default=0) + 2, bool)  # its last entry, False, stands for all larger numbers
    is_check[list(checks)] = True
    last = len(is_check) - 1

    def add(totals: Dives, ended: Array, returns: Array, states) -> Dives:
        del returns
        episodes = totals.episodes + jnp.cumsum(ended, dtype=jnp.int32)
        bad = totals.bad + jnp.cumsum(ended & states.is_bad, dtype=jnp.int32)
        holds = ended & jnp.asarray(is_check)[jnp.minimum(episodes, last)] & (10 * bad < tenths * episodes)
        first = jnp.where(holds.any(), episodes[jnp.argmax(holds)], 0)
        return Dives(episodes[-1], bad[-1], jnp.where(totals.solved > 0, totals.solved, first))

    return Tally(Dives(*(jnp.zeros((), jnp.int32) for _ in Dives._fields)), add)


all_solved: Callable[[Dives], bool] = lambda totals: bool(np.all(totals.solved > 0))
"""Whether all runs of a batch have solved their deep sea."""
