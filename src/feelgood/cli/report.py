"""`feelgood report`."""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from feelgood.cli.parsing import parser


def report_parser() -> ArgumentParser:
    """The parser of this command."""
    parse = parser("report")
    parse.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="folders of studies")
    file = Path("report.html")
    parse.add_argument("-o", "--output", type=Path, default=file, help=f"output file (default: {file})")
    parse.add_argument("--title", help="title of the page")
    return parse


def report(arguments: Sequence[str]) -> None:
    """Writes one self-contained page with the results of runs."""
    chosen = report_parser().parse_args(arguments)
    if chosen.output.suffix not in (".html", ".htm"):
        raise ValueError(f"output must end in .html, got {str(chosen.output)!r}")

    from feelgood.report.page import build_report
    from feelgood.runs.store import write_text

    page = build_report(chosen.folders, chosen.title)
    write_text(chosen.output, page)
    print(f"wrote {chosen.output} ({len(page.encode()) / 1e6:.2f} MB)")
