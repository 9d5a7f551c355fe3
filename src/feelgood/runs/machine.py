"""Versions, commit and devices behind a result."""

import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


def version_of(package: str) -> str | None:
    """The installed version of a package; None if there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def describe_versions() -> dict[str, str]:
    """The versions of the packages that results depend on."""
    packages = ("feelgood", "jax", "jaxlib", "equinox", "optax", "numpy", "gymnasium", "ale-py")
    return {name: version_of(name) or "not installed" for name in packages}


def describe_machine() -> dict[str, Any]:
    """Versions, commit (and whether the code was modified since) and devices behind a result."""
    jax = sys.modules.get("jax")
    return {
        "versions": describe_versions(),
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
    devices = 0 if jax is None else jax.local_device_count()
    version = version_of("feelgood") or "not installed"
    return {"version": version, "commit": _git("rev-parse", "HEAD"), "devices": devices}


def _git(*words: str) -> str | None:
    """Output of a git command in the folder of this package, or None if git fails."""
    try:
        command = ["git", "-C", str(Path(__file__).parents[1]), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
