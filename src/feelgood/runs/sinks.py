"""Where learning curves go while a run is under way: a file, TensorBoard, Weights & Biases, or several of them.

A sink is two functions. One that fails while a run is under way (a network that is gone, a full disk) warns once and
takes nothing more: it never ends a run. One that is asked for and not installed says so before the run begins.

Example:
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

__all__ = ["Sink", "combine", "csv", "guarded", "nothing", "tensorboard", "wandb"]


class Sink(NamedTuple):
    """What takes the numbers of a run.

    Attributes:
      log: `(step, values)`, with values by name; the steps of a run rise.
      close: to be called when the run has ended, well or not; calling it again does nothing.
    """

    log: Callable[[SupportsInt, Mapping[str, Any]], None]
    close: Callable[[], None]


def nothing() -> Sink:
    """Takes everything and keeps nothing."""
    return Sink(lambda step, values: None, lambda: None)


def guarded(name: str, begin: Callable[[], Sink]) -> Sink:
    """A sink that cannot end a run: the first failure, also to begin, is a warning, and then it takes nothing more.

    Args:
      name: for the warning.
      begin: makes the sink.
    """
    sink: Sink | None = None

    def attempt(call: Callable[[], Any]) -> Any:
        nonlocal sink
        try:
            return call()
        except Exception as error:
            sink = None
            why = (str(error) or type(error).__name__).splitlines()[0]
            warnings.warn(f"{name} failed and gets nothing more of this run ({why})", RuntimeWarning, stacklevel=3)

    def log(step: SupportsInt, values: Mapping[str, Any]) -> None:
        if sink is not None:
            own = sink
            attempt(lambda: own.log(int(step), {name: float(value) for name, value in values.items()}))

    def close() -> None:
        nonlocal sink
        if sink is not None:
            own = sink
            attempt(own.close)
            sink = None

    sink = attempt(begin)
    return Sink(log, close)


def combine(*sinks: Sink) -> Sink:
    """One sink for several; each of those that are made here fails for itself alone."""

    def log(step: SupportsInt, values: Mapping[str, Any]) -> None:
        for sink in sinks:
            sink.log(step, values)

    def close() -> None:
        for sink in sinks:
            sink.close()

    return Sink(log, close)


def csv(path: str | Path, *, anew: bool = False) -> Sink:
    """Rows of `step, name, value`, each on disk as soon as it is logged.

    A file that is there is continued. A run that goes on from a checkpoint logs the steps after it a second time; of
    rows with the same step and name, the last one counts. With `anew` the file is written from its beginning, for a
    run that tells its whole curve again.
    """

    def begin() -> Sink:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "w" if anew else "a", newline="")  # noqa: SIM115, closed by the sink
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
        raise ValueError(
            f"sink {extra!r} needs a package that is not installed: pip install 'feelgood[{extra}]'"
        ) from error


def tensorboard(folder: str | Path, *, first_step: int | None = None) -> Sink:
    """Scalars for TensorBoard, written by tensorboardX: `tensorboard --logdir FOLDER` shows them.

    Args:
      folder: of the event files.
      first_step: for a run that goes on: what was logged from this step on is hidden.

    Raises:
      ValueError: if tensorboardX is not installed.
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
      project: that the run belongs to.
      name: of the run.
      folder: for its local files.
      config: hyper-parameters and the like, shown beside it.
      identity: of the run; one that exists is continued, which drops steps that it has already.
      mode: "online", "offline" or "disabled"; None for what WANDB_MODE says.

    Raises:
      ValueError: if wandb is not installed.
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
