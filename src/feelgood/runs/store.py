"""The folder of a study: tables in Parquet, a manifest in JSON and a README, each written atomically.

One process at a time writes to a folder; see `feelgood.runs.lock`.
"""

import dataclasses
import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd

from feelgood.checks import check_choice
from feelgood.files import atomically
from feelgood.pairs import seed_text
from feelgood.runs import readme
from feelgood.runs.lock import locked
from feelgood.runs.machine import describe_machine

__all__ = [
    "as_command",
    "fingerprint",
    "is_finished",
    "load_results",
    "locked",
    "read_manifest",
    "read_study",
    "read_table",
    "read_with_facts",
    "recorded",
    "write_so_far",
    "write_table",
    "write_text",
]


_HASH, _ABOUT = b"feelgood.sha256", b"feelgood.about"


def write_table(path: Path, table: pd.DataFrame, about: Mapping[str, Any] | None = None) -> None:
    """Writes a table as Parquet; the file's metadata holds `about` and a hash of the file's name and contents."""
    import pyarrow as pa
    from pyarrow import parquet

    content = pa.Table.from_pandas(table, preserve_index=False)
    # The hash is that of the table as it will be read: NaN has several bit patterns, and Parquet keeps one of them.
    own = {_HASH: _hash_of(path.name, content.to_pandas()), _ABOUT: json.dumps(about or {}, default=str).encode()}
    content = content.replace_schema_metadata({**(content.schema.metadata or {}), **own})
    atomically(path, lambda partial: parquet.write_table(content, partial, compression="zstd"))


def _hash_of(name: str, table: pd.DataFrame) -> bytes:
    """A hash of a table's file name, and of the names, kinds and values of its columns."""
    names = json.dumps([name, *([str(column), table[column].dtype.kind] for column in table)]).encode()
    values = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
    return hashlib.sha256(names + values).hexdigest().encode()


def read_table(path: Path) -> pd.DataFrame:
    """Reads a table; a damaged file, or a copy of another table, gives a ValueError."""
    return read_with_facts(path)[0]


def read_with_facts(path: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Reads a table and the facts that it was written with; none for tables of other programs."""
    from pyarrow import parquet

    try:
        content = parquet.read_table(path, use_threads=False)
        facts = content.schema.metadata or {}
        table = content.to_pandas()
        if facts.keys() & {_HASH, _ABOUT} and facts.get(_HASH) != _hash_of(path.name, table):
            raise ValueError("its contents do not match their hash")
        return table, json.loads(facts.get(_ABOUT, b"{}"))
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"table {path} cannot be read ({why}); delete this file and run the same command to make it again"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Writes a text file."""
    atomically(path, lambda partial: partial.write_text(text, "utf-8"))


def read_manifest(path: Path) -> dict[str, Any]:
    """Reads a manifest; a damaged file, or JSON that is not an object, gives a ValueError that names it."""
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"manifest {path} cannot be read ({error})") from error
    if not isinstance(manifest, dict):
        raise ValueError(f"manifest {path} must be a JSON object, got {type(manifest).__name__}")
    return manifest


def read_study(folder: Path) -> dict[str, Any]:
    """The manifest of a study's folder; a ValueError if there is none, or it is not a study's."""
    path = folder / "manifest.json"
    if not path.exists():
        why = "it has no manifest.json" if folder.is_dir() else "there is no such folder"
        raise ValueError(f"folder {folder} holds no study: {why}")
    manifest = read_manifest(path)
    for name, kind in (("study", str), ("spec", dict), ("finished", bool)):
        if not isinstance(manifest.get(name), kind):
            raise ValueError(f"manifest {path} must hold a {kind.__name__} as {name!r}, got {manifest.get(name)!r}")
    return manifest


