"""A ring of transitions in fixed arrays inside XLA, sampled as n-step transitions.

A transition carries its true successor and the first observation of its episode, so neither a truncation nor the loss
of an episode's beginning to the ring can make a sample wrong. Observations are stored in a code of the caller's choice.
Samples are uniform, or in proportion to priorities.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from feelgood.checks import check_count, check_non_negative
from feelgood.replay.priorities import priorities
from feelgood.typing import Array, PRNGKey, Scalar

__all__ = ["Batch", "Replay", "ReplayState", "Transition", "replay"]


class Transition(NamedTuple):
    """One step of one environment.

    Attributes:
      observation: what was seen before the action.
      action: what was done.
      reward: what came of it.
      terminated: bool; nothing follows.
      truncated: bool; the episode was cut off here.
      next_observation: the true successor, also where the episode ended.
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

    With m the steps that a sample spans, its target is return_ + bootstrap_discount·max_a Q(next_observation, a).

    Attributes:
      observation: o₀.
      action: a₀.
      return_: Σ_{i<m} discountⁱ·r_i.
      bootstrap_discount: discountᵐ, or 0 where step m terminated.
      next_observation: the true successor of step m.
      first_observation: the first observation of the episode.
      slot: int32, where the first step lies in the ring.
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
    """What the ring holds.

    Attributes:
      data: a `Transition` of arrays with leading axis `capacity`, observations in code.
      head: int32, the slot written next.
      size: int32, the number of slots filled.
      priorities: a `PrioritiesState`; empty where sampling is uniform.
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
      sample: `(key, state, batch_size, discount, importance_exponent=0.4) -> Batch`, with replacement; the ring must
        not be empty. The exponent is read where there are priorities.
      take: `(state, slot, discount) -> Batch`, the n-step transitions that begin at the slots, int (B,). Slots not yet
        filled give meaningless rows.
      prioritise: `(state, slot, priority) -> state`, sets the priorities ≥ 0 (B,) of the slots (B,), such as
        |TD error|; of several for one slot the largest stays. Only where there are priorities.
    """

    init: Callable[[], ReplayState]
    add: Callable[[ReplayState, Transition], ReplayState]
    add_batch: Callable[[ReplayState, Transition], ReplayState]
    sample: Callable[..., Batch]
    take: Callable[[ReplayState, ArrayLike, Scalar], Batch]
    prioritise: Callable[[ReplayState, ArrayLike, ArrayLike], ReplayState]


