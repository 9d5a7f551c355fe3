"""The replay of frames against a plain history that forgets nothing."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.replay.frames import Arrival, frame_replay

LANES, SHAPE, DISCOUNT = 3, (2, 2), 0.9


class History:
    """Every lane's episodes in full: lists of frames, actions and rewards, and how each ended."""

    def __init__(self, seed, num_turns, end=0.25):
        rng = np.random.default_rng(seed)
        self.arrivals, self.place = [], []  # place[t][lane] = (episode, index within it)
        self.episodes = [[] for _ in range(LANES)]
        ended = np.ones(LANES, bool)
        for turn in range(num_turns):
            frame = rng.integers(0, 256, (LANES, *SHAPE), np.uint8)
            action, reward = rng.integers(0, 5, LANES).astype(np.int32), rng.normal(size=LANES).astype(np.float32)
            is_first, over = ended.copy(), (rng.random(LANES) < end) & ~ended
            terminated = over & (rng.random(LANES) < 0.5)
            self.place.append([])
            for lane in range(LANES):
                if is_first[lane]:
                    self.episodes[lane].append({"frames": [], "actions": [], "rewards": [], "terminated": False})
                episode = self.episodes[lane][-1]
                if not is_first[lane]:
                    episode["actions"].append(action[lane])
                    episode["rewards"].append(reward[lane])
                episode["frames"].append(frame[lane])
                episode["terminated"] = bool(terminated[lane])
                self.place[turn].append((len(self.episodes[lane]) - 1, len(episode["frames"]) - 1))
            self.arrivals.append(Arrival(frame, is_first, action, reward, terminated))
            ended = over

    def observation(self, lane, episode, index, stack):
        frames = self.episodes[lane][episode]["frames"]
        stacked = [frames[max(index - back, 0)] for back in reversed(range(stack))]
        return stacked[0] if stack == 1 else np.stack(stacked)

    def sample(self, turn, lane, newest, stack, n_step):
        """The n-step transition that begins at a turn, without rows after `newest`; None if none begins."""
        number, index = self.place[turn][lane]
        episode = self.episodes[lane][number]
        known = self.place[newest][lane]
        last_known = known[1] if known[0] == number else len(episode["frames"]) - 1
        steps = min(n_step, last_known - index)
        if steps == 0:
            return None
        at_end = index + steps == len(episode["frames"]) - 1
        return {
            "observation": self.observation(lane, number, index, stack),
            "action": episode["actions"][index],
            "return_": sum(DISCOUNT**i * episode["rewards"][index + i] for i in range(steps)),
            "bootstrap_discount": 0.0 if at_end and episode["terminated"] else DISCOUNT**steps,
            "next_observation": self.observation(lane, number, index + steps, stack),
            "first_observation": self.observation(lane, number, 0, stack),
        }


def taking_turns(num_groups, seed, num_turns, end):
    """Histories of groups of lanes, and their arrivals, one group after the other."""
    histories = [History(seed + group, num_turns, end) for group in range(num_groups)]
    arrivals = [history.arrivals[turn] for turn in range(num_turns) for history in histories]
    return histories, arrivals


@pytest.mark.parametrize(
    ("stack", "n_step", "end", "num_groups"), [(4, 3, 0.25, 1), (4, 3, 0.25, 2), (1, 1, 0.25, 1), (2, 5, 0.04, 3)]
)
def test_every_transition_is_that_of_the_history_also_after_the_ring_has_turned(stack, n_step, end, num_groups):
    rows, turns = 11 * num_groups, 40
    histories, arrivals = taking_turns(num_groups, stack, turns, end)
    settings = {"num_actions": 5, "stack": stack, "n_step": n_step, "num_groups": num_groups}
    replay = frame_replay(rows, LANES, SHAPE, np.uint8, **settings)
    add, take = jax.jit(replay.add), jax.jit(replay.take)
    is_start, newest = jax.jit(replay.is_start), jax.jit(replay.newest)
    state, lost_starts, num_checked = replay.init(), 0, 0
    slots = np.arange(rows * LANES)
    for time, arrival in enumerate(arrivals):
        state = add(state, arrival)
        turn, group = divmod(time, num_groups)
        seen, history = np.asarray(newest(state)), histories[group]
        for lane in range(LANES):
            np.testing.assert_array_equal(seen[lane], history.observation(lane, *history.place[turn][lane], stack))
        batch = jax.tree.map(np.asarray, take(state, slots, DISCOUNT))
        starts = np.asarray(is_start(state, slots))
        oldest = max(time - rows + 1, 0)
        whole = oldest + ((stack - 1) * num_groups if time >= rows - 1 else 0)
        found = {}
        for slot in slots:
            row, lane = divmod(int(slot), LANES)
            then = time - (time - row) % rows
            if then < whole:
                assert not starts[slot]
                continue
            group, turn = then % num_groups, then // num_groups
            history, last_turn = histories[group], (time - group) // num_groups
            expected = history.sample(turn, lane, last_turn, stack, n_step)
            assert starts[slot] == (expected is not None)
            if expected is None:
                continue
            found[slot] = expected
            lost_starts += then - num_groups * history.place[turn][lane][1] < oldest
        num_checked += len(found)
        for name in next(iter(found.values()), ()):
            expected = np.stack([transition[name] for transition in found.values()])
            np.testing.assert_allclose(getattr(batch, name)[[*found]], expected, rtol=1e-5, atol=1e-6, err_msg=name)
    assert num_checked > 400
    assert lost_starts > 20  # episodes whose first frame has been written over


