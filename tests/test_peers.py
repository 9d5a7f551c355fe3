"""The table of `benchmarks/peers.py`, from results that are made up here; nothing is installed."""

import importlib.util
import math
import subprocess
import sys
from typing import ClassVar

import pytest

from scripts import BENCHMARKS, benchmark

if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))  # the script and its worker import peers_tasks
peers = benchmark("peers")


def lines(own, theirs, lower_is_better=False, **columns):
    """Lines of the CSV file, one for each repeat."""
    same = {"section": "samplers", "task": "t", "size": 0, "unit": "ns", "peer": "optax", "function": "f"}
    same |= {"lower_is_better": int(lower_is_better), "hardware": "one core", **columns}
    return [{**same, "feelgood": mine, "theirs": other} for mine, other in zip(own, theirs, strict=True)]


class Recorder:
    """A worker that returns given values and records the calls."""

    def __init__(self, name, values, asked):
        self.name, self.values, self.asked = name, values, asked

    def ask(self, task, repeat, quick):
        self.asked.append(self.name)
        return {"value": self.values[repeat], **({"compile": 2.0} if repeat == 0 else {})}


def test_a_cell_is_the_median_with_the_range(peers):
    assert peers.summary([30.0, 1.0, 20.0]) == "20.0 (1.00 to 30.0)"
    assert peers.summary([2.0]) == "2.00"
    assert peers.summary([1234.0, 99.96, 5000.0]) == "1,234 (100.0 to 5,000)"


@pytest.mark.parametrize(("lower_is_better", "expected"), [(True, 4.0), (False, 0.25)])
def test_the_ratio_is_the_median_of_the_ratios_of_repeats(peers, lower_is_better, expected):
    # The ratio of the medians would be 2.
    assert peers.ratio(lines([1.0, 10.0, 5.0], [10.0, 5.0, 20.0], lower_is_better)) == expected


def test_a_goal_that_was_not_reached_has_no_ratio(peers):
    table = peers.comparisons(lines([2.0, 3.0], [5.0, peers.value_of({"value": None})], True))
    assert "| 2.50 (2.00 to 3.00) | optax `f` not reached (5.00 to not reached) | – |" in table
    assert peers.value_of({"value": None}) == math.inf


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [([2.0, 1.1], "ahead"), ([2.0, 0.96], "level"), ([2.0, 0.9], "**behind**"), ([math.nan], "–")],
)
def test_the_status_is_that_against_the_best_peer(peers, ratios, expected):
    assert peers.status(ratios) == expected


def test_repeats_are_interleaved_and_compilation_is_kept_apart(peers):
    asked: list[str] = []
    row = peers.Row("s", "t", "optax", "t", "s", "f", repeats=(3, 2), peer_factor=10.0)
    own, other = Recorder("own", [1.0, 3.0, 2.0], asked), Recorder("other", [4.0, 5.0, 6.0], asked)
    measured = peers.measure(row, own, other, quick=False)
    assert asked == ["own", "other"] * 3
    assert [(line["feelgood"], line["theirs"]) for line in measured] == [(1.0, 40.0), (3.0, 50.0), (2.0, 60.0)]
    assert {line["own_compile"] for line in measured} == {2.0}
    asked.clear()
    peers.measure(row, own, other, quick=True)
    assert asked == ["own", "other"] * 2


def test_a_row_with_fewer_repeats_of_feelgood_uses_the_last_one_again(peers):
    row = peers.Row("s", "t", "optax", "t", "s", "f", repeats=(3, 2), own_repeats=1)
    own, other = Recorder("own", [1.0, 3.0, 2.0], []), Recorder("other", [4.0, 5.0, 6.0], [])
    measured = peers.measure(row, own, other, quick=False)
    assert [(line["feelgood"], line["theirs"]) for line in measured] == [(1.0, 4.0), (1.0, 5.0), (1.0, 6.0)]


def test_the_table_has_a_line_for_each_task_and_a_sentence_for_each_skipped_peer(peers):
    measured = lines([2.0], [4.0], True) + lines([2.0], [1.0], True, peer="blackjax", function="sgld")
    sentence = peers.skip_sentence("rejax", "first line\nERROR: No matching distribution\n\n")
    assert sentence == "rejax was skipped because it did not install: ERROR: No matching distribution"
    head, rule, body, _, last = peers.report(measured, [sentence]).split("\n")
    assert head == "| task | ours | peer | ratio | hardware | command | status |"
    assert rule.count("---") == 7
    assert body.startswith("| t: ns (lower is better) | 2.00 | optax `f` 4.00; blackjax `sgld` 1.00 | 2.00; 0.50 | one")
    assert body.endswith("| **behind** |")
    assert last == sentence


