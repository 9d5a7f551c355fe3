"""ELEANOR: optimism over all stages at once, solved as an optimisation problem."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood import noise
from feelgood.checks import check_count, check_non_negative, check_positive
from feelgood.linear.learning import Data, Learner, Plan
from feelgood.linear.least_squares import Regression, fit, lsvi_phe_noise, value_iteration
from feelgood.typing import Array, PRNGKey, Scalar

_TOLERANCE = 1e-4  # relative; values closer than this count as the same maximum


class EleanorFacts(NamedTuple):
    """Facts about the search of an episode.

    Attributes:
      objective: the largest value of the first state that was found.
      agreement: share of the starts that led to it; if it is small, it is doubtful that this is the maximum.
    """

    objective: Array
    agreement: Array


def eleanor_values(model: Regression, radius: Scalar, offsets: Array) -> Array:
    """Q_h = min{r̂_h + P̂_h V_{h+1} + ⟨ξ_h, φ⟩, H − h}⁺ with ξ_h = radius · L_h⁻ᵀ u_h, (H, S, A).

    Args:
      model: from `fit`.
      radius: radius of the confidence sets, ‖ξ_h‖_{Λ_h} = radius · ‖u_h‖.
      offsets: u, (H, d).
    """
    return value_iteration(model, _added(model, radius, offsets))


def _added(model: Regression, radius: Scalar, offsets: Array) -> Array:
    return radius * jnp.einsum("hsad,hd->hsa", model.directions, offsets, precision="highest")


def _untruncated(q: Array, widths: Array, stages_left: Array) -> Array:
    """Truncates values but not gradients."""
    del widths
    return q + jax.lax.stop_gradient(jnp.clip(q, 0, stages_left) - q)


def _untruncated_below(q: Array, widths: Array, stages_left: Array) -> Array:
    """Truncates values, and gradients only above: a value of 0 may yet be raised."""
    del widths
    return jnp.minimum(q + jax.lax.stop_gradient(jnp.maximum(q, 0) - q), stages_left)


def eleanor(
    features: Array,
    horizon: int,
    *,
    radius: Scalar,
    ridge: Scalar = 1.0,
    num_starts: int = 4,
    num_ascent_steps: int = 8,
) -> Learner:
    r"""ELEANOR: the most optimistic value of the first state that the confidence sets of all stages allow.

        maximise max_a Q_0(s₁, a) over ξ_0 … ξ_{H−1},    ‖ξ_h‖_{Λ_h} ≤ radius,
        Q_h = min{⟨ŵ_h(V_{h+1}) + ξ_h, φ⟩, H − h}⁺,    V_h = max_a Q_h

    One ξ_h serves all states, so that values stay linear and the radius need not cover a class of bonuses. The maximum
    is sought in whitened coordinates, ξ_h = radius · L_h⁻ᵀu_h with ‖u_h‖ ≤ 1. Each step goes to the maximiser of the
    linearised objective, u_h ← g_h/‖g_h‖ (projected gradient ascent with an unbounded step); the step is halved each
    time it would lower the objective. Where P̂ ≥ 0 and nothing is truncated from above, the objective is convex in u
    and full steps never lower it. Starts are the optimum for the policy of LSVI-UCB, u = 0 (greedy least squares), the
    last episode's maximiser, and random points. It is a search, not a certificate: local maxima, about one per policy,
    exist, and no efficient solution is known.

    Values are truncated to [0, H − h], where the original constrains ‖w_h‖ instead.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      radius: √α ≥ 0; `eleanor_radius` is the theory's.
      ridge: ρ > 0.
      num_starts: random starts in addition to the three others; may be 0.
      num_ascent_steps: steps from each start.

    Examples:
      >>> import jax
      >>> from feelgood import linear
      >>> mdp = linear.mdps.combination_lock(horizon=2, num_actions=2)
      >>> learner = eleanor(mdp.features, 2, radius=0.3, num_starts=1)
      >>> curve = linear.learn(jax.random.key(0), mdp, learner, 50)
      >>> bool(curve.regret[-5:].max() == 0)  # the last policies are optimal
      True

    References:
      Zanette, Lazaric, Kochenderfer and Brunskill (2020), "Learning near optimal policies with low inherent Bellman
      error".
    """
    horizon = check_count("horizon", horizon)
    check_non_negative("radius", radius)
    check_positive("ridge", ridge)
    num_starts = check_count("num_starts", num_starts, minimum=0)
    num_ascent_steps = check_count("num_ascent_steps", num_ascent_steps)
    d = features.shape[-1]

    def plan(key: PRNGKey, state: Array, data: Data, first_state: Array) -> Plan:
        model = fit(features, data, ridge)

        def objective(offsets: Array) -> Array:
            return jnp.max(eleanor_values(model, radius, offsets)[0, first_state])

        def maximiser(extra: Array, truncate, otherwise: Array) -> Array:
            """The maximiser of the linearisation at `extra`, added to ⟨ŵ, φ⟩; `otherwise` at stages without effect."""
            value = lambda extra: jnp.max(value_iteration(model, extra, truncate)[0, first_state])
            gradient = jnp.einsum("hsa,hsad->hd", jax.grad(value)(extra), model.directions, precision="highest")
            norms = jnp.linalg.norm(gradient, axis=-1, keepdims=True)
            return jnp.where(norms > 0, gradient / jnp.where(norms > 0, norms, 1), otherwise)

        def ascend(start: Array) -> tuple[Array, Array]:
            def step(carry, _):
                offsets, value, share = carry
                target = maximiser(_added(model, radius, offsets), _untruncated_below, offsets)
                proposal = offsets + share * (target - offsets)
                reached = objective(proposal)
                better = reached > value
                offsets = jnp.where(better, proposal, offsets)
                return (offsets, jnp.maximum(reached, value), jnp.where(better, share, share / 2)), None

            carry = (start, objective(start), jnp.ones((), features.dtype))
            return jax.lax.scan(step, carry, None, length=num_ascent_steps)[0][:2]

        # First, so that it wins ties: where the objective is at its ceiling, it still explores.
        ucb = maximiser(radius * model.widths, _untruncated, jnp.zeros_like(state))
        random = noise.normal(key, (num_starts, horizon, d), features.dtype)
        random = random / jnp.linalg.norm(random, axis=-1, keepdims=True)
        starts = jnp.concatenate([jnp.stack([ucb, jnp.zeros_like(state), state]), random])
        offsets, values = jax.vmap(ascend)(starts)
        best = jnp.argmax(values)
        agreement = jnp.mean(values >= values[best] - _TOLERANCE * jnp.abs(values[best]))
        facts = EleanorFacts(values[best], agreement)
        return Plan(offsets[best], eleanor_values(model, radius, offsets[best]), facts)

    return Learner(lambda: jnp.zeros((horizon, d), features.dtype), plan)


def eleanor_radius(dimension: int, horizon: int, num_episodes: int, failure: float = 0.01) -> float:
    """√α = H·√(d·ln(2dT/p)); Zanette et al. (2020) give Õ(√d) for returns in [0, 1], hence the factor H here."""
    return lsvi_phe_noise(dimension, horizon, num_episodes, failure)
