"""Regret bounds, their terms, and the weights that they require."""

import math
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from scipy import special

from feelgood.checks import check_count, check_positive
from feelgood.typing import Scalar

# Terms of the bounds.


def decoupling_coefficient_bound(dimension: int, horizon: int, num_episodes: int) -> float:
    """The decoupling coefficient of a linear MDP is at most dc = 2dH(1 + ln(2KH)).

    This is the paper's proposition; the proof of its corollary has 1 + 2 ln(KH) in place of 1 + ln(2KH).

    Examples:
      >>> round(decoupling_coefficient_bound(3, 2, 100), 2)  # 2 · 3 · 2 · (1 + ln 400)
      83.9
    """
    check_sizes(dimension, horizon, num_episodes)
    return 2 * dimension * horizon * (1 + math.log(2 * num_episodes * horizon))


def prior_complexity_rate(dimension: int, horizon: int, epsilon: Scalar, constant: Scalar = 1.0) -> float:
    """The lemma's form of κ(ε) for the prior N(0, √d H I): c · dH ln(dH/ε).

    Its proof has (2π√d H)^{d/2} as a factor of the prior's mass where it should be a divisor, and leaves out how far
    backups lie from the prior's centre, ‖w*‖²/2σ² ≤ 2H√d for each stage: the lemma needs H = O(√d ln(dH/ε)).

    Examples:
      >>> round(prior_complexity_rate(2, 3, epsilon=0.6), 3)  # 6 · ln 10
      13.816
    """
    check_sizes(dimension, horizon)
    check_positive("epsilon", epsilon)
    return float(constant * dimension * horizon * math.log(dimension * horizon / epsilon))


def prior_complexity(
    dimension: int,
    horizon: int,
    epsilon: Scalar,
    *,
    prior_variance: Scalar | None = None,
    weight_norm: ArrayLike | None = None,
) -> float:
    """A bound on κ(ε) for Gaussian priors with every constant in place.

    κ(ε) = sup_Q Σ_h −ln p₀({w: sup_{x,a} |⟨w, φ(x,a)⟩ − (T_h Q_{h+1})(x,a)| ≤ ε}). In a linear MDP T_h Q = ⟨w*, φ⟩ and
    ‖φ‖ ≤ 1, so the set holds the ball of radius ε around w*. A ball of a centred Gaussian has the less mass the farther
    out it lies, so with ‖w*‖ ≤ ρ_h

      κ(ε) ≤ −Σ_h ln P(‖w − ρ_h e‖ ≤ ε),   w ~ N(0, σ²I),   e any unit vector.

    Args:
      dimension: d.
      horizon: H.
      epsilon: ε > 0, in units of reward; b/K² in the theorem.
      prior_variance: σ²; √d H, the paper's, if not given.
      weight_norm: ρ, a number or one per stage; 2H√d if not given, as V ≤ H and ‖θ‖, ‖∫ f dμ‖ ≤ √d for |f| ≤ 1. (The
        paper's ‖μ(S)‖ ≤ √d covers only f = 1, which is not enough if μ is signed.)

    Examples:
      >>> round(prior_complexity(1, 2, epsilon=1.96, prior_variance=1.0, weight_norm=0.0), 3)  # -2 · ln 0.95
      0.103
    """
    check_sizes(dimension, horizon)
    if prior_variance is None:
        prior_variance = math.sqrt(dimension) * horizon
    if weight_norm is None:
        weight_norm = 2 * horizon * math.sqrt(dimension)
    distances = np.broadcast_to(np.asarray(weight_norm, float), (horizon,))
    return -sum(log_ball_mass(dimension, epsilon, distance, prior_variance) for distance in distances)


def log_ball_mass(dimension: int, radius: Scalar, distance: Scalar, variance: Scalar) -> float:
    """ln P(‖w − c‖ ≤ r) for w ~ N(0, σ²I_d) and ‖c‖ = ρ, far into the tail.

    ‖w − c‖²/σ² is noncentral chi-squared, a Poisson mixture of chi-squared laws:

      P = Σ_j Poisson(j; ρ²/2σ²) · γ(d/2 + j, r²/2σ²),   γ the regularised lower incomplete gamma function.

    The sum is cut off at its far end, so that the result is never too large.

    Examples:
      >>> round(math.exp(log_ball_mass(1, radius=1.96, distance=0.0, variance=1.0)), 3)
      0.95
    """
    dimension = check_count("dimension", dimension)
    check_positive("radius", radius)
    check_positive("variance", variance)
    x, rate = radius**2 / (2 * variance), distance**2 / (2 * variance)
    j = np.arange(math.ceil(rate + 12 * math.sqrt(rate)) + 60)
    shape = dimension / 2 + j
    with np.errstate(divide="ignore"):
        log_gamma = np.log(special.gammainc(shape, x))
    # Where the incomplete gamma function underflows, x is far below its shape and the series converges at once.
    series = shape * math.log(x) - x - special.gammaln(shape + 1) + np.log(special.hyp1f1(1, shape + 1, min(x, 700.0)))
    log_gamma = np.where(log_gamma > -600, log_gamma, series)
    return min(float(special.logsumexp(special.xlogy(j, rate) - rate - special.gammaln(j + 1) + log_gamma)), 0.0)


