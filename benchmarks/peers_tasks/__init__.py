"""Tasks of `benchmarks/peers_worker.py`, one module for each kind.

A package is imported only in the functions of its own tasks, because the environments of other packages do not have it.
"""

import os
import time

# CPU seconds, so that other work on the machine counts little. Elsewhere the process cannot be bound to one core.
CLOCK = time.process_time if hasattr(os, "sched_setaffinity") else time.perf_counter
TASKS = {}


def task(package, name):
    """Registers `quick -> (compile seconds, repeat -> dict)` as a task of a package."""

    def register(prepare):
        TASKS[package, name] = prepare
        return prepare

    return register


def timed(function, *arguments):
    """Seconds of a call, and its result."""
    import jax

    began = CLOCK()
    result = jax.block_until_ready(function(*arguments))
    return CLOCK() - began, result


def compiled(function, *arguments):
    """Compiles a function for such arguments and runs it once; returns the seconds of compilation and the function."""
    import jax

    began = CLOCK()
    program = jax.jit(function).lower(*arguments).compile()
    seconds = CLOCK() - began
    jax.block_until_ready(program(*arguments))
    return seconds, program
