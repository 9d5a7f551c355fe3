"""Rounds a second of bandit algorithms on linear-20d, whether late rounds cost more than early ones, and a plain loop.

    python benchmarks/bandits.py [SEEDS [ROUNDS]]        default 100 2000, on all cores

"late / early" is the time of the second half of the rounds over that of the first, from runs of one half and of the
whole, interleaved; medians. The last rows are the algorithm of the released comparison as a loop in NumPy that keeps
all rewards, one seed; each round goes through all of them for each of 25 gradient steps, so its cost grows.
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

jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

SEEDS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
REPEATS = 3
HEAT = 0.001 * 20 * math.log(10_000)


def algorithms(model):
    good = bandits.FeelGood(0.01, capacity=128)
    common = {"loss_weight": 1.0, "prior_precision": 0.02}
    return {
        "LinUCB": bandits.lin_ucb(model, **common),
        "LinTS": bandits.lin_ts(model, HEAT, **common),
        "FGTS, exact": bandits.fgts(model, good, HEAT, num_candidates=4, **common),
        "LMC-TS, 25 steps": bandits.lmc_ts(model, 0.1, HEAT, decay=True, **common),
        "FG-LMC-TS, 10 steps": bandits.lmc_ts(model, 0.5, HEAT, num_steps=10, feel_good=good, **common),
        "MALA-TS, 10 steps": bandits.mala_ts(model, 0.5, HEAT, num_steps=10, **common),
        "BAOAB-TS, 25 steps": bandits.baoab_ts(model, 1.0, 0.5, HEAT, **common),
    }


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
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main():
    bandit = bandits.linear()
    cores = jax.local_device_count()
    title = f"linear-20d, {SEEDS} seeds x {ROUNDS} rounds, {cores} cores"
    table = Table("algorithm", "compile s", "seconds", "rounds/s and core", "late / early", title=title)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    for name, algorithm in algorithms(bandit.model).items():
        runs = [
            over_devices(lambda key, n=n, a=algorithm: bandits.simulate(key, bandit, a, n).regret.sum())
            for n in (ROUNDS // 2, ROUNDS)
        ]
        calls = [lambda run=run: jax.block_until_ready(run(keys)) for run in runs]
        compiling = sum(map(seconds_of, calls))
        times = [[seconds_of(call) for call in calls] for _ in range(REPEATS)]
        half, whole = (statistics.median(column) for column in zip(*times, strict=True))
        compiling = max(compiling - half - whole, 0) / 2
        rate = SEEDS * ROUNDS / whole / cores
        table.add_row(name, f"{compiling:.1f}", f"{whole:.2f}", f"{rate:,.0f}", f"{(whole - half) / half:.2f}")
    for name, weight in (("LMC-TS, plain loop", 0.0), ("FG-LMC-TS, plain loop", 0.5)):
        half, whole = (seconds_of(lambda n=n, w=weight: plain_loop(n, w)) for n in (ROUNDS // 2, ROUNDS))
        table.add_row(
            f"{name}, one seed", "–", f"{whole:.2f}", f"{ROUNDS / whole:,.0f}", f"{(whole - half) / half:.2f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
