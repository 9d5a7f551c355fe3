"""Hundreds of wrong invocations, options and files: each ends in a sentence, and nothing of the user's is touched."""

import dataclasses
import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import jax
import pytest

from feelgood.cli import main, run
from feelgood.cli.run import study_options
from feelgood.studies import STUDIES

GARBAGE = [
    "--nope",
    "--json=maybe",
    "-x",
    "💥",
    "a" * 3000,
    "../..",
    "--output",
    "=",
    "\udcff",
    "nul\0byte",
    "two\nlines",
    "%s%n",
    "--kind",
]


@pytest.fixture
def at_home(monkeypatch, tmp_path):
    """A folder to be in, and no study that could start."""
    import importlib

    def started(*_):
        raise AssertionError("a study was started")

    monkeypatch.setattr(run, "set_up_jax", started)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)  # it has been set up by other tests
    for study in STUDIES.values():
        monkeypatch.setattr(importlib.import_module(study.module), "run", started)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def state(folder):
    """Every file, link and folder below, with its contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else b"folder"
        found[path] = hashlib.sha256(os.fsencode(content)).hexdigest()
    return found


def refuse(capsys, home, arguments):
    """Runs a command that must be refused; returns its message."""
    before = state(home)
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    captured = capsys.readouterr()
    assert caught.value.code == 2, (arguments, captured)
    said = captured.err.strip()
    assert said, arguments
    assert "Traceback" not in captured.out + captured.err, arguments
    assert state(home) == before, arguments
    return said


def test_wrong_words_are_refused(capsys, at_home):
    rng = random.Random(0)
    cases = [[word] for word in GARBAGE]
    for command in ("resume", "plot", "compare", "report", "evaluate", "record"):
        cases += [[command, word] for word in GARBAGE]
        cases += [[command, *rng.choices(GARBAGE, k=rng.randint(2, 5))] for _ in range(15)]
    for command in ("run", "list", "doctor", "completion"):
        cases += [[command, word] for word in GARBAGE]
        cases += [[command, *rng.choices(GARBAGE, k=3)] for _ in range(5)]
    assert len(cases) > 150
    for arguments in cases:
        said = refuse(capsys, at_home, arguments)
        assert said.startswith("feelgood: "), (arguments, said)
        assert len(said.splitlines()) == 1, (arguments, said)


WRONG = {int: ["x", "-1", "1.5", "nan", "9" * 5000], tuple: ["x", "-7", "💥"], bool: ["perhaps"], float: ["x"]}


def settings():
    for name in STUDIES:
        for field in dataclasses.fields(study_options(name)):
            paths = "Path" in str(field.type)  # any text may be a path
            for value in () if paths else WRONG.get(type(field.default), []):
                yield name, field.name, value


def test_wrong_settings_of_every_study_are_refused(capsys, at_home):
    cases = list(settings())
    assert len(cases) > 60
    for study, field, value in cases:
        flag = f"--{field.replace('_', '-')}"
        said = refuse(capsys, at_home, ["run", study, flag, value, "--output", str(at_home / "new")])
        assert field in said.replace("-", "_") or value in said, (study, field, value, said)
        assert not (at_home / "new").exists()


def _truncated(content):
    return content[: len(content) // 2]


DAMAGE = {
    "empty": lambda content: b"",
    "cut": _truncated,
    "foreign": lambda content: b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "zeros": lambda content: bytes(len(content)),
    "text": lambda content: "naïve ünïcode, but no table\n".encode("latin-1"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("study", ["nchain", "regret", "atari"])
def test_damaged_tables_are_refused(capsys, at_home, studies, study, damage):
    source = studies[study]
    for file in sorted(source.glob("*.parquet")):
        folder = at_home / file.stem
        shutil.copytree(source, folder)
        (folder / file.name).write_bytes(DAMAGE[damage](file.read_bytes()))
        for arguments in (["plot", str(folder)], ["report", str(folder)], ["plot", str(folder), "--json"]):
            said = refuse(capsys, at_home, arguments)
            assert said.startswith(f"feelgood: table {folder / file.name} cannot be read"), said
        if file.stem == "curves":
            refuse(capsys, at_home, ["compare", str(folder), str(source)])


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", '"nchain"', "null", "[" * 100_000, "\x00", '{"study": "nchain"}', "{}"]
)
def test_damaged_manifests_are_refused(capsys, at_home, studies, content):
    folder = at_home / "run"
    shutil.copytree(studies["atari"], folder)
    (folder / "manifest.json").write_text(content)
    assert refuse(capsys, at_home, ["resume", str(folder)]).startswith("feelgood: ")
    if not content.startswith("{" + '"') and content != "{}":  # those two are manifests, if poor ones
        assert refuse(capsys, at_home, ["report", str(folder)]).startswith("feelgood: ")


@pytest.mark.parametrize("command", ["plot", "report", "resume"])
def test_places_that_are_no_study_are_refused(capsys, at_home, command):
    (at_home / "empty").mkdir()
    (at_home / "file").write_text("hello")
    (at_home / "folders" / "curves.csv").mkdir(parents=True)
    (at_home / "loop").symlink_to("loop")
    (at_home / "other").mkdir()
    (at_home / "other" / "recipe.csv").write_text("flour,eggs\n500,3\n")
    (at_home / "curves").mkdir()
    (at_home / "curves" / "curves.csv").write_text("agent,seed,step,return\na,0,0,high\n")
    for name in ("empty", "file", "folders", "loop", "other", "curves", "nowhere", "x" * 400):
        said = refuse(capsys, at_home, [command, str(at_home / name)])
        assert len(said.splitlines()) == 1, said


def test_specifications_with_any_value_of_any_type_are_refused(capsys, at_home):
    """A manifest is a file like any other: each option in turn holds a value that is not allowed."""
    base = json.loads(json.dumps(dataclasses.asdict(study_options("nchain")(output=Path("x"))), default=str))
    folder = at_home / "run"
    folder.mkdir()
    manifest = {"study": "nchain", "finished": False}
    count = 0
    for name in base:
        for value in ({}, [[]], {"a": 1}, [None], float("nan")):
            if name == "output":  # the folder itself takes its place
                continue
            (folder / "manifest.json").write_text(json.dumps({**manifest, "spec": {**base, name: value}}))
            refuse(capsys, at_home, ["resume", str(folder)])
            count += 1
    assert count > 40
