"""A progress bar for long work; a line now and then where nobody watches."""

import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Moment", "bar"]

SECONDS_BETWEEN_LINES = 10.0


class Moment(NamedTuple):
    """Where a long piece of work stands: chunks that are done, and a note in its own words.

    Without a chunk it is something to be said at once, as that a run goes on from a checkpoint.
    """

    chunk: int | None
    note: str


class Bar:
    """Tasks on one bar."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic):
        self._progress, self._clock = progress, clock

    @contextmanager
    def task(self, name: str, total: int):
        """Yields a function to call after each step of work with a `Moment`, or a record of `chunk`, `num_runs` and
        `mean_return`. Where nobody watches, a line is printed whenever another tenth of the work is done, but not more
        often than every ten seconds.
        """
        task = self._progress.add_task(name, total=total, note="compiling")
        is_terminal, tenths, told_at = self._progress.console.is_terminal, 0, self._clock()
        begin: tuple[int, float] | None = None  # where it stood at the first report, as work may be resumed

        def report(progress) -> None:
            nonlocal tenths, told_at, begin
            if progress.chunk is None:
                self._progress.console.print(f"{name}: {progress.note}", soft_wrap=True)
                return
            in_words = isinstance(progress, Moment)
            note = progress.note if in_words else f"{progress.num_runs} runs, return {progress.mean_return:.2f}"
            self._progress.update(task, completed=progress.chunk, note=note)
            now, done = self._clock(), progress.chunk
            begin = begin or (done, now)
            if not is_terminal and tenths < 10 * done // max(total, 1) < 10 and now - told_at >= SECONDS_BETWEEN_LINES:
                tenths, told_at = 10 * done // total, now
                moved, took = done - begin[0], now - begin[1]
                eta = f", eta {timedelta(seconds=round(took * (total - done) / moved))}" if moved else ""
                self._progress.console.print(f"{name}: {100 * done // total}%, {note}{eta}", soft_wrap=True)

        try:
            yield report
        finally:
            if not is_terminal:
                self._progress.console.print(f"{name}: {self._progress.tasks[task].fields['note']}", soft_wrap=True)

    @contextmanager
    def count(self, name: str, total: int):
        """Yields a function to call with a note as each of `total` pieces of work begins."""
        task = self._progress.add_task(name, total=total, note="")

        def begin(note: str) -> None:
            done = self._progress.tasks[task].fields["note"]
            self._progress.update(task, advance=1 if done else 0, note=note)
            if not self._progress.console.is_terminal:
                self._progress.console.print(f"{name}: {note}", soft_wrap=True)

        yield begin
        self._progress.update(task, completed=total)


@contextmanager
def bar():
    """A bar on the terminal; elsewhere a line per finished task, and one now and then of a long one."""
    console = Console()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("eta"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Bar(progress)
