"""Speed of FG-ULMCDQN on the functional N-chain, the time of each part, and how the time grows.

    python benchmarks/nchain.py [LENGTH [RUNS]]        default 25 20

In the first table, on one core, "training" is the whole: acting, replay, gradient, sampler, evaluation; the other rows
do one part alone, as often, in the same process. The second shows the cost against the number of steps and of runs, the
third one core against two. Rounds are interleaved and medians reported. The first two tables count CPU seconds on a
CPU, so that other work on the machine matters little.
"""

import os
import sys

if hasattr(os, "sched_setaffinity") and "JAX_PLATFORMS" not in os.environ:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import statistics
import subprocess
import tempfile
import time

import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from feelgood import agents, envs, noise
from feelgood.training import FunctionalConfig, run_batch, trainer

NUMBERS = [int(word) for word in sys.argv[1:]]
# A third number makes the process a worker on that number of cores, for `processes`.
LENGTH, RUNS, *NUM_CORES = [*NUMBERS, *(25, 20)[len(NUMBERS) :]]
NAME, BLOCKS, ROUNDS = "fg_ulmcdqn", 20, 3


def interleaved(parts):
    """Median seconds of each part after a first call; the parts take turns."""
    clock = time.process_time if jax.default_backend() == "cpu" else time.perf_counter
    times = {name: [] for name in parts}
    for _ in range(ROUNDS + 1):
        for name, part in parts.items():
            begin = clock()
            jax.block_until_ready(part())
            times[name].append(clock() - begin)
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def show(title, columns, rows):
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if table.columns else "left")
    for row in rows:
        table.add_row(*row)
    Console(width=100).print(table)


def batch(config, num_runs):
    """The trainer, and seeds and hyper-parameters of the runs."""
    one = trainer(envs.nchain(LENGTH), lambda spaces, hyper: agents.make_agent(NAME, spaces, hyper), config)
    hyper = {name: jnp.full((num_runs,), value) for name, value in agents.ZOO[NAME].hyper.items()}
    return one, jax.random.split(jax.random.key(0), num_runs), hyper


def breakdown():
    config = FunctionalConfig(num_steps=1000, evaluation_period=10 * BLOCKS, replay_ratio=4.0)
    num_updates = int(config.evaluation_period * config.replay_ratio)
    one, keys, hyper = batch(config, RUNS)
    state = jax.jit(jax.vmap(one.init))(keys, hyper)
    params = state.agent.sampler.params
    observations = jnp.ones((RUNS, config.batch_size, LENGTH))

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

    medians = interleaved(
        {
            "training": lambda: training(state, hyper, jnp.int32(0)),
            "matrix products alone": lambda: matrices(params, observations),
            "noise alone": lambda: normals(params, keys),
            "sampler alone, noise included": lambda: moves(state.agent.sampler, keys),
        }
    )
    rows = []
    for name, seconds in medians.items():
        each = seconds / (num_updates * RUNS)
        rows.append((name, f"{each * 1e6:.2f}", f"{1 / each:,.0f}", f"{seconds / medians['training']:.0%}"))
    show(
        f"{NAME}, N = {LENGTH}, {RUNS} runs together, {jax.devices()[0]}",
        ("part", "µs per update and run", "updates/s", "share of training"),
        rows,
    )


def growth():
    """Cost of a chunk against its number of steps and against the number of runs."""

    def chunk(num_steps, num_runs):
        config = FunctionalConfig(num_steps=num_steps, evaluation_period=num_steps, replay_ratio=4.0)
        one, keys, hyper = batch(config, num_runs)
        state = jax.jit(jax.vmap(one.init))(keys, hyper)
        advance = jax.jit(jax.vmap(one.advance, in_axes=(0, 0, None)))
        return lambda: advance(state, hyper, jnp.int32(0))

    sizes = [(200, RUNS), (400, RUNS), (800, RUNS), (200, 2 * RUNS), (200, 4 * RUNS)]
    medians = interleaved({size: chunk(*size) for size in sizes})
    base = medians[sizes[0]]
    rows = [
        (f"{steps} steps, {runs} runs", f"{steps * runs / (200 * RUNS):.0f}", f"{medians[steps, runs] / base:.2f}")
        for steps, runs in sizes
    ]
    show("cost against size, both relative to the first row", ("size", "work", "time"), rows)


def worker(num_cores):
    """Trains a chunk for each line of input, and prints the time that it took."""
    os.sched_setaffinity(0, range(num_cores))
    jax.config.update("jax_num_cpu_devices", num_cores)
    config = FunctionalConfig(num_steps=100_000, replay_ratio=4.0)
    one, _, hyper = batch(config, RUNS)
    began = time.perf_counter()

    def report(progress):
        nonlocal began
        print(time.perf_counter() - began, flush=True)
        sys.stdin.readline()
        began = time.perf_counter()

    run_batch(one, ROUNDS + 1, range(RUNS), hyper, report=report)


def start_worker(num_cores, cache):
    """Returns a worker on `num_cores` cores, each a device, after its first chunk."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(LENGTH), str(RUNS), str(num_cores)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu"},
    )
    process.stdout.readline()
    return process


def processes():
    """One core against two."""
    times = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as cache:
        workers = {cores: start_worker(cores, cache) for cores in (1, 2)}
        for _ in range(ROUNDS):
            for cores, process in workers.items():
                process.stdin.write("\n")
                process.stdin.flush()
                times[cores].append(float(process.stdout.readline()))
        for process in workers.values():
            process.kill()
    one, two = (statistics.median(times[cores]) for cores in (1, 2))
    updates = 4000 * RUNS
    rows = [
        ("updates/s on one core", f"{updates / one:,.0f}"),
        ("updates/s on two cores", f"{updates / two:,.0f}"),
        ("two cores against one", f"{one / two:.2f}"),
    ]
    show(f"{NAME}, N = {LENGTH}, {RUNS} runs together", ("processes", ""), rows)


if __name__ == "__main__":
    if NUM_CORES:
        worker(*NUM_CORES)
    else:
        breakdown()
        growth()
        if (os.cpu_count() or 1) > 1 and hasattr(os, "sched_setaffinity") and jax.default_backend() == "cpu":
            processes()
