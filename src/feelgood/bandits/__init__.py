"""Contextual bandits: environments with exact regret, Thompson sampling with exact and approximate draws."""

from feelgood.bandits import datasets, errors
from feelgood.bandits.base import (
    Algorithm,
    Bandit,
    Context,
    Curve,
    Model,
    Round,
    best_arm,
    choice_probabilities,
    simulate,
)
from feelgood.bandits.chains import Chain, baoab_ts, chain_ts, hmc_ts, lmc_ts, mala_ts, ulmc_ts
from feelgood.bandits.environments import cosine, linear, logistic, quadratic, wheel
from feelgood.bandits.evaluation import dr, ips, replay_log, snips
from feelgood.bandits.exact import epsilon_greedy, fgts, least_squares, lin_ids, lin_ts, lin_ucb
from feelgood.bandits.feel_good import FeelGood
from feelgood.bandits.neural import (
    Training,
    neural_ensemble,
    neural_greedy,
    neural_langevin,
    neural_linear,
    neural_ts,
    neural_ucb,
)
from feelgood.bandits.policy import ALGORITHMS, Policy
from feelgood.bandits.polya_gamma import polya_gamma_ts
from feelgood.bandits.theory import fgts_bound

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Bandit",
    "Chain",
    "Context",
    "Curve",
    "FeelGood",
    "Model",
    "Policy",
    "Round",
    "Training",
    "baoab_ts",
    "best_arm",
    "chain_ts",
    "choice_probabilities",
    "cosine",
    "datasets",
    "dr",
    "epsilon_greedy",
    "errors",
    "fgts",
    "fgts_bound",
    "hmc_ts",
    "ips",
    "least_squares",
    "lin_ids",
    "lin_ts",
    "lin_ucb",
    "linear",
    "lmc_ts",
    "logistic",
    "mala_ts",
    "neural_ensemble",
    "neural_greedy",
    "neural_langevin",
    "neural_linear",
    "neural_ts",
    "neural_ucb",
    "polya_gamma_ts",
    "quadratic",
    "replay_log",
    "simulate",
    "snips",
    "ulmc_ts",
    "wheel",
]
