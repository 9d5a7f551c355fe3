"""Stop on a signal: Ctrl-C, and the signals that a scheduler sends before it ends a process."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
SECONDS_TO_STOP = 8.0
"""Time from SIGTERM or SIGHUP, or from a second Ctrl-C, to the end of the process."""
_SAME_REQUEST = 1.0  # schedulers and terminals may send two signals at a time


class Interrupted(KeyboardInterrupt):
    """A signal asked to stop; the work so far is in the checkpoint.

    Attributes:
      so_far: the result at this time, of the type that the interrupted function returns; None if there is none.
    """

    def __init__(self, so_far: Any = None):
        super().__init__()
        self.so_far = so_far


class _Request:
    """The first signal that asked this process to stop, under `listening`."""

    is_listening, signum, time, command = False, 0, 0.0, ""


def was_received() -> bool:
    """Whether a signal asked this process to stop, under `listening`."""
    return _Request.is_listening and bool(_Request.signum)


def exit_code() -> int:
    """The exit code of a process that a signal has stopped: 128 plus the signal's number."""
    return 128 + (_Request.signum or signal.SIGINT)


def set_command_to_go_on(command: str) -> None:
    """Sets the command that is printed if the process has to end before the work reaches a place to stop."""
    _Request.command = command


def _note(signum: int) -> None:
    if _Request.is_listening and not _Request.signum:
        _Request.signum, _Request.time = signum, time.monotonic()


def _interrupt(signum: int, frame: Any) -> None:
    if _Request.signum and time.monotonic() - _Request.time < _SAME_REQUEST:
        return
    _note(signum)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            # An exception inside an import may crash a half-loaded extension, or turn into another error.
            _end()
        frame = frame.f_back
    raise KeyboardInterrupt


def _end() -> NoReturn:
    """Ends the process at once, with a sentence on how to continue if work has begun."""
    again = f" at the last checkpoint; to continue: {_Request.command}" if _Request.command else ""
    with suppress(OSError):
        os.write(2, f"\nstopped{again}\n".encode())
    os._exit(exit_code())


def _handlers() -> dict[int, Any]:
    """The handlers of the signals. SIGTERM and SIGHUP are left out if they are ignored, as under `nohup`."""
    found = {signum: signal.getsignal(signum) for signum in SIGNALS}
    kept = {signum: handler for signum, handler in found.items() if handler is not signal.SIG_IGN}
    return {signal.SIGINT: found[signal.SIGINT], **kept}


def _restore(handlers: dict[int, Any]) -> None:
    for signum, handler in handlers.items():
        signal.signal(signum, signal.SIG_DFL if handler is None else handler)


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Turns the first signal into a flag that the loop reads; a second one, a second later, interrupts at once.

    The flag is set from the start if a signal came before, in code that swallowed the `KeyboardInterrupt`.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    first: list[float] = []

    def handle(signum: int, frame: Any) -> None:
        stop.set()
        _note(signum)
        first.append(time.monotonic())
        if first[-1] - first[0] > _SAME_REQUEST:
            _restore(previous)
            signal.raise_signal(signum)

    if was_received():
        stop.set()
    previous = _handlers()
    try:
        for signum in previous:
            signal.signal(signum, handle)
        yield stop
    finally:
        _restore(previous)


@contextmanager
def listening() -> Iterator[None]:
    """Turns the signals into a `KeyboardInterrupt`, and ends the process if that has no effect.

    Python handles a signal only between two instructions of the main thread, so not while XLA compiles or computes. A
    thread therefore ends the process `SECONDS_TO_STOP` after SIGTERM, SIGHUP or a second Ctrl-C. The last checkpoint
    stays.
    """
    if threading.current_thread() is not threading.main_thread() or _Request.is_listening:
        yield
        return
    previous = _handlers()
    read, write = os.pipe()
    os.set_blocking(write, False)
    _Request.is_listening, _Request.signum, _Request.command = True, 0, ""
    threading.Thread(target=_watch, args=(read,), name="signals", daemon=True).start()
    wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        for signum in previous:
            signal.signal(signum, _interrupt)
        yield
    finally:
        _restore(previous)
        signal.set_wakeup_fd(wakeup)
        os.close(write)
        _Request.is_listening = False


def _forget_wakeup() -> None:
    """Stops listening in a forked process, which has signals of its own."""
    if _Request.is_listening:
        _Request.is_listening = False
        with suppress(ValueError):
            signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_wakeup)


def _watch(read: int) -> None:
    """Reads the numbers of signals as they arrive, until the pipe is closed."""
    first: float | None = None
    deadline: float | None = None
    while True:
        seconds = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if not select.select([read], [], [], seconds)[0]:
            _end()
        numbers = os.read(read, 64)
        if not numbers:
            os.close(read)
            return
        for signum in (number for number in numbers if number in SIGNALS):
            now = time.monotonic()
            first = now if first is None else first
            _note(signum)
            if deadline is None and (signum != signal.SIGINT or now - first > _SAME_REQUEST):
                deadline = now + SECONDS_TO_STOP
