"""Files of a study are complete and described, and no other study overwrites them."""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tyro

import feelgood
from feelgood.runs import machine, store
from feelgood.studies.frontier import FrontierStudy
from feelgood.studies.nchain.study import NChainStudy
from feelgood.studies.regret.study import RegretStudy
from feelgood.studies.samplers.study import SamplersStudy
from feelgood.studies.sensitivity import SensitivityStudy
from feelgood.studies.sweep import SweepStudy


@dataclass(frozen=True)
class Spec:
    seeds: tuple[int, ...]
    output: Path


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_a_study_is_finished_only_if_its_work_ended_well(tmp_path):
    with store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path)):
        assert manifest(tmp_path)["finished"] is False
    assert manifest(tmp_path)["finished"] is True
    assert manifest(tmp_path)["spec"]["seeds"] == [1, 2]
    assert manifest(tmp_path)["wall_seconds"] >= 0
    with pytest.raises(KeyboardInterrupt), store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path)):
        raise KeyboardInterrupt
    assert manifest(tmp_path)["finished"] is False


@pytest.mark.parametrize(
    ("name", "seeds", "why"),
    [("toy", (1, 3), r"\(seeds \[1, 2\] there, \[1, 3\] here\)"), ("other", (1, 2), r"\(toy\)")],
)
def test_a_folder_that_holds_another_study_is_left_alone(tmp_path, name, seeds, why):
    with store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path)):
        pass
    before = (tmp_path / "manifest.json").read_text()
    other = store.recorded(tmp_path, name, Spec(seeds, tmp_path))
    with pytest.raises(ValueError, match=f"holds another study {why};"), other:
        pytest.fail("began")
    assert (tmp_path / "manifest.json").read_text() == before


def test_the_place_of_results_does_not_make_them_another_study(tmp_path):
    for spelling in (tmp_path, tmp_path / "x" / ".."):
        with store.recorded(tmp_path, "toy", Spec((1,), spelling)):
            pass
    assert manifest(tmp_path)["finished"] is True


def test_tables_that_no_manifest_explains_are_not_overwritten(tmp_path):
    (tmp_path / "curves.csv").write_text("mine")
    files = {"curves.csv": "curves", "summary.csv": "scores", "README.md": "text"}
    begun = store.recorded(tmp_path, "toy", Spec((1,), tmp_path), files=files)
    with pytest.raises(ValueError, match=r"holds curves.csv but no manifest.json .*; choose another folder"), begun:
        pytest.fail("began")
    assert {path.name for path in tmp_path.iterdir()} <= {"curves.csv", ".lock"}
    assert (tmp_path / "curves.csv").read_text() == "mine"
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path), files={"other.csv": "other"}):
        pass
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path), files=files):  # the study's own tables
        pass


@dataclass(frozen=True)
class Compared:
    output: Path
    reference: tuple[Path, ...] = ()


def test_a_study_is_finished_while_its_tables_and_its_references_are_the_same(tmp_path):
    spec = Compared(tmp_path)
    assert not store.is_finished(tmp_path, "toy", spec)
    with store.recorded(tmp_path, "toy", spec):
        (tmp_path / "curves.csv").write_text("a\n1\n")
        assert not store.is_finished(tmp_path, "toy", spec)
    assert store.is_finished(tmp_path, "toy", spec)
    assert not store.is_finished(tmp_path, "toy", Compared(tmp_path, (tmp_path / "theirs.csv",)))
    (tmp_path / "curves.csv").write_text("a\n2\n")
    assert not store.is_finished(tmp_path, "toy", spec)
    (tmp_path / "curves.csv").unlink()
    assert not store.is_finished(tmp_path, "toy", spec)


def test_commands_for_folders_with_spaces_are_quoted(tmp_path):
    folder = tmp_path / "my runs"
    with pytest.raises(KeyboardInterrupt), store.recorded(folder, "toy", Spec((1,), folder)):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match=f"continue it with feelgood resume '{folder}'"):
        store.load_results(folder)


