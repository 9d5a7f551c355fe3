"""`feelgood new`: the files that it writes run, and their tests pass and can fail."""

import importlib
import inspect
import sys

import pytest

from feelgood.cli import main
from feelgood.cli.new import KINDS

LONG = ("agent", "study")  # they train


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow if kind in LONG else ()) for kind in KINDS])
def test_a_skeleton_and_its_test_work(kind, tmp_path, capsys, monkeypatch):
    name = f"new_{kind}"
    folder = tmp_path / "my code"
    main(["new", kind, name, "-o", str(folder)])
    files = [folder / f"{name}.py", folder / f"test_{name}.py"]
    assert capsys.readouterr().out == "".join(f"wrote {file}\n" for file in files) + f"next: pytest '{files[1]}'\n"
    monkeypatch.syspath_prepend(folder)
    try:
        tests = inspect.getmembers(importlib.import_module(f"test_{name}"), inspect.isfunction)
        own = [test for title, test in tests if title.startswith("test_")]
        assert own
        for test in own:
            test(**({"tmp_path": tmp_path / "out"} if "tmp_path" in inspect.signature(test).parameters else {}))
    finally:
        for module in (name, f"test_{name}"):
            sys.modules.pop(module, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["agnet", "mine"], "did you mean 'agent'?"),
        (["env", "mine"], "did you mean 'environment'?"),
        (
            ["agent", "My-Agent"],
            "name must be a module's name of small letters, digits and underscores, got 'My-Agent'",
        ),
        (["environment", "class"], "name must not be a word or a module of Python, got 'class'"),
        (["environment", "random"], "name must not be a word or a module of Python, got 'random'"),
    ],
)
def test_new_refuses_in_a_sentence_and_overwrites_nothing(words, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["new", *words])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    (tmp_path / "test_mine.py").write_text("mine")
    with pytest.raises(SystemExit):
        main(["new", "agent", "mine"])
    assert "file test_mine.py exists already; choose another name" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]
