"""A progress bar on a terminal; occasional log lines elsewhere."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_SECONDS = 10.0


class Moment(NamedTuple):
    """Progress of a task: the number of finished chunks, and a note.

    If `chunk` is None, the note is printed at once (for example that a run was resumed from a checkpoint).
    """

    chunk: int | None
    note: str


class Bar:
    """A progress bar with several tasks."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic):
        self._progress, self._clock = progress, clock

    @contextmanager
    def task(self, name: str, total: int):
        """Yields a function to call after each step with a `Moment`, or with `chunk`, `num_runs` and `mean_return`.

        If stdout is not a terminal, a line is printed after each tenth of the work, at most every ten seconds.
        """
        task = self._progress.add_task(name, total=total, note="compiling")
        is_terminal, tenths, printed_at = self._progress.console.is_terminal, 0, self._clock()
        begin: tuple[int, float] | None = None  # at the first report; not 0 if work is resumed
        say = lambda text: self._progress.console.print(f"{name}: {text}", soft_wrap=True)

        def report(progress) -> None:
            nonlocal tenths, printed_at, begin
            if progress.chunk is None:
                say(progress.note)
                return
            is_moment = isinstance(progress, Moment)
            note = progress.note if is_moment else f"{progress.num_runs} runs, return {progress.mean_return:.2f}"
            self._progress.update(task, completed=progress.chunk, note=note)
            now, done = self._clock(), progress.chunk
            begin = begin or (done, now)
            if not is_terminal and tenths < 10 * done // max(total, 1) < 10 and now - printed_at >= LINE_SECONDS:
                tenths, printed_at = 10 * done // total, now
                moved, took = done - begin[0], now - begin[1]
                eta = f", eta {timedelta(seconds=round(took * (total - done) / moved))}" if moved else ""
                say(f"{100 * done // total}%, {note}{eta}")

        try:
            yield report
        finally:
            if not is_terminal:
                say(self._progress.tasks[task].fields["note"])

    @contextmanager
    def count(self, name: str, total: int):
        """Yields a function to call with a note at the start of each of `total` pieces of work."""
        task = self._progress.add_task(name, total=total, note="")

        def begin(note: str) -> None:
            done = self._progress.tasks[task].fields["note"]
            self._progress.update(task, advance=1 if done else 0, note=note)
            if not self._progress.console.is_terminal:
                self._progress.console.print(f"{name}: {note}", soft_wrap=True)

        yield begin
        self._progress.update(task, completed=total)


@contextmanager
def bar(*, stderr: bool = False) -> Iterator[Bar]:
    """A progress bar on a terminal; elsewhere a line per finished task, and a few lines for a long one."""
    console = Console(stderr=stderr)
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


Report = Callable[[int, Mapping[str, Any]], None]
Tick = Callable[[int, int, float], None]


@contextmanager
def follow(
    progress: Any, name: str, seeds: Sequence[int], num_steps: int, together: bool = False
) -> Iterator[tuple[Report, Tick]]:
    """Shows training runs on a `Bar` or on one in another process: one seed after the other, or all `together`.

    Yields a function to call with `(seed, row)` of a curve, and one for `(seed, step, steps per second)` in between.
    """
    with progress.task(name, len(seeds) * num_steps) as show:
        where: dict[str, Any] = {}
        rows: dict[int, Mapping[str, Any]] = {}

        def report_all(seed: int, row: Mapping[str, Any]) -> None:
            rows[seed] = row
            if len({each["step"] for each in rows.values()}) == 1 and len(rows) == len(seeds):
                returns = [each["return"] for each in rows.values() if each["finite"]]
                score = f"mean return {sum(returns) / len(returns):.1f}" if returns else "all diverged"
                show(Moment(row["step"] * len(seeds), f"{len(seeds)} seeds, step {row['step']:,}, {score}"))

        def move(seed: int, **news: Any) -> None:
            if where.get("seed") != seed:
                where.clear()
            where.update(news, seed=seed, step=max(news["step"], where.get("step", 0)))  # evaluations are late
            speed = f", {where['speed']:,.0f} steps/s" if "speed" in where else ""
            done = seeds.index(seed) * num_steps + min(where["step"], num_steps)
            show(Moment(done, f"seed {seed}, step {where['step']:,}{speed}{where.get('score', '')}"))

        def report(seed: int, row: Mapping[str, Any]) -> None:
            score = f", return {row['return']:.1f}" if row["finite"] else ", diverged"
            move(seed, step=row["step"], score=score)

        tick = lambda seed, step, speed: move(seed, step=step, speed=speed)
        yield report_all if together and len(seeds) > 1 else report, tick
