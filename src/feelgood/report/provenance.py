"""Provenance of a run: its command, options, versions and machine, as text."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from feelgood.figures.style import label
from feelgood.runs.store import as_command, read_manifest
from feelgood.studies import STUDIES
from feelgood.studies.nchain.tables import LONGEST_SHORT, SHORT


class Provenance(NamedTuple):
    """Study (if known), headings, short facts, details, options as JSON, whether it finished, agents and problems."""

    study: str | None
    title: str
    kicker: str
    lead: str
    facts: dict[str, str]
    lines: dict[str, str]
    spec: str | None
    finished: bool | None
    agents: Sequence[str] = ()
    problems: Sequence[str] = ()


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{hours:.1f} h" if hours >= 1 else f"{minutes:.0f} min" if minutes >= 1 else f"{seconds:.0f} s"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _field(manifest: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field of a manifest, or an empty value if it is missing or of another type."""
    value = manifest.get(name)
    return value if isinstance(value, kind) else kind()


def provenance(folder: Path) -> Provenance:
    """The provenance in a folder's manifest; without a manifest only the folder's name is known."""
    path = folder / "manifest.json"
    name = Path(os.path.realpath(folder)).name
    if not path.exists():
        unknown = {"folder": str(folder), "manifest": "none: it is not known how these results were made"}
        return Provenance(None, name, "results", "A folder with tables and no manifest.", {}, unknown, None, None)
    manifest = read_manifest(path)
    study = _field(manifest, "study", str) or None
    resolved = manifest.get("settings") or []
    runs = [each for each in (resolved if isinstance(resolved, list) else [resolved]) if isinstance(each, dict)]
    spec, versions = _field(manifest, "spec", dict), _field(manifest, "versions", dict)
    counted = Counter(map(_text, _field(manifest, "devices", list)))
    machine = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counted.items())
    seconds = manifest.get("wall_seconds")
    steps = [_field(_field(run, "config", dict), "num_steps", int) for run in runs]
    facts = {
        "seeds": _text(_field(manifest, "seeds", dict).get("training") or spec.get("num_seeds", "")),
        "budget": _budget({"num_steps": max(steps)} if runs else spec),
        "device": machine,
        "wall time": _duration(float(seconds)) if isinstance(seconds, int | float) else "",
        "date": _text(manifest.get("time", ""))[:10],
        "feelgood": _text(versions.get("feelgood", "")),
        "jax": _text(versions.get("jax", "")),
        "commit": _text(manifest.get("commit") or "")[:10],
    }
    command = manifest.get("command")
    lines = {
        "command": _text(command or ""),
        "from its options": as_command(study, spec) if study and not command else "",
        "versions": ", ".join(f"{name} {_text(version)}" for name, version in versions.items()),
        "python": _text(manifest.get("python", "")),
        "devices": machine,
        "commit": _text(manifest.get("commit") or ""),
        "finished": _text(manifest.get("time", "")) if manifest.get("finished") else "no",
        "note": _text(manifest.get("note", "")),
    }
    finished = manifest.get("finished")
    agents, problems = _names(runs, spec)
    title = STUDIES[study].title if study in STUDIES else study or name
    places = [f"on {', '.join(problems)}"] if problems else []
    lead = "; ".join([", ".join(agents), *places] if agents else places) + ("." if agents or problems else "")
    if study == "train":
        title, lead = _training(agents, problems), ""
    elif study == "nchain":
        lengths = _field(spec, "lengths", list) or [None]
        is_short = all(isinstance(length, int) and length <= LONGEST_SHORT for length in lengths)
        lead += f" {SHORT}" if is_short else ""
    kicker = f"{study or 'results'} · {name}" if study != name else f"{study} study"
    facts, lines = ({key: value for key, value in each.items() if value} for each in (facts, lines))
    options = json.dumps(runs or spec, indent=2, ensure_ascii=False) if spec else None
    finished = finished if isinstance(finished, bool) else None
    return Provenance(study, title, kicker, lead, facts, lines, options, finished, agents, problems)


def joined(parts: Sequence[Provenance]) -> Provenance:
    """The provenance of several runs as one: different values of a fact are listed one after the other."""
    first = parts[0]
    if len(parts) == 1:
        return first

    def together(fields: Sequence[Mapping[str, str]], gap: str) -> dict[str, str]:
        names = dict.fromkeys(name for each in fields for name in each)
        return {name: gap.join(dict.fromkeys(each[name] for each in fields if name in each)) for name in names}

    agents = list(dict.fromkeys(name for part in parts for name in part.agents))
    problems = list(dict.fromkeys(name for part in parts for name in part.problems))
    return first._replace(
        title=_training(agents, problems),
        kicker=f"{first.study} · {len(parts)} folders",
        facts=together([part.facts for part in parts], ", "),
        lines=together([part.lines for part in parts], "; "),
        spec="\n".join(part.spec for part in parts if part.spec) or None,
        finished=None if None in (states := [part.finished for part in parts]) else all(states),
    )


def _names(runs: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The agents and the problems of training runs or of a study's options, each once."""
    if runs:
        fields: Sequence[Any] = [[run.get(key, "") for run in runs] for key in ("agent", "env")]
    else:
        choices = (("agents", "algorithms", "agent"), ("mdps", "games", "game", "environment", "problems", "env"))
        fields = [next((spec[name] for name in names if spec.get(name)), []) for names in choices]
    agents, problems = (
        list(dict.fromkeys(map(_text, found if isinstance(found, list) else [found]))) for found in fields
    )
    lengths = spec.get("lengths") or spec.get("length")
    if lengths:
        problems = [f"N = {', '.join(map(_text, lengths if isinstance(lengths, list) else [lengths]))}"]
    return agents, problems


def _training(agents: Sequence[str], envs: Sequence[str], most: int = 4) -> str:
    """The heading of training runs, as in: DQN, IQN on CartPole-v1."""

    def listed(names: Sequence[str]) -> str:
        more = f" and {len(names) - most} more" if len(names) > most else ""
        return ", ".join(map(label, names[:most])) + more

    return f"{listed(agents)} on {listed(envs)}"


def _budget(spec: Mapping[str, Any]) -> str:
    for name, word in (("num_steps", "steps"), ("num_frames", "frames"), ("num_episodes", "episodes")):
        if isinstance(spec.get(name), int) and spec[name]:
            return f"{spec[name]:,} {word}"
    return ""
