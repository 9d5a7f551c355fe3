"""The compiled steps of training on external environments; `feelgood.training.external_run` is the loop around them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.stages import Wrapped

from feelgood.agents import Agent, AgentState, Spaces, constant
from feelgood.envs.external import ExternalEnvironment
from feelgood.replay.frames import FrameReplay, FrameState, frame_replay
from feelgood.samplers.base import is_finite
from feelgood.training.acting import Acting, acting, acting_part, deal, spaces_of
from feelgood.training.config import ExternalConfig
from feelgood.training.learning import learn
from feelgood.typing import Array, PRNGKey, Scalar


class Lanes(NamedTuple):
    """The state of the environments' side of a run on the device.

    Attributes:
      frames: the replay.
      context: context of each environment's episode, (num_groups, num_lanes, ...).
      draws: the policies that act, (num_draws, ...), without their untrained part, which all share; () if only the
        current parameters act.
    """

    frames: FrameState
    context: Array
    draws: Any = ()


class ExternalSteps(NamedTuple):
    """The compiled steps of a run.

    Attributes:
      init: `(key, hyper) -> (agent state, lanes)`; with several chains the agent's arrays have a leading axis.
      act: `(key, turn, agent, lanes, arrival, hyper, progress) -> (lanes, actions)`, where arrival and actions are of
        the group whose turn it is; needs only the agent's `acting_part`; donates `lanes`.
      learn: `(key, count, agent, lanes, hyper, progress) -> (agent, priorities, mean potential)`, one block of gradient
        steps after `count` earlier ones; donates `agent`. The priorities are the replay's after the block.
      is_finite: `agent -> bool`.
      acting: how the agent acts in evaluation.
      replay: the functions of the replay.
    """

    init: Callable[[PRNGKey, Any], tuple[AgentState, Lanes]]
    act: Wrapped
    learn: Wrapped
    is_finite: Callable[[AgentState], Array]
    acting: Acting
    replay: FrameReplay


def external_steps(
    environment: ExternalEnvironment,
    make_agent: Callable[[Spaces, Any], Agent],
    config: ExternalConfig,
    hyper: Any,
    schedule: Callable[[Any, Scalar], Any] = constant,
) -> ExternalSteps:
    """Builds and jits the steps of a run.

    Args:
      environment: the external environment.
      make_agent: `(spaces, hyper) -> Agent`; called with traced hyper-parameters.
      config: settings of the run.
      hyper: the hyper-parameters; their values do not matter here.
      schedule: `(hyper, progress) -> hyper`, the hyper-parameters at `progress` in [0, 1] of the budget.
    """
    agent_at = lambda hyper, progress: make_agent(spaces_of(environment), schedule(hyper, progress))
    in_evaluation = acting(environment, make_agent, schedule, config.num_chains)
    # Whether an agent has priorities does not depend on the values of its hyper-parameters.
    uniform = agent_at(hyper, 0.0).priorities is None
    replay = frame_replay(
        config.num_rows,
        config.num_lanes,
        environment.frame_shape,
        environment.frame_dtype,
        num_actions=environment.num_actions,
        stack=environment.stack,
        n_step=config.n_step,
        num_groups=config.num_groups,
        priority_exponent=None if uniform else config.priority_exponent,
    )
    num_draws = min(config.num_draws, config.num_lanes // config.num_chains)
    trained_part = lambda state: acting_part(state)._replace(frozen=())

    def init(key: PRNGKey, hyper: Any) -> tuple[AgentState, Lanes]:
        key_agent, key_context, key_draws = jax.random.split(key, 3)
        context = in_evaluation.begin(key_context, config.num_envs, hyper)
        lanes = Lanes(replay.init(), context.reshape(config.num_groups, config.num_lanes, *context.shape[1:]))
        if num_draws > 1:  # all from the prior
            draw = lambda key: trained_part(in_evaluation.init(key, hyper))
            lanes = lanes._replace(draws=jax.lax.map(draw, jax.random.split(key_draws, num_draws)))
        return in_evaluation.init(key_agent, hyper), lanes

    def acting_draws(turn: Array, state: AgentState, draws: Any) -> tuple[Any, AgentState]:
        """Replaces the oldest draw by the current parameters if due; returns the draws and the acting policies."""
        if num_draws == 1:
            return draws, state
        # Before the first gradient step the current parameters are one draw from the prior, which must not replace all
        # others.
        step, period = turn // config.num_groups, max(config.draw_steps // num_draws, 1)
        is_due = (turn >= config.first_block) & (step % period == 0)
        place = jnp.where(is_due, step // period % num_draws, num_draws)  # a place beyond the last is dropped
        put = lambda table, one: table.at[place].set(one, mode="drop")
        draws = jax.tree.map(put, draws, trained_part(state))
        if config.num_chains == 1:
            return draws, draws
        policies = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), draws)
        many = lambda x: jnp.tile(x, (num_draws, *[1] * (x.ndim - 1)))
        return draws, policies._replace(frozen=jax.tree.map(many, state.frozen))

    def act(key, turn, state, lanes, arrival, hyper, progress):
        agent, num_lanes, group = agent_at(hyper, progress), config.num_lanes, turn % config.num_groups
        arrival = arrival._replace(reward=environment.transform_reward(jnp.asarray(arrival.reward, jnp.float32)))
        frames = replay.add(lanes.frames, arrival)
        key_begin, key_explore = jax.random.split(jax.random.fold_in(key, turn))
        fresh = jax.vmap(agent.begin)(jax.random.split(key_begin, num_lanes))
        context = jnp.where(jnp.asarray(arrival.is_first), fresh, lanes.context[group])
        draws, policies = acting_draws(turn, state, lanes.draws)

        def explore(keys: Array, policy: AgentState, context: Array, observations: Array) -> Array:
            policy = policy if config.num_chains > 1 else policy._replace(frozen=state.frozen)
            one = lambda key, context, seen: agent.explore(key, policy, context, seen, progress)
            return jax.vmap(one)(keys, context, observations)

        keys = jax.random.split(key_explore, num_lanes)
        actions = deal(explore, config.num_chains * num_draws, policies, keys, context, replay.newest(frames))
        return Lanes(frames, lanes.context.at[group].set(context), draws), actions

    def learn_block(key, count, state, lanes, hyper, progress):
        key_batches, key_updates = jax.random.split(jax.random.fold_in(key, count))
        where = (agent_at(hyper, progress), replay, config, state, lanes.frames)
        return learn(key_batches, key_updates, *where, count // config.updates_per_block, progress)

    return ExternalSteps(
        jax.jit(init),
        jax.jit(act, donate_argnums=3),
        jax.jit(learn_block, donate_argnums=2),
        jax.jit(lambda state: is_finite(state.sampler.params)),
        in_evaluation,
        replay,
    )
