"""The command line. JAX is imported only by commands that compute.

A command is an entry of `COMMANDS` and a function of its arguments in its own module, which is loaded when called.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

from feelgood import __version__, signals, streams
from feelgood.checks import check_choice

__all__ = ["COMMANDS", "Command", "main"]


class Command(NamedTuple):
    """A command: a one-line summary, an example, and its module and function in this package if not named like it."""

    summary: str
    example: str
    module: str = ""
    function: str = ""


COMMANDS = {
    "run": Command("run a study", "feelgood run nchain --preset quick"),
    "sweep": Command(
        "search a grid of hyper-parameters and measure the winner on fresh seeds",
        "feelgood sweep --agent dqn --grid step_size=1e-2,1e-3",
        module="run",
    ),
    "resume": Command("continue a stopped study or training run", "feelgood resume runs/nchain", module="run"),
    "train": Command(
        "train agents in Gymnasium environments or Atari games",
        "feelgood train --env CartPole-v1 --agents ensemble_dqn dqn --num-seeds 3 --output runs/cartpole",
    ),
    "check": Command("check a Gymnasium environment and name the rule that it breaks", "feelgood check CartPole-v1"),
    "evaluate": Command(
        "play episodes with trained policies and print their returns",
        "feelgood evaluate runs/cartpole --num-episodes 20",
        module="policies",
    ),
    "record": Command(
        "record an episode of trained policies as a GIF or MP4",
        "feelgood record runs/cartpole -o game.gif",
        module="policies",
    ),
    "plot": Command("draw the figures of studies from their tables", "feelgood plot runs/nchain --kind curves"),
    "compare": Command(
        "compare runs, or agents of a run, task by task", "feelgood compare runs/nchain:fg_ulmcdqn runs/nchain:dqn"
    ),
    "report": Command(
        "write one self-contained HTML page with the results of runs", "feelgood report runs/nchain -o report.html"
    ),
    "list": Command(
        "list agents, samplers, environments, studies, algorithms, mdps and bandits with their papers",
        "feelgood list agents --json",
        module="listing",
        function="list_names",
    ),
    "new": Command(
        "write a commented environment, agent, sampler or study with its test", "feelgood new environment my_maze"
    ),
    "doctor": Command("show installed packages, devices and missing parts", "feelgood doctor"),
    "completion": Command(
        "print a shell completion script",
        "feelgood completion bash > ~/.local/share/bash-completion/completions/feelgood",
    ),
}


def home_of(command: str) -> tuple[Any, str]:
    """Imports the module of a command. Returns it with the name of its function of the arguments after the command."""
    known = COMMANDS[command]
    return importlib.import_module(f"feelgood.cli.{known.module or command}"), known.function or command


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `feelgood`."""
    streams.repair()
    try:
        with streams.forgiving(output=False), signals.listening():
            try:
                _call(sys.argv[1:] if arguments is None else arguments)
            except Exception:
                if signals.was_received():  # imports may turn a KeyboardInterrupt into an error of their own
                    raise KeyboardInterrupt from None
                raise
    except KeyboardInterrupt:
        _stop()
    finally:
        # An interrupt inside `exec` or `eval` of a string, as in `dataclass` and `namedtuple`, marks the process to end
        # by SIGINT even if the interrupt is caught. Another `exec` removes the mark.
        exec("")


def _call(arguments: Sequence[str]) -> None:
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            _list_commands()
            sys.stdout.flush()
            sys.exit(0 if arguments else 2)
        if arguments[0] == "--version":
            print(f"feelgood {__version__}")
        else:
            check_choice("command", arguments[0], COMMANDS)
            if "" not in sys.path and os.getcwd() not in sys.path:
                sys.path.append(os.getcwd())  # for --env module:Name-v0, last so that nothing installed is hidden
            module, function = home_of(arguments[0])
            getattr(module, function)(arguments[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        is_of_file = error.strerror and error.filename is not None
        _refuse(f"{error.filename}: {error.strerror}" if is_of_file else str(error))
    except ValueError as error:
        _refuse(str(error))
    except (MemoryError, OverflowError, RuntimeError) as error:  # XLA has no exception class for a lack of memory
        from feelgood.cli.memory import too_large

        sentence = too_large(error, arguments)
        if not sentence:
            raise
        _refuse(sentence)


def _list_commands() -> None:
    print("usage: feelgood COMMAND …    (feelgood COMMAND --help lists the options)\n")
    print("Randomised exploration by approximate posterior sampling.\n")
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        print(f"  {name:{width}s}  {command.summary}\n  {'':{width}s}  example: {command.example}")
    print("\n  --version   print the version")


def _stop() -> NoReturn:
    with suppress(OSError, ValueError):
        print("\nstopped", file=sys.stderr)
    sys.exit(signals.exit_code())


def _refuse(reason: str) -> NoReturn:
    """Prints the reason on one line, escaped for any terminal, and exits with code 2."""
    if signals.was_received():
        _stop()
    line = reason.replace("\n", " ").encode("utf-8", "backslashreplace").decode()
    print(f"feelgood: {line}", file=sys.stderr)
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python would fail to flush a full disk
    sys.exit(2)