def load_results(path: str | Path, table: str | None = None) -> pd.DataFrame:
    """The results of a study as a tidy table.

    Args:
      path: the study's folder, or a CSV or Parquet file. For an Atari study that is still running, the curves so far
        are returned.
      table: name of one of the folder's tables, without file extension; if not given, `curves` (a row per run and
        evaluation), or the only table if there are no curves.

    Raises:
      ValueError: if the folder holds no such table, or the file is no table.

    Examples:
      >>> curves = load_results("results/nchain")
      >>> mean = curves.groupby(["length", "agent", "step"])["return"].mean()
    """
    folder = Path(path)
    if folder.is_file():
        return _read_file(folder)
    # If a table exists in both formats, read Parquet: it has exact numbers and types.
    files = {file.stem: file for ending in ("csv", "parquet") for file in sorted(folder.glob(f"*.{ending}"))}
    so_far = sorted(folder.glob("cells/*.so-far.csv"))
    if not files and so_far and table in (None, "curves"):
        return pd.concat(map(_read_csv, so_far), ignore_index=True)
    if not files:
        raise ValueError(f"folder {folder} holds no results" + why_empty(folder, "study", "table"))
    if table is None:
        if "curves" not in files and len(files) > 1:
            raise ValueError(f"folder {folder} holds no curves; choose a table of {', '.join(map(repr, files))}")
        table = "curves" if "curves" in files else next(iter(files))
    check_choice("table", table, files)
    return _read_file(files[table])


def write_so_far(checkpoint: Path, curve: pd.DataFrame) -> None:
    """Writes the curve of an unfinished run next to its checkpoint, where `load_results` finds it.

    A failed write does not stop the run.
    """
    name = checkpoint.name.removesuffix(".checkpoint.npz")
    with suppress(OSError):
        write_text(checkpoint.with_name(f"{name}.so-far.csv"), curve.to_csv(index=False))


def why_empty(folder: Path, work: str, wanted: str) -> str:
    """The end of a sentence: why a folder lacks what is `wanted`, which `work`, a study or a run, writes."""
    if not folder.is_dir():
        return ": there is no such folder"
    if (folder / "manifest.json").exists() and not read_study(folder)["finished"]:
        return f" yet: its {work} is unfinished (continue it with feelgood resume {shlex.quote(str(folder))})"
    return f": it has no {wanted}"


def _read_file(path: Path) -> pd.DataFrame:
    if path.suffix not in (".csv", ".parquet"):
        raise ValueError(f"a table must be a CSV or Parquet file, got {str(path)!r}")
    _check_unchanged(path)
    return read_table(path) if path.suffix == ".parquet" else _read_csv(path)


def _check_unchanged(file: Path) -> None:
    """Refuses a table of a finished study that has changed since the study wrote it."""
    path = file.parent / "manifest.json"
    manifest = read_manifest(path) if path.exists() else {}
    hashes = manifest.get("tables") if manifest.get("finished") else None
    known = hashes.get(file.name) if isinstance(hashes, dict) else None
    if known not in (None, _sha256(file)):
        raise ValueError(
            f"table {file} has changed since its study finished: its SHA-256 is not the one in {path}; "
            f"restore it, or delete it and run the same command ({manifest.get('command')}) to make it again"
        )


def _read_csv(path: Path) -> pd.DataFrame:
    try:
        return pd.read_csv(path)
    except ValueError as error:
        raise ValueError(f"table {path} cannot be read ({str(error).splitlines()[0]})") from error


