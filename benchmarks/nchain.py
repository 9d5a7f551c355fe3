"""How fast FG-ULMCDQN trains on the N-chain inside XLA, and where the time goes.

    python benchmarks/nchain.py [LENGTH [RUNS]]        default 25 20, on one core

"training" is the whole: acting, replay, gradient, sampler, evaluation. The other rows do one part alone, as often, in
the same process; rounds are interleaved and medians reported.
"""

import os
import sys

if hasattr(os, "sched_setaffinity") and "JAX_PLATFORMS" not in os.environ:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import statistics
import time

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from feelgood import agents, envs, noise
from feelgood.training import Protocol, trainer

LENGTH = int(sys.argv[1]) if len(sys.argv) > 1 else 25
RUNS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
NAME, BLOCKS, ROUNDS = "fg_ulmcdqn", 20, 5


def main():
    protocol = Protocol(num_steps=1000, evaluation_period=10 * BLOCKS, num_updates=4)
    num_updates = protocol.evaluation_period * protocol.num_updates
    environment = envs.nchain(LENGTH)
    one = trainer(environment, lambda spaces, hyper: agents.make_agent(NAME, spaces, hyper), protocol)
    keys = jax.random.split(jax.random.key(0), RUNS)
    hyper = {name: jnp.full((RUNS,), value) for name, value in agents.ZOO[NAME].hyper.items()}
    state = jax.jit(jax.vmap(one.init))(keys, hyper)
    params = state.agent.sampler.params
    observations = jnp.ones((RUNS, protocol.batch_size, LENGTH))

    def repeat(step):
        """`step(carry, key) -> carry`, as often as training takes a gradient step, for all runs together."""

        def loop(carry, key):
            return jax.lax.scan(lambda c, k: (step(c, k), None), carry, jax.random.split(key, num_updates))[0]

        return jax.jit(jax.vmap(loop))

    def products(params, observation):
        """The matrix products of one update: both forward passes and the backward pass."""

        def forward(params, x):
            *hidden, last = [(layer.weight, layer.bias) for layer in params.layers]
            for weight, bias in hidden:
                x = jax.nn.relu(x @ weight + bias)
            return x @ last[0] + last[1]

        loss = lambda p: jnp.mean((forward(p, observation) - jax.lax.stop_gradient(forward(params, observation))) ** 2)
        gradient = jax.grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 1e-9 * g, params, gradient)

    matrices = jax.jit(
        jax.vmap(lambda p, x: jax.lax.scan(lambda c, _: (products(c, x), None), p, length=num_updates)[0])
    )
    normals = repeat(lambda p, key: jax.tree.map(jnp.add, p, noise.normal_like(key, p)))
    sampler = agents.zoo._adaptive_underdamped({k: v[0] for k, v in hyper.items()}, agents.Options())
    moves = repeat(lambda s, key: sampler.step(key, s, lambda p: sum(jnp.sum(x * x) for x in jax.tree.leaves(p)))[0])
    training = jax.jit(jax.vmap(one.advance, in_axes=(0, 0, None)))

    parts = {
        "training": lambda: training(state, hyper, jnp.int32(0)),
        "matrix products alone": lambda: matrices(params, observations),
        "noise alone": lambda: normals(params, keys),
        "sampler alone, noise included": lambda: moves(state.agent.sampler, keys),
    }
    times = {name: [] for name in parts}
    for _ in range(ROUNDS + 1):
        for name, part in parts.items():
            begin = time.perf_counter()
            jax.block_until_ready(part())
            times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    table = Table(title=f"{NAME}, N = {LENGTH}, {RUNS} runs together, {jax.devices()[0]}", title_justify="left")
    for column in ("part", "µs per update and run", "updates/s", "share of training"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for name, seconds in medians.items():
        each = seconds / (num_updates * RUNS)
        table.add_row(name, f"{each * 1e6:.2f}", f"{1 / each:,.0f}", f"{seconds / medians['training']:.0%}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
