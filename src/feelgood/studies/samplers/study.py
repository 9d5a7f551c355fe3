"""Every sampler on a feel-good posterior in two dimensions."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feelgood.checks import check_count
from feelgood.studies.output import figure_files, write_files


@dataclass(frozen=True)
class SamplersStudy:
    """Every sampler on a 2-D feel-good posterior: its draws, and its distance to the target against steps."""

    num_chains: int = 1500
    """Independent chains of each sampler."""
    num_steps: int = 512
    """Steps of each chain."""
    seed: int = 0
    """Seed of all random numbers. One is enough: every number is measured on all chains."""
    output: Path = Path("runs/samplers")
    """Folder for the figure and its table; a stopped study starts again, which takes a minute."""

    def __post_init__(self):
        check_count("num_chains", self.num_chains)
        check_count("num_steps", self.num_steps)
        check_count("seed", self.seed, minimum=0, maximum=2**32 - 1)


FILES = {
    "distances.csv": "sliced 2-Wasserstein distance between chains and exact draws, and that between two sets of exact "
    "draws (floor)",
    **figure_files("samplers", "the posterior, the draws of each sampler and their distances"),
}


def run(study: SamplersStudy, report=print) -> list[Path]:
    """Runs the study, draws the figure and returns the paths of its files."""
    from feelgood.runs import store

    seeds = {"all": range(study.seed, study.seed + 1)}
    with store.recorded(study.output, "samplers", study, seeds=seeds, files=FILES):
        table, figure = _measure(study, report)
        return write_files(study.output, {"distances.csv": table, "samplers": figure})


def _measure(study: SamplersStudy, report):
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pandas as pd

    from feelgood import samplers
    from feelgood.studies.samplers.charts import draw_samplers

    # Q(s₁, a) = ⟨w, φ_a⟩ for three actions: after the data, two of them look equally good and one looks bad.
    mean = jnp.array([0.0, -0.2])
    precision = jnp.array([[1.0, 0.45], [0.45, 1.2]])
    features = jnp.array([[1.0, 0.4], [-0.9, 0.3], [0.1, -0.6]])
    weight = 1.5

    def potential(w):
        return (w - mean) @ precision @ (w - mean) / 2 - weight * jnp.max(features @ w)

    zoo = _zoo(mean, precision, features, weight)
    key_reference, key_floor, key_chains = jax.random.split(jax.random.key(study.seed), 3)
    exact = zoo["exact_feel_good"]
    draw_exact = jax.jit(jax.vmap(lambda key: exact.step(key, exact.init(mean), None)[0].params))
    several = lambda key: np.asarray(draw_exact(jax.random.split(key, study.num_chains)))
    reference, others = several(key_reference), list(map(several, jax.random.split(key_floor, 16)))

    start = jnp.array([0.5, -2.5])
    marks = np.unique(np.round(np.geomspace(1, study.num_steps, 24)).astype(int))
    draws, distances = {}, {}
    for i, (name, sampler) in enumerate(zoo.items()):
        chain = lambda key, sampler=sampler: samplers.sample(key, sampler, potential, start, study.num_steps)[0]
        keys = jax.random.split(jax.random.fold_in(key_chains, i), study.num_chains)
        path = np.asarray(jax.jit(jax.vmap(chain))(keys))
        draws[name] = path[:, -1]
        distances[name] = np.array([_sliced_wasserstein(path[:, m - 1], reference) for m in marks])
        report(f"{name:28s} distance to the target after {study.num_steps} steps: {distances[name][-1]:.3f}")

    grid = np.linspace(-4.5, 4.5, 221)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    offset = points - np.asarray(mean)
    gaussian = -np.einsum("...i,ij,...j", offset, np.asarray(precision), offset) / 2
    tilted = gaussian + weight * np.max(points @ np.asarray(features).T, axis=-1)
    floor = float(np.mean([_sliced_wasserstein(other, reference) for other in others]))
    densities = {"posterior": np.exp(gaussian), "with its feel-good term": np.exp(tilted - tilted.max())}
    caption = f"{study.num_chains} chains of each sampler, all from the same point, after {study.num_steps} steps"
    figure = draw_samplers(grid, densities, draws, distances, marks, floor, caption)
    rows = [pd.DataFrame({"sampler": name, "step": marks, "distance": own}) for name, own in distances.items()]
    return pd.concat(rows, ignore_index=True).assign(floor=floor), figure


def _zoo(mean, precision, features, weight: float) -> dict[str, Any]:
    from feelgood import samplers

    return {
        "langevin": samplers.langevin(0.1),
        "adam_langevin": samplers.adam_langevin(0.1, bias_factor=0.1),
        "preconditioned_langevin": samplers.preconditioned_langevin(0.1, epsilon=0.5),
        "underdamped": samplers.underdamped(0.1, 1.5),
        "underdamped_exact": samplers.underdamped_exact(0.2, 1.5),
        "underdamped_splitting": samplers.underdamped_splitting(0.4, 1.5),
        "adaptive_underdamped": samplers.adaptive_underdamped(0.2, 1.5, bias_factor=0.1),
        "adaptive, noise in params": samplers.adaptive_underdamped(0.2, 1.5, bias_factor=0.1, noise_in="params"),
        "mala": samplers.mala(0.3),
        "hmc": samplers.hmc(0.5, 3),
        "proximal": samplers.proximal(0.2),
        "exact_feel_good": samplers.exact_feel_good(mean, precision, features, weight),
    }


def _sliced_wasserstein(x, y) -> float:
    """Root mean square over 32 directions of the 2-Wasserstein distance between the projections of two point sets."""
    import numpy as np

    angles = np.pi * np.arange(32) / 32
    directions = np.stack([np.cos(angles), np.sin(angles)])
    return float(np.sqrt(np.mean((np.sort(x @ directions, axis=0) - np.sort(y @ directions, axis=0)) ** 2)))
