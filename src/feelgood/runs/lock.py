"""A lock on a folder that ends with its process, however the process ends."""

import errno
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from feelgood.files import open_own


class Held(ValueError):
    """Another process holds the lock."""


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Holds a folder for this process alone, by an advisory lock of the operating system on `output/.lock`.

    The kernel releases the lock when the process ends, also after `kill -9`. On a network file system the lock is only
    as reliable as that file system's locks: NFS needs version 4, or a lock daemon and no `local_lock` mount option. If
    the file system has no locks, a warning is given and the folder is not locked.

    Raises:
      Held: if another process holds the lock.
      ValueError: if `output/.lock` is a symbolic link, so that no other file is truncated.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        warnings.warn(f"output {output} is not locked: this system has no flock", stacklevel=2)
        yield
        return
    output.mkdir(parents=True, exist_ok=True)
    path = output / ".lock"
    while True:
        file = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(file, 200).decode(errors="replace").strip()
            os.close(file)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                by, how = f" ({holder})" if holder else "", "wait for it or choose another folder"
                raise Held(f"output {output} is being written by another process{by}; {how}") from None
            warnings.warn(f"output {output} is not locked: its file system cannot ({error.strerror})", stacklevel=2)
            yield
            return
        # The previous holder may have removed the file after it was opened here; then another file has its name.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), os.stat(path)):
                break
        os.close(file)
    os.truncate(file, 0)
    os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)
