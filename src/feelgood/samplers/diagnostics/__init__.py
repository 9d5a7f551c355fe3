"""Diagnostics of samplers: exact laws on quadratics, distances between laws, and statistics of chains."""

from feelgood.samplers.diagnostics.chains import (
    autocorrelation,
    autocorrelation_time,
    effective_sample_size,
    split_rhat,
    to_arviz,
)
from feelgood.samplers.diagnostics.distances import kl, total_variation, total_variation_of_modes, wasserstein2
from feelgood.samplers.diagnostics.kernels import (
    Kernel,
    adaptive_underdamped_kernel,
    langevin_kernel,
    underdamped_exact_kernel,
    underdamped_kernel,
    underdamped_splitting_kernel,
)
from feelgood.samplers.diagnostics.laws import (
    GaussianLaw,
    largest_stable_step,
    law_after,
    spectral_radius,
    stationary_law,
    target_law,
)

__all__ = [
    "GaussianLaw",
    "Kernel",
    "adaptive_underdamped_kernel",
    "autocorrelation",
    "autocorrelation_time",
    "effective_sample_size",
    "kl",
    "langevin_kernel",
    "largest_stable_step",
    "law_after",
    "spectral_radius",
    "split_rhat",
    "stationary_law",
    "target_law",
    "to_arviz",
    "total_variation",
    "total_variation_of_modes",
    "underdamped_exact_kernel",
    "underdamped_kernel",
    "underdamped_splitting_kernel",
    "wasserstein2",
]
