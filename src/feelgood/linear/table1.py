"""The paper's Table 1 as data."""

from typing import NamedTuple


class RegretRate(NamedTuple):
    """Exponents of d, H and T in Õ(d^· H^· T^·)."""

    dimension: float
    horizon: float
    num_steps: float


class SamplingRate(NamedTuple):
    """Exponents of κ, K, H, d and ln(dT) in a cumulative sampling complexity."""

    condition: float
    num_episodes: float
    horizon: float
    dimension: float
    logarithm: float


class TableRow(NamedTuple):
    """A row of Table 1; `sampling` is None if the algorithm draws no samples by gradients."""

    regret: RegretRate
    tractable: bool
    sampling: SamplingRate | None


_LMC_RATE = SamplingRate(condition=3, num_episodes=3, horizon=3, dimension=-1, logarithm=-1)
_ULMC_RATE = SamplingRate(condition=1.5, num_episodes=2, horizon=2, dimension=-0.5, logarithm=-0.5)

TABLE1: dict[str, TableRow] = {
    "lsvi_ucb": TableRow(RegretRate(1.5, 1.5, 0.5), True, None),
    "opt_rlsvi": TableRow(RegretRate(2, 2, 0.5), True, None),
    "eleanor": TableRow(RegretRate(1, 1.5, 0.5), False, None),
    "cps": TableRow(RegretRate(1, 2, 0.5), False, None),
    "lsvi_phe": TableRow(RegretRate(1.5, 1.5, 0.5), True, None),
    "lmc_lsvi": TableRow(RegretRate(1.5, 1.5, 0.5), True, _LMC_RATE),
    "ase_lmc": TableRow(RegretRate(1, 1.5, 0.5), True, _LMC_RATE),
    "ase_ulmc": TableRow(RegretRate(1, 1.5, 0.5), True, _ULMC_RATE),
}
"""Table 1 of the paper as printed, by the names of `feelgood.linear.algorithms`.

LMC has κ³ there and in Theorem 2, where the theorem it rests on gives κ² (see `feelgood.linear.theory.lmc_schedule`).
CPS has H², where the corollary gives H^{3/2} to LSVI-ASE without sampling error, from which it differs by a normaliser.
"""
