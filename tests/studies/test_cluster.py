"""Tasks on a Ray cluster: the same tables, whatever becomes of nodes, of the head and of the leading process."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from feelgood.studies import cluster
from feelgood.studies.engine import Task, carry_out
from feelgood.studies.nchain import study as nchain
from feelgood.studies.nchain.study import GRIDS, NChainStudy
from plans import counting, files_of, shuffled


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
    with cluster.on_ray(tmp_path, "") as remote:
        assert carry_out([counting(0, made), counting(100, made)], tmp_path, remote) == [6, 106]
    assert len(made) == len(set(made)) == 12
    assert [name for name, *_ in ray.calls] == ["init", "remote", "shutdown"]
    assert ray.calls[0] == ("init", None)
    assert ray.cancelled == []
    assert remote.facts["workers"] == ["1 x cpu"]


def test_a_cluster_is_not_spoken_to_where_all_is_done_and_not_left_where_it_was_there_before(fake_ray, tmp_path):
    carry_out([counting(0, [])], tmp_path, shuffled(0))
    ray = fake_ray(CPUS)
    with cluster.on_ray(tmp_path, "") as remote:
        assert carry_out([counting(0, [])], tmp_path, remote) == [6]
    assert ray.calls == []
    ray = fake_ray(CPUS, initialised=True)
    with cluster.on_ray(tmp_path, "") as remote:
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
    monkeypatch.setattr(cluster, "jax_settings", lambda: {"jax_platforms": None})  # also under JAX_PLATFORMS=cpu
    monkeypatch.setattr(cluster, "configure_jax", lambda settings: None)
    ray = fake_ray(*nodes)
    with cluster.on_ray(tmp_path, "") as remote:
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
    with pytest.raises(kind, match=message), cluster.on_ray(tmp_path, "") as remote:
        carry_out([counting(0, []), failing(error)], tmp_path, remote)
    # The last to be submitted ends first in this stand-in; the two of the other plan were under way.
    assert {0, 1} <= set(ray.cancelled)
    assert ray.calls[-1] == ("shutdown",)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_not_there_is_named(fake_ray, tmp_path):
    fake_ray(CPUS)
    message = r"^ray_address nowhere cannot be reached \(no cluster there\)$"
    with pytest.raises(ConnectionError, match=message), cluster.on_ray(tmp_path, "nowhere") as remote:
        carry_out([counting(0, [])], tmp_path, remote)


def test_an_address_without_a_cluster_is_reported_at_once(fake_ray, monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # ours, and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for given, variable in ((address, ""), ("", address)):
            monkeypatch.setenv("RAY_ADDRESS", variable)
            ray = fake_ray(CPUS)
            message = rf"^ray_address {address} cannot be reached \(.*refused\)$"
            with pytest.raises(ConnectionError, match=message), cluster.on_ray(tmp_path, given) as remote:
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
