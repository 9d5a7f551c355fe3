"""The README in every study's folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

_MARK = "<!-- Written by feelgood whenever the study runs; remove this line to keep your own changes. -->"


def is_ours(path: Path) -> bool:
    """Whether the README is missing or still starts with our mark, so that it may be overwritten."""
    return not path.exists() or path.read_text(errors="replace").startswith(_MARK[:24])


def describe(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Describes a study's folder: the files that exist, the command that made it, and how to read it.

    For the manifest and the files see `store.recorded`.
    """
    if manifest["finished"]:
        state = f"finished {manifest['time']}, after {manifest['wall_seconds']} s in its last process"
    else:
        state = f"unfinished, last started {manifest['time']}; continue with `feelgood resume FOLDER`"
    known = {
        **files,
        "cells": "finished parts of the study, used when it is resumed; not needed once the study is finished",
        "manifest.json": "options, command, seeds, versions and devices as JSON",
    }
    found = {name: line for name, line in known.items() if (folder / name).exists()}
    lines = [_MARK, "", f"# {manifest['study']}", "", f"A study run by feelgood: {state}. The command:", ""]
    lines += ["```", manifest["command"], "```", "", "## Files", ""]
    lines += [f"- `{name}`: {line}{_columns(folder / name)}" for name, line in found.items()]
    tables = [Path(name).stem for name in found if name.endswith((".parquet", ".csv"))]
    if tables:
        table = "curves" if "curves" in tables else tables[0]
        lines += ["", "Read a table, with FOLDER the path of this folder:", ""]
        lines += ["```python", "import feelgood", "", f'feelgood.load_results("FOLDER", "{table}")', "```"]
    settings = manifest.get("settings") or manifest["spec"]
    settings = settings if isinstance(settings, list) else [settings]
    for each in settings:
        whose = f" of {each['agent']} in {each['env']}" if len(settings) > 1 else ""
        lines += ["", f"## Settings{whose}", "", "| setting | value |", "|---|---|"]
        lines += [f"| {name} | {_plain(value)} |" for name, value in each.items()]
    lines += ["", "## Seeds and versions", ""]
    lines += [f"- seeds, {use}: {each}" for use, each in manifest["seeds"].items()]
    lines += [f"- {name} {version}" for name, version in manifest["versions"].items()]
    commit = f"{manifest['commit'] or 'unknown'}{', modified since' if manifest['modified'] else ''}"
    lines.append(f"- Python {manifest['python']} on {manifest['machine']}, commit {commit}")
    lines.append(f"- devices: {', '.join(manifest.get('workers') or manifest['devices']) or 'none used'}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(each)}" for name, each in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _columns(path: Path) -> str:
    """The columns of a table after a semicolon; empty for other files and for unreadable tables."""
    from pyarrow import parquet

    if path.suffix not in (".parquet", ".csv"):
        return ""
    try:
        names = parquet.read_schema(path).names if path.suffix == ".parquet" else pd.read_csv(path, nrows=0).columns
    except (ValueError, OSError):
        return ""
    return f"; columns {', '.join(names)}"
