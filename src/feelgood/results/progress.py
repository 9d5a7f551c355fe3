"""A progress bar for long work; silent where nobody watches."""

from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Moment", "bar"]


class Moment(NamedTuple):
    """Where a long piece of work stands: chunks that are done, and a note in its own words."""

    chunk: int
    note: str


class Bar:
    """Tasks on one bar."""

    def __init__(self, progress: Progress):
        self._progress = progress

    @contextmanager
    def task(self, name: str, total: int):
        """Yields a function to call after each step of work with a `Moment`, or a record of `chunk`, `num_runs` and
        `mean_return`. Where nobody watches, a `Moment` is printed whenever another tenth of the work is done.
        """
        task = self._progress.add_task(name, total=total, note="compiling")
        is_terminal, tenths = self._progress.console.is_terminal, -1

        def report(progress) -> None:
            nonlocal tenths
            in_words = isinstance(progress, Moment)
            note = progress.note if in_words else f"{progress.num_runs} runs, return {progress.mean_return:.2f}"
            self._progress.update(task, completed=progress.chunk, note=note)
            done = 10 * progress.chunk // max(total, 1)
            if in_words and not is_terminal and tenths < done < 10:
                tenths = done
                self._progress.console.print(f"{name}: {note}", soft_wrap=True)

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
    """A bar on the terminal; a line per finished task elsewhere."""
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
