"""`feelgood doctor`."""

import glob
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import NamedTuple

from feelgood import __version__
from feelgood.cli.parsing import parser
from feelgood.cli.work import compiled_code, missing_platform
from feelgood.runs.machine import version_of


class Fact(NamedTuple):
    """One row of `doctor`: component, status, fix command, and whether the problem is fatal."""

    name: str
    value: str
    fix: str | None = None
    fatal: bool = False


PARSER = parser("doctor")
PARSER.add_argument("--json", action="store_true", help="print JSON")


def doctor(arguments: Sequence[str]) -> None:
    """Prints installed packages and devices; exits with code 1 if a required package or device is missing."""
    chosen = PARSER.parse_args(arguments)
    facts = [Fact("python", platform.python_version()), Fact("feelgood", __version__)]
    facts += [*_packages(), *_extras(), *_devices(), Fact("cores", str(os.cpu_count())), _compiled_code()]
    ready = not any(fact.fatal for fact in facts)
    if chosen.json:
        print(json.dumps({"ready": ready, "facts": [fact._asdict() for fact in facts]}, indent=2))
    else:
        width = max(len(fact.name) for fact in facts)
        for fact in facts:
            print(f"{fact.name:{width}s}  {fact.value}" + (f"; fix: {fact.fix}" if fact.fix else ""))
        print("everything required is installed" if ready else "a requirement is missing")
    sys.exit(0 if ready else 1)


def _install(package: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", package])


def _required(package: str, extra: str | None = None) -> set[str]:
    """Packages that a package, or one of its extras, requires; of ours with those of extras such as jax[cuda13]."""
    try:
        lines = metadata.requires(package) or ()
    except metadata.PackageNotFoundError:
        return set()
    found = set()
    for line in lines:
        requirement, _, marker = line.partition(";")
        of_extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if (of_extra[1] if of_extra else None) == extra:
            [(name, nested)] = re.findall(r"^([\w.-]+)(?:\[([\w-]+)\])?", requirement.strip())
            found |= {name, *(_required(name, nested) if nested and package == "feelgood" else ())}
    return found


def _packages() -> list[Fact]:
    """Versions of the required packages."""
    versions = {name: version_of(name) for name in sorted({*_required("feelgood"), "jax", "jaxlib"})}
    return [
        Fact(name, version) if version else Fact(name, "missing", _install(name), fatal=True)
        for name, version in versions.items()
    ]


def _extras() -> list[Fact]:
    """Installed extras, except those for developers."""
    if not version_of("feelgood"):
        return [Fact("extras", "unknown: feelgood runs from a folder that is not installed")]
    facts = []
    for extra in sorted({*(metadata.metadata("feelgood").get_all("Provides-Extra") or ())} - {"dev", "docs"}):
        missing = ", ".join(sorted(name for name in _required("feelgood", extra) if not version_of(name)))
        what = (f"missing {missing}", _install(f"feelgood[{extra}]")) if missing else ("installed",)
        facts.append(Fact(f"extra {extra}", *what))
    return facts


def _devices() -> list[Fact]:
    """JAX's devices, and whether a GPU is unused."""
    try:
        import jax

        if why := missing_platform():
            return [Fact("devices", f"none: {why}", fatal=True)]
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


def _compiled_code() -> Fact:
    files = [file for file in compiled_code().rglob("*") if file.is_file()]
    megabytes = sum(file.stat().st_size for file in files) / 1e6
    return Fact("compiled code", f"{compiled_code()} ({len(files)} files, {megabytes:.1f} MB)")
