"""Checks of user input: one sentence that names the argument, the value and the allowed values.

Traced values are not checked: inside `jit` or `vmap` they have no value yet.
"""

import math
import sys
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any


def _is_traced(value: Any) -> bool:
    jax = sys.modules.get("jax")  # the command line checks its input before JAX is loaded
    return jax is not None and isinstance(value, jax.core.Tracer)


def _check(name: str, value: Any, allowed: str, is_allowed) -> None:
    import numpy as np  # here, so that help needs no NumPy

    if _is_traced(value):
        return
    with suppress(TypeError, ValueError):
        # NumPy would parse numbers in text.
        if not isinstance(value, str | bytes) and np.all(is_allowed(np.asarray(value, dtype=float))):
            return
    raise ValueError(f"{name} must be {allowed}, got {value!r}")


def check_positive(name: str, value: Any, *, infinite: bool = False) -> None:
    """Require `value > 0`; infinity is allowed only if `infinite`."""
    allowed = "positive (infinity allowed)" if infinite else "positive and finite"
    _check(name, value, allowed, lambda x: (x > 0) & (infinite | (x < math.inf)))


def check_non_negative(name: str, value: Any) -> None:
    """Require a finite `value >= 0`."""
    _check(name, value, "non-negative and finite", lambda x: (x >= 0) & (x < math.inf))


def check_finite(name: str, value: Any) -> None:
    """Require a finite real number."""
    _check(name, value, "a finite real number", lambda x: abs(x) < math.inf)


def check_fraction(name: str, value: Any) -> None:
    """Require `0 <= value < 1`, as for the decay of a moving average."""
    _check(name, value, "in [0, 1)", lambda x: (x >= 0) & (x < 1))


def check_probability(name: str, value: Any) -> None:
    """Require `0 <= value <= 1`."""
    _check(name, value, "in [0, 1]", lambda x: (x >= 0) & (x <= 1))


def check_count(name: str, value: Any, *, minimum: int = 1, maximum: int | None = None) -> Any:
    """Require a whole number of at least `minimum`, and of at most `maximum` if that is given.

    Returns the number as an int, so that 10.0 counts like 10; an array or a traced value as it is.
    """
    _check(name, value, f"a whole number of at least {minimum}", lambda x: (x >= minimum) & (x == x.round()))
    if maximum is not None:
        _check(name, value, f"at most {maximum}", lambda x: x <= maximum)
    is_number = isinstance(value, int | float) or getattr(value, "shape", None) == ()
    return int(value) if is_number and not _is_traced(value) else value


def check_multiple(name: str, value: int, divisor_name: str, divisor: int) -> None:
    """Require a multiple of `divisor`, which the message names."""
    if value % divisor:
        raise ValueError(f"{name} must be a multiple of {divisor_name} = {divisor}, got {value}")


def check_kind(name: str, value: Any, kinds: type | tuple[type, ...], allowed: str) -> None:
    """Require an instance of `kinds`; `allowed` describes them in the message."""
    if not isinstance(value, kinds):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")


def check_names(name: str, values: Iterable[str], choices: Iterable[str]) -> None:
    """Require that all `values` are of `choices` and none is repeated."""
    values, choices = tuple(values), tuple(choices)
    for value in values:
        check_choice(name, value, choices)
    if len(set(values)) < len(values):
        raise ValueError(f"{name} must not repeat, got {values!r}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Require one of `choices`; the error suggests the nearest one."""
    choices = tuple(choices)
    if value in choices:
        return
    text = str(value)
    nearest = [choice for choice in choices if text and choice.startswith(text)]
    nearest = nearest or get_close_matches(text, choices, n=1, cutoff=0.5)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}{hint}")
