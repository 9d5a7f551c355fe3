"""Replay against a plain Python list that forgets from its front."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feelgood.envs import nchain
from feelgood.replay import Transition, replay

DISCOUNT = 0.9
CAPACITIES, CHUNKS = (1, 3, 8), (1, 4, 12)


class Row(NamedTuple):
    observation: float
    action: int
    return_: float
    bootstrap_discount: float
    next_observation: float
    first_observation: float


def stream(ends):
    """Transitions whose every observation is unique; `ends` gives the end of each step ('', 'e', 't' or 'et')."""
    transitions, observation, first = [], 0.0, 0.0
    for t, end in enumerate(ends):
        successor = t + 1 + (1000.0 if end else 0.0)  # a final observation is seen nowhere else
        transitions.append(Transition(observation, t % 3, 1 + 0.37 * t, "e" in end, "t" in end, successor, first))
        observation = successor if not end else t + 5000.0
        first = first if not end else observation
    return transitions


def span(stored, start, n_step, discount=DISCOUNT):
    """The n-step transition that starts at `stored[start]`, in plain Python."""
    total, steps = 0.0, 0
    for step in stored[start : start + n_step]:
        total += discount**steps * step.reward
        steps += 1
        if step.terminated or step.truncated:
            break
    last, begin = stored[start + steps - 1], stored[start]
    bootstrap = 0.0 if last.terminated else discount**steps
    return Row(begin.observation, begin.action, total, bootstrap, last.next_observation, begin.first_observation)


@functools.cache
def ring(capacity, n_step):
    example = Transition(0.0, 0, 0.0, False, False, 0.0, 0.0)
    made = replay(capacity, example, n_step=n_step)
    # Additions do not depend on n_step: compile them once per capacity.
    add, add_batch = (jax.jit(made.add), jax.jit(made.add_batch)) if n_step == 1 else ring(capacity, 1)[1:3]
    sample = jax.jit(made.sample, static_argnums=2)
    return made._replace(add=add, add_batch=add_batch, sample=sample, take=jax.jit(made.take))


def stack(transitions):
    return Transition(*map(np.asarray, zip(*transitions, strict=True)))


def assert_holds(made, state, capacity, n_step, seen):
    """Every slot of the ring gives the transition of the list."""
    stored = seen[-capacity:]
    assert int(state.size) == len(stored)
    slots = (np.arange(len(seen) - len(stored), len(seen))) % capacity  # oldest first
    padded = np.concatenate([slots, np.zeros(capacity - len(slots), int)])  # one shape, one compilation
    batch = made.take(state, padded, DISCOUNT)
    expected = Row(*zip(*[span(stored, i, n_step) for i in range(len(stored))], strict=True))
    for name in Row._fields:
        found = np.asarray(getattr(batch, name))[: len(stored)]
        np.testing.assert_allclose(found, getattr(expected, name), rtol=1e-5, err_msg=name)
    np.testing.assert_array_equal(batch.slot, padded)


ends = st.lists(st.sampled_from(["", "", "", "", "e", "t", "et"]), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(ends, st.sampled_from(CAPACITIES), st.integers(1, 5))
def test_the_ring_agrees_with_a_list_after_every_addition(ends, capacity, n_step):
    made = ring(capacity, n_step)
    state, transitions = made.init(), stream(ends)
    for t, transition in enumerate(transitions):
        state = made.add(state, transition)
        if t % 3 == 2 or t == len(ends) - 1:
            assert_holds(made, state, capacity, n_step, transitions[: t + 1])


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from(CAPACITIES), st.lists(st.sampled_from(CHUNKS), min_size=1, max_size=4))
def test_a_batch_of_additions_equals_single_ones_in_order(data, capacity, chunks):
    made, total = ring(capacity, 3), sum(chunks)
    transitions = stream(data.draw(st.lists(st.sampled_from(["", "", "e", "t"]), min_size=total, max_size=total)))
    state, position = made.init(), 0
    for chunk in chunks:
        state = made.add_batch(state, stack(transitions[position : position + chunk]))
        position += chunk
        assert_holds(made, state, capacity, 3, transitions[:position])
    one_by_one = functools.reduce(made.add, transitions, made.init())
    jax.tree.map(np.testing.assert_array_equal, state, one_by_one)


@pytest.mark.parametrize("n_step", [1, 3, 5])
def test_first_observations_stay_right_when_the_ring_is_smaller_than_an_episode(n_step):
    made = ring(5, n_step)
    transitions = stream([""] * 17 + ["e"] + [""] * 2)
    state = functools.reduce(made.add, transitions, made.init())
    batch = made.take(state, np.arange(5), DISCOUNT)
    assert sorted(batch.first_observation.tolist()) == [0, 0, 0, 5017, 5017]
    assert_holds(made, state, 5, n_step, transitions)


def test_a_truncated_step_bootstraps_from_its_final_observation_and_a_terminated_one_does_not():
    made = ring(8, 3)
    state = functools.reduce(made.add, stream(["", "t", "", "e", ""]), made.init())
    batch = made.take(state, np.arange(5), 0.5)
    assert batch.next_observation.tolist() == [1002, 1002, 1004, 1004, 5]
    assert batch.bootstrap_discount.tolist() == [0.25, 0.5, 0, 0, 0.5]
    rewards = 1 + 0.37 * np.arange(5)
    expected = [rewards[0] + rewards[1] / 2, rewards[1], rewards[2] + rewards[3] / 2, rewards[3], rewards[4]]
    np.testing.assert_allclose(batch.return_, expected, rtol=1e-6)


def test_a_sample_never_runs_from_the_newest_data_into_the_oldest():
    made = ring(3, 5)
    state = functools.reduce(made.add, stream([""] * 7), made.init())
    batch = made.take(state, np.arange(3), 1.0)  # slots hold steps 6, 4, 5
    assert batch.next_observation.tolist() == [7, 7, 7]
    np.testing.assert_allclose(batch.return_, [3.22, 2.48 + 2.85 + 3.22, 2.85 + 3.22], rtol=1e-6)


@pytest.mark.parametrize(("num_added", "valid"), [(3, [0, 1, 2]), (8, range(8)), (13, range(8))])
def test_sampling_is_uniform_over_filled_slots_and_returns_their_contents(num_added, valid):
    made = ring(8, 2)
    state = functools.reduce(made.add, stream([""] * num_added), made.init())
    batch = made.sample(jax.random.key(0), state, 8000, DISCOUNT)
    counts = np.bincount(batch.slot, minlength=8)
    assert set(np.flatnonzero(counts)) == set(valid)
    expected = 8000 / len(valid)
    assert np.abs(counts[list(valid)] - expected).max() < 5 * np.sqrt(expected)
    jax.tree.map(np.testing.assert_array_equal, batch, made.take(state, batch.slot, DISCOUNT))


@pytest.mark.parametrize(("num_added", "newest"), [(2, {0, 1}), (8, {5, 6, 7}), (13, {2, 3, 4})])
def test_a_sample_may_be_of_the_newest_transitions(num_added, newest):
    made = ring(8, 1)
    state = functools.reduce(made.add, stream([""] * num_added), made.init())
    counts = np.where(np.arange(6000) % 2, 3, 2**31 - 1)  # every other sample is one of the newest three
    slots = np.asarray(made.sample(jax.random.key(0), state, 6000, DISCOUNT, newest=counts).slot)
    assert set(slots[1::2]) == newest
    assert set(slots[::2]) == set(range(min(num_added, 8)))
    drawn = np.bincount(slots[1::2])[list(newest)]
    expected = 3000 / len(newest)
    assert np.abs(drawn - expected).max() < 5 * np.sqrt(expected)


def test_another_key_gives_another_sample_and_the_same_key_the_same():
    made = ring(8, 1)
    state = functools.reduce(made.add, stream([""] * 8), made.init())
    draw = lambda seed: made.sample(jax.random.key(seed), state, 32, DISCOUNT).slot.tolist()
    assert draw(0) == draw(0)
    assert draw(0) != draw(1)


def test_many_runs_with_their_own_discounts_equal_each_run_alone():
    made = ring(5, 3)

    def run(key, data, discount):
        state, _ = jax.lax.scan(lambda state, row: (made.add(state, row), None), made.init(), data)
        return made.sample(key, state, 6, discount)

    keys, discounts = jax.random.split(jax.random.key(0), 4), np.array([0.0, 0.5, 0.9, 1.0], np.float32)
    data = [stack(stream(np.random.default_rng(i).choice(["", "", "e", "t"], 9))) for i in range(4)]
    together = jax.jit(jax.vmap(run))(keys, jax.tree.map(lambda *leaves: np.stack(leaves), *data), discounts)
    single = jax.jit(run)
    for i in range(4):
        alone = single(keys[i], data[i], discounts[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=1e-6), together, alone)


def chain_example(env, encode=lambda observation: observation):
    observation = encode(env.reset(jax.random.key(0))[1])
    return Transition(observation, 0, 0.0, False, False, observation, observation)


def test_coded_observations_come_back_as_observations():
    env = nchain(6)
    made = replay(20, chain_example(env, env.encode), n_step=2)
    step, add = jax.jit(env.step), jax.jit(made.add)
    state, (position, observation) = made.init(), env.reset(jax.random.key(0))
    first, seen = observation, []
    for action in (1, 1, 0, 1, 1, 1):
        position, outcome = step(jax.random.key(0), position, action)
        codes = map(env.encode, (observation, outcome.observation, first))
        state = add(state, Transition(next(codes), action, *outcome[1:], *codes))
        seen.append(np.asarray(observation))
        observation = outcome.observation
    batch = jax.jit(made.take)(state, np.arange(6), DISCOUNT)
    assert env.decode(batch.observation).dtype == env.spec.observation_dtype
    np.testing.assert_array_equal(env.decode(batch.observation), seen)
    np.testing.assert_array_equal(env.decode(batch.next_observation), [*seen[2:], observation, observation])
    np.testing.assert_array_equal(env.decode(batch.first_observation), [first] * 6)


@pytest.mark.parametrize(("coded", "limit"), [(True, 16), (False, 320)])
def test_a_transition_of_the_long_chain_is_small(coded, limit):
    env = nchain(100)
    example = chain_example(env, env.encode) if coded else chain_example(env)
    state = jax.eval_shape(replay(10_000, example).init)
    assert sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.data)) <= limit * 10_000


def test_observations_may_be_trees():
    example = Transition({"a": jnp.zeros(2), "b": 0}, 0, 0.0, False, False, *[{"a": jnp.zeros(2), "b": 0}] * 2)
    made = replay(4, example)
    state = jax.jit(made.add)(made.init(), example._replace(observation={"a": jnp.ones(2), "b": 7}))
    batch = jax.jit(made.sample, static_argnums=2)(jax.random.key(0), state, 3, DISCOUNT)
    assert batch.observation["a"].tolist() == [[1, 1]] * 3
    assert batch.observation["b"].tolist() == [7] * 3


@pytest.mark.parametrize("settings", [{"capacity": 0}, {"n_step": 0}, {"capacity": -1}])
def test_impossible_sizes_are_refused(settings):
    with pytest.raises(ValueError, match="must be a whole number of at least 1"):
        replay(**({"capacity": 4, "example": Transition(0.0, 0, 0.0, False, False, 0.0, 0.0)} | settings))


@functools.cache
def prioritised(exponent):
    made = replay(6, Transition(0.0, 0, 0.0, False, False, 0.0, 0.0), priority_exponent=exponent)
    names = ("add", "add_batch", "take", "prioritise")
    return made._replace(**{name: jax.jit(getattr(made, name)) for name in names})


def test_samples_by_priority_have_its_power_and_weights_that_make_up_for_it():
    made = prioritised(0.5)
    state = made.add_batch(made.init(), stack(stream([""] * 4)))
    # New ones are alike, then 4, 9 and twice 1; two slots are empty.
    state = made.prioritise(state, np.array([0, 1, 2, 2]), np.array([4.0, 9.0, 1.0, 0.25]))
    batch = jax.jit(made.sample, static_argnums=2)(jax.random.key(0), state, 8000, DISCOUNT, 0.7)
    shares = np.array([2, 3, 1, 1, 0, 0]) / 7
    counts = np.bincount(batch.slot, minlength=6)
    assert (np.abs(counts - 8000 * shares) < 5 * np.sqrt(8000 * shares) + 1e-9).all()
    raw = (4 * shares[:4]) ** -0.7
    np.testing.assert_allclose(batch.weight, (raw / raw.max())[batch.slot], rtol=1e-4)
    plain = made.take(state, batch.slot, DISCOUNT)
    jax.tree.map(np.testing.assert_array_equal, batch._replace(weight=None), plain)


def test_new_transitions_have_the_largest_priority_so_far_and_overwritten_ones_lose_theirs():
    made = prioritised(1.0)
    transitions = stream([""] * 9)
    state = made.add_batch(made.init(), stack(transitions[:5]))
    state = made.prioritise(state, np.arange(5), np.array([8.0, 0.0, 2.0, 3.0, 4.0]))
    state = made.add(state, transitions[5])
    state = made.add_batch(state, stack(transitions[6:9]))
    # Steps 6 to 8 lie in slots 0 to 2.
    np.testing.assert_allclose(np.asarray(state.priorities.values).ravel()[:6], [8, 8, 8, 3, 4, 8], rtol=1e-5)
    emptied = made.prioritise(state, np.arange(6), np.zeros(6))
    assert (np.asarray(emptied.priorities.values) > 0).all()


def test_a_uniform_ring_has_no_weights_and_takes_no_priorities():
    made = ring(8, 1)
    state = functools.reduce(made.add, stream([""] * 3), made.init())
    assert made.sample(jax.random.key(0), state, 4, DISCOUNT).weight is None
    assert state.priorities == ()
    with pytest.raises(ValueError, match="priority_exponent must be a number for a replay with priorities"):
        made.prioritise(state, np.array([0]), np.array([1.0]))
    with pytest.raises(ValueError, match="priority_exponent must be non-negative"):
        replay(4, Transition(0.0, 0, 0.0, False, False, 0.0, 0.0), priority_exponent=-1.0)
