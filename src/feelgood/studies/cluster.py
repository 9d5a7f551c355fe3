"""The engine that runs the tasks of a study on a Ray cluster."""

import importlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from feelgood.studies.engine import Engine, Task, jax_settings
from feelgood.studies.worker import configure_jax

MOST_RETRIES = 3

_SILENT = SimpleNamespace(task=lambda name, total: nullcontext(lambda progress: None))


def _work(run: Callable[..., Any], settings: Mapping[str, Any]) -> tuple[Any, str]:
    """Runs a task on a worker, with JAX set up as in the main process; also returns the device."""
    import jax

    configure_jax(settings)
    table = run(_SILENT, None)
    devices = jax.local_devices()
    return table, f"{len(devices)} x {devices[0].device_kind}"


@contextmanager
def on_ray(folder: Path, address: str = "") -> Iterator[Engine]:
    """Runs tasks on a Ray cluster, as many at a time as fit.

    If the cluster has GPUs, each task gets one. Otherwise a task gets as many cores as JAX has devices in this process,
    and spreads its runs over as many devices, so that the results are identical bit for bit. Workers must be able to
    import feelgood. The connection is made when the first task is submitted; on exit, unfinished tasks are cancelled.

    Args:
      folder: folder of the tables.
      address: address of the cluster; empty for the value of RAY_ADDRESS, or a new cluster on this machine.
    """
    import jax

    ray: Any = importlib.import_module("ray")
    facts: dict[str, list[str]] = {"workers": []}
    names: dict[Any, str] = {}
    settings = jax_settings()
    began_here = not ray.is_initialized()

    @cache
    def worker() -> Any:
        if began_here:
            _connect(ray, address)
        room = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(node.get("GPU") for node in room) and settings["jax_platforms"] != "cpu":
            needs = {"num_cpus": 0, "num_gpus": 1}
        else:
            most = int(max((node.get("CPU", 0) for node in room), default=0))
            needs = {"num_cpus": min(jax.local_device_count(), most or 1)}
        return ray.remote(max_retries=MOST_RETRIES, **needs)(_work)

    def submit(task: Task) -> Any:
        handle = worker().remote(task.run, settings)
        names[handle] = task.name
        return handle

    def first(handles: Sequence[Any]) -> tuple[int, Any]:
        (handle, *_), _ = ray.wait(list(handles), num_returns=1)
        try:
            table, device = ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            why = str(error).splitlines()[0]
            raise ChildProcessError(f"task {names[handle]} was lost {MOST_RETRIES + 1} times ({why})") from error
        del names[handle]
        facts["workers"] = sorted({*facts["workers"], device})
        return handles.index(handle), table

    try:
        yield Engine(submit, first, float("inf"), facts)
    finally:
        for handle in names:
            ray.cancel(handle, force=True)
        if began_here and ray.is_initialized():
            ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    # No usage statistics for a cluster that is started here.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    asked = address or os.environ.get("RAY_ADDRESS", "")
    host, _, port = asked.rpartition(":")
    try:
        if host and port.isdecimal() and "/" not in host:
            # Ray itself would retry for many minutes.
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address or None, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError) as error:
        why = (str(error) or type(error).__name__).splitlines()[0]
        raise ConnectionError(f"ray_address {asked or 'on this machine'} cannot be reached ({why})") from error
