"""Tasks on a Ray cluster: the same tables, whatever happens to nodes, the head and the leading process."""

import itertools
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import pandas as pd
import pytest

from feelgood.runs.lock import locked
from feelgood.studies import cluster, node
from feelgood.studies.engine import Task, carry_out
from plans import counting, shuffled


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
        self.calls, self.cancelled, self.probed, self.gcs_address = [], [], [], ""

    def is_initialized(self):
        return self._initialised

    def init(self, **options):
        self.calls.append(("init", options["address"]))
        if options["address"] == "nowhere":
            raise ConnectionError("no cluster there\nreally")
        if options["address"] == "dying":
            raise Exception("the node timed out")  # as Ray does
        self._initialised = True

    def shutdown(self):
        self.calls.append(("shutdown",))
        self._initialised = False

    def nodes(self):
        found = [{"Alive": alive, "Resources": resources} for alive, resources in self._nodes]
        return [{**node, "NodeID": str(i)} for i, node in enumerate(found)]

    def get_runtime_context(self):
        return SimpleNamespace(gcs_address=self.gcs_address, get_node_id=lambda: "0")

    def remote(self, **needs):
        if "scheduling_strategy" in needs:
            self.probed.append(needs["scheduling_strategy"])
        else:
            self.calls.append(("remote", needs))
        counter = itertools.count()
        return lambda function: SimpleNamespace(remote=lambda *arguments: (next(counter), lambda: function(*arguments)))

    def wait(self, handles, num_returns, timeout):
        if num_returns == 1:
            return [handles[-1]], handles[:-1]
        self.calls.append(("wait", num_returns, timeout))

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
        strategies = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        monkeypatch.setitem(sys.modules, "ray.util.scheduling_strategies", strategies)
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


def test_a_cluster_is_not_contacted_if_all_is_done_and_not_shut_down_if_it_was_running_before(fake_ray, tmp_path):
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
def test_a_task_requests_a_gpu_if_there_are_some_and_otherwise_as_many_cores_as_devices_here(
    fake_ray, monkeypatch, tmp_path, nodes, devices, needs
):
    import jax

    monkeypatch.setattr(jax, "local_device_count", lambda: devices)
    monkeypatch.setattr(cluster, "jax_settings", lambda: {"jax_platforms": None})  # also under JAX_PLATFORMS=cpu
    monkeypatch.setattr(node, "configure_jax", lambda settings: None)
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
        (KeyboardInterrupt(), ChildProcessError, "^task broken was stopped on its node$"),
    ],
)
@pytest.mark.parametrize("initialised", [True, False])
def test_failures_on_ray_are_reported_in_one_line_and_the_rest_is_stopped(
    fake_ray, tmp_path, monkeypatch, error, kind, message, initialised
):
    ray, marks = fake_ray(CPUS, initialised=initialised), []
    monkeypatch.setattr(cluster, "_mark", lambda folder, text: marks.append(text))
    monkeypatch.setattr(node, "is_unreached", lambda folder, token: False)
    with pytest.raises(kind, match=message), cluster.on_ray(tmp_path, "") as remote:
        carry_out([counting(0, []), failing(error)], tmp_path, remote)
    # The last to be submitted ends first in this stand-in; the two of the other plan were under way.
    told, stopped = marks
    assert stopped == f"{told} stopped"
    waited, *rest = ray.calls[1 if initialised else 2 :]
    assert waited[0] == "wait"
    assert waited[1] >= 2
    assert waited[2] < 8.0 - 2.0  # before `feelgood.signals` ends this process
    assert rest == ([] if initialised else [("shutdown",)])
    assert {0, 1} <= set(ray.cancelled) if initialised else not ray.cancelled
    assert not list(tmp_path.glob("*.parquet"))


@pytest.mark.parametrize(("address", "why"), [("nowhere", "no cluster there really"), ("dying", "the node timed out")])
def test_a_cluster_that_is_not_there_is_named(fake_ray, tmp_path, address, why):
    fake_ray(CPUS)
    message = rf"^ray_address {address} cannot be reached \({why}\); results so far are kept: .* again$"
    with pytest.raises(ConnectionError, match=message), cluster.on_ray(tmp_path, address) as remote:
        carry_out([counting(0, [])], tmp_path, remote)


