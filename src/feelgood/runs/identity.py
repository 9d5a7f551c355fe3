"""What a function is, in plain words: by these a folder tells whether it holds results of the same one."""

import dataclasses
import dis
import functools
import hashlib
import logging
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

__all__ = ["in_words"]

_DEPTH = 40
_FAR = 3  # into objects of other modules, which may lead anywhere
_OF_EVERY_CLASS = ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__")


def in_words(value: Any) -> Any:
    """For a fingerprint: what a value is, as nested lists of text that are the same in every process.

    A function is its code, its defaults, what it closes over and, if you wrote it, what it finds among its globals; an
    array is its numbers; a class that you wrote is all that is in it; a record or another object its class and its
    fields. What is of an installed package, or of this one, is its name.

    Example:
      >>> paying = lambda rewards: lambda action: rewards[action]
      >>> in_words(paying(np.array([1.0, 2.0]))) == in_words(paying(np.array([1.0, 2.0])))
      True
      >>> in_words(paying(np.array([1.0, 2.0]))) == in_words(paying(np.array([1.0, 3.0])))
      False
    """
    return _Teller().tell(value)


@functools.cache
def _is_yours(module: str | None) -> bool:
    """Whether a module is neither of this package, nor of an installed one, nor of Python itself."""
    if not module or module.partition(".")[0] == "feelgood":
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:  # typed in, or built into Python
        return module == "__main__"
    homes = [Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib", "stdlib")]
    return not any(Path(file).resolve().is_relative_to(home) for home in homes)


class _Teller:
    """Tells of values, and of each once: what was told of before is a number."""

    def __init__(self):
        self.told: dict[int, tuple[int, Any]] = {}

    def tell(self, value: Any, depth: int = _DEPTH, names: Mapping[str, Any] | None = None) -> Any:
        """`names` are the globals of the function whose code is being told."""
        if isinstance(value, str | bytes | int | float | complex | bool | None):
            return repr(value)
        if isinstance(value, ModuleType | BuiltinFunctionType | logging.Logger) or depth <= 0:
            return _name(value)
        if isinstance(value, type) and not _is_yours(value.__module__):
            return _name(value)
        if id(value) in self.told:
            return f"as {self.told[id(value)][0]}"
        self.told[id(value)] = len(self.told), value  # which keeps it alive, and its id its own
        return self._parts(value, depth, names)

    def _parts(self, value: Any, depth: int, names: Mapping[str, Any] | None) -> Any:
        deeper = functools.partial(self.tell, depth=depth - 1, names=names)
        if hasattr(value, "__array__") and hasattr(value, "dtype"):
            return self._array(value, depth)
        if isinstance(value, CodeType):
            return [value.co_code.hex(), list(value.co_names), *map(deeper, (*value.co_consts, *_found(value, names)))]
        if isinstance(value, FunctionType):
            return self._function(value, depth)
        if isinstance(value, type):
            return [_name(value), deeper({k: v for k, v in vars(value).items() if k not in _OF_EVERY_CLASS})]
        if isinstance(value, functools.partial):
            return [deeper(each) for each in (value.func, value.args, value.keywords)]
        if isinstance(value, Mapping):
            return [[deeper(name), deeper(each)] for name, each in value.items()]
        if isinstance(value, list | tuple):
            return [deeper(each) for each in value]
        if isinstance(value, set | frozenset):
            return sorted(str(deeper(each)) for each in value)
        if hasattr(value, "__wrapped__"):  # as `jax.jit` leaves a function
            return deeper(value.__wrapped__)
        if hasattr(value, "__func__"):  # a method
            return [deeper(value.__func__), deeper(getattr(value, "__self__", None))]
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
            return [deeper(type(value)), deeper(fields)]
        if isinstance(value, property):
            return [deeper(each) for each in (value.fget, value.fset, value.fdel)]
        if not hasattr(value, "__dict__"):
            return _name(value)
        depth = depth if _is_yours(type(value).__module__) else min(depth, _FAR)
        return [self.tell(type(value), depth - 1), self.tell(vars(value), depth - 1)]

    def _function(self, value: FunctionType, depth: int) -> Any:
        closed = []
        for cell in value.__closure__ or ():
            with suppress(ValueError):  # nothing is in it yet
                closed.append(cell.cell_contents)
        names = value.__globals__ if _is_yours(value.__module__) else None
        parts = (value.__code__, value.__defaults__, value.__kwdefaults__, *closed)
        return [self.tell(part, depth - 1, names) for part in parts]

    def _array(self, value: Any, depth: int) -> Any:
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        numbers = np.asarray(value)
        if numbers.dtype.hasobject:
            return self.tell(numbers.tolist(), depth - 1)
        return [str(numbers.dtype), list(numbers.shape), hashlib.sha256(numbers.tobytes()).hexdigest()]


def _found(code: CodeType, names: Mapping[str, Any] | None) -> list[Any]:
    """What the code finds among its globals, but for functions of packages, whose names it has."""
    if names is None:
        return []
    read = [each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    found = [names[name] for name in dict.fromkeys(read) if name in names]
    return [each for each in found if _is_yours(getattr(each, "__module__", "")) or not callable(each)]


def _name(value: Any) -> str:
    named = value if hasattr(value, "__qualname__") else type(value)
    own = getattr(value, "name", "") if isinstance(value, logging.Logger) else getattr(value, "__name__", "")
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')} {own}".strip()
