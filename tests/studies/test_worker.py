"""Tasks in processes of their own: the same tables, whatever happens to the processes."""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import jax
import pandas as pd
import pytest

from feelgood.figures import style
from feelgood.runs.progress import Moment
from feelgood.studies.engine import EngineOptions, Task, carry_out, in_processes
from feelgood.studies.nchain import study as nchain
from feelgood.studies.nchain.study import NChainStudy
from feelgood.studies.worker import Worker

SLOW = pytest.mark.slow

# Processes find the functions that they run by name.
TASKS = '''
import os, pathlib, signal, time
import pandas as pd
from feelgood.runs.progress import Moment

def square(n, progress, checkpoint):
    with progress.task(f"square {n}", 2) as report:
        report(Moment(1, f"half of {n}"))
    return pd.DataFrame({"value": [n * n], "process": [os.getpid()]})

def wait_for(path):
    began = time.monotonic()
    while not pathlib.Path(path).exists():
        if time.monotonic() - began > 600:
            raise TimeoutError
        time.sleep(0.05)

def meet(n, mine, other, progress, checkpoint):
    """Ends only if the other one runs at the same time."""
    pathlib.Path(mine).touch()
    wait_for(other)
    return square(n, progress, checkpoint)

def after(path, name, progress, checkpoint):
    wait_for(path)
    return globals()[name](progress, checkpoint)

def device(n, progress, checkpoint):
    import jax

    facts = jax.local_device_count(), jax.config.jax_enable_x64, jax.random.key(3)
    return square(n, progress, checkpoint).assign(jax=str(facts))

def refuse(progress, checkpoint):
    raise ValueError("disk must be bigger, got 3")

def fork_and_die(progress, checkpoint):
    if os.fork() == 0:  # holds the pipe too
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)

def no_table(progress, checkpoint):
    return lambda: None

class Odd(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")

def oddly(progress, checkpoint):
    raise Odd(1, 2)

def die(progress, checkpoint):
    os.kill(os.getpid(), signal.SIGKILL)

def long(progress, checkpoint):
    """Keeps its work on Ctrl-C."""
    try:
        with progress.task("long", 1) as report:
            checkpoint.write_text("begun")
            report(Moment(0, str(os.getpid())))
            time.sleep(60)
    except KeyboardInterrupt:
        checkpoint.write_text("kept")
        raise
'''


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    (tmp_path / "tasks_apart.py").write_text(TASKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    import tasks_apart

    yield tasks_apart
    sys.modules.pop("tasks_apart")


class Watching:
    """A bar that records its reports."""

    def __init__(self, on_report=lambda moment: None):
        self.heard, self._on_report = [], on_report

    @contextmanager
    def task(self, name, total):
        self.heard.append((name, total))

        def report(moment):
            self.heard.append(moment)
            self._on_report(moment)

        yield report
        self.heard.append(f"{name} is over")


def plan(*runs):
    """A plan of some tasks at once; its result is their tables, each of one row."""
    tables = yield [Task(f"task {i}", f"{i}.parquet", run) for i, run in runs]
    return pd.concat(tables, ignore_index=True)


def test_tables_come_back_to_their_tasks_which_run_at_the_same_time_and_reports_to_the_bar(tasks, tmp_path):
    bar, here, there = Watching(), str(tmp_path / "here"), str(tmp_path / "there")
    meet = lambda n, mine, other: (n, partial(tasks.meet, n, mine, other))
    with in_processes(tmp_path, bar, 2) as engine:
        plans = [plan(meet(2, here, there), meet(3, there, here)), plan((4, partial(tasks.device, 4)))]
        few, some = carry_out(plans, tmp_path, engine)
    assert (few["value"].tolist(), some["value"].tolist()) == ([4, 9], [16])
    assert len({*few["process"], *some["process"], os.getpid()}) == 4
    assert sorted(map(str, bar.heard)) == sorted(
        str(said) for n in (2, 3, 4) for said in ((f"square {n}", 2), Moment(1, f"half of {n}"), f"square {n} is over")
    )
    # JAX is set up as in the main process.
    ours = jax.local_device_count(), jax.config.jax_enable_x64, jax.random.key(3)
    assert some["jax"].item() == str(ours)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("refuse", ValueError, "disk must be bigger, got 3"),
        # The next one dies too, and leaves a copy that holds its pipe.
        pytest.param("die", ChildProcessError, "task short was lost: its process ended with code -9", marks=SLOW),
        ("fork_and_die", ChildProcessError, "task short was lost: its process ended with code -9"),
    ],
)
def test_a_failed_task_is_reported_and_the_others_keep_their_results(tasks, tmp_path, name, kind, message):
    kept = tmp_path / "long.checkpoint.npz"
    fails = partial(tasks.after, str(kept), name)
    with pytest.raises(kind) as caught, in_processes(tmp_path, Watching(), 2) as engine:
        engine.first([Task("long", "long.parquet", tasks.long), Task("short", "short.parquet", fails)])
    assert str(caught.value) == message
    assert kind is ChildProcessError or "Traceback" in caught.value.__notes__[0]
    assert kept.read_text() == "kept"


