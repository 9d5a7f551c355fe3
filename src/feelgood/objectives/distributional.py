"""Temporal differences of distributions of the return: over fixed atoms, or by their quantiles."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_positive
from feelgood.objectives.base import Minibatch, Objective, OnlineQ, TargetQ, Values, split_key
from feelgood.objectives.terms import huber, pick, td_looks_at
from feelgood.typing import Array, Params, PRNGKey, Scalar


def _best_next(q, target_values: Array, params, batch, key: PRNGKey | None, values: Values, double: bool) -> Array:
    """a*, which maximises the target network's values of the successor or, with `double`, the online network's."""
    return jnp.argmax(values(q(params, batch.next_observation, key)) if double else target_values, -1)


def _at(outputs: Array, action: Array) -> Array:
    """Rows (B, N) of (B, A, N) at actions (B,)."""
    return pick(jnp.swapaxes(outputs, -1, -2), jnp.broadcast_to(action[:, None], (len(outputs), outputs.shape[-1])))


def categorical_values(atoms: ArrayLike) -> Values:
    """`logits (..., A, atoms) -> action values (..., A)`, the means Σ_i softmax(logits)_i·z_i over the atoms z.

    Examples:
      >>> import jax.numpy as jnp
      >>> values = categorical_values(jnp.array([0.0, 8.0]))
      >>> logits = jnp.log(jnp.array([[3.0, 1.0], [1.0, 1.0]]))  # probability ¼ and ½ of the return 8
      >>> [round(value, 3) for value in values(logits).tolist()]
      [2.0, 4.0]
    """
    atoms = np.asarray(atoms, np.float32)

    def values(logits: Array) -> Array:
        # A sum and not a matrix product, which GPUs round more.
        return jnp.sum(jax.nn.softmax(logits, -1) * jnp.broadcast_to(atoms, logits.shape), -1)

    return values


def quantile_values(quantiles: Any) -> Array:
    """Action values (..., A), the means of quantiles (..., A, N).

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood.networks import Quantiles
      >>> quantiles = Quantiles(jnp.array([[0.0, 2.0], [1.0, 5.0]]), fractions=jnp.array([0.25, 0.75]))
      >>> quantile_values(quantiles).tolist()
      [1.0, 3.0]
    """
    return jnp.mean(quantiles.values, -1)


def project(places: Array, probabilities: Array, atoms: ArrayLike) -> Array:
    """Moves mass from any places (..., K) to evenly spaced atoms z_1 < … < z_n, sharing it between the two nearest.

    Result m_i = Σ_k p_k·max(0, 1 − |clip(x_k, z_1, z_n) − z_i|/(z_2 − z_1)), shape (..., n). The mean is unchanged if
    no place lies beyond the atoms.

    Examples:
      >>> import jax.numpy as jnp
      >>> project(jnp.array([0.25, 7.0]), jnp.array([0.5, 0.5]), atoms=jnp.arange(3.0)).tolist()
      [0.375, 0.125, 0.5]
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

    Examples:
      >>> import jax, jax.numpy as jnp, numpy as np
      >>> from feelgood.replay import Batch
      >>> at = jnp.array
      >>> batch = Batch(at([0]), at([1]), at([1.0]), at([0.0]), at([1]), at([0]), slot=at([0]))  # ends with 1
      >>> even = lambda *_: jnp.zeros((1, 2, 3))  # probability ⅓ for each atom
      >>> losses = jax.jit(lambda: categorical_losses(even, even, None, batch, atoms=np.arange(3.0)))()
      >>> round(float(losses[0]), 4)  # ln 3
      1.0986
    """
    atoms = _check_atoms(atoms)
    values = categorical_values(atoms)
    key_online, key_target = split_key(key)
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

    Examples:
      >>> import numpy as np
      >>> from feelgood import objectives
      >>> objective = objectives.categorical_td(np.linspace(-10, 10, 51), double=True)
      >>> sorted(objective.looks_at)
      ['next_observation', 'observation']
    """
    _check_atoms(atoms)
    losses = partial(categorical_losses, atoms=atoms, double=double)
    return Objective(per_transition=(losses,), looks_at=td_looks_at(double))


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

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood.networks import Quantiles
      >>> from feelgood.replay import Batch
      >>> at = jnp.array
      >>> batch = Batch(at([0]), at([1]), at([3.0]), at([0.0]), at([1]), at([0]), slot=at([0]))  # ends with 3
      >>> zeros = lambda *_: Quantiles(jnp.zeros((1, 2, 2)), at([[0.25, 0.75]]))
      >>> jax.jit(lambda: quantile_losses(zeros, zeros, None, batch))().tolist()  # (0.25 + 0.75) · (3 - ½)
      [2.5]
    """
    key_online, key_target = split_key(key)
    online = q(params, batch.observation, key_online)
    ahead = target_q(batch.next_observation, key_target)
    best = _best_next(q, quantile_values(ahead), params, batch, key_online, quantile_values, double)
    target = batch.return_[:, None] + batch.bootstrap_discount[:, None] * _at(ahead.values, best)
    errors = jax.lax.stop_gradient(target)[:, None, :] - _at(online.values, batch.action)[:, :, None]
    share = jnp.abs(online.fractions[:, :, None] - (errors < 0))
    return jnp.sum(jnp.mean(share * huber(errors, kappa) / kappa, -1), -1)


def quantile_td(*, double: bool = False, kappa: Scalar = 1.0) -> Objective:
    """Distributional TD by quantile regression, the loss of `quantile_losses` (Dabney et al., 2018).

    Args:
      double: whether the online network picks the action that the target network values.
      kappa: κ, at which the Huber loss becomes linear.

    Examples:
      >>> from feelgood import objectives
      >>> objective = objectives.quantile_td() + objectives.feel_good(0.1, values=objectives.quantile_values)
      >>> len(objective.per_transition), sorted(objective.looks_at)
      (2, ['first_observation', 'observation'])
    """
    check_positive("kappa", kappa)
    losses = partial(quantile_losses, double=double, kappa=kappa)
    return Objective(per_transition=(losses,), looks_at=td_looks_at(double))
