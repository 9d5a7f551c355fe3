"""Argument parsers."""

import argparse
import ast
import contextlib
import dataclasses
import difflib
import inspect
import io
import itertools
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, get_origin

from feelgood.cli import COMMANDS


class _Parser(argparse.ArgumentParser):
    """A parser that raises a ValueError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parser(name: str) -> argparse.ArgumentParser:
    """A parser for the command `name`: its help ends with an example, and its errors are ValueErrors."""
    command = COMMANDS[name]
    return _Parser(
        prog=f"feelgood {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the example on one line
    )


def parse_options(kind: Any, arguments: Sequence[str], command: str, example: str) -> Any:
    """Parses arguments into a dataclass of options; the help ends with an example.

    Raises:
      ValueError: if an option is unknown or its value is not allowed, with a one-sentence message.
    """
    import tyro

    # tyro lists options in the order of the fields: those of the study itself come first, those of the engine last.
    names = [name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())]
    if {"num_seeds", "seeds"} <= {*names}:
        names.remove("seeds")
        names.insert(names.index("num_seeds") + 1, "seeds")
    kind.__dataclass_fields__ = {name: kind.__dataclass_fields__[name] for name in names}
    _join_lines(kind)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = tyro.cli(kind, args=arguments, prog=command, description=kind.__doc__)
    except SystemExit as end:
        if end.code:
            complaint = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())  # remove colours
            if f"Error parsing {kind.__name__}:" in complaint and isinstance(end.__context__, ValueError):
                raise end.__context__ from None  # raised by the options' own checks
            options = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(kind)]
            raise ValueError(f"{_sentence(complaint, options)} ({command} --help lists the options)") from None
        print(f"example: {example}")
        raise
    sys.stderr.write(said.getvalue())  # warnings
    return parsed


def _join_lines(kind: Any) -> None:
    """Joins the lines of each option's docstring; tyro would keep the line breaks of the source."""
    import tyro

    for base in kind.__mro__[:-1]:
        body = ast.parse(inspect.getsource(base)).body[0].body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                name, joined = ast.unparse(field.target), " ".join(str(text.value.value).split())
                hint = base.__annotations__[name]
                if get_origin(hint) is not Annotated:  # a second call in one process
                    base.__annotations__[name] = Annotated[hint, tyro.conf.arg(help=joined)]


# Of an option that may be left out, tyro tries both types and reports both.
_NO_OPTIONAL = re.compile(r"(--\S+): no type matching \{None\}\|(?:(INT)|(FLOAT)) .*? from \['(.*?)'\]")
_NO_NUMBER = re.compile(r"(--\S+): (?:invalid literal for (int)\(\)|could not convert string to (float)).*?: (.*)")


def _sentence(box: str, options: Sequence[str]) -> str:
    """The first message in an error box of tyro: the lines below its title, up to a rule."""
    lines = [line.strip("│╭╮╰╯|+ ") for line in box.splitlines()]
    title, *body = [line for line in lines if line] or [box]
    parts = [list(part) for is_said, part in itertools.groupby(body, lambda line: bool(line.strip("─-"))) if is_said]
    sentence = " ".join(parts[0]) if parts else title.strip("─- ")
    if found := _NO_OPTIONAL.search(sentence) or _NO_NUMBER.search(sentence):
        option, whole, _, value = found.groups()
        quoted = value if value.startswith("'") else repr(value)
        return f"{option} must be a {'whole ' if whole else ''}number, got {quoted}"
    sentence = sentence[:1].lower() + sentence[1:].rstrip(".")
    unknown = re.match(r"unrecognized options: ([^\s,]+)", sentence)
    if unknown is None:
        return sentence
    near = [option for option in options if option.startswith(unknown[1])]
    near = near or difflib.get_close_matches(unknown[1], options, 1)
    if not unknown[1].startswith("-"):  # a value without its option; most often the environment
        near = [f"{option} {unknown[1]}" for option in options if option in ("--env", "--environment")]
    return f"{sentence}; did you mean {near[0]}?" if near else sentence
