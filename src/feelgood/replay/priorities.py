"""Priorities of slots in arrays of fixed size, and draws of slots in proportion to them.

Slots lie in blocks of about √capacity, and the sum of each block is stored. A draw picks a block by these sums and then
a slot within the block. A change sums its blocks again. Both cost about √capacity a slot, on contiguous arrays, which
suit a GPU, and rounding errors do not accumulate over a run.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from feelgood.checks import check_count
from feelgood.typing import Array, PRNGKey


class PrioritiesState(NamedTuple):
    """Priorities of all slots.

    Attributes:
      values: float32 (blocks, block size), the priorities in the order of their slots; 0 past the last slot.
      sums: float32 (blocks,), the sum of each block.
      largest: float32, the largest priority ever set, at least 1; the priority of a new slot.
    """

    values: Array
    sums: Array
    largest: Array


class Priorities(NamedTuple):
    """Priorities as pure functions.

    Attributes:
      init: `() -> state`, every priority 0.
      set: `(state, slots, values) -> state`, priorities ≥ 0 (B,) of int slots (B,). If a slot occurs several times, its
        largest value counts.
      sample: `(key, state, batch_size) -> (slots, probabilities)`, with replacement; slot k has probability
        p_k/Σ_j p_j. A slot of priority 0 is never drawn; some priority must be positive.
    """

    init: Callable[[], PrioritiesState]
    set: Callable[[PrioritiesState, ArrayLike, ArrayLike], PrioritiesState]
    sample: Callable[[PRNGKey, PrioritiesState, int], tuple[Array, Array]]


def _draw(weights: Array, uniform: Array) -> Array:
    """The first i with Σ_{j≤i} w_j > uniform·Σ_j w_j and w_i > 0, along the last axis; uniform in [0, 1).

    The second condition guards against rounding: a running sum may grow at a zero, or stop short of the total.
    """
    reached = jnp.cumsum(weights, -1)
    positive = weights > 0
    passed = (reached > uniform[..., None] * reached[..., -1:]) & positive
    last = weights.shape[-1] - 1 - jnp.argmax(jnp.flip(positive, -1), -1)
    return jnp.where(passed.any(-1), jnp.argmax(passed, -1), last).astype(jnp.int32)


def priorities(capacity: int, *, stratified: bool = True) -> Priorities:
    """Builds the priorities of `capacity` slots.

    If `stratified`, draw i of B takes its block from the i-th of B equal parts of the total (Schaul et al., 2016),
    which spreads the B draws more evenly and keeps the expected counts. Otherwise draws are independent.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> table = priorities(4)
      >>> state = jax.jit(table.set)(table.init(), jnp.array([0, 3]), jnp.array([1.0, 3.0]))
      >>> slots, probabilities = jax.jit(table.sample, static_argnums=2)(jax.random.key(0), state, 4)
      >>> slots.tolist(), probabilities.tolist()
      ([0, 3, 3, 3], [0.25, 0.75, 0.75, 0.75])

    References:
      Schaul, Quan, Antonoglou and Silver (2016), "Prioritized experience replay".
    """
    capacity = check_count("capacity", capacity)
    block_size = math.isqrt(capacity - 1) + 1
    num_blocks = -(-capacity // block_size)

    def init() -> PrioritiesState:
        return PrioritiesState(jnp.zeros((num_blocks, block_size)), jnp.zeros(num_blocks), jnp.ones(()))

    def set_(state: PrioritiesState, slots: ArrayLike, values: ArrayLike) -> PrioritiesState:
        block, place = jnp.divmod(jnp.asarray(slots, jnp.int32), block_size)
        new = jnp.asarray(values, jnp.float32)
        # Two writes, so that the result is the same in whatever order a device writes to one slot.
        table = state.values.at[block, place].set(0).at[block, place].max(new)
        sums = state.sums.at[block].set(table[block].sum(-1))
        return PrioritiesState(table, sums, jnp.maximum(state.largest, jnp.max(new)))

    def sample(key: PRNGKey, state: PrioritiesState, batch_size: int) -> tuple[Array, Array]:
        key_block, key_place = jax.random.split(key)
        uniform = jax.random.uniform(key_block, (batch_size,))
        if stratified:
            uniform = (jnp.arange(batch_size) + uniform) / batch_size
        block = _draw(state.sums[None], uniform)
        # The place needs a second random number: the first has too few bits left to distinguish a million slots.
        place = _draw(state.values[block], jax.random.uniform(key_place, (batch_size,)))
        slots = jnp.minimum(block * block_size + place, capacity - 1)  # in range even if all are zero or NaN
        return slots, state.values[block, place] / jnp.sum(state.sums)

    return Priorities(init, set_, sample)
