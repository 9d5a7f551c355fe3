"""The sensitivity study: one hyper-parameter at a time, all else at its default."""

import json

import pandas as pd
import pytest

from feelgood.agents import ZOO
from feelgood.studies import sensitivity
from feelgood.studies.sensitivity import AGENTS, VALUES, SensitivityStudy


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": ("dqn",)}, "agents must be one of 'fg_ulmcdqn', 'steady_fg_ulmcdqn', got 'dqn'"),
        ({"length": 3}, "length must be a whole number of at least 4, got 3"),
        ({"num_steps": 1500}, "num_steps must be a multiple of 1000, got 1500"),
        ({"num_seeds": 0}, "num_seeds must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        SensitivityStudy(**settings)
    assert "\n" not in str(caught.value)


def test_agents_have_the_varied_setting_and_every_value_is_tried_once():
    assert all(name in ZOO[agent].hyper for agent in AGENTS for name in VALUES)
    assert len(set(sensitivity.POINTS)) == sum(map(len, VALUES.values()))


def test_each_point_changes_one_number_and_its_score_is_reported_under_it(tmp_path, fake_runs):
    ran = fake_runs(lambda cell, point, seed: 5 * sum(point.values()) + seed)
    study = SensitivityStudy(length=9, num_steps=1000, num_seeds=3, output=tmp_path)
    shown = []
    paths = sensitivity.run(study, report=shown.append)
    points = [{name: value} for name, values in VALUES.items() for value in values]
    told = [(cell.environment, cell.agent, list(cell.points), list(cell.seeds), cell.num_steps) for cell in ran]
    assert told == [("nchain-9", agent, points, [0, 1, 2], 1000) for agent in AGENTS]
    table = pd.read_csv(tmp_path / "sensitivity.csv")
    assert len(table) == len(AGENTS) * len(points)
    # The mean over seeds 0, 1, 2.
    assert table["score"].to_numpy() == pytest.approx(5 * table["value"].to_numpy() + 1)
    assert {path.name for path in paths} == {"sensitivity.csv", "sensitivity.png", "sensitivity.pdf"}
    assert "friction γ" in shown[0]
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is True


def test_a_folder_of_another_study_is_refused_and_not_changed(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"label": "other"}))
    with pytest.raises(ValueError, match="holds another study"):
        sensitivity.run(SensitivityStudy(output=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
