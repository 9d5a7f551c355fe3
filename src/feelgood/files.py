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
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Writes the new name of a file to the disk, if the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_own(path: Path | str, flags: int) -> int:
    """Opens a file for writing; does not follow symbolic links.

    Raises:
      ValueError: if `path` is a symbolic link.
    """
    try:
        return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"file {path} must not be a symbolic link; remove it") from None
        raise
