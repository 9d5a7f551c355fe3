"""N-chain: a long walk past a small reward on the left to a large one on the right.

States s₁, …, s_N in a row (indices 0, …, N − 1 in the code), start s₂, actions 0 = left and 1 = right; a move against
an end of the chain stays there. The observation of state s is the thermometer (1{x ≤ s})_x in {0, 1}^N.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_choice, check_count
from feelgood.envs.base import Environment, Spec, Step
from feelgood.typing import Array, PRNGKey

_EXTRA_STEPS = {"released": 8, "paper": 9}


class NChainState(NamedTuple):
    """State of the walk.

    Attributes:
      position: int32 index of the state, 0 for s₁.
      time: int32 count of steps taken in this episode.
    """

    position: Array
    time: Array


def nchain(
    num_states: int,
    *,
    variant: str = "released",
    timeout: str = "terminated",
    small_reward: float = 0.001,
    large_reward: float = 1.0,
) -> Environment:
    """Builds the N-chain with N = `num_states`: a small reward at the left end, a large one at the right end.

    The two variants differ in length and reward:

    - "released", the authors' code: N + 8 steps; the reward belongs to the state and action *before* the move,
      `large_reward` for going right at s_N and `small_reward` for going left at s₁. Always right returns exactly
      10·large_reward.
    - "paper", the text read literally: N + 9 steps; the reward belongs to the state *arrived at*, `large_reward` in s_N
      and `small_reward` in s₁, whichever action led there. Always right returns 12·large_reward; the text's own optimal
      return of 10 holds for "released" only.

    Observations carry no time although episodes end by time, so the process is not quite Markov.

    Args:
      num_states: N > 3.
      variant: "released" or "paper".
      timeout: how the last step is marked. "terminated" (the released code) means no value past the end; "truncated"
        lets an agent bootstrap from the final observation.
      small_reward: reward at the left end.
      large_reward: reward at the right end.

    Returns:
      An environment with int8 observations of shape (N,), stored by `encode` as one unsigned integer.

    Examples:
      >>> import jax
      >>> from feelgood import envs
      >>> env, key = envs.nchain(4), jax.random.key(0)
      >>> (state, observation), move = env.reset(key), jax.jit(env.step)
      >>> rewards = []
      >>> for _ in range(env.spec.max_episode_steps):  # always right
      ...     state, step = move(key, state, 1)
      ...     rewards.append(int(step.reward))
      >>> observation.tolist(), rewards
      ([1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    """
    check_choice("variant", variant, _EXTRA_STEPS)
    check_choice("timeout", timeout, ("terminated", "truncated"))
    num_states = check_count("num_states", num_states, minimum=4)
    last = num_states - 1
    num_steps = num_states + _EXTRA_STEPS[variant]
    code_dtype = np.min_scalar_type(last)

    def encode(observation: ArrayLike) -> Array:
        return (jnp.sum(jnp.asarray(observation), -1, dtype=jnp.int32) - 1).astype(code_dtype)

    def decode(code: ArrayLike) -> Array:
        code = jnp.asarray(code, jnp.int32)[..., None]
        index = jax.lax.broadcasted_iota(jnp.int32, (*code.shape[:-1], last + 1), code.ndim - 1)
        return (index <= code).astype(jnp.int8)

    def reset(key: PRNGKey) -> tuple[NChainState, Array]:
        del key  # every episode starts in s₂
        state = NChainState(jnp.asarray(1, jnp.int32), jnp.asarray(0, jnp.int32))
        return state, decode(state.position)

    def step(key: PRNGKey, state: NChainState, action: ArrayLike) -> tuple[NChainState, Step]:
        del key  # moves are deterministic
        right = jnp.asarray(action) == 1
        position = jnp.clip(state.position + jnp.where(right, 1, -1), 0, last)
        if variant == "released":
            at_left, at_right = ~right & (state.position == 0), right & (state.position == last)
        else:
            at_left, at_right = position == 0, position == last
        reward = jnp.where(at_left, small_reward, 0.0) + jnp.where(at_right, large_reward, 0.0)
        time = state.time + 1
        end, never = time >= num_steps, jnp.zeros((), bool)
        terminated, truncated = (end, never) if timeout == "terminated" else (never, end)
        return NChainState(position, time), Step(decode(position), reward.astype(jnp.float32), terminated, truncated)

    same: dict[str, Any] = {"fixed_start": True, "is_random": False, "name": f"nchain-{last + 1}"}
    spec = Spec((last + 1,), np.dtype(np.int8), 2, num_steps, observation_low=0, observation_high=1, **same)
    return Environment(reset, step, spec, encode, decode)
