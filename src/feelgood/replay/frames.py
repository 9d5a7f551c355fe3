"""Frames, each stored once; stacks, successors and n-step returns are put together when a minibatch is drawn.

Lanes, one for each environment, advance together. Row t of a lane holds the frame seen at time t and what led to it, so
that the successor of a frame is simply the next row:

    time        t             t + 1                        t + 2
    frame       o_t           o_{t+1}                      o_{t+2}
    led to it   …             a_t, r_t, end of episode?    a_{t+1}, r_{t+1}, …

At the end of an episode the true last frame has a row of its own, followed by the first frame of the next episode. An
observation is a stack of the last frames of its episode, the first one repeated where the episode is younger than that;
the first observation is therefore the first frame repeated, and is kept for as long as any of its episode is.

With several groups of environments that take turns, rows are of one group after the other, and "the next row" is the
group's own next, `num_groups` rows on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count, check_non_negative
from feelgood.replay.priorities import PrioritiesState, priorities
from feelgood.replay.ring import Batch
from feelgood.typing import Array, PRNGKey, Scalar

__all__ = ["Arrival", "FrameReplay", "FrameState", "frame_replay"]

# Draws that may fall on the last frame of an episode before its predecessor is taken instead.
_NUM_TRIES = 16


class Arrival(NamedTuple):
    """What arrives from all lanes at one time; every array has a leading axis of lanes.

    Attributes:
      frame: what is seen now.
      is_first: bool; an episode begins with this frame.
      action: what was done on the frame before; without meaning where `is_first`.
      reward: what came of it; likewise.
      terminated: bool; nothing follows this frame. An episode that was cut off shows only in the next `is_first`.
    """

    frame: Any
    is_first: Any
    action: Any
    reward: Any
    terminated: Any


class FrameState(NamedTuple):
    """What is stored.

    Attributes:
      frame: (rows, lanes, *frame_shape).
      age: int32 (rows, lanes), steps since the first frame of the episode.
      action: (rows, lanes), what led to the frame.
      reward: float32 (rows, lanes), likewise.
      terminated: bool (rows, lanes).
      oldest_start: (groups, lanes, *frame_shape), the first frame of the episode that a group's oldest row is of, in a
        full ring.
      head: int32, the row written next.
      size: int32, the number of rows filled.
      priorities: of the slots, 0 where no transition begins; empty for uniform samples.
    """

    frame: Array
    age: Array
    action: Array
    reward: Array
    terminated: Array
    oldest_start: Array
    head: Array
    size: Array
    priorities: Any = ()


class FrameReplay(NamedTuple):
    """A replay of frames as pure functions.

    Attributes:
      init: `() -> state`, empty.
      add: `(state, arrival) -> state`. The first arrival of each group must be first frames.
      newest: `state -> observations`, of the lanes of the newest row, (lanes, stack, *frame_shape); without the axis
        where stack = 1.
      sample: `(key, state, batch_size, discount, importance_exponent=0.4) -> Batch`, with replacement, over all
        transitions whose stacks are whole, uniform or by priorities; two rows of each group must have arrived. `slot`
        is row · lanes + lane.
      take: `(state, slot, discount) -> Batch`, the n-step transitions that begin at the slots, int (B,). The last frame
        of an episode begins none, nor does the newest row of a group: these give meaningless rows.
      is_start: `(state, slot) -> bool (B,)`, whether a transition begins there.
      prioritise: `(state, slot, priority) -> state`, as in `feelgood.replay.Replay`.
    """

    init: Callable[[], FrameState]
    add: Callable[[FrameState, Arrival], FrameState]
    newest: Callable[[FrameState], Array]
    sample: Callable[..., Batch]
    take: Callable[[FrameState, ArrayLike, Scalar], Batch]
    is_start: Callable[[FrameState, ArrayLike], Array]
    prioritise: Callable[[FrameState, ArrayLike, ArrayLike], FrameState]


def frame_replay(
    num_rows: int,
    num_lanes: int,
    frame_shape: tuple[int, ...],
    frame_dtype: Any,
    *,
    num_actions: int,
    stack: int = 1,
    n_step: int = 1,
    num_groups: int = 1,
    priority_exponent: Scalar | None = None,
) -> FrameReplay:
    """Builds a replay of `num_rows · num_lanes` frames.

    A sample spans n_step steps, fewer where the episode ends or the newest row is reached; cut short by anything but a
    termination it bootstraps from the true last frame, with the discount of the steps that it spans.

    Args:
      num_rows: rows that are kept; a multiple of num_groups, more than stack of each group.
      num_lanes: environments that advance together, in each group.
      frame_shape: of one frame.
      frame_dtype: of one frame.
      num_actions: actions are the integers below it.
      stack: frames in an observation.
      n_step: the most steps that a sample spans.
      num_groups: of environments, whose rows come one after the other.
      priority_exponent: α of priorities, as in `feelgood.replay.replay`; None for uniform samples without weights.
    """
    check_count("stack", stack)
    check_count("num_groups", num_groups)
    check_count("num_rows", num_rows, minimum=(stack + 1) * num_groups)
    if num_rows % num_groups:
        raise ValueError(f"num_rows must be a multiple of num_groups = {num_groups}, got {num_rows}")
    check_count("num_lanes", num_lanes)
    check_count("n_step", n_step)
    check_count("num_actions", num_actions)
    if priority_exponent is not None:
        check_non_negative("priority_exponent", priority_exponent)
    action_dtype = np.min_scalar_type(num_actions - 1)
    ranks = priorities(num_rows * num_lanes)

    def init() -> FrameState:
        table = (num_rows, num_lanes)
        return FrameState(
            jnp.zeros((*table, *frame_shape), frame_dtype),
            jnp.zeros(table, jnp.int32),
            jnp.zeros(table, action_dtype),
            jnp.zeros(table, jnp.float32),
            jnp.zeros(table, bool),
            jnp.zeros((num_groups, num_lanes, *frame_shape), frame_dtype),
            jnp.asarray(0, jnp.int32),
            jnp.asarray(0, jnp.int32),
            () if priority_exponent is None else ranks.init(),
        )

    def row_of(table: Array, row: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(table, row, 0, keepdims=False)

    def add(state: FrameState, arrival: Arrival) -> FrameState:
        head = state.head
        begins = jnp.asarray(arrival.is_first, bool)
        age = jnp.where(begins, 0, row_of(state.age, (head - num_groups) % num_rows) + 1)

        def write(table: Array, new: Any) -> Array:
            return jax.lax.dynamic_update_index_in_dim(table, jnp.asarray(new, table.dtype), head, 0)

        frames, ages = write(state.frame, arrival.frame), write(state.age, age)
        # The group's next write may lose the first frame of an episode that goes on after it. (To read that row before
        # this write instead of after it would make XLA copy the whole ring.)
        group, oldest = head % num_groups, (head + num_groups) % num_rows
        begins_oldest = (row_of(ages, oldest) == 0).reshape((num_lanes,) + (1,) * len(frame_shape))
        oldest_frame = row_of(frames, oldest)
        begins_oldest = jnp.broadcast_to(begins_oldest, oldest_frame.shape)
        start = jnp.where(begins_oldest, oldest_frame, state.oldest_start[group])
        return FrameState(
            frames,
            ages,
            write(state.action, arrival.action),
            write(state.reward, arrival.reward),
            write(state.terminated, arrival.terminated),
            state.oldest_start.at[group].set(start),
            (head + 1) % num_rows,
            jnp.minimum(state.size + 1, num_rows),
            state.priorities if priority_exponent is None else ranked(state.priorities, head, age),
        )

    def ranked(known: PrioritiesState, head: Array, age: Array) -> PrioritiesState:
        """Priorities after a row was written: the one before it begins transitions, where the episode went on."""
        # The new row begins nothing yet; the stacks of the last of these rows have lost a frame.
        rows = jnp.stack([head - num_groups, head, head + (stack - 1) * num_groups]) % num_rows
        values = jnp.stack([jnp.where(age > 0, known.largest, 0), jnp.zeros(num_lanes), jnp.zeros(num_lanes)])
        slots = rows[:, None] * num_lanes + jnp.arange(num_lanes)[None, :]
        return ranks.set(known, slots.ravel(), values.ravel())

    def prioritise(state: FrameState, slot: ArrayLike, priority: ArrayLike) -> FrameState:
        if priority_exponent is None:
            raise ValueError("priority_exponent must be given for a replay with priorities, got None")
        # The smallest is not 0, so that no transition is lost for good.
        values = (jnp.asarray(priority, jnp.float32) + 1e-6) ** jnp.asarray(priority_exponent)
        return state._replace(priorities=ranks.set(state.priorities, slot, values))

    def at(table: Array, row: Array, lane: Array) -> Array:
        return table.at[row % num_rows, lane].get(mode="promise_in_bounds")

    def observation(state: FrameState, row: Array, lane: Array) -> Array:
        if stack == 1:
            return at(state.frame, row, lane)
        back = jnp.minimum(jnp.arange(stack - 1, -1, -1)[None, :], at(state.age, row, lane)[:, None])
        return at(state.frame, row[:, None] - back * num_groups, jnp.broadcast_to(lane[:, None], back.shape))

    def newest(state: FrameState) -> Array:
        lanes = jnp.arange(num_lanes)
        return observation(state, jnp.full_like(lanes, state.head - 1), lanes)

    def split(slot: ArrayLike) -> tuple[Array, Array]:
        slot = jnp.asarray(slot, jnp.int32)
        return slot // num_lanes, slot % num_lanes

    def rows_after(state: FrameState, row: Array) -> Array:
        return (state.head - 1 - row) % num_rows

    def num_whole(state: FrameState) -> Array:
        """Rows whose stacks are whole: a full ring has written over the frames that the oldest ones need."""
        return state.size - jnp.where(state.size == num_rows, (stack - 1) * num_groups, 0)

    def is_start(state: FrameState, slot: ArrayLike) -> Array:
        row, lane = split(slot)
        after = rows_after(state, row)
        goes_on = at(state.age, row + num_groups, lane) > 0
        return (after >= num_groups) & (after < num_whole(state)) & goes_on

    def take(state: FrameState, slot: ArrayLike, discount: Scalar) -> Batch:
        row, lane = split(slot)
        after = rows_after(state, row)
        return_, power, last = jnp.zeros(row.shape), jnp.ones(row.shape), row
        alive = jnp.ones(row.shape, bool)
        for i in range(1, n_step + 1):
            here = row + i * num_groups
            alive = alive & (i * num_groups <= after) & (at(state.age, here, lane) > 0)
            return_ = return_ + jnp.where(alive, power * at(state.reward, here, lane), 0)
            power = jnp.where(alive, power * jnp.asarray(discount), power)
            last = jnp.where(alive, here, last)
        age = at(state.age, row, lane)
        is_kept = (age * num_groups <= state.size - 1 - after).reshape(row.shape + (1,) * len(frame_shape))
        kept, lost = at(state.frame, row - age * num_groups, lane), state.oldest_start[row % num_groups, lane]
        first = jnp.where(jnp.broadcast_to(is_kept, kept.shape), kept, lost)
        if stack > 1:
            first = jnp.broadcast_to(first[:, None], (first.shape[0], stack, *frame_shape))
        return Batch(
            observation=observation(state, row, lane),
            action=at(state.action, row + num_groups, lane),
            return_=return_,
            bootstrap_discount=jnp.where(at(state.terminated, last, lane), 0, power),
            next_observation=observation(state, last, lane),
            first_observation=first,
            slot=jnp.asarray(slot, jnp.int32),
        )

    def sample(
        key: PRNGKey, state: FrameState, batch_size: int, discount: Scalar, importance_exponent: Scalar = 0.4
    ) -> Batch:
        if priority_exponent is not None:
            slot, probability = ranks.sample(key, state.priorities, batch_size)
            weight = probability ** -jnp.asarray(importance_exponent)
            return take(state, slot, discount)._replace(weight=weight / weight.max())
        num_eligible = num_whole(state) - num_groups  # the newest row of each group begins nothing yet
        bits = jax.random.bits(key, (2, _NUM_TRIES, batch_size), jnp.uint32)
        back = (bits[0] % jnp.maximum(num_eligible, 1).astype(jnp.uint32)).astype(jnp.int32) + num_groups + 1
        lane = (bits[1] % np.uint32(num_lanes)).astype(jnp.int32)
        row = (state.head - back) % num_rows
        # Uniform over transitions, as what is not one is rejected; should all tries be, the step before is one.
        is_transition = at(state.age, row + num_groups, lane) > 0
        chosen = jnp.argmax(is_transition, 0)[None, :]
        row, lane, found = (jnp.take_along_axis(x, chosen, 0)[0] for x in (row, lane, is_transition))
        row = jnp.where(found, row, (row - num_groups) % num_rows)
        return take(state, row * num_lanes + lane, discount)

    return FrameReplay(init, add, newest, sample, take, is_start, prioritise)
