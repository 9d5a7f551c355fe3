"""Parses command-line settings such as `step_size=1e-2` and `friction=10,1`; points of grids."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def _read(field: str, form: str, words: Sequence[str], read: Callable[[str], T]) -> dict[str, T]:
    """Parses settings of the form `name=…`.

    Raises:
      ValueError: if a setting has another form or a name is repeated; the message begins with `field`.
    """
    found: dict[str, T] = {}
    for word in words:
        name, _, text = word.partition("=")
        try:
            value = read(text)
        except ValueError:
            raise ValueError(f"{field} must be of the form {form}, got {word!r}") from None
        if not name or name in found:
            raise ValueError(f"{field} must give each name once, got {word!r}")
        found[name] = value
    return found


def read_numbers(field: str, words: Sequence[str]) -> dict[str, float]:
    """Parses `name=number` settings.

    Examples:
      >>> read_numbers("hyper", ["feel_good_weight=0.01", "friction=10"])
      {'feel_good_weight': 0.01, 'friction': 10.0}
    """
    return _read(field, "name=number", words, float)


Value = bool | int | float | str | tuple[int, ...]


def read_values(field: str, words: Sequence[str]) -> dict[str, Value]:
    """Parses `name=value` settings; a value is a number, true, false, several whole numbers, or text.

    Examples:
      >>> read_values("env_settings", ["pixel_scale=0.0625", "life_loss=false", "map_name=8x8"])
      {'pixel_scale': 0.0625, 'life_loss': False, 'map_name': '8x8'}
      >>> read_values("options", ["hidden=50,50"])
      {'hidden': (50, 50)}
    """
    return _read(field, "name=value", words, _value)


def _value(text: str) -> Value:
    if not text:
        raise ValueError
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    whole_numbers = lambda text: tuple(int(part) for part in text.split(","))
    for read in (int, float, whole_numbers):
        with suppress(ValueError):
            return read(text)
    return text


def read_lists(field: str, words: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Parses `name=number,number` settings; a number must not be repeated.

    Examples:
      >>> read_lists("grid", ["step_size=1e-2,1e-3", "friction=1"])
      {'step_size': (0.01, 0.001), 'friction': (1.0,)}
    """
    read = lambda text: tuple(float(number) for number in text.split(","))
    found = _read(field, "name=number,number", words, read)
    for name, numbers in found.items():
        if len(set(numbers)) < len(numbers):
            text = ",".join(f"{number:g}" for number in numbers)
            raise ValueError(f"{field} must not repeat a number, got {name}={text}")
    return found


def grid_points(grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """Every point of a grid.

    Examples:
      >>> grid_points({"step_size": [0.1, 0.01], "friction": [1.0]})
      [{'step_size': 0.1, 'friction': 1.0}, {'step_size': 0.01, 'friction': 1.0}]
    """
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def read_seeds(words: Sequence[str]) -> list[int]:
    """Parses seeds and ranges of seeds; a range includes both ends.

    Examples:
      >>> read_seeds(["7", "0-3"])
      [7, 0, 1, 2, 3]
    """
    found: list[int] = []
    for word in words:
        first, dash, last = str(word).partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 2**32):
            raise ValueError(f"seeds must be whole numbers below 2^32 or ranges such as 0-19, got {word!r}")
        if int(last) - int(first) >= 1_000_000:
            raise ValueError(f"seeds must be at most a million, got {word!r}")
        found += range(int(first), int(last) + 1)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"seeds must be different, at least one, got {' '.join(map(str, words))!r}")
    return found


def seed_text(seeds: Sequence[int]) -> str:
    """Seeds as `read_seeds` takes them, with runs of consecutive seeds as ranges.

    Examples:
      >>> seed_text([0, 1, 2, 7])
      '0-2 7'
    """
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return " ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
