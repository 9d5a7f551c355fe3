"""Engines: whatever runs the tasks, in whatever order they end, the results are the same and each is made once."""

import contextlib
import importlib.util
import itertools
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from feelgood.figures import style
from feelgood.studies import engine, frontier
from feelgood.studies.cells import Cell, cell_task, tables_of
from feelgood.studies.engine import Engine, EngineOptions, Task, carry_out, local
from feelgood.studies.frontier import FrontierStudy
from feelgood.studies.nchain import study as nchain
from feelgood.studies.nchain.study import GRIDS, NChainStudy


def numbers(name, value, made=None):
    """A task whose table is one number."""

    def run(progress, checkpoint):
        if made is not None:
            made.append(name)
        return pd.DataFrame({"value": [value]})

    return Task(name, f"{name}.parquet", run)


def value_of(table):
    return int(table["value"].iloc[0])


def counting(start, made, rounds=3):
    """A plan in which each round needs the table of the one before: adds 1, then 2, then 3, each as two tasks."""
    total = start
    for i in range(1, rounds + 1):
        one, other = yield [numbers(f"{start}-{i}-{part}", total + part * i, made) for part in (0, 1)]
        assert (value_of(one), value_of(other)) == (total, total + i)
        total = value_of(other)
    return total


def shuffled(seed, under_way=None):
    """An engine that ends tasks in an order of its own; `under_way` notes how many it holds at a time."""
    random = np.random.default_rng(seed)

    def first(tasks):
        if under_way is not None:
            under_way.append(len(tasks))
        i = int(random.integers(len(tasks)))
        return i, tasks[i].run(None, None)

    return Engine(lambda task: task, first, float("inf"), {})


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


def test_cells_with_other_seeds_or_in_other_places_have_other_files():
    cells = [
        Cell("nchain-5", "dqn", "report", [{}], range(3), 1000),
        Cell("nchain-5", "dqn", "report", [{}], range(4), 1000),
        Cell("nchain-6", "dqn", "report", [{}], range(3), 1000),
        Cell("two_armed", "dqn", "report", [{}], range(3), 1000),
        Cell("nchain-5", "dqn", "tune-0", [{}], range(3), 1000),
        Cell("nchain-5", "dqn", "report", [{}], range(3), 2000),
    ]
    assert len({cell_task(cell).file for cell in cells}) == len(cells)
    assert cell_task(cells[0]).file == cell_task(Cell("nchain-5", "dqn", "report", [{}], [0, 1, 2], 1000)).file


def test_a_cell_can_travel_to_another_machine():
    run = cell_task(Cell("nchain-5", "dqn", "report", [{"step_size": 0.1}], range(3), 1000)).run
    assert pickle.loads(pickle.dumps(run)).args == run.args


def files_of(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in (".parquet", ".csv") or path.name == "summary.md"
    }


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
    monkeypatch.setattr(engine, "on_ray", lambda address: contextlib.nullcontext(shuffled(3)))
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
    monkeypatch.setattr(engine, "on_ray", lambda address: contextlib.nullcontext(shuffled(3)))
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


class Lost(Exception):
    pass


class Raised(Exception):
    def __init__(self, cause):
        super().__init__(f"a long\ntraceback of {cause}")
        self.cause = cause


class FakeRay:
    """As much of Ray as is used here, in this process; tasks end in reverse order."""

    exceptions = SimpleNamespace(RayTaskError=Raised, RayError=Lost)

    def __init__(self, nodes, initialised=False):
        self._nodes, self._initialised = nodes, initialised
        self.calls, self.cancelled = [], []

    def is_initialized(self):
        return self._initialised

    def init(self, **options):
        self.calls.append(("init", options["address"]))
        if options["address"] == "nowhere":
            raise ConnectionError("no cluster there\nreally")
        self._initialised = True

    def shutdown(self):
        self.calls.append(("shutdown",))
        self._initialised = False

    def nodes(self):
        return [{"Alive": alive, "Resources": resources} for alive, resources in self._nodes]

    def remote(self, **needs):
        self.calls.append(("remote", needs))
        counter = itertools.count()
        return lambda function: SimpleNamespace(remote=lambda *arguments: (next(counter), lambda: function(*arguments)))

    def wait(self, handles, num_returns):
        return [handles[-1]], handles[:-1]

    def get(self, handle):
        try:
            return handle[1]()
        except (Lost, KeyboardInterrupt):
            raise
        except Exception as error:
            raise Raised(error) from error

    def cancel(self, handle, force):
        self.cancelled.append(handle[0])


