"""What a study leaves on disk is whole, tells what it is, and is not overwritten by another."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

import feelgood
from feelgood.results import store


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


@pytest.mark.parametrize(("name", "seeds"), [("toy", (1, 3)), ("other", (1, 2))])
def test_a_folder_that_holds_another_study_is_left_alone(tmp_path, name, seeds):
    with store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path)):
        pass
    before = (tmp_path / "manifest.json").read_text()
    with pytest.raises(ValueError, match="holds another study"), store.recorded(tmp_path, name, Spec(seeds, tmp_path)):
        pytest.fail("began")
    assert (tmp_path / "manifest.json").read_text() == before


def test_where_results_lie_does_not_make_them_another_study(tmp_path):
    for spelling in (tmp_path, tmp_path / "x" / ".."):
        with store.recorded(tmp_path, "toy", Spec((1,), spelling)):
            pass
    assert manifest(tmp_path)["finished"] is True


def test_fingerprints_tell_facts_apart():
    assert store.fingerprint({"a": 1, "b": 2}, [3]) == store.fingerprint({"b": 2, "a": 1}, [3])
    others = [({"a": 1}, [3]), ({"a": 1, "b": 2}, [4]), ({"a": 1, "b": 2},), ([3], {"a": 1, "b": 2})]
    assert len({store.fingerprint(*facts) for facts in others}) == 4


CURVES = pd.DataFrame({"agent": ["dqn", "dqn"], "seed": [0, 1], "return": [1.0, 10.0]})
OTHER = pd.DataFrame({"agent": ["dqn"], "score": [0.5]})


def test_results_are_the_curves_where_there_are_some(tmp_path):
    store.write_table(tmp_path / "curves.parquet", CURVES)
    store.write_text(tmp_path / "summary.csv", OTHER.to_csv(index=False))
    for path in (tmp_path, str(tmp_path)):
        pd.testing.assert_frame_equal(feelgood.load_results(path), CURVES)
    pd.testing.assert_frame_equal(feelgood.load_results(tmp_path, "summary"), OTHER)
    with pytest.raises(ValueError, match="got 'sumary'; did you mean 'summary'"):
        feelgood.load_results(tmp_path, "sumary")


def test_results_without_curves_are_the_only_table_or_the_one_asked_for(tmp_path):
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


def test_a_folder_without_results_says_why(tmp_path):
    with pytest.raises(ValueError, match="holds no results: no table lies there"):
        feelgood.load_results(tmp_path)
    with pytest.raises(ValueError, match="holds no results: there is no such folder"):
        feelgood.load_results(tmp_path / "nowhere")
    with pytest.raises(KeyboardInterrupt), store.recorded(tmp_path, "toy", Spec((1, 2), tmp_path)):
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match=f"holds no results yet: its study is unfinished .feelgood resume {tmp_path}"):
        feelgood.load_results(tmp_path)


@pytest.mark.parametrize("name", ["curves.csv", "curves.parquet"])
def test_a_damaged_table_is_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"\xff\x00\xfe")
    with pytest.raises(ValueError, match=f"table {tmp_path / name} cannot be read"):
        feelgood.load_results(tmp_path)


def test_results_load_without_jax():
    code = "import sys, feelgood; feelgood.load_results; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
