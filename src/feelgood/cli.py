"""The command line. Nothing here imports JAX before there is work for it."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from feelgood.checks import check_choice

__all__ = ["main"]


class Study(NamedTuple):
    """Where a study lives: its module, the name of its options there, and a line on what it does."""

    module: str
    options: str
    summary: str


STUDIES = {
    "nchain": Study(
        "feelgood.studies.nchain", "NChainStudy", "deep exploration on the N-chain, after the paper's Figure 1"
    ),
    "sensitivity": Study(
        "feelgood.studies.sensitivity",
        "SensitivityStudy",
        "score on the N-chain against feel-good weight and friction",
    ),
    "frontier": Study(
        "feelgood.studies.frontier", "FrontierStudy", "the longest N-chain each agent solves, at two budgets"
    ),
    "regret": Study(
        "feelgood.studies.regret", "RegretStudy", "regret in linear MDPs: every row of the paper's Table 1, measured"
    ),
    "samplers": Study(
        "feelgood.studies.samplers", "SamplersStudy", "every sampler on one feel-good posterior, drawn (a minute)"
    ),
}


def run(arguments: Sequence[str]) -> None:
    """Run a study: feelgood run STUDY [OPTIONS]."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: feelgood run STUDY [OPTIONS]    (feelgood run STUDY --help lists the options)\n")
        for name, study in STUDIES.items():
            print(f"  {name:12s} {study.summary}")
        sys.exit(0 if arguments else 2)
    name, *rest = arguments
    check_choice("study", name, STUDIES)
    import tyro

    module = importlib.import_module(STUDIES[name].module)
    options = tyro.cli(getattr(module, STUDIES[name].options), args=rest, prog=f"feelgood run {name}")
    import jax

    # Each core a device, so that runs are spread over them; where there is a GPU this changes nothing.
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    # What was compiled once is not compiled again by the next command.
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", os.path.join(cache, "feelgood", "xla"))
    try:
        paths = module.run(options)
    except KeyboardInterrupt:
        print(f"\nstopped; to go on: feelgood run {' '.join(arguments)}", file=sys.stderr)
        sys.exit(130)
    for path in paths:
        print(f"wrote {path}")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"run": run}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `feelgood`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: feelgood COMMAND …\n\nRandomised exploration by approximate posterior sampling.\n")
        for name, command in COMMANDS.items():
            print(f"  {name:12s} {(command.__doc__ or '').splitlines()[0]}")
        sys.exit(0 if arguments else 2)
    try:
        check_choice("command", arguments[0], COMMANDS)
        COMMANDS[arguments[0]](arguments[1:])
    except (ValueError, OSError) as error:
        print(f"feelgood: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
