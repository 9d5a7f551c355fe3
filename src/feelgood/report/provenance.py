"""Provenance of a run: its command, options, versions and machine, as text."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from feelgood.runs.store import as_command, read_manifest
from feelgood.studies import STUDIES


class Provenance(NamedTuple):
    """Study (if known), headings, short facts, details, options as JSON, and whether the run finished."""

    study: str | None
    title: str
    kicker: str
    lead: str
    facts: dict[str, str]
    lines: dict[str, str]
    spec: str | None
    finished: bool | None


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{hours:.1f} h" if hours >= 1 else f"{minutes:.0f} min" if minutes >= 1 else f"{seconds:.0f} s"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _field(manifest: dict[str, Any], name: str, kind: type) -> Any:
    """A field of a manifest, or an empty value if it is missing or of another type."""
    value = manifest.get(name)
    return value if isinstance(value, kind) else kind()


def provenance(folder: Path) -> Provenance:
    """Reads the provenance from a folder's manifest; without a manifest only the folder's name is known."""
    path = folder / "manifest.json"
    name = folder.resolve().name
    if not path.exists():
        unknown = {"folder": str(folder), "manifest": "none: it is not known how these results were made"}
        return Provenance(None, name, "results", "A folder with tables and no manifest.", {}, unknown, None, None)
    manifest = read_manifest(path)
    study = _field(manifest, "study", str) or None
    spec, versions = _field(manifest, "spec", dict), _field(manifest, "versions", dict)
    counted = Counter(map(_text, _field(manifest, "devices", list)))
    machine = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counted.items())
    seconds = manifest.get("wall_seconds")
    facts = {
        "seeds": _text(spec["num_seeds"]) if "num_seeds" in spec else "",
        "budget": _budget(spec),
        "device": machine,
        "wall time": _duration(float(seconds)) if isinstance(seconds, int | float) else "",
        "date": _text(manifest.get("time", ""))[:10],
        "feelgood": _text(versions.get("feelgood", "")),
        "jax": _text(versions.get("jax", "")),
        "commit": _text(manifest.get("commit") or "")[:10],
    }
    lines: dict[str, str] = {}
    if manifest.get("command"):
        lines["command"] = _text(manifest["command"])
    elif study:
        lines["from its options"] = as_command(study, spec)
    lines["versions"] = ", ".join(f"{name} {_text(version)}" for name, version in versions.items())
    lines["python"] = _text(manifest.get("python", ""))
    lines["devices"] = machine
    lines["commit"] = _text(manifest.get("commit") or "")
    lines["finished"] = _text(manifest.get("time", "")) if manifest.get("finished") else "no"
    lines["note"] = _text(manifest.get("note", ""))
    finished = manifest.get("finished")
    return Provenance(
        study,
        STUDIES[study].title if study in STUDIES else study or name,
        f"{study or 'results'} · {name}" if study != name else f"{study} study",
        _lead(spec),
        {key: value for key, value in facts.items() if value},
        {key: value for key, value in lines.items() if value},
        json.dumps(spec, indent=2, ensure_ascii=False) if spec else None,
        finished if isinstance(finished, bool) else None,
    )


def _budget(spec: Mapping[str, Any]) -> str:
    for name, word in (("num_steps", "steps"), ("num_frames", "frames"), ("num_episodes", "episodes")):
        if isinstance(spec.get(name), int):
            return f"{spec[name]:,} {word}"
    return ""


def _lead(spec: Mapping[str, Any]) -> str:
    """A sentence that names the agents and the problems."""
    who = next((spec[name] for name in ("agents", "algorithms", "agent") if spec.get(name)), None)
    lengths = spec.get("lengths") or spec.get("length")
    what = next((spec[name] for name in ("mdps", "games", "game", "environment") if spec.get(name)), None)
    names = [_text(item) for item in who] if isinstance(who, list) else [_text(who)] if who else []
    problems = [_text(item) for item in what] if isinstance(what, list) else [_text(what)] if what else []
    if lengths:
        problems = [f"N = {', '.join(map(_text, lengths if isinstance(lengths, list) else [lengths]))}"]
    return ("; ".join(part for part in (", ".join(names), "on " + ", ".join(problems) if problems else "") if part)) + (
        "." if names or problems else ""
    )
