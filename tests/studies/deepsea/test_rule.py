"""The rule for a solved deep sea is bsuite's, also if a run is cut into pieces."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.envs import DeepSeaState
from feelgood.studies.tallies import all_solved, dives

# Made by bsuite 0.3.6: the good episodes of runs of 1,000, and the episode at which bsuite takes each run as solved.
BSUITE = json.loads((Path(__file__).parents[2] / "envs" / "bsuite.json").read_text())
LENGTH = 3  # steps of an episode here


def tallied(tally, bad, num_pieces):
    """Totals after episodes of `LENGTH` steps, some of them bad, added in pieces that cut episodes."""
    ended = np.tile([False] * (LENGTH - 1) + [True], len(bad))
    is_bad = np.repeat(bad, LENGTH)
    totals, add = tally.init, jax.jit(tally.add)
    for piece in np.array_split(np.arange(len(ended)), num_pieces):
        zeros = jnp.zeros(len(piece), jnp.int32)
        totals = add(totals, ended[piece], zeros, DeepSeaState(zeros, zeros, jnp.asarray(is_bad[piece])))
    return totals


@pytest.mark.parametrize("case", BSUITE["solutions"], ids=lambda case: f"{case['windy']}-{case['solved']}")
def test_a_run_is_solved_at_the_episode_of_bsuite(case):
    bad = ~np.isin(np.arange(1, 1001), case["good"])
    totals = tallied(dives(BSUITE["logged"], windy=case["windy"]), bad, num_pieces=7)
    assert int(totals.solved) == (case["solved"] or 0)
    assert int(totals.episodes) == 1000
    assert int(totals.bad) == bad.sum()


def test_exactly_nine_in_ten_are_too_many():
    bad = np.array([True] * 9 + [False] + [True] * 4 + [False])  # 9 of 10, then 13 of 15
    assert int(tallied(dives([5, 10, 15], windy=False), bad, 1).solved) == 15
    assert int(tallied(dives([5, 10, 15], windy=False), bad[:-1], 1).solved) == 0


def test_the_last_check_ends_the_count_and_all_runs_must_solve_their_sea():
    tally = dives([5, 10], windy=False)
    late, early = tallied(tally, np.arange(15) < 11, 1), tallied(tally, np.arange(15) < 3, 1)
    assert (int(late.solved), int(early.solved)) == (0, 5)
    both = jax.tree.map(lambda *x: np.stack(x), late, early)
    assert not all_solved(both)
    assert all_solved(jax.tree.map(lambda x: x[1:], both))
