"""Plans and engines for tests: small tasks whose results are known."""

import numpy as np
import pandas as pd

from feelgood.studies.engine import Engine, Task


def numbers(name, value, made=None):
    """A task whose table is one number."""

    def run(progress, checkpoint):
        if made is not None:
            made.append(name)
        return pd.DataFrame({"value": [value]})

    return Task(name, f"{name}.parquet", run)


def value_of(table):
    return int(table["value"].iloc[0])


def counting(start, made, rounds=3):
    """A plan in which each round needs the table of the one before: adds 1, then 2, then 3, each as two tasks."""
    total = start
    for i in range(1, rounds + 1):
        one, other = yield [numbers(f"{start}-{i}-{part}", total + part * i, made) for part in (0, 1)]
        assert (value_of(one), value_of(other)) == (total, total + i)
        total = value_of(other)
    return total


def shuffled(seed, under_way=None):
    """An engine that ends tasks in an order of its own; `under_way` notes how many it holds at a time."""
    random = np.random.default_rng(seed)

    def first(tasks):
        if under_way is not None:
            under_way.append(len(tasks))
        i = int(random.integers(len(tasks)))
        return i, tasks[i].run(None, None)

    return Engine(lambda task: task, first, float("inf"), {})


def files_of(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in (".parquet", ".csv") or path.name == "summary.md"
    }
