"""`feelgood completion`: scripts that hold all words themselves, so that pressing Tab starts no Python."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from feelgood.catalogue import KINDS
from feelgood.checks import check_choice
from feelgood.cli import COMMANDS, home_of
from feelgood.cli.new import KINDS as SKELETONS
from feelgood.cli.parsing import PARSERS, parser
from feelgood.cli.run import study_options
from feelgood.studies import STUDIES


def flags_of(command: str) -> list[str]:
    """Long options of a command, from its parser or the dataclass `CommandOptions` in its module."""
    module, function = home_of(command)
    if command in PARSERS:
        words = (word for action in PARSERS[command]._actions for word in action.option_strings)
        return sorted(word for word in words if word.startswith("--"))
    return _fields(getattr(module, f"{function.title()}Options", None))


def _fields(options: Any) -> list[str]:
    """Long options from the fields of a dataclass, if there is one."""
    names = [field.name for field in dataclasses.fields(options)] if options else []
    return sorted(["--help", *(f"--{name.replace('_', '-')}" for name in names)])


def study_flags(study: str) -> list[str]:
    """Long options of a study: the fields of its dataclass."""
    return _fields(study_options(study))


def _following() -> dict[str, list[str]]:
    """The words that may follow each command, except for files; `run` has the options of its studies."""
    known: dict[str, Iterable[str]] = {"run": STUDIES, "list": KINDS, "completion": SHELLS, "new": SKELETONS}
    return {name: [*known.get(name, ()), *(["--help"] if name == "run" else flags_of(name))] for name in COMMANDS}


def _bash() -> str:
    case = lambda name, words: f'    {name}) words="{" ".join(words)}" ;;'
    commands = "\n".join(case(name, words) for name, words in _following().items())
    studies = "\n".join(case(name, study_flags(name)) for name in STUDIES)
    return f"""# bash completion for feelgood
_feelgood() {{
  local words="" word="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{" ".join(COMMANDS)} --help --version"
  elif [ "$COMP_CWORD" -gt 2 ] && [ "${{COMP_WORDS[1]}}" = run ]; then
    case "${{COMP_WORDS[2]}}" in
{studies}
    esac
  else
    case "${{COMP_WORDS[1]}}" in
{commands}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _feelgood feelgood
"""


def _fish() -> str:
    line = "complete -c feelgood -n"
    option = lambda word: f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-f -a {word}"
    lines = ["# fish completion for feelgood"]
    for name, words in _following().items():
        seen = f"'__fish_seen_subcommand_from {name}'"
        summary = COMMANDS[name].summary.replace("'", "’").replace(":", " -")  # no quoting needed
        lines.append(f"{line} __fish_use_subcommand -f -a {name} -d '{summary}'")
        lines += [f"{line} {seen} {option(word)}" for word in words]
    for study in STUDIES:
        seen = f"'__fish_seen_subcommand_from run; and __fish_seen_subcommand_from {study}'"
        lines += [f"{line} {seen} {option(word)}" for word in study_flags(study)]
    return "\n".join([*lines, ""])


_zsh = lambda: "#compdef feelgood\nautoload -U +X bashcompinit && bashcompinit\n" + _bash()

SHELLS: dict[str, Callable[[], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}

PARSER = parser("completion")
PARSER.add_argument("shell", help=f"one of {', '.join(SHELLS)}")


def completion(arguments: Sequence[str]) -> None:
    """Prints the script of a shell."""
    shell = PARSER.parse_args(arguments).shell
    check_choice("shell", shell, SHELLS)
    print(SHELLS[shell](), end="")
