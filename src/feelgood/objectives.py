"""Objectives: terms that add up to the potential that a sampler sees, `td() + feel_good(0.1) + gaussian_prior(1.0)`.

How a minibatch stands for all the data is settled in `potential` and nowhere else.

Throughout, `q(params, observation, key)` and `target_q(observation, key)` give what a network gives, `key` being None
where networks draw nothing. Within one potential all terms see the same draw of the online network. What networks give:

- action values (B, A), or (B, M, A) for an ensemble of M members that share the batch: `td`;
- logits (B, A, atoms) of the distribution of the return over fixed atoms: `categorical_td`;
- quantiles of the return, a record with `values` (B, A, N) and `fractions` (B, N): `quantile_td`.

`values` makes action values of it; `categorical_values(atoms)` and `quantile_values` are the means of distributions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_choice, check_non_negative, check_positive
from feelgood.typing import Array, Params, Potential, PRNGKey, Scalar

__all__ = [
    "Minibatch",
    "Objective",
    "categorical_losses",
    "categorical_td",
    "categorical_values",
    "feel_good",
    "gaussian_prior",
    "potential",
    "project",
    "quantile_losses",
    "quantile_td",
    "quantile_values",
    "target_key",
    "td",
    "td_errors",
    "together",
]

OnlineQ: TypeAlias = Callable[[Params, Any, PRNGKey | None], Any]
TargetQ: TypeAlias = Callable[[Any, PRNGKey | None], Any]
Values: TypeAlias = Callable[[Any], Array]


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
      looks_at: fields of a batch that the terms evaluate `q` on, so that one call may serve them all; see `together`.
    """

    per_transition: tuple[Term, ...] = ()
    per_posterior: tuple[Term, ...] = ()
    looks_at: frozenset[str] = frozenset()

    def __add__(self, other: "Objective") -> "Objective":
        if not isinstance(other, Objective):
            return NotImplemented
        return Objective(
            self.per_transition + other.per_transition,
            self.per_posterior + other.per_posterior,
            self.looks_at | other.looks_at,
        )


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
            _check_term(losses, len(batch.return_))
            value = value + data_scale * jnp.mean(losses if batch.weight is None else batch.weight * losses)
        for term in objective.per_posterior:
            value = value + once_scale * term(q, target_q, params, batch, key)
        return value

    return evaluate


def _check_term(losses: Array, batch_size: int) -> None:
    """Anything else would be broadcast against the weights. One number stands for transitions that share it."""
    if losses.ndim != 1 or losses.shape[0] not in (1, batch_size):
        raise ValueError(f"a term per transition must have shape ({batch_size},), got {losses.shape}")


def together(q: OnlineQ, objective: Objective, batch: Minibatch) -> OnlineQ:
    """A `q` that evaluates all that the objective looks at in one call, and hands out the parts.

    The values are those of `q`. A large network on a small batch takes about as long for three batches as for one.
    """
    names = sorted(objective.looks_at)
    seen: dict[str, Any] = {"params": None}

    def shared(params: Params, observation: Any, key: PRNGKey | None) -> Any:
        asked = [name for name in names if getattr(batch, name) is observation]
        if not asked:
            return q(params, observation, key)
        if seen["params"] is not params:
            fields = [getattr(batch, name) for name in names]
            outputs = q(params, jax.tree.map(lambda *parts: jnp.concatenate(parts), *fields), key)
            sizes = [jax.tree.leaves(field)[0].shape[0] for field in fields]
            ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
            for name, size, end in zip(names, sizes, ends, strict=True):
                seen[name] = jax.tree.map(lambda x, first=end - size, end=end: x[first:end], outputs)
            seen["params"] = params
        return seen[asked[0]]

    return shared


def _looks_at(double: bool) -> frozenset[str]:
    """What a TD term evaluates the online network on."""
    return frozenset({"observation", "next_observation"} if double else {"observation"})


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


def _identity(outputs: Any) -> Any:
    return outputs


def _best_next(q, target_values: Array, params, batch, key: PRNGKey | None, values: Values, double: bool) -> Array:
    """a*, which maximises the target network's values of the successor or, with `double`, the online network's."""
    return jnp.argmax(values(q(params, batch.next_observation, key)) if double else target_values, -1)


