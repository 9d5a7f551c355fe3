"""Time from the start of a process to the first gradient steps, by part, without and with compiled code in the cache.

    python benchmarks/startup.py [REPEATS]        default 3

Each command starts in a process of its own, with a cache folder of its own: once cold, then `REPEATS` times warm; the
median of these is shown. "imports" ends when JAX is set up and the command begins; tracing, lowering and compiling
(or reading from the cache) are the times that JAX reports; the rest is Python, checks and the first steps themselves.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from rich.console import Console
from rich.table import Table

REPEATS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
COMMANDS = {
    "nchain": "run nchain --lengths 25 --agents fg_ulmcdqn --num-seeds 2 --num-steps 20000",
    "train, dqn": "train --env CartPole-v1 --agent dqn --num-steps 20000",
    "train, default": "train --env CartPole-v1 --num-steps 20000",
}
CHILD = """
import json, os, sys, time

def stop():
    compiled = {key: round(value, 3) for key, value in spent.items()}
    print(json.dumps({"wall": time.time() - float(sys.argv[1]), "cpu": time.process_time(), **compiled}))
    sys.stdout.flush()
    os._exit(0)

from feelgood.cli import work
spent = {"imports": 0.0, "trace": 0.0, "lower": 0.0, "compile": 0.0}
work.set_up_jax()
import jax, feelgood.training.batch as batch, feelgood.training.external_run as external
if sys.argv[2] == "run":
    import feelgood.studies.nchain.study
else:
    import feelgood.api.external
spent["imports"] = time.process_time()
names = {"jaxpr_trace_duration": "trace", "jaxpr_to_mlir_module_duration": "lower"}
names["backend_compile_duration"] = "compile"

def listen(event, seconds, **kwargs):
    part = names.get(event.rsplit("/", 1)[-1])
    if part:
        spent[part] += seconds

jax.monitoring.register_event_duration_secs_listener(listen)
batch.Progress = lambda *args: stop()
learn = external.Run._learn

def learn_and_stop(run):
    before = run.counters.gradients
    learn(run)
    if run.counters.gradients > before:
        jax.block_until_ready(run.agent)
        stop()

external.Run._learn = learn_and_stop
from feelgood import cli
cli.main(sys.argv[2:])
"""


def start(words, cache):
    """Starts a command and returns its times up to the first gradient steps."""
    with tempfile.TemporaryDirectory() as output:
        child = [sys.executable, "-c", CHILD, str(time.time()), *words.split(), "--output", f"{output}/run"]
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        done = subprocess.run(child, capture_output=True, text=True, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"wall"')]
    if not lines:
        sys.exit(f"{words} did not reach its first gradient steps:\n{done.stderr}")
    return json.loads(lines[0])


def main():
    parts = ("wall", "cpu", "imports", "trace", "lower", "compile")
    table = Table("command", "cache", *parts, title="seconds to the first gradient steps (CPU seconds but for wall)")
    for name, words in COMMANDS.items():
        with tempfile.TemporaryDirectory() as cache:
            cold = start(words, cache)
            warm = [start(words, cache) for _ in range(REPEATS)]
        middle = {part: statistics.median(run[part] for run in warm) for part in parts}
        for state, times in (("cold", cold), ("warm", middle)):
            table.add_row(name, state, *(f"{times[part]:.1f}" for part in parts))
    Console().print(table)


if __name__ == "__main__":
    main()
