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

from feelgood.checks import check_count
from feelgood.replay.sampling import Sampling, sampling
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
    """A replay of frames as pure functions.

    Attributes:
      init: `() -> state`, empty.
      add: `(state, arrival) -> state`. The first arrival of each group must be first frames.
      newest: `state -> observations`, of the lanes of the newest row, (lanes, stack, *frame_shape); without the stack
        axis if stack = 1.
      sample: `(key, state, batch_size, discount, importance_exponent=0.4, newest=None) -> Batch`, with replacement,
        over all transitions whose stacks are complete, uniform or by priorities; two rows of each group must have
        arrived. `slot` is row · lanes + lane. If `newest`, int (B,), is given, sample i is uniform over the newest rows
        that hold `newest`[i] transitions; sampling by priorities ignores it.
      take: `(state, slot, discount) -> Batch`, the n-step transitions that begin at the slots, int (B,). The last frame
        of an episode begins none, nor does the newest row of a group: these give meaningless rows.
      is_start: `(state, slot) -> bool (B,)`, whether a transition begins there.
      prioritise: `(state, slot, priority) -> state`, as in `feelgood.replay.Replay`.
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


class _Layout(NamedTuple):
    """The static shape of a replay; see the arguments of `frame_replay`."""

    num_rows: int
    num_lanes: int
    frame_shape: tuple[int, ...]
    frame_dtype: Any
    action_dtype: Any
    stack: int
    n_step: int
    num_groups: int


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
      frame_dtype: dtype of one frame.
      num_actions: actions are the integers below it.
      stack: frames in an observation.
      n_step: the most steps that a sample spans.
      num_groups: groups of environments; their rows alternate.
      priority_exponent: α of prioritised sampling; None for uniform samples without weights.
    """
    stack = check_count("stack", stack)
    num_groups = check_count("num_groups", num_groups)
    num_rows = check_count("num_rows", num_rows, minimum=(stack + 1) * num_groups)
    if num_rows % num_groups:
        raise ValueError(f"num_rows must be a multiple of num_groups = {num_groups}, got {num_rows}")
    num_lanes = check_count("num_lanes", num_lanes)
    n_step = check_count("n_step", n_step)
    num_actions = check_count("num_actions", num_actions)
    action_dtype = np.min_scalar_type(num_actions - 1)
    layout = _Layout(num_rows, num_lanes, frame_shape, frame_dtype, action_dtype, stack, n_step, num_groups)
    slots = sampling(num_rows * num_lanes, priority_exponent)

    def sample(
        key: PRNGKey,
        state: FrameState,
        batch_size: int,
        discount: Scalar,
        importance_exponent: Scalar = 0.4,
        newest: ArrayLike | None = None,
    ) -> Batch:
        uniform = partial(_uniform_slots, layout, state, newest)
        slot, weight = slots.draw(key, state.priorities, batch_size, importance_exponent, uniform)
        return _take(layout, state, slot, discount)._replace(weight=weight)

    def prioritise(state: FrameState, slot: ArrayLike, priority: ArrayLike) -> FrameState:
        return state._replace(priorities=slots.prioritise(state.priorities, slot, priority))

    return FrameReplay(
        init=partial(_init, layout, slots),
        add=partial(_add, layout, slots),
        newest=partial(_newest, layout),
        sample=sample,
        take=partial(_take, layout),
        is_start=partial(_is_start, layout),
        prioritise=prioritise,
        num_data=lambda state: state.size * num_lanes,
    )


# Writing.


def _init(layout: _Layout, slots: Sampling) -> FrameState:
    table = (layout.num_rows, layout.num_lanes)
    return FrameState(
        frame=jnp.zeros((*table, *layout.frame_shape), layout.frame_dtype),
        age=jnp.zeros(table, jnp.int32),
        action=jnp.zeros(table, layout.action_dtype),
        reward=jnp.zeros(table, jnp.float32),
        terminated=jnp.zeros(table, bool),
        oldest_start=jnp.zeros((layout.num_groups, layout.num_lanes, *layout.frame_shape), layout.frame_dtype),
        head=jnp.asarray(0, jnp.int32),
        size=jnp.asarray(0, jnp.int32),
        priorities=slots.init(),
    )


