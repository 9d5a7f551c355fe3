"""Nanoseconds per standard normal on one core: `python benchmarks/noise.py`.

Every candidate supplies the noise of the same scanned step x ← 0.9·x + 0.1·z. The step alone is the row `no noise`; it
is part of every other row. Candidates take turns, each number is a median, and the time is processor time, which other
programs on the same core do not add to; `times` is the cost of `jax.random.normal` divided by the row's cost.
"""

import os

if hasattr(os, "sched_setaffinity"):  # before JAX starts its threads
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import statistics
import time

import jax
import jax.numpy as jnp
from jax import lax

from feelgood import noise

REPEATS = 15
SETTINGS = ((4_000, 64, 20), (1_700_000, 1, 5))  # numbers per chain, chains, steps


def words(key, shape):
    index = lax.iota(jnp.uint32, shape[0])
    return noise._threefry(*noise.key_words(key), index, jnp.zeros_like(index))


def bits(key, shape):
    first, second = words(key, shape)
    return (first ^ second).astype(jnp.int32).astype(jnp.float32)


def transform(key, shape):
    index = lax.iota(jnp.uint32, shape[0]) + noise.key_words(key)[0]
    return noise._transform(index << 8, index << 12)


CANDIDATES = {
    "jax.random.normal": jax.random.normal,
    "feelgood.noise.normal": noise.normal,
    "bits alone": bits,
    "transform alone": transform,
    "no noise": lambda key, shape: jnp.ones(shape),
}


def sampler(draw, size: int, chains: int, steps: int):
    def chain(key):
        def step(x, i):
            return 0.9 * x + 0.1 * draw(jax.random.fold_in(key, i), (size,)), None

        return lax.scan(step, jnp.zeros(size), jnp.arange(steps))[0]

    keys = jax.random.split(jax.random.key(0), chains)
    # One chain goes without vmap, as a single large network would.
    run = jax.jit(jax.vmap(chain)) if chains > 1 else jax.jit(lambda keys: chain(keys[0]))
    return lambda: jax.block_until_ready(run(keys))


def main() -> None:
    print(f"jax {jax.__version__}, {jax.default_backend()}, median of {REPEATS}")
    for size, chains, steps in SETTINGS:
        runs = {name: sampler(draw, size, chains, steps) for name, draw in CANDIDATES.items()}
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for run in runs.values():
            run()  # compiles
        for _ in range(REPEATS):
            for name, run in runs.items():
                start = time.process_time()
                run()
                seconds[name].append(time.process_time() - start)
        cost = {name: 1e9 * statistics.median(s) / (size * chains * steps) for name, s in seconds.items()}
        title = f"{size:,} numbers, chains: {chains}"
        print(f"\n{title:34}{'ns':>8}{'times':>8}")
        for name, ns in cost.items():
            print(f"{name:34}{ns:8.2f}{cost['jax.random.normal'] / ns:8.1f}")


if __name__ == "__main__":
    main()
