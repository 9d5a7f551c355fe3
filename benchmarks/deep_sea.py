"""Episodes that an agent needs to solve DeepSea, by bsuite's rule.

A size counts as solved at the first check at which the treasure was found in more than a tenth of all episodes so far
(bsuite: the share of episodes without treasure is below 0.9). Checks come every 25 episodes.

    python benchmarks/deep_sea.py --sizes 10 20 --num-seeds 20
"""

import argparse
import time

import jax.numpy as jnp
import numpy as np

from feelgood import agents, envs
from feelgood.training import run_batch, trainer
from feelgood.training.config import FunctionalConfig

EPISODES_PER_CHECK = 25


def episodes_to_solve(agent: str, size: int, seeds: np.ndarray, num_episodes: int, mapping_seed: int) -> np.ndarray:
    """Episodes until each run solves the size; −1 where it does not within `num_episodes`."""
    recipe = agents.ZOO[agent]
    config = FunctionalConfig(
        num_steps=-(-num_episodes // EPISODES_PER_CHECK) * EPISODES_PER_CHECK * size,
        evaluation_period=EPISODES_PER_CHECK * size,
        success_return=0.9,
        **{"train_frequency": 10 if (EPISODES_PER_CHECK * size) % 10 == 0 else 5, **recipe.config},
    )
    make = lambda spaces, hyper: agents.make_agent(agent, spaces, hyper)
    hyper = {name: jnp.full(len(seeds), value, jnp.float32) for name, value in recipe.hyper.items()}
    sea = envs.deep_sea(size, mapping_seed=mapping_seed)
    record = run_batch(trainer(sea, make, config, agents.anneal), config.num_chunks, seeds, hyper).record
    successes, episodes = np.cumsum(record.num_successes, 1), np.cumsum(record.num_episodes, 1)
    is_solved = (episodes - successes) / episodes < 0.9
    first = episodes[np.arange(len(seeds)), is_solved.argmax(1)]
    return np.where(is_solved.any(1), first, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", default="ensemble_dqn", choices=list(agents.ZOO))
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--num-seeds", type=int, default=4)
    parser.add_argument("--num-episodes", type=int, default=1000)
    parser.add_argument("--mapping-seed", type=int, default=42, help="bsuite's is 42")
    arguments = parser.parse_args()
    print("| size | solved | median episodes | slowest | seconds |\n|---|---|---|---|---|")
    for size in arguments.sizes:
        began = time.time()
        seeds = np.arange(arguments.num_seeds)
        solved = episodes_to_solve(arguments.agent, size, seeds, arguments.num_episodes, arguments.mapping_seed)
        known = solved[solved > 0]
        median = np.median(np.where(solved > 0, solved, np.inf))
        slowest = known.max() if len(known) else "–"
        print(
            f"| {size} | {len(known)}/{len(seeds)} | {median:g} | {slowest} | {time.time() - began:.0f} |", flush=True
        )


if __name__ == "__main__":
    main()
