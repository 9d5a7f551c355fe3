"""Seconds per environment step on DeepSea, with one-hot observations looked up and with dense products.

    python benchmarks/onehot.py [--sizes 10 50] [--agents ensemble_dqn dqn]

Each step has its gradient step. The same agents get the same observations as indices, as in training, or as vectors.
Adam moves all parameters at every step, so its cost grows with N² independently of the products. CPU seconds on one
core, medians of interleaved rounds.
"""

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
from rich.console import Console
from rich.table import Table

from feelgood import agents, envs
from feelgood.training import FunctionalConfig, trainer

STEPS, ROUNDS = 400, 3


def loop(size, name, is_one_hot):
    """A function that trains for `STEPS` steps, compiled, and the number of parameters of the agent."""
    environment = envs.deep_sea(size)
    if not is_one_hot:
        environment = environment._replace(spec=environment.spec._replace(is_one_hot=False))
    recipe = agents.ZOO[name]
    settings = {**recipe.config, "learning_starts": 200, "capacity": 1000, "num_evaluation_episodes": 1}
    config = FunctionalConfig(num_steps=STEPS * (ROUNDS + 1), evaluation_period=STEPS, **settings)
    train = trainer(environment, lambda spaces, hyper: agents.make_agent(name, spaces, hyper, agents.Options()), config)
    hyper = dict(recipe.hyper)
    state = jax.jit(train.init)(jax.random.key(0), hyper)
    advance = jax.jit(train.advance)
    place = [jax.block_until_ready(advance(state, hyper, 0)[0]), 1]

    def go():
        place[0] = jax.block_until_ready(advance(place[0], hyper, place[1])[0])
        place[1] += 1

    return go, sum(x.size for x in jax.tree.leaves(state.agent.sampler.params))


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 50], help="sizes N of DeepSea")
    parser.add_argument("--agents", nargs="+", default=["ensemble_dqn", "dqn"], help="agents of the zoo")
    options = parser.parse_args(words)
    cells = [(name, size) for name in options.agents for size in options.sizes]
    loops = {(*cell, as_index): loop(*reversed(cell), as_index) for cell in cells for as_index in (True, False)}
    times = {key: [] for key in loops}
    for _ in range(ROUNDS):
        for key, (go, _) in loops.items():
            began = time.process_time()
            go()
            times[key].append((time.process_time() - began) / STEPS)
    table = Table(title="DeepSea, milliseconds per step", title_justify="left")
    for column in ("agent", "N", "parameters", "looked up", "dense", "dense / looked up", "relative to the first N"):
        table.add_column(column, justify="left" if column == "agent" else "right")
    for name, size in cells:
        index, dense = (1e3 * statistics.median(times[name, size, kind]) for kind in (True, False))
        first = 1e3 * statistics.median(times[name, options.sizes[0], True])
        numbers = f"{index:.2f}", f"{dense:.2f}", f"{dense / index:.1f}", f"{index / first:.1f}"
        table.add_row(name, str(size), f"{loops[name, size, True][1]:,}", *numbers)
    Console(width=110).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
