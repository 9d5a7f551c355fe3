"""The paper's theory as running code: regret bounds, the weights they require, and sampling complexity.

Everything but `curvature`, which uses JAX, is plain arithmetic. Constants that the paper leaves inside O(·) or Θ(·) are
arguments that default to 1. T = HK is the number of steps, ln the natural logarithm.

Docstrings note where the paper's statements contradict each other. Four points concern the whole module:

- Q takes values in [0, b−1] by the boundedness assumption, and in [0, H] with b = H in linear MDPs; both hold together
  only with b = H + 1, for which the corollary's η = 2/(5H²) is just too large. Functions here take b as it is given.
- A Gaussian prior on w puts mass on Q outside [0, b−1], so that the assumption holds only for the truncated Q.
- Dann et al.'s bound is quoted with κ(b/T²), used with κ(b/K²) and simplified to κ(b²/K). We use κ(b/K²).
- The joint posterior ∝ p₀ exp(−Σ L_h) is not the product of the stages' conditionals that Algorithm 1 samples: the
  normaliser of stage h depends on Q_{h+1}. The sampling error δ is measured against the latter, as in the proofs.
"""

from feelgood.linear.theory.regret import (
    RegretBound,
    Weights,
    corollary_bound,
    corollary_weights,
    decoupling_coefficient_bound,
    log_ball_mass,
    prior_complexity,
    prior_complexity_rate,
    regret_bound,
    sampling_weights,
    theorem_weights,
)
from feelgood.linear.theory.sampling import (
    Curvature,
    Schedule,
    allowed_error,
    cumulative_steps,
    curvature,
    lmc_schedule,
    ulmc_schedule,
)

__all__ = [
    "Curvature",
    "RegretBound",
    "Schedule",
    "Weights",
    "allowed_error",
    "corollary_bound",
    "corollary_weights",
    "cumulative_steps",
    "curvature",
    "decoupling_coefficient_bound",
    "lmc_schedule",
    "log_ball_mass",
    "prior_complexity",
    "prior_complexity_rate",
    "regret_bound",
    "sampling_weights",
    "theorem_weights",
    "ulmc_schedule",
]
