"""Sinks: logged values arrive, and a sink that fails never ends a run."""

import importlib
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pandas as pd
import pytest

from feelgood.runs.sinks import Sink, combine, csv, guarded, tensorboard, wandb


def remembering():
    """A sink and the values it was given."""
    got = []
    return Sink(lambda step, values: got.append((step, dict(values))), lambda: got.append("closed")), got


def warned(*calls):
    """The warnings of a few calls."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in calls:
            call()
    assert all(each.category is RuntimeWarning for each in caught)
    return [str(each.message) for each in caught]


def test_a_csv_holds_rows_at_once_and_is_continued(tmp_path):
    path = tmp_path / "deep" / "log.csv"
    sink = csv(path)
    sink.log(1000, {"return": 1.5, "a, b": -2})
    table = pd.read_csv(path)  # before it is closed
    assert table.to_numpy().tolist() == [[1000, "return", 1.5], [1000, "a, b", -2.0]]
    sink.close()
    again = csv(str(path))
    again.log(2000, {"return": float("nan")})
    again.close()
    table = pd.read_csv(path)
    assert list(table.columns) == ["step", "name", "value"]
    assert table["step"].tolist() == [1000, 1000, 2000]
    assert table["value"].isna().tolist() == [False, False, True]
    again = csv(path, overwrite=True)
    again.log(5, {"return": 1.0})
    again.close()
    assert pd.read_csv(path).to_numpy().tolist() == [[5, "return", 1.0]]


def test_a_log_that_is_a_symbolic_link_is_not_written(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "log.csv").symlink_to(tmp_path / "mine.txt")
    for overwrite in (False, True):
        said = warned(lambda overwrite=overwrite: csv(tmp_path / "log.csv", overwrite=overwrite).log(1, {"a": 1.0}))
        assert len(said) == 1
        assert "must not be a symbolic link" in said[0]
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_numbers_of_any_kind_are_taken(tmp_path):
    import jax.numpy as jnp
    import numpy as np

    sink, got = remembering()
    safe = guarded("it", lambda: sink)
    safe.log(np.int64(3), {"a": np.float32(0.5), "b": jnp.asarray(2), "c": True})
    assert got == [(3, {"a": 0.5, "b": 2.0, "c": 1.0})]
    assert {type(value) for value in got[0][1].values()} == {float}
    assert type(got[0][0]) is int


def test_a_sink_that_fails_warns_once_and_the_others_go_on():
    sink, got = remembering()
    tries = []

    def fail(step, values):
        tries.append(step)
        raise ConnectionError("no network\nat all")

    both = combine(guarded("wandb x", lambda: Sink(fail, lambda: tries.append("closed"))), guarded("it", lambda: sink))
    messages = warned(lambda: [both.log(step, {"a": step}) for step in range(3)], both.close)
    assert messages == ["wandb x failed and logs nothing more of this run (no network)"]
    assert tries == [0]
    assert got == [(0, {"a": 0.0}), (1, {"a": 1.0}), (2, {"a": 2.0}), "closed"]


def test_a_sink_that_cannot_begin_or_close_does_not_end_a_run():
    def begin():
        raise OSError

    made = []
    messages = warned(
        lambda: made.append(guarded("it", begin)), lambda: made[0].log(0, {"a": 1.0}), lambda: made[0].close()
    )
    assert messages == ["it failed and logs nothing more of this run (OSError)"]

    def close():
        raise TimeoutError("too slow")

    sink = guarded("it", lambda: Sink(lambda step, values: None, close))
    assert warned(sink.close, sink.close) == ["it failed and logs nothing more of this run (too slow)"]


def test_an_interrupt_is_no_failure_of_a_sink():
    def log(step, values):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guarded("it", lambda: Sink(log, lambda: None)).log(0, {})


def test_a_closed_sink_takes_nothing_and_closes_once():
    inner, got = remembering()
    sink = guarded("it", lambda: inner)
    sink.close()
    sink.close()
    sink.log(0, {"a": 1.0})
    assert got == ["closed"]


def test_a_folder_that_cannot_be_made_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match=r"csv .*/file/log.csv failed"):
        csv(tmp_path / "file" / "log.csv").log(0, {"a": 1.0})


@pytest.mark.parametrize(("make", "extra"), [(lambda: tensorboard("x"), "tensorboard"), (lambda: wandb("x"), "wandb")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, make, extra):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    message = rf"^sink '{extra}' needs a package that is not installed: pip install 'feelgood\[{extra}\]'$"
    with pytest.raises(ValueError, match=message):
        make()


def test_the_module_itself_needs_none_of_them():
    code = "import sys, feelgood.runs.sinks; assert not {'jax', 'wandb', 'tensorboardX'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def events(folder):
    """(step, name, value) of every event file, read by the definition of TensorBoard's format."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        while data:  # a record: length (8 bytes), its checksum (4), the event, its checksum (4)
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
            data = data[16 + length :]
    return found


def test_scalars_reach_the_event_files_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboardX")
    sink = tensorboard(tmp_path)
    sink.log(1000, {"return": 1.5, "potential": 0.25})
    sink.log(2000, {"return": 2.5})
    sink.close()
    assert events(tmp_path) == [(1000, "return", 1.5), (1000, "potential", 0.25), (2000, "return", 2.5)]


def fake_wandb(monkeypatch, init=None):
    calls = []
    run = SimpleNamespace(
        log=lambda values, step: calls.append(("log", step, values)), finish=lambda: calls.append("finish")
    )

    def begin(**options):
        calls.append(options)
        if init is not None:
            raise init
        return run

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=begin))
    return calls


def test_a_run_of_wandb_gets_its_options_numbers_and_end(monkeypatch, tmp_path):
    calls = fake_wandb(monkeypatch)
    sink = wandb("chains", name="n25", folder=tmp_path, config={"step_size": 0.1}, identity="abc", mode="offline")
    sink.log(1000, {"return": 1.5})
    sink.close()
    options, *rest = calls
    assert options == {
        "project": "chains",
        "name": "n25",
        "dir": str(tmp_path),
        "config": {"step_size": 0.1},
        "id": "abc",
        "resume": "allow",
        "mode": "offline",
    }
    assert rest == [("log", 1000, {"return": 1.5}), "finish"]


def test_a_wandb_that_cannot_be_reached_is_a_warning(monkeypatch):
    calls = fake_wandb(monkeypatch, init=ConnectionError("no route"))
    with pytest.warns(RuntimeWarning, match=r"wandb chains failed and logs nothing more of this run \(no route\)"):
        sink = wandb("chains")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sink.log(0, {"a": 1.0})
        sink.close()
    assert len(calls) == 1
    assert calls[0]["resume"] is None


@pytest.mark.slow
def test_the_real_wandb_takes_a_run_offline(tmp_path):
    pytest.importorskip("wandb")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        sink = wandb("chains", folder=tmp_path, config={"step_size": 0.1}, mode="offline")
        sink.log(1000, {"return": 1.5})
        sink.close()
    (file,) = tmp_path.rglob("*.wandb")
    assert b"return" in file.read_bytes()