@pytest.fixture
def fake_ray(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def install(*nodes, **options):
        ray = FakeRay(nodes, **options)
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return install


CPUS = (True, {"CPU": 4.0})


def test_tasks_on_ray_come_back_to_their_own_plans_and_the_cluster_is_left(fake_ray, tmp_path):
    ray, made = fake_ray(CPUS), []
    with engine.on_ray("") as remote:
        assert carry_out([counting(0, made), counting(100, made)], tmp_path, remote) == [6, 106]
    assert len(made) == len(set(made)) == 12
    assert [name for name, *_ in ray.calls] == ["init", "remote", "shutdown"]
    assert ray.calls[0] == ("init", None)
    assert ray.cancelled == []
    assert remote.facts["workers"] == ["1 x cpu"]


def test_a_cluster_is_not_spoken_to_where_all_is_done_and_not_left_where_it_was_there_before(fake_ray, tmp_path):
    carry_out([counting(0, [])], tmp_path, shuffled(0))
    ray = fake_ray(CPUS)
    with engine.on_ray("") as remote:
        assert carry_out([counting(0, [])], tmp_path, remote) == [6]
    assert ray.calls == []
    ray = fake_ray(CPUS, initialised=True)
    with engine.on_ray("") as remote:
        carry_out([counting(100, [])], tmp_path, remote)
    assert [name for name, *_ in ray.calls] == ["remote"]


@pytest.mark.parametrize(
    ("nodes", "devices", "needs"),
    [
        ([CPUS], 1, {"num_cpus": 1}),
        ([CPUS], 3, {"num_cpus": 3}),
        ([(True, {"CPU": 2.0}), (False, {"CPU": 8.0})], 3, {"num_cpus": 2}),
        ([(True, {})], 3, {"num_cpus": 1}),
        ([CPUS, (True, {"CPU": 8.0, "GPU": 2.0})], 3, {"num_cpus": 0, "num_gpus": 1}),
        ([CPUS, (False, {"CPU": 8.0, "GPU": 2.0})], 3, {"num_cpus": 3}),
    ],
)
def test_a_task_asks_for_a_gpu_where_there_are_some_and_else_for_as_many_cores_as_devices_here(
    fake_ray, monkeypatch, tmp_path, nodes, devices, needs
):
    import jax

    monkeypatch.setattr(jax, "local_device_count", lambda: devices)
    ray = fake_ray(*nodes)
    with engine.on_ray("") as remote:
        carry_out([counting(0, [])], tmp_path, remote)
    assert ray.calls[1] == ("remote", {"max_retries": 3, **needs})


def failing(error):
    def run(progress, checkpoint):
        raise error

    def plan():
        yield [Task("broken", "broken.parquet", run)]

    return plan()


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ValueError("friction must be positive"), ValueError, "^friction must be positive$"),
        (Lost("node died\nand more"), ChildProcessError, r"^task broken was lost 4 times \(node died\)$"),
        (KeyboardInterrupt(), KeyboardInterrupt, "^$"),
    ],
)
def test_failures_on_ray_are_reported_in_one_line_and_the_rest_is_cancelled(fake_ray, tmp_path, error, kind, message):
    ray = fake_ray(CPUS)
    with pytest.raises(kind, match=message), engine.on_ray("") as remote:
        carry_out([counting(0, []), failing(error)], tmp_path, remote)
    # The last to be submitted ends first in this stand-in; the two of the other plan were under way.
    assert {0, 1} <= set(ray.cancelled)
    assert ray.calls[-1] == ("shutdown",)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_not_there_is_named(fake_ray, tmp_path):
    fake_ray(CPUS)
    message = r"^ray_address nowhere cannot be reached \(no cluster there\)$"
    with pytest.raises(ConnectionError, match=message), engine.on_ray("nowhere") as remote:
        carry_out([counting(0, [])], tmp_path, remote)


def test_an_address_without_a_cluster_is_reported_at_once(fake_ray, monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # ours, and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for given, variable in ((address, ""), ("", address)):
            monkeypatch.setenv("RAY_ADDRESS", variable)
            ray = fake_ray(CPUS)
            message = rf"^ray_address {address} cannot be reached \(.*refused\)$"
            with pytest.raises(ConnectionError, match=message), engine.on_ray(given) as remote:
                carry_out([counting(0, [])], tmp_path, remote)
            assert ray.calls == []


TINY = {
    "lengths": (5,),
    "agents": ("dqn", "lmcdqn"),
    "num_steps": 1000,
    "num_seeds": 3,
    "tuning_seeds": (1, 1),
    "num_kept": 1,
    "seeds_per_task": 2,
}


@pytest.mark.slow
def test_a_study_on_a_cluster_that_loses_a_node_leaves_the_same_bytes(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    for agent in TINY["agents"]:
        monkeypatch.setitem(GRIDS, agent, {"step_size": (1e-2, 1e-3)})
    nchain.run(NChainStudy(**TINY, output=tmp_path / "local"), report=lambda _: None)
    cells = tmp_path / "ray" / "cells"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    lost = []
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

        def kill() -> None:
            while not list(cells.glob("*.parquet")):
                time.sleep(0.05)
            lost.append(len(list(cells.glob("*.parquet"))))
            cluster.remove_node(nodes[1], allow_graceful=False)

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        study = NChainStudy(**TINY, engine="ray", ray_address=cluster.address, output=tmp_path / "ray")
        nchain.run(study, report=lambda _: None)
        killer.join(timeout=600)
    finally:
        ray.shutdown()
        cluster.shutdown()
    expected = files_of(tmp_path / "local")
    assert len(expected) == 8 + 4
    assert lost
    assert lost[0] < 8  # cells were still to be run when the node went
    assert files_of(tmp_path / "ray") == expected
    assert json.loads((tmp_path / "ray" / "manifest.json").read_text())["workers"] == ["1 x cpu"]


STOPPED = """
import sys
from pathlib import Path
from feelgood.studies.nchain import study as nchain
study = nchain.NChainStudy(
    lengths=(5, 6, 7, 8), agents=("dqn",), num_steps=1000, num_seeds=2, engine="ray", output=Path(sys.argv[1])
)
try:
    nchain.run(study)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.slow
def test_an_interrupt_leaves_a_run_on_ray_that_goes_on_where_it_stopped(tmp_path):
    pytest.importorskip("ray")
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    words = [sys.executable, "-c", STOPPED, str(tmp_path)]
    process = subprocess.Popen(words, env=environment, start_new_session=True)
    kept = lambda: {path: path.stat().st_mtime_ns for path in (tmp_path / "cells").glob("*.parquet")}
    began = time.monotonic()
    while not kept() and time.monotonic() - began < 120:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
    assert process.wait(timeout=600) == 130
    before = kept()
    assert 1 <= len(before) < 4
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is False
    assert subprocess.run(words, env=environment, timeout=600, check=False).returncode == 0
    assert kept().items() >= before.items()
    assert len(kept()) == 4
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is True
