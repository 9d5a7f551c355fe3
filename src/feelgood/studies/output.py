"""Files of a study: tables, Markdown and figures."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def write_files(folder: Path, contents: Mapping[str, Any]) -> list[Path]:
    """Writes a study's files and returns their paths.

    Args:
      folder: the study's folder.
      contents: by file name, a table for `.parquet` and `.csv` and text for `.md`; by a name without an ending, a chart
        or a Matplotlib figure, which is written as PNG and as PDF.
    """
    from feelgood.figures.chart import Chart
    from feelgood.figures.draw import draw
    from feelgood.figures.style import save
    from feelgood.runs import store

    paths = []
    for name, content in contents.items():
        path = folder / name
        if path.suffix == ".parquet":
            store.write_table(path, content)
        elif path.suffix:
            store.write_text(path, content if path.suffix == ".md" else content.to_csv(index=False))
        else:
            paths += save(draw(content) if isinstance(content, Chart) else content, path)
            continue
        paths.append(path)
    return paths


def figure_files(name: str, line: str) -> dict[str, str]:
    """The two files of a figure with their description, for a study's list of files."""
    return {f"{name}.{ending}": line for ending in ("png", "pdf")}


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *rows])


def plus_minus(value: float, error: float, form: str = ".2f") -> str:
    """A mean and half the width of its interval, as in 9.15 ± 0.30; the mean alone if it has no interval."""
    ends = "" if math.isnan(error) else f" ± {error:{form}}"
    return "–" if math.isnan(value) else f"{value:{form}}{ends}"
