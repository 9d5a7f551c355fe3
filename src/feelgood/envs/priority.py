"""Priority of the threads that step emulators."""

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gymnasium.vector import VectorEnv

_MANY_CORES = 8  # from this number on, emulators yield to all other threads; with fewer cores their share matters more


def in_background(make: Callable[[], VectorEnv]) -> VectorEnv:
    """Makes environments whose threads yield to all other threads of this process.

    Otherwise emulators on every core would delay the threads that feed them and the accelerator by milliseconds at
    every step. On a large machine their threads have idle priority and are bound to one core each: the scheduler would
    crowd threads of such low priority on some cores and leave others free.
    """

    def lowered() -> tuple[int, VectorEnv]:
        thread = threading.get_native_id()
        with contextlib.suppress(AttributeError, OSError):  # not on Linux, or not allowed
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, 0) + 5)
        return thread, make()  # its threads inherit the priority

    before = low_threads()
    with ThreadPoolExecutor(1) as pool:
        maker, env = pool.submit(lowered).result()
    with contextlib.suppress(AttributeError, OSError):
        cores, threads = sorted(os.sched_getaffinity(0)), sorted(low_threads() - before - {maker})
        if len(threads) >= len(cores) >= _MANY_CORES:
            for i, thread in enumerate(threads):
                os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))
                os.sched_setaffinity(thread, {cores[i % len(cores)]})
    return env


def low_threads() -> set[int]:
    """The threads of this process with a lower priority than its own; none if the system does not show it."""
    try:
        threads, own = {int(name) for name in os.listdir("/proc/self/task")}, os.getpriority(os.PRIO_PROCESS, 0)
    except (AttributeError, OSError):
        return set()
    found = set()
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            if os.getpriority(os.PRIO_PROCESS, thread) > own:
                found.add(thread)
    return found
