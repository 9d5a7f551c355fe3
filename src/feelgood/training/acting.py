"""How trained agents act on external environments, compiled; several chains share the environments."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from feelgood.agents import Agent, AgentState, Spaces, check_values, strongly_typed
from feelgood.envs.external import ExternalEnvironment
from feelgood.typing import Array, PRNGKey, Scalar


def acting_part(agent: AgentState) -> AgentState:
    """The part of an agent's state that acting needs: no momentum, moments or target network, for example."""
    sampler = agent.sampler._replace(memory=())
    return agent._replace(sampler=sampler, target=(), rewarded=(), noise_slot=(), units=())


def policy_of(agent: AgentState) -> AgentState:
    """A copy of the part of an agent's state that acting needs."""
    return jax.tree.map(jnp.copy, acting_part(agent))


def spaces_of(environment: ExternalEnvironment) -> Spaces:
    """The spaces for which an agent is made."""
    stored = jax.ShapeDtypeStruct(environment.observation_shape, environment.frame_dtype)
    shape, bound = jax.eval_shape(environment.decode, stored).shape, environment.observation_bound
    return Spaces(shape, environment.num_actions, environment.decode, environment.is_one_hot, bound)


class Acting(NamedTuple):
    """Acting in evaluation as compiled functions.

    Attributes:
      init: `(key, hyper) -> agent state`; with several chains its arrays have a leading axis.
      begin: `(key, num_lanes, hyper) -> context` of new episodes.
      exploit: `(key, time, agent, context, observations, hyper) -> actions`; lane i follows chain i modulo the number
        of chains.
      exploit_each: the same for several evaluations at a time: all arguments but `hyper` have one more leading axis.
    """

    init: Callable[[PRNGKey, Any], AgentState]
    begin: Callable[..., Array]
    exploit: Callable[..., Array]
    exploit_each: Callable[..., Array]


def acting(
    environment: ExternalEnvironment,
    make_agent: Callable[[Spaces, Any], Agent],
    schedule: Callable[[Any, Scalar], Any],
    num_chains: int = 1,
) -> Acting:
    """Builds and jits the functions; for the arguments see `feelgood.training.external_steps.external_steps`."""
    spaces = spaces_of(environment)

    def init(key: PRNGKey, hyper: Any) -> AgentState:
        agent = make_agent(spaces, schedule(hyper, 0.0))
        check_values(agent, jnp.zeros(environment.observation_shape, environment.frame_dtype), environment.num_actions)
        state = agent.init(key) if num_chains == 1 else jax.vmap(agent.init)(jax.random.split(key, num_chains))
        return strongly_typed(state)

    def begin(key: PRNGKey, num_lanes: int, hyper: Any) -> Array:
        return jax.vmap(make_agent(spaces, schedule(hyper, 0.0)).begin)(jax.random.split(key, num_lanes))

    def exploit(key, time, state, context, observations, hyper):
        # Neither the parameters nor the greedy choice depend on progress here.
        agent = make_agent(spaces, schedule(hyper, 1.0))
        keys = jax.random.split(jax.random.fold_in(key, time), observations.shape[0])
        return deal(jax.vmap(agent.exploit, (0, None, 0, 0)), num_chains, state, keys, context, observations)

    return Acting(
        jax.jit(init),
        jax.jit(begin, static_argnums=1),
        jax.jit(exploit),
        jax.jit(jax.vmap(exploit, (0, 0, 0, 0, 0, None))),
    )


def deal(act: Callable, num_policies: int, policies: Any, keys: Array, context: Array, observations: Array) -> Array:
    """Actions of lanes that share several policies: lane i follows policy i modulo `num_policies`.

    Args:
      act: `(keys, policy, context, observations) -> actions`, for the lanes of one policy.
      num_policies: their number.
      policies: with a leading axis if there are several.
      keys: (lanes, ...), as are context and observations.
    """
    if num_policies == 1:
        return act(keys, policies, context, observations)
    num_lanes = observations.shape[0]
    padding = -num_lanes % num_policies  # repeats the last lane

    def spread(x: Array) -> Array:
        padded = jnp.concatenate([x, jnp.repeat(x[-1:], padding, 0)]) if padding else x
        return padded.reshape(-1, num_policies, *x.shape[1:]).swapaxes(0, 1)

    actions = jax.vmap(act)(spread(keys), policies, spread(context), spread(observations))
    return actions.swapaxes(0, 1).reshape(-1)[:num_lanes]
