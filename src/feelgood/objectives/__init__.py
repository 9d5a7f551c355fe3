"""Objectives: terms that add up to the potential that a sampler sees, `td() + feel_good(0.1) + gaussian_prior(1.0)`.

`potential` scales a minibatch to the whole data; no other function does.

`q(params, observation, key)` and `target_q(observation, key)` are the outputs of networks; `key` is None if networks
draw nothing. Within one potential all terms see the same draw of the online network. Outputs may be:

- action values (B, A), or (B, M, A) for an ensemble of M members that share the batch: `td`;
- logits (B, A, atoms) of the distribution of the return over fixed atoms: `categorical_td`;
- quantiles of the return, a record with `values` (B, A, N) and `fractions` (B, N): `quantile_td`.

`values` turns outputs into action values; `categorical_values(atoms)` and `quantile_values` are means of distributions.
"""

from feelgood.objectives.base import Minibatch, Objective, potential, target_key, together
from feelgood.objectives.distributional import (
    categorical_losses,
    categorical_td,
    categorical_values,
    project,
    quantile_losses,
    quantile_td,
    quantile_values,
)
from feelgood.objectives.terms import (
    anchored_prior,
    feel_good,
    gaussian_prior,
    repetitions,
    reward_noise,
    td,
    td_errors,
)

__all__ = [
    "Minibatch",
    "Objective",
    "anchored_prior",
    "categorical_losses",
    "categorical_td",
    "categorical_values",
    "feel_good",
    "gaussian_prior",
    "potential",
    "project",
    "quantile_losses",
    "quantile_td",
    "quantile_values",
    "repetitions",
    "reward_noise",
    "target_key",
    "td",
    "td_errors",
    "together",
]
