"""Files that are written whole or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["atomically"]


def atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Has `write` write a file beside `path`, and moves it there once it is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
