"""Samplers: each moves a pytree of parameters so that it follows exp(−β·U). They are independent of RL."""

from feelgood.samplers import diagnostics
from feelgood.samplers.adaptive import adam_langevin, adaptive_bias, adaptive_underdamped
from feelgood.samplers.base import Info, Sampler, SamplerState, from_optax, sample, to_optax
from feelgood.samplers.exact import GaussianPosterior, exact_feel_good, exact_gaussian, linear_regression
from feelgood.samplers.langevin import langevin, preconditioned_adam_langevin, preconditioned_langevin
from feelgood.samplers.metropolis import hmc, mala
from feelgood.samplers.proximal import proximal
from feelgood.samplers.tuning import largest_curvature, suggest_step_size
from feelgood.samplers.underdamped import underdamped, underdamped_exact, underdamped_splitting

__all__ = [
    "GaussianPosterior",
    "Info",
    "Sampler",
    "SamplerState",
    "adam_langevin",
    "adaptive_bias",
    "adaptive_underdamped",
    "diagnostics",
    "exact_feel_good",
    "exact_gaussian",
    "from_optax",
    "hmc",
    "langevin",
    "largest_curvature",
    "linear_regression",
    "mala",
    "preconditioned_adam_langevin",
    "preconditioned_langevin",
    "proximal",
    "sample",
    "suggest_step_size",
    "to_optax",
    "underdamped",
    "underdamped_exact",
    "underdamped_splitting",
]
