"""The record of an agent, and how it is built from a network, an objective, a sampler and an exploration rule."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood.agents.exploration import Exploration, greedy
from feelgood.checks import check_kind
from feelgood.networks import Network
from feelgood.objectives import Objective, potential, target_key, together
from feelgood.samplers import Info, Sampler, SamplerState
from feelgood.typing import Array, Params, PRNGKey, Scalar


class AgentState(NamedTuple):
    """State of an agent.

    Attributes:
      sampler: the sampler's state, which holds the network's parameters.
      frozen: arrays of the network that are not trained (prior networks).
      target: the parameters that targets are computed with.
      average: moving average of the parameters, for evaluation; empty if the agent keeps none.
      unrewarded: int32, number of gradient steps before the first reward other than 0, −1 after it; empty if the agent
        does not count them. See `restless`.
      reward_scale: the unit that returns are divided by; empty if the agent does not scale them. See `bounded_rewards`.
      units: what the unit depends on, a `feelgood.agents.wrappers.Units`; empty if the agent does not scale returns.
      seen: largest absolute value of each entry of an observation so far; empty if the agent does not record it. See
        `fitted_bounds`.
      rewarded: share of transitions with a reward other than 0, a moving average; empty if the agent does not record
        it. See `mixed_horizons`.
      endless_cost: cost of an episode that never ends if every step has the same cost, 0 if this is not so, −1 before
        the first minibatch; empty if the agent leaves such costs as they are. See `without_step_cost`.
      noise_slot: uint32, number added to the slots of transitions, by which the noise on their rewards is drawn; empty
        if the agent has no such noise. See `own_reward_noise`.
    """

    sampler: SamplerState
    frozen: Any
    target: Params
    average: Any = ()
    unrewarded: Any = ()
    reward_scale: Any = ()
    units: Any = ()
    seen: Any = ()
    rewarded: Any = ()
    endless_cost: Any = ()
    noise_slot: Any = ()


class Agent(NamedTuple):
    """A value-based agent as pure functions, independent of training loops, replay and environments.

    Attributes:
      init: `key -> state`.
      begin: `key -> context`, drawn at the start of each episode and kept until its end (for example the active
        member), a pytree of arrays.
      explore: `(key, state, context, observation, progress) -> action` in training; `progress` in [0, 1] is the share
        of the budget used.
      exploit: `(key, state, context, observation) -> action` in evaluation.
      look_ahead: `(key, state, batch) -> next_values`, the target network's outputs at the next observations. The
        target is constant between two syncs, so one call can serve many minibatches, outside the loop of updates.
      update: `(key, state, batch, num_data, next_values) -> (state, info)`, one step of the sampler on one minibatch;
        `next_values` come from `look_ahead` with the same key.
      sync: `state -> state`, updates the target network, and the moving average if there is one.
      is_random: whether `exploit` is stochastic, so that one evaluation episode is not enough.
      priorities: `(key, state, batch, next_values) -> priorities ≥ 0 (B,)` at the parameters before the update. It
        takes the key and the `next_values` of that update, so that the compiler can share their computations. None for
        agents that learn from uniform samples.
      values: `(key, state, observation) -> action values (A,)`, or (M, A) of an ensemble, that evaluation acts on; None
        if actions do not come from values.
    """

    init: Callable[[PRNGKey], AgentState]
    begin: Callable[[PRNGKey], Any]
    explore: Callable[[PRNGKey, AgentState, Any, Any, Scalar], Array]
    exploit: Callable[[PRNGKey, AgentState, Any, Any], Array]
    look_ahead: Callable[[PRNGKey, AgentState, Any], Any]
    update: Callable[[PRNGKey, AgentState, Any, Scalar, Any], tuple[AgentState, Info]]
    sync: Callable[[AgentState], AgentState]
    is_random: bool = False
    priorities: Callable[[PRNGKey, AgentState, Any, Any], Array] | None = None
    values: Callable[[PRNGKey, AgentState, Any], Array] | None = None


def check_values(agent: Agent, observation: Any, num_actions: int) -> None:
    """Requires that an agent has a value for each action. Only shapes are computed.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import agents
      >>> agent = agents.make_agent("dqn", agents.Spaces((4,), num_actions=2))
      >>> check_values(agent, jnp.zeros(4), num_actions=3)
      Traceback (most recent call last):
      ...
      ValueError: an agent must return 3 values for an observation, one for each action, got shape (2,)
    """
    if agent.values is None:
        return
    values = agent.values
    shape = jax.eval_shape(lambda key: values(key, agent.init(key), observation), jax.random.key(0)).shape
    if shape[-1:] != (num_actions,):
        raise ValueError(
            f"an agent must return {num_actions} values for an observation, one for each action, got shape {shape}"
        )


def strongly_typed(tree: Any) -> Any:
    """The same arrays without JAX's weak types.

    An update returns strong types. If the initial state had weak ones, each function of it would be compiled twice.

    Examples:
      >>> import jax.numpy as jnp
      >>> weak = jnp.full((), 0.5)
      >>> weak.weak_type, strongly_typed(weak).weak_type
      (True, False)
    """

    def strong(leaf: Any) -> Array:
        array = jnp.asarray(leaf)
        return jax.lax.convert_element_type(array, array.dtype) if array.weak_type else array

    return jax.tree.map(strong, tree)


def value_agent(
    network: Network,
    objective: Objective,
    sampler: Sampler,
    exploration: Exploration | None = None,
    *,
    reduction: str = "mean",
    average_decay: Scalar | None = None,
    priority: Callable[..., Array] | None = None,
    is_random: bool = False,
    keyless_evaluation: bool = False,
) -> Agent:
    """Builds an agent: the sampler moves the network's parameters on the potential, and actions use the current ones.

    Args:
      network: maps observations to action values or to distributions; actions use `network.values`.
      objective: terms that add up to the potential.
      sampler: any sampler of this package.
      exploration: how actions are chosen from values; `greedy` if not given.
      reduction: how the losses of a minibatch are combined, "mean" or "sum"; see `feelgood.objectives.potential`.
      average_decay: ρ of a moving average w̄ ← ρ w̄ + (1 − ρ) w of the parameters, updated with the target: an estimate
        of the posterior mean if the parameters are draws from the posterior. Training acts on the current draw,
        evaluation on the average. If None, both act on the current draw.
      priority: `(q, target_q, params, batch, key) -> (B,)` or (B, M) for an ensemble, such as
        `feelgood.objectives.td_errors`; its absolute value, averaged over members, is the priority of a transition. If
        None, the agent has no priorities.
      is_random: whether evaluation is stochastic (noisy networks, an active member, quantile fractions).
      keyless_evaluation: whether the network gets no key in evaluation, so that a noisy one uses its mean weights.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> from feelgood import networks, objectives, replay, samplers
      >>> network = networks.network(lambda key: networks.mlp(key, 1, (), 1))  # Q = w·o + b
      >>> agent, key = value_agent(network, objectives.td(), samplers.from_optax(optax.sgd(0.25))), jax.random.key(0)
      >>> o, zero = jnp.ones((1, 1)), jnp.zeros(1)
      >>> batch = replay.Batch(o, zero, jnp.array([3.0]), zero, o, o, zero)  # the return 3, and the end
      >>> update = lambda state: agent.update(key, state, batch, 1, agent.look_ahead(key, state, batch))[0]
      >>> round(float(jax.jit(lambda: agent.values(key, update(agent.init(key)), o[0])[0])()), 4)  # after one step
      3.0
    """
    check_kind("network", network, Network, "a Network (feelgood.networks.network makes one from a model)")
    check_kind("objective", objective, Objective, "an Objective")
    check_kind("sampler", sampler, Sampler, "a Sampler (feelgood.samplers.from_optax makes one from an optimiser)")
    exploration = greedy() if exploration is None else exploration
    explore, exploit, values = _acting(network, exploration, average_decay is not None, keyless_evaluation)
    look_ahead, update, priorities = _learning(network, objective, sampler, reduction, priority)

    def init(key: PRNGKey) -> AgentState:
        params, frozen = network.init(key)
        return AgentState(sampler.init(params), frozen, params, () if average_decay is None else params)

    def sync(state: AgentState) -> AgentState:
        params = state.sampler.params
        mean = () if average_decay is None else optax.incremental_update(params, state.average, 1 - average_decay)
        return state._replace(target=params, average=mean)

    begin = exploration.begin
    return Agent(init, begin, explore, exploit, look_ahead, update, sync, is_random, priorities, values)


def _acting(network: Network, exploration: Exploration, averages: bool, keyless_evaluation: bool) -> tuple[Any, ...]:
    """The functions `explore`, `exploit` and `values` of an agent, see `value_agent`."""
    glance = network.apply if network.act is None else network.act

    def action_values(params, frozen, observation, key):
        return network.values(glance(params, frozen, observation, key))

    def explore(key, state, context, observation, progress):
        key_network, key_action = jax.random.split(key)
        values = action_values(state.sampler.params, state.frozen, observation, key_network)
        return exploration.explore(key_action, context, values, progress)

    def values(key, state, observation):
        params = state.average if averages else state.sampler.params
        return action_values(params, state.frozen, observation, None if keyless_evaluation else key)

    def exploit(key, state, context, observation):
        key_network, key_action = jax.random.split(key)
        return exploration.exploit(key_action, context, values(key_network, state, observation))

    return explore, exploit, values


def _learning(
    network: Network, objective: Objective, sampler: Sampler, reduction: str, priority: Callable[..., Array] | None
) -> tuple[Any, ...]:
    """The functions `look_ahead`, `update` and `priorities` of an agent, see `value_agent`."""

    def look_ahead(key, state, batch):
        key_networks, _ = jax.random.split(key)
        return network.apply(state.target, state.frozen, batch.next_observation, target_key(key_networks))

    def networks(state, next_values):
        """The online and the target network, as the terms of the objective call them."""
        q = lambda params, observation, key: network.apply(params, state.frozen, observation, key)
        return q, lambda observation, key: next_values

    def update(key, state, batch, num_data, next_values):
        key_networks, key_sampler = jax.random.split(key)
        q, target_q = networks(state, next_values)
        q = together(q, objective, batch) if network.is_large else q
        loss = potential(objective, q, target_q, batch, key_networks, reduction=reduction, num_data=num_data)
        moved, info = sampler.step(key_sampler, state.sampler, loss)
        return state._replace(sampler=moved), info

    def priorities(key, state, batch, next_values):
        assert priority is not None
        key_networks, _ = jax.random.split(key)
        errors = jnp.abs(priority(*networks(state, next_values), state.sampler.params, batch, key_networks))
        return errors.reshape(errors.shape[0], -1).mean(-1)

    return look_ahead, update, None if priority is None else priorities
