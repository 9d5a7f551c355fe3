"""Agents made from other agents: several chains, random episodes until a reward is found, returns and observations of
bounded size, costs per step as rewards."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from feelgood.agents.base import Agent, AgentState
from feelgood.checks import check_count
from feelgood.typing import Array, PRNGKey, Scalar


def one_chain_an_episode(agent: Agent, num_chains: int) -> Agent:
    """Acts by one of several chains of an agent, drawn for each episode, in training and in evaluation.

    The chains are a leading axis of the agent's state; the training loop updates each with its own minibatches
    (`num_chains` of `feelgood.training.FunctionalConfig`). They start at different draws of the prior and have
    different noise, so together they are draws from the posterior, as members of an ensemble are. The other functions
    of the agent are for one chain.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import agents
      >>> agent = one_chain_an_episode(agents.make_agent("ulmcdqn", agents.Spaces((4,), num_actions=2)), 3)
      >>> state, key = agent.init(jax.random.key(0)), jax.random.key(1)
      >>> jax.tree.leaves(state.sampler.params)[0].shape[0], int(agent.begin(key)[0]) in range(3)
      (3, True)
      >>> agent.exploit(key, state, agent.begin(key), jnp.ones(4)).shape
      ()
    """
    check_count("num_chains", num_chains)
    if num_chains == 1:
        return agent
    chain_of = lambda state, chain: jax.tree.map(lambda leaf: leaf[chain], state)

    def init(key: PRNGKey) -> AgentState:
        return jax.vmap(agent.init)(jax.random.split(key, num_chains))

    def begin(key: PRNGKey) -> tuple[Array, Any]:
        key_chain, key_context = jax.random.split(key)
        return jax.random.randint(key_chain, (), 0, num_chains), agent.begin(key_context)

    def explore(key, state, context, observation, progress):
        chain, context = context
        return agent.explore(key, chain_of(state, chain), context, observation, progress)

    def exploit(key, state, context, observation):
        chain, context = context
        return agent.exploit(key, chain_of(state, chain), context, observation)

    return agent._replace(init=init, begin=begin, explore=explore, exploit=exploit, is_random=True)


def restless(agent: Agent, num_actions: int, patience: int = 1000) -> Agent:
    """Lets every other member of an ensemble act uniformly at random as long as no reward was found.

    If all rewards are 0, members learn the value 0 everywhere, also in states they have not visited, and then walk in
    loops. After `patience` gradient steps on returns of 0, half of the episodes are therefore random, until a minibatch
    holds another return. If such a return is found earlier, the agent is unchanged. Contexts are those of
    `one_draw_an_episode`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import agents
      >>> agent = agents.make_agent("lmcdqn", agents.Spaces((1,), 1000))._replace(explore=lambda *_: jnp.array(0))
      >>> agent = restless(agent, num_actions=1000, patience=10)  # this agent always takes action 0
      >>> state = lambda steps: agents.AgentState(sampler=None, frozen=None, target=None, unrewarded=steps)
      >>> [int(agent.explore(jax.random.key(0), state(steps), 1, None, 0.0)) for steps in (9, 10, -1)]
      [0, 22, 0]
    """

    def init(key: PRNGKey) -> AgentState:
        return agent.init(key)._replace(unrewarded=jnp.zeros((), jnp.int32))

    def explore(key, state, context, observation, progress):
        key_agent, key_uniform = jax.random.split(key)
        action = agent.explore(key_agent, state, context, observation, progress)
        uniform = jax.random.randint(key_uniform, action.shape, 0, num_actions, jnp.int32)
        return jnp.where((state.unrewarded >= patience) & (context % 2 == 1), uniform, action)

    def update(key, state, batch, num_data, next_values):
        moved, info = agent.update(key, state, batch, num_data, next_values)
        is_rewarded = (state.unrewarded < 0) | jnp.any(batch.return_ != 0)
        return moved._replace(unrewarded=jnp.where(is_rewarded, -1, state.unrewarded + 1)), info

    return agent._replace(init=init, explore=explore, update=update)


def _learns_from(
    agent: Agent,
    changed: Callable[[AgentState, Any], tuple[AgentState, Any]],
    in_returns: Callable[[AgentState, Array], Array],
) -> Agent:
    """The agent that learns from changed minibatches; `in_returns` takes its values back to the unit of the returns."""

    def update(key, state, batch, num_data, next_values):
        return agent.update(key, *changed(state, batch), num_data, next_values)

    def priorities(key, state, batch, next_values):
        assert agent.priorities is not None
        return agent.priorities(key, *changed(state, batch), next_values)

    def values(key, state, observation):
        assert agent.values is not None
        return in_returns(state, agent.values(key, state, observation))

    return agent._replace(
        update=update,
        priorities=None if agent.priorities is None else priorities,
        values=None if agent.values is None else values,
    )


def _has_free_steps(batch: Any) -> Array:
    """Whether some step that does not end an episode has the return 0."""
    return jnp.any((batch.return_ == 0) & (batch.bootstrap_discount > 0))


class Units(NamedTuple):
    """What the unit of returns depends on, see `bounded_rewards`.

    Attributes:
      hope: the size of rewards that the agent hopes for.
      largest_return: the largest return so far, −∞ before the first minibatch.
      largest_loss: the largest loss so far.
      usual_loss: the largest median loss of a minibatch so far.
    """

    hope: Any = 1.0
    largest_return: Any = -jnp.inf
    largest_loss: Any = 0.0
    usual_loss: Any = 0.0


def bounded_rewards(
    agent: Agent, largest_loss: float = 100.0, *, floor: Scalar = 1.0, search_factor: Scalar = 0.0
) -> Agent:
    """Divides returns by a unit, so that priors, step sizes and feel-good weights suit rewards of any size.

    The unit is the largest of

    - the largest return so far: a reward well above the prior's scale would end exploration.
    - the hope h, times the `floor` once there was a positive return. Usually h = 1, so that smaller returns are left
      unchanged: a small reward on the way to a large one must look small. A floor that falls during a run gives up on
      rewards that are larger than those found.
    - the median loss of each minibatch so far: values are then at least about −1/(1 − discount). Adam with a step size
      of 10⁻³ takes tens of thousands of updates to reach much lower values.
    - 1/`largest_loss` of the largest loss so far: losses do not end exploration, and rewards of −1 per step are common
      next to larger penalties, so only very large losses are scaled.

    If some steps are free, most steps of a minibatch have losses, of median c, and no return was positive so far, all
    draws would agree that free steps are best, unless a prior promises as much as a search costs. So h is then at least
    `search_factor`·c/(1 − discount), with a horizon of at most 1,000 steps. Each minibatch with a positive return
    lowers h by 1%, to 1 at least. `values` are in the unit of the returns, once the network has learnt in this unit.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import agents, replay
      >>> agent = agents.make_agent("dqn", agents.Spaces((1,), 2))
      >>> agent = bounded_rewards(agent._replace(update=lambda key, state, batch, *_: (state, batch.return_)))
      >>> state = agents.AgentState(sampler=None, frozen=None, target=None, units=agents.wrappers.Units())
      >>> batch = replay.Batch(None, None, jnp.array([8.0, 0.5, -1.0]), jnp.zeros(3), None, None, None)
      >>> agent.update(None, state, batch, 3, None)[1].tolist()  # the returns that the agent inside gets
      [1.0, 0.0625, -0.125]
    """

    def init(key: PRNGKey) -> AgentState:
        return agent.init(key)._replace(reward_scale=jnp.ones(()), units=jax.tree.map(jnp.float32, Units()))

    def scaled(state: AgentState, batch: Any) -> tuple[AgentState, Any]:
        before, losses, gain = state.units, -batch.return_, jnp.max(batch.return_)
        largest = jnp.maximum(before.largest_return, gain)
        worst = jnp.maximum(before.largest_loss, jnp.max(losses))
        usual = jnp.maximum(before.usual_loss, jnp.median(losses))
        search = search_factor * usual / jnp.maximum(1 - jnp.max(batch.bootstrap_discount), 1e-3)
        is_search = _has_free_steps(batch) & (largest <= 0)
        hope = jnp.where(is_search, jnp.maximum(before.hope, search), before.hope)
        hope = jnp.where(gain > 0, jnp.maximum(0.99 * hope, 1), hope)
        hoped = hope * jnp.where(largest > 0, floor, 1.0)
        unit = jnp.max(jnp.stack([largest, hoped, usual, worst / largest_loss]))
        state = state._replace(reward_scale=unit, units=Units(hope, largest, worst, usual))
        return state, batch._replace(return_=batch.return_ / unit)

    return _learns_from(agent, scaled, lambda state, values: state.reward_scale * values)._replace(init=init)


def without_step_cost(agent: Agent) -> Agent:
    """Replaces a constant cost per step by a reward for the end of the episode; the optimal policy is the same.

    If every step costs c, values are far below 0 where the agent has been and near 0 where it has not. A network
    also lowers the values of states nearby, and the search for the end becomes a matter of luck. So values are measured
    from the worst case, an episode that never ends, and in units of its cost s = c/(1 − γ): Q' = Q/s + 1. The Bellman
    equation of Q' has the return R/s + 1 − B in place of R, where B is the bootstrap discount. It is 0 for a step of
    cost c and about 1 for the end: a task with a sparse reward, which the priors explore.

    The cost c is the return that at least 9 in 10 transitions of the first minibatch have, if it is negative. Otherwise
    the agent is unchanged. `values` are in the unit of the returns.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import agents, replay
      >>> agent = agents.make_agent("dqn", agents.Spaces((1,), 2))
      >>> agent = without_step_cost(agent._replace(update=lambda key, state, batch, *_: (state, batch.return_)))
      >>> state = agents.AgentState(sampler=None, frozen=None, target=None, endless_cost=-1.0)
      >>> costs, discounts = jnp.full(10, -2.0), jnp.full(10, 0.5).at[0].set(0.0)  # the first step ends an episode
      >>> batch = replay.Batch(None, None, costs, discounts, None, None, None)
      >>> state, returns = agent.update(None, state, batch, 10, None)
      >>> float(state.endless_cost), returns[:3].tolist()  # 2 + 1 + 0.5 + …; the returns that the agent inside gets
      (4.0, [0.5, 0.0, 0.0])
    """

    def init(key: PRNGKey) -> AgentState:
        return agent.init(key)._replace(endless_cost=-jnp.ones(()))

    def replaced(state: AgentState, batch: Any) -> tuple[AgentState, Any]:
        usual = jnp.median(batch.return_)
        is_usual = batch.return_ == usual
        discount = jnp.max(jnp.where(is_usual, batch.bootstrap_discount, 0))
        has_cost = (usual < 0) & (jnp.mean(is_usual) >= 0.9) & (discount < 1)
        first = jnp.where(has_cost, -usual / (1 - discount), 0.0)
        cost = jnp.where(state.endless_cost < 0, first, state.endless_cost)
        return_ = batch.return_ / jnp.where(cost > 0, cost, 1) + jnp.where(cost > 0, 1 - batch.bootstrap_discount, 0)
        # Rounding must not turn the usual return into a reward.
        return_ = jnp.where((cost > 0) & (jnp.abs(return_) < 1e-5), 0, return_)
        return state._replace(endless_cost=cost), batch._replace(return_=return_)

    def in_returns(state: AgentState, values: Array) -> Array:
        return jnp.where(state.endless_cost > 0, state.endless_cost * (values - 1), values)

    return _learns_from(agent, replaced, in_returns)._replace(init=init)


def mixed_horizons(agent: Agent, powers: Array) -> Agent:
    """Gives each member of an ensemble a horizon of its own: member m has the discount to the power c_m.

    Members with short horizons soon forget optimism about loops without reward; members with long ones look far. If
    rewards are frequent, such loops do not exist, and short horizons prefer another policy than the longest one. So the
    power is c_m^(1 − ρ), where ρ is the share of transitions with a reward other than 0, a moving average over a
    hundred minibatches. If every step has a reward, all members have the full horizon. A minibatch with free steps and
    without a positive return counts as one without rewards: if costs can be avoided, loops of free steps remain.

    Args:
      agent: the agent of an ensemble.
      powers: c_m of each member, (M,).

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import agents, replay
      >>> agent = agents.make_agent("dqn", agents.Spaces((1,), 2))
      >>> agent = agent._replace(update=lambda key, state, batch, *_: (state, batch.bootstrap_discount))
      >>> agent = mixed_horizons(agent, jnp.array([10.0, 1.0]))
      >>> batch = replay.Batch(None, None, jnp.zeros(1), jnp.array([0.99]), None, None, None)
      >>> state = lambda share: agents.AgentState(sampler=None, frozen=None, target=None, rewarded=share)
      >>> discounts = [agent.update(None, state(share), batch, 3, None)[1][0] for share in (0.0, 1.0)]
      >>> [[round(float(discount), 3) for discount in each] for each in discounts]
      [[0.904, 0.99], [0.99, 0.99]]
    """

    def init(key: PRNGKey) -> AgentState:
        return agent.init(key)._replace(rewarded=jnp.zeros(()))

    def with_horizons(state: AgentState, batch: Any) -> Any:
        own = powers[None] ** (1 - state.rewarded)
        return batch._replace(bootstrap_discount=batch.bootstrap_discount[:, None] ** own)

    def update(key, state, batch, num_data, next_values):
        moved, info = agent.update(key, state, with_horizons(state, batch), num_data, next_values)
        is_unrewarded = _has_free_steps(batch) & (jnp.max(batch.return_) <= 0)
        share = jnp.where(is_unrewarded, 0, jnp.mean(batch.return_ != 0))
        return moved._replace(rewarded=state.rewarded + (share - state.rewarded) / 100), info

    def priorities(key, state, batch, next_values):
        assert agent.priorities is not None
        return agent.priorities(key, state, with_horizons(state, batch), next_values)

    return agent._replace(init=init, update=update, priorities=None if agent.priorities is None else priorities)


def own_reward_noise(agent: Agent) -> Agent:
    """Gives each run its own noise on rewards, see `feelgood.objectives.reward_noise`.

    The noise of a transition is a hash of its slot in the replay, so a random number drawn for the run is added to all
    slots.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import agents, replay
      >>> agent = agents.make_agent("dqn", agents.Spaces((1,), 2))
      >>> agent = own_reward_noise(agent._replace(update=lambda key, state, batch, *_: (state, batch.slot)))
      >>> batch = replay.Batch(*[None] * 6, slot=jnp.arange(2))
      >>> slots = [agent.update(None, agent.init(jax.random.key(seed)), batch, 2, None)[1] for seed in (0, 1)]
      >>> bool(slots[0][0] == slots[1][0]), int(slots[0][1] - slots[0][0])
      (False, 1)
    """

    def init(key: PRNGKey) -> AgentState:
        # A child of the key that no split of it reaches.
        return agent.init(key)._replace(noise_slot=jax.random.bits(jax.random.fold_in(key, 0x6E6F6973)))

    def update(key, state, batch, num_data, next_values):
        slot = jnp.asarray(batch.slot, jnp.uint32) + state.noise_slot
        return agent.update(key, state, batch._replace(slot=slot), num_data, next_values)

    return agent._replace(init=init, update=update)


def fitted_bounds(agent: Agent, bound: Any, decode: Callable[[Any], Any]) -> Agent:
    """Divides observations by the range observed so far; the agent's network must be one of `networks.scaled`.

    Declared bounds may be loose. The symbols of MiniGrid, for example, are at most 10 in a space from 0 to 255. Divided
    by 255, all observations look alike to a prior, and nothing explores. So the bound of each entry is divided by the
    largest power of 16 such that it still holds for all values in minibatches so far. It grows when larger values
    appear. Bounds stay unchanged if values exceed a sixteenth of them, if they are infinite, and for entries that are
    always 0.

    Args:
      agent: the agent.
      bound: the declared bound of each entry, as in `Spaces`.
      decode: from stored observations to observations.

    Examples:
      >>> import jax, jax.numpy as jnp, optax
      >>> from feelgood import agents, networks, objectives, replay, samplers
      >>> network = networks.network(lambda key: networks.scaled(networks.mlp(key, 1, (), 2), 255.0, (1,)))
      >>> agent = agents.value_agent(network, objectives.td(), samplers.from_optax(optax.sgd(0.1)))
      >>> agent = fitted_bounds(agent._replace(update=lambda key, state, *_: (state, None)), 255.0, lambda code: code)
      >>> batch = replay.Batch(jnp.array([[10.0]]), *[None] * 6)
      >>> agent.update(None, agent.init(jax.random.key(0)), batch, 1, None)[0].frozen.bound.value.tolist()  # 255/16
      [15.9375]
    """

    def init(key: PRNGKey) -> AgentState:
        state = agent.init(key)
        return state._replace(seen=jnp.zeros_like(state.frozen.bound.value))

    def update(key, state, batch, num_data, next_values):
        seen = jnp.maximum(state.seen, jnp.abs(jnp.asarray(decode(batch.observation), jnp.float32)).max(0))
        declared = jnp.broadcast_to(jnp.asarray(bound, jnp.float32), seen.shape)
        is_fitted = jnp.isfinite(declared) & (seen > 0)
        _, exponent = jnp.frexp(jnp.where(is_fitted, declared / seen, 1.0))  # 2^(exponent − 1) ≤ ratio < 2^exponent
        powers = ((exponent - 1) // 4).clip(0, 15)
        frozen = eqx.tree_at(lambda model: model.bound.value, state.frozen, jnp.ldexp(declared, -4 * powers))
        return agent.update(key, state._replace(seen=seen, frozen=frozen), batch, num_data, next_values)

    return agent._replace(init=init, update=update)
