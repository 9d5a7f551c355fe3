"""Temporal differences of action values, optimism and priors."""

from typing import Any

import jax
import jax.numpy as jnp

from feelgood.checks import check_choice, check_count, check_non_negative, check_positive
from feelgood.objectives.base import Minibatch, Objective, OnlineQ, TargetQ, Values, split_key
from feelgood.typing import Array, Params, PRNGKey, Scalar

# α of advantage learning (Bellemare et al., 2016): small gaps between actions grow by a factor of 1/(1 − α).
_GAP_SHARE = 0.9


def td_looks_at(double: bool) -> frozenset[str]:
    """The observations at which a TD term evaluates the online network."""
    return frozenset({"observation", "next_observation"} if double else {"observation"})


def _members(array: Array, like: Array) -> Array:
    """Views (B,) as (B, 1) if action values have an axis of members; (B, M) stays."""
    return array.reshape(array.shape + (1,) * (like.ndim - 1 - array.ndim))


def pick(values: Array, action: Array) -> Array:
    """Values (B, ..., A) at actions (B, ...). As a masked sum, whose gradient is a mask and not a scatter."""
    actions = jax.lax.broadcasted_iota(jnp.int32, values.shape, values.ndim - 1)
    return jnp.sum(jnp.where(actions == action[..., None].astype(jnp.int32), values, 0), -1)


def td_errors(
    q: OnlineQ,
    target_q: TargetQ,
    params: Params,
    batch: Minibatch,
    key: PRNGKey | None = None,
    *,
    double: bool = False,
    action_gap: Scalar | None = None,
) -> Array:
    """Temporal-difference errors δ = return_ + bootstrap_discount·Q_target(o', a*) − Q(o, a), shape (B,) or (B, M).

    The action a* maximises Q_target(o', ·), or with `double` the online Q(o', ·). The target is held fixed under
    differentiation. Each member of an ensemble bootstraps from its own target. It has a horizon of its own if
    `bootstrap_discount` has shape (B, M); see `feelgood.agents.mixed_horizons`.

    With an `action_gap` g, actions that are not the best have their target lowered by 0.9·min(V − Q(o, a), g·s), where
    V = max_a Q(o, a) and s = |V|, but at most 1 if V < 0. It widens small gaps between actions tenfold and large ones
    by 0.9·g·s. Errors of approximation then change the greedy action less often. If every step has a cost, V is far
    below 0 and gaps of all sizes would be small next to it; widened tenfold, they delay improvements of the policy.
    Optimal values and policies stay optimal: the reduction is between 0 and 0.9·(V − Q(o, a)), as Theorem 1 of
    Bellemare et al. (2016) requires.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.replay import Batch
      >>> at, table = jnp.array, jnp.array([[0.0, 1.0], [2.0, 4.0]])  # two states, two actions
      >>> batch = Batch(at([0]), at([1]), at([3.0]), at([0.5]), at([1]), at([0]), slot=at([0]))
      >>> q, target_q = lambda table, state, key: table[state], lambda state, key: table[state]
      >>> td_errors(q, target_q, table, batch).tolist()  # 3 + 0.5 · 4 - 1
      [4.0]
    """
    key_online, key_target = split_key(key)
    values = q(params, batch.observation, key_online)
    next_values = target_q(batch.next_observation, key_target)
    if double:
        next_value = pick(next_values, jnp.argmax(q(params, batch.next_observation, key_online), -1))
    else:
        next_value = next_values.max(-1)
    discount = _members(batch.bootstrap_discount, values)
    target = _members(batch.return_, values) + discount * next_value
    action = jnp.broadcast_to(_members(batch.action, values), values.shape[:-1])
    value = pick(values, action)
    if action_gap is not None:
        best = values.max(-1)
        size = jnp.maximum(best, jnp.minimum(-best, 1))
        target -= _GAP_SHARE * jnp.minimum(best - value, jnp.asarray(action_gap) * size)
    return jax.lax.stop_gradient(target) - value


def huber(errors: Array, width: Scalar) -> Array:
    """½δ² up to |δ| = h and h·(|δ| − ½h) beyond, with h = `width`."""
    width = jnp.asarray(width)
    clipped = jnp.clip(errors, -width, width)
    return clipped * (errors - 0.5 * clipped)


