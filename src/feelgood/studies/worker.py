"""A worker process for one task of a study: start, messages and shutdown."""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from feelgood.signals import SIGNALS

_CONTEXT = multiprocessing.get_context("spawn")


def configure_jax(settings: Mapping[str, Any]) -> None:
    """Applies settings of another process's `jax.config` to JAX."""
    import jax

    for name, value in settings.items():
        if getattr(jax.config, name) != value:
            jax.config.update(name, value)


class Worker:
    """A task that runs in its own process, which ends whenever this one ends, and sends messages through a `pipe`.

    `run`, see `feelgood.studies.engine.Task`, must pickle. `progress` is a bar for the task's reports, see
    `feelgood.runs.progress`.
    """

    def __init__(
        self, name: str, run: Callable[..., Any], checkpoint: Path, settings: Mapping[str, Any], progress: Any
    ):
        self._name, self._progress, self._bars = name, progress, ExitStack()
        self._is_ready, self._has_ended, self._table, self._error = False, False, None, None
        self.pipe, theirs = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_work, args=(theirs, run, checkpoint, settings))
        with _signals_blocked():
            self._process.start()
        theirs.close()

    def has_news(self, seconds: float = 0.0) -> bool:
        """Whether there is a message or the process has ended; waits up to `seconds`."""
        return self.pipe.poll(seconds) or not self._process.is_alive()

    def hear(self) -> bool:
        """Waits for the next message and handles it; returns whether the task has ended."""
        while not self.has_news(1.0):
            pass
        try:
            if not self.pipe.poll():  # another process may hold the other end
                raise EOFError
            kind, *what = self.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self._process.kill()  # its messages can no longer be read
            self._process.join()
            reason = f"its process ended with code {self._process.exitcode}"
            kind, what = "error", [ChildProcessError(f"task {self._name} was lost: {reason}")]
        match kind:
            case "ready":
                self._is_ready = True
            case "begin":
                self._report = self._bars.enter_context(self._progress.task(*what))
            case "report":
                self._report(*what)
            case "end":
                self._bars.close()
            case "table":
                (self._table,) = what
            case "error":
                (self._error,) = what
        self._has_ended = kind in ("table", "error")
        return self._has_ended

    def result(self) -> Any:
        """The table of a finished task; raises the task's error."""
        self._bars.close()
        self._process.join()
        if self._error is not None:
            raise self._error
        return self._table

    def stop(self) -> None:
        """Asks the task to write its checkpoint and end; a task that has not started ends at once."""
        while not (self._is_ready or self._has_ended) and self.pipe.poll():
            self.hear()
        if not self._is_ready:
            self._process.kill()
        elif not self._has_ended and self._process.is_alive() and self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)

    def wait(self) -> None:
        """Waits for the end of a stopped task."""
        while not self._has_ended:
            self.hear()
        self._bars.close()
        self._process.join()

    def kill(self) -> None:
        """Kills the process."""
        self._process.kill()


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Blocks signals in child processes until they unblock them; here they are delivered afterwards."""
    resource_tracker.ensure_running()  # starting it later would unblock them
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


# The code below runs in the worker process.


def _work(pipe: Any, run: Callable[..., Any], checkpoint: Path, settings: Mapping[str, Any]) -> None:
    os.setpgrp()  # the main process handles signals and forwards them as SIGINT
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others use the accelerator too
    try:
        configure_jax(settings)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pipe.send(("ready",))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        message = pickle.dumps(("table", run(_RemoteBar(pipe), checkpoint)))
    except BaseException as error:
        message = pickle.dumps(("error", _portable(error)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # the main process is gone
        pipe.send_bytes(message)


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()  # type: ignore[union-attr]
    os._exit(1)


def _portable(error: BaseException) -> BaseException:
    """A picklable error, with its traceback as a note."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(traceback.format_exc())
    return error


class _RemoteBar:
    """A bar that sends its reports to the main process."""

    def __init__(self, pipe: Any):
        self._pipe = pipe

    @contextmanager
    def task(self, name: str, total: int) -> Iterator[Callable[[Any], None]]:
        self._pipe.send(("begin", name, total))
        # The reports of a batch hold all its curves, which need not be sent.
        light = lambda report: report._replace(curves=None) if hasattr(report, "curves") else report
        try:
            yield lambda report: self._pipe.send(("report", light(report)))
        finally:
            self._pipe.send(("end",))
