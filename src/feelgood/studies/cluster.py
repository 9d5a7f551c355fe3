"""The engine that runs the tasks of a study on a Ray cluster.

Tasks write their checkpoints into the study's folder if their node can reach it, in the same files as local runs. A
task that is lost with its node, or stopped with the leading process, continues from there.
"""

import importlib
import os
import secrets
import shlex
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from feelgood.files import atomically
from feelgood.signals import SIGNALS, Interrupted, stop_on_signal
from feelgood.studies import node
from feelgood.studies.engine import Engine, Task, checkpoint_of, jax_settings
from feelgood.studies.node import MARKER, STOPPED

MOST_RETRIES = 3
SECONDS_TO_STOP = 4.0
"""Time in which stopped tasks write their checkpoints; less than `feelgood.signals.SECONDS_TO_STOP`."""
SECONDS_WITHOUT_HEAD = 15.0
"""Time after which a head that does not answer counts as lost. After 60 seconds Ray would end this process."""


@contextmanager
def on_ray(folder: Path, address: str = "") -> Iterator[Engine]:
    """Runs tasks on a Ray cluster, as many at a time as fit.

    If the cluster has GPUs, each task gets one. Otherwise a task gets as many cores as JAX has devices in this process,
    and spreads its runs over as many devices, so that the results are identical bit for bit. Workers must be able to
    import feelgood. The connection is made when the first task is submitted. On exit, unfinished tasks write their
    checkpoints and stop.

    Tasks keep checkpoints in `folder`, next to the tables, if their node can reach it under the same path; otherwise
    there is a warning, and they keep none. An empty `address` stands for the value of RAY_ADDRESS, or for a new cluster
    on this machine.
    """
    ray: Any = importlib.import_module("ray")
    folder, token = folder.absolute(), secrets.token_hex(16)
    facts: dict[str, list[str]] = {"workers": []}
    names: dict[Any, str] = {}
    probes: list[Any] = []
    warned: list[bool] = []
    settings, began_here = jax_settings(), not ray.is_initialized()

    @cache
    def connect() -> tuple[Any, _Head]:
        if began_here:
            _connect(ray, address)
        _mark(folder, token)
        nodes = [each for each in ray.nodes() if each["Alive"]]
        needs = _needs([each["Resources"] for each in nodes], settings)
        at = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        for each in nodes:  # a task on each node checks whether the node reaches the folder
            if each["Resources"].get("CPU"):
                probe = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": at(each["NodeID"], soft=False)}
                probes.append(ray.remote(**probe)(node.is_unreached).remote(folder, token))
        return ray.remote(max_retries=MOST_RETRIES, **needs)(node.work), _Head(ray, folder, address)

    def submit(task: Task) -> Any:
        remote, _ = connect()
        handle = remote.remote(task.run, settings, checkpoint_of(folder, task.file), token)
        names[handle] = task.name
        return handle

    def first(handles: Sequence[Any]) -> tuple[int, Any]:
        _, head = connect()
        with stop_on_signal() as stop:
            while not stop.is_set():
                ready, _ = ray.wait([*handles, *probes], num_returns=1, timeout=0.5)
                if not ready:
                    head.check()
                elif ready[0] in probes:
                    probes.remove(ready[0])
                    with suppress(ray.exceptions.RayError):  # its node is gone
                        warn(ray.get(ready[0]))
                else:
                    return handles.index(ready[0]), table_of(ready[0], head)
        raise Interrupted

    def table_of(handle: Any, head: _Head) -> Any:
        try:
            answer = ray.get(handle)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.RayError as error:
            why = str(error).splitlines()[0]
            head.check_after(error)
            raise ChildProcessError(f"task {names[handle]} was lost {MOST_RETRIES + 1} times ({why})") from error
        name = names.pop(handle)
        if answer is None:
            raise ChildProcessError(f"task {name} was stopped on its node")
        table, device, is_unreached = answer
        facts["workers"] = sorted({*facts["workers"], device})
        warn(is_unreached)
        return table

    def warn(is_unreached: bool) -> None:
        if is_unreached and not warned:
            warned.append(True)
            warnings.warn(
                f"a node of the Ray cluster cannot write to {folder}: tasks there keep no checkpoints, and lost ones "
                "start again; choose an output on a file system that all nodes share, or shorter tasks",
                stacklevel=2,
            )

    try:
        yield Engine(submit, first, float("inf"), facts)
    finally:
        _stop(ray, folder, token, list(names), began_here)


