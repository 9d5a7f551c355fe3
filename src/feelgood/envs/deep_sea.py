"""Deep sea: a diver who must go right at every one of N steps, against a small cost, to reach a treasure.

A grid of N × N cells (Osband et al., 2019, after bsuite). An episode starts top left and sinks one row a step; "right"
and "left" move one column, and the action that moves right differs from cell to cell. Uniform play finds the treasure
once in 2^N episodes; every policy that does not find it has a return of at most 0.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count, check_non_negative
from feelgood.envs.base import Environment, Spec, Step
from feelgood.typing import Array, PRNGKey, Scalar


class DeepSeaState(NamedTuple):
    """State of the dive.

    Attributes:
      row: int32 row of the diver, which is also the time.
      column: int32 column of the diver.
      is_bad: bool; whether the diver has gone left from a cell of the diagonal, which makes an episode bad for bsuite.
        Without wind, the bad episodes are those that miss the treasure; with wind, an episode that the wind blew off
        the diagonal misses the treasure without being bad.
    """

    row: Array
    column: Array
    is_bad: Array


def deep_sea(
    size: int,
    *,
    windy: bool = False,
    move_cost: Scalar = 0.01,
    mapping_seed: int | None = 0,
    mapping: ArrayLike | None = None,
) -> Environment:
    """Builds bsuite's deep sea with N = `size`: only N right moves in a row reach the treasure, and each has a cost.

    Always right returns 1 − `move_cost`: each of N moves costs `move_cost`/N, and the last one, from the cell at the
    bottom right, pays 1.

    Args:
      size: N ≥ 2.
      windy: whether "right" fails to move with probability 1/N, at its cost, and standard normal noise is added to the
        reward in the outer two cells of the last row.
      move_cost: total cost of N moves to the right.
      mapping_seed: seed of the mapping from actions to moves, which is bsuite's of the same seed; None for 0 = left
        and 1 = right everywhere.
      mapping: (N, N) array of the action, 0 or 1, that moves right in each cell, in place of `mapping_seed`; it may be
        traced, so that the runs of a `vmap` have a mapping each. See `deep_sea_mapping`.

    Returns:
      An environment with one-hot float32 observations of shape (N, N), all zeros at the end, stored by `encode` as one
      unsigned integer.

    Examples:
      >>> import jax
      >>> from feelgood import envs
      >>> env, key = envs.deep_sea(2, mapping_seed=None), jax.random.key(0)
      >>> move = jax.jit(env.step)
      >>> state, step = move(key, env.reset(key)[0], 1)
      >>> state, last_step = move(key, state, 1)
      >>> round(float(step.reward), 3), round(float(last_step.reward), 3)
      (-0.005, 0.995)
    """
    size = check_count("size", size, minimum=2)
    check_non_negative("move_cost", move_cost)
    right_is = jnp.asarray(deep_sea_mapping(size, mapping_seed) if mapping is None else mapping, jnp.int32)
    if right_is.shape != (size, size):
        raise ValueError(f"mapping must have shape {(size, size)}, got {right_is.shape}")
    code_dtype = np.min_scalar_type(size**2)

    def encode(observation: ArrayLike) -> Array:
        flat = jnp.asarray(observation).reshape(*jnp.shape(observation)[:-2], size**2)
        return jnp.where(flat.any(-1), jnp.argmax(flat, -1), size**2).astype(code_dtype)

    def decode(code: ArrayLike) -> Array:
        flat = jax.nn.one_hot(jnp.asarray(code, jnp.int32), size**2)  # zeros for N², the end
        return flat.reshape(*flat.shape[:-1], size, size)

    def show(state: DeepSeaState) -> Array:
        return decode(jnp.where(state.row < size, state.row * size + state.column, size**2))

    def reset(key: PRNGKey) -> tuple[DeepSeaState, Array]:
        del key  # every episode starts top left
        state = DeepSeaState(jnp.asarray(0, jnp.int32), jnp.asarray(0, jnp.int32), jnp.zeros((), bool))
        return state, show(state)

    def step(key: PRNGKey, state: DeepSeaState, action: ArrayLike) -> tuple[DeepSeaState, Step]:
        row, column, is_bad = state
        right = jnp.asarray(action) == right_is[row, column]
        moves, paid = right, jnp.where(right & (column == size - 1), 1.0, 0.0)
        if windy:
            key_wind, key_noise = jax.random.split(key)
            moves = right & (jax.random.uniform(key_wind) > 1 / size)
            outer = (row == size - 1) & ((column == 0) | (column == size - 1))
            paid += jnp.where(outer, jax.random.normal(key_noise), 0.0)
        reward = paid - jnp.where(right, move_cost / size, 0.0)
        column_after = jnp.clip(column + jnp.where(right, moves.astype(jnp.int32), -1), 0, size - 1)
        after = DeepSeaState(row + 1, column_after, is_bad | (~right & (row == column)))
        return after, Step(show(after), reward.astype(jnp.float32), after.row >= size, jnp.zeros((), bool))

    kind: dict[str, Any] = {"fixed_start": True, "is_random": windy, "name": f"deep_sea-{size}", "is_one_hot": True}
    spec = Spec((size, size), np.dtype(np.float32), 2, size, observation_low=0, observation_high=1, **kind)
    return Environment(reset, step, spec, encode, decode)


def deep_sea_mapping(size: int, mapping_seed: int | None) -> np.ndarray:
    """(N, N) array of the action that moves right in each cell: bsuite's mapping of that seed, or ones for None.

    Examples:
      >>> deep_sea_mapping(3, mapping_seed=None).tolist(), deep_sea_mapping(3, mapping_seed=1).tolist()
      ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], [[0, 1, 0], [0, 0, 0], [0, 0, 0]])
    """
    if mapping_seed is None:
        return np.ones((size, size), np.int64)
    mapping_seed = check_count("mapping_seed", mapping_seed, minimum=0)
    return np.random.RandomState(mapping_seed).binomial(1, 0.5, (size, size))
