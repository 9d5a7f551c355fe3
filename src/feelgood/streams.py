"""Printing that never ends the work: closed pipes, full disks and terminals without Unicode."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any


def repair() -> None:
    """Makes standard output and error usable: closed ones discard text, and others escape unknown characters."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, open until the process ends
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class _Forgiving:
    """A stream that discards its text once it cannot be written."""

    def __init__(self, stream: Any):
        self._stream, self._is_lost = stream, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, call: Any, *arguments: Any) -> None:
        if self._is_lost:
            return
        try:
            call(*arguments)
        except (OSError, ValueError):
            self._is_lost = True
            with suppress(OSError, ValueError, AttributeError):  # text that waits in buffers goes nowhere
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


@contextmanager
def forgiving(*, output: bool = True) -> Iterator[None]:
    """Discards text that standard error, and with `output` also standard output, can no longer take.

    A command whose output is its result leaves `output` off: there, lost output is an error.
    """
    with redirect_stderr(_Forgiving(sys.stderr)), redirect_stdout(_Forgiving(sys.stdout) if output else sys.stdout):
        yield
        sys.stderr.flush()
        if output:
            sys.stdout.flush()