def reward_noise(slot: Array, num_members: int) -> Array:
    """Standard normals (B, M), a fixed one for each slot of a replay and each member of an ensemble.

    They are a hash of slot and member, so nothing is stored and a transition has the same noise at every visit. Runs
    have the same noise unless their slots differ; see `feelgood.agents.own_reward_noise`.

    Examples:
      >>> import jax.numpy as jnp
      >>> noise = reward_noise(jnp.array([7, 8, 7]), num_members=2)
      >>> noise.shape, bool((noise[0] == noise[2]).all()), bool((noise[0] == noise[1]).any())
      ((3, 2), True, False)
    """
    draw = lambda one: jax.random.normal(jax.random.fold_in(jax.random.key(0), one), (num_members,))
    return jax.vmap(draw)(jnp.asarray(slot, jnp.uint32))


def repetitions(batch: Minibatch) -> Array:
    """How often the pair of observation and action of each transition occurs in the minibatch, (B,).

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.replay import Batch
      >>> repetitions(Batch(jnp.array([3, 3, 3, 7]), jnp.array([0, 1, 0, 0]), *[None] * 5)).tolist()
      [2, 1, 2, 1]
    """
    observations = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(batch.observation)]
    rows = [batch.action[:, None], *observations]
    same = [jnp.all(each[:, None] == each[None], -1) for each in rows]
    return jnp.stack(same).all(0).sum(-1)


