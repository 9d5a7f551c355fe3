"""Setup of JAX and handling of Ctrl-C for commands that compute."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["compiled_code", "interruptible", "set_up_jax"]


def set_up_jax(*, shares: bool = False) -> None:
    """Makes every core a device and enables a cache of compiled code that is shared between commands.

    Args:
      shares: whether worker processes use this machine's accelerator, so that this process must not reserve its memory.
    """
    import jax

    if shares:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # One device per core, so that runs are spread over them; this has no effect on a GPU.
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(compiled_code()))


def compiled_code() -> Path:
    """The folder of the cache of compiled code."""
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(chosen) if chosen else Path(caches, "feelgood", "xla")


@contextmanager
def interruptible(again: str) -> Iterator[None]:
    """On Ctrl-C, prints the command `again`, which continues the work, and exits with code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nstopped; to continue: {again}", file=sys.stderr)
        sys.exit(130)