# Regret: Theorem 1 and its corollary.


class Weights(NamedTuple):
    """The weights of the loss: η of the squared TD errors and λ of the feel-good term."""

    loss_weight: float
    feel_good_weight: float


class RegretBound(NamedTuple):
    """Theorem 1's bound on expected regret, term by term.

    Attributes:
      decoupling: (λ/η) dc, the cost of exploration.
      prior: (2K/λ) κ(b/K²), the cost of the prior.
      horizon: 6H/λ.
      rounding: b/K.
      sampling: R_sample = Σ_k α_k δ_k, the cost of approximate sampling.
    """

    decoupling: float
    prior: float
    horizon: float
    rounding: float
    sampling: float

    @property
    def origin(self) -> float:
        """R_origin, the bound for exact sampling."""
        return self.decoupling + self.prior + self.horizon + self.rounding

    @property
    def total(self) -> float:
        """R_origin + R_sample."""
        return self.origin + self.sampling


def theorem_weights(
    bound: Scalar, num_episodes: int, decoupling_coefficient: Scalar, prior_complexity: Scalar
) -> Weights:
    """Theorem 1's choice for general function classes: η = 1/(4b²), λ = √(K κ(b/K²) / (b² dc)).

    Then (λ/η) dc + (2K/λ) κ = 6b√(dc κ K). The simplified bound that follows in the paper has (1/16) b² Σ k δ_k for
    R_sample; its proof shows H times that.

    Examples:
      >>> theorem_weights(bound=2.0, num_episodes=100, decoupling_coefficient=4.0, prior_complexity=16.0)
      Weights(loss_weight=0.0625, feel_good_weight=10.0)
    """
    check_positive("bound", bound)
    num_episodes = check_count("num_episodes", num_episodes)
    check_positive("decoupling_coefficient", decoupling_coefficient)
    check_positive("prior_complexity", prior_complexity)
    feel_good_weight = math.sqrt(num_episodes * prior_complexity / (bound**2 * decoupling_coefficient))
    return Weights(float(1 / (4 * bound**2)), feel_good_weight)


def corollary_weights(
    dimension: int, horizon: int, num_episodes: int, prior_complexity: Scalar | None = None
) -> Weights:
    """The corollary's choice for linear MDPs: η = 2/(5H²), λ = √(K κ(H/K²) / (dH³(1 + ln 2T))).

    Args:
      dimension: d.
      horizon: H.
      num_episodes: K.
      prior_complexity: κ(H/K²); computed by the function of this name if not given.

    Examples:
      >>> eta, weight = corollary_weights(3, 2, 100, prior_complexity=6.0)
      >>> eta, round(weight, 3)  # 2/(5·2²) and √(600/(24·(1 + ln 400)))
      (0.1, 1.891)
    """
    check_sizes(dimension, horizon, num_episodes)
    kappa = _corollary_prior(dimension, horizon, num_episodes, prior_complexity)
    log_term = 1 + math.log(2 * horizon * num_episodes)
    return Weights(2 / (5 * horizon**2), math.sqrt(num_episodes * kappa / (dimension * horizon**3 * log_term)))


def sampling_weights(
    episodes: ArrayLike, *, loss_weight: Scalar, feel_good_weight: Scalar, bound: Scalar, horizon: int
) -> np.ndarray:
    """α_k = (η/4λ) b² H (k−1) + b: the most regret that a unit of sampling error in episode k = 1, 2, … can cost.

    The corollary's α_k = O(√(ln(dT)/K) H² k) leaves out the last term, which is the larger one while
    k < 4λ/(ηbH), about 10√K/H. Theorem 2 is not harmed: with its ε_k, Σ_k b H ε_k is of lower order.

    Examples:
      >>> episodes = np.array([1, 2, 3])
      >>> sampling_weights(episodes, loss_weight=0.25, feel_good_weight=0.0625, bound=1.0, horizon=2).tolist()
      [1.0, 3.0, 5.0]
    """
    episodes = check_count("episodes", episodes)
    slope = loss_weight / (4 * feel_good_weight) * bound**2 * horizon
    return np.asarray(slope * (np.asarray(episodes, float) - 1) + bound)


