"""The regret bound of Feel-Good Thompson Sampling for linear models, as a function."""

import math
from typing import NamedTuple

import numpy as np

from feelgood.checks import check_count, check_non_negative, check_positive


class Bound(NamedTuple):
    """A bound on expected regret, with its settings and terms.

    Attributes:
      regret: the bound, in units of the reward.
      loss_weight: η, for unscaled rewards.
      feel_good_weight: λ, for unscaled rewards.
      complexity: κ, the price of not knowing θ*, in nats.
    """

    regret: float
    loss_weight: float
    feel_good_weight: float
    complexity: float


def fgts_bound(
    num_rounds: int,
    dimension: int,
    *,
    value_range: float = 1.0,
    noise_std: float = 0.5,
    prior_precision: float = 1.0,
    norm: float = 1.0,
    feature_norm: float = 1.0,
    feel_good_weight: float | None = None,
) -> Bound:
    r"""Frequentist bound for FGTS with a linear model of d parameters, after the proof of Zhang's Theorem 1.

    For values in an interval of width B, scaled to B = 1, noise that is σ-sub-Gaussian and η ≤ min(1, 1/8σ²),

        E Regret(T) ≤ κ/λ + λT + λ·d·T / (2η(1 − η/2)),
        κ = min_δ [η(Lδ)²T + λLδT + ln 1/p₀(‖θ − θ*‖ ≤ δ)],    p₀ = N(0, I/ρ),  L ≥ ‖φ‖.

    λ minimises the bound if it is not given, which makes it O(d √(T ln T)). The prior is p₀ restricted to parameters
    whose values lie in the interval; that only adds mass to the ball.

    Where the constants come from, with D = f_θ − f* at the arm played, F = max_a f_θ − max_a f* and one round:

    - decoupling: regret ≤ μ E D² + d/(4μ) − E F for every μ > 0;
    - noise: E exp(−η[D² − 2εD]) ≤ exp(−η(1 − 2ησ²)D²) ≤ exp(−ηD²/2);
    - Cauchy–Schwarz parts it from exp(λF); −ln E exp(−ηD²) ≥ η(1 − η/2) E D² as D² ≤ 1; and by Hoeffding's lemma
      ½ ln E exp(2λF) ≤ λ E F + λ²/4, loosened to λ²;
    - so −ln of the posterior's normaliser grows by at least ½η(1 − η/2) E D² − λ E F − λ² in a round, and ends below κ.

    These constants are derived, not copied: Zhang's theorem has the same terms, and its own constants may differ.

    Args:
      num_rounds: T.
      dimension: d.
      value_range: B.
      noise_std: σ, before scaling.
      prior_precision: ρ.
      norm: ‖θ*‖.
      feature_norm: L.
      feel_good_weight: λ, for unscaled rewards; the best one if None.

    Examples:
      >>> few, many = fgts_bound(10_000, dimension=5).regret, fgts_bound(40_000, dimension=5).regret
      >>> round(many / few, 2)  # four times the rounds: √4, and a logarithm
      2.12

    References:
      Zhang (2022), "Feel-good Thompson sampling for contextual bandits and reinforcement learning".
    """
    num_rounds = check_count("num_rounds", num_rounds)
    dimension = check_count("dimension", dimension)
    check_positive("value_range", value_range)
    check_positive("prior_precision", prior_precision)
    check_positive("feature_norm", feature_norm)
    check_non_negative("noise_std", noise_std)
    check_non_negative("norm", norm)
    sigma, radius, rho = noise_std / value_range, norm / value_range, prior_precision * value_range**2
    eta = min(1.0, 1 / (8 * sigma**2)) if sigma > 0 else 1.0
    slope = 1 + dimension / (2 * eta * (1 - eta / 2))

    deltas = 10 ** (np.arange(-160, 21) / 20)
    fixed = eta * (feature_norm * deltas) ** 2 * num_rounds + log_inverse_mass(dimension, rho, radius, deltas)

    def complexity(weight: float) -> float:
        return float(np.min(fixed + weight * feature_norm * deltas * num_rounds))

    def regret(weight: float) -> float:
        return complexity(weight) / weight + weight * num_rounds * slope

    if feel_good_weight is None:
        weight = min((10 ** (i / 50) for i in range(-400, 101)), key=regret)
    else:
        check_positive("feel_good_weight", feel_good_weight)
        weight = feel_good_weight * value_range
    return Bound(value_range * regret(weight), eta / value_range**2, weight / value_range, complexity(weight))


def log_inverse_mass(dimension: int, precision: float, radius: float, delta: float | np.ndarray) -> np.ndarray:
    """An upper bound on ln 1/N(0, I/ρ)(‖θ − θ*‖ ≤ δ): volume of the ball times the density at its farthest point."""
    half = dimension / 2
    log_volume = half * math.log(math.pi) + dimension * np.log(delta) - math.lgamma(half + 1)
    log_density = half * math.log(precision / (2 * math.pi)) - precision * (radius + delta) ** 2 / 2
    return np.asarray(-(log_volume + log_density))
