"""Objectives: terms that add up to the potential that a sampler sees, `td() + feel_good(0.1) + gaussian_prior(1.0)`.

How a minibatch stands for all the data is settled in `potential` and nowhere else.

Throughout, `q(params, observation, key)` and `target_q(observation, key)` give action values (B, A), or (B, M, A) for
an ensemble of M members that share the batch; `key` is None where networks draw no noise. Within one potential all
terms see the same draw of the online network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp

from feelgood.checks import check_choice, check_non_negative, check_positive
from feelgood.typing import Array, Params, Potential, PRNGKey, Scalar

__all__ = ["Minibatch", "Objective", "feel_good", "gaussian_prior", "potential", "target_key", "td", "td_errors"]

OnlineQ: TypeAlias = Callable[[Params, Any, PRNGKey | None], Array]
TargetQ: TypeAlias = Callable[[Any, PRNGKey | None], Array]


@runtime_checkable
class Minibatch(Protocol):
    """What the terms read of a batch; `weight` (B,) holds importance weights or is None."""

    @property
    def observation(self) -> Any: ...  # noqa: D102
    @property
    def action(self) -> Array: ...  # noqa: D102
    @property
    def return_(self) -> Array: ...  # noqa: D102
    @property
    def bootstrap_discount(self) -> Array: ...  # noqa: D102
    @property
    def next_observation(self) -> Any: ...  # noqa: D102
    @property
    def first_observation(self) -> Any: ...  # noqa: D102
    @property
    def weight(self) -> Array | None: ...  # noqa: D102


Term: TypeAlias = Callable[[OnlineQ, TargetQ, Params, Minibatch, PRNGKey | None], Array]


@dataclass(frozen=True)
class Objective:
    """A sum of terms `(q, target_q, params, batch, key) -> array`; add two objectives to join their terms.

    Attributes:
      per_transition: terms of shape (B,), one number ℓ_i for each transition of the batch.
      per_posterior: scalar terms c that count once, however many data there are (a prior).
    """

    per_transition: tuple[Term, ...] = ()
    per_posterior: tuple[Term, ...] = ()

    def __add__(self, other: "Objective") -> "Objective":
        if not isinstance(other, Objective):
            return NotImplemented
        return Objective(self.per_transition + other.per_transition, self.per_posterior + other.per_posterior)


def potential(
    objective: Objective,
    q: OnlineQ,
    target_q: TargetQ,
    batch: Minibatch,
    key: PRNGKey | None = None,
    *,
    reduction: str = "mean",
    num_data: Scalar | None = None,
) -> Potential:
    """Builds U: params -> scalar from one minibatch. All scaling is here.

    With ℓ_i the sum of the terms of transition i, w_i its importance weight (1 where `batch.weight` is None), c the
    sum of the terms that count once, B the batch size and n = `num_data`:

      "mean"   U = (1/B)·Σ_i w_i ℓ_i + c/n        the released code
      "sum"    U = (n/B)·Σ_i w_i ℓ_i + c          an unbiased estimate of the full-data potential

    So "sum" is n times "mean": the same posterior at 1/n of the inverse temperature.

    Args:
      objective: the terms.
      q: the network to be moved.
      target_q: the network to bootstrap from; no gradient flows through it.
      batch: the minibatch.
      key: noise of the networks.
      reduction: "mean" or "sum".
      num_data: number of transitions that the batch stands for, such as the size of the replay; may be traced. Needed
        for "sum", and for "mean" with terms that count once.
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    if num_data is None:
        if reduction == "sum" or objective.per_posterior:
            raise ValueError("num_data must be given for reduction 'sum' and for terms that count once, got None")
        num_data = 1.0  # unused
    check_positive("num_data", num_data)
    whole = jnp.asarray(num_data, jnp.float32)
    data_scale, once_scale = (1.0, 1 / whole) if reduction == "mean" else (whole, 1.0)

    def evaluate(params: Params) -> Array:
        value = jnp.zeros(())
        for term in objective.per_transition:
            losses = term(q, target_q, params, batch, key)
            value = value + data_scale * jnp.mean(losses if batch.weight is None else batch.weight * losses)
        for term in objective.per_posterior:
            value = value + once_scale * term(q, target_q, params, batch, key)
        return value

    return evaluate


