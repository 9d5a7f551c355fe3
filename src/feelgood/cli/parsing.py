"""The parser that commands share."""

import argparse
from typing import NoReturn

from feelgood.cli import COMMANDS

__all__ = ["parser"]


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