def td(
    *,
    loss: str = "squared",
    per: str = "transition",
    double: bool = False,
    huber_width: Scalar = 1.0,
    perturbation: Scalar | None = None,
    action_gap: Scalar | None = None,
) -> Objective:
    """Temporal-difference error of `td_errors`; members of an ensemble add up. The replay sets the number of steps.

    With a `perturbation` σ, member m regresses on rewards r + σ·z_m with z_m ~ N(0, 1) fixed for each transition and
    member. The minimiser is then a draw from a posterior instead of its mode. This is exact for a linear model with
    reward noise σ and a Gaussian prior, a draw of which anchors the member. The spread of members shrinks like 1/√n
    with data.

    Args:
      loss: "squared" is δ², with no ½ (the released code); "huber" is ½δ² up to |δ| = h and h·(|δ| − ½h) beyond, with
        h = `huber_width`.
      per: "transition" weighs all transitions alike. "pair" is for tables: each pair of observation and action in the
        minibatch counts once. Of its k transitions each is weighted by B/(2k), so the mean over the minibatch is the
        sum over pairs of half their mean loss. A gradient step of size α then moves the value of each pair by α times
        its mean TD error: Q-learning with rate α.
      double: whether the online network picks the action that the target network values.
      huber_width: h, at which the Huber loss becomes linear.
      perturbation: σ ≥ 0, in the unit of rewards; needs the `slot` of each transition. None for none.
      action_gap: g ≥ 0, how far to widen the gap between the best and other actions; see `td_errors`. None for 0.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import objectives
      >>> from feelgood.replay import Batch
      >>> at, table = jnp.array, jnp.array([[0.0, 1.0], [2.0, 4.0]])  # two states, two actions
      >>> batch = Batch(at([0]), at([1]), at([3.0]), at([0.5]), at([1]), at([0]), slot=at([0]))
      >>> q, target_q = lambda table, state, key: table[state], lambda state, key: table[state]
      >>> loss = lambda objective: float(objectives.potential(objective, q, target_q, batch)(table))
      >>> loss(td()), loss(td(loss="huber"))  # of an error of 4
      (16.0, 3.5)
    """
    check_choice("loss", loss, ("squared", "huber"))
    check_choice("per", per, ("transition", "pair"))
    check_positive("huber_width", huber_width)
    if perturbation is not None:
        check_non_negative("perturbation", perturbation)
    if action_gap is not None:
        check_non_negative("action_gap", action_gap)
    settings: dict[str, Any] = {"double": double, "action_gap": action_gap}

    def term(q, target_q, params, batch, key):
        errors = td_errors(q, target_q, params, batch, key, **settings)
        if perturbation is not None:
            noise = reward_noise(batch.slot, errors.size // errors.shape[0])
            errors = errors + jnp.asarray(perturbation) * noise.reshape(errors.shape)
        losses = errors**2 if loss == "squared" else huber(errors, huber_width)
        losses = losses.reshape(losses.shape[0], -1).sum(-1)
        return losses if per == "transition" else losses * (losses.size / 2) / repetitions(batch)

    return Objective(per_transition=(term,), looks_at=td_looks_at(double))


def _identity(outputs: Any) -> Any:
    return outputs


def feel_good(
    weight: Scalar,
    *,
    per: str = "transition",
    at: str = "first_observation",
    values: Values = _identity,
    num_observations: int | None = None,
) -> Objective:
    """Optimism about the start, −weight·max_a Q(first observation, a); members of an ensemble add up.

    Args:
      weight: λ ≥ 0; may be traced.
      per: "transition" gives every transition such a term for the start of its episode (the released code); "posterior"
        counts their mean over the batch once, as the paper's L₀ is counted.
      at: observations to be optimistic about: "first_observation", the paper's s₁, or "observation", each replayed
        observation.
      values: `outputs -> action values`, see `feelgood.networks.Network`.
      num_observations: number of observations of a minibatch to evaluate, at equal distances; their mean stands for the
        others. This saves most of the term's cost. None for all.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import objectives
      >>> from feelgood.replay import Batch
      >>> at, table = jnp.array, jnp.array([[0.0, 1.0], [2.0, 4.0]])  # two states, two actions
      >>> batch = Batch(at([0]), at([1]), at([3.0]), at([0.5]), at([1]), first_observation=at([0]), slot=at([0]))
      >>> q, target_q = lambda table, state, key: table[state], lambda state, key: table[state]
      >>> float(objectives.potential(feel_good(0.25), q, target_q, batch)(table))  # -0.25 · max(0, 1)
      -0.25
    """
    check_non_negative("weight", weight)
    check_choice("per", per, ("transition", "posterior"))
    check_choice("at", at, ("first_observation", "observation"))
    if num_observations is not None:
        num_observations = check_count("num_observations", num_observations)

    def term(q, target_q, params, batch, key):
        observations = getattr(batch, at)
        if num_observations is not None:
            stride = lambda x: max(x.shape[0] // num_observations, 1)
            observations = jax.tree.map(lambda x: x[:: stride(x)][:num_observations], observations)
        best = values(q(params, observations, split_key(key)[0])).max(-1)
        losses = -jnp.asarray(weight) * best.reshape(best.shape[0], -1).sum(-1)
        return losses if num_observations is None else jnp.mean(losses)[None]

    def mean(q, target_q, params, batch, key):
        losses = term(q, target_q, params, batch, key)
        return jnp.mean(losses if batch.weight is None else batch.weight * losses)

    starts = frozenset({at})
    if per == "posterior":
        return Objective(per_posterior=(mean,), looks_at=starts)
    return Objective(per_transition=(term,), looks_at=starts)


def gaussian_prior(scale: Scalar) -> Objective:
    """Prior N(0, scale²) on every parameter, ‖params‖²/(2·scale²); counts once. `scale` may be traced.

    Examples:
      >>> import jax.numpy as jnp
      >>> (term,) = gaussian_prior(2.0).per_posterior
      >>> float(term(None, None, jnp.array([2.0, 4.0]), None, None))  # (4 + 16) / (2 · 4)
      2.5
    """
    return anchored_prior(None, scale)


def anchored_prior(anchor: Params | None, scale: Scalar) -> Objective:
    """Prior N(anchor, scale²) on every parameter, ‖params − anchor‖²/(2·scale²); counts once.

    With a random draw from N(0, scale²) as anchor, a minimiser is one draw of an approximate posterior (randomised MAP
    sampling, Pearce et al., 2020); `networks.with_prior` does the same in the space of functions.

    Args:
      anchor: parameters like those of the network; None for 0.
      scale: standard deviation of the prior; may be traced.

    Examples:
      >>> import jax.numpy as jnp
      >>> (term,) = anchored_prior(jnp.array([2.0, 3.0]), 2.0).per_posterior
      >>> float(term(None, None, jnp.array([2.0, 7.0]), None, None))  # (7 - 3)² / (2 · 4)
      2.0
    """
    check_positive("scale", scale)

    def term(q, target_q, params, batch, key):
        away = params if anchor is None else jax.tree.map(jnp.subtract, params, anchor)
        squares = sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(away)), start=jnp.zeros(()))
        return squares / (2 * jnp.asarray(scale) ** 2)

    return Objective(per_posterior=(term,))
