"""`feelgood completion`: scripts that hold all words themselves, so that pressing Tab starts no Python."""

import dataclasses
import importlib
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import Any

from feelgood.catalogue import KINDS, STUDIES
from feelgood.checks import check_choice
from feelgood.cli import COMMANDS
from feelgood.cli.parsing import parser

__all__ = ["completion", "completion_parser"]


def completion_parser() -> ArgumentParser:
    """The parser of this command."""
    parse = parser("completion")
    parse.add_argument("shell", help=f"one of {', '.join(SHELLS)}")
    return parse


def completion(arguments: Sequence[str]) -> None:
    """Prints the script of a shell."""
    shell = completion_parser().parse_args(arguments).shell
    check_choice("shell", shell, SHELLS)
    print(SHELLS[shell](), end="")


def words_of(command: str) -> list[str]:
    """What may follow a command at once, beside files."""
    return {"run": list(STUDIES), "list": list(KINDS), "completion": list(SHELLS)}.get(command, [])


def flags_of(command: str) -> list[str]:
    """Long options of a command NAME: those of the parser or the dataclass beside it, NAME_parser or NameOptions."""
    module, function = COMMANDS[command].module, COMMANDS[command].function
    room = importlib.import_module(f"feelgood.cli.{module}")
    if hasattr(room, f"{function}_parser"):
        actions = getattr(room, f"{function}_parser")()._actions
        return sorted(word for action in actions for word in action.option_strings if word.startswith("--"))
    return _fields(getattr(room, f"{function.title()}Options", None))


def _fields(options: Any) -> list[str]:
    """Long options from the fields of a dataclass, if there is one."""
    names = [field.name for field in dataclasses.fields(options)] if options else []
    return sorted(["--help", *(f"--{name.replace('_', '-')}" for name in names)])


def study_flags(study: str) -> list[str]:
    """Long options of a study: the fields of its dataclass."""
    return _fields(getattr(importlib.import_module(STUDIES[study].module), STUDIES[study].options))


def _bash() -> str:
    cases = []
    for name in COMMANDS:
        if name != "run":
            cases.append(f'    {name}) words="{" ".join([*words_of(name), *flags_of(name)])}" ;;')
    studies = [f'      {name}) words="{" ".join(study_flags(name))}" ;;' for name in STUDIES]
    return "\n".join(
        [
            "# bash completion for feelgood",
            "_feelgood() {",
            '  local words="" word="${COMP_WORDS[COMP_CWORD]}"',
            '  if [ "$COMP_CWORD" -eq 1 ]; then',
            f'    words="{" ".join([*COMMANDS, "--help", "--version"])}"',
            "  else",
            '    case "${COMP_WORDS[1]}" in',
            "    run)",
            f'      words="{" ".join([*words_of("run"), "--help"])}"',
            '      [ "$COMP_CWORD" -gt 2 ] && case "${COMP_WORDS[2]}" in',
            *studies,
            "      esac ;;",
            *cases,
            "    esac",
            "  fi",
            '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _feelgood feelgood",
            "",
        ]
    )


def _zsh() -> str:
    described = " ".join(f"'{name}:{_quiet(command.summary)}'" for name, command in COMMANDS.items())
    cases = [
        f"    {name}) compadd -- {' '.join([*words_of(name), *flags_of(name)])}; _files ;;"
        for name in COMMANDS
        if name != "run"
    ]
    studies = [f"        {name}) compadd -- {' '.join(study_flags(name))}; _files ;;" for name in STUDIES]
    return "\n".join(
        [
            "#compdef feelgood",
            "_feelgood() {",
            "  local -a commands",
            f"  commands=({described})",
            "  if (( CURRENT == 2 )); then",
            "    _describe command commands",
            "    return",
            "  fi",
            '  case "$words[2]" in',
            "    run)",
            "      if (( CURRENT == 3 )); then",
            f"        compadd -- {' '.join(words_of('run'))}",
            "        return",
            "      fi",
            '      case "$words[3]" in',
            *studies,
            "      esac ;;",
            *cases,
            "  esac",
            "}",
            "compdef _feelgood feelgood",
            "",
        ]
    )


def _fish() -> str:
    lines = ["# fish completion for feelgood"]
    for name, command in COMMANDS.items():
        lines.append(f"complete -c feelgood -n __fish_use_subcommand -f -a {name} -d '{_quiet(command.summary)}'")
    for name in COMMANDS:
        seen = f"'__fish_seen_subcommand_from {name}'"
        if words_of(name):
            lines.append(f"complete -c feelgood -n {seen} -f -a '{' '.join(words_of(name))}'")
        if name != "run":
            lines += [f"complete -c feelgood -n {seen} -l {flag.removeprefix('--')}" for flag in flags_of(name)]
    for study in STUDIES:
        seen = f"'__fish_seen_subcommand_from run; and __fish_seen_subcommand_from {study}'"
        lines += [f"complete -c feelgood -n {seen} -l {flag.removeprefix('--')}" for flag in study_flags(study)]
    return "\n".join([*lines, ""])


def _quiet(text: str) -> str:
    """Words that need no quoting in any shell."""
    return text.replace("'", "’").replace(":", " -")


SHELLS: dict[str, Callable[[], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
