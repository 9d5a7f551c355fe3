"""Langevin chains on DeepSea: do their draws explore, with how many chains, which noise and which temperature?

The loop is that of Langevin DQN (Dwaracherla and Van Roy, 2020): two layers of 50 units, minibatches of 128, ten
updates per step (`--replay-ratio`) in a block at the end of each episode, the target copied every four updates. Chains
share one replay, and one of them acts in each episode. The whole grid of an agent is one batch of runs; seeds are
tuning seeds (1,000,000 and up). A run solves its size by bsuite's rule, checked every 25 episodes. Best on a GPU.

    python benchmarks/chains.py --sizes 10 --agents adam_lmcdqn ulmcdqn langevin_dqn --num-chains 1 10
    python benchmarks/chains.py --sizes 20 --agents adam_lmcdqn --num-chains 10 --rates 3e-4 --epsilons 3e-6 --betas 3e6
"""

import argparse
import csv
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from ablation import FIRST_SEED, episodes_to_solve

from feelgood import agents, envs
from feelgood.training import FunctionalConfig, run_batch, trainer

# Each agent's momentum averages over ten gradients; `rate` is its step size as that of Adam. Matched noise of a
# parameter without gradients is √(1 + a/ε) times as large as the plain one.
BIASED = {
    "adam_lmcdqn": lambda rate: {"step_size": 1e-2, "bias_factor": 100 * rate},
    "ulmcdqn": lambda rate: {"step_size": 0.1, "friction": 1.0, "bias_factor": 10 * rate},
}
AGENTS = [*BIASED, "langevin_dqn"]


def grid(agent: str, rates: list[float], epsilons: list[float], betas: list[float]) -> list[dict]:
    """Hyper-parameters of all points."""
    return [
        {**BIASED[agent](rate), "bias_epsilon": epsilon, "inverse_temperature": beta}
        if agent in BIASED
        else {"step_size": rate, "adam_epsilon": epsilon, "inverse_temperature": beta}
        for rate in rates
        for epsilon in epsilons
        for beta in betas
    ]


def run(agent: str, points: list[dict], size: int, num_chains: int, is_matched: bool, arguments) -> list[dict]:
    """Trains all points of an agent and returns a row for each."""
    num_seeds, num_episodes = arguments.num_seeds, arguments.num_episodes
    config = FunctionalConfig(
        num_steps=size * num_episodes,
        evaluation_period=25 * size,
        success_return=0.9,
        train_frequency=size,
        replay_ratio=arguments.replay_ratio,
        batch_size=128,
        target_update_period=4,
        capacity=100_000,
        num_chains=num_chains,
    )
    options = agents.Options((50, 50), form="corrected", matched_noise=is_matched, reduction=arguments.reduction)
    make = lambda spaces, hyper: agents.make_agent(agent, spaces, hyper, options)
    of_runs = [point for point in points for _ in range(num_seeds)]
    hyper = {name: jnp.array([point[name] for point in of_runs], jnp.float32) for name in points[0]}
    seeds = np.tile(FIRST_SEED + np.arange(num_seeds), len(points))
    began, sea = time.time(), envs.deep_sea(size, mapping_seed=42)
    record = run_batch(trainer(sea, make, config), config.num_chunks, seeds, hyper).record
    solved = np.array_split(np.array(episodes_to_solve(record), object), len(points))
    found = np.array_split(np.asarray(record.num_successes).sum(1), len(points))
    diverged = np.array_split(~np.asarray(record.is_finite)[:, -1], len(points))
    where = {"agent": agent, "size": size, "num_chains": num_chains, "matched_noise": is_matched}
    where.update(replay_ratio=arguments.replay_ratio, reduction=arguments.reduction)
    columns = ["step_size", "friction", "bias_factor", "bias_epsilon", "adam_epsilon", "inverse_temperature"]
    rows = []
    for point, episodes, treasures, bad in zip(points, solved, found, diverged, strict=True):
        times = [count for count in episodes if count is not None]
        rows.append(
            {
                **where,
                **{name: point.get(name) for name in columns},
                "num_seeds": num_seeds,
                "num_episodes": num_episodes,
                "num_solved": len(times),
                "median_episodes": float(np.median(times)) if times else None,
                "mean_treasures": float(treasures.mean()),
                "num_diverged": int(bad.sum()),
                "seconds": round(time.time() - began),
            }
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10])
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS)
    parser.add_argument("--num-chains", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 1e-2], help="step sizes as those of Adam")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1e-8, 1e-5, 1e-2])
    parser.add_argument("--betas", type=float, nargs="+", default=[1e4, 1e6, 1e8, 1e10, 1e12, 1e14])
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction, help="only plain or only matched noise")
    parser.add_argument("--replay-ratio", type=float, default=10.0, help="updates per step")
    parser.add_argument("--reduction", choices=["mean", "sum"], default="mean", help="sum sharpens with data")
    parser.add_argument("--num-seeds", type=int, default=4)
    parser.add_argument("--num-episodes", type=int, default=1_000)
    parser.add_argument("--output", type=Path, help="a CSV file; the rows are printed if not given")
    arguments = parser.parse_args()
    cases = [
        (size, agent, num_chains, is_matched)
        for size in arguments.sizes
        for num_chains in arguments.num_chains
        for agent in arguments.agents
        for is_matched in ([False, True] if agent in BIASED else [False])
        if arguments.plain is not is_matched
    ]
    file, writer = arguments.output.open("w") if arguments.output else sys.stdout, None
    for size, agent, num_chains, is_matched in cases:
        points = grid(agent, arguments.rates, arguments.epsilons, arguments.betas)
        rows = run(agent, points, size, num_chains, is_matched, arguments)
        if writer is None:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
        writer.writerows(rows)
        file.flush()


if __name__ == "__main__":
    main()
