"""Counts that are given as whole floats, NumPy or JAX numbers."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import envs, linear, replay
from feelgood.checks import check_count


@pytest.mark.parametrize("value", [10, 10.0, np.int64(10), np.float32(10), np.array(10.0), jnp.array(10)])
def test_a_whole_number_of_any_kind_becomes_an_int(value):
    count = check_count("size", value)
    assert (type(count), count) == (int, 10)


@pytest.mark.parametrize("value", [10.5, 0, -1.0, np.nan, "10", None, np.array([2.0, 0.5])])
def test_any_other_number_is_refused_in_one_sentence(value):
    with pytest.raises(ValueError, match=r"^size must be a whole number of at least 1, got .+$"):
        check_count("size", value)


def test_arrays_and_traced_values_are_unchanged():
    several = np.array([1.0, 2.0])
    assert check_count("episodes", several) is several
    assert jax.jit(lambda value: check_count("size", value) + 1)(4) == 5


@pytest.mark.parametrize(
    ("make", "show"),
    [
        (linear.mdps.riverswim, lambda mdp: mdp),
        (linear.mdps.nchain, lambda mdp: mdp),
        (linear.mdps.hypercube, lambda mdp: mdp),
        (linear.mdps.combination_lock, lambda mdp: mdp),
        (envs.nchain, lambda environment: environment.spec),
        (envs.deep_sea, lambda environment: environment.spec),
        (replay.priorities, lambda tree: tree.init()),
    ],
)
def test_a_size_may_be_a_whole_float(make, show):
    make = inspect.unwrap(make)  # without the type checks that only the tests add
    whole, same = (jax.tree.leaves(show(make(size))) for size in (5, 5.0))
    for leaf, equal in zip(whole, same, strict=True):
        np.testing.assert_array_equal(equal, leaf)


def test_a_number_of_episodes_may_be_a_whole_float():
    mdp = linear.mdps.combination_lock(horizon=2, num_actions=2)
    learner = linear.lsvi(mdp.features, 2)
    assert inspect.unwrap(linear.learn)(jax.random.key(0), mdp, learner, 3.0).regret.shape == (3,)
