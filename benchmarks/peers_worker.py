"""One package of `benchmarks/peers.py`, in a process and a virtual environment of its own.

    python benchmarks/peers_worker.py PACKAGE CORE [CORE ...]

Each line of standard input is `{"task": NAME, "repeat": NUMBER, "quick": BOOL}`; each answer is one line of JSON. The
first request of a task also compiles it; the answer then holds `compile`, in seconds.
"""

import json
import os
import sys

from peers_tasks import TASKS, cart_pole, exploration, growth, linear, samplers, samplers_torch

MODULES = (cart_pole, exploration, growth, linear, samplers, samplers_torch)  # importing them fills TASKS


def main():
    package, cores, prepared = sys.argv[1], [int(word) for word in sys.argv[2:]], {}
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["JAX_NUM_CPU_DEVICES"] = str(len(cores))
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of packages does not mix with the answers
    for line in sys.stdin:
        request = json.loads(line)
        name, answer = request["task"], {}
        if name not in prepared:
            answer["compile"], prepared[name] = TASKS[package, name](request["quick"])
        answer |= prepared[name](request["repeat"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
