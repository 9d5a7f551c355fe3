"""The command line. Nothing here imports JAX before there is work for it."""

import argparse
import dataclasses
import glob
import importlib
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from feelgood import __version__
from feelgood.catalogue import KINDS, STUDIES
from feelgood.checks import check_choice

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence, as all others here."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _parser(name: str) -> _Parser:
    command = COMMANDS[name]
    return _Parser(
        prog=f"feelgood {name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
    )


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
    import tyro

    kind = _options(name)
    description = f"{kind.__doc__}\n\nexample: feelgood run {name} {STUDIES[name].example}"
    options = tyro.cli(kind, args=rest, prog=f"feelgood run {name}", description=description)
    _run(name, options, again=shlex.join(["feelgood", "run", *arguments]))


def resume(arguments: Sequence[str]) -> None:
    """Goes on with a study that was stopped, from what its folder says of it."""
    from feelgood.results.store import read_study

    parser = _parser("resume")
    parser.add_argument("folder", type=Path, help="the study's folder, where its manifest.json lies")
    folder = parser.parse_args(arguments).folder
    manifest = read_study(folder)
    name = manifest["study"]
    check_choice(f"study of {folder}", name, STUDIES)
    if manifest["finished"]:
        print(f"{name} in {folder} is finished already")
        return
    options = _restored(_options(name), manifest["spec"] | {"output": str(folder)})
    _run(name, options, again=shlex.join(["feelgood", "resume", str(folder)]))


def _options(study: str) -> Any:
    """The dataclass of a study's options."""
    return getattr(importlib.import_module(STUDIES[study].module), STUDIES[study].options)


def _restored(kind: Any, fields: dict[str, Any]) -> Any:
    """Options from what JSON made of them."""
    hints = {field.name: get_type_hints(kind)[field.name] for field in dataclasses.fields(kind)}
    if hints.keys() != fields.keys():
        differ = ", ".join(sorted(hints.keys() ^ fields.keys()))
        raise ValueError(f"the study was begun by another version of feelgood, with other options: {differ}")
    return kind(**{name: _typed(name, fields[name], hint) for name, hint in hints.items()})


