"""Learning in linear MDPs: statistics of past episodes, the record of a learner, and the loop that measures regret."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from feelgood.checks import check_count, check_kind, check_non_negative, check_positive
from feelgood.linear.mdps import LinearMDP, greedy_policy, optimal_values, policy_values, tables
from feelgood.typing import Array, PRNGKey, Scalar


class Data(NamedTuple):
    """Sufficient statistics of the past for least squares; their size does not grow with the episodes.

    Targets r + V(s') change with V, but only through which s' was reached: Σ φ (r + V(s')) = rewarded + arrived · V.

    Attributes:
      num_episodes: episodes seen.
      gram: Σ φφᵀ per stage, (H, d, d).
      rewarded: Σ φ r, (H, d).
      arrived: Σ φ 1{s' = ·}, (H, d, S).
      visits: number of times that each (s, a, s') was seen, (H, S, A, S).
      rewards: Σ r of each (s, a), (H, S, A).
    """

    num_episodes: Array
    gram: Array
    rewarded: Array
    arrived: Array
    visits: Array
    rewards: Array


class Plan(NamedTuple):
    """The result of a learner's step: its next state, its (H, S, A) action values, and facts to record."""

    state: Any
    values: Array
    facts: Any = ()


class Learner(NamedTuple):
    """An algorithm for linear MDPs as pure functions. It sees features and data, never the MDP.

    Attributes:
      init: `() -> state` before the first episode.
      plan: `(key, state, data, first_state) -> Plan`; the policy of the episode is greedy in the plan's values.
      check: `num_episodes -> None`; raises ValueError if a run of that length would fail.
    """

    init: Callable[[], Any]
    plan: Callable[[PRNGKey, Any, Data, Array], Plan]
    check: Callable[[int], None] = lambda num_episodes: None


Start = Callable[[PRNGKey, Array], Array]
"""`(key, gaps) -> first state` of an episode. `gaps[s]` is V*(s) − V^π(s) for the policy of the last episode."""


class Curve(NamedTuple):
    """One entry per episode.

    Attributes:
      regret: V*(s₁) − V^π(s₁), exact and not accumulated; NaN if the learner's values are not all numbers.
      optimism: the learner's own value of s₁ minus V*(s₁).
      facts: the facts of the learner's plan.
    """

    regret: Array
    optimism: Array
    facts: Any

    @property
    def cumulative_regret(self) -> Array:
        """The sum of regrets up to each episode: the column `regret` of a study's tables."""
        return jnp.cumsum(self.regret, -1)


def no_data(features: Array, horizon: int) -> Data:
    """Data before the first episode."""
    num_states, num_actions, d = features.shape
    zeros = lambda *shape: jnp.zeros((horizon, *shape), features.dtype)
    return Data(
        jnp.zeros((), jnp.int32),
        zeros(d, d),
        zeros(d),
        zeros(d, num_states),
        zeros(num_states, num_actions, num_states),
        zeros(num_states, num_actions),
    )


def add_episode(data: Data, features: Array, states: Array, actions: Array, rewards: Array) -> Data:
    """Adds one episode by rank-one updates.

    Args:
      data: the past.
      features: φ, (S, A, d).
      states: s_0 … s_H, (H + 1,), whole numbers.
      actions: (H,).
      rewards: (H,).
    """
    stages = jnp.arange(actions.shape[0])
    before, after = states[:-1], states[1:]
    phi = features[before, actions]
    return Data(
        data.num_episodes + 1,
        data.gram + phi[:, :, None] * phi[:, None, :],
        data.rewarded + phi * rewards[:, None],
        data.arrived.at[stages, :, after].add(phi),
        data.visits.at[stages, before, actions, after].add(1),
        data.rewards.at[stages, before, actions].add(rewards),
    )


def moments(data: Data, stage: Array | int, value: Array) -> Array:
    """Σ φ (r + V(s')) of one stage, (d,)."""
    return data.rewarded[stage] + data.arrived[stage] @ value


def clip_values(values: Array, stages_left: Scalar) -> Array:
    """Truncates to the possible returns of H − h remaining stages, [0, H − h]."""
    return jnp.clip(values, 0, stages_left)


def prior_variance_of(
    features: Array, horizon: int, loss_weight: Scalar, feel_good_weight: Scalar, prior_variance: Scalar | None
) -> Scalar:
    """Checks the weights of a feel-good posterior and returns σ² of its prior, the paper's √d·H if not given."""
    if features.ndim != 3:
        raise ValueError(f"features must have shape (states, actions, d), got shape {features.shape}")
    horizon = check_count("horizon", horizon)
    check_positive("loss_weight", loss_weight)
    check_non_negative("feel_good_weight", feel_good_weight)
    prior_variance = math.sqrt(features.shape[-1]) * horizon if prior_variance is None else prior_variance
    check_positive("prior_variance", prior_variance)
    return prior_variance


def random_start(mdp: LinearMDP) -> Start:
    """First states drawn from the MDP's own law.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import linear
      >>> mdp = linear.mdps.nchain(4)  # starts in the second state
      >>> int(random_start(mdp)(jax.random.key(0), jnp.zeros(4)))
      1
    """
    return lambda key, gaps: jax.random.categorical(key, jnp.log(mdp.initial))


def worst_start(mdp: LinearMDP) -> Start:
    """An adversary: the state with the largest gap of the last policy; ties are broken at random.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import linear
      >>> int(worst_start(linear.mdps.nchain(4))(jax.random.key(0), jnp.array([0.0, 0.5, 2.0, 1.0])))
      2
    """
    del mdp

    def start(key: PRNGKey, gaps: Array) -> Array:
        worst = gaps >= jnp.max(gaps) - 1e-6
        return jax.random.categorical(key, jnp.where(worst, 0.0, -jnp.inf))

    return start


def learn(key: PRNGKey, mdp: LinearMDP, learner: Learner, num_episodes: int, start: Start | None = None) -> Curve:
    """Runs a learner for K episodes. The whole curve is one `scan`; `jax.vmap` over keys makes many curves.

    Args:
      key: key of the learner, the MDP and the first states.
      mdp: the MDP.
      learner: any of this package, or yours.
      num_episodes: K.
      start: chooses first states; `random_start` if not given.

    Returns:
      The regret of every episode. The cost of an episode does not grow.

    Examples:
      >>> import jax
      >>> from feelgood import linear
      >>> mdp = linear.mdps.combination_lock(horizon=2, num_actions=2)
      >>> curve = learn(jax.random.key(0), mdp, linear.lsvi_ucb(mdp.features, mdp.horizon, bonus=1.0), 50)
      >>> bool(curve.regret[-1] == 0)
      True
    """
    num_episodes = check_count("num_episodes", num_episodes)
    check_kind("learner", learner, Learner, "a Learner such as linear.lsvi_ase(…)")
    learner.check(num_episodes)
    start = random_start(mdp) if start is None else start
    # Compiled as a whole: one by one, the operations around the loop take longer to compile than the loop.
    return jax.jit(lambda key, mdp: _learn(key, mdp, learner, num_episodes, start))(key, mdp)


def _learn(key: PRNGKey, mdp: LinearMDP, learner: Learner, num_episodes: int, start: Start) -> Curve:
    written = tables(mdp)
    best = optimal_values(written)[1][0]
    cumulative = jnp.cumsum(written.transitions, -1)

    def episode(carry, key):
        data, state, gaps = carry
        key_start, key_plan, key_steps = jax.random.split(key, 3)
        first = start(key_start, gaps)
        plan = learner.plan(key_plan, state, data, first)
        _check_plan(plan, state, (mdp.horizon, mdp.num_states, mdp.num_actions))
        policy = greedy_policy(plan.values)
        gaps = best - policy_values(written, policy)[0]

        def step(s, inputs):
            uniform, action_of, row, reward_of = inputs
            a = action_of[s]
            # The share of the unit interval below `uniform`; rounding may leave the last sum a hair under 1.
            after = jnp.minimum(jnp.sum(uniform >= row[s, a]), mdp.num_states - 1)
            return after, (a, reward_of[s, a], after)

        uniforms = jax.random.uniform(key_steps, (mdp.horizon,))
        _, (actions, rewards, after) = jax.lax.scan(step, first, (uniforms, policy, cumulative, written.rewards))
        data = add_episode(data, mdp.features, jnp.concatenate([first[None], after]), actions, rewards)
        optimism = jnp.max(plan.values[0, first]) - best[first]
        # A policy that is greedy in NaN values is not a result.
        regret = jnp.where(jnp.all(jnp.isfinite(plan.values)), gaps[first], jnp.nan)
        return (data, plan.state, gaps), Curve(regret, optimism, plan.facts)

    carry = (no_data(mdp.features, mdp.horizon), learner.init(), best)
    return jax.lax.scan(episode, carry, jax.random.split(key, num_episodes))[1]


def _check_plan(plan: Any, state: Any, shape: tuple[int, int, int]) -> None:
    """Requires action values for every stage, state and action, and a state like the one before."""
    if not isinstance(plan, Plan):
        raise ValueError(f"plan of a learner must return a linear.Plan, got {type(plan).__name__}")
    if jnp.shape(plan.values) != shape:
        raise ValueError(
            f"values of a learner's plan must have shape {shape}, for stages, states and actions, "
            f"got {jnp.shape(plan.values)}"
        )
    before, after = str(jax.tree.structure(state)), str(jax.tree.structure(plan.state))
    if before != after:
        raise ValueError(f"state of a learner's plan must have the structure of init, {before}, got {after}")
