"""The learning block, the centre of both training loops.

A block draws all its minibatches at its start, because the replay does not change during the block. It cuts its
gradient steps into stretches that end when the target network is due for an update. The target is constant during a
stretch, so it evaluates the successors of the whole stretch at once; then one scan does the updates. After the last
update the new priorities go back to the replay.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import Agent, AgentState
from feelgood.replay import Batch, Replay
from feelgood.replay.frames import FrameReplay
from feelgood.training.config import TrainingConfig
from feelgood.typing import Array, PRNGKey, Scalar

_NUM_RECENT = 1_000  # transitions that `recent_share` of a minibatch is drawn from
_NUM_ALL = np.iinfo(np.int32).max


def learn(
    key_batches: PRNGKey,
    key_updates: PRNGKey,
    agent: Agent,
    replay: Replay | FrameReplay,
    config: TrainingConfig,
    state: AgentState,
    data: Any,
    num_blocks: Scalar,
    progress: Scalar,
) -> tuple[AgentState, Any, Array]:
    """Does one block of `config.updates_per_block` gradient steps.

    Args:
      key_batches: key of the minibatches.
      key_updates: key of the updates.
      state: the agent's state, with a leading axis if the run has several chains.
      data: the state of the replay; all chains share it.
      num_blocks: blocks before this one. It decides when the target is due, and must be the same for all runs of a
        `vmap`.
      progress: share of the budget used, in [0, 1].

    Returns:
      The agent's state, the new `priorities` of the replay, and the mean of the potential over the block.
    """
    num_updates, period = config.updates_per_block, config.target_update_period
    stretch = math.gcd(num_updates, period)
    shape = num_stretches, _ = num_updates // stretch, stretch
    stretches_per_sync = period // stretch
    # Modulo the period, because the count itself would overflow in a long run.
    num_before = (jnp.asarray(num_blocks, jnp.int32) % stretches_per_sync) * (num_stretches % stretches_per_sync)
    num_data = replay.num_data(data)

    def draw(key: PRNGKey) -> Batch:
        """The minibatches of the block, (stretches, updates in a stretch, batch size, ...)."""
        size, discount = config.batch_size, config.discount
        if agent.priorities is None:
            newest = None
            if config.recent_share > 0:
                is_recent = np.arange(size) < round(config.recent_share * size)
                newest = np.tile(np.where(is_recent, _NUM_RECENT, _NUM_ALL), num_updates)
            batches = replay.sample(key, data, num_updates * size, discount, newest=newest)
            return jax.tree.map(lambda x: x.reshape(*shape, size, *x.shape[1:]), batches)
        # Each minibatch is drawn by itself, because its weights are relative to their maximum.
        exponent = config.importance_exponent + (1 - config.importance_exponent) * progress
        one = lambda key: replay.sample(key, data, size, discount, exponent)
        return jax.vmap(jax.vmap(one))(jax.random.split(key, shape))

    def update(state, inputs):
        key, batch, next_values = inputs
        priorities = () if agent.priorities is None else agent.priorities(key, state, batch, next_values)
        state, info = agent.update(key, state, batch, num_data, next_values)
        return state, (info.potential, priorities)

    def learn_stretch(state, inputs):
        index, keys, batches = inputs
        next_values = jax.vmap(agent.look_ahead, (0, None, 0))(keys, state, batches)
        state, (potentials, priorities) = jax.lax.scan(update, state, (keys, batches, next_values))
        if stretches_per_sync == 1:
            state = agent.sync(state)
        else:
            is_due = (num_before + index + 1) % stretches_per_sync == 0
            state = jax.lax.cond(is_due, agent.sync, lambda state: state, state)
        return state, (jnp.mean(potentials), priorities)

    def learn_chain(key_batches, key_updates, state):
        batches = draw(key_batches)
        inputs = jnp.arange(num_stretches), jax.random.split(key_updates, shape), batches
        state, (potentials, priorities) = jax.lax.scan(learn_stretch, state, inputs)
        return state, jnp.mean(potentials), batches.slot, priorities

    if config.num_chains == 1:
        state, potential, slots, priorities = learn_chain(key_batches, key_updates, state)
    else:
        each = lambda key: jax.random.split(key, config.num_chains)
        state, potential, slots, priorities = jax.vmap(learn_chain)(each(key_batches), each(key_updates), state)
    if agent.priorities is not None:
        data = replay.prioritise(data, slots.ravel(), priorities.ravel())
    return state, data.priorities, jnp.mean(potential)
