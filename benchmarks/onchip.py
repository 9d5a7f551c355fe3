"""Gradient steps per second of many runs on one GPU: the scan of XLA against the kernel of learn_on_chip.py.

    python benchmarks/onchip.py [--runs 4096 256 1024] [--variants none:4:64:tf32 ...] [--output onchip.csv]

FG-ULMCDQN on the N-chain learns from a fixed replay, without environment steps. A block draws its minibatches,
evaluates the target network on them, does its gradient steps and copies the parameters to the target; both paths share
all but the gradient steps. "Alone" repeats the gradient steps on one set of minibatches. Paths take turns, and medians
are reported. Differences are those of the parameters after one block from XLA's with products in float32, without and
with noise; both paths draw the same numbers. The differences of XLA itself, with its default precision, are a
reference.

A variant is held:num_warps:tile_rows:precision[:num_stages], see `onchip_kernel.Plan`. All variants run at
the first number of runs, and the fastest ones at the others.
"""

import argparse
import csv
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import learn_on_chip as onchip
from rich.console import Console
from rich.table import Table

from feelgood import agents, envs
from feelgood.replay import Transition, replay

NAME, DISCOUNT, CAPACITY = "fg_ulmcdqn", 0.99, 1000
VARIANTS = (
    "none:4:64:tf32",
    "none:2:32:tf32",
    "none:8:64:tf32",
    "all:8:128:tf32",
    "none:2:16:tf32",
    "none:4:32:tf32",
    "params:4:64:tf32",
    "none:4:64:tf32x3",
)
COLUMNS = (
    "runs",
    "path",
    "updates",
    "steps_per_second",
    "seconds",
    "compile_seconds",
    "difference",
    "noisy_difference",
)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[4096, 256, 1024], help="numbers of runs")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), help="variants of the kernel")
    parser.add_argument("--keep", type=int, default=2, help="variants that go on after the first number of runs")
    parser.add_argument("--updates", type=int, default=20, help="gradient steps of a block")
    parser.add_argument("--length", type=int, default=100, help="N of the N-chain")
    parser.add_argument("--hidden", type=int, default=32, help="width of both hidden layers")
    parser.add_argument("--batch-size", type=int, default=32, help="transitions in a minibatch")
    parser.add_argument(
        "--steps", type=int, default=1_500_000, help="gradient steps of a timed call, all runs together"
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed calls of each path")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds after which nothing new is compiled")
    parser.add_argument("--double", action="store_true", help="use double targets")
    parser.add_argument("--output", type=Path, help="CSV file of the results")
    parser.add_argument(
        "--interpret", action="store_true", help="check tiny shapes in Pallas' interpreter, on any device"
    )
    options = parser.parse_args(words)
    if options.interpret:
        options.runs, options.variants, options.updates, options.length = [2], options.variants[:1], 2, 20
        options.hidden = options.batch_size = 16
        options.steps, options.rounds = 8, 1
    return options


def plan_of(variant, options):
    held, num_warps, tile_rows, precision, *num_stages = variant.split(":")
    return onchip.Plan(
        options.length,
        (options.hidden, options.hidden),
        2,
        code="thermometer",
        double=options.double,
        precision=precision,
        held=held,
        tile_rows=int(tile_rows),
        num_warps=int(num_warps),
        num_stages=int(num_stages[0]) if num_stages else 1,
    )


class Problem:
    """Some runs, each with random transitions in its replay."""

    def __init__(self, options, num_runs):
        environment = envs.nchain(options.length)
        spec = environment.spec
        self.options = options
        self.spaces = agents.Spaces(spec.observation_shape, spec.num_actions, environment.decode)
        self.start = environment.encode(environment.reset(jax.random.key(0))[1])
        none = jnp.zeros((0,), jnp.uint8)
        example = Transition(self.start, jnp.zeros((), jnp.uint8), jnp.zeros(()), False, False, self.start, none)
        self.ring = replay(CAPACITY, example)

        def begin(key):
            key_agent, key_data = jax.random.split(key)
            keys = jax.random.split(key_data, 4)
            code = lambda key: jax.random.randint(key, (CAPACITY,), 0, options.length).astype(self.start.dtype)
            transitions = Transition(
                code(keys[0]),
                jax.random.randint(keys[1], (CAPACITY,), 0, 2).astype(jnp.uint8),
                jax.random.uniform(keys[2], (CAPACITY,)),
                jnp.zeros(CAPACITY, bool),
                jnp.zeros(CAPACITY, bool),
                code(keys[3]),
                jnp.zeros((CAPACITY, 0), jnp.uint8),
            )
            state = self.agent(agents.ZOO[NAME].hyper).init(key_agent)
            return state, self.ring.add_batch(self.ring.init(), transitions)

        keys = jax.random.split(jax.random.key(0), num_runs + 1)
        self.keys, (self.states, self.data) = keys[1:], jax.jit(jax.vmap(begin))(keys[:-1])
        self.hyper = {name: jnp.full((num_runs,), value) for name, value in agents.ZOO[NAME].hyper.items()}

    def agent(self, hyper):
        hidden = (self.options.hidden, self.options.hidden)
        return agents.make_agent(NAME, self.spaces, hyper, agents.Options(hidden=hidden, double=self.options.double))

    def draw(self, agent, key, state, data):
        """Keys, minibatches and the target's values of a block."""
        shape = self.options.updates, self.options.batch_size
        key_batches, key_updates = jax.random.split(key)
        batches = self.ring.sample(key_batches, data, shape[0] * shape[1], DISCOUNT)
        batches = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), batches)
        batches = batches._replace(first_observation=jnp.full((shape[0], 1), self.start))
        keys = jax.random.split(key_updates, shape[0])
        return keys, batches, jax.vmap(agent.look_ahead, (0, None, 0))(keys, state, batches)

    def path(self, learn, *, alone=False):
        """`(num_blocks, keys, states, data, hyper) -> states` with the gradient steps of `learn`.

        With `alone`, all blocks have the same minibatches and targets, which are drawn once.
        """

        def one(num_blocks, key, state, data, hyper):
            agent = self.agent(hyper)
            same = self.draw(agent, key, state, data) if alone else None

            def block(i, state):
                if same is not None:
                    return learn(agent, hyper, state, *same)
                return agent.sync(
                    learn(agent, hyper, state, *self.draw(agent, jax.random.fold_in(key, i), state, data))
                )

            return jax.lax.fori_loop(0, num_blocks, block, state)

        return jax.jit(jax.vmap(one, (None, 0, 0, 0, 0)))