def fingerprint(*facts: Any) -> str:
    """A short hash of JSON-serialisable facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:12]


# Options that do not change the results of a study: where it runs and writes, and which curves it is compared with.
_ELSEWHERE = ("output", "engine", "ray_address", "num_processes", "seeds_per_task", "checkpoints", "reference")


def as_command(study: str, spec: Any) -> str:
    """The command line that runs a study.

    Its options are a dataclass or the mapping in a manifest. Empty options are left out, and so are options of a
    dataclass at their default.

    Examples:
      >>> from feelgood.studies.samplers.study import SamplersStudy
      >>> as_command("samplers", SamplersStudy(num_chains=10))
      'feelgood run samplers --num-chains 10'
    """
    defaults = {} if isinstance(spec, Mapping) else {field.name: field.default for field in dataclasses.fields(spec)}
    words = ["feelgood", "run", study]
    for name, value in (spec if isinstance(spec, Mapping) else vars(spec)).items():
        flag = name.replace("_", "-")
        if value in (None, (), []) or (name in defaults and value == defaults[name]):
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, tuple | list) else [value])]
    return shlex.join(words)


@contextmanager
def recorded(
    output: Path,
    study: str,
    spec: Any,
    *,
    seeds: Mapping[str, Sequence[int]] | None = None,
    files: Mapping[str, str] | None = None,
    command: str | None = None,
    settings: Any = None,
) -> Iterator[dict[str, Any]]:
    """Locks the folder of a study and keeps its manifest and README, which become "finished" if no error is raised.

    A README.md written by somebody else is not changed.

    Args:
      output: the folder of the study called `study`.
      spec: its options, a dataclass; options that do not change its results do not make it another study.
      seeds: the seeds of each use.
      files: the files that the study writes, with one line on each.
      command: the command that runs it; `as_command` if not given.
      settings: the settings that the options and their defaults lead to, or a list with the settings of several runs.

    Yields:
      A dictionary for facts that are known only after the work; they are added to the manifest.

    Raises:
      ValueError: if the folder holds another study, tables and no manifest, or another process is writing to it.
    """
    path = output / "manifest.json"
    options, label = dataclasses.asdict(spec), _label(study, spec)
    with locked(output):
        tables = [name for name in files or () if name.endswith((".csv", ".parquet")) and (output / name).exists()]
        if tables and not path.exists():
            raise ValueError(
                f"output {output} holds {' and '.join(tables)} but no manifest.json that says which study wrote them; "
                "choose another folder or remove it"
            )
        if path.exists() and (there := read_manifest(path)).get("label") != label:
            why = _difference(there, study, options)
            raise ValueError(f"output {output} holds another study{why}; choose another folder or remove it")
        for partial in [*output.glob("*.partial"), *output.glob("cells/*.partial")]:  # left by a killed process
            if re.search(r"\.\d+\.partial$", partial.name):
                partial.unlink(missing_ok=True)
        began = time.time()
        manifest = {
            "study": study,
            "label": label,
            "spec": options,
            "command": command or as_command(study, spec),
            "arguments": sys.argv[1:],
            "seeds": {use: seed_text(each) for use, each in (seeds or {}).items()},
            **({} if settings is None else {"settings": settings}),
            "finished": False,
        }
        facts: dict[str, Any] = {}

        def write(**changes: Any) -> None:
            now = {**manifest, **describe_machine(), **facts, **changes}
            write_text(path, json.dumps(now, indent=2, default=str) + "\n")
            if readme.is_ours(output / "README.md"):
                write_text(output / "README.md", readme.describe(output, now, files or {}))

        write()
        yield facts
        write(finished=True, wall_seconds=round(time.time() - began), tables=_hashes(output))


def _hashes(output: Path) -> dict[str, str]:
    """The SHA-256 of every table in a folder, by file name."""
    files = sorted(file for ending in ("csv", "parquet") for file in output.glob(f"*.{ending}"))
    return {file.name: _sha256(file) for file in files}


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _label(study: str, spec: Any) -> str:
    # Empty `seeds` mean that `num_seeds` gives them, empty `envs` and `agents` of training that `env` and `agent` do.
    optional = ("seeds", "envs", "agents") if study == "train" else ("seeds",)
    options = {name: value for name, value in dataclasses.asdict(spec).items() if value != () or name not in optional}
    return fingerprint(study, {name: value for name, value in options.items() if name not in _ELSEWHERE})


def _difference(manifest: Mapping[str, Any], study: str, options: Mapping[str, Any]) -> str:
    """The differences between the study in a folder and this one, in brackets."""
    if manifest.get("study") != study:
        return f" ({manifest['study']})" if isinstance(manifest.get("study"), str) else ""
    there = manifest.get("spec")
    there, here = there if isinstance(there, dict) else {}, json.loads(json.dumps(options, default=str))
    differences = [
        f"{name} {json.dumps(there[name])} there, {json.dumps(value)} here"
        for name, value in here.items()
        if name not in _ELSEWHERE and name in there and there[name] != value
    ]
    return f" ({'; '.join(differences)})" if differences else " (by another version)"


def holds(output: Path, study: str, spec: Any) -> bool:
    """Whether a folder holds this study with these options."""
    path = output / "manifest.json"
    return path.exists() and read_manifest(path).get("label") == _label(study, spec)


def is_finished(output: Path, study: str, spec: Any) -> bool:
    """Whether a folder holds this study with these options, finished, and all tables as they were then."""
    manifest = read_manifest(output / "manifest.json") if holds(output, study, spec) else {}
    there, tables = manifest.get("spec"), manifest.get("tables")
    reference = json.loads(json.dumps(getattr(spec, "reference", None), default=str))
    if not manifest.get("finished") or (isinstance(there, dict) and there.get("reference") != reference):
        return False
    return not isinstance(tables, dict) or tables.items() <= _hashes(output).items()
