"""The part of the engine `ray` that runs on the nodes of a cluster: it runs one task, with its checkpoint."""

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from feelgood.runs.lock import Held, locked
from feelgood.studies.worker import configure_jax

SECONDS_FOR_LOCK = 120.0
"""Time to wait for the checkpoint of a lost task; a server of NFS releases the locks of a dead node after 90."""
MARKER, STOPPED = ".reached", " stopped"
"""The file by which tasks see that they reach the folder, and the end of its text when they should stop."""


def is_unreached(folder: Path, token: str) -> bool:
    """Whether this node lacks the folder in which the leading process has left its token, or cannot write to it."""
    return not _read(folder / MARKER).startswith(token) or not os.access(folder, os.W_OK)


def _read(marker: Path) -> str:
    """The text of the marker; empty if it cannot be read."""
    try:
        return marker.read_text()
    except (OSError, ValueError):
        return ""


_SILENT = SimpleNamespace(task=lambda name, total: nullcontext(lambda progress: None))


def work(
    run: Callable[..., Any], settings: Mapping[str, Any], checkpoint: Path, token: str
) -> tuple[Any, str, bool] | None:
    """Runs a task with JAX set up as in the main process.

    Returns:
      The table, the device, and whether the folder of the checkpoint could not be reached; None if it was stopped.
    """
    if _read(checkpoint.with_name(MARKER)) == f"{token}{STOPPED}":
        return None
    import jax

    configure_jax(settings)
    unreached = is_unreached(checkpoint.parent, token)
    try:
        with nullcontext(None) if unreached else _held(checkpoint, token) as kept:
            table = run(_SILENT, kept)
    except KeyboardInterrupt:
        return None
    devices = jax.local_devices()
    return table, f"{len(devices)} x {devices[0].device_kind}", unreached


@contextmanager
def _held(checkpoint: Path, token: str) -> Iterator[Path | None]:
    """The path of a checkpoint that no other process writes; None if another one does not stop.

    The other one would be the same task, on a node that is cut off from the cluster or about to end. When the leading
    process stops, the main thread is interrupted, as by Ctrl-C.
    """
    until = time.monotonic() + SECONDS_FOR_LOCK
    kept: Path | None = checkpoint
    ended = threading.Event()
    watched = (checkpoint.with_name(MARKER), token, ended)
    threading.Thread(target=_interrupt_when_stopped, args=watched, daemon=True).start()
    with ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():  # a shell's background processes ignore Ctrl-C
            was = signal.signal(signal.SIGINT, signal.default_int_handler)
            stack.callback(signal.signal, signal.SIGINT, was or signal.SIG_DFL)
        stack.callback(ended.set)
        while kept is not None:
            try:
                stack.enter_context(locked(checkpoint.with_suffix("")))  # this folder goes with the checkpoint
                break
            except Held:
                if time.monotonic() > until:
                    kept = None
                time.sleep(0.5)
        yield kept


def _interrupt_when_stopped(marker: Path, token: str, ended: threading.Event) -> None:
    """Interrupts the main thread when the marker holds a text other than the token, unless the work has ended.

    A marker that cannot be read is ignored: the network may have failed for a moment.
    """
    while not ended.wait(0.5):
        if _read(marker) not in (token, ""):
            _thread.interrupt_main()
            return
