"""Every row of the paper's Table 1, and three more algorithms.

`ase_baoab` is LSVI-ASE with a splitting scheme of low friction whose momentum is kept from episode to episode;
`ase_exact` samples exactly (δ = 0); `lsvi` does not explore.

Each algorithm has constants that its theory sets from d, H and K: bonuses, noise, η, λ, β. A scale multiplies such a
constant: at 1 it is the theory's, and tuning means choosing scales. So a choice made on one MDP carries over to others
by the theory's own scaling. The samplers' steps J have no scale: the theory asks for more of them than anyone would run
(`feelgood.linear.theory.lmc_schedule`).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from feelgood.linear import schemes
from feelgood.linear.ase import lsvi_ase
from feelgood.linear.cps import cps
from feelgood.linear.eleanor import eleanor, eleanor_radius
from feelgood.linear.learning import Learner
from feelgood.linear.least_squares import (
    lmc_lsvi,
    lmc_lsvi_temperature,
    lsvi,
    lsvi_phe,
    lsvi_phe_noise,
    lsvi_phe_samples,
    lsvi_ucb,
    lsvi_ucb_bonus,
    opt_rlsvi,
    opt_rlsvi_constants,
)
from feelgood.linear.theory import corollary_weights
from feelgood.typing import Array, Scalar

NUM_UPDATES = 64
"""J of the samplers, per stage and episode."""


class ScaledLearner(NamedTuple):
    """An algorithm with its constants as multiples of the theory's.

    Attributes:
      make: `(features, horizon, num_episodes, scales) -> Learner`.
      grid: the scales it has, with the values to tune over; 1 is the theory's.
    """

    make: Callable[[Array, int, int, Mapping[str, Scalar]], Learner]
    grid: Mapping[str, tuple[float, ...]]

    @property
    def theory(self) -> dict[str, float]:
        """The scales of the theory: all 1."""
        return dict.fromkeys(self.grid, 1.0)


_RIDGE = {"ridge": (1.0, 0.1, 0.01)}
_NOISE = {"noise": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2), **_RIDGE}
_FEEL_GOOD = {"loss": (10.0, 1e2, 1e3, 1e4, 1e5, 1e6), "feel_good": (0.1, 1.0)}


def feel_good_options(features: Array, horizon: int, num_episodes: int, scales: Mapping[str, Scalar]) -> dict[str, Any]:
    """η and λ of the corollary, each times its scale; the prior is the paper's.

    Examples:
      >>> from feelgood import linear
      >>> mdp = linear.mdps.combination_lock(horizon=2, num_actions=2)
      >>> feel_good_options(mdp.features, 2, 100, {"loss": 10.0, "feel_good": 1.0})["loss_weight"]  # 10 · 2/(5·2²)
      1.0
    """
    weights = corollary_weights(features.shape[-1], horizon, num_episodes)
    return {
        "loss_weight": scales["loss"] * weights.loss_weight,
        "feel_good_weight": scales["feel_good"] * weights.feel_good_weight,
    }


def _ucb(features, horizon, num_episodes, scales) -> Learner:
    bonus = lsvi_ucb_bonus(features.shape[-1], horizon, num_episodes)
    return lsvi_ucb(features, horizon, bonus=scales["noise"] * bonus, ridge=scales["ridge"])


def _opt_rlsvi(features, horizon, num_episodes, scales) -> Learner:
    sigma, lower, upper = opt_rlsvi_constants(features.shape[-1], horizon, num_episodes)
    scale = scales["noise"]
    return opt_rlsvi(
        features, horizon, noise_scale=scale * sigma, lower=lower / scale, upper=upper / scale, ridge=scales["ridge"]
    )


def _phe(features, horizon, num_episodes, scales) -> Learner:
    d = features.shape[-1]
    sigma = scales["noise"] * lsvi_phe_noise(d, horizon, num_episodes)
    return lsvi_phe(features, horizon, noise_scale=sigma, num_samples=lsvi_phe_samples(d), ridge=scales["ridge"])


def _eleanor(features, horizon, num_episodes, scales) -> Learner:
    radius = eleanor_radius(features.shape[-1], horizon, num_episodes)
    return eleanor(features, horizon, radius=scales["noise"] * radius, ridge=scales["ridge"])


def _lmc_lsvi(features, horizon, num_episodes, scales) -> Learner:
    beta = lmc_lsvi_temperature(features.shape[-1], horizon, num_episodes) / scales["noise"] ** 2
    return lmc_lsvi(features, horizon, inverse_temperature=beta, num_updates=NUM_UPDATES, ridge=scales["ridge"])


def _cps(features, horizon, num_episodes, scales) -> Learner:
    return cps(features, horizon, **feel_good_options(features, horizon, num_episodes, scales))


def _ase(scheme: Callable[[Mapping[str, Scalar]], schemes.Scheme], **fixed):
    def make(features, horizon, num_episodes, scales) -> Learner:
        options = feel_good_options(features, horizon, num_episodes, scales)
        return lsvi_ase(features, horizon, scheme(scales), **{"num_updates": NUM_UPDATES} | fixed | options)

    return make


ALGORITHMS: dict[str, ScaledLearner] = {
    "lsvi_ucb": ScaledLearner(_ucb, _NOISE),
    "opt_rlsvi": ScaledLearner(_opt_rlsvi, {"noise": (3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3), **_RIDGE}),
    "eleanor": ScaledLearner(_eleanor, _NOISE),
    "cps": ScaledLearner(_cps, _FEEL_GOOD),
    "lsvi_phe": ScaledLearner(_phe, _NOISE),
    "lmc_lsvi": ScaledLearner(_lmc_lsvi, _NOISE),
    "ase_lmc": ScaledLearner(
        _ase(lambda scales: schemes.lmc(0.5 * scales["step"])),
        {**_FEEL_GOOD, "step": (1.0, 2.0)},
    ),
    "ase_ulmc": ScaledLearner(
        _ase(lambda scales: schemes.ulmc(0.5, 2.0 * scales["friction"])),
        {**_FEEL_GOOD, "friction": (1.0, 0.3)},
    ),
    "ase_baoab": ScaledLearner(
        _ase(lambda scales: schemes.baoab(1.0, 2.0 * scales["friction"]), keep_momentum=True),
        {**_FEEL_GOOD, "friction": (0.1, 0.03, 0.01)},
    ),
    "ase_exact": ScaledLearner(_ase(lambda scales: schemes.exact(), num_updates=1), _FEEL_GOOD),
    "lsvi": ScaledLearner(lambda features, horizon, num_episodes, scales: lsvi(features, horizon), {}),
}
