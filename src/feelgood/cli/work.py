"""What commands that compute have in common: JAX set up for them, and a word on how to go on after Ctrl-C."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["compiled_code", "interruptible", "set_up_jax"]


def set_up_jax(*, shares: bool = False) -> None:
    """Makes every core a device and keeps compiled code from one command to the next.

    Args:
      shares: whether other processes compute on this machine's accelerator for this one, which then leaves it to them.
    """
    import jax

    if shares:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Each core a device, so that runs are spread over them; where there is a GPU this changes nothing.
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    # What was compiled once is not compiled again by the next command.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(compiled_code()))


def compiled_code() -> Path:
    """Where compiled code is kept from one command to the next."""
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(chosen) if chosen else Path(caches, "feelgood", "xla")


@contextmanager
def interruptible(again: str) -> Iterator[None]:
    """Ends the process with code 130 on Ctrl-C; `again` is the command that goes on where the work stopped."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"\nstopped; to go on: {again}", file=sys.stderr)
        sys.exit(130)