def _needs(room: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, int]:
    import jax

    if any(node.get("GPU") for node in room) and settings["jax_platforms"] != "cpu":
        return {"num_cpus": 0, "num_gpus": 1}
    most = int(max((node.get("CPU", 0) for node in room), default=0))
    return {"num_cpus": min(jax.local_device_count(), most or 1)}


def _stop(ray: Any, folder: Path, token: str, handles: Sequence[Any], began_here: bool) -> None:
    """Lets unfinished tasks write their checkpoints, and ends them."""
    try:
        if handles:
            _mark(folder, f"{token}{STOPPED}")
            ray.wait(handles, num_returns=len(handles), timeout=SECONDS_TO_STOP)
    finally:
        (folder / MARKER).unlink(missing_ok=True)
        # `ray.cancel` may crash this process (seen with Ray 2.60), and the end of the connection ends all tasks.
        if began_here and ray.is_initialized():
            ray.shutdown()
        elif not began_here:
            for handle in handles:
                ray.cancel(handle, force=True)


def _mark(folder: Path, text: str) -> None:
    """Writes the file by which tasks see that they reach the folder, and later that they should stop."""
    atomically(folder / MARKER, lambda path: path.write_text(text))


# Connection to the cluster.


_DETACHING = threading.Event()
if sys.platform == "linux":  # elsewhere Ray ends its processes by their group
    os.register_at_fork(after_in_child=lambda: os.setpgrp() if _DETACHING.is_set() else None)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keeps the handlers of signals in this process, and signals to its group away from processes started now."""
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {signum: signal.getsignal(signum) for signum in SIGNALS} if is_main else {}
    _DETACHING.set()
    try:
        with warnings.catch_warnings():
            # JAX warns of a fork that continues; Ray forks to start its programs.
            warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
            yield
    finally:
        _DETACHING.clear()
        for signum, handler in handlers.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)


def _connect(ray: Any, address: str) -> None:
    # No usage statistics for a cluster that is started here.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    asked = address or os.environ.get("RAY_ADDRESS", "")
    try:
        if why := _silence(asked):
            raise ConnectionError(why)
        with _own_signals():
            ray.init(address=address or None, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray raises plain ones too
        why = " ".join(str(error).split()) or type(error).__name__
        raise ConnectionError(
            f"ray_address {asked or 'on this machine'} cannot be reached ({why}); results so far are kept: "
            "start the cluster or correct the address, and run the same command again"
        ) from error


def _silence(address: str) -> str:
    """Returns the reason why no gRPC server (the Ray head) answers at HOST:PORT, or "" if one does.

    Ray itself would retry for many minutes. Addresses of another form are not checked.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        return ""
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return ""
            # The beginning of HTTP/2 and an empty frame of settings (type 4), to which a server answers with its own.
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        return str(error) or type(error).__name__
    return "" if answer[3:4] == b"\4" else "something other than Ray answers there"


class _Head:
    """The head of the cluster, which may be lost; also the node of this process."""

    def __init__(self, ray: Any, folder: Path, address: str):
        self._ray, self._folder = ray, folder
        # A client of Ray (ray://) sees neither, and gets an error from the server when it is lost.
        self._is_client = (address or os.environ.get("RAY_ADDRESS", "")).startswith("ray://")
        self._address, self._node = address, ""
        if not self._is_client:
            context = ray.get_runtime_context()
            self._address, self._node = context.gcs_address, context.get_node_id()
        self._answered = self._checked = time.monotonic()

    def check(self) -> None:
        """Raises a `ConnectionError` if the head has not answered for some time; asks every two seconds at most."""
        now = time.monotonic()
        if self._is_client or now - self._checked < 2.0:
            return
        why = _silence(self._address)
        if not why:
            self._answered = now
            if not any(node["Alive"] for node in self._ray.nodes() if node["NodeID"] == self._node):
                raise self._lost("the node of this process died")
        elif now - self._answered > SECONDS_WITHOUT_HEAD:
            raise self._lost(f"its head does not answer: {why}")
        self._checked = time.monotonic()

    def check_after(self, error: Exception) -> None:
        """Raises a `ConnectionError` if a task was lost because the cluster was."""
        if type(error).__name__ == "LocalRayletDiedError":  # the head may not have noticed yet
            raise self._lost("the node of this process died") from error
        if not self._is_client and (why := _silence(self._address)):
            raise self._lost(f"its head does not answer: {why}") from error

    def _lost(self, why: str) -> ConnectionError:
        return ConnectionError(
            f"the Ray cluster at {self._address} was lost ({why}); finished tables and checkpoints are kept; "
            f"to continue on a running cluster: feelgood resume {shlex.quote(str(self._folder.parent))}"
        )
