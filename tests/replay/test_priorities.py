"""Priorities against a plain array and the arithmetic of Schaul et al.; frequencies by χ²."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from feelgood.replay import priorities


@functools.cache
def made(capacity, stratified=True):
    table = priorities(capacity, stratified=stratified)
    return table._replace(set=jax.jit(table.set), sample=jax.jit(table.sample, static_argnums=2))


def contents(state, capacity):
    return np.asarray(state.values).ravel()[:capacity]


changes = st.lists(
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e4])), min_size=4, max_size=4),
    min_size=1,
    max_size=8,
)


@settings(max_examples=30, deadline=None)
@given(changes, st.sampled_from([1, 9, 10, 30]))
def test_a_plain_array_that_keeps_the_largest_of_equals_agrees_after_every_change(changes, capacity):
    table, plain, largest = made(capacity), np.zeros(capacity, np.float32), 1.0
    state = table.init()
    for change in changes:
        slots, values = np.array([slot % capacity for slot, _ in change]), np.array([value for _, value in change])
        state = table.set(state, slots, values)
        for slot in set(slots.tolist()):
            plain[slot] = values[slots == slot].max()
        largest = max(largest, values.max())
        np.testing.assert_array_equal(contents(state, capacity), plain)
        np.testing.assert_allclose(np.asarray(state.sums).sum(), plain.sum(), rtol=1e-6)
        assert state.largest == largest
    assert not np.asarray(state.values).ravel()[capacity:].any()
    if plain.any():
        slots, probabilities = table.sample(jax.random.key(0), state, 64)
        assert (plain[slots] > 0).all()
        np.testing.assert_allclose(probabilities, plain[slots] / plain.sum(), rtol=1e-5)


WEIGHTS = np.array([0.0, 1.0, 5.0, 0.0, 0.2, 2.0, 0.0, 0.0, 0.0, 4.0, 0.5])


@pytest.mark.parametrize("stratified", [False, True])
def test_slots_come_up_in_proportion_to_their_priorities(stratified):
    table = made(len(WEIGHTS), stratified)
    state = table.set(table.init(), np.arange(len(WEIGHTS)), WEIGHTS)
    draw = jax.jit(jax.vmap(lambda key: table.sample(key, state, 8)[0]))
    counts = np.bincount(np.asarray(draw(jax.random.split(jax.random.key(1), 2500))).ravel(), minlength=len(WEIGHTS))
    assert not counts[WEIGHTS == 0].any()
    expected = 20_000 * WEIGHTS[WEIGHTS > 0] / WEIGHTS.sum()
    distance = ((counts[WEIGHTS > 0] - expected) ** 2 / expected).sum()
    # Independent draws follow χ²; strata only make counts more even.
    low, high = stats.chi2.ppf([0.001, 0.999], len(expected) - 1)
    assert distance < high
    assert stratified or distance > low


def test_strata_share_the_draws_out_to_blocks_to_within_one():
    table = made(100)  # ten blocks of ten
    weights = np.random.default_rng(0).uniform(size=100)
    state = table.set(table.init(), np.arange(100), weights)
    slots, _ = jax.jit(jax.vmap(lambda key: table.sample(key, state, 50)))(jax.random.split(jax.random.key(0), 40))
    shares = 50 * weights.reshape(10, 10).sum(-1) / weights.sum()
    for row in np.asarray(slots):
        # A block covers its share of strata whole, but for those that it begins and ends in.
        assert (np.abs(np.bincount(row // 10, minlength=10) - shares) < 2).all()


def test_a_sum_forgets_earlier_values_even_if_they_were_huge():
    table = made(9)
    state = table.set(table.init(), np.arange(9), np.ones(9))
    for _ in range(3):
        state = table.set(state, np.array([4]), np.array([1e30]))
        state = table.set(state, np.array([4]), np.array([0.0]))
    assert np.asarray(state.sums).sum() == 8
    assert set(np.asarray(table.sample(jax.random.key(0), state, 200)[0]).tolist()) == set(range(9)) - {4}


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24, 1.0])
def test_no_rounding_lands_on_a_zero(uniform):
    from feelgood.replay.priorities import _draw

    rng = np.random.default_rng(0)
    weights = (rng.uniform(size=(50, 1000)) * (rng.random((50, 1000)) < 0.05)).astype(np.float32)
    weights[:, -30:] = 0
    weights[:, :30] = 0
    found = np.asarray(jax.jit(_draw)(weights, np.full(50, uniform, np.float32)))
    assert (np.take_along_axis(weights, found[:, None], 1) > 0).all()
    if uniform in (0.0, 1.0):
        ends = [np.flatnonzero(row)[0 if uniform == 0 else -1] for row in weights]
        np.testing.assert_array_equal(found, ends)


@pytest.mark.slow
def test_a_million_slots_keep_their_shares_to_the_last():
    capacity = 1_000_000
    table = made(capacity)
    # Two slots of one block weigh as much as all others together: 1/4 each, however fine the total is cut.
    state = table.set(table.init(), np.arange(capacity), np.full(capacity, 1e-6))
    state = table.set(state, np.array([999_998, 999_999]), np.full(2, 0.5))
    slots = np.asarray(table.sample(jax.random.key(0), state, 4096)[0])
    for slot in (999_998, 999_999):
        assert abs((slots == slot).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 4096)
    rest = slots[slots < 999_998]
    assert abs(rest.mean() / capacity - 0.5) < 4 / np.sqrt(12 * len(rest))
    assert stats.kstest(rest % 1000, stats.randint(0, 1000).cdf).pvalue > 1e-3


def test_runs_in_a_batch_draw_the_same_as_alone():
    table = made(11)
    keys = jax.random.split(jax.random.key(0), 3)
    weights = np.random.default_rng(0).uniform(size=(3, 11)).astype(np.float32)

    def run(key, weights):
        state = table.set(table.init(), jnp.arange(11), weights)
        return table.sample(key, state, 6)

    slots, probabilities = jax.jit(jax.vmap(run))(keys, weights)
    alone = jax.jit(run)
    for i in range(3):
        one = alone(keys[i], weights[i])
        np.testing.assert_array_equal(slots[i], one[0])
        np.testing.assert_allclose(probabilities[i], one[1], rtol=1e-6)


def test_without_any_priority_slots_are_still_in_range():
    table = made(5)
    slots, _ = table.sample(jax.random.key(0), table.init(), 8)
    assert (np.asarray(slots) < 5).all()


def test_impossible_sizes_are_refused():
    with pytest.raises(ValueError, match="capacity must be a whole number of at least 1, got 0"):
        priorities(0)
