"""Functions are told apart by all that they do, and are the same in every process."""

import logging
import subprocess
import sys
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.envs import nchain
from feelgood.envs.external import functional_as_external
from feelgood.runs.identity import in_words

FACTOR = 2.0
TABLE = np.array([1.0, 2.0])


def from_globals(x):
    return helper(x) + TABLE[0]


def helper(x):
    return FACTOR * x


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
    return repr(in_words(function))


def test_functions_are_told_apart_by_their_code_and_what_they_close_over():
    def scaled(factor, power=1):
        return lambda x: factor * x**2

    def itself():
        return itself

    def early():
        return later  # not known yet, nor asked for

    assert print_of(scaled(2.0)) == print_of(scaled(2.0))
    assert len({print_of(f) for f in (scaled(2.0), scaled(3.0), lambda x: 2.0 * x**3, partial(scaled, 2.0))}) == 4
    assert print_of(lambda: scaled(2.0)) != print_of(lambda: scaled(3.0))
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


def test_globals_and_functions_of_the_same_module_count(monkeypatch):
    before = print_of(from_globals)
    assert print_of(from_globals) == before
    for name, value in (("FACTOR", 3.0), ("TABLE", np.array([1.0, 7.0])), ("helper", lambda x: x)):
        with monkeypatch.context() as patch:
            patch.setitem(globals(), name, value)
            assert print_of(from_globals) != before
    assert print_of(from_globals) == before


def test_fields_of_objects_count_and_so_does_what_is_compiled():
    assert print_of(Plain(1.0)) == print_of(Plain(1.0)) != print_of(Plain(2.0))
    assert print_of(Plain(1.0).__call__) != print_of(Plain(2.0).__call__)
    assert print_of(jax.jit(lambda x: 2 * x)) != print_of(jax.jit(lambda x: 3 * x))
    assert print_of(nchain(5).step) == print_of(nchain(5).step) != print_of(nchain(6).step)


def test_words_are_the_same_in_another_process():
    imports = "from feelgood.envs import nchain; from feelgood.runs.identity import in_words"
    code = f"{imports}; print(in_words(nchain(5).step))"
    said = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert said[0].stdout == said[1].stdout
    assert "object at 0x" not in said[0].stdout


def test_keys_and_arrays_of_objects_count_by_what_is_in_them():
    over = lambda value: lambda: value
    assert print_of(over(jax.random.key(0))) == print_of(over(jax.random.key(0))) != print_of(over(jax.random.key(1)))
    texts = lambda last: over(np.array(["a", last], object))
    assert print_of(texts("b")) == print_of(texts("b")) != print_of(texts("c"))


class Slippery:
    slip = 0.1

    def moves(self, x):
        return self.helper(x) > self.slip

    def helper(self, x):
        return x


def test_what_is_in_a_class_counts(monkeypatch):
    before = print_of(Slippery().moves)
    assert print_of(Slippery().moves) == before
    for name, value in (("slip", 0.9), ("helper", lambda self, x: 2 * x)):
        with monkeypatch.context() as patch:
            patch.setattr(Slippery, name, value)
            assert print_of(Slippery().moves) != before


def test_what_lies_under_many_wrappers_counts():
    def wrapped(table):
        step = lambda x: table[x]
        for _ in range(8):
            step = lambda x, inner=step: inner(x)
        return step

    assert print_of(wrapped(np.arange(3))) == print_of(wrapped(np.arange(3))) != print_of(wrapped(np.arange(1, 4)))
    reward = lambda reward: functional_as_external(nchain(5, large_reward=reward)).make
    assert print_of(reward(1.0)) == print_of(reward(1.0)) != print_of(reward(2.0))


LOGGER = logging.getLogger("identity")
position = 1


def test_what_does_not_matter_does_not_count(monkeypatch):
    def logs(state):
        LOGGER.debug("%s", state)
        return state.position

    before = print_of(logs)
    LOGGER.setLevel("INFO")
    LOGGER.info("something")
    monkeypatch.setitem(globals(), "position", 3)  # which the code names as an attribute only
    assert print_of(logs) == before


def test_functions_that_call_each_other_are_told_once():
    names = {}
    for i in range(30):
        exec(f"def f{i}(): return [{', '.join(f'f{j}' for j in range(30))}]", names)
    for i in range(30):
        names[f"f{i}"].__module__ = __name__
    assert len(print_of(names["f0"])) < 100_000
