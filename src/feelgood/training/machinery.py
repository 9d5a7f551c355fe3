"""The compiled parts of training on external environments; `feelgood.training.host` puts them to work."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.stages import Wrapped

from feelgood.agents import Agent, AgentState, Spaces, check_values, constant
from feelgood.envs.external import Task
from feelgood.replay import Batch
from feelgood.replay.frames import FrameReplay, FrameState, frame_replay
from feelgood.training.evaluation import acting_part
from feelgood.training.protocol import HostProtocol
from feelgood.typing import Array, PRNGKey, Scalar

__all__ = ["Lanes", "Machinery", "machinery"]


class Lanes(NamedTuple):
    """What the environments' side of a run carries on the device.

    Attributes:
      frames: the replay.
      context: of each environment's episode, (num_groups, num_lanes, ...).
      draws: the policies that act, (num_draws, ...), without what is never trained, which all share; empty where only
        the newest acts.
    """

    frames: FrameState
    context: Array
    draws: Any = ()


class Machinery(NamedTuple):
    """The compiled parts of a run.

    Attributes:
      init: `(key, hyper) -> (agent state, lanes)`; with several chains the agent's arrays have a leading axis.
      act: `(key, turn, agent, lanes, arrival, hyper, progress) -> (lanes, actions)`, both arrival and actions of the
        group whose turn it is; of the agent it needs its `acting_part`; uses up `lanes`.
      learn: `(key, count, agent, lanes, hyper, progress) -> (agent, priorities, mean potential)`, one stretch of
        gradient steps, the first of which is number `count`; uses up `agent`. All its minibatches are drawn at its
        start; the priorities are those of the replay after it.
      sync: `(agent, hyper, progress) -> agent`, the target copied; uses up `agent`.
      exploit: `(key, time, agent, context, observations, hyper) -> actions`, in evaluation; lane i follows chain i
        modulo the number of chains.
      exploit_each: the same of several evaluations at a time, all but `hyper` with one more leading axis.
      begin: `(key, num_lanes, hyper) -> context` of fresh episodes.
      is_finite: `agent -> bool`.
      replay: the replay's functions.
    """

    init: Callable[[PRNGKey, Any], tuple[AgentState, Lanes]]
    act: Wrapped
    learn: Wrapped
    sync: Callable[..., AgentState]
    exploit: Callable[..., Array]
    exploit_each: Callable[..., Array]
    begin: Callable[..., Array]
    is_finite: Callable[[AgentState], Array]
    replay: FrameReplay


def machinery(
    task: Task,
    make_agent: Callable[[Spaces, Any], Agent],
    protocol: HostProtocol,
    hyper: Any,
    schedule: Callable[[Any, Scalar], Any] = constant,
) -> Machinery:
    """Builds and jits the parts of a run.

    Args:
      task: the external environment.
      make_agent: `(spaces, hyper) -> Agent`; called with traced hyper-parameters.
      protocol: how the run goes.
      hyper: hyper-parameters as they will be given, to see what kind of agent it is.
      schedule: `(hyper, progress) -> hyper`, what the hyper-parameters are at `progress` in [0, 1] of the budget.
    """
    spaces = Spaces(task.observation_shape, task.num_actions, task.decode)
    num_lanes, num_groups, stretch = protocol.num_lanes, protocol.num_groups, protocol.stretch
    num_chains = protocol.num_chains
    num_draws = min(protocol.num_draws, num_lanes // num_chains)
    steps_per_place = max(protocol.draw_steps // num_draws, 1)  # between one draw that goes and the next
    has_priorities = make_agent(spaces, schedule(hyper, 0.0)).priorities is not None
    ring = frame_replay(
        protocol.num_rows,
        num_lanes,
        task.frame_shape,
        task.frame_dtype,
        num_actions=task.num_actions,
        stack=task.stack,
        n_step=protocol.n_step,
        num_groups=num_groups,
        # Whether an agent has priorities does not depend on the values of its hyper-parameters.
        priority_exponent=protocol.priority_exponent if has_priorities else None,
    )

    def each_chain(function: Callable, in_axes: Any = 0) -> Callable:
        return function if num_chains == 1 else jax.vmap(function, in_axes)

    def begin(key: PRNGKey, num_lanes: int, hyper: Any) -> Array:
        return jax.vmap(make_agent(spaces, schedule(hyper, 0.0)).begin)(jax.random.split(key, num_lanes))

    def init(key: PRNGKey, hyper: Any) -> tuple[AgentState, Lanes]:
        key_agent, key_context = jax.random.split(key)
        agent = make_agent(spaces, schedule(hyper, 0.0))
        check_values(agent, jnp.zeros(task.observation_shape, task.frame_dtype), task.num_actions)
        init_chains = lambda key: each_chain(agent.init)(key if num_chains == 1 else jax.random.split(key, num_chains))
        context = begin(key_context, protocol.num_envs, hyper)
        lanes = Lanes(ring.init(), context.reshape(num_groups, num_lanes, *context.shape[1:]))
        if num_draws > 1:  # all from the prior
            keys = jax.random.split(jax.random.fold_in(key_agent, 1), num_draws)
            lanes = lanes._replace(draws=jax.lax.map(lambda key: trained_of(init_chains(key)), keys))
        return init_chains(key_agent), lanes

    def trained_of(agent_state: AgentState) -> AgentState:
        return acting_part(agent_state)._replace(frozen=())

    def act(key, turn, agent_state, lanes, arrival, hyper, progress):
        agent = make_agent(spaces, schedule(hyper, progress))
        arrival = arrival._replace(reward=task.transform_reward(jnp.asarray(arrival.reward, jnp.float32)))
        frames = ring.add(lanes.frames, arrival)
        key_begin, key_explore = jax.random.split(jax.random.fold_in(key, turn))
        fresh = jax.vmap(agent.begin)(jax.random.split(key_begin, num_lanes))
        group = turn % num_groups
        context = jnp.where(jnp.asarray(arrival.is_first), fresh, lanes.context[group])
        policies, draws = agent_state, lanes.draws
        if num_draws > 1:
            # Before the first update the newest is one draw from the prior: it must not take the place of all others.
            has_learnt, step = turn >= protocol.first_block, turn // num_groups
            is_due = has_learnt & (step % steps_per_place == 0)
            place = jnp.where(is_due, step // steps_per_place % num_draws, num_draws)  # no place beyond the last
            put = lambda table, one: table.at[place].set(one, mode="drop")
            draws = policies = jax.tree.map(put, draws, trained_of(agent_state))
            if num_chains > 1:
                policies = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), draws)
                many = lambda x: jnp.tile(x, (num_draws, *[1] * (x.ndim - 1)))
                policies = policies._replace(frozen=jax.tree.map(many, agent_state.frozen))

        def explore(keys: Array, policy: AgentState, context: Array, observations: Array) -> Array:
            policy = policy if num_chains > 1 else policy._replace(frozen=agent_state.frozen)
            one = lambda key, context, seen: agent.explore(key, policy, context, seen, progress)
            return jax.vmap(one)(keys, context, observations)

        keys = jax.random.split(key_explore, num_lanes)
        actions = _dealt(explore, num_chains * num_draws, policies, keys, context, ring.newest(frames))
        return Lanes(frames, lanes.context.at[group].set(context), draws), actions

    def exploit(key, time, agent_state, context, observations, hyper):
        # The parameters do not depend on progress here, nor does the greedy choice.
        agent, num_lanes = make_agent(spaces, schedule(hyper, 1.0)), observations.shape[0]
        keys = jax.random.split(jax.random.fold_in(key, time), num_lanes)
        exploit = jax.vmap(agent.exploit, (0, None, 0, 0))
        return _dealt(exploit, num_chains, agent_state, keys, context, observations)

    def draw(key: PRNGKey, frames: FrameState, progress: Scalar) -> Batch:
        """The minibatches of a stretch, (stretch, batch_size, ...)."""
        if not has_priorities:
            batches = ring.sample(key, frames, stretch * protocol.batch_size, protocol.discount)
            return jax.tree.map(lambda x: x.reshape(stretch, protocol.batch_size, *x.shape[1:]), batches)
        # One by one, as the weights of a minibatch are relative to its largest.
        exponent = protocol.importance_exponent + (1 - protocol.importance_exponent) * progress
        one = lambda key: ring.sample(key, frames, protocol.batch_size, protocol.discount, exponent)
        return jax.vmap(one)(jax.random.split(key, stretch))

    def learn(key, count, agent_state, lanes, hyper, progress):
        agent = make_agent(spaces, schedule(hyper, progress))
        key_batches, key_updates = jax.random.split(jax.random.fold_in(key, count))
        frames = lanes.frames
        num_data = frames.size * num_lanes

        def update(state, inputs):
            key, batch, next_values = inputs
            priority = () if agent.priorities is None else agent.priorities(key, state, batch, next_values)
            state, info = agent.update(key, state, batch, num_data, next_values)
            return state, (info.potential, priority)

        def chain(key_batches, key_updates, state):
            batches = draw(key_batches, frames, progress)
            keys = jax.random.split(key_updates, stretch)
            # The target stands still during a stretch, so it looks at all its minibatches at once.
            next_values = jax.vmap(agent.look_ahead, (0, None, 0))(keys, state, batches)
            state, (potentials, priority) = jax.lax.scan(update, state, (keys, batches, next_values))
            return state, jnp.mean(potentials), (batches.slot, priority)

        if num_chains > 1:
            key_batches = jax.random.split(key_batches, num_chains)
            key_updates = jax.random.split(key_updates, num_chains)
        state, potential, (slot, priority) = each_chain(chain)(key_batches, key_updates, agent_state)
        ranks = ring.prioritise(frames, slot.ravel(), priority.ravel()).priorities if has_priorities else ()
        return state, ranks, jnp.mean(potential)

    def sync(agent_state, hyper, progress):
        return each_chain(make_agent(spaces, schedule(hyper, progress)).sync)(agent_state)

    def is_finite(state: AgentState) -> Array:
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(state.sampler.params)]))

    return Machinery(
        jax.jit(init),
        jax.jit(act, donate_argnums=3),
        jax.jit(learn, donate_argnums=2),
        jax.jit(sync, donate_argnums=0),
        jax.jit(exploit),
        jax.jit(jax.vmap(exploit, (0, 0, 0, 0, 0, None))),
        jax.jit(begin, static_argnums=1),
        jax.jit(is_finite),
        ring,
    )


def _dealt(act: Callable, num_policies: int, policies: Any, keys: Array, context: Array, observations: Array) -> Array:
    """Actions of lanes that are dealt out to policies, every `num_policies`-th lane to the same one.

    Args:
      act: `(keys, policy, context, observations) -> actions`, of the lanes of one policy.
      num_policies: how many.
      policies: with a leading axis where there are several.
      keys: (lanes, ...), as are context and observations.
    """
    if num_policies == 1:
        return act(keys, policies, context, observations)
    num_lanes = observations.shape[0]
    padding = -num_lanes % num_policies  # the last lane, again

    def deal(x: Array) -> Array:
        padded = jnp.concatenate([x, jnp.repeat(x[-1:], padding, 0)]) if padding else x
        return padded.reshape(-1, num_policies, *x.shape[1:]).swapaxes(0, 1)

    actions = jax.vmap(act)(deal(keys), policies, deal(context), deal(observations))
    return actions.swapaxes(0, 1).reshape(-1)[:num_lanes]
