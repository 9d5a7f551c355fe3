"""The recommended agent, or another, with one part changed at a time, on problems that require different abilities.

DeepSea requires deep exploration without loops, the one-hot grid exploration among loops, `cost_grid` the same with a
cost of 1 for every step, the N-chain a way past a small reward, cart-pole, mountain car and acrobot control, and
bsuite's swing-up exploration that costs more than doing nothing. Settings run on tuning seeds (from 1,000,000), unless
another first seed is given; the default was chosen from such a table. Scores are the mean return of the last ten
evaluations; on DeepSea also the runs that solve it by bsuite's rule, checked every 25 episodes, and their median number
of episodes. Best on a GPU.

    python benchmarks/ablation.py --problems deep_sea-40 grid-8 --changes default members=10 prior_scale=0.1
    python benchmarks/ablation.py --problems acrobot --changes default step_size_end=0
    python benchmarks/ablation.py --agent ulmcdqn --problems deep_sea-10 --changes default num_chains=10,matched_noise=1
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from feelgood import agents, envs
from feelgood.envs import Environment, Spec, Step, bsuite
from feelgood.training import FunctionalConfig, Record, run_batch, trainer
from feelgood.training.policy import zoo_agent

FIRST_SEED = 1_000_000
# Names of changes that are options of the agent or settings of the loop; others are hyper-parameters.
OPTIONS = {
    "members": ("num_members", int),
    "width": ("hidden", lambda value: (int(value), int(value))),
    "prioritized": ("prioritized", lambda value: bool(int(value))),
    "network": ("network", str),
    "form": ("form", str),
    "matched_noise": ("matched_noise", lambda value: bool(int(value))),
}
SETTINGS = {
    "batch_size": int,
    "capacity": int,
    "discount": float,
    "recent_share": float,
    "target_update_period": int,
    "n_step": int,
    "replay_ratio": float,
    "priority_exponent": float,
    "importance_exponent": float,
    "train_frequency": int,
    "num_chains": int,
}


def grid(size: int, cost: float = 0.0) -> Environment:
    """A square of one-hot cells, start in one corner and the end in the other.

    The last step has reward 1; if steps have a cost, it has reward 0.
    """
    moves = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    show = lambda cell: jax.nn.one_hot(cell[0] * size + cell[1], size**2)

    def reset(key):
        cell = jnp.zeros(2, jnp.int32)
        return (cell, jnp.asarray(0, jnp.int32)), show(cell)

    def step(key, state, action):
        cell, time = state
        cell = jnp.clip(cell + moves[action], 0, size - 1)
        at_goal, is_late = jnp.all(cell == size - 1), time + 1 >= 8 * size
        reward = jnp.where(at_goal, 0.0, -cost) if cost else at_goal.astype(jnp.float32)
        return (cell, time + 1), Step(show(cell), reward, at_goal, is_late & ~at_goal)

    kind = {"fixed_start": True, "is_random": False, "is_one_hot": True}
    spec = Spec((size**2,), np.dtype(np.float32), 4, 8 * size, 0.0, 1.0, **kind)
    encode = lambda observation: jnp.argmax(observation, -1).astype(jnp.int32)
    return Environment(reset, step, spec, encode, lambda index: jax.nn.one_hot(index, size**2))


def problem(name: str) -> tuple[Environment, int, int]:
    """The environment, its number of steps, and the steps between two evaluations."""
    kind, _, size = name.partition("-")
    if kind in ("deep_sea", "deep_sea_windy"):
        n = int(size)
        return envs.deep_sea(n, windy=kind == "deep_sea_windy", mapping_seed=42), 25 * n * (n + 8), 25 * n
    if kind == "nchain":
        return envs.nchain(int(size)), 60_000, 1_000
    if kind == "grid":
        return grid(int(size)), 20_000, 1_000
    if kind == "cost_grid":
        return grid(int(size), cost=1.0), 60_000, 2_000
    if kind == "swing_up":
        return bsuite.cartpole_swingup(), 300_000, 10_000
    if kind == "acrobot":
        return envs.acrobot(), 50_000, 1_000
    return {"cart_pole": envs.cart_pole, "mountain_car": envs.mountain_car}[kind](), 40_000, 1_000


def episodes_to_solve(record: Record) -> list[int | None]:
    """For each run the episodes until less than 9 in 10 of them missed the treasure; None if it does not happen."""
    episodes, found = np.cumsum(record.num_episodes, 1), np.cumsum(record.num_successes, 1)
    is_solved = (episodes - found) / episodes < 0.9
    first = episodes[np.arange(len(episodes)), is_solved.argmax(1)]
    return [int(count) if solved.any() else None for count, solved in zip(first, is_solved, strict=True)]


def run(name: str, change: str, seeds: np.ndarray, num_steps: int | None = None, agent: str = "ensemble_dqn") -> dict:
    """Trains the changed agent and returns its scores."""
    recipe = agents.ZOO[agent]
    environment, default_steps, period = problem(name)
    num_steps = num_steps or default_steps
    options, hyper = {}, dict(recipe.hyper)
    settings = recipe.functional_config(environment.spec.is_one_hot)
    for part in [] if change == "default" else change.split(","):
        what, _, value = part.partition("=")
        if what in OPTIONS:
            option, convert = OPTIONS[what]
            options[option] = convert(value)
        elif what in SETTINGS:
            settings[what] = SETTINGS[what](value)
        elif what.removesuffix("_end") in hyper:
            hyper[what] = float(value)
        else:
            raise SystemExit(f"a change must be one of {[*OPTIONS, *SETTINGS, *hyper]}, got {what!r}")
    config = FunctionalConfig(num_steps=num_steps, evaluation_period=period, success_return=0.9, **settings)
    make = zoo_agent(agent, agents.complete(agent, agents.Options(**options)))
    began = time.time()
    hyper = {each: jnp.full(len(seeds), value, jnp.float32) for each, value in hyper.items()}
    record = run_batch(trainer(environment, make, config, agents.anneal), config.num_chunks, seeds, hyper).record
    row = {
        "agent": agent,
        "problem": name,
        "change": change,
        "first_seed": int(seeds[0]),
        "num_steps": num_steps,
        "seconds": round(time.time() - began),
    }
    row["last"] = [round(float(score), 3) for score in record.evaluation[:, -10:].mean(1)]
    if name.startswith("deep_sea"):
        row["episodes"] = episodes_to_solve(record)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agent", choices=agents.ZOO, default="ensemble_dqn")
    parser.add_argument("--problems", nargs="+", default=["deep_sea-20", "grid-8", "nchain-25"])
    parser.add_argument("--changes", nargs="+", default=["default"], help="as in members=10,prior_scale=0.1")
    parser.add_argument("--num-seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--num-steps", type=int, help="environment steps of a run; each problem's own if not given")
    parser.add_argument("--output", type=Path, help="a file to which each row is added as JSON")
    arguments = parser.parse_args()
    seeds = arguments.first_seed + np.arange(arguments.num_seeds)
    print("| problem | change | solved | median episodes | mean score | seconds |\n|---|---|---|---|---|---|")
    for name in arguments.problems:
        for change in arguments.changes:
            row = run(name, change, seeds, arguments.num_steps, arguments.agent)
            if arguments.output:
                with arguments.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            solved = [count for count in row.get("episodes", []) if count is not None]
            share = f"{len(solved)} of {arguments.num_seeds}" if "episodes" in row else "–"
            median = f"{np.median(solved):g}" if 2 * len(solved) > arguments.num_seeds else "–"
            score = np.mean(row["last"])
            print(f"| {name} | {change} | {share} | {median} | {score:.2f} | {row['seconds']} |", flush=True)


if __name__ == "__main__":
    main()
