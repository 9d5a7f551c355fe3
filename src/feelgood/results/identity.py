"""What a function is, in plain words: by these a folder tells whether it holds results of the same one."""

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

__all__ = ["in_words"]


def in_words(value: Any, depth: int = 5) -> Any:
    """For a fingerprint: what a value is, as nested lists of text that are the same in every process.

    A function is its code, its defaults, what it closes over and what it finds among the globals of its module, other
    functions of that module included; an array is its numbers; a record or another object its fields. What lies more
    than `depth` levels deep, and what comes from other modules, is no more than a name.

    Example:
      >>> rewards = np.array([1.0, 2.0])
      >>> pays = lambda action: rewards[action]
      >>> before = in_words(pays)
      >>> rewards[1] = 3.0
      >>> in_words(pays) == before
      False
    """
    return _words(value, depth, None)


def _words(value: Any, depth: int, home: FunctionType | None) -> Any:
    """`home` is the function whose code is being told, for the globals that the code inside it finds."""
    if isinstance(value, str | bytes | int | float | bool | None):
        return repr(value)
    if isinstance(value, type | ModuleType | BuiltinFunctionType) or depth == 0:
        return _name(value)
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        return _array(value)
    deeper = functools.partial(_words, depth=depth - 1, home=home)
    if isinstance(value, CodeType):
        parts = (*value.co_consts, *_found(value, home))
        return [value.co_code.hex(), list(value.co_names), [deeper(each) for each in parts]]
    if isinstance(value, FunctionType):
        closed = []
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # nothing is in it yet
                closed.append(cell.cell_contents)
        parts = (value.__code__, value.__defaults__, value.__kwdefaults__, *closed)
        return [_words(part, depth if part is value.__code__ else depth - 1, value) for part in parts]
    if isinstance(value, functools.partial):
        return [_words(each, depth, home) for each in (value.func, value.args, value.keywords)]
    if isinstance(value, Mapping):
        return [[deeper(name), deeper(each)] for name, each in value.items()]
    if isinstance(value, list | tuple):
        return [deeper(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(str(deeper(each)) for each in value)
    if hasattr(value, "__wrapped__"):  # as `jax.jit` leaves a function
        return deeper(value.__wrapped__)
    if hasattr(value, "__func__") and hasattr(value, "__self__"):
        return [deeper(value.__func__), deeper(value.__self__)]
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
        return [_name(value), deeper(fields)]
    if hasattr(value, "__dict__"):  # which may lead anywhere, so not far
        return [_name(value), _words(vars(value), min(depth - 1, 2), home)]
    return _name(value)


def _found(code: CodeType, home: FunctionType | None) -> list[Any]:
    """What the code finds among its globals, but for modules, classes and functions of other modules."""
    if home is None:
        return []
    found = [home.__globals__[name] for name in code.co_names if name in home.__globals__]
    apart = lambda each: isinstance(each, FunctionType) and each.__module__ != home.__module__
    return [each for each in found if each is not home and not isinstance(each, ModuleType | type) and not apart(each)]


def _array(value: Any) -> Any:
    try:
        numbers = np.asarray(value)
    except TypeError:  # a JAX key
        return _name(value)
    return [str(numbers.dtype), list(numbers.shape), hashlib.sha256(numbers.tobytes()).hexdigest()]


def _name(value: Any) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', getattr(value, '__name__', ''))}"
