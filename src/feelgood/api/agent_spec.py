"""The agent to train, and checks of the arguments of `feelgood.train`."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from feelgood.agents import ZOO, Agent, AgentState, Options, Spaces, anneal, check_hyper, complete
from feelgood.checks import check_choice, check_count, check_finite, check_kind
from feelgood.envs.external import ExternalEnvironment
from feelgood.runs import store
from feelgood.runs.identity import identity
from feelgood.training.acting import policy_of
from feelgood.training.policy import Origin, Policy, zoo_agent
from feelgood.typing import Scalar

MakeAgent = Callable[[Spaces, Any], Agent]


class AgentSpec(NamedTuple):
    """Everything about an agent except its state.

    Attributes:
      name: in the zoo, or "own".
      make: `(spaces, hyper) -> Agent`.
      hyper: all hyper-parameters.
      options: options of an agent of the zoo.
      schedule: `(hyper, progress) -> hyper`.
    """

    name: str
    make: MakeAgent
    hyper: Mapping[str, float]
    options: Options
    schedule: Callable[[Any, Scalar], Any]

    def policy(
        self, state: AgentState, environment: ExternalEnvironment, origin: Origin, training: Mapping[str, Any]
    ) -> Policy:
        """The policy of a trained agent; `training` holds the settings of its run."""
        rest = {"num_chains": training.get("num_chains", 1), "schedule": self.schedule, "training": training}
        acting = policy_of(state)
        return Policy(environment, self.make, self.hyper, acting, self.name, origin, self.options, **rest)


def agent_spec(
    agent: str | MakeAgent,
    hyper: Mapping[str, Any] | None,
    options: Options,
    schedule: Callable[[Any, Scalar], Any],
    defaults: Callable[[str], Mapping[str, float]] = lambda name: ZOO[name].hyper,
) -> AgentSpec:
    """An agent by name, or your own, with all its hyper-parameters; `defaults` returns those of an agent of the zoo."""
    given = dict(hyper or {})
    for name, value in given.items():
        check_kind(f"hyper-parameter {name}", value, (int, float, np.number), "a number")
        if name.removesuffix("_end") != "inverse_temperature":  # which may be infinite
            check_finite(f"hyper-parameter {name}", value)
        if callable(agent) and name.endswith("_end") and schedule is anneal:
            starts = [each for each in given if not each.endswith("_end")]
            check_choice(f"start of hyper-parameter {name}", name.removesuffix("_end"), starts)
    if callable(agent):
        return AgentSpec("own", agent, given, options, schedule)
    check_choice("agent", agent, ZOO)
    whole = dict(defaults(agent))
    for name in given:
        # Any hyper-parameter may have a final value, `…_end`.
        check_choice(f"hyper-parameter of {agent}", name if name in whole else name.removesuffix("_end"), whole)
    check_hyper(given)
    whole |= given
    options = complete(agent, options)
    return AgentSpec(agent, zoo_agent(agent, options), whole, options, schedule)


class _Given(dict):
    """Hyper-parameters that name a missing one in a sentence."""

    def __missing__(self, name: str):
        raise ValueError(f"hyper must have {name!r}, which the agent reads, got {dict(self)!r}")


def check_agent(spec: AgentSpec, spaces: Spaces) -> None:
    """Makes the agent once, so that its errors are raised before anything runs."""
    call = "(spaces, hyper) that returns a feelgood.agents.Agent"
    check_function("agent", spec.make, call)
    made = spec.make(spaces, _Given(spec.schedule(dict(spec.hyper), 0.0)))
    if not isinstance(made, Agent):
        raise ValueError(f"agent must be a function {call}, got one that returns {made!r}")


FINGERPRINTS = ("your own agent", "your own environment", "schedule")
"""Settings of a run that are functions; only a hash of their `identity` is stored."""


def settings_of(
    spec: AgentSpec, name: str, config: Any, own: Any = None, env_settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All settings of a run but its seed, by name; `own` is the environment if the user's own code makes it."""
    functions = (None if spec.name in ZOO else spec.make, own, spec.schedule)
    return {
        "agent": spec.name,
        "environment": name,
        "env_settings": dict(env_settings or {}),
        "hyper": dict(spec.hyper),
        "options": vars(spec.options),
        "config": vars(config),
        **{name: store.fingerprint(identity(each)) for name, each in zip(FINGERPRINTS, functions, strict=True)},
    }


def label_of(spec: AgentSpec, *facts: Any) -> str:
    """Identifies the run of a checkpoint; your own functions count by their `identity`."""
    make = None if spec.name in ZOO else identity(spec.make)
    if spec.schedule is not anneal:
        facts = (*facts, identity(spec.schedule))
    return f"{spec.name} {store.fingerprint(dict(spec.hyper), vars(spec.options), make, *facts)}"


def check_function(name: str, function: Any, call: str) -> None:
    """Requires a function that can be called with two arguments."""
    check_kind(name, function, Callable, f"a function {call}")  # type: ignore[arg-type]
    try:
        with suppress(ValueError):  # a function of a compiled module has no signature
            inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise ValueError(f"{name} must be a function {call}, got {function!r}: {error}") from error


def check_kinds(hyper: Any, options: Any, env_settings: Any) -> None:
    """Refuses arguments of `feelgood.train` of a wrong type."""
    for name, value in (("hyper", hyper), ("env_settings", env_settings)):
        check_kind(name, value, (Mapping, NoneType), "a mapping from names to values")
        for key in value or ():
            check_kind(f"{name}'s names", key, str, "words")
    check_kind("options", options, (Options, Mapping, NoneType), "a mapping from names to values, or Options")


def options_of(given: Options | Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> Options:
    """`Options` unchanged, or the defaults updated by the given values."""
    if isinstance(given, Options):
        return given
    given = given or {}
    for name in given:
        check_choice("option", name, [each.name for each in fields(Options)])
    return Options(**{**defaults, **given})


def seeds_of(seeds: int | Sequence[int]) -> list[int]:
    """One seed or several, as a list."""
    check_kind("seeds", seeds, (int, np.integer, Iterable), "a whole number or several")
    given: Any = seeds.tolist() if isinstance(seeds, np.ndarray) else seeds
    several: list[Any] = [given] if isinstance(given, str | int | np.integer) else list(given)
    for seed in several:
        check_kind("seeds", seed, (str, int, float, np.number), "whole numbers")
        check_count("seeds", seed, minimum=0)
    if not several or len({*several}) < len(several) or max(several) >= 2**32:
        raise ValueError(f"seeds must be different whole numbers below 2^32, at least one, got {several!r}")
    return [int(seed) for seed in several]


def config_of(kind: Any, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """A config with the given values, then the defaults, then its own defaults."""
    known: dict[str, Any] = {each.name: type(each.default) for each in fields(kind)}
    hypers = {name for recipe in ZOO.values() for name in recipe.hyper}
    options = {each.name for each in fields(Options)}
    for name, value in given.items():
        if name not in known and name in hypers | options:
            place = "hyper" if name in hypers else "options"
            raise ValueError(f"{name!r} is not a setting of a run: it belongs into {place}")
        check_choice("setting", name, known)
        check_kind(name, value, (int, float, np.number), "a number")
        check_count(name, value, minimum=0) if known[name] is int else check_finite(name, value)
    return kind(**{**defaults, **{name: known[name](value) for name, value in given.items()}})
