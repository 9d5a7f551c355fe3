"""Atomic file writes."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Calls `write` with a temporary path in the same folder, then moves the file to `path` once it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        with suppress(OSError):  # write the new name to the disk too, if the system can
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    finally:
        partial.unlink(missing_ok=True)


def open_own(path: Path | str, flags: int) -> int:
    """Opens a file for writing; a symbolic link is a ValueError."""
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"file {path} must not be a symbolic link; remove it") from None
        raise
