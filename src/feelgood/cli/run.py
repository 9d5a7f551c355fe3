"""`feelgood run` and `feelgood resume`."""

import dataclasses
import importlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from feelgood.checks import check_choice
from feelgood.cli import COMMANDS
from feelgood.cli.parsing import parse_options, parser
from feelgood.cli.work import interruptible, set_up_jax
from feelgood.studies import STUDIES

RESUME = parser("resume")
RESUME.add_argument("folder", type=Path, help="the study's folder, which holds its manifest.json")


def run(arguments: Sequence[str]) -> None:
    """Runs a study."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: feelgood run STUDY [OPTIONS]    (feelgood run STUDY --help lists the options)\n")
        for name, study in STUDIES.items():
            print(f"  {name:12s} {study.summary}")
        print(f"\nexample: {COMMANDS['run'].example}")
        sys.exit(0 if arguments else 2)
    name, *rest = arguments
    check_choice("study", name, STUDIES)
    _begin(name, rest, f"feelgood run {name}")


def sweep(arguments: Sequence[str]) -> None:
    """Runs the study `sweep`."""
    _begin("sweep", arguments, "feelgood sweep")


def _begin(name: str, arguments: Sequence[str], command: str) -> None:
    options = parse_options(study_options(name), arguments, command, f"{command} {STUDIES[name].example}")
    _run(name, options, again=shlex.join([*command.split(), *arguments]))


def resume(arguments: Sequence[str]) -> None:
    """Continues a stopped study with the options in its manifest."""
    from feelgood.runs.store import read_study

    folder = RESUME.parse_args(arguments).folder
    manifest = read_study(folder)
    name, again = manifest["study"], shlex.join(["feelgood", "resume", str(folder)])
    check_choice(f"study of {folder}", name, [*STUDIES, "train"])
    if manifest["finished"]:
        print(f"{name} in {folder} is finished already")
        return
    spec = manifest["spec"] | {"output": str(folder)}
    if name == "train":
        from feelgood.cli import train

        train.execute(restored(train.TrainOptions, spec), again)
    else:
        _run(name, restored(study_options(name), spec), again)


def study_options(study: str) -> Any:
    """The dataclass of a study's options."""
    return getattr(importlib.import_module(STUDIES[study].module), STUDIES[study].options)


def restored(kind: Any, fields: dict[str, Any]) -> Any:
    """Options from the fields of a manifest."""
    hints = {field.name: get_type_hints(kind)[field.name] for field in dataclasses.fields(kind)}
    if unknown := fields.keys() - hints.keys():
        differ = ", ".join(sorted(unknown))
        raise ValueError(f"the study was started by another version of feelgood, which has other options: {differ}")
    # Options that the manifest lacks get their defaults; the study's label shows whether that changes the study.
    return kind(**{name: _typed(name, value, hints[name]) for name, value in fields.items()})


def _typed(name: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_typed(name, item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is Literal:
        check_choice(name, value, get_args(hint))
        return value
    if get_origin(hint) is UnionType:  # such as int | None
        return value if value is None else _typed(name, value, get_args(hint)[0])
    if hint is Path and isinstance(value, str):
        return Path(value)
    if type(value) is not hint:
        raise ValueError(f"{name} must be of type {getattr(hint, '__name__', hint)}, got {value!r}")
    return value


def _run(name: str, options: Any, again: str) -> None:
    """Sets JAX up and runs a study that is not finished; `again` is the command that continues it."""
    from feelgood.runs.store import is_finished

    if is_finished(options.output, name, options):
        print(f"{name} in {options.output} is finished already; to run it again, choose another folder or remove it")
        return
    others = getattr(options, "num_processes", 1) > 1 or getattr(options, "engine", "local") != "local"
    set_up_jax(shares=others)
    with interruptible(again):
        for path in importlib.import_module(STUDIES[name].module).run(options):
            print(f"wrote {path}")
