"""Parsing of options: errors are one sentence, and help groups the options."""

import sys
import warnings
from dataclasses import dataclass
from typing import Literal

import pytest

from feelgood.cli.parsing import parse_options
from feelgood.studies.options import grouped


@dataclass(frozen=True)
class Options:
    """Options of a command."""

    num_seeds: int = 3
    rate: float = 0.1
    preset: Literal["quick", "paper"] = "quick"
    names: tuple[str, ...] = ()
    num_steps: int | None = None
    environment: str = "nchain-25"
    lengths: tuple[int, ...] = grouped("size", (4, 8))
    """Lengths, in a docstring
    of two lines."""

    def __post_init__(self):
        if self.rate > 1:
            warnings.warn("rate is large", stacklevel=1)
        if self.rate < 0:
            raise ValueError("rate must not be negative")


def parse(*arguments):
    return parse_options(Options, arguments, "feelgood do", "feelgood do --rate 1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--num-seeds", "abc"], "--num-seeds must be a whole number, got 'abc'"),
        (["--num-seeds", "1.5"], "--num-seeds must be a whole number, got '1.5'"),
        (["--rate", "fast"], "--rate must be a number, got 'fast'"),
        (["--preset", "slow"], "--preset must be one of 'quick', 'paper', got 'slow'"),
        (["--preset", "papre"], "--preset must be one of 'quick', 'paper', got 'papre'; did you mean 'paper'?"),
        (["--num-seed", "3"], "unrecognized options: --num-seed, 3; did you mean --num-seeds?"),
        (["--everything"], "unrecognized options: --everything"),
        (["--num-steps", "1e20"], "--num-steps must be a whole number in digits, got '1e20'"),
        (["--env", "CartPole-v1"], "unrecognized options: --env, CartPole-v1; did you mean --environment?"),
        (["CartPole-v1"], "unrecognized options: CartPole-v1; did you mean --environment CartPole-v1?"),
        (["--num-steps", "None"], "--num-steps must be a whole number, got 'None'"),
        (["--lengths", "4", "1e3"], "--lengths must be whole numbers, got '4', '1e3'"),
        (["--rate"], "missing value for argument '--rate'. Expected 1 values"),
    ],
)
def test_complaints_are_one_sentence(arguments, message, capsys):
    with pytest.raises(ValueError, match=r"--help lists the options") as caught:
        parse(*arguments)
    assert str(caught.value) == f"{message} (feelgood do --help lists the options)"
    assert capsys.readouterr() == ("", "")


def test_complaints_are_one_sentence_on_a_terminal_too(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for arguments, message in (
        (
            ["--num-seeds", "abc"],
            "--num-seeds must be a whole number, got 'abc' (feelgood do --help lists the options)",
        ),
        (["--rate", "-1"], "rate must not be negative"),
    ):
        with pytest.raises(ValueError, match="must") as caught:
            parse(*arguments)
        assert str(caught.value) == message


def test_errors_of_the_options_are_raised():
    with pytest.raises(ValueError, match=r"^rate must not be negative$"):
        parse("--rate", "-1")


def test_valid_options_are_accepted_and_warnings_are_printed():
    with pytest.warns(UserWarning, match="rate is large"):
        assert parse("--rate", "2", "--names", "a", "b") == Options(rate=2.0, names=("a", "b"))


def test_grouped_options_have_a_box_of_their_own_and_names_without_a_prefix(capsys):
    assert parse("--lengths", "16") == Options(lengths=(16,))
    with pytest.raises(SystemExit):
        parse("--help")
    everyday, size = capsys.readouterr().out.split(" size options ")
    assert " options " in everyday
    assert "--num-steps INT" in everyday
    assert "--lengths" not in everyday
    assert "--lengths [INT ...] Lengths, in a docstring of two lines. (default: 4 8)" in " ".join(size.split())


def test_the_help_ends_with_the_example(capsys):
    with pytest.raises(SystemExit) as end:
        parse("--help")
    assert not end.value.code
    assert capsys.readouterr().out.endswith("example: feelgood do --rate 1\n")
