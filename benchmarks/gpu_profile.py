"""Kernels of XLA's gradient steps on one GPU: the time of each, and the idle time of the GPU between them.

    python benchmarks/gpu_profile.py [--runs 4096 256] [--output profile.csv]

The work is the same as in onchip.py. JAX's profiler records it without CUDA graphs, which would hide the kernels. So
the time between kernels is longer than in training; "graphs" is the time of the same call with them.
"""

import argparse
import csv
import gzip
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

COLUMNS = ("runs", "kernel", "calls_per_step", "microseconds_per_step", "share")


def kernels(folder):
    """Names, starts and durations (µs) of all kernels in a trace, in the order of their start."""
    (path,) = Path(folder).rglob("*.trace.json.gz")
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    found = []
    for event in events:
        if event.get("ph") != "X" or "GPU" not in processes.get(event["pid"], ""):
            continue
        if "Stream" in threads.get((event["pid"], event["tid"]), ""):
            found.append((event["name"], event["ts"], event["dur"]))
    return sorted(found, key=lambda each: each[1])


def summary(found, num_steps):
    """Rows of calls and microseconds per gradient step, longest first, and the time without a kernel."""
    calls, spent = defaultdict(int), defaultdict(float)
    busy, end = 0.0, found[0][1]
    for name, start, duration in found:
        name = re.sub(r"_\d+$", "", name)
        calls[name] += 1
        spent[name] += duration
        busy += max(0.0, start + duration - max(start, end))
        end = max(end, start + duration)
    whole = end - found[0][1]
    rows = [(name, calls[name] / num_steps, spent[name] / num_steps, spent[name] / whole) for name in spent]
    rows.sort(key=lambda row: -row[2])
    return [*rows, ("(no kernel)", "", (whole - busy) / num_steps, 1 - busy / whole)], whole / num_steps


def measure(num_runs, num_blocks, with_trace):
    """Microseconds per gradient step, or the kernels of a call."""
    import jax
    import onchip

    options = onchip.parse([])
    problem = onchip.Problem(options, num_runs)
    path, inputs = problem.path(onchip.by_xla), (problem.keys, problem.states, problem.data, problem.hyper)
    jax.block_until_ready(path(num_blocks, *inputs))
    steps = num_blocks * options.updates
    if not with_trace:
        now = time.perf_counter()
        jax.block_until_ready(path(num_blocks, *inputs))
        return 1e6 * (time.perf_counter() - now) / steps
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(path(num_blocks, *inputs))
        return summary(kernels(folder), steps)


def main(words):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[4096, 256], help="numbers of runs")
    parser.add_argument("--blocks", type=int, default=10, help="blocks of 20 gradient steps in a recorded call")
    parser.add_argument("--output", type=Path, help="CSV file of the results")
    parser.add_argument("--graphs", action="store_true", help="time a call with CUDA graphs, without a record")
    options = parser.parse_args(words)
    if not options.graphs:
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="
    import jax

    if jax.default_backend() != "gpu":
        print("no GPU: this script records kernels of one", file=sys.stderr)
        return 2
    rows = []
    for num_runs in options.runs:
        result = measure(num_runs, options.blocks, not options.graphs)
        if options.graphs:
            rows.append((num_runs, "(whole call with graphs)", "", result, 1.0))
        else:
            rows += [(num_runs, *row) for row in result[0]] + [(num_runs, "(whole call)", "", result[1], 1.0)]
        for row in rows:
            if row[0] == num_runs:
                print(*(f"{x:.3f}" if isinstance(x, float) else x for x in row), sep="  ", flush=True)
        if options.output:
            with options.output.open("w", newline="") as file:
                csv.writer(file).writerows([COLUMNS, *rows])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
