"""A ring of transitions in arrays of fixed size, sampled as n-step transitions.

A transition carries its true successor and the first observation of its episode. So samples stay right after a
truncation, and after the ring has overwritten the beginning of an episode. Observations are stored as given, encoded or
not. Samples are uniform, or in proportion to priorities; see `feelgood.replay.sampling`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from feelgood.checks import check_count
from feelgood.replay.sampling import sampling
from feelgood.typing import Array, PRNGKey, Scalar


class Transition(NamedTuple):
    """One step of one environment.

    Attributes:
      observation: the observation before the action.
      reward: of the action.
      terminated: bool; the episode ended in a terminal state.
      truncated: bool; the episode was cut off here.
      next_observation: the true successor, also at the end of an episode.
      first_observation: the first observation of this episode.
    """

    observation: Any
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    next_observation: Any
    first_observation: Any


class Batch(NamedTuple):
    """A minibatch of n-step transitions; every array has a leading axis of `batch_size`.

    A sample that spans m steps has the target return_ + bootstrap_discount·max_a Q(next_observation, a).

    Attributes:
      observation: o₀.
      action: a₀.
      return_: Σ_{i<m} discountⁱ·r_i.
      bootstrap_discount: discountᵐ, or 0 if step m terminated.
      next_observation: the true successor of step m.
      first_observation: the first observation of the episode.
      slot: int32, the slot of its first step.
      weight: importance weights of the samples; None for uniform sampling.
    """

    observation: Any
    action: Array
    return_: Array
    bootstrap_discount: Array
    next_observation: Any
    first_observation: Any
    slot: Array
    weight: Array | None = None


class ReplayState(NamedTuple):
    """The contents of the ring.

    Attributes:
      data: a `Transition` of arrays with leading axis `capacity`.
      head: int32, the slot written next.
      size: int32, the number of slots filled.
      priorities: a `PrioritiesState`; () for uniform sampling.
    """

    data: Transition
    head: Array
    size: Array
    priorities: Any = ()


class Replay(NamedTuple):
    """A ring buffer as pure functions.

    Attributes:
      init: `() -> state`, empty.
      add: `(state, transition) -> state`.
      add_batch: `(state, transitions) -> state`, successive transitions along a leading axis, oldest first.
      sample: `(key, state, batch_size, discount, importance_exponent=0.4, newest=None) -> Batch`, with replacement; the
        ring must not be empty. Sample i is uniform over the `newest`[i] newest transitions, int (B,), or over all if
        None. Uniform sampling ignores the exponent, sampling by priorities ignores `newest`.
      take: `(state, slot, discount) -> Batch`, the n-step transitions that begin at the slots, int (B,). Slots not yet
        filled give meaningless rows.
      prioritise: `(state, slot, priority) -> state`, as in `Sampling`; a ValueError for a replay without priorities.
      num_data: `state -> int`, transitions stored.
    """

    init: Callable[[], ReplayState]
    add: Callable[[ReplayState, Transition], ReplayState]
    add_batch: Callable[[ReplayState, Transition], ReplayState]
    sample: Callable[..., Batch]
    take: Callable[[ReplayState, ArrayLike, Scalar], Batch]
    prioritise: Callable[[ReplayState, ArrayLike, ArrayLike], ReplayState]
    num_data: Callable[[ReplayState], Array]


def replay(capacity: int, example: Transition, *, n_step: int = 1, priority_exponent: Scalar | None = None) -> Replay:
    """Builds a ring of `capacity` transitions.

    A sample spans m = n_step steps, or fewer if the episode ends (terminated or truncated) or the newest transition is
    reached: the data after the write head is the oldest in the ring, not a continuation. A sample that a truncation or
    the write head cuts short bootstraps from the true successor of its last step, with discountᵐ.

    Args:
      capacity: slots in the ring.
      example: one transition; only shapes and dtypes matter. The ring stores actions and rewards in these dtypes.
      n_step: the most steps that a sample spans.
      priority_exponent: α of prioritised sampling; None for uniform samples without weights.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> step = lambda o, reward, is_last: Transition(o, 0, reward, is_last, False, o + 1, first_observation=0)
      >>> ring = replay(capacity=4, example=step(0, 0.0, False), n_step=2)
      >>> add, take = jax.jit(ring.add), jax.jit(ring.take)
      >>> state = add(add(ring.init(), step(0, 1.0, False)), step(1, 2.0, True))
      >>> batch = take(state, jnp.array([0]), 0.5)
      >>> batch.return_.tolist(), batch.bootstrap_discount.tolist()  # 1 + 0.5 · 2, and nothing after the end
      ([2.0], [0.0])
    """
    capacity, n_step = check_count("capacity", capacity), check_count("n_step", n_step)
    slots = sampling(capacity, priority_exponent)
    shapes = jax.tree.map(jnp.asarray, example._replace(terminated=False, truncated=False))

    def init() -> ReplayState:
        data = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), shapes)
        return ReplayState(data, jnp.asarray(0, jnp.int32), jnp.asarray(0, jnp.int32), slots.init())

    def add(state: ReplayState, transition: Transition) -> ReplayState:
        return add_batch(state, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], transition))

    def add_batch(state: ReplayState, transitions: Transition) -> ReplayState:
        num_new = jnp.shape(transitions.reward)[0]
        # If more arrive than the ring can hold, only the newest are written, and no slot is written twice.
        dropped = max(num_new - capacity, 0)
        kept = jax.tree.map(lambda leaf: leaf[dropped:], transitions)
        at = (state.head + jnp.arange(dropped, num_new)) % capacity

        def write(ring, new):
            return ring.at[at].set(jnp.asarray(new, ring.dtype), mode="promise_in_bounds", unique_indices=True)

        return ReplayState(
            jax.tree.map(write, state.data, kept),
            (state.head + num_new) % capacity,
            jnp.minimum(state.size + num_new, capacity),
            slots.add(state.priorities, at, jnp.ones(at.shape, bool)),
        )

    def sample(
        key: PRNGKey,
        state: ReplayState,
        batch_size: int,
        discount: Scalar,
        importance_exponent: Scalar = 0.4,
        newest: ArrayLike | None = None,
    ) -> Batch:
        uniform = partial(uniform_slots, state, newest)
        slot, weight = slots.draw(key, state.priorities, batch_size, importance_exponent, uniform)
        return take(state, slot, discount)._replace(weight=weight)

    def uniform_slots(state: ReplayState, newest: ArrayLike | None, key: PRNGKey, batch_size: int) -> Array:
        """Slots that are uniform over the ring, or its `newest` slots, to within one part in 2³²/size."""
        bits = jax.random.bits(key, (batch_size,), jnp.uint32)
        num_eligible = state.size if newest is None else jnp.minimum(state.size, newest)
        age = (bits % jnp.maximum(num_eligible, 1).astype(jnp.uint32)).astype(jnp.int32)
        return (state.head - 1 - age) % capacity

    def take(state: ReplayState, slot: ArrayLike, discount: Scalar) -> Batch:
        data, first = state.data, jnp.asarray(slot, jnp.int32) % capacity
        at = lambda ring, slot: jax.tree.map(lambda leaf: leaf.at[slot].get(mode="promise_in_bounds"), ring)
        # num_left: transitions stored from this slot to the newest, itself included.
        num_left = state.size - (first - (state.head - state.size)) % capacity
        return_, last, power = jnp.zeros(first.shape), first, jnp.ones(first.shape)
        alive = jnp.ones(first.shape, bool)
        for i in range(n_step):
            here = (first + i) % capacity
            return_ = return_ + jnp.where(alive, power * at(data.reward, here), 0)
            last, power = jnp.where(alive, here, last), jnp.where(alive, power * jnp.asarray(discount), power)
            alive = alive & ~at(data.terminated, here) & ~at(data.truncated, here) & (i + 1 < num_left)
        return Batch(
            observation=at(data.observation, first),
            action=at(data.action, first),
            return_=return_,
            bootstrap_discount=jnp.where(at(data.terminated, last), 0, power),
            next_observation=at(data.next_observation, last),
            first_observation=at(data.first_observation, first),
            slot=first,
        )

    def prioritise(state: ReplayState, slot: ArrayLike, priority: ArrayLike) -> ReplayState:
        return state._replace(priorities=slots.prioritise(state.priorities, slot, priority))

    return Replay(init, add, add_batch, sample, take, prioritise, lambda state: state.size)