@pytest.mark.parametrize(
    ("name", "kinds", "message"),
    [("oddly", RuntimeError, "Odd: 1 and 2"), ("no_table", (AttributeError, pickle.PicklingError), None)],
)
def test_a_table_or_an_error_that_cannot_be_sent_is_an_error_with_its_traceback(tasks, tmp_path, name, kinds, message):
    with pytest.raises(kinds) as caught, in_processes(tmp_path, Watching(), 1) as engine:
        engine.first([Task("short", "short.parquet", getattr(tasks, name))])
    assert message is None or str(caught.value) == message
    assert "Traceback" in caught.value.__notes__[0]


def test_a_task_that_dies_while_it_sends_a_message_is_lost():
    worker = Worker.__new__(Worker)
    ours, theirs = multiprocessing.Pipe(duplex=False)
    os.write(theirs.fileno(), (1000).to_bytes(4, "big") + b"not a thousand")
    theirs.close()
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    worker.pipe, worker._process, worker._name = ours, process, "x"
    assert worker.hear()
    assert str(worker._error).startswith("task x was lost: its process ended with code")
    worker._has_ended = False
    worker._is_ready = True
    worker.stop()  # nobody is there to be stopped


def test_ctrl_c_reaches_every_task_once(tasks, tmp_path):
    stop = lambda moment: os.kill(os.getpid(), signal.SIGINT)
    bar = Watching(stop)
    with pytest.raises(KeyboardInterrupt), in_processes(tmp_path, bar, 1) as engine:
        engine.first([Task("long", "long.parquet", tasks.long)])
    assert (tmp_path / "long.checkpoint.npz").read_text() == "kept"
    assert bar.heard[-1] == "long is over"
    with pytest.raises(ProcessLookupError):
        os.kill(int(bar.heard[1].note), 0)


def test_tasks_end_with_the_process_that_leads(tasks, tmp_path):
    lead = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
import tasks_apart
from feelgood.studies.engine import Task, in_processes

if __name__ == "__main__":
    bar = SimpleNamespace(task=lambda name, total: nullcontext(lambda moment: print(moment.note, flush=True)))
    with in_processes(Path({str(tmp_path)!r}), bar, 1) as engine:
        engine.first([Task("long", "long.parquet", tasks_apart.long)])
"""
    (tmp_path / "lead.py").write_text(lead)
    with subprocess.Popen([sys.executable, tmp_path / "lead.py"], stdout=subprocess.PIPE, text=True) as process:
        worker = int(process.stdout.readline())
        process.kill()
    until = time.monotonic() + 600
    while time.monotonic() < until:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the task outlived the process that led")


@pytest.mark.slow
def test_a_study_leaves_the_same_bytes_in_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "save", lambda figure, path: [])
    options = {"lengths": (5, 6), "agents": ("dqn",), "num_steps": 1000, "tuning_seeds": (), "num_seeds": 2}
    for name, num_processes in (("here", 1), ("apart", 2)):
        study = NChainStudy(**options, num_processes=num_processes, output=tmp_path / name)
        nchain.run(study, report=lambda _: None)
    tables = [path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*.parquet")]
    assert len(tables) > 2
    for table in tables:
        pd.testing.assert_frame_equal(*(pd.read_parquet(tmp_path / name / table) for name in ("here", "apart")))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_processes": 0}, "num_processes must be a whole number of at least 1, got 0"),
        ({"num_processes": 2, "engine": "ray"}, "num_processes must be 1 with the engine 'ray', got 2"),
    ],
)
def test_bad_options_are_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        EngineOptions(**options)
