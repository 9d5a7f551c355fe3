"""Parameters of tests, of which `make test` runs some and `make test-slow` the others."""

from collections.abc import Collection, Iterable

import pytest


def fast_only(fast: Collection[str], names: Iterable[str]) -> list:
    """The names as parameters; those that are not in `fast` are marked as slow."""
    names = tuple(names)
    assert set(fast) <= set(names)
    return [pytest.param(name, marks=() if name in fast else pytest.mark.slow) for name in names]
