"""The page in words that lies in every study's folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["describe", "is_ours"]

_MARK = "<!-- Written by feelgood anew whenever the study runs; remove this line to keep what you write here. -->"


def is_ours(path: Path) -> bool:
    """Whether there is no such page yet, or one that nobody has made their own."""
    return not path.exists() or path.read_text(errors="replace").startswith(_MARK)


def describe(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Says what a study's folder holds, what made it and how to read it.

    Args:
      folder: the study's folder; only files that lie there are named.
      manifest: as `store.recorded` keeps it.
      files: names of the files that the study writes, and a line on what each of them is.
    """
    if manifest["finished"]:
        state = f"finished {manifest['time']}, after {manifest['wall_seconds']} s in its last process"
    else:
        state = f"unfinished, last begun {manifest['time']}; `feelgood resume FOLDER` goes on with it"
    known = {
        **files,
        "cells": "parts of the study that are done, from which it goes on if it is stopped; in the end not needed",
        "manifest.json": "options, command, seeds, versions and devices, for programs",
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
    lines += ["", "## Options", "", "| option | value |", "|---|---|"]
    lines += [f"| {name} | {_plain(value)} |" for name, value in manifest["spec"].items()]
    lines += ["", "## Seeds and versions", ""]
    for use, each in manifest["seeds"].items():
        lines.append(f"- seeds, {use}: {each['first']} to {each['first'] + each['count'] - 1}")
    lines += [f"- {name} {version}" for name, version in manifest["versions"].items()]
    commit = f"{manifest['commit'] or 'unknown'}{', modified since' if manifest['modified'] else ''}"
    lines.append(f"- Python {manifest['python']} on {manifest['machine']}, commit {commit}")
    lines.append(f"- devices: {', '.join(manifest.get('workers') or manifest['devices']) or 'none used'}")
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _columns(path: Path) -> str:
    """The columns of a table, after a semicolon; nothing for other files, nor for tables that cannot be read."""
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return f"; columns {', '.join(parquet.read_schema(path).names)}"
        if path.suffix == ".csv":
            import pandas as pd

            return f"; columns {', '.join(pd.read_csv(path, nrows=0).columns)}"
    except (ValueError, OSError):
        pass
    return ""
