"""Off-policy evaluation: the value of one policy from the log of another.

A log has for every round the arm a played, its reward r and the probability p with which it was played. The target
policy π gives probabilities to all arms in the same contexts. All estimates are means over rounds.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from feelgood.bandits.base import Algorithm, Context
from feelgood.typing import Array, PRNGKey


class Estimate(NamedTuple):
    """The estimated value of a policy and the standard error of that estimate."""

    value: float
    standard_error: float


def ips(rewards: ArrayLike, actions: ArrayLike, propensities: ArrayLike, target: ArrayLike) -> Estimate:
    """Inverse propensity scores: mean of w·r, w = π(a)/p. Unbiased if p > 0 wherever π > 0.

    Args:
      rewards: r, (n,).
      actions: a, (n,), whole numbers.
      propensities: p, (n,), probabilities of the arms that were played.
      target: π, (n, A).

    Examples:
      >>> estimate = ips([1.0, 0.0], [0, 1], [0.5, 0.5], [[1.0, 0.0], [1.0, 0.0]])
      >>> estimate.value
      1.0
    """
    r, _, w, _ = _checked(rewards, actions, propensities, target)
    return _mean(w * r)


def snips(rewards: ArrayLike, actions: ArrayLike, propensities: ArrayLike, target: ArrayLike) -> Estimate:
    """Self-normalised inverse propensity scores: Σ w·r / Σ w. Biased by O(1/n), with a smaller variance than `ips`.

    The standard error of the ratio is from the delta method.

    Examples:
      >>> snips([1.0, 0.0, 0.0], [0, 1, 0], [0.5, 0.5, 0.5], [[1.0, 0.0]] * 3).value  # of the two rounds with arm 0
      0.5
    """
    r, _, w, _ = _checked(rewards, actions, propensities, target)
    if w.sum() == 0:
        raise ValueError("target gives probability zero to every arm in the log: there is nothing to estimate from")
    value = np.sum(w * r) / np.sum(w)
    error = np.sqrt(np.sum((w * (r - value)) ** 2)) / np.sum(w)
    return Estimate(float(value), float(error))


def dr(
    rewards: ArrayLike, actions: ArrayLike, propensities: ArrayLike, target: ArrayLike, predictions: ArrayLike
) -> Estimate:
    """Doubly robust: mean of Σ_a π(a)·q̂(a) + w·(r − q̂(a_log)). Unbiased if either p or q̂ is right.

    Args:
      rewards: r, (n,).
      actions: a, (n,).
      propensities: p, (n,).
      target: π, (n, A).
      predictions: q̂, (n, A), rewards that a model predicts.

    Examples:
      >>> predictions = [[0.75, 0.0]] * 2
      >>> dr([1.0, 0.0], [0, 1], [0.5, 0.5], [[1.0, 0.0]] * 2, predictions).value  # (0.75 + 2 · 0.25 + 0.75)/2
      1.0
    """
    r, a, w, pi = _checked(rewards, actions, propensities, target)
    q = np.asarray(predictions, float)
    if q.shape != pi.shape:
        raise ValueError(f"predictions must have the shape of target, {pi.shape}, got {q.shape}")
    return _mean(np.sum(pi * q, 1) + w * (r - q[np.arange(len(r)), a]))


def _mean(terms: np.ndarray) -> Estimate:
    return Estimate(float(terms.mean()), float(terms.std(ddof=1) / np.sqrt(len(terms))) if len(terms) > 1 else 0.0)


def _checked(rewards, actions, propensities, target):
    r, p, pi = (np.asarray(value, float) for value in (rewards, propensities, target))
    a = np.asarray(actions)
    if pi.ndim != 2 or len(pi) == 0:
        raise ValueError(f"target must have a row for each round and a column for each arm, got shape {pi.shape}")
    for name, value in (("rewards", r), ("actions", a), ("propensities", p)):
        if value.shape != (len(pi),):
            raise ValueError(f"{name} must have shape ({len(pi)},) to match target, got {value.shape}")
    if not np.all(np.isfinite(r)):
        raise ValueError(f"rewards must be finite, got {r[~np.isfinite(r)][0]} in round {np.argmin(np.isfinite(r))}")
    if not np.all((p > 0) & (p <= 1)):
        raise ValueError(f"propensities must be in (0, 1], got {p[~((p > 0) & (p <= 1))][0]}")
    if not np.issubdtype(a.dtype, np.integer) or a.min() < 0 or a.max() >= pi.shape[1]:
        raise ValueError(f"actions must be whole numbers from 0 to {pi.shape[1] - 1}, got {a.min()} to {a.max()}")
    if np.any(pi < 0) or not np.allclose(pi.sum(1), 1, atol=1e-4):
        raise ValueError("target must have rows of non-negative numbers that add up to 1")
    return r, a, pi[np.arange(len(r)), a] / p, pi


class Replay(NamedTuple):
    """One entry per logged round: whether the algorithm picked the logged arm, and the reward it learnt (else 0)."""

    matched: Array
    reward: Array


def replay_log(key: PRNGKey, algorithm: Algorithm, features: Array, actions: Array, rewards: Array) -> Replay:
    """Runs an algorithm on logged data by rejection: a round counts only if it picks the logged arm.

    If arms were logged uniformly at random, the matched rounds are distributed as an online run (Li et al., 2011).

    Args:
      key: key of the algorithm.
      algorithm: any of this package.
      features: (n, A, k) or (n, 1, k).
      actions: (n,), logged arms.
      rewards: (n,).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> algorithm = bandits.epsilon_greedy(bandits.Model(2, 1, shared=False), epsilon=0.0)
      >>> actions, rewards = jnp.array([0, 1, 0]), jnp.array([1.0, 0.0, 2.0])
      >>> replay_log(jax.random.key(0), algorithm, jnp.ones((3, 1, 1)), actions, rewards)
      Replay(matched=Array([ True, False,  True], dtype=bool), reward=Array([1., 0., 2.], dtype=float32))
    """
    if not (len(features) == len(actions) == len(rewards)):
        raise ValueError(
            "features, actions and rewards must have the same number of rounds, got "
            f"{len(features)}, {len(actions)} and {len(rewards)}"
        )
    if not np.all(np.isfinite(rewards)):
        raise ValueError(f"rewards must be finite, got {rewards[np.argmin(np.isfinite(rewards))]}")
    key_init, key_rounds = jax.random.split(key)

    def step(state, inputs):
        key, x, a, r = inputs
        key_choose, key_learn = jax.random.split(key)
        context = Context(x)
        picked, chosen = algorithm.choose(key_choose, state, context)
        matched = picked == a
        learnt = algorithm.learn(key_learn, chosen, context, a, r)
        state = jax.tree.map(lambda new, old: jnp.where(matched, new, old), learnt, chosen)
        return state, Replay(matched, jnp.where(matched, r, 0.0))

    inputs = (jax.random.split(key_rounds, len(actions)), features, actions, rewards)
    return jax.lax.scan(step, algorithm.init(key_init), inputs)[1]
