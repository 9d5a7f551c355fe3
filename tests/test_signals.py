"""Signals stop the work at a checkpoint, whatever the process is doing; processes are real."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from feelgood.signals import stop_on_signal

GUARD = 600


def start(*words, **settings):
    command = [sys.executable, "-m", "feelgood", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **settings)


def wait_for(process, is_there):
    began = time.monotonic()
    while not is_there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < GUARD
        time.sleep(0.05)


def hears(pid, signum):
    """Whether a process has a handler of its own for a signal; taken as given where the system does not show it."""
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or bool(int(status.read_text().split("SigCgt:")[1].split()[0], 16) >> signum - 1 & 1)


def nchain(folder, *words):
    size = ("--lengths", 5, 6, "--num-steps", 50_000_000, "--num-seeds", 2, "--tuning-seeds", "--agents", "dqn")
    return ("run", "nchain", *size, "--output", folder, *words)


@pytest.mark.parametrize(
    ("signum", "num_processes"), [(signal.SIGTERM, 2), pytest.param(signal.SIGHUP, 1, marks=pytest.mark.slow)]
)
def test_a_study_stopped_by_a_signal_keeps_checkpoints_and_prints_how_to_continue(tmp_path, signum, num_processes):
    # Under nohup the tests themselves ignore SIGHUP, and so would the study.
    hear = lambda: signal.signal(signum, signal.SIG_DFL)
    process = start(*nchain(tmp_path, "--num-processes", num_processes), start_new_session=True, preexec_fn=hear)
    kept = lambda: list((tmp_path / "cells").glob("*.checkpoint.npz"))
    wait_for(process, lambda: len(kept()) == num_processes)  # written after seconds, not after a minute
    before = {path: path.stat().st_mtime_ns for path in kept()}
    time.sleep(1)  # a signal just after a checkpoint needs no other one; now there are further steps to save
    # To all processes of the group at once and twice, as a scheduler may do.
    os.killpg(process.pid, signum)
    os.killpg(process.pid, signum)
    _, said = process.communicate(timeout=GUARD)
    assert process.returncode == 128 + signum
    assert "stopped; to continue: feelgood run nchain" in said
    assert "Traceback" not in said
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is False
    assert all(path.stat().st_mtime_ns > before[path] for path in kept())
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("vectorization", ["async", pytest.param("sync", marks=pytest.mark.slow)])
def test_training_on_external_environments_stops_on_sigterm_and_goes_on(tmp_path, vectorization):
    size = ("--env", "CartPole-v1", "--num-steps", 50_000_000, "--num-envs", 2, "--hidden", 8, "--agent", "dqn")
    words = ("train", *size, "--env-settings", f"vectorization={vectorization}", "--output", tmp_path)
    # The second process reads what the first one compiled.
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    for _ in range(2):
        process = start(*words, start_new_session=True, env=os.environ | kept)
        log = tmp_path / "checkpoint" / "seed-0" / "state.npz"
        before = log.stat().st_mtime_ns if log.exists() else 0
        wait_for(process, lambda: log.exists() and log.stat().st_mtime_ns > before)  # noqa: B023, called here only
        os.killpg(process.pid, signal.SIGTERM)
        _, said = process.communicate(timeout=GUARD)
        assert process.returncode == 143
        assert "stopped; to continue: feelgood train" in said
        assert "Traceback" not in said
    assert "continuing from step" in said


@pytest.mark.parametrize(
    "sent",
    [
        [(signal.SIGINT, 1.5), (signal.SIGTERM, 0.8)],
        pytest.param([(signal.SIGINT, 0.3), (signal.SIGTERM, 1.8)], marks=pytest.mark.slow),
    ],
)
def test_a_signal_in_the_first_seconds_is_never_swallowed(tmp_path, sent):
    # SIGINT is ignored at first, as in a shell's background processes, so one that came earlier would have no effect.
    ignored_at_first = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)
    processes = [start(*nchain(tmp_path / str(i)), preexec_fn=ignored_at_first) for i in range(len(sent))]

    def send(process, signum, delay):
        wait_for(process, lambda: hears(process.pid, signum))
        time.sleep(delay)
        process.send_signal(signum)
        _, said = process.communicate(timeout=GUARD)
        assert process.returncode in (128 + signum, -signum)
        # Python reports a signal that lands in JAX's garbage-collection callback, and goes on; nothing else may be
        # there.
        ours, *ignored = said.split("Exception ignored in")
        assert "Traceback" not in ours
        assert all("_xla_gc_callback" in report and report.count("Traceback") == 1 for report in ignored)

    with ThreadPoolExecutor(len(sent)) as pool:
        list(pool.map(send, processes, *zip(*sent, strict=True)))


EXECUTED = """
import os, signal
from feelgood import cli
cli._call = lambda arguments: exec("os.kill(os.getpid(), signal.SIGTERM)\\nwhile True: pass", globals())
cli.main([])
"""


def test_an_interrupt_inside_executed_text_has_the_exit_code_of_its_signal():
    done = subprocess.run([sys.executable, "-c", EXECUTED], capture_output=True, text=True, timeout=GUARD)
    assert (done.returncode, done.stderr) == (143, "\nstopped\n")


DEAF = """
import sys, time
from feelgood import signals
signals.SECONDS_TO_STOP = 0.5
with signals.listening():
    signals.set_command_to_go_on("feelgood resume x")
    is_ready = False
    while True:
        try:
            if not is_ready:
                is_ready = True
                print("ready", flush=True)  # inside the try: the signal may follow at once
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""


def test_a_process_that_does_not_stop_by_itself_is_ended_with_the_same_sentence():
    with subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(GUARD) == 143
        assert process.stderr.read() == "\nstopped at the last checkpoint; to continue: feelgood resume x\n"


SWALLOWED = """
import os, signal
from feelgood import signals
with signals.listening():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        while True: pass
    except KeyboardInterrupt:
        pass  # as a callback inside a library may do
    with signals.stop_on_signal() as stop:
        assert stop.is_set()
    print(signals.exit_code())
"""


def test_an_interrupt_that_a_library_swallowed_stops_the_next_loop():
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=GUARD)
    assert done.stdout == "130\n", done.stderr


def test_sighup_stays_ignored_under_nohup_and_handlers_come_back():
    before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]
    was = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signal() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop.is_set()
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)  # the same request
            assert stop.is_set()
    finally:
        signal.signal(signal.SIGHUP, was)
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == before
