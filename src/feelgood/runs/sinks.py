"""Sinks that log learning curves during a run: a file, TensorBoard, Weights & Biases, or several of them.

A sink is a pair of functions. If a sink fails during a run (lost network, full disk), it warns once and drops all
further values; it never stops the run. If its package is not installed, an error is raised before the run starts.

Examples:
  >>> sink = combine(csv("runs/mine/log.csv"), tensorboard("runs/mine"))  # doctest: +SKIP
  >>> sink.log(1000, {"return": 3.5, "potential": 0.2})  # doctest: +SKIP
  >>> sink.close()  # doctest: +SKIP
"""

import importlib
import warnings
from collections.abc import Callable, Mapping
from csv import writer
from pathlib import Path
from typing import Any, NamedTuple, SupportsInt

from feelgood.files import open_own


class Sink(NamedTuple):
    """A logger of the values of a run.

    Attributes:
      log: `(step, values)`, with values by name; steps increase.
      close: called once the run has ended or failed; further calls do nothing.
    """

    log: Callable[[SupportsInt, Mapping[str, Any]], None]
    close: Callable[[], None]


def guarded(name: str, begin: Callable[[], Sink]) -> Sink:
    """A sink that cannot stop a run: its first failure becomes a warning, and later values are dropped.

    `name` stands in the warning. `begin` creates the sink; a failure there is a warning too.
    """
    sink: Sink | None = None

    def attempt(call: Callable[[], Any]) -> Any:
        nonlocal sink
        try:
            return call()
        except Exception as error:
            sink = None
            why = (str(error) or type(error).__name__).splitlines()[0]
            warnings.warn(f"{name} failed and logs nothing more of this run ({why})", RuntimeWarning, stacklevel=3)

    def log(step: SupportsInt, values: Mapping[str, Any]) -> None:
        if (own := sink) is not None:
            attempt(lambda: own.log(int(step), {name: float(value) for name, value in values.items()}))

    def close() -> None:
        nonlocal sink
        if sink is not None:
            attempt(sink.close)
            sink = None

    sink = attempt(begin)
    return Sink(log, close)


def combine(*sinks: Sink) -> Sink:
    """Logs to several sinks; a failure of one sink of this module does not affect the others."""

    def log(step: SupportsInt, values: Mapping[str, Any]) -> None:
        for sink in sinks:
            sink.log(step, values)

    def close() -> None:
        for sink in sinks:
            sink.close()

    return Sink(log, close)


def csv(path: str | Path, *, overwrite: bool = False) -> Sink:
    """Writes rows of `step, name, value`, flushed at every call.

    An existing file is appended to, unless `overwrite`. A resumed run logs the steps after its checkpoint a second
    time; of rows with the same step and name, the last one counts.
    """

    def begin() -> Sink:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "w" if overwrite else "a", newline="", opener=open_own)  # noqa: SIM115, closed by the sink
        rows = writer(file, lineterminator="\n")
        if file.tell() == 0:
            rows.writerow(["step", "name", "value"])

        def log(step: SupportsInt, values: Mapping[str, Any]) -> None:
            rows.writerows([step, name, value] for name, value in values.items())
            file.flush()

        return Sink(log, file.close)

    return guarded(f"csv {path}", begin)


def _needed(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        how = f"pip install 'feelgood[{extra}]'"
        raise ValueError(f"sink {extra!r} needs a package that is not installed: {how}") from error


def tensorboard(folder: str | Path, *, first_step: int | None = None) -> Sink:
    """Scalars for TensorBoard, written by tensorboardX: `tensorboard --logdir FOLDER` shows them.

    For a resumed run, earlier logs from `first_step` on are hidden.
    """
    package = _needed("tensorboardX", "tensorboard")

    def begin() -> Sink:
        events = package.SummaryWriter(str(folder), purge_step=first_step)

        def log(step: SupportsInt, values: Mapping[str, Any]) -> None:
            for name, value in values.items():
                events.add_scalar(name, value, step)

        return Sink(log, events.close)

    return guarded(f"tensorboard {folder}", begin)


def wandb(
    project: str,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    config: Mapping[str, Any] | None = None,
    identity: str | None = None,
    mode: str | None = None,
) -> Sink:
    """A run of Weights & Biases.

    Args:
      project: project of the run called `name`.
      folder: folder for local files.
      config: hyper-parameters and other settings to store with the run.
      identity: id of the run; an existing run is continued, and steps that it already has are dropped.
      mode: "online", "offline" or "disabled"; None for the value of WANDB_MODE.
    """
    package = _needed("wandb", "wandb")

    def begin() -> Sink:
        run = package.init(
            project=project,
            name=name,
            dir=None if folder is None else str(folder),
            config=None if config is None else dict(config),
            id=identity,
            resume=None if identity is None else "allow",
            mode=mode,
        )
        return Sink(lambda step, values: run.log(values, step=step), run.finish)

    return guarded(f"wandb {project}", begin)