def _at(outputs: Array, action: Array) -> Array:
    """Rows (B, N) of (B, A, N) at actions (B,)."""
    return _pick(jnp.swapaxes(outputs, -1, -2), jnp.broadcast_to(action[:, None], (len(outputs), outputs.shape[-1])))


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
        next_value = _pick(next_values, jnp.argmax(q(params, batch.next_observation, key_online), -1))
    else:
        next_value = next_values.max(-1)
    target = _members(batch.return_, values) + _members(batch.bootstrap_discount, values) * next_value
    action = jnp.broadcast_to(_members(batch.action, values), values.shape[:-1])
    return jax.lax.stop_gradient(target) - _pick(values, action)


def _huber(errors: Array, width: Scalar) -> Array:
    width = jnp.asarray(width)
    clipped = jnp.clip(errors, -width, width)
    return clipped * (errors - 0.5 * clipped)


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
        losses = errors**2 if loss == "squared" else _huber(errors, huber_width)
        return losses.reshape(losses.shape[0], -1).sum(-1)

    return Objective(per_transition=(term,), looks_at=_looks_at(double))


def categorical_values(atoms: ArrayLike) -> Values:
    """`logits (..., A, atoms) -> action values (..., A)`, the means Σ_i softmax(logits)_i·z_i over the atoms z."""
    atoms = np.asarray(atoms, np.float32)

    def values(logits: Array) -> Array:
        # A sum and not a matrix product, which GPUs round more.
        return jnp.sum(jax.nn.softmax(logits, -1) * jnp.broadcast_to(atoms, logits.shape), -1)

    return values


def quantile_values(quantiles: Any) -> Array:
    """Action values (..., A), the means of quantiles (..., A, N)."""
    return jnp.mean(quantiles.values, -1)


def project(places: Array, probabilities: Array, atoms: ArrayLike) -> Array:
    """Moves mass from any places (..., K) to evenly spaced atoms z_1 < … < z_n, sharing it between the two nearest.

    Result m_i = Σ_k p_k·max(0, 1 − |clip(x_k, z_1, z_n) − z_i|/(z_2 − z_1)), shape (..., n). The mean stays as it is
    where no place lies beyond the atoms.
    """
    atoms = np.asarray(atoms, np.float32)
    places = jnp.clip(places, atoms[0], atoms[-1])[..., None]
    distance = jnp.abs(places - atoms.reshape((1,) * (places.ndim - 1) + (-1,))) / (atoms[1] - atoms[0])
    return jnp.sum(probabilities[..., None] * jnp.clip(1 - distance, 0, 1), -2)


def _check_atoms(atoms: ArrayLike) -> np.ndarray:
    checked = np.asarray(atoms, np.float64)
    gaps = np.diff(checked) if checked.ndim == 1 and checked.size > 1 else np.zeros(1)
    if not (gaps[0] > 0 and np.allclose(gaps, gaps[0], rtol=1e-3)):
        raise ValueError(f"atoms must be at least two evenly spaced numbers in rising order, got {atoms!r}")
    return checked.astype(np.float32)


def categorical_losses(
    q: OnlineQ,
    target_q: TargetQ,
    params: Params,
    batch: Minibatch,
    key: PRNGKey | None = None,
    *,
    atoms: ArrayLike,
    double: bool = False,
) -> Array:
    """Cross-entropies −Σ_i m_i·log p_i(o, a), shape (B,), from the target's distribution to the online one.

    m is the distribution of return_ + bootstrap_discount·Z_target(o', a*), brought back to the atoms by `project`; the
    action a* has the best mean under the target network, or with `double` under the online one.
    """
    atoms = _check_atoms(atoms)
    values = categorical_values(atoms)
    key_online, key_target = _split(key)
    logits = q(params, batch.observation, key_online)
    next_logits = target_q(batch.next_observation, key_target)
    best = _best_next(q, values(next_logits), params, batch, key_online, values, double)
    places = batch.return_[:, None] + batch.bootstrap_discount[:, None] * atoms[None]
    target = project(places, jax.nn.softmax(_at(next_logits, best)), atoms)
    return -jnp.sum(jax.lax.stop_gradient(target) * jax.nn.log_softmax(_at(logits, batch.action)), -1)


