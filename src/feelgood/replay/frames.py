"""A replay that stores each frame once; sampling assembles stacks, successors and n-step returns.

Lanes, one for each environment, advance together. Row t of a lane holds the frame at time t, and the action and reward
that led to it. So the successor of a frame is the next row:

    time        t             t + 1                        t + 2
    frame       o_t           o_{t+1}                      o_{t+2}
    led to it   …             a_t, r_t, end of episode?    a_{t+1}, r_{t+1}, …

The true last frame of an episode has its own row, followed by the first frame of the next episode. An observation is a
stack of the last frames of its episode, with the first frame repeated if the episode is younger than the stack. The
first observation of an episode is therefore its first frame repeated. It is kept as long as any frame of its episode.

If several groups of environments take turns, their rows alternate, and "the next row" is the next row of the same
group, `num_groups` rows later.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count, check_multiple
from feelgood.replay.sampling import sampling
from feelgood.replay.transitions import Batch
from feelgood.typing import Array, PRNGKey, Scalar

_NUM_TRIES = 16  # rejected draws before the predecessor of an episode's last frame is taken instead


class Arrival(NamedTuple):
    """One step of all lanes; every array has a leading axis of lanes.

    Attributes:
      frame: the current frame.
      is_first: bool; an episode begins with this frame.
      action: the action on the frame before; meaningless if `is_first`.
      reward: the reward of that action; meaningless if `is_first`.
      terminated: bool; this frame is terminal. A truncation is visible only in the next `is_first`.
    """

    frame: Any
    is_first: Any
    action: Any
    reward: Any
    terminated: Any


class FrameState(NamedTuple):
    """The contents of the replay.

    Attributes:
      frame: (rows, lanes, *frame_shape).
      age: int32 (rows, lanes), steps since the first frame of the episode.
      action: (rows, lanes), the action that led to the frame.
      reward: float32 (rows, lanes), the reward of that action.
      terminated: bool (rows, lanes).
      oldest_start: (groups, lanes, *frame_shape), the first frame of the episode to which a group's oldest row belongs,
        once the ring is full.
      head: int32, the row written next.
      size: int32, the number of rows filled.
      priorities: of the slots, 0 where no transition begins; () for uniform sampling.
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
    """A replay of frames as pure functions; see `feelgood.replay.Replay`. `slot` is row · lanes + lane.

    Attributes:
      init: `() -> state`, empty.
      add: `(state, arrival) -> state`. The first arrival of each group must be first frames.
      newest: `state -> observations`, of the lanes of the newest row, (lanes, stack, *frame_shape); without the stack
        axis if stack = 1.
      sample: over all transitions whose stacks are complete; two rows of each group must have arrived. With `newest`,
        sample i is uniform over the newest rows that hold `newest`[i] transitions.
      take: the last frame of an episode begins no transition, nor does the newest row of a group: these give
        meaningless rows.
      is_start: `(state, slot) -> bool (B,)`, whether a transition begins there.
      prioritise: as in `Replay`.
      num_data: `state -> int`, frames stored.
    """

    init: Callable[[], FrameState]
    add: Callable[[FrameState, Arrival], FrameState]
    newest: Callable[[FrameState], Array]
    sample: Callable[..., Batch]
    take: Callable[[FrameState, ArrayLike, Scalar], Batch]
    is_start: Callable[[FrameState, ArrayLike], Array]
    prioritise: Callable[[FrameState, ArrayLike, ArrayLike], FrameState]
    num_data: Callable[[FrameState], Array]


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

    A sample spans n_step steps, or fewer if the episode ends or the newest row is reached. If anything but a
    termination cuts it short, it bootstraps from the true last frame, with the discount of the steps that it spans.

    Args:
      num_rows: rows that are kept; a multiple of num_groups, with more than `stack` rows for each group.
      num_lanes: environments in each group; they advance together.
      frame_shape: shape of one frame.
      frame_dtype: its dtype.
      num_actions: actions are the integers below it.
      stack: frames in an observation.
      n_step: the most steps that a sample spans.
      num_groups: groups of environments; their rows alternate.
      priority_exponent: α of prioritised sampling; None for uniform samples without weights.
    """
    stack, num_groups = check_count("stack", stack), check_count("num_groups", num_groups)
    num_rows = check_count("num_rows", num_rows, minimum=(stack + 1) * num_groups)
    check_multiple("num_rows", num_rows, "num_groups", num_groups)
    num_lanes, n_step = check_count("num_lanes", num_lanes), check_count("n_step", n_step)
    action_dtype = np.min_scalar_type(check_count("num_actions", num_actions) - 1)
    slots = sampling(num_rows * num_lanes, priority_exponent)

    # Writing.

    def init() -> FrameState:
        table = (num_rows, num_lanes)
        return FrameState(
            frame=jnp.zeros((*table, *frame_shape), frame_dtype),
            age=jnp.zeros(table, jnp.int32),
            action=jnp.zeros(table, action_dtype),
            reward=jnp.zeros(table, jnp.float32),
            terminated=jnp.zeros(table, bool),
            oldest_start=jnp.zeros((num_groups, num_lanes, *frame_shape), frame_dtype),
            head=jnp.asarray(0, jnp.int32),
            size=jnp.asarray(0, jnp.int32),
            priorities=slots.init(),
        )

    def add(state: FrameState, arrival: Arrival) -> FrameState:
        head = state.head
        row_of = lambda table, row: jax.lax.dynamic_index_in_dim(table, row, 0, keepdims=False)
        write = lambda table, new: jax.lax.dynamic_update_index_in_dim(table, jnp.asarray(new, table.dtype), head, 0)
        age = jnp.where(jnp.asarray(arrival.is_first, bool), 0, row_of(state.age, (head - num_groups) % num_rows) + 1)
        frames, ages = write(state.frame, arrival.frame), write(state.age, age)
        # The group's next write may overwrite the first frame of an episode that continues after it, so this frame is
        # copied. (Reading that row before this write instead of after it would make XLA copy the whole ring.)
        group, oldest = head % num_groups, (head + num_groups) % num_rows
        oldest_frame = row_of(frames, oldest)
        is_oldest_start = _broadcast(row_of(ages, oldest) == 0, oldest_frame)
        start = jnp.where(is_oldest_start, oldest_frame, state.oldest_start[group])
        return FrameState(
            frame=frames,
            age=ages,
            action=write(state.action, arrival.action),
            reward=write(state.reward, arrival.reward),
            terminated=write(state.terminated, arrival.terminated),
            oldest_start=state.oldest_start.at[group].set(start),
            head=(head + 1) % num_rows,
            size=jnp.minimum(state.size + 1, num_rows),
            priorities=add_priorities(state.priorities, head, age),
        )

    def add_priorities(known: Any, head: Array, age: Array) -> Any:
        """Priorities after row `head` was written; the group's row before it begins transitions if the episode went on.

        The new row begins no transition yet, and the stacks of the third row have lost a frame.
        """
        steps = jnp.asarray([-1, 0, stack - 1]) * num_groups
        never = jnp.zeros(num_lanes, bool)
        slot = (head + steps)[:, None] % num_rows * num_lanes + jnp.arange(num_lanes)[None, :]
        return slots.add(known, slot.ravel(), jnp.concatenate([age > 0, never, never]))

    # Reading.

    def at(table: Array, row: Array, lane: Array) -> Array:
        return table.at[row % num_rows, lane].get(mode="promise_in_bounds")

    def split(slot: ArrayLike) -> tuple[Array, Array]:
        slot = jnp.asarray(slot, jnp.int32)
        return slot // num_lanes, slot % num_lanes

    def rows_after(state: FrameState, row: Array) -> Array:
        return (state.head - 1 - row) % num_rows

    def num_whole(state: FrameState) -> Array:
        """Rows with complete stacks: a full ring has overwritten frames of the oldest stacks."""
        return state.size - jnp.where(state.size == num_rows, (stack - 1) * num_groups, 0)

    def observation(state: FrameState, row: Array, lane: Array) -> Array:
        if stack == 1:
            return at(state.frame, row, lane)
        back = jnp.minimum(jnp.arange(stack - 1, -1, -1)[None, :], at(state.age, row, lane)[:, None])
        return at(state.frame, row[:, None] - back * num_groups, jnp.broadcast_to(lane[:, None], back.shape))

    def first_observation(state: FrameState, row: Array, lane: Array) -> Array:
        age = at(state.age, row, lane)
        is_kept = age * num_groups <= state.size - 1 - rows_after(state, row)
        kept = at(state.frame, row - age * num_groups, lane)
        first = jnp.where(_broadcast(is_kept, kept), kept, state.oldest_start[row % num_groups, lane])
        if stack == 1:
            return first
        return jnp.broadcast_to(first[:, None], (first.shape[0], stack, *frame_shape))

    def newest_observations(state: FrameState) -> Array:
        lanes = jnp.arange(num_lanes)
        return observation(state, jnp.full_like(lanes, state.head - 1), lanes)

    def is_start(state: FrameState, slot: ArrayLike) -> Array:
        row, lane = split(slot)
        after = rows_after(state, row)
        return (after >= num_groups) & (after < num_whole(state)) & (at(state.age, row + num_groups, lane) > 0)

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
        return Batch(
            observation=observation(state, row, lane),
            action=at(state.action, row + num_groups, lane),
            return_=return_,
            bootstrap_discount=jnp.where(at(state.terminated, last, lane), 0, power),
            next_observation=observation(state, last, lane),
            first_observation=first_observation(state, row, lane),
            slot=jnp.asarray(slot, jnp.int32),
        )

    def uniform_slots(state: FrameState, newest: ArrayLike | None, key: PRNGKey, batch_size: int) -> Array:
        """Slots that are uniform over all transitions, or the newest, by rejection of the last frames of episodes."""
        num_eligible = num_whole(state) - num_groups  # the newest row of each group begins no transition yet
        if newest is not None:
            num_eligible = jnp.minimum(num_eligible, -(-jnp.asarray(newest) // num_lanes))[None, :]
        bits = jax.random.bits(key, (2, _NUM_TRIES, batch_size), jnp.uint32)
        back = (bits[0] % jnp.maximum(num_eligible, 1).astype(jnp.uint32)).astype(jnp.int32) + num_groups + 1
        lane = (bits[1] % np.uint32(num_lanes)).astype(jnp.int32)
        row = (state.head - back) % num_rows
        is_transition = at(state.age, row + num_groups, lane) > 0
        chosen = jnp.argmax(is_transition, 0)[None, :]
        row, lane, found = (jnp.take_along_axis(x, chosen, 0)[0] for x in (row, lane, is_transition))
        # If all tries are rejected, the step before the last frame is a transition.
        row = jnp.where(found, row, (row - num_groups) % num_rows)
        return row * num_lanes + lane

    def sample(
        key: PRNGKey,
        state: FrameState,
        batch_size: int,
        discount: Scalar,
        importance_exponent: Scalar = 0.4,
        newest: ArrayLike | None = None,
    ) -> Batch:
        uniform = partial(uniform_slots, state, newest)
        slot, weight = slots.draw(key, state.priorities, batch_size, importance_exponent, uniform)
        return take(state, slot, discount)._replace(weight=weight)

    def prioritise(state: FrameState, slot: ArrayLike, priority: ArrayLike) -> FrameState:
        return state._replace(priorities=slots.prioritise(state.priorities, slot, priority))

    num_data = lambda state: state.size * num_lanes
    return FrameReplay(init, add, newest_observations, sample, take, is_start, prioritise, num_data)


def _broadcast(mask: Array, like: Array) -> Array:
    """A mask over leading axes, broadcast over the axes of a frame."""
    return jnp.broadcast_to(mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim)), like.shape)
