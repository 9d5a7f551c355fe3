"""Writes a long run to disk: each frame when it arrives, the rest at checkpoints, in a thread of its own.

A replay of a million frames is too large to be written at every checkpoint, and its rows never change once written. So
each row goes to a file when it arrives. This file is a ring with some spare rows more than the replay, and a checkpoint
holds only the rest of the state. If at most half of the spare rows arrive between two checkpoints, the file still holds
every row of the last two checkpoints. Each row has a checksum of its number and its contents.
"""

import os
import queue
import threading
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from feelgood.files import open_own
from feelgood.training import checkpoint

_CHECKSUM = 4  # bytes


def state_of(folder: Path) -> Path:
    """The file of a run's checkpoint."""
    return folder / "state.npz"


def _checksum(index: int, data: bytes) -> bytes:
    return zlib.crc32(data, index & 0xFFFFFFFF).to_bytes(_CHECKSUM, "little")


class Journal:
    """Writes a run to a folder, in the order of the calls; a call blocks only if the disk is far behind.

    An error of the disk is raised by the next call, or by `flush`. The checkpoint of a run with another `label` is
    refused. `num_spare` rows, of the shape and dtype of `row`, may arrive between three checkpoints.
    """

    def __init__(self, folder: Path, label: str, num_rows: int, num_spare: int, row: Any):
        self._label, self._num_rows, self._num_places = label, num_rows, num_rows + num_spare
        self._shape, self._dtype = tuple(row.shape), np.dtype(row.dtype)
        self._row_bytes = int(np.prod(self._shape)) * self._dtype.itemsize
        self._evaluated: list[int] = []
        self._state, self._frames, self._folder = state_of(folder), folder / "frames.bin", folder
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.partial"):  # left by a killed process
            path.unlink(missing_ok=True)
        num_bytes = self._num_places * (self._row_bytes + _CHECKSUM)
        num_kept = self._frames.stat().st_size if self._frames.exists() else None
        self._is_whole = num_kept is not None and num_kept >= num_bytes
        self._file = open_own(self._frames, os.O_RDWR | os.O_CREAT)
        if self._is_whole or not self._state.exists():  # otherwise `rows` refuses, this time and the next
            self._allocate(num_bytes, is_new=num_kept is None)
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue(maxsize=64)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def _allocate(self, num_bytes: int, *, is_new: bool) -> None:
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file, 0, num_bytes)
            elif not self._is_whole:
                os.ftruncate(self._file, num_bytes)
        except OSError as error:
            os.close(self._file)
            if is_new:  # an older file may belong to another run
                self._frames.unlink(missing_ok=True)
            what = f"no room for the replay of {num_bytes / 1e9:.2f} GB ({error.strerror})"
            how = "choose another disk, a smaller capacity, or no checkpoints"
            raise OSError(f"folder {self._folder} has {what}; {how}") from error

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                if self._error is None:
                    call()
            except Exception as error:  # `_check` raises it in the training thread
                self._error = error
            self._calls.task_done()

    def _check(self) -> None:
        if self._error is not None:
            why = getattr(self._error, "strerror", None) or self._error
            how = "it can be resumed from its last checkpoint"
            raise OSError(f"the run cannot be kept in {self._folder}: {why}; {how}") from self._error

    def _put(self, call: Callable[[], None]) -> None:
        self._check()
        self._calls.put(call)

    def flush(self) -> None:
        """Waits until everything is on disk."""
        self._calls.join()
        self._check()

    def row(self, index: int, row: np.ndarray) -> None:
        """Writes row number `index`, counted from 0."""

        def write() -> None:
            data = np.ascontiguousarray(row).tobytes()
            os.pwrite(self._file, data + _checksum(index, data), self._offset(index))

        self._put(write)

    def _offset(self, index: int) -> int:
        return index % self._num_places * (self._row_bytes + _CHECKSUM)

    def snapshot(self, step: int, tree: Any) -> None:
        """Writes a policy whose evaluation is in progress."""
        self._put(lambda: checkpoint.save(self._snapshot(step), tree, self._label))

    def _snapshot(self, step: int) -> Path:
        return self._folder / f"evaluating-{step}.npz"

    def checkpoint(self, tree: Any, evaluated: list[int]) -> None:
        """Writes everything but the rows, and deletes the snapshots of the steps in the last call's `evaluated`."""

        def write() -> None:
            os.fsync(self._file)
            checkpoint.save(self._state, tree, self._label, keep_previous=True)
            for step in self._evaluated:  # the checkpoint before this one also holds their evaluations
                self._snapshot(step).unlink(missing_ok=True)
            self._evaluated = evaluated

        self._put(write)

    def restore(self, like: Any) -> Any | None:
        """The last checkpoint; if there is none, returns None and deletes the snapshots of other runs."""
        if self._state.exists():
            return checkpoint.load(self._state, like, self._label)
        for path in self._folder.glob("evaluating-*.npz"):
            path.unlink(missing_ok=True)
        return None

    def rows(self, num_written: int) -> np.ndarray:
        """The rows of the replay after `num_written` arrivals, in the order of the replay; zeros elsewhere."""
        lost, again = f"checkpoint {self._state} has lost its frames", f"delete {self._folder} to start again"
        if not self._is_whole:
            raise ValueError(f"{lost}: {self._frames} is missing or too short; {again}")
        table = np.zeros((self._num_rows, *self._shape), self._dtype)
        for index in range(max(num_written - self._num_rows, 0), num_written):
            found = os.pread(self._file, self._row_bytes + _CHECKSUM, self._offset(index))
            data = found[: self._row_bytes]
            if found[self._row_bytes :] != _checksum(index, data):
                raise ValueError(f"{lost}: row {index} of {self._frames} is damaged; {again}")
            table[index % self._num_rows] = np.frombuffer(data, self._dtype).reshape(self._shape)
        return table

    def snapshots(self, like: Any) -> dict[int, Any]:
        """The policies whose evaluations were in progress, by step; damaged files are left out."""
        steps = [path.stem.partition("-")[2] for path in self._folder.glob("evaluating-*.npz")]
        found = {}
        for step in sorted(int(step) for step in steps if step.isdecimal()):
            with suppress(ValueError):
                found[step] = checkpoint.load(self._snapshot(step), like, self._label)
        return found

    def forget(self, step: int) -> None:
        """Deletes a snapshot."""
        self._snapshot(step).unlink(missing_ok=True)

    def release(self) -> None:
        """Frees the disk space of the rows, which a finished run no longer needs."""
        self._put(lambda: os.ftruncate(self._file, 0))

    def close(self) -> None:
        """Writes the remaining calls to disk and closes the file."""
        self._calls.put(None)
        self._thread.join()
        os.close(self._file)
