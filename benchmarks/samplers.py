"""Time of a step of each sampler on one core, per parameter, next to `optax.sgd` in the same run.

    python benchmarks/samplers.py [--quick]

The potential is ‖w‖²/2, whose gradient is nearly free, so the figures are the sampler's own. The share of noise is the
time saved when the normals are replaced by a constant. Rounds are interleaved, medians reported, and seconds are CPU
seconds, to which other programs add little.
"""

import os
import sys

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import statistics
import time

import jax
import jax.numpy as jnp
import optax
from rich.console import Console
from rich.table import Table

from feelgood import noise, samplers

ROUNDS = 3 if "--quick" in sys.argv else 5
SHAPES = {"64 chains of 4,000": (64, 4_000, 40), "1 chain of 1,700,000": (1, 1_700_000, 6)}


def constant(key, shape, dtype=jnp.float32):
    """No noise, but not a constant that the compiler could fold away."""
    return jnp.full(shape, jax.random.key_data(key)[0].astype(dtype))


def zoo(normal):
    return {
        "langevin": samplers.langevin(1e-3, normal=normal),
        "adam_langevin": samplers.adam_langevin(1e-3, normal=normal),
        "preconditioned_langevin": samplers.preconditioned_langevin(1e-3, normal=normal),
        "preconditioned_adam_langevin": samplers.preconditioned_adam_langevin(1e-3, normal=normal),
        "underdamped": samplers.underdamped(1e-3, normal=normal),
        "underdamped_exact": samplers.underdamped_exact(1e-3, normal=normal),
        "underdamped_splitting": samplers.underdamped_splitting(1e-3, normal=normal),
        "adaptive_underdamped": samplers.adaptive_underdamped(1e-3, normal=normal),
        "mala": samplers.mala(1e-4, normal=normal),
        "hmc (3 leapfrog steps)": samplers.hmc(1e-3, 3, normal=normal),
        "proximal": samplers.proximal(1e-6, normal=normal),
    }


def runner(sampler, num_chains, dimension, num_steps):
    """Compiles `num_steps` steps of all chains and returns a function that runs and times them."""

    def chain(key, params):
        def advance(state, key):
            return sampler.step(key, state, lambda w: jnp.sum(w * w) / 2)[0], None

        return jax.lax.scan(advance, sampler.init(params), jax.random.split(key, num_steps))[0].params

    run = jax.jit(jax.vmap(chain))
    keys = jax.random.split(jax.random.key(0), num_chains)
    start = jnp.ones((num_chains, dimension))
    run(keys, start).block_until_ready()

    def timed():
        begin = time.process_time()
        run(keys, start).block_until_ready()
        return (time.process_time() - begin) / (num_steps * num_chains * dimension) * 1e9

    return timed


def measure(runners):
    times = {name: [] for name in runners}
    for _ in range(ROUNDS):
        for name, timed in runners.items():
            times[name].append(timed())
    return {name: statistics.median(values) for name, values in times.items()}


def main():
    for title, shape in SHAPES.items():
        runners = {"optax.sgd": runner(samplers.from_optax(optax.sgd(1e-3)), *shape)}
        for name, sampler in zoo(noise.normal).items():
            runners[name] = runner(sampler, *shape)
        for name, sampler in zoo(constant).items():
            if name == "proximal":
                continue  # its number of proposals is random
            runners[f"{name} without noise"] = runner(sampler, *shape)
        runners["langevin, jax.random.normal"] = runner(samplers.langevin(1e-3, normal=jax.random.normal), *shape)
        cost = measure(runners)
        table = Table(title=f"{title} parameters, one core, median of {ROUNDS}", title_justify="left")
        for column in ("sampler", "ns / parameter / step", "× optax.sgd", "share of noise"):
            table.add_column(column, justify="left" if column == "sampler" else "right")
        for name, value in cost.items():
            if name.endswith(" without noise"):
                continue
            quiet = cost.get(f"{name} without noise")
            share = "" if quiet is None else f"{max(0.0, 1 - quiet / value):.0%}"
            table.add_row(name, f"{value:.2f}", f"{value / cost['optax.sgd']:.1f}", share)
        Console(width=100).print(table)


if __name__ == "__main__":
    main()
