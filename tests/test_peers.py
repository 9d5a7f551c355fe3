"""The table of `benchmarks/peers.py`, from results that are made up here; nothing is installed."""

import importlib.util
import math
import os
import subprocess
import sys

import pytest

from scripts import BENCHMARKS, benchmark

peers = benchmark("peers")


def result(own, theirs):
    return {"own": own, "theirs": theirs, "own_compile": 1.25, "their_compile": None}


class Recorder:
    """A worker that returns given values and writes down who was asked."""

    def __init__(self, name, values, asked):
        self.name, self.values, self.asked = name, values, asked

    def ask(self, task, repeat, quick):
        self.asked.append(self.name)
        return {"value": self.values[repeat], **({"compile": 2.0} if repeat == 0 else {})}


def test_a_cell_is_the_median_with_the_range(peers):
    assert peers.summary([30.0, 1.0, 20.0]) == "20.0 (1.00 to 30.0)"
    assert peers.summary([2.0]) == "2.00"
    assert peers.summary([1234.0, 99.96, 5000.0]) == "1,234 (100.0 to 5,000)"


@pytest.mark.parametrize(("lower_is_better", "expected"), [(True, "4.00"), (False, "0.25")])
def test_the_ratio_is_above_one_if_feelgood_is_better(peers, lower_is_better, expected):
    row = peers.Row("t", "optax", "t", "s", "f", lower_is_better)
    assert peers.ratio(row, result([9.0, 2.0, 1.0], [8.0, 1.0, 70.0])) == expected


def test_a_goal_that_was_not_reached_has_no_ratio(peers):
    row = peers.Row("t", "optax", "t", "s", "f", True)
    line = peers.cells(row, result([2.0], [peers.value_of({"value": None})]))
    assert line["peer's result"] == "not reached"
    assert line["ratio"] == "–"
    assert peers.value_of({"value": None}) == math.inf


def test_repeats_are_interleaved_and_compilation_is_kept_apart(peers):
    asked: list[str] = []
    row = peers.Row("t", "optax", "t", "s", "f", repeats=(3, 2))
    own, other = Recorder("own", [1.0, 3.0, 2.0], asked), Recorder("other", [4.0, 5.0, 6.0], asked)
    measured = peers.measure(row, own, other, quick=False)
    assert asked == ["own", "other"] * 3
    assert measured == {"own": [1.0, 3.0, 2.0], "theirs": [4.0, 5.0, 6.0], "own_compile": 2.0, "their_compile": 2.0}
    asked.clear()
    peers.measure(row, own, other, quick=True)
    assert asked == ["own", "other"] * 2


def test_the_table_has_a_line_for_each_row_and_a_sentence_for_each_skipped_peer(peers):
    row = peers.Row("task", "optax", "t", "ns", "noisy_sgd", True, "noise")
    line = peers.cells(row, result([2.0], [4.0]))
    sentence = peers.skip_sentence("rejax", "first line\nERROR: No matching distribution\n\n")
    assert sentence == "rejax was skipped because it did not install: ERROR: No matching distribution"
    head, rule, body, _, last = peers.markdown([line], [sentence]).split("\n")
    assert head.split(" | ")[-1] == "what differs |"
    assert rule.count("---") == len(peers.COLUMNS)
    assert "| optax `noisy_sgd` | 4.00 | 2.00 | 1.2, – | noise |" in body
    assert last == sentence


def test_an_environment_that_does_not_install_is_skipped(peers, tmp_path, monkeypatch):
    monkeypatch.setattr(peers.venv, "create", lambda *arguments, **options: None)
    failed = subprocess.CompletedProcess([], 1, "", "one\nERROR: two\n")
    monkeypatch.setattr(peers.subprocess, "run", lambda *arguments, **options: failed)
    with pytest.raises(peers.Skipped, match="optax was skipped because it did not install: ERROR: two"):
        peers.environment("optax", tmp_path)


def test_an_unknown_peer_is_refused_in_one_sentence():
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "peers.py"), "--peers", "blakjax"], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert done.stderr.strip() == (
        "peers must be among blackjax, optax, stable-baselines3, rejax, numpy, got 'blakjax'"
    )


def test_every_row_names_tasks_that_both_workers_have(peers, monkeypatch):
    monkeypatch.setattr("os.sched_setaffinity", lambda *arguments: None, raising=False)
    spec = importlib.util.spec_from_file_location("peers_worker", peers.WORKER)
    worker = importlib.util.module_from_spec(spec)
    monkeypatch.setattr("os.environ", dict(os.environ))
    spec.loader.exec_module(worker)
    for row in peers.ROWS:
        assert (row.peer, row.task) in worker.TASKS
        assert ("feelgood", row.own_task or row.task) in worker.TASKS
        assert row.peer in peers.PEERS


@pytest.mark.parametrize(("task", "num_runs"), [("dqn", 1), ("langevin", 2)])
def test_only_long_runs_are_shared_by_rows(peers, monkeypatch, task, num_runs):
    runs: list[str] = []
    monkeypatch.setattr(peers.Worker, "__init__", lambda self: setattr(self, "answers", {}))
    monkeypatch.setattr(peers.Worker, "_run", lambda self, task, repeat, quick: runs.append(task) or {"value": 1.0})
    worker = peers.Worker()
    worker.ask(task, 0, False)
    worker.ask(task, 0, False)
    assert len(runs) == num_runs
