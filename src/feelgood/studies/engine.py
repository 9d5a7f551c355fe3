"""Engines run the tasks of a study in this process, in several processes, or on a Ray cluster, with equal results.

A study is a list of plans. A plan is a generator: it yields the tasks that it needs next, receives their tables and
returns its result, so dependencies (a round of tuning on the previous one) are ordinary code. A task computes a table,
which is stored in a file; an existing file is read instead of computed again.

Tasks are pure: workers write no tables, and the main process writes each table atomically and once. A task that is
stopped or lost continues from its checkpoint, or runs again from its seeds.
"""

import shutil
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

from feelgood.studies.options import EngineOptions
from feelgood.studies.worker import Worker


class Task(NamedTuple):
    """A unit of work that computes a table.

    Attributes:
      name: name for progress and logs.
      file: file name of the table, unique to the settings that produce it.
      run: `(progress, checkpoint) -> table`, with a progress bar (see `feelgood.runs.progress`) and a path for a
        checkpoint, or None if checkpoints are not possible. On a cluster it must pickle.
    """

    name: str
    file: str
    run: Callable[..., Any]


Plan = Generator[Sequence[Task], list[Any], Any]


class Engine(NamedTuple):
    """Runs tasks.

    Attributes:
      submit: `task -> handle`, submits a task.
      first: `handles -> (i, table)`, waits until a submitted task is done and returns its index and table.
      num_plans: number of plans that are active at a time.
      facts: lists of text for the manifest, filled in during the work.
    """

    submit: Callable[[Task], Any]
    first: Callable[[Sequence[Any]], tuple[int, Any]]
    num_plans: float
    facts: dict[str, list[str]]


def carry_out(plans: Sequence[Plan], folder: Path, engine: Engine, done: Callable[[str], None] = lambda _: None):
    """Runs plans on an engine and returns their results, in order.

    Existing tables in `folder` are not computed again. `done` is called with the last task's name of a finished plan.
    """
    from feelgood.runs import store
    from feelgood.runs.machine import describe_code

    results: list[Any] = [None] * len(plans)
    waiting = deque(range(len(plans)))
    asked: dict[int, Sequence[Task]] = {}
    under_way: dict[str, Any] = {}
    code, ready = describe_code(), set[str]()  # files of the tables that exist
    found: dict[str, dict[str, Any]] = {}

    def read(task: Task) -> Any:
        table, found[task.file] = store.read_with_facts(folder / task.file)
        return table

    def advance(i: int, tables: list[Any] | None) -> None:
        try:
            asked[i] = plans[i].send(tables)  # type: ignore[arg-type]
        except StopIteration as end:
            results[i] = end.value
            last = asked.pop(i, ())
            done(last[-1].name if last else "")
            return
        for task in asked[i]:
            if task.file in under_way or task.file in ready:
                continue
            if (folder / task.file).exists():
                ready.add(task.file)
            else:
                under_way[task.file] = engine.submit(task)

    while waiting or asked:
        while waiting and len(asked) < engine.num_plans:
            advance(waiting.popleft(), None)
        able = [i for i, tasks in asked.items() if ready.issuperset(task.file for task in tasks)]
        for i in able:
            advance(i, [read(task) for task in asked[i]])
        if able or not under_way:
            continue
        position, table = engine.first(list(under_way.values()))
        file = list(under_way)[position]
        del under_way[file]
        store.write_table(folder / file, table, code)
        ready.add(file)
        kept = checkpoint_of(folder, file)
        for path in (kept, kept.with_name(f"{kept.name}.previous")):
            path.unlink(missing_ok=True)
        shutil.rmtree(kept.with_suffix(""), ignore_errors=True)
    _flag_other_code(folder, code, found, engine.facts)
    return results


def _flag_other_code(
    folder: Path, code: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], facts: dict[str, list[str]]
) -> None:
    """Warns if some tables were made by another version, commit or number of devices, and names all in `facts`."""
    code_text = lambda each: ", ".join(f"{name} {value}" for name, value in each.items()) or "an earlier version"
    if found:
        facts["code"] = sorted({code_text(each) for each in found.values()})
    if other := [code_text(each) for each in found.values() if each != code]:
        warnings.warn(
            f"{len(other)} of {len(found)} tables in {folder} were made by other code than this ({code_text(code)}): "
            f"{'; '.join(sorted(set(other)))}. Delete them to make them again with this code",
            stacklevel=2,
        )


