"""The record of an agent, and how it is built from a network, an objective, a sampler and an exploration rule."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

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
      reward_scale: the number ≥ 1 that returns are divided by; empty if the agent does not scale them. See
        `bounded_rewards`.
      seen: largest absolute value of each entry of an observation so far; empty if the agent does not look. See
        `fitted_bounds`.
    """

    sampler: SamplerState
    frozen: Any
    target: Params
    average: Any = ()
    unrewarded: Any = ()
    reward_scale: Any = ()
    seen: Any = ()


class Agent(NamedTuple):
    """A value-based agent as pure functions, independent of training loops, replay and environments.

    Attributes:
      init: `key -> state`.
      begin: `key -> context`, drawn at the start of each episode and kept until its end (the active member, say).
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
    begin: Callable[[PRNGKey], Array]
    explore: Callable[[PRNGKey, AgentState, Array, Any, Scalar], Array]
    exploit: Callable[[PRNGKey, AgentState, Array, Any], Array]
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


class Exploration(NamedTuple):
    """An exploration rule: how actions are chosen from action values.

    Attributes:
      begin: `key -> context`, called once per episode.
      explore: `(key, context, values, progress) -> action`.
      exploit: `(key, context, values) -> action`.
    """

    begin: Callable[[PRNGKey], Array]
    explore: Callable[[PRNGKey, Array, Array, Scalar], Array]
    exploit: Callable[[PRNGKey, Array, Array], Array]


def _no_context(key: PRNGKey) -> Array:
    del key
    return jnp.zeros((), jnp.int32)


def _best(values: Array) -> Array:
    return jnp.argmax(values, -1).astype(jnp.int32)


def greedy() -> Exploration:
    """Takes the greedy action: the randomness of the sampled parameters explores.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> int(greedy().exploit(jax.random.key(0), jnp.array(0), jnp.array([0.1, 0.7, 0.2])))
      1
    """
    return Exploration(
        _no_context, lambda key, context, values, progress: _best(values), lambda key, context, values: _best(values)
    )


def _perturbed(key: PRNGKey, action: Array, num_actions: int, epsilon: Scalar) -> Array:
    key_coin, key_action = jax.random.split(key)
    other = jax.random.randint(key_action, action.shape, 0, num_actions, jnp.int32)
    return jnp.where(jax.random.uniform(key_coin, action.shape) < epsilon, other, action)


def _linear(start: Scalar, end: Scalar, fraction: Scalar, progress: Scalar) -> Array:
    share = progress / jnp.where(jnp.asarray(fraction) > 0, fraction, 1.0)
    return start + (end - start) * jnp.where(progress < fraction, share, 1.0)


def epsilon_greedy(start: Scalar = 1.0, end: Scalar = 0.01, fraction: Scalar = 0.1) -> Exploration:
    """Takes a uniform action with probability ε, which falls linearly over the first `fraction` of the budget.

    Evaluation is greedy.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> rule, values = epsilon_greedy(start=1.0, end=0.0, fraction=0.5), jnp.array([0.1, 0.7])
      >>> keys = jax.random.split(jax.random.key(0), 1000)
      >>> actions = jax.jit(jax.vmap(lambda key, progress: rule.explore(key, 0, values, progress), (0, None)))
      >>> [round(actions(keys, progress).tolist().count(1) / 1000, 1) for progress in (0.0, 0.2, 0.5)]  # 1 - ε/2
      [0.5, 0.7, 1.0]
    """

    def explore(key, context, values, progress):
        return _perturbed(key, _best(values), values.shape[-1], _linear(start, end, fraction, progress))

    return Exploration(_no_context, explore, lambda key, context, values: _best(values))


def one_member_an_episode(
    num_members: int, start: Scalar = 1.0, end: Scalar = 0.01, fraction: Scalar = 0.1
) -> Exploration:
    """Follows one ensemble member, drawn at the start of each episode, in training and in evaluation.

    In training, actions are ε-greedy with the schedule of `epsilon_greedy`. Values have shape (members, actions).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> rule, values = one_member_an_episode(2), jnp.array([[1.0, 0.0], [0.0, 1.0]])
      >>> [int(rule.exploit(jax.random.key(0), jnp.array(member), values)) for member in range(2)]
      [0, 1]
    """

    def begin(key: PRNGKey) -> Array:
        return jax.random.randint(key, (), 0, num_members, jnp.int32)

    def explore(key, context, values, progress):
        return _perturbed(key, _best(values[context]), values.shape[-1], _linear(start, end, fraction, progress))

    return Exploration(begin, explore, lambda key, context, values: _best(values[context]))


# The context of an episode is one integer: 10 bits for the member, 8 for ε in units of 1/256, 13 for the steady action,
# where 0 is none. 7,560 is a multiple of all numbers to 10 and of 18: modulo the number of actions it stays uniform.
_MOST_MEMBERS, _NUM_STEADY = 1024, 7560


def _packed(member: Array, epsilon: Array, steady_action: Array) -> Array:
    return member + (jnp.floor(256 * epsilon).astype(jnp.int32).clip(0, 255) << 10) + (steady_action << 18)


def _unpacked(context: Array) -> tuple[Array, Array, Array]:
    return context & 1023, ((context >> 10) & 255) / 256, context >> 18


def one_draw_an_episode(num_members: int, dither: Scalar = 0.0) -> Exploration:
    """Follows one member of an ensemble, drawn for each episode; evaluation follows the vote of all members.

    A share `dither` of the episodes also has random actions, with a probability ε that is drawn for the episode. In
    half of them each random action is uniform, and ε is uniform in [0, 1): they leave loops in which a greedy member
    would stay. In the other half all random actions are the same one, drawn for the episode, and ε = 1 − u² for a
    uniform u: they go far in one direction, past states whose values are not learnt yet. Values have
    shape (members, actions).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> rule, values = one_draw_an_episode(3), jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> explore, exploit, key = jax.jit(rule.explore), jax.jit(rule.exploit), jax.random.key(0)
      >>> int(explore(key, 0, values, 0.0)), int(exploit(key, 0, values))  # member 0 alone, and the vote
      (0, 1)
    """
    if num_members > _MOST_MEMBERS:
        raise ValueError(f"num_members must be at most {_MOST_MEMBERS}, got {num_members}")

    def begin(key: PRNGKey) -> Array:
        key_member, key_kind, key_epsilon, key_action = jax.random.split(key, 4)
        member = jax.random.randint(key_member, (), 0, num_members)
        kind, u = jax.random.uniform(key_kind), jax.random.uniform(key_epsilon)
        is_steady = kind < 0.5 * jnp.asarray(dither)
        epsilon = jnp.where(is_steady, 1 - u**2, jnp.where(kind < dither, u, 0.0))
        steady_action = jnp.where(is_steady, 1 + jax.random.randint(key_action, (), 0, _NUM_STEADY), 0)
        return _packed(member, epsilon, steady_action)

    def explore(key, context, values, progress):
        member, epsilon, steady_action = _unpacked(context)
        key_coin, key_action = jax.random.split(key)
        num_actions = values.shape[-1]
        uniform_action = jax.random.randint(key_action, (), 0, num_actions, jnp.int32)
        other = jnp.where(steady_action > 0, (steady_action - 1) % num_actions, uniform_action)
        return jnp.where(jax.random.uniform(key_coin) < epsilon, other, _best(values[member]))

    def exploit(key, context, values):
        # Members may have values of different size, so each has one vote; the mean value decides between equal votes.
        votes = jnp.sum(jax.nn.one_hot(_best(values), values.shape[-1]), -2)
        return _best(jnp.where(votes == votes.max(-1, keepdims=True), values.mean(-2), -jnp.inf))

    return Exploration(begin, explore, exploit)


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
    glance = network.apply if network.act is None else network.act

    def action_values(params, frozen, observation, key):
        return network.values(glance(params, frozen, observation, key))

    def init(key: PRNGKey) -> AgentState:
        params, frozen = network.init(key)
        return AgentState(sampler.init(params), frozen, params, () if average_decay is None else params)

    def explore(key, state, context, observation, progress):
        key_network, key_action = jax.random.split(key)
        values = action_values(state.sampler.params, state.frozen, observation, key_network)
        return exploration.explore(key_action, context, values, progress)

    def values(key, state, observation):
        params = state.sampler.params if average_decay is None else state.average
        return action_values(params, state.frozen, observation, None if keyless_evaluation else key)

    def exploit(key, state, context, observation):
        key_network, key_action = jax.random.split(key)
        return exploration.exploit(key_action, context, values(key_network, state, observation))

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

    def sync(state: AgentState) -> AgentState:
        params = state.sampler.params
        mean = () if average_decay is None else optax.incremental_update(params, state.average, 1 - average_decay)
        return state._replace(target=params, average=mean)

    return Agent(
        init,
        exploration.begin,
        explore,
        exploit,
        look_ahead,
        update,
        sync,
        is_random,
        None if priority is None else priorities,
        values,
    )
