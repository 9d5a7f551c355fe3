"""A real Ray cluster of processes on this machine, which loses nodes, its head and its leading process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from feelgood.studies.nchain import study as nchain
from feelgood.studies.nchain.study import GRIDS, NChainStudy
from plans import files_of

ray = pytest.importorskip("ray", reason="tests on a real cluster need Ray: pip install 'feelgood[ray]'")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # at Ray's 15, tasks starve next to other work


@pytest.fixture
def cluster(environment):
    """A cluster without nodes that work; tests add them."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


TINY = {
    "lengths": (5,),
    "agents": ("dqn", "lmcdqn"),
    "num_steps": 1000,
    "num_seeds": 3,
    "tuning_seeds": (1, 1),
    "num_kept": 1,
    "seeds_per_task": 2,
}


def test_a_study_on_a_cluster_that_loses_a_node_leaves_the_same_bytes(cluster, tmp_path, monkeypatch):
    for agent in TINY["agents"]:
        monkeypatch.setitem(GRIDS, agent, {"step_size": (1e-2, 1e-3)})
    nchain.run(NChainStudy(**TINY, output=tmp_path / "local"), report=lambda _: None)
    cells = tmp_path / "ray" / "cells"
    lost = []
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
    expected = files_of(tmp_path / "local")
    assert len(expected) == 8 + 4
    assert lost
    assert lost[0] < 8  # cells were still to be run when the node went
    assert files_of(tmp_path / "ray") == expected
    assert json.loads((tmp_path / "ray" / "manifest.json").read_text())["workers"] == ["1 x cpu"]


LEAD = """
import os, sys, time
from pathlib import Path
import pandas as pd
from feelgood.cli.work import interruptible
from feelgood.runs.progress import bar
from feelgood.signals import Interrupted, listening, stop_on_signal
from feelgood.studies.cluster import on_ray
from feelgood.studies.engine import Task, carry_out

def count(name, progress, checkpoint):
    "Counts to 24 in 12 s from where its checkpoint left off, and logs its starts."
    done = int(checkpoint.read_text()) if checkpoint.exists() else 0
    with open(checkpoint.parent.parent / "starts", "a") as log:
        log.write(f"{name} {done} {os.getpid()}\\n")
    with stop_on_signal() as stop:
        while done < 24:
            done += 1
            time.sleep(0.5)
            if done % 3 == 0 or stop.is_set():
                checkpoint.write_text(str(done))
            if stop.is_set():
                raise Interrupted
    return pd.DataFrame({"value": [done]})

def ready(progress, checkpoint):
    return pd.DataFrame({"value": [0]})

def plan(name, run):
    (table,) = yield [Task(name, f"{name}.parquet", run)]
    return int(table["value"].iloc[0])

if __name__ == "__main__":
    from functools import partial
    folder, address = Path(sys.argv[1]), sys.argv[2]
    plans = [plan("ready", ready), *(plan(name, partial(count, name)) for name in ("one", "other", "third"))]
    try:
        with listening(), interruptible("the same command"), on_ray(folder / "cells", address) as engine:
            print(carry_out(plans, folder / "cells", engine))
    except ConnectionError as error:
        print(f"feelgood: {error}", file=sys.stderr)
        sys.exit(2)
"""


@pytest.fixture
def lead(tmp_path):
    """Starts a leading process with three tasks that count; waits until one has a checkpoint."""
    (tmp_path / "lead.py").write_text(LEAD)
    begun = []

    def start(address=""):
        words = [sys.executable, str(tmp_path / "lead.py"), str(tmp_path), address]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        begun.append(subprocess.Popen(words, start_new_session=True, **pipes))
        wait_for(lambda: begun[-1].poll() is not None or list((tmp_path / "cells").glob("*.checkpoint.npz")))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate()


def wait_for(is_so, seconds=600):
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)


def starts(folder):
    """The counts from which each task began, in order."""
    found = {}
    for line in (folder / "starts").read_text().splitlines():
        name, count, _ = line.split()
        found.setdefault(name, []).append(int(count))
    return found


def test_a_task_that_loses_its_node_goes_on_from_its_checkpoint(cluster, lead, tmp_path):
    node = cluster.add_node(num_cpus=1)
    process = lead(cluster.address)
    cluster.add_node(num_cpus=1)
    cluster.remove_node(node, allow_graceful=False)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert said.strip().endswith("[0, 24, 24, 24]")
    restarted = [counts for counts in starts(tmp_path).values() if len(counts) > 1]
    assert len(restarted) == 1
    assert restarted[0][0] == 0
    assert restarted[0][1] >= 3
    assert sorted(path.name for path in (tmp_path / "cells").iterdir()) == [
        f"{name}.parquet" for name in ("one", "other", "ready", "third")
    ]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("is_ours", [True, False], ids=["new cluster", "running cluster"])
def test_a_signal_stops_tasks_after_their_checkpoints(request, lead, tmp_path, signum, is_ours):
    if is_ours:
        process = lead()
    else:
        cluster = request.getfixturevalue("cluster")
        cluster.add_node(num_cpus=1)
        process = lead(cluster.address)
    kept = {path: path.stat().st_mtime for path in (tmp_path / "cells").glob("*.checkpoint.npz")}
    began = time.time()
    os.killpg(process.pid, signum)  # as a terminal and a scheduler do, to all of them
    said, _ = process.communicate(timeout=600)
    assert time.time() - began < 10
    assert process.returncode == 128 + signum
    assert said.splitlines()[-1] == "stopped; to continue: the same command"
    assert "Traceback" not in said
    assert "ray" not in said.lower()
    for path in kept:
        assert began < path.stat().st_mtime
    assert not (tmp_path / "cells" / ".reached").exists()
    pids = {int(line.split()[2]) for line in (tmp_path / "starts").read_text().splitlines()}
    wait_for(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("lost", ["head", "node of the leading process"])
def test_a_lost_head_ends_the_study_with_one_sentence_and_keeps_its_results(cluster, lead, tmp_path, lost):
    cluster.add_node(num_cpus=1)
    address = cluster.address
    process = lead(address)
    began = time.monotonic()
    if lost == "head":
        cluster.head_node.kill_gcs_server(check_alive=False)
    else:
        cluster.head_node.kill_raylet(check_alive=False)
    said, _ = process.communicate(timeout=600)
    assert time.monotonic() - began < 45  # as docs/engines.md promises
    assert process.returncode == 2, said
    *_, last = said.splitlines()
    assert last.startswith(f"feelgood: the Ray cluster at {address} was lost (")
    assert last.endswith(f"kept; to continue on a running cluster: feelgood resume {tmp_path}")
    assert "Traceback" not in said
    assert (tmp_path / "cells" / "ready.parquet").exists()
    assert list((tmp_path / "cells").glob("*.checkpoint.npz"))


def test_a_port_of_another_service_is_refused_in_one_sentence(tmp_path):
    server = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.BaseHTTPRequestHandler); "
    words = [sys.executable, "-u", "-c", f"{server}print(s.server_port); s.serve_forever()"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as other:
        address = f"127.0.0.1:{int(other.stdout.readline())}"
        command = (
            f"run nchain --lengths 5 --agents dqn --engine ray --ray-address {address} --output {tmp_path / 'run'}"
        )
        words = [sys.executable, "-m", "feelgood", *command.split()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
        other.kill()
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"feelgood: ray_address {address} cannot be reached (something else")
    assert "Traceback" not in done.stderr