def test_an_address_without_a_cluster_is_reported_at_once(fake_ray, monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # ours, and not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for given, variable in ((address, ""), ("", address)):
            monkeypatch.setenv("RAY_ADDRESS", variable)
            ray = fake_ray(CPUS)
            message = rf"^ray_address {address} cannot be reached \(.*refused\); results so far are kept: "
            with pytest.raises(ConnectionError, match=message), cluster.on_ray(tmp_path, given) as remote:
                carry_out([counting(0, [])], tmp_path, remote)
            assert ray.calls == []


def keeping(seen):
    """A plan of one task that writes a checkpoint, if it may."""

    def run(progress, checkpoint):
        seen.append(checkpoint)
        if checkpoint is not None:
            checkpoint.write_text("half")
        return pd.DataFrame({"value": [1]})

    yield [Task("one", "one-abc.parquet", run)]


def test_a_task_keeps_its_checkpoint_in_the_place_of_local_runs(fake_ray, tmp_path):
    ray, seen = fake_ray(CPUS, (True, {"CPU": 0}), CPUS), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with cluster.on_ray(tmp_path, "") as remote:
            carry_out([keeping(seen)], tmp_path, remote)
    assert seen == [tmp_path / "one-abc.checkpoint.npz"]
    assert [path.name for path in tmp_path.iterdir()] == ["one-abc.parquet"]
    assert ray.probed == ["0", "2"]  # nodes without cores run no task


def test_nodes_that_do_not_reach_the_folder_are_reported_once_and_keep_no_checkpoint(fake_ray, tmp_path, monkeypatch):
    fake_ray(CPUS, CPUS)
    monkeypatch.setattr(cluster, "_mark", lambda folder, text: None)  # as if it were another machine's folder
    seen = []
    message = f"cannot write to {tmp_path}: tasks there keep no checkpoints"
    with pytest.warns(UserWarning, match=message) as caught, cluster.on_ray(tmp_path, "") as remote:
        carry_out([keeping(seen), counting(0, [])], tmp_path, remote)
    assert len(caught) == 1
    assert seen == [None]


def test_a_folder_is_reached_if_it_holds_the_token_of_the_leading_process(tmp_path):
    assert node.is_unreached(tmp_path / "missing", "abc")
    assert node.is_unreached(tmp_path, "abc")
    (tmp_path / ".reached").write_bytes(b"\xff")
    assert node.is_unreached(tmp_path, "abc")
    cluster._mark(tmp_path, "other")
    assert node.is_unreached(tmp_path, "abc")
    cluster._mark(tmp_path, "abc")
    assert not node.is_unreached(tmp_path, "abc")


def test_the_token_is_not_written_through_a_symbolic_link(tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (tmp_path / ".reached").symlink_to(mine)
    cluster._mark(tmp_path, "abc")
    assert mine.read_text() == "mine"
    assert not node.is_unreached(tmp_path, "abc")


def test_a_task_waits_for_the_checkpoint_of_its_lost_predecessor_and_then_does_without(tmp_path, monkeypatch):
    checkpoint = tmp_path / "one.checkpoint.npz"
    with locked(tmp_path / "one.checkpoint"):
        monkeypatch.setattr(node, "SECONDS_FOR_LOCK", 0.0)
        with node._held(checkpoint, "abc") as kept:
            assert kept is None
    predecessor = locked(tmp_path / "one.checkpoint")
    predecessor.__enter__()
    threading.Timer(0.3, predecessor.__exit__, (None, None, None)).start()
    monkeypatch.setattr(node, "SECONDS_FOR_LOCK", 30.0)
    with node._held(checkpoint, "abc") as kept:
        assert kept == checkpoint
    (tmp_path / "one.checkpoint" / ".lock").symlink_to(tmp_path / "mine")
    with pytest.raises(ValueError, match="must not be a symbolic link"), node._held(checkpoint, "abc"):
        pass


def test_a_task_is_interrupted_when_the_leading_process_stops(tmp_path):
    cluster._mark(tmp_path, "abc")

    def run(progress, checkpoint):
        cluster._mark(tmp_path, "abc stopped")
        until = time.monotonic() + 600
        try:
            while time.monotonic() < until:
                time.sleep(0.05)
        except KeyboardInterrupt:
            checkpoint.write_text("kept")
            raise

    checkpoint = tmp_path / "one.checkpoint.npz"
    was = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background processes
    try:
        assert node.work(run, {}, checkpoint, "abc") is None
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, was)
    assert checkpoint.read_text() == "kept"
    assert node.work(lambda *_: pytest.fail("it began"), {}, checkpoint, "abc") is None  # it was still queued


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"\0\0\6\4\0\0\0\0\0\0\5\0\0\x40\0", ""),  # a frame of settings
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something other than Ray answers there"),
        (b"", "something other than Ray answers there"),
    ],
)
def test_an_address_is_checked_for_a_server_of_rays_kind(answer, reason):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection:
                assert connection.recv(100).startswith(b"PRI * HTTP/2.0")
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        assert cluster._silence(f"127.0.0.1:{server.getsockname()[1]}") == reason