def regret_bound(
    *,
    horizon: int,
    num_episodes: int,
    bound: Scalar,
    loss_weight: Scalar,
    feel_good_weight: Scalar,
    decoupling_coefficient: Scalar,
    prior_complexity: Scalar,
    errors: ArrayLike | None = None,
) -> RegretBound:
    """Theorem 1: E Regret(K) ≤ (λ/η) dc + (2K/λ) κ(b/K²) + 6H/λ + b/K + Σ_k α_k δ_k.

    Args:
      horizon: H.
      num_episodes: K.
      bound: b, with Q in [0, b−1].
      loss_weight: η ≤ 2/(5b²).
      feel_good_weight: λ ≥ η/4, without which dc bounds nothing.
      decoupling_coefficient: dc, or a bound on it.
      prior_complexity: κ(b/K²), or a bound on it.
      errors: δ, (K,), or δ of each stage, (K, H), which are summed, up to 1; 0 if not given.

    Examples:
      >>> sizes, weights = {"horizon": 1, "num_episodes": 100}, {"loss_weight": 0.25, "feel_good_weight": 2.0}
      >>> bound = regret_bound(**sizes, **weights, bound=1.0, decoupling_coefficient=4.0, prior_complexity=3.0)
      >>> bound.decoupling, bound.prior, bound.horizon, bound.rounding, bound.total
      (32.0, 300.0, 3.0, 0.01, 335.01)
    """
    check_sizes(1, horizon, num_episodes)
    check_positive("bound", bound)
    check_positive("loss_weight", loss_weight)
    check_positive("feel_good_weight", feel_good_weight)
    if loss_weight > 2 / (5 * bound**2) * (1 + 1e-12):
        raise ValueError(
            f"loss_weight must be at most 2/(5 bound²) = {2 / (5 * bound**2):.3g} for the bound to hold, "
            f"got {loss_weight}"
        )
    if feel_good_weight < loss_weight / 4:
        raise ValueError(
            f"feel_good_weight must be at least loss_weight/4 = {loss_weight / 4:.3g} for the bound to hold, "
            f"got {feel_good_weight}"
        )
    weights = {"loss_weight": loss_weight, "feel_good_weight": feel_good_weight}
    costs = sampling_weights(np.arange(1, num_episodes + 1), **weights, bound=bound, horizon=horizon)
    return RegretBound(
        decoupling=float(feel_good_weight / loss_weight * decoupling_coefficient),
        prior=float(2 * num_episodes / feel_good_weight * prior_complexity),
        horizon=float(6 * horizon / feel_good_weight),
        rounding=float(bound / num_episodes),
        sampling=float(costs @ _episode_errors(errors, num_episodes, horizon)),
    )


def corollary_bound(
    dimension: int,
    horizon: int,
    num_episodes: int,
    errors: ArrayLike | None = None,
    prior_complexity: Scalar | None = None,
) -> RegretBound:
    """Theorem 1 for a linear MDP with b = H, the corollary's weights and the bounds on dc and κ of this module.

    (λ/η) dc + (2K/λ) κ = 7√(dH³ (1 + ln 2T) K κ), which is O(dH^{3/2} √T ln(dT)) where κ is O(dH ln(dT)):
    for H up to the order of √d ln(dT), see `prior_complexity_rate`.

    Examples:
      >>> bounds = [corollary_bound(3, 2, num_episodes).total for num_episodes in (10_000, 40_000)]
      >>> round(bounds[1] / bounds[0], 2)  # four times the episodes: √4, and logarithms
      2.25
    """
    kappa = _corollary_prior(dimension, horizon, num_episodes, prior_complexity)
    loss_weight, feel_good_weight = corollary_weights(dimension, horizon, num_episodes, kappa)
    return regret_bound(
        horizon=horizon,
        num_episodes=num_episodes,
        bound=horizon,
        loss_weight=loss_weight,
        feel_good_weight=feel_good_weight,
        decoupling_coefficient=decoupling_coefficient_bound(dimension, horizon, num_episodes),
        prior_complexity=kappa,
        errors=errors,
    )


def check_sizes(dimension: int, horizon: int, num_episodes: int = 1) -> None:
    """Requires that d, H and K are counts; a ValueError names the one that is not."""
    check_count("dimension", dimension)
    check_count("horizon", horizon)
    check_count("num_episodes", num_episodes)


def _corollary_prior(dimension: int, horizon: int, num_episodes: int, given: Scalar | None) -> float:
    if given is None:
        return prior_complexity(dimension, horizon, horizon / num_episodes**2)
    check_positive("prior_complexity", given)
    return float(given)


def _episode_errors(errors: ArrayLike | None, num_episodes: int, horizon: int) -> np.ndarray:
    if errors is None:
        return np.zeros(num_episodes)
    errors = np.asarray(errors, float)
    if errors.shape not in ((num_episodes,), (num_episodes, horizon)):
        raise ValueError(
            f"errors must have shape {(num_episodes,)} or {(num_episodes, horizon)}, one per episode or per stage, "
            f"got {errors.shape}"
        )
    if not np.all((errors >= 0) & (errors <= 1)):
        raise ValueError("errors must be total variation distances, in [0, 1]")
    # Those of stages bound that of the episode by their sum (Proposition 1), and no distance is above 1.
    return errors if errors.ndim == 1 else np.minimum(errors.sum(axis=1), 1.0)
