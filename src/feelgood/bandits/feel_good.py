"""The feel-good term over past contexts, Σ_s min(b, max_a f_θ(x_s, a)), at a flat cost per round.

The sum has no sufficient statistics. A reservoir of n contexts, which holds every past context with the same
probability, gives an unbiased estimate t/n · Σ at a cost that does not grow. With room for all rounds it is the sum
itself.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood.bandits.base import Context
from feelgood.checks import check_count, check_non_negative, check_positive
from feelgood.typing import Array, PRNGKey, Scalar


class FeelGood(NamedTuple):
    """Settings of the term.

    Attributes:
      weight: λ ≥ 0, in units of the loss η Σ (f − r)².
      bound: b; values above it give no further credit.
      capacity: contexts kept; every past context if at least T.
      smoothness: None for min(b, u), else s of u − softplus(s(u − b))/s, which is b − softplus(s(b − u))/s.
      decay: p of λ_t = λ·(1 + t)^(−p).
    """

    weight: Scalar
    bound: Scalar = 1000.0
    capacity: int = 256
    smoothness: Scalar | None = None
    decay: Scalar = 0.0

    def check(self) -> "FeelGood":
        """Raises ValueError if a setting is out of range."""
        check_non_negative("weight", self.weight)
        check_positive("bound", self.bound, infinite=True)
        check_count("capacity", self.capacity)
        check_non_negative("decay", self.decay)
        if self.smoothness is not None:
            check_positive("smoothness", self.smoothness)
        return self


class Past(NamedTuple):
    """A reservoir of past contexts.

    Attributes:
      features: (A, k, n) or (1, k, n); the contexts lie along the last axis, where the sum over them vectorises.
      num_seen: contexts seen so far.
    """

    features: Array
    num_seen: Array


def no_past(settings: FeelGood, shape: tuple[int, int]) -> Past:
    """The memory before any context; `shape` is the shape of `Context.features`."""
    return Past(jnp.zeros((*shape, settings.capacity)), jnp.zeros((), jnp.int32))


def remember(key: PRNGKey, past: Past, context: Context) -> Past:
    """Takes in a context, by reservoir sampling (Vitter, 1985): all past contexts are equally likely to be kept."""
    capacity = past.features.shape[-1]
    slot = jax.random.randint(key, (), 0, past.num_seen + 1)
    slot = jnp.where(past.num_seen < capacity, past.num_seen, slot)  # an index beyond the end writes nothing
    here = (jnp.arange(capacity) == slot)[None, None, :]
    return Past(jnp.where(here, context.features[:, :, None], past.features), past.num_seen + 1)


def credit_and_slope(settings: FeelGood, best: Array) -> tuple[Array, Array]:
    """The credit of the largest value u of a context, min(b, u) or its smooth form, and its derivative."""
    if settings.smoothness is None:
        return jnp.minimum(best, settings.bound), (best < settings.bound).astype(best.dtype)
    excess = settings.smoothness * (best - settings.bound)
    return best - jax.nn.softplus(excess) / settings.smoothness, jax.nn.sigmoid(-excess)


def feel_good_sum(settings: FeelGood, past: Past, theta: Array) -> tuple[Array, Array]:
    """An unbiased estimate of F(θ) = Σ_s min(b, max_a f_θ(x_s, a)) over all contexts seen, and its gradient, (G, k)."""
    num_groups, capacity = theta.shape[0], past.features.shape[-1]
    terms = (theta[:, i, None] * past.features[:, i] for i in range(theta.shape[1]))
    scores = sum(terms, start=jnp.zeros(()))  # (A, n)
    best, leader = jnp.max(scores, 0), jnp.argmax(scores, 0)
    credit, slope = credit_and_slope(settings, best)
    kept = jnp.minimum(past.num_seen, capacity)
    scale = past.num_seen / jnp.maximum(kept, 1) * (jnp.arange(capacity) < kept)
    # Not `scores == best`: the compiler may compute scores twice with different rounding, and none is the largest.
    leads = jax.nn.one_hot(leader, scores.shape[0], axis=0) * (scale * slope)[None]
    gradient = jnp.sum(leads[:, None, :] * past.features, -1)
    return jnp.sum(scale * credit), gradient if num_groups > 1 else jnp.sum(gradient, 0, keepdims=True)


def bonus(settings: FeelGood, past: Past, num_rounds: Array, theta: Array) -> Array:
    """λ_t·F(θ), with λ_t = λ·(1 + t)^(−p); its gradient is the one that `feel_good_sum` gives."""
    total, gradient = feel_good_sum(settings, past, jax.lax.stop_gradient(theta))
    linear = jnp.sum(gradient * theta)
    return weight_at(settings, num_rounds) * (linear + jax.lax.stop_gradient(total - linear))


def weight_at(settings: FeelGood, num_rounds: Array) -> Array:
    """λ_t = λ·(1 + t)^(−p)."""
    return settings.weight * (1.0 + num_rounds) ** (-settings.decay)
