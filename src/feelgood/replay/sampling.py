"""How a replay draws its slots: uniformly, or in proportion to priorities; shared by all replays.

With priorities p_k (Schaul et al., 2016), slot k is drawn with probability P_k = p_k^α/Σ_j p_j^α, and sample i of a
minibatch has the importance weight P_i^−β/max_j P_j^−β. A new transition gets the largest priority so far.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike

from feelgood.checks import check_non_negative
from feelgood.replay.priorities import priorities
from feelgood.typing import Array, PRNGKey, Scalar

_SMALLEST = 1e-6  # added to every priority, so that each transition can still be drawn


class Sampling(NamedTuple):
    """Draws of slots as pure functions. `known` is a `PrioritiesState`, or () for uniform sampling.

    Attributes:
      init: `() -> known`, before any transition is stored.
      add: `(known, slots, is_new) -> known`: slots where the bool `is_new` holds get the largest priority so far, the
        others 0, so that they are never drawn.
      draw: `(key, known, batch_size, importance_exponent, uniform) -> (slots, weights)`, with replacement. Without
        priorities the slots are `uniform(key, batch_size)` and the weights None.
      prioritise: `(known, slots, priorities) -> known`, sets priorities ≥ 0 (B,), such as |TD error|, of slots (B,).
        If a slot occurs several times, its largest priority counts.
    """

    init: Callable[[], Any]
    add: Callable[[Any, Array, Array], Any]
    draw: Callable[..., tuple[Array, Array | None]]
    prioritise: Callable[[Any, ArrayLike, ArrayLike], Any]


def sampling(capacity: int, priority_exponent: Scalar | None) -> Sampling:
    """Builds the draws of `capacity` slots, with exponent α ≥ 0; None for uniform sampling.

    References:
      Schaul, Quan, Antonoglou and Silver (2016), "Prioritized experience replay".
    """
    if priority_exponent is None:
        draw_uniform = lambda key, known, batch_size, importance_exponent, uniform: (uniform(key, batch_size), None)
        return Sampling(lambda: (), lambda known, slots, is_new: (), draw_uniform, _refuse)
    check_non_negative("priority_exponent", priority_exponent)
    table = priorities(capacity)

    def add(known: Any, slots: Array, is_new: Array) -> Any:
        return table.set(known, slots, jnp.where(is_new, known.largest, 0))

    def draw(key: PRNGKey, known: Any, batch_size: int, importance_exponent: Scalar, uniform: Any):
        slots, probabilities = table.sample(key, known, batch_size)
        weights = probabilities ** -jnp.asarray(importance_exponent)
        return slots, weights / weights.max()

    def prioritise(known: Any, slots: ArrayLike, values: ArrayLike) -> Any:
        powers = (jnp.asarray(values, jnp.float32) + _SMALLEST) ** jnp.asarray(priority_exponent)
        return table.set(known, slots, powers)

    return Sampling(table.init, add, draw, prioritise)


def _refuse(known: Any, slots: ArrayLike, values: ArrayLike) -> Any:
    raise ValueError("priority_exponent must be a number for a replay with priorities, got None")
