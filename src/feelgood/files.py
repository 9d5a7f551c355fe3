"""Atomic file writes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["atomically"]


def atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Calls `write` with a temporary path in the same folder, then moves the file to `path` once it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
