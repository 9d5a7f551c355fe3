"""Short tasks: tables that are computed in one go, without a progress bar or a checkpoint."""

from collections.abc import Callable
from functools import partial
from typing import Any

from feelgood.runs import store
from feelgood.studies.engine import Plan, Task


def table(name: str, facts: Any, make: Callable[..., Any], *arguments: Any) -> Plan:
    """A plan of one task: the table `make(*arguments)`, stored under its name and a hash of `facts`."""
    (made,) = yield [Task(name, f"{name}-{store.fingerprint(facts)}.parquet", partial(_make, make, *arguments))]
    return made


def _make(make: Callable[..., Any], *arguments: Any) -> Any:
    *own, _, _ = arguments  # the progress bar and the path of a checkpoint
    return make(*own)
