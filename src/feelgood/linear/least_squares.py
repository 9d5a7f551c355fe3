"""Least-squares value iteration: without exploration, and with the bonuses and perturbations of Table 1.

With Λ_h = Σ φφᵀ + ρI, ridge regression of the targets r + V_{h+1}(s') on φ is linear in V_{h+1}, so

    ⟨ŵ_h, φ⟩ = r̂_h + P̂_h V_{h+1},    r̂_h = φᵀΛ_h⁻¹ Σ φ r,    P̂_h = φᵀΛ_h⁻¹ Σ φ 1{s' = ·} :

it is value iteration in an estimated model. The algorithms differ in the term added to ⟨ŵ_h, φ⟩ and in the truncation.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood import noise
from feelgood.algebra import cholesky, solve_lower
from feelgood.checks import check_count, check_non_negative, check_positive
from feelgood.linear import schemes
from feelgood.linear.ase import lsvi_ase
from feelgood.linear.learning import Data, Learner, Plan, clip_values
from feelgood.linear.theory.regret import check_sizes
from feelgood.typing import Array, PRNGKey, Scalar


class Regression(NamedTuple):
    """The result of ridge regression.

    Attributes:
      rewards: r̂, (H, S, A).
      transitions: P̂, (H, S, A, S); rows need not be laws.
      directions: L_h⁻¹φ with Λ_h = L_h L_hᵀ, (H, S, A, d). Their norm is ‖φ‖_{Λ⁻¹}, and ⟨L⁻ᵀz, φ⟩ = ⟨z, L⁻¹φ⟩, so
        a perturbation L⁻ᵀz of ŵ ~ Λ^{-1/2} adds their product with z to the values.
    """

    rewards: Array
    transitions: Array
    directions: Array

    @property
    def widths(self) -> Array:
        """‖φ‖_{Λ⁻¹}, (H, S, A)."""
        return jnp.linalg.norm(self.directions, axis=-1)

    def fitted(self, stage: Array | int, value: Array) -> Array:
        """⟨ŵ, φ⟩ = r̂ + P̂V of one stage, (S, A)."""
        return self.rewards[stage] + jnp.einsum("sat,t->sa", self.transitions[stage], value, precision="highest")


def fit(features: Array, data: Data, ridge: Scalar) -> Regression:
    """Ridge regression of every stage, Λ = Σ φφᵀ + ridge · I."""
    num_states, num_actions, d = features.shape
    factors = jax.vmap(cholesky)(data.gram + ridge * jnp.eye(d, dtype=features.dtype)[None])
    whiten = jax.vmap(solve_lower)
    columns = features.reshape(-1, d).T
    directions = whiten(factors, jnp.broadcast_to(columns, (len(factors), *columns.shape))).mT
    directions = directions.reshape(-1, num_states, num_actions, d)
    seen = whiten(factors, jnp.concatenate([data.rewarded[..., None], data.arrived], -1))
    fitted = jnp.einsum("hsad,hdt->hsat", directions, seen, precision="highest")
    return Regression(fitted[..., 0], fitted[..., 1:], directions)


def perturbations(key: PRNGKey, directions: Array, num_samples: int) -> Array:
    """⟨ξ, φ⟩ for independent ξ_h ~ N(0, Λ_h⁻¹), (num_samples, H, S, A)."""
    horizon, _, _, d = directions.shape
    z = noise.normal(key, (num_samples, horizon, d), directions.dtype)
    return jnp.einsum("hsad,mhd->mhsa", directions, z, precision="highest")


def truncated(q: Array, widths: Array, stages_left: Array) -> Array:
    """Q truncated to [0, H − h]; the widths are not used."""
    del widths
    return clip_values(q, stages_left)


def value_iteration(
    model: Regression, extra: Array, truncate: Callable[[Array, Array, Array], Array] = truncated
) -> Array:
    """Q_h = truncate(⟨ŵ_h, φ⟩ + extra_h, ‖φ‖_{Λ_h⁻¹}, H − h), backward over the stages, (H, S, A)."""
    horizon, num_states, _ = extra.shape

    def back(value: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        h, added, widths = inputs
        q = truncate(model.fitted(h, value) + added, widths, horizon - h)
        return q.max(-1), q

    stages = (jnp.arange(horizon), extra, model.widths)
    return jax.lax.scan(back, jnp.zeros(num_states, extra.dtype), stages, reverse=True)[1]


def _learner(
    features: Array,
    horizon: int,
    ridge: Scalar,
    explore: Callable[[PRNGKey, Regression], Array],
    truncate: Callable[[Array, Array, Array], Array] = truncated,
) -> Learner:
    horizon = check_count("horizon", horizon)
    check_positive("ridge", ridge)

    def plan(key: PRNGKey, state: tuple, data: Data, first_state: Array) -> Plan:
        del first_state
        model = fit(features, data, ridge)
        return Plan(state, value_iteration(model, explore(key, model), truncate))

    return Learner(tuple, plan)


def lsvi(features: Array, horizon: int, *, ridge: Scalar = 1.0) -> Learner:
    """Greedy least-squares value iteration, Q_h = ⟨ŵ_h, φ⟩ truncated to [0, H − h]. It does not explore.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      ridge: ρ > 0.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import linear
      >>> features = jnp.eye(2)[None]  # one state, two actions
      >>> learner, data = linear.lsvi(features, 2), linear.learning.no_data(features, 2)
      >>> plan = jax.jit(learner.plan)(jax.random.key(0), learner.init(), data, jnp.array(0))
      >>> plan.values[:, 0, 0].tolist()  # without data it expects nothing
      [0.0, 0.0]
    """
    return _learner(features, horizon, ridge, lambda key, model: jnp.zeros_like(model.rewards))


def lsvi_ucb(features: Array, horizon: int, *, bonus: Scalar, ridge: Scalar = 1.0) -> Learner:
    r"""LSVI-UCB: the width of the confidence set of each (s, a) is added to its value.

        Q_h = min{⟨ŵ_h, φ⟩ + β ‖φ‖_{Λ_h⁻¹}, H − h}⁺

    (The original truncates at H in all stages.)

    Args:
      features: φ, (S, A, d).
      horizon: H.
      bonus: β ≥ 0; `lsvi_ucb_bonus` is the theory's.
      ridge: ρ > 0.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import linear
      >>> features = jnp.eye(2)[None]  # one state, two actions
      >>> learner, data = linear.lsvi_ucb(features, 2, bonus=1.5), linear.learning.no_data(features, 2)
      >>> plan = jax.jit(learner.plan)(jax.random.key(0), learner.init(), data, jnp.array(0))
      >>> plan.values[:, 0, 0].tolist()  # 1.5, and 1.5 truncated to the one stage that is left
      [1.5, 1.0]

    References:
      Jin, Yang, Wang and Jordan (2020), "Provably efficient reinforcement learning with linear function approximation".
    """
    check_non_negative("bonus", bonus)
    return _learner(features, horizon, ridge, lambda key, model: bonus * model.widths)


def lsvi_ucb_bonus(dimension: int, horizon: int, num_episodes: int, failure: float = 0.01) -> float:
    """β = dH·√(ln(2dT/p)), T = HK, with which Jin et al. (2020) bound the regret with probability 1 − p."""
    return dimension * horizon * math.sqrt(_iota(dimension, horizon, num_episodes, failure))


def opt_rlsvi(
    features: Array, horizon: int, *, noise_scale: Scalar, lower: Scalar, upper: Scalar, ridge: Scalar = 1.0
) -> Learner:
    r"""OPT-RLSVI: one random perturbation per stage, and the largest possible value where data are scarce.

        w̄_h = ŵ_h + ξ_h,    ξ_h ~ N(0, σ² Λ_h⁻¹),    x = ‖φ‖_{Λ_h⁻¹},
        Q_h = (1 − c) ⟨w̄_h, φ⟩ + c (H − h),    c = (x − α_L) / (α_U − α_L) truncated to [0, 1]

    Values are not truncated otherwise, as in the paper: ⟨w̄, φ⟩ may leave [0, H − h] where x < α_U.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      noise_scale: σ ≥ 0.
      lower: α_L > 0, width up to which the regression is trusted.
      upper: α_U > α_L, width from which it is not; infinity makes it RLSVI, without the default value.
      ridge: ρ > 0.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import linear
      >>> features = jnp.eye(2)[None]  # one state, two actions
      >>> learner = linear.opt_rlsvi(features, 2, noise_scale=1.0, lower=0.1, upper=0.2)
      >>> data = linear.learning.no_data(features, 2)
      >>> plan = jax.jit(learner.plan)(jax.random.key(0), learner.init(), data, jnp.array(0))
      >>> plan.values[:, 0, 0].tolist()  # without data, the largest possible values
      [2.0, 1.0]

    References:
      Zanette, Brandfonbrener, Brunskill, Pirotta and Lazaric (2020), "Frequentist regret bounds for randomized
      least-squares value iteration".
    """
    check_non_negative("noise_scale", noise_scale)
    check_positive("lower", lower)
    check_positive("upper", upper, infinite=True)
    if isinstance(lower, int | float) and isinstance(upper, int | float) and upper <= lower:
        raise ValueError(f"upper must be above lower = {lower}, got {upper}")
    explore = lambda key, model: noise_scale * perturbations(key, model.directions, 1)[0]

    def truncate(q: Array, widths: Array, stages_left: Array) -> Array:
        scarce = jnp.clip((widths - lower) / (upper - lower), 0, 1)
        return (1 - scarce) * q + scarce * stages_left

    return _learner(features, horizon, ridge, explore, truncate)


class OptRLSVIConstants(NamedTuple):
    """Arguments of `opt_rlsvi`: `opt_rlsvi(features, horizon, **constants._asdict())`."""

    noise_scale: float
    lower: float
    upper: float


def opt_rlsvi_constants(dimension: int, horizon: int, num_episodes: int, failure: float = 0.01) -> OptRLSVIConstants:
    """σ = dH^{3/2}·√ι, α_U = 1/(σ√(d ι)), α_L = α_U/2 with ι = ln(2dT/p).

    The paper gives these up to logarithms, σ = Õ(dH^{3/2}) and α_U = 1/Õ(σ√d); the logarithm here is LSVI-UCB's.
    """
    iota = _iota(dimension, horizon, num_episodes, failure)
    sigma = dimension * horizon**1.5 * math.sqrt(iota)
    upper = 1 / (sigma * math.sqrt(dimension * iota))
    return OptRLSVIConstants(sigma, upper / 2, upper)


def lsvi_phe(features: Array, horizon: int, *, noise_scale: Scalar, num_samples: int, ridge: Scalar = 1.0) -> Learner:
    r"""LSVI-PHE: regressions on perturbed rewards, and the largest of M of them.

        w̃_h^m = argmin_w Σ (r + εᵐ + V_{h+1}(s') − ⟨w, φ⟩)² + ρ‖w − ζᵐ‖²,    ε ~ N(0, σ²), ζ ~ N(0, σ²/ρ · I)
        Q_h = min{max_m ⟨w̃_h^m, φ⟩, H − h}⁺

    The noise enters w̃ as Λ⁻¹(Σ φε + ρζ) ~ Λ⁻¹ N(0, σ² Σ φφᵀ + σ²ρI) = N(0, σ²Λ⁻¹), so w̃ is drawn as ŵ + N(0, σ²Λ⁻¹)
    from the sums alone: the same law at a cost that does not grow with the data.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      noise_scale: σ ≥ 0; `lsvi_phe_noise` is the theory's.
      num_samples: M; `lsvi_phe_samples` is the theory's.
      ridge: ρ > 0.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import linear
      >>> features = jnp.eye(2)[None]  # one state, two actions
      >>> learner = linear.lsvi_phe(features, 2, noise_scale=1.0, num_samples=1000)
      >>> data = linear.learning.no_data(features, 2)
      >>> plan = jax.jit(learner.plan)(jax.random.key(0), learner.init(), data, jnp.array(0))
      >>> plan.values[:, 0, 0].tolist()  # the largest of 1,000 standard normals is above 2
      [2.0, 1.0]

    References:
      Ishfaq, Cui, Nguyen, Ayoub, Yang, Wang, Precup and Yang (2021), "Randomized exploration for reinforcement learning
      with general value function approximation".
    """
    check_non_negative("noise_scale", noise_scale)
    num_samples = check_count("num_samples", num_samples)
    explore = lambda key, model: noise_scale * perturbations(key, model.directions, num_samples).max(0)
    return _learner(features, horizon, ridge, explore)


def lsvi_phe_noise(dimension: int, horizon: int, num_episodes: int, failure: float = 0.01) -> float:
    """σ = H·√(d·ln(2dT/p)); Ishfaq et al. (2021) give Õ(H√d), the logarithm here is LSVI-UCB's."""
    return horizon * math.sqrt(dimension * _iota(dimension, horizon, num_episodes, failure))


def lsvi_phe_samples(dimension: int, failure: float = 0.01) -> int:
    """M = d·ln(δ/9) / ln Φ(1), Φ the standard normal distribution function, rounded up."""
    _iota(dimension, 1, 1, failure)  # checks both
    return math.ceil(dimension * math.log(failure / 9) / math.log(0.5 + math.erf(math.sqrt(0.5)) / 2))


def lmc_lsvi(
    features: Array,
    horizon: int,
    *,
    inverse_temperature: Scalar,
    num_updates: int | Array,
    step_size: Scalar = 0.5,
    ridge: Scalar = 1.0,
) -> Learner:
    r"""LMC-LSVI: J noisy gradient steps per stage and episode, from the last episode's weights.

        L_h(w) = Σ (r + V_{h+1}(s') − ⟨w, φ⟩)² + ρ‖w‖²,    w ← w − τ∇L_h(w) + √(2τ/β) ξ

    For small steps and many of them w ~ N(ŵ_h, (2βΛ_h)⁻¹). It is LSVI-ASE without the feel-good term.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      inverse_temperature: β > 0; `lmc_lsvi_temperature` is the theory's.
      num_updates: J; may be traced.
      step_size: τ in units of 1/M, M the largest curvature, that of 2Λ_h; 0.5 is the paper's.
      ridge: ρ > 0.

    Examples:
      >>> import jax
      >>> from feelgood import linear
      >>> mdp = linear.mdps.combination_lock(horizon=2, num_actions=2)
      >>> learner = lmc_lsvi(mdp.features, 2, inverse_temperature=100.0, num_updates=20)
      >>> curve = linear.learn(jax.random.key(0), mdp, learner, 50)
      >>> bool(curve.regret[-5:].max() == 0)  # the last policies are optimal
      True

    References:
      Ishfaq, Lan, Xu, Mahmood, Precup, Anandkumar and Azizzadenesheli (2024), "Provable and practical: efficient
      exploration in reinforcement learning via Langevin Monte Carlo".
    """
    check_positive("ridge", ridge)
    return lsvi_ase(
        features,
        horizon,
        schemes.lmc(step_size),
        num_updates=num_updates,
        loss_weight=1.0,
        prior_variance=1 / (2 * ridge),
        inverse_temperature=inverse_temperature,
    )


def lmc_lsvi_temperature(dimension: int, horizon: int, num_episodes: int, failure: float = 0.01) -> float:
    """β with 1/√β = H·√(d·ln(2dT/p)); Ishfaq et al. (2024) give Õ(H√d), the logarithm here is LSVI-UCB's."""
    return lsvi_phe_noise(dimension, horizon, num_episodes, failure) ** -2


def _iota(dimension: int, horizon: int, num_episodes: int, failure: float) -> float:
    """ι = ln(2dT/p), T = HK."""
    check_sizes(dimension, horizon, num_episodes)
    check_positive("failure", failure)
    if failure >= 1:
        raise ValueError(f"failure must be a probability below 1, got {failure}")
    return math.log(2 * dimension * horizon * num_episodes / failure)