@pytest.mark.parametrize("address", ["", "auto", "local", "ray://host:10001"])
def test_other_addresses_are_left_to_ray(address):
    assert cluster._silence(address) == ""


def test_a_lost_head_is_reported_with_the_command_that_continues(fake_ray, monkeypatch, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # ours, and not listening
        ray = fake_ray(CPUS)
        ray.gcs_address = address = f"127.0.0.1:{taken.getsockname()[1]}"
        ray.wait = lambda handles, num_returns, timeout: ([], handles)
        clock = itertools.count(step=1.0)
        monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: next(clock)))
        message = (
            rf"^the Ray cluster at {address} was lost \(its head does not answer: .*refused\); finished tables and "
            rf"checkpoints are kept; to continue on a running cluster: feelgood resume '{tmp_path}/my runs'$"
        )
        cells = tmp_path / "my runs" / "cells"
        with pytest.raises(ConnectionError, match=message), cluster.on_ray(cells, "") as remote:
            carry_out([counting(0, [])], cells, remote)
        assert cluster.SECONDS_WITHOUT_HEAD <= next(clock) < 60  # when Ray would end this process


class LocalRayletDiedError(Lost):
    pass


@pytest.mark.parametrize(("error", "is_lost"), [(LocalRayletDiedError("raylet"), True), (Lost("worker"), False)])
def test_a_task_that_is_lost_with_the_cluster_is_reported_as_that(fake_ray, tmp_path, error, is_lost):
    fake_ray(CPUS)
    kind, message = (ConnectionError, "cluster .* was lost") if is_lost else (ChildProcessError, "lost 4 times")
    with pytest.raises(kind, match=message), cluster.on_ray(tmp_path, "") as remote:
        carry_out([failing(error)], tmp_path, remote)


def test_a_lost_node_of_the_leading_process_is_reported(fake_ray, monkeypatch, tmp_path):
    fake_ray((False, {"CPU": 4.0}), CPUS).wait = lambda handles, num_returns, timeout: ([], handles)
    clock = itertools.count(step=1.0)
    monkeypatch.setattr(cluster, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    message = r"was lost \(the node of this process died\); finished tables"
    with pytest.raises(ConnectionError, match=message), cluster.on_ray(tmp_path, "") as remote:
        carry_out([counting(0, [])], tmp_path, remote)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_rays_handlers_of_signals_do_not_stay_and_its_processes_leave_the_group():
    before = signal.getsignal(signal.SIGTERM)
    code = "import os; print(os.getpgrp() == os.getpid())"
    run = lambda: subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=lambda: None
    ).stdout.strip()
    with cluster._own_signals():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))  # as `ray.init` does
        assert run() == str(sys.platform == "linux")
    assert signal.getsignal(signal.SIGTERM) is before
    assert run() == "False"
