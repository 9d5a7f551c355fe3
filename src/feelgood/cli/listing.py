"""`feelgood list`."""

import json
from collections.abc import Sequence

from feelgood.catalogue import KINDS
from feelgood.checks import check_choice
from feelgood.cli.parsing import parser

PARSER = parser("list")
PARSER.add_argument("kind", nargs="?", help=f"one of {', '.join(KINDS)} (default: all)")
PARSER.add_argument("--json", action="store_true", help="print JSON")


def list_names(arguments: Sequence[str]) -> None:
    """Lists names with their summaries and papers."""
    chosen = PARSER.parse_args(arguments)
    if chosen.kind is not None:
        check_choice("kind", chosen.kind, KINDS)
    found = {kind: KINDS[kind]() for kind in ([chosen.kind] if chosen.kind else KINDS)}
    if chosen.json:
        print(json.dumps({kind: [entry._asdict() for entry in entries] for kind, entries in found.items()}, indent=2))
        return
    for kind, entries in found.items():
        print(kind)
        width = max(len(entry.name) for entry in entries)
        for entry in entries:
            print(f"  {entry.name:{width}s}  {entry.summary}" + (f" ({entry.paper})" if entry.paper else ""))
