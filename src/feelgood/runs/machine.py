"""Versions, commit and devices behind a result."""

import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    """Versions, commit (and whether the code was modified since) and devices behind a result."""
    packages = ("feelgood", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "ale-py")
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    jax = sys.modules.get("jax")
    return {
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "devices": [] if jax is None else [device.device_kind for device in jax.local_devices()],
        "commit": _git("rev-parse", "HEAD"),
        "modified": bool(_git("status", "--porcelain", "--untracked-files=no", "--", ".")),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def describe_code() -> dict[str, Any]:
    """The version and commit of this package, and the number of JAX devices: tables with equal facts may be mixed."""
    jax = sys.modules.get("jax")
    try:
        version = metadata.version("feelgood")
    except metadata.PackageNotFoundError:
        version = "not installed"
    devices = 0 if jax is None else jax.local_device_count()
    return {"version": version, "commit": _git("rev-parse", "HEAD"), "devices": devices}


def _git(*words: str) -> str | None:
    """Output of a git command in the folder of this package, or None if git fails."""
    try:
        command = ["git", "-C", str(Path(__file__).parents[1]), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
