"""Identity of functions and objects by names and numbers, to recognise the run that a checkpoint belongs to."""

import dataclasses
import functools
import hashlib
from collections import deque
from collections.abc import Mapping, Set
from contextlib import suppress
from numbers import Number
from pathlib import PurePath
from types import FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np


def identity(value: Any) -> Any:
    """Nested lists of text that identify a value; they are equal in every process and every version of Python.

    A function is identified by its qualified name, its defaults and the values that it closes over; an array by its
    numbers; a record or a dataclass by its class and fields; another object by its class and all attributes
    that are numbers, text, paths, arrays, functions or containers of these. Code and global variables do not count.

    Examples:
      >>> paying = lambda rewards: lambda action: rewards[action]
      >>> identity(paying(np.array([1.0, 2.0]))) == identity(paying(np.array([1.0, 2.0])))
      True
      >>> identity(paying(np.array([1.0, 2.0]))) == identity(paying(np.array([1.0, 3.0])))
      False
    """
    return _identity(value, {}, False)


def _identity(value: Any, seen: dict[int, tuple[int, Any]], in_object: bool) -> Any:
    """`seen` holds the values met so far, so that cycles end; `in_object` is whether `value` is part of an object."""
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return repr(value)
    if isinstance(value, type | ModuleType):
        return _name(value)
    if id(value) in seen:
        return f"value {seen[id(value)][0]}"
    seen[id(value)] = len(seen), value  # the reference keeps the id unique
    inner = functools.partial(_identity, seen=seen, in_object=in_object)
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
        numbers = np.asarray(jax.random.key_data(value) if is_key else value)
        if numbers.dtype.hasobject:
            return inner(numbers.tolist())
        return [str(numbers.dtype), list(numbers.shape), hashlib.sha256(numbers.tobytes()).hexdigest()]
    if isinstance(value, Mapping):
        return [[inner(name), inner(item)] for name, item in value.items()]
    if isinstance(value, Set):
        return [_name(type(value)), *sorted((_identity(item, dict(seen), in_object) for item in value), key=repr)]
    if isinstance(value, Number | PurePath | range | slice):
        return [_name(type(value)), repr(value)]
    if isinstance(value, list | tuple | deque):
        return [_name(type(value)), *map(inner, value)]
    if isinstance(value, functools.partial):
        return [inner(part) for part in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return [inner(value.__func__), inner(value.__self__)]
    if isinstance(value, FunctionType):
        closed = []
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # the cell is still empty
                closed.append(cell.cell_contents)
        return [_name(value), *map(inner, (value.__defaults__, value.__kwdefaults__, *closed))]
    if hasattr(value, "__wrapped__"):  # as on the result of `jax.jit`
        return inner(value.__wrapped__)
    if not hasattr(value, "__dict__"):
        return _name(value)
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        return [_name(type(value)), inner(fields)]
    return [_name(type(value)), {} if in_object else _identity(vars(value), seen, True)]


def _name(value: Any) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
