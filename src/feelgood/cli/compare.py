"""`feelgood compare`."""

import json
import math
from collections.abc import Sequence
from typing import Any

from feelgood.cli.parsing import parser

PARSER = parser("compare")
PARSER.add_argument(
    "sides",
    nargs="+",
    metavar="RUN",
    help="a study's folder or a file of curves (CSV or Parquet), or FOLDER:AGENT for one of its agents; the first "
    "is compared with each of the others. For a single folder, its first agent is compared with each of the others",
)
PARSER.add_argument("--table", help="table of curves (default: curves)")
PARSER.add_argument(
    "--same-times",
    action="store_true",
    help="use only evaluations at times that all runs of a task have, so that budgets are equal",
)
PARSER.add_argument("--json", action="store_true", help="print JSON")


def compare(arguments: Sequence[str]) -> None:
    """Compares runs, or agents of one run."""
    chosen = PARSER.parse_args(arguments)

    from feelgood.statistics.compare import agents_of, compare, read_side, sentence

    names = chosen.sides if len(chosen.sides) > 1 else agents_of(chosen.sides[0], chosen.table)
    first, *others = [read_side(name, chosen.table) for name in names]
    found = [compare(first, other, same_times=chosen.same_times) for other in others]
    if chosen.json:
        rows = [each.rows.astype(object).where(each.rows.notna(), None).to_dict("records") for each in found]
        plain = [
            {**each._asdict(), "rows": own, "sentence": sentence(each)} for each, own in zip(found, rows, strict=True)
        ]
        print(json.dumps(plain[0] if len(plain) == 1 else plain, indent=2))
        return
    for name, each in zip(names[1:], found, strict=True):
        when = "at the end of a run" if each.lower_is_better else "mean of a run's last 10 evaluations"
        print(f"A: {names[0]}\nB: {name}\nscore: {each.score}, {when}\n")
        _print_table(each.rows)
        print(f"\n{sentence(each)}")
        for note in each.notes:
            print(f"Note: {note}.")
        if name != names[-1]:
            print()


def _print_table(rows: Any) -> None:
    """Prints the rows of a comparison in aligned columns."""
    head = ["agent", "task", "runs", "A", "B", "A − B", "95% interval", "P(A better)", "95% interval"]
    lines = [head] if rows["agent"].nunique() > 1 else [head[1:]]
    for row in rows.itertuples():
        runs = f"{row.runs_a}" if row.runs_a == row.runs_b else f"{row.runs_a}, {row.runs_b}"
        interval = "" if math.isnan(row.low) else f"[{_number(row.low)}, {_number(row.high)}]"
        chances = "" if math.isnan(row.p_low) else f"[{row.p_low:.2f}, {row.p_high:.2f}]"
        line = [row.agent, row.task, runs, _number(row.a), _number(row.b), _number(row.difference), interval]
        line += [f"{row.p_better:.2f}", chances]
        lines.append(line[len(head) - len(lines[0]) :])
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *line in lines:
        words = [word.rjust(width) for word, width in zip(line, others, strict=True)]
        print("  ".join([name.ljust(first), *words]).rstrip())


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"
