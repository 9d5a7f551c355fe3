"""`feelgood report`."""

from collections.abc import Sequence
from pathlib import Path

from feelgood.cli.parsing import parser

PARSER = parser("report")
PARSER.add_argument("folders", type=Path, nargs="+", metavar="RUN", help="folders of studies")
PARSER.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="output file (default: report.html)")
PARSER.add_argument("--title", help="title of the page")


def report(arguments: Sequence[str]) -> None:
    """Writes one self-contained page with the results of runs."""
    chosen = PARSER.parse_args(arguments)
    if chosen.output.suffix not in (".html", ".htm"):
        raise ValueError(f"output must end in .html, got {str(chosen.output)!r}")

    from feelgood.report.page import build_report
    from feelgood.runs.store import write_text

    page = build_report(chosen.folders, chosen.title)
    write_text(chosen.output, page)
    print(f"wrote {chosen.output} ({len(page.encode()) / 1e6:.2f} MB)")
