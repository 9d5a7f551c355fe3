"""Printing never costs results; processes are real."""

import json
import os
import subprocess
import sys

import pytest

GUARD = 600

# The command line with a stand-in for training: it reports its progress and returns a table at once.
COMMAND = """
import pandas as pd
from feelgood import cli
from feelgood.runs.progress import Moment
from feelgood.studies import cells

def run(cell, progress, checkpoint):
    with progress.task(cell.name, 1) as report:
        report(Moment(None, "a note with ± and λ"))
        report(Moment(1, "return 1"))
    row = {"point": 0, "seed": 0, "episodes": 1, "successes": 0, "first_success": -1, "potential": 0.0, "finite": True}
    rows = [{**row, "step": step, "return": 1.0, "length": 5, "agent": cell.agent} for step in (0, 1000)]
    return pd.DataFrame(rows)

cells._run = run
cli.main()
"""
STUDY = [
    "run",
    "nchain",
    "--lengths",
    "5",
    "--num-steps",
    "1000",
    "--num-seeds",
    "1",
    "--tuning-seeds",
    "--agents",
    "dqn",
]


def call(words, **settings):
    return subprocess.run([sys.executable, "-m", "feelgood", *words], timeout=GUARD, **settings)


def call_without_training(words, **settings):
    return subprocess.run([sys.executable, "-c", COMMAND, *words], timeout=GUARD, **settings)


@pytest.mark.parametrize("kind", ["full disk", "closed pipe", pytest.param("closed", marks=pytest.mark.slow), "ASCII"])
def test_a_study_finishes_when_its_output_fails(tmp_path, kind):
    words = [*STUDY, "--output", str(tmp_path)]
    if kind == "full disk":
        with open("/dev/full", "w") as full:
            done = call_without_training(words, stdout=full, stderr=full)
    elif kind == "closed pipe":
        read, write = os.pipe()
        os.close(read)
        done = call_without_training(words, stdout=write, stderr=write)
        os.close(write)
    elif kind == "closed":  # with training
        command = [sys.executable, "-m", "feelgood", *words]
        done = subprocess.run(["bash", "-c", 'exec "$@" >&- 2>&-', "bash", *command], timeout=GUARD)
    else:
        settings = {"env": {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}}
        done = call_without_training(words, capture_output=True, **settings)
    assert done.returncode == 0
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is True
    assert (tmp_path / "curves.parquet").exists()


@pytest.mark.parametrize("redirect", [pytest.param(">&-", marks=pytest.mark.slow), "2>&-", ">&- 2>&-"])
def test_list_works_with_closed_output(redirect):
    words = f"exec {sys.executable} -m feelgood list samplers {redirect}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=GUARD)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_an_ascii_terminal_gets_the_whole_list():
    settings = ({"PYTHONIOENCODING": "ascii"}, {"PYTHONUTF8": "1"})
    done, whole = (call(["list", "samplers"], capture_output=True, env={**os.environ, **each}) for each in settings)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert not whole.stdout.isascii()
    assert len(done.stdout.splitlines()) == len(whole.stdout.splitlines())


TRAINING = ["train", "--env", "CartPole-v1"]


@pytest.mark.parametrize(
    "words", [["doctor"], STUDY, pytest.param(TRAINING, marks=pytest.mark.slow)], ids=lambda words: words[0]
)
def test_a_platform_that_jax_lacks_is_one_sentence(tmp_path, words):
    env = {**os.environ, "JAX_PLATFORMS": "nothing_like_it"}
    where = [] if words == ["doctor"] else ["--output", str(tmp_path / "out")]
    done = call([*words, *where], capture_output=True, text=True, env=env)
    assert done.returncode == (1 if words == ["doctor"] else 2)
    assert "Traceback" not in done.stderr
    assert "JAX_PLATFORMS=nothing_like_it names a platform that JAX cannot use here" in done.stdout + done.stderr
    assert not (tmp_path / "out").exists()
