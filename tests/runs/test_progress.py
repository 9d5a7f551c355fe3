"""Progress of long work if the output is not a terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from feelgood.runs.progress import Bar, Moment, follow


class Log:
    """A bar that writes to no terminal, by a clock that the test sets."""

    def __init__(self):
        self.out, self.now = io.StringIO(), 0.0
        progress = Progress(console=Console(file=self.out, width=100), disable=True)
        self.bar = Bar(progress, clock=lambda: self.now)

    @property
    def lines(self):
        return self.out.getvalue().splitlines()


@pytest.fixture
def log():
    return Log()


def test_a_long_run_reports_every_tenth_of_its_steps(log):
    with log.bar.task("alien", 100) as report:
        for chunk in range(101):
            log.now = 60.0 * chunk
            report(Moment(chunk, f"at {chunk}"))
    # A minute per hundredth: the rest takes as many minutes.
    left = {chunk: f"{(100 - chunk) // 60}:{(100 - chunk) % 60:02}:00" for chunk in range(10, 100, 10)}
    said = [f"alien: {chunk}%, at {chunk}, eta {left[chunk]}" for chunk in range(10, 100, 10)]
    assert log.lines == [*said, "alien: at 100"]


def test_runs_inside_xla_report_every_tenth_of_their_steps(log):
    with log.bar.task("chain", 2) as report:
        for chunk in (1, 2):
            log.now = 3600.0 * chunk
            report(SimpleNamespace(chunk=chunk, num_runs=8, mean_return=0.5))
    assert log.lines == ["chain: 50%, 8 runs, return 0.50", "chain: 8 runs, return 0.50"]


def test_seeds_that_run_together_are_reported_together(log):
    with follow(log.bar, "chain", [3, 7], 100, together=True) as (report, _):
        for step in (0, 50, 100):
            for seed in (3, 7):
                log.now += 60.0
                report(seed, {"step": step, "return": float(step + seed), "finite": seed == 3 or step < 100})
    assert log.lines == [
        "chain: 50%, 2 seeds, step 50, mean return 55.0, eta 0:02:00",
        "chain: 2 seeds, step 100, mean return 103.0",
    ]


def test_quick_work_has_one_line(log):
    with log.bar.task("chain", 10) as report:
        for chunk in range(1, 11):
            log.now += 0.9
            report(Moment(chunk, f"at {chunk}"))
    assert log.lines == ["chain: at 10"]


def test_the_remaining_time_counts_from_where_a_resumed_run_began(log):
    with log.bar.task("alien", 100) as report:
        report(Moment(None, "goes on at 50"))
        log.now = 100.0  # compiling
        report(Moment(50, "at 50"))
        log.now = 160.0
        report(Moment(60, "at 60"))
    assert log.lines == ["alien: goes on at 50", "alien: 50%, at 50", "alien: 60%, at 60, eta 0:04:00", "alien: at 60"]