def by_xla(agent, hyper, state, keys, batches, next_values):
    update = lambda state, inputs: (agent.update(inputs[0], state, inputs[1], CAPACITY, inputs[2])[0], None)
    return jax.lax.scan(update, state, (keys, batches, next_values))[0]


def by_kernel(plan, interpret, agent, hyper, state, keys, batches, next_values):
    keys = jax.vmap(lambda key: jax.random.split(key)[1])(keys)
    moved, _ = onchip.learn_on_chip(plan, hyper, keys, state.sampler, batches, next_values, interpret=interpret)
    return state._replace(sampler=moved)


def difference(one, other):
    """Largest difference of two sets of parameters."""
    each = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), one.sampler.params, other.sampler.params)
    return float(max(jax.tree.leaves(each)))


def attempt(name, function):
    """The result of a function, or None after its error has been printed."""
    try:
        return function()
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {str(error)[:1500]}", flush=True)
        return None


def measure(options, num_runs, variants, began):
    """Rows of results, and the variants from fast to slow."""
    problem = Problem(options, num_runs)
    num_blocks = max(1, round(options.steps / (num_runs * options.updates)))
    inputs = problem.keys, problem.states, problem.data, problem.hyper
    silent = {**problem.hyper, "inverse_temperature": jnp.full((num_runs,), jnp.inf)}
    paths, compiled, differences, reference = {}, {}, {}, None
    learners = {"xla": by_xla, **{v: partial(by_kernel, plan_of(v, options), options.interpret) for v in variants}}
    with jax.default_matmul_precision("highest"):
        exact = problem.path(by_xla)
        reference = [exact(1, *inputs[:3], hyper) for hyper in (silent, problem.hyper)]
    for name, learn in learners.items():
        if time.perf_counter() - began > options.budget:
            print(f"{name}: not compiled, as the budget of {options.budget:.0f} s is spent", flush=True)
            continue

        def prepare(name=name, learn=learn):
            whole, alone = problem.path(learn), problem.path(learn, alone=True)
            now = time.perf_counter()
            ends = [whole(1, *inputs[:3], hyper) for hyper in (silent, problem.hyper)]
            differences[name] = [difference(*pair) for pair in zip(ends, reference, strict=True)]
            jax.block_until_ready(whole(num_blocks, *inputs))
            compiled[name] = time.perf_counter() - now
            paths[name] = partial(whole, num_blocks, *inputs)
            if name != "xla":
                jax.block_until_ready(alone(num_blocks, *inputs))
                paths[f"{name} alone"] = partial(alone, num_blocks, *inputs)
            print(f"{num_runs} runs, {name}: compiled in {compiled[name]:.1f} s, {differences[name]}", flush=True)

        attempt(name, prepare)
    times = {name: [] for name in paths}
    for _ in range(options.rounds):
        for name, path in paths.items():
            now = time.perf_counter()
            if attempt(name, lambda path=path: jax.block_until_ready(path())) is not None:
                times[name].append(time.perf_counter() - now)
    rows = []
    for name, seconds in times.items():
        if not seconds:
            continue
        median, apart = statistics.median(seconds), differences.get(name, ("", ""))
        speed = num_runs * num_blocks * options.updates / median
        rows.append((num_runs, name, options.updates, round(speed), median, compiled.get(name, ""), *apart))
    speeds = {row[1]: row[3] for row in rows}
    return rows, sorted((v for v in variants if v in speeds), key=lambda v: -speeds[v])


def show(rows):
    table = Table(title=f"{NAME} on {jax.devices()[0]}", title_justify="left")
    for column in ("runs", "path", "million gradient steps/s", "against XLA", "difference", "with noise"):
        table.add_column(column, justify="left" if column == "path" else "right")
    base = {row[0]: row[3] for row in rows if row[1] == "xla"}
    number = lambda x: f"{x:.1e}" if x != "" else ""
    for row in rows:
        ratio = f"{row[3] / base[row[0]]:.2f}" if row[0] in base else ""
        table.add_row(f"{row[0]:,}", row[1], f"{row[3] / 1e6:.3f}", ratio, *map(number, row[6:]))
    Console(width=110).print(table)


def main(words):
    options = parse(words)
    if jax.default_backend() != "gpu" and not options.interpret:
        print("no GPU: the kernel needs one; --interpret checks tiny shapes without one", file=sys.stderr)
        return 2
    began, rows, variants = time.perf_counter(), [], options.variants
    for num_runs in options.runs:
        result = attempt(f"{num_runs} runs", partial(measure, options, num_runs, variants, began))
        if result is None:
            continue
        rows += result[0]
        variants = result[1][: options.keep] or variants
        show(rows)
        if options.output:
            with options.output.open("w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])
    return 0 if any(row[1] != "xla" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
