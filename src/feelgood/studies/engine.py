"""Engines run the tasks of a study in this process, in several processes, or on a Ray cluster, with equal results.

A study is a list of plans. A plan is a generator: it yields the tasks that it needs next, receives their tables and
returns its result, so dependencies (a round of tuning on the previous one) are ordinary code. A task computes a table,
which is stored in a file; an existing file is read instead of computed again.

Tasks are pure: workers write no tables, and the main process writes each table atomically and once. A task that is
stopped or lost continues from its checkpoint, or runs again from its seeds.
"""

import importlib.util
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal, NamedTuple

from feelgood.checks import check_choice, check_count
from feelgood.studies.options import grouped
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


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where a study runs; its results do not depend on these options."""

    engine: Literal["local", "ray"] = grouped("engine", "local")
    """local: run on this machine. ray: run independent tasks in parallel on a Ray cluster (needs the extra ray)."""
    ray_address: str = grouped("engine", "")
    """Address of the Ray cluster; empty for the value of RAY_ADDRESS, or a new cluster on this machine."""
    num_processes: int = grouped("engine", 1)
    """Number of tasks that run in parallel with the engine local, each in its own process."""

    def __post_init__(self):
        check_choice("engine", self.engine, ("local", "ray"))
        check_count("num_processes", self.num_processes)
        if self.num_processes > 1 and self.engine != "local":
            raise ValueError(f"num_processes must be 1 with the engine {self.engine!r}, got {self.num_processes}")
        if self.ray_address and self.engine != "ray":
            raise ValueError(f"ray_address must be left out with the engine {self.engine!r}, got {self.ray_address!r}")
        if self.engine == "ray" and importlib.util.find_spec("ray") is None:
            raise ValueError("engine 'ray' needs a package that is not installed: pip install 'feelgood[ray]'")


def carry_out(plans: Sequence[Plan], folder: Path, engine: Engine, done: Callable[[str], None] = lambda _: None):
    """Runs plans and returns their results, in order.

    Args:
      plans: generators that yield tasks and receive their tables.
      folder: folder of the tables; existing tables are not computed again.
      engine: engine that runs the tasks.
      done: called with the name of the last task of each finished plan.
    """
    from feelgood.runs import store
    from feelgood.runs.machine import describe_code

    results: list[Any] = [None] * len(plans)
    waiting = deque(range(len(plans)))
    asked: dict[int, Sequence[Task]] = {}
    missing: dict[int, set[str]] = {}
    ready: deque[int] = deque()
    users: dict[str, list[int]] = {}
    under_way: dict[str, Any] = {}
    code = describe_code()
    found: dict[str, dict[str, Any]] = {}

    def read(task: Task) -> Any:
        table, about = store.read_with_facts(folder / task.file)
        found[task.file] = about
        return table

    def advance(i: int, tables: list[Any] | None) -> None:
        try:
            asked[i] = plans[i].send(tables)  # type: ignore[arg-type]
        except StopIteration as end:
            results[i] = end.value
            last = asked.pop(i, ())
            done(last[-1].name if last else "")
            return
        missing[i] = {task.file for task in asked[i] if not (folder / task.file).exists()}
        if not missing[i]:
            ready.append(i)
        for task in asked[i]:
            if task.file in missing[i]:
                users.setdefault(task.file, []).append(i)
                if task.file not in under_way:
                    under_way[task.file] = engine.submit(task)

    while waiting or asked:
        while waiting and len(asked) < engine.num_plans:
            advance(waiting.popleft(), None)
        while ready:
            i = ready.popleft()
            advance(i, [read(task) for task in asked[i]])
        if not under_way:
            continue
        position, table = engine.first(list(under_way.values()))
        file = list(under_way)[position]
        del under_way[file]
        store.write_table(folder / file, table, code)
        for i in users.pop(file):
            missing[i].discard(file)
            if not missing[i]:
                ready.append(i)
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
    other = {file: code_text(each) for file, each in found.items() if each != code}
    if found:
        facts["code"] = sorted({*other.values(), *([code_text(code)] if len(other) < len(found) else [])})
    if other:
        warnings.warn(
            f"{len(other)} of {len(found)} tables in {folder} were made by other code than this ({code_text(code)}): "
            f"{'; '.join(sorted(set(other.values())))}. Delete them to make them again with this code",
            stacklevel=2,
        )


def run_plans(
    options: EngineOptions, plans: Sequence[Plan], output: Path, facts: dict[str, Any], *, title: str = ""
) -> list[Any]:
    """Runs the plans of a study on the engine of its options, with a progress bar.

    Args:
      options: options of the study.
      plans: see `carry_out`.
      output: the study's folder; tables are stored in its subfolder `cells`.
      facts: receives the engine's facts, see `store.recorded`.
      title: title of a bar that counts plans; empty if local tasks have their own bars.
    """
    from feelgood.runs.progress import bar

    folder = output / "cells"
    with bar() as progress, _engine(options, folder, progress) as engine:
        title = title or {"local": "", "ray": "on Ray"}[options.engine]
        with progress.count(title, len(plans)) if title else nullcontext(lambda _: None) as done:
            results = carry_out(plans, folder, engine, done)
        for name, values in engine.facts.items():
            facts[name] = sorted({*facts.get(name, ()), *values})
    return results


def _engine(options: EngineOptions, folder: Path, progress: Any) -> AbstractContextManager[Engine]:
    if options.engine == "ray":
        from feelgood.studies import cluster

        return cluster.on_ray(folder, options.ray_address)
    if options.num_processes > 1:
        return in_processes(folder, progress, options.num_processes)
    return nullcontext(local(folder, progress))


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

    This is useful if one task does not use the whole machine, as on Atari. After Ctrl-C or a failed task, the other
    tasks write their checkpoints and stop.
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
    """A plan of one short task: the table `make(*arguments)`, stored under its name and a hash of `facts`.

    It is computed in one go, without a progress bar or a checkpoint.
    """
    from feelgood.runs.store import fingerprint

    (made,) = yield [Task(name, f"{name}-{fingerprint(facts)}.parquet", partial(_make, make, *arguments))]
    return made


def _make(make: Callable[..., Any], *arguments: Any) -> Any:
    *own, _, _ = arguments  # the progress bar and the path of a checkpoint
    return make(*own)
