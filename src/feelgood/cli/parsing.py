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
from typing import Annotated, Any, NoReturn, get_args, get_origin

from feelgood.checks import check_choice
from feelgood.cli import COMMANDS

_NO_INT = re.compile(r"argument (\S+): invalid int value: (.*)")


class _Parser(argparse.ArgumentParser):
    """A parser that raises a ValueError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        if found := _NO_INT.fullmatch(message):
            message = f"{found[1]} must be a whole number, got {found[2]}"
        raise ValueError(message)


PARSERS: dict[str, argparse.ArgumentParser] = {}
"""The parsers of the commands whose modules are loaded, except those with dataclasses of options."""


def parser(name: str) -> argparse.ArgumentParser:
    """A parser for the command `name`: its help ends with an example, and its errors are ValueErrors."""
    command = COMMANDS[name]
    PARSERS[name] = _Parser(
        prog=f"feelgood {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the example on one line
    )
    return PARSERS[name]


def parse_options(kind: Any, arguments: Sequence[str], command: str, example: str) -> Any:
    """Parses arguments into a dataclass of options; the help ends with an example.

    The help has a box of everyday options, and one for each group of fields (`studies.options.grouped`). An unknown
    option or a value that is not allowed is a ValueError of one sentence.
    """
    import tyro

    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = tyro.cli(_boxes(kind), args=arguments, prog=command, description=kind.__doc__)
    except SystemExit as end:
        if end.code:
            complaint = re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())  # remove colours
            options = [f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(kind)]
            raise ValueError(f"{_sentence(complaint, options)} ({command} --help lists the options)") from None
        print(f"example: {example}")
        raise
    sys.stderr.write(said.getvalue())  # warnings
    return kind(**{name: value for box in vars(parsed).values() for name, value in vars(box).items()})


def _boxes(kind: Any) -> Any:
    """A dataclass with a field per group of options, which is a dataclass of its own: tyro draws a box for each."""
    import tyro

    # The options of the study itself come first, those of the engine last.
    names = [name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())]
    if {"num_seeds", "seeds"} <= {*names}:
        names.remove("seeds")
        names.insert(names.index("num_seeds") + 1, "seeds")
    texts, known = _docstrings(kind), {field.name: field for field in dataclasses.fields(kind)}
    # Empty defaults have no note, as docstrings explain them.
    default = lambda label: "" if label in ("", "''", "None") else f"(default: {label})"
    groups: dict[str, list[Any]] = {"": []}
    for name in names:
        field = known[name]
        argument = tyro.conf.arg(help=texts.get(name), metavar=_metavar(field.type), help_behavior_hint=default)
        entry = (name, Annotated[field.type, argument], dataclasses.field(default=field.default))
        groups.setdefault(field.metadata.get("group", ""), []).append(entry)
    boxes = []
    for i, (title, entries) in enumerate(groups.items()):
        box = dataclasses.make_dataclass(f"Box{i}", entries)
        marks = (tyro.conf.arg(name=title, help=""), tyro.conf.OmitArgPrefixes, tyro.conf.DisallowNone)
        boxes.append((f"box{i}", Annotated[(box, *marks)], dataclasses.field(default_factory=box)))
    return dataclasses.make_dataclass(kind.__name__, boxes)


def _docstrings(kind: Any) -> dict[str, str]:
    """The docstring of each field, as one line; tyro would keep the line breaks of the source."""
    found = {}
    for base in kind.__mro__[:-1]:
        body = ast.parse(inspect.getsource(base)).body[0].body  # type: ignore[attr-defined]
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def _metavar(hint: Any) -> str | None:
    """[STR ...] for a tuple of words, which tyro would write as [STR [STR ...]]; None for tyro's own word."""
    inner = get_args(hint)[0] if get_origin(hint) is tuple else None
    return f"[{inner.__name__.upper()} ...]" if isinstance(inner, type) else None


_NO_NUMBER = re.compile(r"(--\S+): .*?(?:invalid literal for (int)\(\)|could not convert string to (float)).*?: (.*)")
_NO_CHOICE = re.compile(r"[Ii]nvalid choice '(.*)' for argument '(--\S+)'\. Expected one of (\(.*\))\.?")
_NO_NUMBERS = re.compile(r"(--\S+): Could not find valid parse for arguments: \[(.*)\]")  # text takes any words


def _sentence(box: str, options: Sequence[str]) -> str:
    """The first message in an error box of tyro: the lines below its title, up to a rule."""
    lines = [line.strip("│╭╮╰╯|+ ") for line in box.splitlines()]
    title, *body = [line for line in lines if line] or [box]
    parts = [list(part) for is_said, part in itertools.groupby(body, lambda line: bool(line.strip("─-"))) if is_said]
    sentence = " ".join(parts[0]) if parts else title.strip("─- ")
    if found := _NO_NUMBER.search(sentence):
        option, whole, _, value = found.groups()
        digits = " in digits" if whole and re.fullmatch(r"'\d[\d.]*e\+?\d+'", value) else ""
        return f"{option} must be a {'whole ' if whole else ''}number{digits}, got {value}"
    if found := _NO_NUMBERS.search(sentence):
        return f"{found[1]} must be whole numbers, got {found[2]}"
    if found := _NO_CHOICE.search(sentence):
        try:
            check_choice(found[2], found[1], ast.literal_eval(found[3]))
        except ValueError as error:
            return str(error)
    sentence = sentence[:1].lower() + sentence[1:].rstrip(".")
    unknown = re.match(r"unrecognized options: ([^\s,]+)", sentence)
    if unknown is None:
        return sentence
    near = [option for option in options if option.startswith(unknown[1])]
    near = near or difflib.get_close_matches(unknown[1], options, 1)
    if not unknown[1].startswith("-"):  # a value without its option; most often the environment
        near = [f"{option} {unknown[1]}" for option in options if option in ("--env", "--environment")]
    return f"{sentence}; did you mean {near[0]}?" if near else sentence
