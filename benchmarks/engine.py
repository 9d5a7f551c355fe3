"""The cost of the Ray engine per task, and a model of studies on eight H200.

    python benchmarks/engine.py [--seconds 3] [--num-tasks 12]

Two nodes with one core each, as processes of this machine, run tasks that sleep and return a table of 10,000 rows. The
cost of a task is the idle time of its node before it: once with all tasks submitted together, and once with plans in
which each task needs the table of the one before. Needs the extra ray.

The model is arithmetic on the rates in docs/speed.md and docs/reproduction.md; `--model` prints it alone.
"""

import argparse
import functools
import heapq
import itertools
import tempfile
import time
from pathlib import Path

NUM_NODES = 2
# One gradient step of a batch of R runs on an H200 takes 53 µs + 0.151 µs × R: a line through 2.8 million steps/s with
# 256 runs and 6.1 million with 4,096; it gives 6.4 million with 10,000 (measured 6.5 million).
STEP_SECONDS, RUN_SECONDS = 53e-6, 0.151e-6
COMPILE_SECONDS = 13.0
FRAMES_PER_SECOND = {1: 59_700, 2: 66_700}  # of one H200 with 16 cores, by runs at a time


def nap(seconds, progress, checkpoint):
    """A task: sleeps, and returns its start and end times in a table of the size that a batch of 100 runs has."""
    import numpy as np
    import pandas as pd
    from ray import get_runtime_context

    begin = time.time()
    time.sleep(seconds)
    columns = {name: np.random.default_rng(0).normal(size=10_000) for name in "abcdefg"}
    return pd.DataFrame({**columns, "begin": begin, "end": time.time(), "node": get_runtime_context().get_node_id()})


def measure(seconds, num_tasks):
    from ray.cluster_utils import Cluster

    from feelgood.studies.cluster import on_ray
    from feelgood.studies.engine import Task, carry_out

    def one(name):
        return (yield [Task(name, f"{name}.parquet", functools.partial(nap, seconds))])[0]

    def chain(name):
        tables = []
        for i in range(num_tasks // NUM_NODES):
            tables.append((yield from one(f"{name}-{i}")))
        return tables

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(NUM_NODES):
        cluster.add_node(num_cpus=1)
    plans = {
        "all tasks submitted together": [one(f"task-{i}") for i in range(num_tasks)],
        "each task needs the one before": [chain(f"chain-{i}") for i in range(NUM_NODES)],
    }
    try:
        for kind, own in plans.items():
            with tempfile.TemporaryDirectory() as folder:
                began = time.time()
                with on_ray(Path(folder), cluster.address) as engine:
                    results = carry_out(own, Path(folder), engine)
                    wall = time.time() - began
            tables = itertools.chain.from_iterable(each if isinstance(each, list) else [each] for each in results)
            rows = [table.iloc[0] for table in tables]
            gaps = []
            for _, of_node in itertools.groupby(
                sorted(rows, key=lambda row: (row.node, row.begin)), lambda row: row.node
            ):
                times = list(of_node)
                gaps += [after.begin - before.end for before, after in itertools.pairwise(times)]
            gaps.sort()
            first = min(row.begin for row in rows) - began
            print(
                f"{kind}: {len(rows)} tasks of {seconds:g} s on {NUM_NODES} nodes in {wall:.1f} s; connection to first "
                f"task {first:.1f} s; idle before each later task {sum(gaps) / len(gaps):.3f} s on average, "
                f"{gaps[len(gaps) // 2]:.3f} median, {gaps[-1]:.3f} at most"
            )
    finally:
        cluster.shutdown()


def batch_seconds(num_runs, num_gradient_steps):
    """Time of a batch on one H200, with compilation."""
    return COMPILE_SECONDS + num_gradient_steps * (STEP_SECONDS + RUN_SECONDS * num_runs)


def nchain_plans():
    """The paper's N-chain study: for each length and agent, its gradient steps and the times of its batches in turn."""
    from feelgood.agents import ZOO
    from feelgood.studies.nchain.study import GRIDS, NChainStudy

    study = NChainStudy(preset="paper")
    for agent in study.agents:
        num_points = 1
        for values in GRIDS[agent].values():
            num_points *= len(values)
        few, more = study.tuning_seeds
        batches = [num_points * few, study.num_kept * more, study.num_seeds]  # without ties
        if num_points == 1:
            batches = batches[-1:]
        ratio = dict(ZOO[agent].config)["replay_ratio"]
        for _ in study.lengths:
            yield study.num_steps * ratio, [batch_seconds(num_runs, study.num_steps * ratio) for num_runs in batches]


def makespan(plans, num_devices):
    """Time of all plans if a device takes the next task of the ready plan with the most work left."""
    ready, free, later, now = [list(plan) for plan in plans], num_devices, [], 0.0
    while ready or later:
        ready.sort(key=sum)
        while ready and free:
            plan = ready.pop()
            heapq.heappush(later, (now + plan[0], id(plan), plan[1:]))
            free -= 1
        now, _, rest = heapq.heappop(later)
        free += 1
        if rest:
            ready.append(rest)
    return now


def model():
    steps, plans = zip(*nchain_plans(), strict=True)
    total = sum(map(sum, plans))
    print(f"\nN-chain, preset paper: {len(plans)} plans, {sum(map(len, plans))} batches (arithmetic)")
    for num in (1, 8):
        took = makespan(plans, num)
        print(f"  {num} H200: {took / 60:.0f} min, devices busy {total / took / num:.0%} of the time")
    compiling = COMPILE_SECONDS * sum(map(len, plans)) / total
    waiting = STEP_SECONDS * sum(len(plan) * num for num, plan in zip(steps, plans, strict=True)) / total
    print(f"  longest plan {max(map(sum, plans)) / 60:.1f} min")
    print(f"  work: {waiting:.0%} fixed time of steps, {compiling:.0%} compilation, the rest grows with the runs")
    print("Atari, 8 games x 5 seeds x 50 million frames, one agent (arithmetic)")
    for at_a_time, rate in FRAMES_PER_SECOND.items():
        seconds = 40 * 50e6 / rate
        print(f"  {at_a_time} at a time on each H200: {seconds / 3600:.1f} h on one, {seconds / 8 / 60:.0f} min on 8")


if __name__ == "__main__":
    parse = argparse.ArgumentParser()
    parse.add_argument("--seconds", type=float, default=3.0)
    parse.add_argument("--num-tasks", type=int, default=12)
    parse.add_argument("--model", action="store_true", help="print the model alone")
    chosen = parse.parse_args()
    if not chosen.model:
        measure(chosen.seconds, chosen.num_tasks)
    model()