def _add(layout: _Layout, slots: Sampling, state: FrameState, arrival: Arrival) -> FrameState:
    num_rows, num_groups, head = layout.num_rows, layout.num_groups, state.head
    row_of = lambda table, row: jax.lax.dynamic_index_in_dim(table, row, 0, keepdims=False)
    age = jnp.where(jnp.asarray(arrival.is_first, bool), 0, row_of(state.age, (head - num_groups) % num_rows) + 1)

    def write(table: Array, new: Any) -> Array:
        return jax.lax.dynamic_update_index_in_dim(table, jnp.asarray(new, table.dtype), head, 0)

    frames, ages = write(state.frame, arrival.frame), write(state.age, age)
    # The group's next write may overwrite the first frame of an episode that continues after it, so this frame is
    # copied. (Reading that row before this write instead of after it would make XLA copy the whole ring.)
    group, oldest = head % num_groups, (head + num_groups) % num_rows
    oldest_frame = row_of(frames, oldest)
    is_start = _broadcast(row_of(ages, oldest) == 0, oldest_frame)
    return FrameState(
        frame=frames,
        age=ages,
        action=write(state.action, arrival.action),
        reward=write(state.reward, arrival.reward),
        terminated=write(state.terminated, arrival.terminated),
        oldest_start=state.oldest_start.at[group].set(jnp.where(is_start, oldest_frame, state.oldest_start[group])),
        head=(head + 1) % num_rows,
        size=jnp.minimum(state.size + 1, num_rows),
        priorities=_add_priorities(layout, slots, state.priorities, head, age),
    )


def _add_priorities(layout: _Layout, slots: Sampling, known: Any, head: Array, age: Array) -> Any:
    """Priorities after row `head` was written; the group's row before it begins transitions if the episode went on."""
    # The new row begins no transition yet, and the stacks of the third row have lost a frame.
    steps = jnp.asarray([-1, 0, layout.stack - 1]) * layout.num_groups
    never = jnp.zeros(layout.num_lanes, bool)
    slot = (head + steps)[:, None] % layout.num_rows * layout.num_lanes + jnp.arange(layout.num_lanes)[None, :]
    return slots.add(known, slot.ravel(), jnp.concatenate([age > 0, never, never]))


# Reading.


def _at(layout: _Layout, table: Array, row: Array, lane: Array) -> Array:
    return table.at[row % layout.num_rows, lane].get(mode="promise_in_bounds")


def _broadcast(mask: Array, like: Array) -> Array:
    """A mask over leading axes, broadcast over the axes of a frame."""
    return jnp.broadcast_to(mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim)), like.shape)


def _split(layout: _Layout, slot: ArrayLike) -> tuple[Array, Array]:
    slot = jnp.asarray(slot, jnp.int32)
    return slot // layout.num_lanes, slot % layout.num_lanes


def _observation(layout: _Layout, state: FrameState, row: Array, lane: Array) -> Array:
    if layout.stack == 1:
        return _at(layout, state.frame, row, lane)
    age = _at(layout, state.age, row, lane)
    back = jnp.minimum(jnp.arange(layout.stack - 1, -1, -1)[None, :], age[:, None])
    rows = row[:, None] - back * layout.num_groups
    return _at(layout, state.frame, rows, jnp.broadcast_to(lane[:, None], back.shape))


def _newest(layout: _Layout, state: FrameState) -> Array:
    lanes = jnp.arange(layout.num_lanes)
    return _observation(layout, state, jnp.full_like(lanes, state.head - 1), lanes)


