"""The parts of `benchmarks/rooms.py` that do not need navix."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.envs import Environment, Spec, Step
from scripts import benchmark

rooms = benchmark("rooms")


def test_without_navix_there_is_one_sentence(rooms, monkeypatch):
    monkeypatch.setitem(sys.modules, "navix", None)
    with pytest.raises(SystemExit, match="navix is not installed; run: pip install navix"):
        rooms.make("Empty-8x8")


def test_random_actions_are_scored_until_the_end_of_the_episode(rooms):
    def step(key, state, action):
        right = action == 0
        return state + 1, Step(jnp.zeros(1), right.astype(jnp.float32), state == 1, jnp.asarray(False))

    spec = Spec((1,), np.dtype(np.float32), 4, 10, 0.0, 1.0)
    environment = Environment(lambda key: (jnp.asarray(0), jnp.zeros(1)), step, spec)
    # Two steps count, each with reward 1 for one action of four: mean 1/2, variance 3/8.
    error = np.sqrt(3 / 8 / 2000)
    assert abs(rooms.random_return(environment, 2000) - 0.5) < 4 * error
