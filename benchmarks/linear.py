"""Episodes per second of each algorithm for linear MDPs, and whether late episodes cost more than early ones.

    python benchmarks/linear.py [SEEDS [EPISODES [ALGORITHM ...]]]        default 64 2000, all algorithms, on all cores

d = 10, H = 10, 20 states, 4 actions; 20 sampler steps a stage and episode for LSVI-ASE and LMC-LSVI. "late / early" is
the time of the last quarter of the episodes over that of the first, from runs of a quarter, three quarters and the
whole, interleaved; medians of the rounds.
"""

import os
import statistics
import sys
import time

import jax
from rich.console import Console
from rich.table import Table

from feelgood.linear import algorithms, learn, lmc_lsvi, lsvi_ase, mdps, schemes
from feelgood.parallel import over_devices

jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)

SEEDS = int(sys.argv[1]) if len(sys.argv) > 1 else 64
EPISODES = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
NAMES = sys.argv[3:]
ROUNDS, UPDATES = 3, 20


def learners(mdp):
    ase = lambda scheme, updates=UPDATES: lsvi_ase(
        mdp.features, mdp.horizon, scheme, num_updates=updates, loss_weight=0.4, feel_good_weight=1.0
    )
    table = {
        name: algorithm.make(mdp.features, mdp.horizon, EPISODES, dict.fromkeys(algorithm.grid, 0.1))
        for name, algorithm in algorithms.ALGORITHMS.items()
        if not name.startswith("ase") and name not in ("lmc_lsvi", "cps")
    }
    return table | {
        "lmc_lsvi": lmc_lsvi(mdp.features, mdp.horizon, inverse_temperature=1.0, num_updates=UPDATES),
        "cps": algorithms.ALGORITHMS["cps"].make(
            mdp.features, mdp.horizon, EPISODES, {"loss": 100.0, "feel_good": 1.0}
        ),
        "ase_lmc": ase(schemes.lmc()),
        "ase_ulmc": ase(schemes.ulmc()),
        "ase_baoab": ase(schemes.baoab(1.0, 0.1)),
        "ase_mala": ase(schemes.mala()),
        "ase_exact": ase(schemes.exact(), 1),
    }


def main():
    mdp = mdps.random_simplex(dimension=10, num_states=20, num_actions=4, horizon=10)
    keys = jax.random.split(jax.random.key(0), SEEDS)
    parts = (EPISODES // 4, 3 * EPISODES // 4, EPISODES)
    table = Table(
        "algorithm",
        "compile s",
        f"{SEEDS} x {EPISODES} episodes, s",
        "episodes/s",
        "late / early",
        title=str(mdp.features.shape),
    )
    chosen = learners(mdp)
    for name in NAMES:
        if name not in chosen:
            raise SystemExit(f"algorithms must be among {', '.join(chosen)}, got {name!r}")
    for name in NAMES or chosen:
        learner = chosen[name]
        runs = [over_devices(lambda key, n=n, learner=learner: learn(key, mdp, learner, n).regret) for n in parts]
        began = time.perf_counter()
        for run in runs:
            jax.block_until_ready(run(keys))
        compiling = time.perf_counter() - began
        seconds = [[], [], []]
        for _ in range(ROUNDS):
            for run, times in zip(runs, seconds, strict=True):
                began = time.perf_counter()
                jax.block_until_ready(run(keys))
                times.append(time.perf_counter() - began)
        early, most, whole = map(statistics.median, seconds)
        compiling = max(compiling - early - most - whole, 0) / 3
        table.add_row(
            name,
            f"{compiling:.1f}",
            f"{whole:.1f}",
            f"{SEEDS * EPISODES / whole:,.0f}",
            f"{(whole - most) / early:.2f}",
        )
        Console().print(f"{name}: {SEEDS * EPISODES / whole:,.0f} episodes/s")
    Console().print(table)


if __name__ == "__main__":
    main()