def replay(
    capacity: int,
    example: Transition,
    *,
    n_step: int = 1,
    priority_exponent: Scalar | None = None,
    encode: Callable[[Any], Any] = lambda observation: observation,
    decode: Callable[[Any], Any] = lambda code: code,
) -> Replay:
    """Builds a ring of `capacity` transitions.

    A sample spans m = n_step steps, fewer where the episode ends (terminated or truncated) or where the newest
    transition is reached: data past the write head is the oldest in the ring, not a continuation. A sample cut short
    by a truncation or by the write head bootstraps from the true successor of its last step, with discountᵐ.

    With priorities p_k (Schaul et al., 2016), slot k is drawn with probability P_k = p_k^α/Σ_j p_j^α and sample i of a
    batch has weight (n·P_i)^−β/max_j (n·P_j)^−β, n the slots filled and β the importance exponent. New transitions have
    the largest priority so far.

    Args:
      capacity: slots in the ring.
      example: one transition; only shapes and dtypes matter. The ring stores actions and rewards in these dtypes.
      n_step: the most steps that a sample spans.
      priority_exponent: α; None for uniform samples without weights.
      encode: `observation -> code`, applied to one observation before storage; a pytree of arrays either way.
      decode: `code -> observation`, applied to one code when sampling.
    """
    check_count("capacity", capacity)
    check_count("n_step", n_step)
    if priority_exponent is not None:
        check_non_negative("priority_exponent", priority_exponent)
    table = priorities(capacity)

    def encoded(transition: Transition) -> Transition:
        return transition._replace(
            observation=encode(transition.observation),
            next_observation=encode(transition.next_observation),
            first_observation=encode(transition.first_observation),
            terminated=jnp.asarray(transition.terminated, bool),
            truncated=jnp.asarray(transition.truncated, bool),
        )

    shapes = jax.eval_shape(encoded, jax.tree.map(jnp.asarray, example))

    def init() -> ReplayState:
        data = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), shapes)
        known = () if priority_exponent is None else table.init()
        return ReplayState(data, jnp.asarray(0, jnp.int32), jnp.asarray(0, jnp.int32), known)

    def advance(state: ReplayState, data: Transition, slots: Array, num_new: int) -> ReplayState:
        known = state.priorities
        if priority_exponent is not None:
            known = table.set(known, slots, jnp.broadcast_to(known.largest, slots.shape))
        head, size = (state.head + num_new) % capacity, jnp.minimum(state.size + num_new, capacity)
        return ReplayState(data, head, size, known)

    def add(state: ReplayState, transition: Transition) -> ReplayState:
        def write(ring, new):
            return jax.lax.dynamic_update_index_in_dim(ring, jnp.asarray(new, ring.dtype), state.head, 0)

        return advance(state, jax.tree.map(write, state.data, encoded(transition)), state.head[None], 1)

    def add_batch(state: ReplayState, transitions: Transition) -> ReplayState:
        num_new = jnp.shape(transitions.reward)[0]
        # Of more than the ring can hold only the newest stay, and no slot is written twice.
        dropped = max(num_new - capacity, 0)
        kept = jax.tree.map(lambda leaf: leaf[dropped:], transitions)
        slots = (state.head + jnp.arange(dropped, num_new)) % capacity

        def write(ring, new):
            return ring.at[slots].set(jnp.asarray(new, ring.dtype), mode="promise_in_bounds", unique_indices=True)

        return advance(state, jax.tree.map(write, state.data, jax.vmap(encoded)(kept)), slots, num_new)

    def take(state: ReplayState, slot: ArrayLike, discount: Scalar) -> Batch:
        data, first = state.data, jnp.asarray(slot, jnp.int32) % capacity
        at = lambda ring, slot: jax.tree.map(lambda leaf: leaf.at[slot].get(mode="promise_in_bounds"), ring)
        oldest = state.head - state.size
        # num_left: transitions stored from this slot to the newest, itself included.
        num_left = state.size - (first - oldest) % capacity
        return_, last, power = jnp.zeros(first.shape), first, jnp.ones(first.shape)
        alive = jnp.ones(first.shape, bool)
        for i in range(n_step):
            here = (first + i) % capacity
            return_ = return_ + jnp.where(alive, power * at(data.reward, here), 0)
            last, power = jnp.where(alive, here, last), jnp.where(alive, power * jnp.asarray(discount), power)
            alive = alive & ~at(data.terminated, here) & ~at(data.truncated, here) & (i + 1 < num_left)
        return Batch(
            observation=jax.vmap(decode)(at(data.observation, first)),
            action=at(data.action, first),
            return_=return_,
            bootstrap_discount=jnp.where(at(data.terminated, last), 0, power),
            next_observation=jax.vmap(decode)(at(data.next_observation, last)),
            first_observation=jax.vmap(decode)(at(data.first_observation, first)),
            slot=first,
        )

    def sample(
        key: PRNGKey, state: ReplayState, batch_size: int, discount: Scalar, importance_exponent: Scalar = 0.4
    ) -> Batch:
        if priority_exponent is None:
            # Uniform to within one part in 2³²/size.
            bits = jax.random.bits(key, (batch_size,), jnp.uint32)
            age = (bits % jnp.maximum(state.size, 1).astype(jnp.uint32)).astype(jnp.int32)
            return take(state, (state.head - 1 - age) % capacity, discount)
        slots, probabilities = table.sample(key, state.priorities, batch_size)
        weight = (state.size * probabilities) ** -jnp.asarray(importance_exponent)
        return take(state, slots, discount)._replace(weight=weight / weight.max())

    def prioritise(state: ReplayState, slot: ArrayLike, priority: ArrayLike) -> ReplayState:
        if priority_exponent is None:
            raise ValueError("priority_exponent must be a number for a replay with priorities, got None")
        # The smallest is not 0, so that no transition is lost for good.
        powers = (jnp.asarray(priority, jnp.float32) + 1e-6) ** jnp.asarray(priority_exponent)
        return state._replace(priorities=table.set(state.priorities, slot, powers))

    return Replay(init, add, add_batch, sample, take, prioritise)
