"""The parsers that commands share."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from feelgood.cli import COMMANDS

__all__ = ["parse_options", "parser"]


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence, as all others here."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parser(name: str) -> argparse.ArgumentParser:
    """A parser for the command `name`: its help ends with the command's example, its complaints are ValueErrors."""
    command = COMMANDS[name]
    return _Parser(
        prog=f"feelgood {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # an example stays on one line, to be copied
    )


def parse_options(kind: Any, arguments: Sequence[str], command: str, example: str) -> Any:
    """Options of a dataclass from arguments; the help of the command ends with an example."""
    import tyro

    try:
        return tyro.cli(kind, args=arguments, prog=command, description=kind.__doc__)
    except SystemExit as end:
        if not end.code:
            print(f"example: {example}")
        raise