def _rows_after(layout: _Layout, state: FrameState, row: Array) -> Array:
    return (state.head - 1 - row) % layout.num_rows


def _num_whole(layout: _Layout, state: FrameState) -> Array:
    """Rows with complete stacks: a full ring has overwritten frames of the oldest stacks."""
    num_lost = (layout.stack - 1) * layout.num_groups
    return state.size - jnp.where(state.size == layout.num_rows, num_lost, 0)


def _is_start(layout: _Layout, state: FrameState, slot: ArrayLike) -> Array:
    row, lane = _split(layout, slot)
    after = _rows_after(layout, state, row)
    goes_on = _at(layout, state.age, row + layout.num_groups, lane) > 0
    return (after >= layout.num_groups) & (after < _num_whole(layout, state)) & goes_on


def _uniform_slots(
    layout: _Layout, state: FrameState, newest: ArrayLike | None, key: PRNGKey, batch_size: int
) -> Array:
    """Slots that are uniform over all transitions, or the newest, by rejection of the last frames of episodes."""
    num_groups = layout.num_groups
    num_eligible = _num_whole(layout, state) - num_groups  # the newest row of each group begins no transition yet
    if newest is not None:
        num_eligible = jnp.minimum(num_eligible, -(-jnp.asarray(newest) // layout.num_lanes))[None, :]
    bits = jax.random.bits(key, (2, _NUM_TRIES, batch_size), jnp.uint32)
    back = (bits[0] % jnp.maximum(num_eligible, 1).astype(jnp.uint32)).astype(jnp.int32) + num_groups + 1
    lane = (bits[1] % np.uint32(layout.num_lanes)).astype(jnp.int32)
    row = (state.head - back) % layout.num_rows
    is_transition = _at(layout, state.age, row + num_groups, lane) > 0
    chosen = jnp.argmax(is_transition, 0)[None, :]
    row, lane, found = (jnp.take_along_axis(x, chosen, 0)[0] for x in (row, lane, is_transition))
    # If all tries are rejected, the step before the last frame is a transition.
    row = jnp.where(found, row, (row - num_groups) % layout.num_rows)
    return row * layout.num_lanes + lane


def _take(layout: _Layout, state: FrameState, slot: ArrayLike, discount: Scalar) -> Batch:
    row, lane = _split(layout, slot)
    at, num_groups, after = partial(_at, layout), layout.num_groups, _rows_after(layout, state, row)
    return_, power, last = jnp.zeros(row.shape), jnp.ones(row.shape), row
    alive = jnp.ones(row.shape, bool)
    for i in range(1, layout.n_step + 1):
        here = row + i * num_groups
        alive = alive & (i * num_groups <= after) & (at(state.age, here, lane) > 0)
        return_ = return_ + jnp.where(alive, power * at(state.reward, here, lane), 0)
        power = jnp.where(alive, power * jnp.asarray(discount), power)
        last = jnp.where(alive, here, last)
    return Batch(
        observation=_observation(layout, state, row, lane),
        action=at(state.action, row + num_groups, lane),
        return_=return_,
        bootstrap_discount=jnp.where(at(state.terminated, last, lane), 0, power),
        next_observation=_observation(layout, state, last, lane),
        first_observation=_first_observation(layout, state, row, lane),
        slot=jnp.asarray(slot, jnp.int32),
    )


def _first_observation(layout: _Layout, state: FrameState, row: Array, lane: Array) -> Array:
    age, num_groups = _at(layout, state.age, row, lane), layout.num_groups
    is_kept = age * num_groups <= state.size - 1 - _rows_after(layout, state, row)
    kept = _at(layout, state.frame, row - age * num_groups, lane)
    first = jnp.where(_broadcast(is_kept, kept), kept, state.oldest_start[row % num_groups, lane])
    if layout.stack == 1:
        return first
    return jnp.broadcast_to(first[:, None], (first.shape[0], layout.stack, *layout.frame_shape))
