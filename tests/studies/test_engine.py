"""Engines: whatever runs the tasks, in whatever order they end, the results are the same and each is made once."""

import contextlib
import importlib.util
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest

from feelgood.figures import style
from feelgood.studies import cluster, frontier
from feelgood.studies.cells import Cell, tables_of
from feelgood.studies.engine import Engine, EngineOptions, Task, carry_out, local
from feelgood.studies.frontier import FrontierStudy
from feelgood.studies.nchain import study as nchain
from feelgood.studies.nchain.study import NChainStudy
from plans import counting, files_of, numbers, shuffled, value_of


@pytest.mark.parametrize("seed", range(5))
def test_results_come_in_the_order_of_plans(tmp_path, seed):
    made, under_way = [], []
    plans = [counting(100 * i, made, rounds=3 - i % 2) for i in range(6)]
    results = carry_out(plans, tmp_path, shuffled(seed, under_way))
    assert results == [100 * i + (6 if i % 2 == 0 else 3) for i in range(6)]
    assert max(under_way) == 12  # two tasks of each of the six plans
    assert len(made) == len(set(made)) == len(list(tmp_path.iterdir())) == 3 * 6 + 3 * 4


def test_the_local_engine_ends_a_plan_before_it_begins_the_next(tmp_path):
    made, ended = [], []
    results = carry_out([counting(0, made), counting(100, made)], tmp_path, local(tmp_path, None), ended.append)
    assert results == [6, 106]
    assert made == [f"{start}-{i}-{part}" for start in (0, 100) for i in (1, 2, 3) for part in (0, 1)]
    assert ended == ["0-3-1", "100-3-1"]


def test_stored_tables_are_not_computed_again(tmp_path):
    made = []
    carry_out([counting(0, made)], tmp_path, shuffled(0))
    (tmp_path / "0-3-1.parquet").unlink()
    before = list(made)
    assert carry_out([counting(0, made)], tmp_path, shuffled(1)) == [6]
    assert made[len(before) :] == ["0-3-1"]


def test_tables_of_two_versions_of_the_code_are_named_and_give_a_warning(tmp_path, monkeypatch):
    code = {"version": "0.1", "commit": "aaa", "devices": 2}
    monkeypatch.setattr("feelgood.runs.machine.describe_code", lambda: code)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        carry_out([counting(0, [])], tmp_path, shuffled(0))
    (tmp_path / "0-3-1.parquet").unlink()
    code = {**code, "commit": "bbb"}
    engine = shuffled(1)
    with pytest.warns(UserWarning, match=r"5 of 6 tables in .* were made by other code than this \(.*commit bbb.*aaa"):
        assert carry_out([counting(0, [])], tmp_path, engine) == [6]
    assert engine.facts["code"] == [f"version 0.1, commit {commit}, devices 2" for commit in ("aaa", "bbb")]


def test_a_table_that_two_plans_ask_for_is_made_once(tmp_path):
    made = []

    def ask():
        (table,) = yield [numbers("shared", 7, made)]
        return value_of(table)

    assert carry_out([ask(), ask(), ask()], tmp_path, shuffled(0)) == [7, 7, 7]
    assert made == ["shared"]


def test_plans_that_need_nothing_are_carried_out_too(tmp_path):
    def idle():
        return "idle"
        yield

    def patient():
        assert (yield []) == []
        return "patient"

    assert carry_out([idle(), patient(), counting(0, [])], tmp_path, local(tmp_path, None)) == ["idle", "patient", 6]
    assert carry_out([], tmp_path, local(tmp_path, None)) == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ValueError("step_size must be positive")])
def test_a_failure_is_raised_and_finished_tables_are_kept(tmp_path, failure):
    made = []

    def first(tasks):
        if len(made) == 3:
            raise failure
        return 0, tasks[0].run(None, None)

    plans = [counting(0, made), counting(100, made)]
    with pytest.raises(failure if isinstance(failure, type) else type(failure)):
        carry_out(plans, tmp_path, Engine(lambda task: task, first, float("inf"), {}))
    assert {file.stem for file in tmp_path.iterdir()} == set(made)
    assert carry_out([counting(0, made), counting(100, made)], tmp_path, shuffled(0)) == [6, 106]
    assert len(made) == len(set(made)) == 12


def test_a_checkpoint_goes_when_its_table_is_there(tmp_path):
    seen = []

    def run(progress, checkpoint):
        checkpoint.write_text("half")
        seen.append((progress, checkpoint.name))
        return pd.DataFrame({"value": [1]})

    def ask():
        yield [Task("one", "one-abc.parquet", run)]

    carry_out([ask()], tmp_path, local(tmp_path, "bar"))
    assert seen == [("bar", "one-abc.checkpoint.npz")]
    assert [file.name for file in tmp_path.iterdir()] == ["one-abc.parquet"]


