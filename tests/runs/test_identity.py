"""Functions and objects are identified by names and numbers, equally in every process."""

import copy
import logging
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.envs import nchain
from feelgood.envs.conversion import functional_as_external
from feelgood.runs.identity import identity


@dataclass
class Doors:
    prize: float
    table: np.ndarray

    def open(self, x):
        return self.prize * x


class Plain:
    def __init__(self, prize):
        self.prize = prize

    def __call__(self, x):
        return self.prize * x


def print_of(function):
    return repr(identity(function))


def test_functions_are_identified_by_name_defaults_and_closed_over_values():
    def scaled(factor, power=1):
        return lambda x: factor * x**2

    def cubed(factor):
        return lambda x: factor * x**3

    def itself():
        return itself

    def early():
        return later  # not known yet, nor asked for

    assert print_of(scaled(2.0)) == print_of(scaled(2.0))
    assert len({print_of(f) for f in (scaled(2.0), scaled(3.0), cubed(2.0), partial(scaled, 2.0))}) == 4
    assert print_of(partial(scaled, 2.0, power=1)) != print_of(partial(scaled, 2.0, power=2))
    assert print_of(itself)  # ends
    assert print_of(early)
    later = 1


def test_arrays_count_by_their_numbers_wherever_they_are():
    def closes_over(array):
        return lambda action: array[action]

    def has_default(array):
        return lambda action, table=array: table[action]

    for make in (closes_over, has_default, lambda array: partial(np.take, array), lambda array: Doors(1.0, array).open):
        for kind in (np.array, jnp.array):
            assert print_of(make(kind([1.0, 2.0]))) == print_of(make(kind([1.0, 2.0])))
            assert print_of(make(kind([1.0, 2.0]))) != print_of(make(kind([1.0, 3.0])))
    assert print_of(closes_over(np.zeros(2))) != print_of(closes_over(np.zeros((2, 1))))
    assert print_of(closes_over(jax.random.key(0)))


def test_attributes_of_objects_and_compiled_functions_count():
    assert print_of(Plain(1.0)) == print_of(Plain(1.0)) != print_of(Plain(2.0))
    assert print_of(Plain(1.0).__call__) != print_of(Plain(2.0).__call__)
    times = lambda factor: lambda x: factor * x
    assert print_of(jax.jit(times(2))) == print_of(jax.jit(times(2))) != print_of(jax.jit(times(3)))
    assert print_of(nchain(5).step) == print_of(nchain(5).step) != print_of(nchain(6).step)


def test_identities_are_equal_in_another_process():
    imports = "from feelgood.envs import nchain; from feelgood.runs.identity import identity"
    code = f"{imports}; print(identity(nchain(5).step))"
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert said[0].stdout == said[1].stdout
    assert "object at 0x" not in said[0].stdout


def test_keys_and_arrays_of_objects_count_by_their_contents():
    over = lambda value: lambda: value
    assert print_of(over(jax.random.key(0))) == print_of(over(jax.random.key(0))) != print_of(over(jax.random.key(1)))
    texts = lambda last: over(np.array(["a", last], object))
    assert print_of(texts("b")) == print_of(texts("b")) != print_of(texts("c"))


def test_sets_ranges_paths_and_fractions_count_by_their_contents():
    pairs = [
        ({1}, {2}),
        (frozenset({"a"}), frozenset({"b"})),
        ({(1, "a"), (2, "b")}, {(1, "b"), (2, "a")}),
        (range(3), range(4)),
        (slice(3), slice(4)),
        (deque([1, 2]), deque([2, 1])),
        (Path("a"), Path("b")),
        (Fraction(1, 2), Fraction(1, 3)),
    ]
    for one, other in pairs:
        assert identity(one) == identity(copy.copy(one)) != identity(other)
        assert identity(Plain(one)) == identity(Plain(copy.copy(one))) != identity(Plain(other))
    assert identity({1}) != identity(frozenset({1}))
    code = "from feelgood.runs.identity import identity; print(identity({'a', 'b', 'c', ('d', 'e')}))"
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert said[0].stdout == said[1].stdout == f"{identity({'a', 'b', 'c', ('d', 'e')})}\n"


@dataclass
class Game:
    door: Doors


class Outer:
    def __init__(self, inner, size):
        self.inner, self.size = inner, size


def test_nested_records_count_and_nested_objects_count_by_their_class():
    game = lambda prize: Game(Doors(prize, np.ones(2)))
    assert print_of(game(1.0)) == print_of(game(1.0)) != print_of(game(2.0))
    assert print_of(Outer(Plain(1.0), 3)) == print_of(Outer(Plain(2.0), 3)) != print_of(Outer(Plain(1.0), 4))
    assert print_of(Outer(Plain(1.0), 3)) != print_of(Outer(logging.getLogger("identity"), 3))


def test_values_under_many_wrappers_count():
    def wrapped(table):
        step = lambda x: table[x]
        for _ in range(8):
            step = lambda x, inner=step: inner(x)
        return step

    assert print_of(wrapped(np.arange(3))) == print_of(wrapped(np.arange(3))) != print_of(wrapped(np.arange(1, 4)))
    reward = lambda reward: functional_as_external(nchain(5, large_reward=reward)).make
    assert print_of(reward(1.0)) == print_of(reward(1.0)) != print_of(reward(2.0))


def test_code_and_global_variables_do_not_count():
    first, second = {"__name__": "mine", "factor": 1}, {"__name__": "mine", "factor": 2}
    exec("def step(x): return factor * x", first)
    exec("def step(x):\n    y = factor * x\n    return y", second)
    assert print_of(first["step"]) == print_of(second["step"])
    assert "mine.step" in print_of(first["step"])


def test_functions_that_close_over_each_other_are_visited_once():
    def make(others):
        return lambda: others

    functions = []
    functions += [make(functions) for _ in range(30)]
    assert len(print_of(functions[0])) < 100_000