def test_fingerprints_of_different_facts_differ():
    assert store.fingerprint({"a": 1, "b": 2}, [3]) == store.fingerprint({"b": 2, "a": 1}, [3])
    others = [({"a": 1}, [3]), ({"a": 1, "b": 2}, [4]), ({"a": 1, "b": 2},), ([3], {"a": 1, "b": 2})]
    assert len({store.fingerprint(*facts) for facts in others}) == 4


CURVES = pd.DataFrame({"agent": ["dqn", "dqn"], "seed": [0, 1], "return": [1.0, 10.0]})
OTHER = pd.DataFrame({"agent": ["dqn"], "score": [0.5]})


def test_results_are_the_curves_if_there_are_some(tmp_path):
    store.write_table(tmp_path / "curves.parquet", CURVES)
    store.write_text(tmp_path / "summary.csv", OTHER.to_csv(index=False))
    for path in (tmp_path, str(tmp_path)):
        pd.testing.assert_frame_equal(feelgood.load_results(path), CURVES)
    pd.testing.assert_frame_equal(feelgood.load_results(tmp_path, "summary"), OTHER)
    with pytest.raises(ValueError, match="got 'sumary'; did you mean 'summary'"):
        feelgood.load_results(tmp_path, "sumary")


def test_results_without_curves_are_the_only_or_the_requested_table(tmp_path):
    store.write_text(tmp_path / "frontier.csv", OTHER.to_csv(index=False))
    pd.testing.assert_frame_equal(feelgood.load_results(tmp_path), OTHER)
    store.write_table(tmp_path / "budget.parquet", CURVES)
    with pytest.raises(ValueError, match="holds no curves; choose a table of 'frontier', 'budget'"):
        feelgood.load_results(tmp_path)
    pd.testing.assert_frame_equal(feelgood.load_results(tmp_path, "budget"), CURVES)


def test_a_table_in_two_forms_is_read_from_the_exact_one(tmp_path):
    store.write_table(tmp_path / "curves.parquet", CURVES.astype({"seed": "int32"}))
    store.write_text(tmp_path / "curves.csv", CURVES.to_csv(index=False))
    assert feelgood.load_results(tmp_path)["seed"].dtype == "int32"


def test_a_folder_without_results_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ValueError, match="holds no results: it has no table"):
        feelgood.load_results(tmp_path)
    with pytest.raises(ValueError, match="holds no results: there is no such folder"):
        feelgood.load_results(tmp_path / "nowhere")
    with pytest.raises(KeyboardInterrupt), store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path)):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="its study is unfinished"):
        feelgood.load_results(tmp_path)


@pytest.mark.parametrize("name", ["curves.csv", "curves.parquet"])
def test_a_damaged_table_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\x00\xfe")
    with pytest.raises(ValueError, match=f"table {tmp_path / name} cannot be read"):
        feelgood.load_results(tmp_path)


def test_a_flipped_bit_is_read_as_the_same_table_or_not_at_all(tmp_path):
    path, draws = tmp_path / "cell.parquet", np.random.default_rng(0)
    table = pd.DataFrame({"agent": ["a", "b"] * 20, "seed": range(40), "return": draws.normal(size=40)})
    store.write_table(path, table, {"version": "1"})
    whole, num_refused = path.read_bytes(), 0
    for place in draws.choice(len(whole), 300, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draws.integers(8))
        path.write_bytes(damaged)
        try:
            found = store.read_table(path)
        except ValueError as error:
            assert "cannot be read" in str(error)  # noqa: PT017
            num_refused += 1
        else:
            pd.testing.assert_frame_equal(found, table)
    assert num_refused > 150


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFC00000], ids=["usual", "of a GPU", "negative"])
def test_every_kind_of_nan_is_read_back(tmp_path, monkeypatch, bits):
    # pandas 2 hashes the bits of numbers, and NaN has several bit patterns; pandas 3 hashes them alike.
    by_bits = lambda table, index: pd.Series(table["potential"].to_numpy().view(np.uint32).astype(np.uint64))
    monkeypatch.setattr(pd.util, "hash_pandas_object", by_bits)
    values = np.array([0x3F800000, bits], np.uint32).view(np.float32)
    store.write_table(tmp_path / "cell.parquet", pd.DataFrame({"potential": values}))
    found = store.read_table(tmp_path / "cell.parquet")["potential"].to_numpy()
    np.testing.assert_array_equal(found, np.array([1.0, np.nan], np.float32))


