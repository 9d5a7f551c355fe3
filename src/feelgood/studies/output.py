"""Files of a study: tables, Markdown and figures; and how studies of several parts are run."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feelgood.studies.engine import Plan, run_plans
from feelgood.studies.options import tuning_range


def run_parts(
    name: str,
    study: Any,
    plans: Mapping[str, Callable[[Any], list[Plan]]],
    figures: Mapping[str, Mapping[str, Callable[[Any], Any]]],
    as_markdown: Callable[[Mapping[str, Any]], str],
    report: Callable[[str], None],
    files: Mapping[str, str],
    note: str = "",
) -> list[Path]:
    """Runs a study of several parts, or the rest of a stopped one, and returns the paths of its tables and figures.

    For each part, `plans` has a function from the options to plans, and `figures` has functions from the part's table
    to figures. `as_markdown` makes the text of `summary.md` from all tables; `note` is its last line.
    """
    import pandas as pd

    from feelgood.runs import store

    seeds = {"reporting": study.seed_list, "tuning": tuning_range(study)}
    with store.recorded(study.output, name, study, seeds=seeds, files=files) as facts:
        paths: list[Path] = []
        tables: dict[str, Any] = {}
        for part in study.parts:
            done = run_plans(study, plans[part](study), study.output, facts, title=part)
            tables[part] = pd.concat(done, ignore_index=True)
            drawn = {figure: draw(tables[part]) for figure, draw in figures[part].items()}
            paths += write_files(study.output, {f"{part}.parquet": tables[part], **drawn})
        text = as_markdown(tables)
        report(text)
        return [*paths, *write_files(study.output, {"summary.md": f"{text}\n{note}\n" if note else text})]


def part_files(tables: Mapping[str, str]) -> dict[str, str]:
    """The files of a study of several parts, from a description of each part's table."""
    whole = {f"{part}.parquet": line for part, line in tables.items()}
    return whole | {f"{part}.{ending}": f"figure of {part}" for part in tables for ending in ("png", "pdf")}


def write_files(folder: Path, contents: Mapping[str, Any]) -> list[Path]:
    """Writes a study's files and returns their paths.

    `contents` has, by file name, a table for `.parquet` and `.csv` and text for `.md`; by a name without an ending, a
    chart or a Matplotlib figure, which is written as PNG and as PDF.
    """
    from feelgood.figures.chart import Chart
    from feelgood.figures.draw import draw
    from feelgood.figures.style import save
    from feelgood.runs import store

    paths = []
    for name, content in contents.items():
        path = folder / name
        if not path.suffix:
            paths += save(draw(content) if isinstance(content, Chart) else content, path)
            continue
        if path.suffix == ".parquet":
            store.write_table(path, content)
        else:
            store.write_text(path, content if path.suffix == ".md" else content.to_csv(index=False))
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