POINTS = [{"step_size": 1.0}, {"step_size": 2.0}]


@pytest.mark.parametrize(("size", "sizes"), [(0, [5]), (2, [2, 2, 1]), (5, [5]), (1, [1] * 5)])
def test_cells_cut_by_seeds_are_put_together_in_the_same_order(fake_runs, tmp_path, size, sizes):
    ran = fake_runs(lambda cell, point, seed: 10 * point["step_size"] + seed)
    cells = [Cell("nchain-5", agent, "report", POINTS, range(3, 8), 1000) for agent in ("dqn", "lmcdqn")]
    ((one, other),) = carry_out([tables_of(cells, size)], tmp_path, shuffled(size))
    assert sorted(len(cell.seeds) for cell in ran if cell.agent == "dqn") == sorted(sizes)
    (whole, _) = carry_out([tables_of(cells)], tmp_path, shuffled(0))[0]
    pd.testing.assert_frame_equal(one, whole)
    pd.testing.assert_frame_equal(other.assign(agent="dqn"), whole)
    assert whole["seed"].tolist() == [seed for _ in POINTS for seed in range(3, 8) for _ in range(2)]


def task_of(cell):
    """The only task of a cell."""
    (task,) = next(tables_of([cell]))
    return task


def test_cells_with_other_seeds_or_in_other_places_have_other_files():
    cells = [
        Cell("nchain-5", "dqn", "report", [{}], range(3), 1000),
        Cell("nchain-5", "dqn", "report", [{}], range(4), 1000),
        Cell("nchain-6", "dqn", "report", [{}], range(3), 1000),
        Cell("two_armed", "dqn", "report", [{}], range(3), 1000),
        Cell("nchain-5", "dqn", "tune-0", [{}], range(3), 1000),
        Cell("nchain-5", "dqn", "report", [{}], range(3), 2000),
    ]
    assert len({task_of(cell).file for cell in cells}) == len(cells)
    assert task_of(cells[0]).file == task_of(Cell("nchain-5", "dqn", "report", [{}], [0, 1, 2], 1000)).file


def test_a_cell_can_travel_to_another_machine():
    run = task_of(Cell("nchain-5", "dqn", "report", [{"step_size": 0.1}], range(3), 1000)).run
    assert pickle.loads(pickle.dumps(run)).args == run.args


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(style, "save", lambda figure, path: [])


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    ("study", "module", "options"),
    [
        (NChainStudy, nchain, {"lengths": (5,), "agents": ("dqn", "lmcdqn"), "tuning_seeds": (2, 3), "num_seeds": 4}),
        (FrontierStudy, frontier, {"lengths": (5, 6, 7, 8), "agents": ("dqn", "lmcdqn"), "num_seeds": 4}),
    ],
    ids=["nchain", "frontier"],
)
def test_a_study_leaves_the_same_bytes_on_any_engine(fake_runs, monkeypatch, tmp_path, study, module, options):
    fake_runs(lambda cell, point, seed: 8.5 + np.sin(seed + sum(point.values()) + len(cell.agent)))
    module.run(study(**options, output=tmp_path / "local"), report=lambda _: None)
    monkeypatch.setattr(cluster, "on_ray", lambda folder, address: contextlib.nullcontext(shuffled(3)))
    monkeypatch.setattr(EngineOptions, "__post_init__", lambda self: None)
    module.run(study(**options, engine="ray", output=tmp_path / "other"), report=lambda _: None)
    expected = files_of(tmp_path / "local")
    assert len(expected) > 4
    assert files_of(tmp_path / "other") == expected


@pytest.mark.usefixtures("no_figures")
def test_a_study_begun_on_one_engine_goes_on_on_another(fake_runs, monkeypatch, tmp_path):
    ran = fake_runs(lambda cell, point, seed: seed)
    options = {"lengths": (5,), "agents": ("dqn",), "num_seeds": 2, "output": tmp_path}
    nchain.run(NChainStudy(**options), report=lambda _: None)
    monkeypatch.setattr(cluster, "on_ray", lambda folder, address: contextlib.nullcontext(shuffled(3)))
    monkeypatch.setattr(EngineOptions, "__post_init__", lambda self: None)
    nchain.run(NChainStudy(**options, engine="ray", ray_address="somewhere"), report=lambda _: None)
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ray_address": "here:1"}, "ray_address must be left out with the engine 'local', got 'here:1'"),
        ({"seeds_per_task": -1}, "seeds_per_task must be a whole number of at least 1, got -1"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message) as caught:
        NChainStudy(**options)
    assert "\n" not in str(caught.value)


def test_a_missing_ray_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs a package that is not installed: pip install 'feelgood\[ray\]'"):
        NChainStudy(engine="ray")