def test_a_table_under_the_name_of_another_is_refused(tmp_path):
    store.write_table(tmp_path / "dqn.parquet", pd.DataFrame({"return": [1.0]}))
    shutil.copy(tmp_path / "dqn.parquet", tmp_path / "iqn.parquet")
    with pytest.raises(
        ValueError, match=r"iqn.parquet cannot be read \(its contents do not match their hash\); delete"
    ):
        store.read_table(tmp_path / "iqn.parquet")


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_table_that_has_changed_since_its_study_finished_is_refused(tmp_path, ending):
    def write(value):
        table = pd.DataFrame({"return": [value]})
        if ending == "csv":
            table.to_csv(tmp_path / "curves.csv")
        else:
            store.write_table(tmp_path / "curves.parquet", table)

    with store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path)):
        write(1.0)
    assert feelgood.load_results(tmp_path)["return"].tolist() == [1.0]
    write(2.0)
    with pytest.raises(
        ValueError, match=r"has changed since its study finished: .*; restore it, or delete it and run the same"
    ):
        feelgood.load_results(tmp_path)


def test_results_load_without_jax():
    code = "import sys, feelgood; feelgood.load_results; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.mark.parametrize("text", ["[1, 2]", "3", "null", '"study"', "", "{", "[" * 100_000])
def test_a_broken_manifest_is_refused_in_one_sentence(tmp_path, text):
    path = tmp_path / "manifest.json"
    path.write_text(text)
    for read in (lambda: store.read_manifest(path), lambda: store.read_study(tmp_path)):
        with pytest.raises(ValueError, match=f"manifest {path} (must be a JSON object|cannot be read)") as caught:
            read()
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=str(path)), store.recorded(tmp_path, "toy", Spec((1,), tmp_path)):
        pytest.fail("began")
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


def test_a_manifest_holds_command_arguments_seeds_and_results(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/bin/feelgood", "run", "toy"])
    with store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path), seeds={"reporting": range(3, 8)}) as facts:
        facts["workers"] = ["2 x cpu"]
    told = manifest(tmp_path)
    assert told["command"] == f"feelgood run toy --seeds 1 2 --output {tmp_path}"
    assert told["arguments"] == ["run", "toy"]
    assert told["seeds"] == {"reporting": "3-7"}
    assert told["workers"] == ["2 x cpu"]
    with store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path), command="feelgood train"):
        assert manifest(tmp_path)["command"] == "feelgood train"


