"""The report: one HTML page with interactive figures, sortable tables and the provenance of every result.

The page is self-contained: it holds its style, script and data, and its security policy forbids requests and all other
scripts. Text from names and manifests is escaped.
"""

import base64
import hashlib
import itertools
import json
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from feelgood.figures.chart import Chart, plain
from feelgood.report.kinds import available, check_different, make_chart, overlaid
from feelgood.report.provenance import Provenance, joined, provenance
from feelgood.report.tables import best, breakable, scores_table, table_of
from feelgood.runs.machine import version_of

_MOST_ROWS = 200
# For a single task these charts add little to the table of scores and the learning curves, and take much space.
_OVER_TASKS = ("aggregate", "profiles", "efficiency")


class _Run(NamedTuple):
    name: str
    folders: list[Path]
    tables: dict[str, pd.DataFrame]
    charts: list[Chart]
    behind: Provenance


def build_report(folders: Sequence[Path], title: str | None = None) -> str:
    """The HTML of the page about folders of studies, or of any table of curves. Training runs share one section.

    The title, if not given, names the studies, and the agents and environments of training runs.

    Raises:
      ValueError: if a folder has nothing to show, or is given twice.
    """
    if not folders:
        raise ValueError("a report needs at least one folder, got none")
    check_different(folders)
    training = [folder for folder in folders if provenance(folder).study == "train"]
    groups = [[folder] for folder in folders if folder not in training]
    groups.insert(folders.index(training[0]) if training else 0, training)
    runs = [_read(group) for group in groups if group]
    names = [run.name for run in runs]  # studies of the same name are named by their folders
    runs = [run._replace(name=str(run.folders[0])) if names.count(run.name) > 1 else run for run in runs]
    charts = [chart for run in runs for chart in run.charts]
    style, script = (resources.files(__package__).joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    version = f" {escape(version_of('feelgood') or '')}".rstrip()
    heading = title or ", ".join(dict.fromkeys(run.name for run in runs))
    firsts = itertools.accumulate((len(run.charts) for run in runs), initial=0)
    body = [_section(run, i, first) for (i, run), first in zip(enumerate(runs), firsts, strict=False)]
    kind, names = ("run", [run.name for run in runs]) if len(runs) > 1 else ("chart", [chart.title for chart in charts])
    links = "".join(f'<a href="#{kind}-{i}">{escape(name)}</a>' for i, name in enumerate(names))
    return f"""<!doctype html>
<html lang="en" data-theme="light">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escape(heading)} · feelgood</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<div class="bar"><div><b>feelgood</b><nav>{links}</nav>\
<button type="button" class="plain" id="theme" title="light or dark">Dark</button></div></div>
<main>
{"".join(body)}
<footer>Made by feelgood{version}. This page holds all its data and makes no requests.</footer>
</main>
<script type="application/json" id="charts">{_json(plain(charts, _short))}</script>
<script>{script}</script>
</body>
</html>
"""


def _read(folders: list[Path]) -> _Run:
    tables = overlaid(folders)
    behind = joined([provenance(folder) for folder in folders])
    charts, reasons = list[Chart](), list[str]()
    for kind in available(tables):
        try:
            chart = make_chart(kind, tables)
        except ValueError as error:
            reasons.append(str(error))
            continue
        has_one_task = any(other.kind == "curves" and len(other.panels) == 1 for other in charts)
        if not (kind in _OVER_TASKS and has_one_task) and (kind != "profiles" or len(chart.panels) == 1):
            charts.append(chart)
    if not charts:
        why = "; ".join(dict.fromkeys(reasons)) or f"none of {', '.join(tables)} is a table that a report shows"
        raise ValueError(f"folder {' '.join(map(str, folders))} holds nothing that a report can show: {why}")
    name = behind.title if behind.study == "train" else behind.study or folders[0].resolve().name
    return _Run(name, folders, tables, charts, behind)


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _short(number: float) -> int | float:
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _section(run: _Run, index: int, first: int) -> str:
    pieces = [_head(run, index)]
    if scores := scores_table(run.tables):
        pieces.append(f'<section class="block"><h2>Final scores</h2><p>{scores.note}</p>{scores.html}</section>')
    pieces += [_figure(run, chart, first + i) for i, chart in enumerate(run.charts)]
    pieces.append(_data(run))
    return f'<article id="run-{index}">{"".join(pieces)}</article>'


def _head(run: _Run, index: int) -> str:
    facts = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in run.behind.facts.items())
    cards = "".join(
        f"<div><span>{escape(task)}</span><strong>{escape(value)} <small>{escape(error)}</small></strong>"
        f"<em>{breakable(agent)}</em><span>{breakable(next_)}</span></div>"
        for task, agent, value, error, next_ in best(run.tables)
    )
    warning = '<p class="warning">This study is not finished: the results may change.</p>'
    return (
        f'<header class="run"><div class="kicker">{escape(run.behind.kicker)}</div>'
        f'<h1>{escape(run.behind.title)}</h1><p class="lead">{escape(run.behind.lead)}</p>'
        f"{warning if run.behind.finished is False else ''}"
        f'<dl class="facts">{facts}</dl>' + (f'<div class="best">{cards}</div>' if cards else "") + "</header>"
    )


def _figure(run: _Run, chart: Chart, number: int) -> str:
    rows = len(run.tables[chart.table])
    behind = {"table": f"{chart.table}, {rows:,} rows", **run.behind.lines}
    again = f"feelgood plot {shlex.join(map(str, run.folders))} --kind {chart.kind}"
    return (
        f'<section class="block" id="chart-{number}" data-chart="{number}" data-kind="{escape(chart.kind)}">'
        f"<h2>{escape(chart.title)}</h2><p>{escape(chart.note)}</p>"
        '<div class="legend" role="group" aria-label="curves"></div><div class="panels"></div>'
        '<div class="foot"><details><summary>Provenance of this figure</summary>'
        f"{_lines(behind)}<dl><dt>command for this figure</dt><dd><code>{escape(again)}</code></dd></dl></details>"
        '<div class="tools"></div></div></section>'
    )


def _lines(lines: Mapping[str, str]) -> str:
    code = ("command", "commit", "from its options")
    shown = {k: f"<code>{escape(v)}</code>" if k in code else escape(v) for k, v in lines.items()}
    rows = (f"<dt>{escape(k)}</dt><dd>{v}</dd>" for k, v in shown.items())
    return f"<dl>{''.join(rows)}</dl>"


def _data(run: _Run) -> str:
    pieces = []
    for name, table in run.tables.items():
        if not 0 < len(table) <= 20 * _MOST_ROWS:
            continue
        more = f", the first {_MOST_ROWS} shown" if len(table) > _MOST_ROWS else ""
        summary = f"{escape(name)}: {len(table):,} rows{more}"
        pieces.append(f"<details><summary>{summary}</summary>{table_of(table.head(_MOST_ROWS))}</details>")
    if run.behind.spec:
        pieces.append(f"<details><summary>Specification</summary><pre>{escape(run.behind.spec)}</pre></details>")
    return (
        '<section class="block"><h2>Data and provenance</h2><p>The command, options and versions, and the tables.</p>'
        f"{_lines(run.behind.lines)}{''.join(pieces)}</section>"
    )
