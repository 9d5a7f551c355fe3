"""Conditional posterior sampling (CPS): the feel-good posterior of all stages together."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood import noise
from feelgood.checks import check_count
from feelgood.linear.learning import Data, Learner, Plan, clip_values, prior_variance_of
from feelgood.linear.least_squares import fit
from feelgood.typing import Array, PRNGKey, Scalar


class CPSFacts(NamedTuple):
    """Facts about a draw of the joint posterior.

    Attributes:
      effective_share: effective sample size of the particles' masses over their number, in (0, 1].
      residual_error: estimate of the total variation distance to the joint posterior; see `residual_error`.
      num_proposals: proposals until one was accepted.
    """

    effective_share: Array
    residual_error: Array
    num_proposals: Array


def _relative(log_masses: Array) -> Array:
    """Masses over their mean."""
    return jnp.exp(log_masses - jax.nn.logsumexp(log_masses)) * log_masses.size


def effective_share(log_masses: Array) -> Array:
    """(Σ Z)² / (M Σ Z²): 1 if all particles weigh the same, 1/M if one has all the weight."""
    return 1 / jnp.mean(_relative(log_masses) ** 2)


def residual_error(log_masses: Array) -> Array:
    r"""Total variation distance between a particle chosen ∝ Z out of M and the law that M → ∞ gives, to order 1/M.

    A particle x is chosen with density p(x) W(x) E[1/W̄], W = Z/E[Z] and W̄ the mean of M masses, one of them W(x). By
    the first terms of 1/W̄ this is p(x) W(x) (1 + (1 + Var W − W(x))/M), hence

        TV = E|W (1 + Var W − W)| / (2M) + o(1/M),

    estimated from the particles at hand. It is only as good as the particles: large, rare weights may be missing among
    them, and the estimate is too small unless M is well above 1/`effective_share`. With one particle the estimate is
    NaN.

    Args:
      log_masses: ln Z of each particle, (M,).
    """
    if log_masses.size == 1:
        return jnp.full((), jnp.nan, log_masses.dtype)
    w = _relative(log_masses)
    return jnp.mean(jnp.abs(w * (jnp.mean(w**2) - w))) / (2 * w.size)


def cps(
    features: Array,
    horizon: int,
    *,
    loss_weight: Scalar,
    feel_good_weight: Scalar,
    prior_variance: Scalar | None = None,
    num_particles: int = 64,
) -> Learner:
    r"""CPS: one draw of all stages from the joint feel-good posterior.

        q(w_0 … w_{H−1}) ∝ Π_h q(w_h | w_{h+1}) · exp(λ max_a ⟨w_0, φ(s₁, a)⟩),
        q(w_h | w_{h+1}) = N(ŵ_h, (2ηΛ_h)⁻¹) ∝ prior · exp(−η Σ (r + V_{h+1}(s') − ⟨w_h, φ⟩)²),

    where Λ_h = Σ φφᵀ + I/(2ησ²), V_h = max_a Q_h and Q_h = ⟨w_h, φ⟩ truncated to [0, H − h]. Each conditional is
    normalised, so the feel-good term reaches back: the later stages are reweighted by the normaliser of the first,

        Z(w_1) = E[exp(λ max_a ⟨w_0, φ(s₁, a)⟩) | w_1] ≤ Σ_a exp(λ⟨ŵ_0, φ_a⟩ + λ²/2 · φ_aᵀ(2ηΛ_0)⁻¹φ_a),

    which LSVI-ASE leaves out. Here M particles w_{H−1} … w_1 are drawn backward; then particle and action are chosen ∝
    the terms of the bound, w_0 is proposed from the Gaussian tilted to that action, and both are accepted with
    max_b e^{λ⟨w_0, φ_b⟩} / Σ_b e^{λ⟨w_0, φ_b⟩} ≥ 1/|A|, or drawn again. Given the particles this is exact; over them
    there is an error of order 1/M (see `residual_error`). One particle is LSVI-ASE with exact sampling.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      loss_weight: η > 0.
      feel_good_weight: λ ≥ 0.
      prior_variance: σ² > 0; √d·H if not given.
      num_particles: M. The facts judge the masses by the bound above, at most |A| times Z.

    Examples:
      >>> import jax
      >>> from feelgood import linear
      >>> mdp = linear.mdps.combination_lock(horizon=2, num_actions=2)
      >>> learner = cps(mdp.features, 2, loss_weight=100.0, feel_good_weight=1.0)
      >>> curve = linear.learn(jax.random.key(0), mdp, learner, 50)
      >>> bool(curve.regret[-5:].max() == 0)  # the last policies are optimal
      True

    References:
      Dann, Mohri, Zhang and Zimmert (2021), "A provably efficient model-free posterior sampling method for episodic
      reinforcement learning".
    """
    num_particles = check_count("num_particles", num_particles)
    num_states, _, d = features.shape
    prior_variance = prior_variance_of(features, horizon, loss_weight, feel_good_weight, prior_variance)
    ridge = 1 / (2 * loss_weight * prior_variance)
    spread = 1 / jnp.sqrt(2 * jnp.asarray(loss_weight, features.dtype))
    weight = jnp.asarray(feel_good_weight, features.dtype)

    def plan(key: PRNGKey, state: tuple, data: Data, first_state: Array) -> Plan:
        key_later, key_first = jax.random.split(key)
        model = fit(features, data, ridge)
        fitted = jax.vmap(model.fitted, (None, 0))  # only V differs between particles
        z = noise.normal(key_later, (horizon - 1, num_particles, d), features.dtype)
        added = spread * jnp.einsum("hsad,hmd->hmsa", model.directions[1:], z, precision="highest")

        def back(value: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
            h, extra = inputs
            q = clip_values(fitted(h, value) + extra, horizon - h)
            return q.max(-1), q

        end = jnp.zeros((num_particles, num_states), features.dtype)
        value, later = jax.lax.scan(back, end, (jnp.arange(1, horizon), added), reverse=True)
        first = fitted(0, value)  # ⟨ŵ_0, φ⟩ of each particle
        directions = spread * model.directions[0]  # w_0 = ŵ_0 + L⁻ᵀz·spread adds their product with z
        tilts = weight * directions[first_state]
        offsets = weight * first[:, first_state]
        log_masses = offsets + jnp.sum(tilts**2, -1)[None] / 2  # (particles, actions)
        particle, z, num_proposals = _draw_first(key_first, tilts, offsets, log_masses)
        q = first[particle] + jnp.einsum("sad,d->sa", directions, z, precision="highest")
        values = jnp.concatenate([clip_values(q, horizon)[None], later[:, particle]])
        masses = jax.nn.logsumexp(log_masses, -1)
        return Plan(state, values, CPSFacts(effective_share(masses), residual_error(masses), num_proposals))

    return Learner(tuple, plan)


def _draw_first(key: PRNGKey, tilts: Array, offsets: Array, log_masses: Array) -> tuple[Array, Array, Array]:
    """Draws a particle and the normals z of the first stage by rejection; returns both and the number of proposals."""
    num_actions, d = tilts.shape
    cumulative = jnp.cumsum(jax.nn.softmax(log_masses.ravel()))

    def propose(carry):
        key, _, _, _, num_proposals = carry
        key, key_choice, key_noise, key_accept = jax.random.split(key, 4)
        uniform = jax.random.uniform(key_choice) * cumulative[-1]
        choice = jnp.minimum(jnp.searchsorted(cumulative, uniform, side="right"), cumulative.size - 1)
        particle, action = jnp.divmod(choice, num_actions)
        z = tilts[action] + noise.normal(key_noise, (d,), tilts.dtype)
        scores = offsets[particle] + jnp.einsum("ad,d->a", tilts, z, precision="highest")
        probability = jnp.exp(jnp.max(scores) - jax.nn.logsumexp(scores))
        accepted = ~(jax.random.uniform(key_accept) >= probability)  # true of NaN, so that the loop ends
        return key, particle, z, accepted, num_proposals + 1

    none, zero = jnp.zeros((), bool), jnp.zeros((), jnp.int32)
    start = (key, zero, jnp.zeros(d, tilts.dtype), none, zero)
    _, particle, z, _, num_proposals = jax.lax.while_loop(lambda carry: ~carry[3], propose, start)
    return particle, z, num_proposals