def _typed(name: str, value: Any, hint: Any) -> Any:
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_typed(name, item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is Literal:
        check_choice(name, value, get_args(hint))
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    if type(value) is not hint:
        raise ValueError(f"{name} must be of type {getattr(hint, '__name__', hint)}, got {value!r}")
    return value


def _run(name: str, options: Any, again: str) -> None:
    """Runs a study with JAX set up for it; `again` is the command that goes on where it stopped."""
    import jax

    # Each core a device, so that runs are spread over them; where there is a GPU this changes nothing.
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    # What was compiled once is not compiled again by the next command.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(_cache()))
    try:
        paths = importlib.import_module(STUDIES[name].module).run(options)
    except KeyboardInterrupt:
        print(f"\nstopped; to go on: {again}", file=sys.stderr)
        sys.exit(130)
    for path in paths:
        print(f"wrote {path}")


def _cache() -> Path:
    """Where compiled code is kept from one command to the next."""
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(chosen) if chosen else Path(caches, "feelgood", "xla")


def list_names(arguments: Sequence[str]) -> None:
    """Lists what there is, with its papers."""
    parser = _parser("list")
    parser.add_argument("kind", nargs="?", help=f"of {', '.join(KINDS)}; all of them if not given")
    parser.add_argument("--json", action="store_true", help="print for a program")
    chosen = parser.parse_args(arguments)
    if chosen.kind is not None:
        check_choice("kind", chosen.kind, KINDS)
    found = {kind: KINDS[kind]() for kind in ([chosen.kind] if chosen.kind else KINDS)}
    if chosen.json:
        print(json.dumps({kind: [entry._asdict() for entry in entries] for kind, entries in found.items()}, indent=2))
        return
    for kind, entries in found.items():
        print(kind)
        width = max(len(entry.name) for entry in entries)
        for entry in entries:
            print(f"  {entry.name:{width}s}  {entry.summary}" + (f" ({entry.paper})" if entry.paper else ""))


class Fact(NamedTuple):
    """A line of `doctor`: what, how it is, the command that would change it, and whether nothing runs so."""

    name: str
    value: str
    fix: str | None = None
    fatal: bool = False


def doctor(arguments: Sequence[str]) -> None:
    """Says what is installed, what JAX computes on, and what is missing; the exit code is 1 if nothing can run."""
    parser = _parser("doctor")
    parser.add_argument("--json", action="store_true", help="print for a program")
    chosen = parser.parse_args(arguments)
    facts = [Fact("python", platform.python_version()), Fact("feelgood", __version__)]
    facts += [*_packages(), *_extras(), *_devices(), Fact("cores", str(os.cpu_count())), _cache_fact()]
    ready = not any(fact.fatal for fact in facts)
    if chosen.json:
        print(json.dumps({"ready": ready, "facts": [fact._asdict() for fact in facts]}, indent=2))
    else:
        width = max(len(fact.name) for fact in facts)
        for fact in facts:
            print(f"{fact.name:{width}s}  {fact.value}" + (f"; to change that: {fact.fix}" if fact.fix else ""))
        print("all that is needed is there" if ready else "something that is needed is missing")
    sys.exit(0 if ready else 1)


def _install(package: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", package])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _requirements(package: str, extra: str | None = None) -> list[str]:
    """What a package requires, or what one of its extras adds: 'jax>=0.9', 'jax[cuda13]', …"""
    found = []
    for line in metadata.requires(package) or ():
        requirement, _, marker = line.partition(";")
        of_extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if (of_extra[1] if of_extra else None) == extra:
            found.append(requirement.strip())
    return found


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _packages() -> list[Fact]:
    """Versions of what feelgood needs."""
    needed = _requirements("feelgood") if _version("feelgood") else []
    names = sorted({*map(_name, needed), "jax", "jaxlib"})
    versions = {name: _version(name) for name in names}
    return [
        Fact(name, version) if version else Fact(name, "missing", _install(name), fatal=True)
        for name, version in versions.items()
    ]


def _extras() -> list[Fact]:
    """Which extras are there; the one for developers is left out."""
    if not _version("feelgood"):
        return [Fact("extras", "unknown: feelgood runs from a folder that is not installed")]
    facts = []
    for extra in sorted({*(metadata.metadata("feelgood").get_all("Provides-Extra") or ())} - {"dev"}):
        missing = sorted(name for name in _of_extra("feelgood", extra) if not _version(name))
        if missing:
            facts.append(Fact(f"extra {extra}", f"missing {', '.join(missing)}", _install(f"feelgood[{extra}]")))
        else:
            facts.append(Fact(f"extra {extra}", "installed"))
    return facts


def _of_extra(package: str, extra: str) -> set[str]:
    """Names of the packages behind an extra, and behind the extras that it asks of them: jax[cuda13] is a plugin."""
    needed = _requirements(package, extra)
    asked = [re.match(r"([\w.-]+)\[([\w-]+)\]", requirement) for requirement in needed]
    inner = [line for match in asked if match and _version(match[1]) for line in _requirements(match[1], match[2])]
    return {_name(requirement) for requirement in needed + inner}


def _devices() -> list[Fact]:
    """What JAX computes on, and whether a GPU stands idle."""
    try:
        import jax

        devices = jax.devices()
    except (ImportError, RuntimeError) as error:
        return [Fact("devices", f"none: {(str(error) or 'unknown reason').splitlines()[0]}", fatal=True)]
    facts = [Fact("devices", ", ".join(f"{device.platform} {device.id} ({device.device_kind})" for device in devices))]
    if _has_gpu() and all(device.platform == "cpu" for device in devices):
        chosen = os.environ.get("JAX_PLATFORMS")
        fix = "unset JAX_PLATFORMS" if chosen else _install("feelgood[cuda]")
        facts.append(Fact("gpu", "present but unused" + (f", as JAX_PLATFORMS is {chosen}" if chosen else ""), fix))
    return facts


def _has_gpu() -> bool:
    return bool(glob.glob("/dev/nvidia[0-9]*"))


def _cache_fact() -> Fact:
    files = [file for file in _cache().rglob("*") if file.is_file()]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    return Fact("compiled code", f"{_cache()} ({len(files)} files, {megabytes:.1f} MB)")


class Command(NamedTuple):
    """A command: what it calls, a line on what it does, and an example."""

    call: Callable[[Sequence[str]], None]
    summary: str
    example: str


COMMANDS = {
    "run": Command(run, "run a study", "feelgood run nchain --preset quick"),
    "resume": Command(resume, "go on with a study that was stopped", "feelgood resume runs/nchain"),
    "list": Command(
        list_names, f"list {', '.join(KINDS)}, with a line on each and its paper", "feelgood list agents --json"
    ),
    "doctor": Command(doctor, "say what is installed, what JAX computes on, and what is missing", "feelgood doctor"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `feelgood`."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: feelgood COMMAND …    (feelgood COMMAND --help tells more)\n")
        print("Randomised exploration by approximate posterior sampling.\n")
        for name, command in COMMANDS.items():
            print(f"  {name:8s} {command.summary}\n           example: {command.example}")
        print("\n  --version   print the version")
        sys.exit(0 if arguments else 2)
    if arguments[0] == "--version":
        print(f"feelgood {__version__}")
        return
    try:
        check_choice("command", arguments[0], COMMANDS)
        COMMANDS[arguments[0]].call(arguments[1:])
    except (ValueError, OSError) as error:
        print(f"feelgood: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
