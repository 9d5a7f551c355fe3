"""`feelgood compare`."""

import json
import math
from argparse import ArgumentParser
from collections.abc import Sequence

from feelgood.cli.parsing import parser


def compare_parser() -> ArgumentParser:
    """The parser of this command."""
    parse = parser("compare")
    parse.add_argument("a", metavar="A", help="a study's folder, or FOLDER:AGENT for one agent of it")
    parse.add_argument("b", metavar="B", help="the other side of the comparison, given in the same way")
    parse.add_argument("--table", help="table of curves (default: curves)")
    parse.add_argument("--json", action="store_true", help="print JSON")
    return parse


def compare(arguments: Sequence[str]) -> None:
    """Compares two runs, or two agents of one run."""
    chosen = compare_parser().parse_args(arguments)

    from feelgood.statistics.compare import compare, read_side, sentence

    found = compare(read_side(chosen.a, chosen.table), read_side(chosen.b, chosen.table))
    summary = sentence(found)
    if chosen.json:
        rows = found.rows.to_dict("records")
        clean = [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]
        print(json.dumps({**found._asdict(), "rows": clean, "sentence": summary}, indent=2))
        return
    head = ["agent", "task", "runs", "A", "B", "A − B", "95% interval", "P(A better)", "95% interval"]
    lines = [head] if found.rows["agent"].nunique() > 1 else [head[1:]]
    for row in found.rows.itertuples():
        runs = f"{row.runs_a}" if row.runs_a == row.runs_b else f"{row.runs_a}, {row.runs_b}"
        interval = "" if math.isnan(row.low) else f"[{_number(row.low)}, {_number(row.high)}]"
        line = [row.agent, row.task, runs, _number(row.a), _number(row.b), _number(row.difference), interval]
        line += [f"{row.p_better:.2f}", f"[{row.p_low:.2f}, {row.p_high:.2f}]"]
        lines.append(line[len(head) - len(lines[0]) :])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"A: {chosen.a}\nB: {chosen.b}\n")
    for line in lines:
        words = [
            f"{word:{width}s}" if i == 0 else f"{word:>{width}s}"
            for i, (word, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(words).rstrip())
    print(f"\n{summary}")
    for note in found.notes:
        print(f"Note: {note}.")


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"
