"""`feelgood new`."""

import keyword
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from feelgood.checks import check_choice
from feelgood.cli.parsing import parser

KINDS = ("environment", "agent", "sampler", "study")

PARSER = parser("new")
PARSER.add_argument("kind", help=f"one of {', '.join(KINDS)}")
PARSER.add_argument("name", help="name of the module, as in my_maze")
PARSER.add_argument("-o", "--output", type=Path, default=Path(), help="folder (default: the current one)")


def new(arguments: Sequence[str]) -> None:
    """Writes a commented module and its test."""
    chosen = PARSER.parse_args(arguments)
    check_choice("kind", chosen.kind, KINDS)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", chosen.name):
        raise ValueError(f"name must be a module's name of small letters, digits and underscores, got {chosen.name!r}")
    if keyword.iskeyword(chosen.name) or chosen.name in sys.stdlib_module_names:
        raise ValueError(f"name must not be a word or a module of Python, got {chosen.name!r}")
    skeletons = resources.files("feelgood.cli") / "skeletons"
    texts = {
        chosen.output / f"{test}{chosen.name}.py": (skeletons / f"{test}{chosen.kind}.txt").read_text("utf-8")
        for test in ("", "test_")
    }
    for path in texts:
        if path.exists():
            raise ValueError(f"file {path} exists already; choose another name")
    class_name = "".join(word.title() for word in chosen.name.split("_"))
    chosen.output.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text.replace("my_name", chosen.name).replace("MyName", class_name), "utf-8")
        print(f"wrote {path}")
    print(f"next: pytest {shlex.quote(str(chosen.output / f'test_{chosen.name}.py'))}")