@pytest.mark.parametrize("priority_exponent", [None, 0.6])
@pytest.mark.parametrize("num_groups", [1, 2])
def test_samples_are_uniform_over_all_transitions_and_nothing_else(num_groups, priority_exponent):
    rows, stack = 9 * num_groups, 2
    _, arrivals = taking_turns(num_groups, 5, 20, 0.4)
    settings = {"num_actions": 5, "stack": stack, "num_groups": num_groups, "priority_exponent": priority_exponent}
    replay = frame_replay(rows, LANES, SHAPE, np.uint8, **settings)
    state, add = replay.init(), jax.jit(replay.add)
    for arrival in arrivals:
        state = add(state, arrival)
    starts = np.flatnonzero(np.asarray(replay.is_start(state, np.arange(rows * LANES))))
    num = 40_000
    # Priorities that were never set are all equal.
    batch = jax.jit(replay.sample, static_argnums=2)(jax.random.key(0), state, num, DISCOUNT)
    counts = Counter(np.asarray(batch.slot).tolist())
    assert set(counts) == set(starts.tolist())
    expected = num / len(starts)
    statistic = sum((counts[slot] - expected) ** 2 / expected for slot in starts)
    assert statistic < len(starts) - 1 + 5 * np.sqrt(2 * (len(starts) - 1))


@pytest.mark.parametrize("num_groups", [1, 2])
def test_a_sample_may_be_of_the_newest_rows(num_groups):
    rows = 9 * num_groups
    _, arrivals = taking_turns(num_groups, 5, 20, 0.4)
    replay = frame_replay(rows, LANES, SHAPE, np.uint8, num_actions=5, stack=2, num_groups=num_groups)
    state, add = replay.init(), jax.jit(replay.add)
    for arrival in arrivals:
        state = add(state, arrival)
    starts = np.flatnonzero(np.asarray(replay.is_start(state, np.arange(rows * LANES))))
    # The newest row of each group begins no transition yet; LANES + 1 transitions are part of two rows.
    after = (int(state.head) - 1 - starts // LANES) % rows
    newest = set(starts[after < num_groups + 2].tolist())
    slots = replay.sample(jax.random.key(0), state, 2000, DISCOUNT, newest=np.full(2000, LANES + 1)).slot
    assert set(np.asarray(slots).tolist()) == newest


def test_two_rows_are_enough_to_sample_from():
    replay = frame_replay(8, 1, (1,), np.float32, num_actions=2)
    state = replay.init()
    one = lambda value, first: Arrival(
        np.full((1, 1), value, np.float32), np.array([first]), np.array([1]), np.array([0.5]), np.array([False])
    )
    add = jax.jit(replay.add)
    state = add(add(state, one(1.0, True)), one(2.0, False))
    batch = jax.jit(replay.sample, static_argnums=2)(jax.random.key(0), state, 4, 0.5)
    np.testing.assert_array_equal(batch.observation, np.ones((4, 1)))
    np.testing.assert_array_equal(batch.next_observation, np.full((4, 1), 2.0))
    np.testing.assert_array_equal(batch.return_, np.full(4, 0.5))
    np.testing.assert_array_equal(batch.bootstrap_discount, np.full(4, 0.5))


def test_adding_to_a_large_ring_copies_nothing_of_it():
    replay = frame_replay(500, 8, (16, 16), np.uint8, num_actions=3, stack=4)
    state = jax.eval_shape(replay.init)
    shape = lambda *dims, dtype=np.float32: jax.ShapeDtypeStruct(dims, dtype)
    arrival = Arrival(
        shape(8, 16, 16, dtype=np.uint8), shape(8, dtype=bool), shape(8, dtype=np.int32), shape(8), shape(8, dtype=bool)
    )
    turn = jax.jit(lambda state, arrival: (s := replay.add(state, arrival), replay.newest(s)), donate_argnums=0)
    memory = turn.lower(state, arrival).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 8 * 16 * 16 * 16 < memory.alias_size_in_bytes


def test_a_million_frames_of_atari_fit_into_eight_gigabytes():
    state = jax.eval_shape(frame_replay(4000, 250, (84, 84), np.uint8, num_actions=18, stack=4, n_step=3).init)
    assert sum(leaf.size * jnp.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(state)) < 8e9


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_rows": 4}, "num_rows"),
        ({"num_lanes": 0}, "num_lanes"),
        ({"stack": 0}, "stack"),
        ({"num_groups": 0}, "num_groups"),
        ({"num_groups": 2}, "num_rows must be a whole number of at least 10, got 8"),
        ({"num_groups": 2, "num_rows": 11}, "num_rows must be a multiple of num_groups = 2, got 11"),
    ],
)
def test_impossible_arguments_are_refused(change, named):
    settings = {"num_rows": 8, "num_lanes": 2, "stack": 4, **change}
    with pytest.raises(ValueError, match=named):
        frame_replay(**settings, frame_shape=(1,), frame_dtype=np.uint8, num_actions=2)