def run_plans(
    options: EngineOptions, plans: Sequence[Plan], output: Path, facts: dict[str, Any], *, title: str = ""
) -> list[Any]:
    """Runs the plans of a study on the engine of its options, with a progress bar; see `carry_out`.

    Tables are stored in `output`/cells, and `facts` receives the engine's facts, see `store.recorded`. `title` is that
    of a bar that counts plans; it is empty if local tasks have their own bars.
    """
    from feelgood.runs.progress import bar

    folder = output / "cells"
    with bar() as progress, ExitStack() as stack:
        if options.engine == "ray":
            from feelgood.studies.cluster import on_ray

            engine, title = stack.enter_context(on_ray(folder, options.ray_address)), title or "on Ray"
        elif options.num_processes > 1:
            engine = stack.enter_context(in_processes(folder, progress, options.num_processes))
        else:
            engine = local(folder, progress)
        done = stack.enter_context(progress.count(title, len(plans))) if title else lambda _: None
        results = carry_out(plans, folder, engine, done)
        for name, values in engine.facts.items():
            facts[name] = sorted({*facts.get(name, ()), *values})
    return results


def checkpoint_of(folder: Path, file: str) -> Path:
    """The file of a task's checkpoint; runs on external environments keep a folder of that name without `.npz`."""
    return (folder / file).with_suffix(".checkpoint.npz")


def local(folder: Path, progress: Any) -> Engine:
    """Runs tasks one after the other in this process, with checkpoints in `folder`."""

    def first(tasks: Sequence[Task]) -> tuple[int, Any]:
        return 0, tasks[0].run(progress, checkpoint_of(folder, tasks[0].file))

    return Engine(lambda task: task, first, 1, {})


@contextmanager
def in_processes(folder: Path, progress: Any, num_processes: int) -> Iterator[Engine]:
    """Runs up to `num_processes` tasks at a time, each in its own process, with checkpoints in `folder`.

    After Ctrl-C or a failed task, the other tasks write their checkpoints and stop.
    """
    from feelgood.signals import Interrupted, stop_on_signal

    running: dict[str, Worker] = {}
    settings = jax_settings()

    def first(tasks: Sequence[Task]) -> tuple[int, Any]:
        with stop_on_signal() as stop:
            while not stop.is_set():
                for task in tasks:
                    if task.file not in running and len(running) < num_processes:
                        checkpoint = checkpoint_of(folder, task.file)
                        running[task.file] = Worker(task.name, task.run, checkpoint, settings, progress)
                # The pipe of a dead process may stay open if a child of that process holds it too.
                connection.wait([worker.pipe for worker in running.values()], timeout=1.0)
                for file, worker in running.items():
                    if worker.has_news() and worker.hear():
                        del running[file]
                        return [task.file for task in tasks].index(file), worker.result()
        raise Interrupted

    try:
        yield Engine(lambda task: task, first, num_processes, {})
    finally:
        try:
            for worker in running.values():
                worker.stop()
            for worker in running.values():
                worker.wait()
        except BaseException:  # a second Ctrl-C, for example
            for worker in running.values():
                worker.kill()
            raise


def jax_settings() -> dict[str, Any]:
    """The settings of JAX that worker processes must share."""
    import jax

    names = ("jax_num_cpu_devices", "jax_platforms", "jax_compilation_cache_dir", "jax_enable_x64")
    return {name: getattr(jax.config, name) for name in names}


def task_of(name: str, digest: str, run: Callable[..., Any]) -> Task:
    """A task whose file is named after it and a hash of everything that its result depends on, defaults included.

    So results of a changed default or grid are never mixed with old ones.
    """
    return Task(name, f"{name.replace('/', '-').replace(' ', '-')}-{digest}.parquet", run)


def short_table(name: str, facts: Any, make: Callable[..., Any], *arguments: Any) -> Plan:
    """A plan of one task without a checkpoint: the table `make(*arguments)`, named by a hash of `facts`."""
    from feelgood.runs.store import fingerprint

    (made,) = yield [Task(name, f"{name}-{fingerprint(facts)}.parquet", partial(_make, make, *arguments))]
    return made


def _make(make: Callable[..., Any], *arguments: Any) -> Any:
    return make(*arguments[:-2])  # the others are the progress bar and the path of a checkpoint