def _split(key: PRNGKey | None) -> tuple[PRNGKey | None, PRNGKey | None]:
    """Keys of the online and of the target network; the same for every term, so that all see one draw."""
    if key is None:
        return None, None
    key_online, key_target = jax.random.split(key)
    return key_online, key_target


def target_key(key: PRNGKey) -> PRNGKey:
    """The key that a potential with this key gives to its target network."""
    return jax.random.split(key)[1]


def _members(array: Array, like: Array) -> Array:
    """Views (B,) as (B, 1) where action values carry an axis of members."""
    return array.reshape(array.shape + (1,) * (like.ndim - 2))


def _pick(values: Array, action: Array) -> Array:
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
) -> Array:
    """Temporal-difference errors δ = return_ + bootstrap_discount·Q_target(o', a*) − Q(o, a), shape (B,) or (B, M).

    The action a* maximises Q_target(o', ·), or with `double` the online Q(o', ·). The target is held fixed under
    differentiation. Each member of an ensemble bootstraps from its own target.
    """
    key_online, key_target = _split(key)
    values = q(params, batch.observation, key_online)
    next_values = target_q(batch.next_observation, key_target)
    if double:
        best = jnp.argmax(q(params, batch.next_observation, key_online), -1)
        next_value = _pick(next_values, best)
    else:
        next_value = next_values.max(-1)
    target = _members(batch.return_, values) + _members(batch.bootstrap_discount, values) * next_value
    action = jnp.broadcast_to(_members(batch.action, values), values.shape[:-1])
    return jax.lax.stop_gradient(target) - _pick(values, action)


def td(*, loss: str = "squared", double: bool = False, huber_width: Scalar = 1.0) -> Objective:
    """Temporal-difference error of `td_errors`; members of an ensemble add up. How many steps: see the replay.

    Args:
      loss: "squared" is δ², with no ½ (the released code); "huber" is ½δ² up to |δ| = h and h·(|δ| − ½h) beyond, with
        h = `huber_width`.
      double: whether the online network picks the action that the target network values.
      huber_width: h, where the Huber loss becomes linear.
    """
    check_choice("loss", loss, ("squared", "huber"))
    check_positive("huber_width", huber_width)

    def term(q, target_q, params, batch, key):
        errors = td_errors(q, target_q, params, batch, key, double=double)
        if loss == "squared":
            losses = errors**2
        else:
            width = jnp.asarray(huber_width)
            clipped = jnp.clip(errors, -width, width)
            losses = clipped * (errors - 0.5 * clipped)
        return losses.reshape(losses.shape[0], -1).sum(-1)

    return Objective(per_transition=(term,))


def feel_good(weight: Scalar, *, per: str = "transition") -> Objective:
    """Optimism about the start, −weight·max_a Q(first observation, a); members of an ensemble add up.

    Args:
      weight: η ≥ 0; may be traced.
      per: "transition" gives every transition such a term for the start of its episode (the released code); "posterior"
        counts their mean over the batch once, as the paper's L₀ is counted.
    """
    check_non_negative("weight", weight)
    check_choice("per", per, ("transition", "posterior"))

    def term(q, target_q, params, batch, key):
        best = q(params, batch.first_observation, _split(key)[0]).max(-1)
        return -jnp.asarray(weight) * best.reshape(best.shape[0], -1).sum(-1)

    def mean(q, target_q, params, batch, key):
        losses = term(q, target_q, params, batch, key)
        return jnp.mean(losses if batch.weight is None else batch.weight * losses)

    return Objective(per_transition=(term,)) if per == "transition" else Objective(per_posterior=(mean,))


def gaussian_prior(scale: Scalar) -> Objective:
    """Prior N(0, scale²) on every parameter, ‖params‖²/(2·scale²); counts once. `scale` may be traced."""
    check_positive("scale", scale)

    def term(q, target_q, params, batch, key):
        squares = sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), start=jnp.zeros(()))
        return squares / (2 * jnp.asarray(scale) ** 2)

    return Objective(per_posterior=(term,))
