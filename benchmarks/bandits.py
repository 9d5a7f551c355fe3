"""Rounds a second of the study's linear algorithms, whether late rounds cost more than early ones, and a plain loop.

    python benchmarks/bandits.py [SEEDS [ROUNDS [PROBLEM …]]]        default 100 2000 linear-20d linear-40d

Times are CPU seconds of the whole process, so that other work on the machine matters little; rates are per second and
core. "late / early" is the time of the second half of the rounds over that of the first, from runs of one half and of
the whole, interleaved; medians. The last rows are the algorithm of the released comparison as a loop in NumPy that
keeps all rewards, one seed; each round goes through all of them for each of 25 gradient steps, so its cost grows.

The last line extrapolates to the whole linear part of `feelgood run bandits --preset default`: every algorithm tuned
on 8 seeds of 3,000 rounds for each point of its grid, then 100 seeds of 10,000 rounds, and two compilations.
"""

import math
import os
import statistics
import sys
import time

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from feelgood import bandits
from feelgood.parallel import over_devices
from feelgood.studies.bandits.algorithms import ENTRIES, LINEAR, grid, problem

jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

SEEDS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
PROBLEMS = sys.argv[3:] or ["linear-20d", "linear-40d"]
REPEATS = 3
HEAT = 0.001 * 20 * math.log(10_000)


def plain_loop(num_rounds, feel_good_weight):
    """LMC-TS as released, in NumPy: all features and rewards are kept, and every gradient goes through them."""
    rng = np.random.default_rng(0)
    truth, theta = rng.normal(size=20), rng.normal(size=20)
    rows, contexts, rewards = np.zeros((0, 20)), np.zeros((0, 5, 20)), np.zeros(0)
    for t in range(1, num_rounds + 1):
        features = np.kron(np.eye(5), rng.normal(size=4)[None])
        step = 0.1 / t
        for _ in range(25 if t > 1 else 0):
            gradient = 2 * rows.T @ (rows @ theta - rewards) + 0.02 * theta
            if feel_good_weight:
                best = np.argmax(contexts @ theta, 1)
                gradient = gradient - feel_good_weight * contexts[np.arange(t - 1), best].sum(0)
            theta = theta - step * gradient + math.sqrt(2 * step * HEAT) * rng.normal(size=20)
        arm = int(np.argmax(features @ theta))
        rows = np.concatenate([rows, features[arm][None]])
        contexts = np.concatenate([contexts, features[None]])
        rewards = np.append(rewards, features[arm] @ truth + 0.5 * rng.normal())


def seconds_of(call):
    began = time.process_time()
    call()
    return time.process_time() - began


def measure(problem_name, name):
    """CPU seconds of one compilation and of `ROUNDS` rounds, and late / early."""
    bandit, link = problem(problem_name)
    points = grid(name, problem_name)
    hyper = {key: values[len(values) // 2] for key, values in points.items()}
    algorithm = ENTRIES[name].make(bandit.model, link, 10_000, hyper)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    runs = [
        over_devices(lambda key, n=n: bandits.simulate(key, bandit, algorithm, n).regret.sum())
        for n in (ROUNDS // 2, ROUNDS)
    ]
    calls = [lambda run=run: jax.block_until_ready(run(keys)) for run in runs]
    compiling = sum(map(seconds_of, calls))
    times = [[seconds_of(call) for call in calls] for _ in range(REPEATS)]
    half, whole = (statistics.median(column) for column in zip(*times, strict=True))
    return max(compiling - half - whole, 0) / 2, whole, (whole - half) / half, math.prod(map(len, points.values()))


def main():
    table = Table("problem", "algorithm", "compile s", "rounds/s and core", "late / early", title=f"{SEEDS} seeds")
    total = 0.0
    for problem_name in PROBLEMS:
        for name in LINEAR:
            compiling, whole, late, num_points = measure(problem_name, name)
            rate = SEEDS * ROUNDS / whole
            total += 2 * compiling + (100 * 10_000 + num_points * 8 * 3000) / rate
            table.add_row(problem_name, name, f"{compiling:.1f}", f"{rate:,.0f}", f"{late:.2f}")
    for name, weight in (("LMC-TS, plain loop", 0.0), ("FG-LMC-TS, plain loop", 0.5)):
        half, whole = (seconds_of(lambda n=n, w=weight: plain_loop(n, w)) for n in (ROUNDS // 2, ROUNDS))
        table.add_row("linear-20d", name, "–", f"{ROUNDS / whole:,.0f}", f"{(whole - half) / half:.2f}")
    console = Console()
    console.print(table)
    cores = jax.local_device_count()
    console.print(f"whole linear part: {total:,.0f} CPU seconds, {total / 60 / cores:.1f} minutes on {cores} cores")


if __name__ == "__main__":
    main()
