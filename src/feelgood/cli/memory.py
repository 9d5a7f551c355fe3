"""The sentence for work that does not fit into memory: requested and free memory, and the settings to lower."""

import dataclasses
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_size = lambda count: f"{count / 1e9:,.1f} GB"
_UNITS = {"bytes": 1, "B": 1} | {f"{c}iB": 1024**i for i, c in enumerate("KMGTPE", 1)}


def too_large(error: BaseException, arguments: Sequence[str]) -> str:
    """One sentence about work that does not fit, for a command with these arguments; empty for any other error."""
    text = " ".join(str(error).split())
    if isinstance(error, OverflowError):
        return f"a number is too large ({text}); lower {_to_lower(arguments)}"
    # XLA raises a RuntimeError, and its text contains RESOURCE_EXHAUSTED or INTERNAL.
    if not (isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower()):
        return ""
    asked = bytes_asked(text)
    wanted = f"out of memory: {_size(asked)} were asked for" if asked else f"out of memory ({text})"
    return f"{wanted}, and {_present(host=isinstance(error, MemoryError))}; lower {_to_lower(arguments)}"


def bytes_asked(text: str) -> int | None:
    """The size in a message of XLA or NumPy, in bytes; None if it has none.

    Examples:
      >>> bytes_asked("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.50GiB.")
      1610612736
    """
    found = re.search(rf"allocat\w* (?:request for )?([\d.]+) ?({'|'.join(_UNITS)})", text)
    return round(float(found[1]) * _UNITS[found[2]]) if found else None


def _present(*, host: bool) -> str:
    """Returns the memory of the accelerator, or else of this machine."""
    jax = sys.modules.get("jax")
    if jax is not None and not host:
        with suppress(Exception):  # a broken device may raise anything
            device = jax.local_devices()[0]
            stats = device.memory_stats() or {}
            used = f", {_size(stats['bytes_in_use'])} of it in use" if "bytes_in_use" in stats else ""
            return f"the device ({device.device_kind}) has {_size(stats['bytes_limit'])} of memory{used}"
    with suppress(OSError, ValueError, AttributeError):  # Windows has no sysconf
        free = ""
        with suppress(OSError, AttributeError):
            number = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())[1]  # type: ignore[index]
            free = f", {_size(1024 * int(number))} of it free"
        return f"this machine has {_size(os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES'))} of RAM{free}"
    return "this machine has less"


def _to_lower(arguments: Sequence[str]) -> str:
    """The options of a command that decide how much memory it needs."""
    from feelgood.cli.run import study_options
    from feelgood.cli.train import TrainOptions

    command, *rest = arguments
    if command not in ("train", "sweep", "run"):
        return "the number of seeds, environments or episodes, capacity, batch_size or the widths of layers (hidden)"
    kind = TrainOptions if command == "train" else study_options(rest[0] if command == "run" else command)
    known = [field.name for field in dataclasses.fields(kind)]
    names, last = ["seeds_per_task", "num_seeds", "num_processes", "num_chains"], []
    if "config" in known:  # runs one after the other, so their number does not matter
        names, last = ["num_processes", "num_envs", "hidden"], ["--config (capacity, batch_size)"]
    words = [*(f"--{name.replace('_', '-')}" for name in names if name in known), *last]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
