"""The command line: exit codes, messages, and no JAX before there is work for it."""

import json
import subprocess
import sys

import pytest

from feelgood import cli
from feelgood.cli import STUDIES, main
from feelgood.studies import nchain


def call(*arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["-h"], 0)])
def test_without_a_command_the_commands_are_listed(capsys, arguments, code):
    assert call(*arguments) == code
    out = capsys.readouterr().out
    assert out.startswith("usage: feelgood COMMAND")
    assert all(command in out for command in cli.COMMANDS)


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0)])
def test_without_a_study_the_studies_are_listed(capsys, arguments, code):
    assert call("run", *arguments) == code
    out = capsys.readouterr().out
    assert all(name in out and study.summary in out for name, study in STUDIES.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "feelgood: command must be one of 'run', got 'rnu'; did you mean 'run'?\n"),
        (["run", "nchian"], "got 'nchian'; did you mean 'nchain'?\n"),
    ],
)
def test_a_wrong_name_gives_one_line_with_the_nearest_right_one_and_code_two(capsys, arguments, message):
    assert call(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(message)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths", "3"], "lengths must be a whole number of at least 4, got 3"),
        (["--agents", "dnq"], "did you mean 'dqn'?"),
        (["--num-steps", "-1000"], "num_steps must be a whole number of at least 1000, got -1000"),
        (["--form", "published"], "'published'"),
        (["--num-seed", "3", "4"], "num-seed"),
    ],
)
def test_wrong_options_give_code_two_and_write_nothing(capsys, tmp_path, options, message):
    assert call("run", "nchain", *options, "--output", str(tmp_path / "new")) == 2
    captured = capsys.readouterr()
    words = " ".join((captured.out + captured.err).replace("│", " ").split())
    assert message in words
    assert not (tmp_path / "new").exists()


def test_the_options_of_a_study_are_listed_with_their_meaning(capsys):
    assert call("run", "nchain", "--help") == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--num-seeds" in out
    assert "Fresh seeds that results are reported on" in out


def run_as(monkeypatch, study):
    """The command with a stand-in for the study, and without touching JAX's settings."""
    import jax

    monkeypatch.setattr(nchain, "run", study)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)


def test_a_keyboard_interrupt_says_how_to_go_on_and_ends_with_code_130(capsys, monkeypatch):
    def study(options):
        raise KeyboardInterrupt

    run_as(monkeypatch, study)
    assert call("run", "nchain", "--num-seeds", "3") == 130
    assert capsys.readouterr().err == "\nstopped; to go on: feelgood run nchain --num-seeds 3\n"


def test_a_study_that_refuses_gives_one_line_and_code_two(capsys, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"label": "other"}))
    import jax

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.config, "update", lambda *_: None)
        assert call("run", "nchain", "--output", str(tmp_path)) == 2
    expected = f"feelgood: output {tmp_path} holds another study; choose another folder or remove it\n"
    assert capsys.readouterr().err == expected


def test_options_reach_the_study_and_paths_are_printed(capsys, monkeypatch, tmp_path):
    seen = []

    def study(options):
        seen.append(options)
        return [tmp_path / "summary.csv"]

    run_as(monkeypatch, study)
    main(["run", "nchain", "--lengths", "5", "7", "--agents", "dqn", "--output", str(tmp_path)])
    assert seen == [nchain.NChainStudy(lengths=(5, 7), agents=("dqn",), output=tmp_path)]
    assert capsys.readouterr().out == f"wrote {tmp_path / 'summary.csv'}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["run", "nchain", "--help"], ["run", "x"]])
def test_help_and_refusals_do_not_import_jax(arguments):
    code = f"""
import sys
from feelgood.cli import main
try:
    main({arguments!r})
except SystemExit:
    pass
assert "jax" not in sys.modules, "jax"
assert "matplotlib" not in sys.modules, "matplotlib"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def process(*arguments):
    words = [sys.executable, "-m", "feelgood.cli", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def test_a_process_of_its_own_refuses_a_folder_of_another_study(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"label": "other"}))
    done = process("run", "nchain", "--output", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"feelgood: output {tmp_path} holds another study; choose another folder or remove it\n"
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.slow
def test_a_real_study_runs_in_a_process_of_its_own_and_again_in_no_time(tmp_path):
    options = ["--lengths", 5, "--agents", "dqn", "--num-steps", 1000, "--num-seeds", 3, "--output", tmp_path]
    names = ("curves.parquet", "summary.csv", "summary.md", "curves.png", "curves.pdf")
    for _ in range(2):
        done = process("run", "nchain", *options)
        assert done.returncode == 0, done.stderr
        written = {line.removeprefix("wrote ") for line in done.stdout.splitlines() if line.startswith("wrote ")}
        assert written == {str(tmp_path / name) for name in names}
    assert process("run", "nchain", *options, "--num-kept", 3).returncode == 2
