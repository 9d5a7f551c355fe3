"""What a study leaves on disk: tables in Parquet and a manifest in JSON, each written whole or not at all."""

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from feelgood.checks import check_choice

__all__ = [
    "describe_machine",
    "fingerprint",
    "load_results",
    "read_manifest",
    "read_study",
    "read_table",
    "recorded",
    "write_manifest",
    "write_table",
    "write_text",
]


def _atomically(path: Path, write: Callable[[Path], Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Writes a table as Parquet."""
    _atomically(path, lambda partial: table.to_parquet(partial, index=False, compression="zstd"))


def read_table(path: Path) -> pd.DataFrame:
    """Reads a table; a damaged file gives a ValueError that names it."""
    try:
        return pd.read_parquet(path)
    except Exception as error:
        raise ValueError(f"table {path} cannot be read ({str(error).splitlines()[0]})") from error


def write_text(path: Path, text: str) -> None:
    """Writes a text file."""
    _atomically(path, lambda partial: partial.write_text(text))


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Writes a manifest as JSON."""
    write_text(path, json.dumps(manifest, indent=2, default=str) + "\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """Reads a manifest; a damaged file gives a ValueError that names it."""
    try:
        return json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"manifest {path} cannot be read ({error})") from error


def read_study(folder: Path) -> dict[str, Any]:
    """The manifest of a study's folder.

    Raises:
      ValueError: if there is none, or one that is not a study's.
    """
    path = folder / "manifest.json"
    if not path.exists():
        raise ValueError(f"folder {folder} holds no study: it has no manifest.json")
    manifest = read_manifest(path)
    if not isinstance(manifest, dict):
        raise ValueError(f"manifest {path} must be a table of fields, got {type(manifest).__name__}")
    for name, kind in (("study", str), ("spec", dict), ("finished", bool)):
        if not isinstance(manifest.get(name), kind):
            raise ValueError(f"manifest {path} must hold a {kind.__name__} as {name!r}, got {manifest.get(name)!r}")
    return manifest


def load_results(path: str | Path, table: str | None = None) -> pd.DataFrame:
    """The results of a study as a tidy table.

    Args:
      path: the study's folder.
      table: name of one of its tables, without ending; if not given, its `curves` (a row per run and evaluation), or
        its only table where it has no curves.

    Raises:
      ValueError: if the folder holds no such table.

    Example:
      >>> curves = load_results("results/nchain")
      >>> curves.groupby(["length", "agent", "step"])["return"].mean()
    """
    folder = Path(path)
    # Where a table has both forms, Parquet is the one with exact numbers and types.
    files = {file.stem: file for ending in ("csv", "parquet") for file in sorted(folder.glob(f"*.{ending}"))}
    if not files:
        raise ValueError(f"folder {folder} holds no results" + _why_empty(folder))
    if table is None:
        if "curves" not in files and len(files) > 1:
            raise ValueError(f"folder {folder} holds no curves; choose a table of {', '.join(map(repr, files))}")
        table = "curves" if "curves" in files else next(iter(files))
    check_choice("table", table, files)
    return read_table(files[table]) if files[table].suffix == ".parquet" else _read_csv(files[table])


def _why_empty(folder: Path) -> str:
    if not folder.is_dir():
        return ": there is no such folder"
    if (folder / "manifest.json").exists() and not read_study(folder)["finished"]:
        return f" yet: its study is unfinished (feelgood resume {folder} goes on with it)"
    return ": no table lies there"


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except ValueError as error:
        raise ValueError(f"table {path} cannot be read ({str(error).splitlines()[0]})") from error


def fingerprint(*facts: Any) -> str:
    """A short name for facts: the same for the same ones, another for others."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]


@contextmanager
def recorded(output: Path, study: str, spec: Any) -> Iterator[None]:
    """Keeps the manifest of a study while it runs; it says "finished" only where the work within ends well.

    Args:
      output: the study's folder.
      study: its name.
      spec: its options, a dataclass; its `output` does not count as one.

    Raises:
      ValueError: if the folder holds another study, or the same with other options.
    """
    path = output / "manifest.json"
    options = dataclasses.asdict(spec)
    label = fingerprint(study, {name: value for name, value in options.items() if name != "output"})
    if path.exists() and read_manifest(path).get("label") != label:
        raise ValueError(f"output {output} holds another study; choose another folder or remove it")
    began = time.time()
    manifest = {"study": study, "label": label, "spec": options, "finished": False}
    write_manifest(path, {**manifest, **describe_machine()})
    yield
    wall_seconds = round(time.time() - began)
    write_manifest(path, {**manifest, **describe_machine(), "finished": True, "wall_seconds": wall_seconds})


def describe_machine() -> dict[str, Any]:
    """Versions, commit and devices behind a result."""
    packages = ("feelgood", "jax", "jaxlib", "equinox", "optax", "numpy")
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
        "commit": _commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    folder = Path(__file__).parent
    try:
        words = ["git", "-C", str(folder), "rev-parse", "HEAD"]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
