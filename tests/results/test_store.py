"""What a study leaves on disk is whole, tells what it is, and is not overwritten by another."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

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
