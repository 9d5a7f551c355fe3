"""Setup of JAX and handling of Ctrl-C for commands that compute."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from feelgood import signals, streams


def set_up_jax(*, shares: bool = False) -> None:
    """Makes every core a device and enables a cache of compiled code that is shared between commands.

    With `shares`, worker processes use this machine's accelerator too, so this process does not reserve its memory.
    """
    import jax

    if shares:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # One device per core, so that runs are spread over them; this has no effect on a GPU.
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(compiled_code()))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        # A command has dozens of small functions, which together take a second to compile.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    if why := missing_platform():
        raise ValueError(why)


def missing_platform() -> str:
    """Returns one sentence on why JAX cannot compute on the platform in JAX_PLATFORMS, or "" if it can."""
    import jax

    chosen = os.environ.get("JAX_PLATFORMS", "")
    try:
        if chosen:
            jax.devices()
        return ""
    except (RuntimeError, AssertionError) as error:
        why = f" ({str(error).splitlines()[0]})" if str(error) else ""
        install = "install its plugin" + (": pip install 'feelgood[cuda]'" if "cuda" in chosen else "")
        return (
            f"JAX_PLATFORMS={chosen} names a platform that JAX cannot use here{why}; {install}, or unset JAX_PLATFORMS"
        )


def compiled_code() -> Path:
    """The folder of the cache of compiled code."""
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(chosen) if chosen else Path(caches, "feelgood", "xla")


@contextmanager
def interruptible(again: str) -> Iterator[None]:
    """A context for work that a signal may stop and failed printing may not; `again` is the command that continues it.

    The exit code after a signal is 128 plus its number: 130 on Ctrl-C, 143 on SIGTERM.
    """
    signals.set_command_to_go_on(again)
    with streams.forgiving():
        try:
            yield
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt) and not signals.was_received():
                raise
            why = "" if isinstance(error, KeyboardInterrupt | SystemExit) else f" ({error})"
            print(f"\nstopped{why}; to continue: {again}", file=sys.stderr)
            sys.exit(signals.exit_code())
