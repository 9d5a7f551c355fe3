"""`feelgood plot`."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feelgood.checks import check_choice
from feelgood.cli.parsing import parser

_ENDINGS = (".png", ".pdf", ".svg")
_DEFAULT = "the study's folder; the current folder for several"

PARSER = parser("plot")
PARSER.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="folders of studies, drawn together")
PARSER.add_argument("--kind", nargs="+", default=[], help="kinds of figure (default: all that the tables allow)")
PARSER.add_argument("--agents", nargs="+", default=[], help="agents to draw, with -o or --json (default: all)")
PARSER.add_argument(
    "-o", "--output", type=Path, help=f"a folder, or a file ending in .png, .pdf or .svg (default: {_DEFAULT})"
)
PARSER.add_argument("--json", action="store_true", help="print the data as JSON instead of drawing it")


def plot(arguments: Sequence[str]) -> None:
    """Draws a study's figures from its tables."""
    chosen = PARSER.parse_args(arguments)
    one_file = chosen.output is not None and chosen.output.suffix in _ENDINGS
    if chosen.json and chosen.output is not None:
        raise ValueError("--json prints and --output writes; choose one of them")
    if chosen.agents and chosen.output is None and not chosen.json:
        raise ValueError(f"--agents {shlex.join(chosen.agents)} needs --output; the study's own figures show all")
    if chosen.output is not None and chosen.output.suffix and not one_file and not chosen.output.is_dir():
        endings = ", ".join(_ENDINGS)
        raise ValueError(f"output must be a folder or a file ending in {endings}, got {str(chosen.output)!r}")

    from feelgood.figures import style
    from feelgood.figures.chart import plain
    from feelgood.figures.draw import draw
    from feelgood.report import kinds as charts

    tables = charts.overlaid(chosen.folders)
    if chosen.agents:
        known = {name for table in tables.values() for name in _agents(table)}
        for agent in chosen.agents:
            check_choice("agents", agent, sorted(known))
        tables = {
            name: table[[agent in chosen.agents for agent in _agents(table)]] if _agents(table) else table
            for name, table in tables.items()
        }
    kinds = charts.available(tables)
    if not kinds:
        where = " ".join(map(str, chosen.folders))
        raise ValueError(f"folder {where} holds no table that a figure can be drawn from: {', '.join(tables)}")
    for kind in chosen.kind:
        check_choice("kind", kind, kinds)
    if one_file and len(chosen.kind) != 1:
        raise ValueError(f"one file holds one figure: choose one --kind of {', '.join(map(repr, kinds))}")
    made, reasons = {}, []
    for kind in chosen.kind or kinds:
        try:
            made[kind] = charts.make_chart(kind, tables)
        except ValueError as error:
            if chosen.kind:  # of the kinds that were not asked for, those are left out that cannot be made
                raise
            reasons.append(str(error))
    if not made:
        raise ValueError(f"there is nothing to draw: {'; '.join(dict.fromkeys(reasons))}")
    if chosen.json:
        print(json.dumps(plain([*made.values()]), indent=2))
        return
    drawn = {kind: draw(chart) for kind, chart in made.items()}
    if one_file:
        style.save(drawn[chosen.kind[0]], chosen.output)
        print(f"wrote {chosen.output}")
        return
    output = chosen.output or (chosen.folders[0] if len(chosen.folders) == 1 else Path())
    # All figures are written before any path is printed: a reader that closes the pipe, as `head` does, ends the
    # command.
    paths = [path for kind, figure in drawn.items() for path in style.save(figure, output / kind)]
    print("\n".join(f"wrote {path}" for path in paths))


def _agents(table: Any) -> list[str]:
    """The agent, algorithm or sampler of every row; empty if the table has no such column."""
    names = [name for name in ("agent", "algorithm", "sampler", "scheme") if name in table.columns]
    return list(table[names[0]].astype(str)) if names else []