def test_the_table_of_growth_shows_the_cost_relative_to_one(peers):
    kind = {"section": "chains", "unit": "draws"}
    measured = lines([10.0], [5.0], size=1, **kind) + lines([80.0], [10.0], size=16, **kind)
    *_, last = peers.report(measured, []).split("\n")
    assert last.endswith("| 80.0 | optax `f` 10.0 | 8.00 | 2.00; 8.00 |")  # 16 times the work at 8 and 2 times the rate


def test_a_figure_is_drawn_from_the_file_of_a_run(peers, tmp_path, monkeypatch, capsys):
    measured = lines([2.0, 3.0], [4.0, 3.0]) + lines([10.0], [5.0], section="chains", size=1)
    measured = [{name: line.get(name, "") for name in peers.COLUMNS} for line in measured]
    peers.write(measured, tmp_path / "peers.csv")
    monkeypatch.setattr(sys, "argv", ["peers.py", "--draw", str(tmp_path)])
    peers.main()
    assert "| t: ns | 2.50 (2.00 to 3.00) | optax `f` 3.50 (3.00 to 4.00) | 0.75 |" in capsys.readouterr().out
    assert (tmp_path / "peers.png").stat().st_size > 1_000
    monkeypatch.setattr(sys, "argv", ["peers.py", "--draw", "none"])
    with pytest.raises(SystemExit, match=r"--draw must be a folder with a file peers\.csv, got 'none'"):
        peers.main()


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
        "peers must be among blackjax, optax, posteriors, stable-baselines3, cleanrl, purejaxrl, rejax, bsuite, numpy, "
        "got 'blakjax'"
    )


def test_every_row_names_tasks_that_both_workers_have(peers):
    spec = importlib.util.spec_from_file_location("peers_worker", peers.WORKER)
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    for row in peers.ROWS:
        assert (row.peer, row.task) in worker.TASKS
        assert ("feelgood", row.own_task or row.task) in worker.TASKS
        assert row.peer == "feelgood" or row.peer in peers.PEERS


@pytest.mark.parametrize(("task", "num_runs"), [("CartPole dqn", 1), ("langevin", 2)])
def test_only_long_runs_are_shared_by_rows(peers, monkeypatch, task, num_runs):
    runs: list[str] = []
    monkeypatch.setattr(peers.Worker, "__init__", lambda self: setattr(self, "answers", {}))
    monkeypatch.setattr(peers.Worker, "_run", lambda self, task, repeat, quick: runs.append(task) or {"value": 1.0})
    worker = peers.Worker()
    worker.ask(task, 0, False)
    worker.ask(task, 0, False)
    assert len(runs) == num_runs


class Fake:
    """A worker that ends with an error in one task and otherwise answers with its core."""

    started: ClassVar[list] = []

    def __init__(self, package, python, cores):
        self.package, self.cores, self.is_over = package, cores, False
        self.started.append((package, cores))

    def ask(self, task, repeat, quick):
        if task == "bad" and self.package == "optax":
            self.is_over = True
            raise sys.modules["peers"].Skipped("optax was skipped in bad because it failed: no")
        return {"value": 1.0 + self.cores[0]}

    def has_ended(self):
        return self.is_over

    def close(self):
        pass


def test_rows_run_on_two_cores_and_a_worker_that_ended_is_started_again(peers, monkeypatch, tmp_path):
    rows = [("CartPole", "a", "a"), ("samplers", "b", "bad"), ("samplers", "c", "c")]
    rows = [peers.Row(section, title, "optax", task, "s", "f", repeats=(1, 1)) for section, title, task in rows]
    rows.insert(0, peers.Row("cores", "d", "feelgood", "d", "s", "f", repeats=(1, 1), own_cores=2))
    monkeypatch.setattr(peers, "ROWS", tuple(rows))
    monkeypatch.setattr(peers, "CORES", [4, 7])
    monkeypatch.setattr(peers, "Worker", Fake)
    monkeypatch.setattr(peers, "environment", lambda name, folder: "python")
    measured, skipped = peers.run(["optax"], tmp_path, True, tmp_path / "peers.csv")
    assert [(line["task"], line["feelgood"]) for line in measured] == [("d", 5.0), ("a", 5.0), ("c", 8.0)]
    assert skipped == ["optax was skipped in bad because it failed: no"]
    assert Fake.started.count(("optax", (7,))) == 2
    assert ("feelgood", (4, 7)) in Fake.started
    assert len((tmp_path / "peers.csv").read_text().splitlines()) == 4