@pytest.mark.parametrize(
    "spec",
    [
        NChainStudy("paper", lengths=(5, 7), cold=("fg_ulmcdqn",), options=("form=paper",), output=Path("a b")),
        NChainStudy("default", agents=("steady_fg_ulmcdqn",), ablate=True, seeds_per_task=3),
        NChainStudy(),
        SensitivityStudy(agents=("fg_ulmcdqn",), num_seeds=3),
        FrontierStudy(lengths=(5, 6), budgets=("growing",)),
        RegretStudy(preset="default", mdps=("lock",), tuning_seeds=2),
        SamplersStudy(seed=3),
        SweepStudy(agent="dqn", grid=("step_size=1e-2,1e-3",), environment="two_armed"),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_the_command_runs_the_same_study(spec):
    words = shlex.split(store.as_command("toy", spec))
    assert words[:3] == ["feelgood", "run", "toy"]
    assert tyro.cli(type(spec), args=words[3:]) == spec


def test_the_engine_and_the_size_of_tasks_do_not_make_it_another_study(tmp_path):
    spec = NChainStudy(output=tmp_path)
    for again in (spec, replace(spec, seeds_per_task=3), replace(spec, num_processes=2)):
        with store.recorded(tmp_path, "nchain", again):
            pass
    with (
        pytest.raises(ValueError, match="holds another study"),
        store.recorded(tmp_path, "nchain", replace(spec, num_seeds=3)),
    ):
        pytest.fail("began")


def test_a_manifest_marks_a_modified_commit(tmp_path, monkeypatch):
    git = lambda *words: subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)
    package = tmp_path / "src" / "results"
    package.mkdir(parents=True)
    (package / "machine.py").write_text("one")
    monkeypatch.setattr(machine, "__file__", str(package / "machine.py"))
    assert machine.describe_machine()["commit"] is None
    git("init")
    git("add", ".")
    git("-c", "user.name=x", "-c", "user.email=x@y", "commit", "-m", "One")
    (tmp_path / "notes.txt").write_text("not code")
    told = machine.describe_machine()
    assert len(told["commit"]) == 40
    assert told["modified"] is False
    (package / "machine.py").write_text("two")
    assert machine.describe_machine()["modified"] is True
    with store.recorded(tmp_path / "out", "toy", Spec((1,), tmp_path)):
        pass
    assert f"commit {told['commit']}, modified since\n" in (tmp_path / "out" / "README.md").read_text()


FILES = {"curves.parquet": "all the curves", "summary.csv": "means", "absent.csv": "not written"}


def test_the_readme_describes_every_file(tmp_path):
    spec, readme = Spec((1, 2), tmp_path), tmp_path / "README.md"
    with store.recorded(tmp_path, "toy", spec, seeds={"reporting": range(3, 8)}, files=FILES):
        assert "unfinished" in readme.read_text()
        assert "curves" not in readme.read_text()
        store.write_table(tmp_path / "curves.parquet", CURVES)
        store.write_text(tmp_path / "summary.csv", OTHER.to_csv(index=False))
        store.write_table(tmp_path / "cells" / "x.parquet", CURVES)
    text = readme.read_text()
    assert "unfinished" not in text
    assert f"finished {manifest(tmp_path)['time']}" in text
    assert f"```\n{manifest(tmp_path)['command']}\n```" in text
    assert "- `curves.parquet`: all the curves; columns agent, seed, return\n" in text
    assert "- `summary.csv`: means; columns agent, score\n" in text
    assert "absent" not in text
    assert "- `cells`: " in text
    assert "| seeds | 1 2 |" in text
    assert "- seeds, reporting: 3-7" in text
    assert f"- jax {manifest(tmp_path)['versions']['jax']}\n" in text
    # Its instructions for loading work, once FOLDER is the folder.
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    last = code.replace("FOLDER", str(tmp_path)).strip().splitlines()[-1]
    pd.testing.assert_frame_equal(eval(last, {"feelgood": feelgood}), CURVES)


def test_a_readme_that_somebody_has_edited_is_not_changed(tmp_path):
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path)):
        pass
    readme = tmp_path / "README.md"
    mine = readme.read_text().split("\n", 1)[1] + "Mine.\n"
    readme.write_text(mine)
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path)):
        pass
    assert readme.read_text() == mine


def test_a_damaged_table_does_not_keep_a_study_from_going_on(tmp_path):
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path), files=FILES):
        (tmp_path / "summary.csv").write_bytes(b"")
        (tmp_path / "curves.parquet").write_bytes(b"PAR1 no more")
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path), files=FILES):
        pass
    assert "- `curves.parquet`: all the curves\n" in (tmp_path / "README.md").read_text()


