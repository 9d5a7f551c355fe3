"""Tallies of training runs after bsuite: its rule for a solved deep sea, and totals over the first episodes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from feelgood.training import Tally
from feelgood.typing import Array

FIRST_WINDY_CHECK = 100
"""Episodes before bsuite's first check with wind: luck alone avoids bad episodes for a while."""


class Dives(NamedTuple):
    """Totals over the episodes of a run, int32: all, bad ones (see `DeepSeaState`), and those until it was solved.

    `solved` is the number of episodes at the first check at which the rule held; 0 if it has not held.
    """

    episodes: Array
    bad: Array
    solved: Array


def dives(checks: Sequence[int], *, windy: bool) -> Tally:
    """Counts bad episodes and finds the first check at which less than nine in ten episodes were bad.

    `checks` are numbers of episodes. If it is `windy`, the rule is less than eight in ten, from `FIRST_WINDY_CHECK` on,
    as in bsuite 0.3.6. (Version 0.3.5 has eight without wind too; 0.3.6 corrects that.)
    """
    tenths = 8 if windy else 9
    checks = [check for check in checks if not windy or check >= FIRST_WINDY_CHECK]
    is_check = np.zeros(max(checks, default=0) + 2, bool)  # its last entry, False, stands for all larger numbers
    is_check[list(checks)] = True
    last = len(is_check) - 1

    def add(totals: Dives, ended: Array, _: Array, states) -> Dives:
        episodes = totals.episodes + jnp.cumsum(ended, dtype=jnp.int32)
        bad = totals.bad + jnp.cumsum(ended & states.is_bad, dtype=jnp.int32)
        holds = ended & jnp.asarray(is_check)[jnp.minimum(episodes, last)] & (10 * bad < tenths * episodes)
        first = jnp.where(holds.any(), episodes[jnp.argmax(holds)], 0)
        return Dives(episodes[-1], bad[-1], jnp.where(totals.solved > 0, totals.solved, first))

    return Tally(Dives(*(jnp.zeros((), jnp.int32) for _ in Dives._fields)), add)


all_solved: Callable[[Dives], bool] = lambda totals: bool(np.all(totals.solved > 0))
"""Whether all runs of a batch have solved their deep sea."""


class Episodes(NamedTuple):
    """The number of all episodes of a run, and over the first `num_episodes` of them the sum of the returns and the
    largest return, which is at least 0 as in bsuite.
    """

    episodes: Array
    total: Array
    best: Array


def episodes(num_episodes: int) -> Tally:
    """Adds up the returns of the first `num_episodes` episodes."""

    def add(totals: Episodes, ended: Array, returns: Array, _) -> Episodes:
        numbers = totals.episodes + jnp.cumsum(ended, dtype=jnp.int32)
        counted = jnp.where(ended & (numbers <= num_episodes), returns, 0.0)
        return Episodes(numbers[-1], totals.total + jnp.sum(counted), jnp.maximum(totals.best, jnp.max(counted)))

    return Tally(Episodes(jnp.zeros((), jnp.int32), jnp.zeros(()), jnp.zeros(())), add)


def have_ended(num_episodes: int, totals: Episodes) -> bool:
    """Whether all runs of a batch have had `num_episodes` episodes."""
    return bool(np.all(totals.episodes >= num_episodes))
