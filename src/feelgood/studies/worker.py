"""A process of its own for a task of a study: what it is told, what it tells, and how it ends."""

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

__all__ = ["Worker", "set_up_jax"]

_CONTEXT = multiprocessing.get_context("spawn")


def set_up_jax(settings: Mapping[str, Any]) -> None:
    """Sets JAX up as in another process, from what its `jax.config` says."""
    import jax

    for name, value in settings.items():
        if getattr(jax.config, name) != value:
            jax.config.update(name, value)


class Worker:
    """A task that runs in a process of its own, to be listened to.

    The process ends with this one, however that ends.

    Args:
      name: of the task, for people.
      run: `(progress, checkpoint) -> table`; must pickle.
      checkpoint: where unfinished work can be kept.
      settings: of JAX, see `set_up_jax`.
      progress: a bar, see `feelgood.runs.progress`; it gets what the task reports.

    Attributes:
      pipe: readable when there is something to hear.
    """

    def __init__(
        self, name: str, run: Callable[..., Any], checkpoint: Path, settings: Mapping[str, Any], progress: Any
    ):
        self._name, self._progress, self._bars = name, progress, ExitStack()
        self._is_ready, self._has_ended, self._table, self._error = False, False, None, None
        self.pipe, theirs = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_work, args=(theirs, run, checkpoint, settings))
        with _deaf_to_ctrl_c():
            self._process.start()
        theirs.close()

    def has_news(self, seconds: float = 0.0) -> bool:
        """Whether there is something to hear, or the process has ended; waits so long for it."""
        return self.pipe.poll(seconds) or not self._process.is_alive()

    def hear(self) -> bool:
        """Waits for what the task says next; whether it has ended with that."""
        while not self.has_news(1.0):
            pass
        try:
            if not self.pipe.poll():  # whatever else holds the other end of the pipe
                raise EOFError
            kind, *what = self.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            self._process.kill()  # where it lives, it cannot be understood any more
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
        """The table of a task that has ended; raises what the task raised."""
        self._bars.close()
        self._process.join()
        if self._error is not None:
            raise self._error
        return self._table

    def stop(self) -> None:
        """Asks the task to keep what it has and to end; one that has not begun ends at once."""
        while not (self._is_ready or self._has_ended) and self.pipe.poll():
            self.hear()
        if not self._is_ready:
            self._process.terminate()
        elif not self._has_ended and self._process.is_alive() and self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGINT)

    def wait(self) -> None:
        """Waits for a task that was asked to end."""
        while not self._has_ended:
            self.hear()
        self._bars.close()
        self._process.join()

    def kill(self) -> None:
        """Ends the task at once."""
        self._process.kill()


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """What is started here does not hear Ctrl-C until it asks for it; this process hears it later."""
    resource_tracker.ensure_running()  # or the first start of a process would begin to listen again
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


# In the process of the task.


def _work(pipe: Any, run: Callable[..., Any], checkpoint: Path, settings: Mapping[str, Any]) -> None:
    os.setpgrp()  # Ctrl-C is for the process that leads, which passes it on
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others use the accelerator too
    try:
        set_up_jax(settings)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        pipe.send(("ready",))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        said = pickle.dumps(("table", run(_Telling(pipe), checkpoint)))
    except BaseException as error:
        said = pickle.dumps(("error", _portable(error)))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe.send_bytes(said)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _portable(error: BaseException) -> BaseException:
    """An error that can be sent, with its traceback as a note."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(traceback.format_exc())
    return error


class _Telling:
    """A bar whose reports go to the process that leads."""

    def __init__(self, pipe: Any):
        self._pipe = pipe

    @contextmanager
    def task(self, name: str, total: int) -> Iterator[Callable[[Any], None]]:
        self._pipe.send(("begin", name, total))
        # What a batch of runs reports holds all its curves.
        light = lambda report: report._replace(curves=None) if hasattr(report, "curves") else report
        try:
            yield lambda report: self._pipe.send(("report", light(report)))
        finally:
            self._pipe.send(("end",))