def test_a_folder_is_written_by_one_at_a_time(tmp_path):
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path)):
        before = manifest(tmp_path)
        message = (
            rf"^output {tmp_path} is being written by another process \(process {os.getpid()} on .*\); "
            "wait for it or choose another folder$"
        )
        with pytest.raises(ValueError, match=message), store.recorded(tmp_path, "toy", Spec((1,), tmp_path)):
            pytest.fail("began")
        assert manifest(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "manifest.json"]
    with pytest.raises(ZeroDivisionError), store.locked(tmp_path):
        raise ZeroDivisionError
    with store.locked(tmp_path):
        pass


def test_a_table_is_replaced_as_a_whole_and_kept_if_its_successor_cannot_be_written(tmp_path):
    path = tmp_path / "curves.parquet"
    store.write_table(path, CURVES)
    old = path.read_bytes()
    with open(path, "rb") as reader:  # whoever is reading the old one reads it to its end
        store.write_table(path, OTHER)
        assert reader.read() == old
    pd.testing.assert_frame_equal(store.read_table(path), OTHER)
    with pytest.raises(ValueError, match="Duplicate"):
        store.write_table(path, pd.DataFrame([[1, 2]], columns=["same", "same"]))
    pd.testing.assert_frame_equal(store.read_table(path), OTHER)
    assert [file.name for file in tmp_path.iterdir()] == ["curves.parquet"]


WRITER = """
import sys
from pathlib import Path
import pandas as pd
from dataclasses import dataclass
from feelgood.runs import store

@dataclass(frozen=True)
class Spec:
    seeds: tuple
    output: Path

folder = Path(sys.argv[1])
table = pd.DataFrame({"value": range(100_000)})
with store.recorded(folder, "toy", Spec((1,), folder)):
    print("begun", flush=True)
    while True:
        store.write_table(folder / "curves.parquet", table)
"""


def test_a_killed_process_leaves_whole_tables_and_no_lock(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "begun\n"
        message = rf"is being written by another process \(process {process.pid} on "
        with pytest.raises(ValueError, match=message), store.recorded(tmp_path, "toy", Spec((1,), tmp_path)):
            pytest.fail("began")
        began = time.monotonic()
        while not (tmp_path / "curves.parquet").exists() and time.monotonic() - began < 600:
            time.sleep(0.01)
        # Until it is in the middle of a table.
        while not list(tmp_path.glob("*.partial")) and time.monotonic() - began < 600:
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert len(store.read_table(tmp_path / "curves.parquet")) == 100_000
    assert manifest(tmp_path)["finished"] is False
    (tmp_path / "curves.parquet.123.partial").write_text("of another that was killed")
    (tmp_path / "film.partial").write_text("not ours")
    with store.recorded(tmp_path, "toy", Spec((1,), tmp_path)):
        assert [path.name for path in tmp_path.glob("*.partial")] == ["film.partial"]
    assert manifest(tmp_path)["finished"] is True


def test_a_lock_that_is_a_symbolic_link_is_refused_and_its_target_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("text")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(ValueError, match="must not be a symbolic link"), store.locked(tmp_path / "run"):
        pass
    assert (tmp_path / "precious").read_text() == "text"


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_not_taken_for_one(tmp_path, monkeypatch):
    import fcntl

    flock, calls = fcntl.flock, []

    def slow(file, how):
        calls.append(file)
        if len(calls) == 1:
            (tmp_path / ".lock").unlink()  # by the process that held it before
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with store.locked(tmp_path):
        assert len(calls) == 2
        with pytest.raises(ValueError, match="is being written"), store.locked(tmp_path):
            pytest.fail("began")


def test_a_file_system_without_locks_gives_a_warning(tmp_path, monkeypatch):
    import fcntl

    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (
        pytest.warns(UserWarning, match=f"output {tmp_path} is not locked: its file system cannot .No locks available"),
        store.recorded(tmp_path, "toy", Spec((1,), tmp_path)),
    ):
        pass
    assert manifest(tmp_path)["finished"] is True
