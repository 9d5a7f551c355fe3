"""The rules that a Gymnasium environment must keep to be trained on, checked one by one."""

import math
import numbers
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import data_equivalence


class Finding(NamedTuple):
    """A rule, and how the environment breaks it; an empty `problem` if it keeps the rule."""

    rule: str
    problem: str = ""


class _BrokenError(Exception):
    """The environment breaks the current rule."""


def check_rules(make: Callable[[], gymnasium.Env], num_steps: int = 2_000, seed: int = 0) -> list[Finding]:
    """Plays random actions and returns a finding for each rule, up to the first that is broken.

    Args:
      make: makes the environment.
      num_steps: steps to play; an episode must end within them.
      seed: seed of the environment and of the actions.
    """
    findings, rule = [], "it can be made"
    try:
        for rule, check in _rules(make, num_steps, seed):
            check()
            findings.append(Finding(rule))
    except _BrokenError as broken:
        findings.append(Finding(rule, str(broken)))
    except Exception as error:  # the environment's own code may raise anything
        why = str(error).splitlines()[0] if str(error) else ""
        findings.append(Finding(rule, f"it raised {type(error).__name__}: {why}"))
    return findings


def _rules(make: Callable[[], Any], num_steps: int, seed: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """The rules in order, each with its check. The checks share their findings."""
    found: dict[str, Any] = {}

    def made() -> None:
        found["env"] = make()
        _demand(isinstance(found["env"], gymnasium.Env), f"it must be a gymnasium.Env, got {found['env']!r}")

    yield "it can be made", made
    env = found["env"]

    def actions() -> None:
        space = getattr(env, "action_space", None)
        _demand(
            isinstance(space, gymnasium.spaces.Discrete) and space.start == 0,
            f"action_space must be Discrete and start at 0, got {space}",
        )

    def observations() -> None:
        space = getattr(env, "observation_space", None)
        _demand(
            isinstance(space, gymnasium.spaces.Space) and space.is_np_flattenable,
            f"observation_space must be a space of fixed size, such as a Box, got {space}",
        )

    yield "actions are the whole numbers from 0", actions
    yield "observations have a fixed size", observations
    yield "reset returns an observation and a dictionary", lambda: found.update(first=_reset(env, seed))
    yield "observations are in the observation space", lambda: _observe(env, found["first"], "reset")
    yield "the same seed gives the same first observation", lambda: _same(found["first"], _reset(env, seed))
    yield f"{num_steps} random steps keep all rules of a step", lambda: found.update(ends=_play(env, num_steps, seed))

    def ends() -> None:
        _demand(
            found["ends"] > 0,
            f"no episode ended in {num_steps} random steps; return truncated=True after a number of steps, or register "
            "it with max_episode_steps",
        )

    yield "episodes end", ends
    env.close()


def _demand(holds: Any, problem: str) -> None:
    if not holds:
        raise _BrokenError(problem)


def _reset(env: Any, seed: int | None) -> Any:
    answer = env.reset(seed=seed)
    _demand(
        isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict),
        f"reset(seed=…) must return (observation, info), got {_short(answer)}",
    )
    return answer[0]


def _observe(env: Any, observation: Any, where: str) -> None:
    space = env.observation_space
    if isinstance(space, gymnasium.spaces.Box):
        array = np.asarray(observation)
        _demand(
            array.shape == space.shape, f"{where} returned shape {array.shape}, observation_space has {space.shape}"
        )
        _demand(
            bool(np.isfinite(array).all()), f"{where} returned an observation that is not finite: {_short(observation)}"
        )
        is_within = bool((array >= space.low).all() and (array <= space.high).all())
        _demand(is_within, f"{where} returned {_short(observation)}, outside the bounds of observation_space {space}")
        kinds = f"{where} returned dtype {array.dtype}, observation_space has {space.dtype}"
        _demand(np.can_cast(array.dtype, space.dtype, "same_kind"), kinds)
    else:
        _demand(space.contains(observation), f"{where} returned {_short(observation)}, which is not in {space}")


def _same(one: Any, other: Any) -> None:
    advice = "draw from self.np_random, and call super().reset(seed=seed)"
    _demand(data_equivalence(one, other), f"two resets with the same seed gave different observations; {advice}")


def _play(env: Any, num_steps: int, seed: int) -> int:
    """Plays random actions; returns the number of episodes that ended."""
    draws, num_ends = np.random.default_rng(seed), 0
    _reset(env, seed)
    for i in range(num_steps):
        answer = env.step(int(draws.integers(env.action_space.n)))
        _demand(
            isinstance(answer, tuple) and len(answer) == 5,
            f"step must return (observation, reward, terminated, truncated, info), got {_short(answer)}",
        )
        observation, reward, terminated, truncated, info = answer
        where = f"step {i + 1}"
        _observe(env, observation, where)
        is_number = isinstance(reward, numbers.Real | np.number) or np.ndim(reward) == 0
        _demand(
            is_number and math.isfinite(float(reward)), f"{where} returned the reward {reward!r}, not a finite number"
        )
        for name, end in (("terminated", terminated), ("truncated", truncated)):
            _demand(isinstance(end, bool | np.bool_), f"{where} returned {name} = {end!r}, not True or False")
        _demand(isinstance(info, dict), f"{where} returned info = {_short(info)}, not a dictionary")
        if terminated or truncated:
            num_ends += 1
            _observe(env, _reset(env, None), "reset")
    return num_ends


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}…"