def categorical_td(atoms: ArrayLike, *, double: bool = False) -> Objective:
    """Distributional TD over fixed atoms, the cross-entropy of `categorical_losses` (Bellemare et al., 2017).

    Args:
      atoms: z_1 < … < z_n, evenly spaced; returns beyond them count as the nearest.
      double: whether the online network picks the action that the target network values.
    """
    _check_atoms(atoms)

    def term(q, target_q, params, batch, key):
        return categorical_losses(q, target_q, params, batch, key, atoms=atoms, double=double)

    return Objective(per_transition=(term,), looks_at=_looks_at(double))


def quantile_losses(
    q: OnlineQ,
    target_q: TargetQ,
    params: Params,
    batch: Minibatch,
    key: PRNGKey | None = None,
    *,
    double: bool = False,
    kappa: Scalar = 1.0,
) -> Array:
    """Quantile Huber losses, shape (B,), of the N quantiles θ_i at fractions τ_i against N' samples of the target.

    With u_ij = return_ + bootstrap_discount·θ'_j(o', a*) − θ_i(o, a) and h the Huber loss of width κ,

      ℓ = Σ_i (1/N')·Σ_j |τ_i − 1{u_ij < 0}|·h(u_ij)/κ.

    The action a* has the best mean under the target network, or with `double` under the online one.
    """
    key_online, key_target = _split(key)
    online = q(params, batch.observation, key_online)
    ahead = target_q(batch.next_observation, key_target)
    best = _best_next(q, quantile_values(ahead), params, batch, key_online, quantile_values, double)
    target = batch.return_[:, None] + batch.bootstrap_discount[:, None] * _at(ahead.values, best)
    errors = jax.lax.stop_gradient(target)[:, None, :] - _at(online.values, batch.action)[:, :, None]
    share = jnp.abs(online.fractions[:, :, None] - (errors < 0))
    return jnp.sum(jnp.mean(share * _huber(errors, kappa) / kappa, -1), -1)


def quantile_td(*, double: bool = False, kappa: Scalar = 1.0) -> Objective:
    """Distributional TD by quantile regression, the loss of `quantile_losses` (Dabney et al., 2018).

    Args:
      double: whether the online network picks the action that the target network values.
      kappa: κ, where the Huber loss becomes linear.
    """
    check_positive("kappa", kappa)

    def term(q, target_q, params, batch, key):
        return quantile_losses(q, target_q, params, batch, key, double=double, kappa=kappa)

    return Objective(per_transition=(term,), looks_at=_looks_at(double))


def feel_good(weight: Scalar, *, per: str = "transition", values: Values = _identity) -> Objective:
    """Optimism about the start, −weight·max_a Q(first observation, a); members of an ensemble add up.

    Args:
      weight: η ≥ 0; may be traced.
      per: "transition" gives every transition such a term for the start of its episode (the released code); "posterior"
        counts their mean over the batch once, as the paper's L₀ is counted.
      values: makes action values of what the network gives, see `feelgood.networks.Network`.
    """
    check_non_negative("weight", weight)
    check_choice("per", per, ("transition", "posterior"))

    def term(q, target_q, params, batch, key):
        best = values(q(params, batch.first_observation, _split(key)[0])).max(-1)
        return -jnp.asarray(weight) * best.reshape(best.shape[0], -1).sum(-1)

    def mean(q, target_q, params, batch, key):
        losses = term(q, target_q, params, batch, key)
        return jnp.mean(losses if batch.weight is None else batch.weight * losses)

    starts = frozenset({"first_observation"})
    if per == "posterior":
        return Objective(per_posterior=(mean,), looks_at=starts)
    return Objective(per_transition=(term,), looks_at=starts)


def gaussian_prior(scale: Scalar) -> Objective:
    """Prior N(0, scale²) on every parameter, ‖params‖²/(2·scale²); counts once. `scale` may be traced."""
    check_positive("scale", scale)

    def term(q, target_q, params, batch, key):
        squares = sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), start=jnp.zeros(()))
        return squares / (2 * jnp.asarray(scale) ** 2)

    return Objective(per_posterior=(term,))
