"""The command line. Nothing here imports JAX before there is work for it.

A command is a line in `COMMANDS` and a function of its arguments in a module of its own, which is loaded when called.
"""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

from feelgood import __version__
from feelgood.checks import check_choice

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """Where a command lives: its module here, its function there, a line on what it does, and an example."""

    module: str
    function: str
    summary: str
    example: str

    def load(self) -> Callable[[Sequence[str]], None]:
        """The function to call with the arguments that follow the command's name."""
        return getattr(importlib.import_module(f"feelgood.cli.{self.module}"), self.function)


COMMANDS = {
    "run": Command("run", "run", "run a study", "feelgood run nchain --preset quick"),
    "sweep": Command(
        "run",
        "sweep",
        "try every point of a grid and measure the winner on fresh seeds",
        "feelgood sweep --agent dqn --grid step_size=1e-2,1e-3",
    ),
    "resume": Command("run", "resume", "go on with a study that was stopped", "feelgood resume runs/nchain"),
    "train": Command(
        "train",
        "train",
        "train an agent in a Gymnasium environment or an Atari game",
        "feelgood train --env CartPole-v1 --agent fg_ulmcdqn --output runs/cartpole",
    ),
    "evaluate": Command(
        "evaluate",
        "evaluate",
        "play episodes with what was trained, and say how they went",
        "feelgood evaluate runs/cartpole --num-episodes 20",
    ),
    "record": Command(
        "record",
        "record",
        "film an episode of what was trained, as a GIF",
        "feelgood record runs/cartpole -o game.gif",
    ),
    "plot": Command(
        "plot", "plot", "draw a study's figures from its tables", "feelgood plot runs/nchain --kind curves"
    ),
    "compare": Command(
        "compare",
        "compare",
        "compare two runs, or two agents of a run, task by task",
        "feelgood compare runs/nchain:fg_ulmcdqn runs/nchain:dqn",
    ),
    "report": Command(
        "report",
        "report",
        "write one page with everything that runs found, to read offline",
        "feelgood report runs/nchain -o report.html",
    ),
    "list": Command(
        "listing",
        "list_names",
        "list agents, samplers, environments, studies, algorithms, mdps, with a line on each and its paper",
        "feelgood list agents --json",
    ),
    "doctor": Command(
        "doctor",
        "doctor",
        "say what is installed, what JAX computes on, and what is missing",
        "feelgood doctor",
    ),
    "completion": Command(
        "completion",
        "completion",
        "print a script that completes commands and options in a shell",
        "feelgood completion bash > ~/.local/share/bash-completion/completions/feelgood",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `feelgood`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            _list_commands()
            sys.stdout.flush()
            sys.exit(0 if arguments else 2)
        if arguments[0] == "--version":
            print(f"feelgood {__version__}")
        else:
            check_choice("command", arguments[0], COMMANDS)
            COMMANDS[arguments[0]].load()(arguments[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        _refuse(_in_words(error))
    except (MemoryError, OverflowError) as error:
        _refuse(f"that is more than this machine can hold ({error})")
    except RuntimeError as error:  # XLA has no class of its own for it
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _refuse(f"that is more than this machine can hold ({error})")
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)


def _list_commands() -> None:
    print("usage: feelgood COMMAND …    (feelgood COMMAND --help tells more)\n")
    print("Randomised exploration by approximate posterior sampling.\n")
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        print(f"  {name:{width}s}  {command.summary}\n  {'':{width}s}  example: {command.example}")
    print("\n  --version   print the version")


def _in_words(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _refuse(reason: str) -> NoReturn:
    """Says why on one line, in characters that every terminal takes, and ends with code 2."""
    line = reason.replace("\n", " ").encode("utf-8", "backslashreplace").decode()
    print(f"feelgood: {line}", file=sys.stderr)
    sys.exit(2)
