"""The samplers study: its table, its figure and the description of its folder."""

import json

import pandas as pd
import pytest

import feelgood
from feelgood.studies.samplers import study as samplers
from feelgood.studies.samplers.study import SamplersStudy


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder, said, zoo = tmp_path_factory.mktemp("samplers"), [], samplers._zoo
    with pytest.MonkeyPatch.context() as patch:  # two of them, to be quick
        few = lambda *target: {name: zoo(*target)[name] for name in ("langevin", "exact_feel_good")}
        patch.setattr(samplers, "_zoo", few)
        paths = samplers.run(SamplersStudy(num_chains=64, num_steps=8, output=folder), said.append)
    return folder, paths, said


def test_distances_on_disk_equal_the_printed_ones(finished):
    folder, paths, said = finished
    assert {path.name for path in paths} == {"distances.csv", "samplers.png", "samplers.pdf"}
    table = feelgood.load_results(folder)
    assert list(table.columns) == ["sampler", "step", "distance", "floor"]
    last = table[table["step"] == 8].set_index("sampler")["distance"]
    assert len(last) == len(said) == 2
    for line in said:
        name, _, distance = line.partition(" distance to the target after 8 steps: ")
        assert f"{last[name.strip()]:.3f}" == distance
    # Exact draws are as far from exact draws as exact draws are.
    exact = table[table["sampler"] == "exact_feel_good"]["distance"]
    assert exact.mean() == pytest.approx(table["floor"].iloc[0], rel=0.5)
    assert last["langevin"] > 2 * table["floor"].iloc[0]


def test_the_folder_can_be_continued_and_is_not_overwritten_by_another(finished):
    folder = finished[0]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["study"] == "samplers"
    assert manifest["finished"] is True
    assert manifest["seeds"] == {"all": "0"}
    before = pd.read_csv(folder / "distances.csv")
    with pytest.raises(ValueError, match="holds another study"):
        samplers.run(SamplersStudy(num_chains=65, num_steps=8, output=folder))
    pd.testing.assert_frame_equal(pd.read_csv(folder / "distances.csv"), before)


def test_a_seed_beyond_32_bits_is_refused_by_its_name():
    with pytest.raises(ValueError, match="seed must be at most 4294967295, got 99999999999999999999"):
        SamplersStudy(seed=99999999999999999999)
