"""The rules that an environment must keep, so that agents can be trained on it."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from feelgood.envs.base import Environment
from feelgood.typing import Array, PRNGKey


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


def check_playable(name: str, make: Callable[[], gymnasium.Env], num_steps: int = 20) -> None:
    """Plays random actions in an environment that is to be trained on.

    It requires less than `check_rules`: shapes, whole answers and finite numbers. Observations may leave their bounds,
    resets may differ for the same seed, and errors that the environment itself raises pass through.

    Raises:
      ValueError: names the environment and the rule that it breaks.
    """
    try:
        env = make()
    except Exception:  # the caller makes it too, and explains why it cannot be made
        return
    try:
        for name_of_space in ("action_space", "observation_space"):
            _demand(getattr(env, name_of_space, None) is not None, f"it has no {name_of_space}")
        _check_fixed_size(env.observation_space)
        space = env.action_space
        if isinstance(space, gymnasium.spaces.Discrete) and space.start == 0:  # others are refused when lanes are made
            _play(env, num_steps, seed=0, strict=False)
    except _BrokenError as broken:
        raise ValueError(f"env {name!r} cannot be trained on: {broken}") from None
    finally:
        env.close()


class _Walk(NamedTuple):
    """An episode with random actions."""

    state: Any
    return_: Array
    is_over: Array
    is_finite: Array


def random_return(environment: Environment, num_episodes: int = 100, seed: int = 0) -> float:
    """The mean return of episodes of a functional environment with uniformly random actions.

    Raises:
      ValueError: if a reward or an observation is not finite, or an episode is longer than `max_episode_steps`.
    """
    spec, limit = environment.spec, environment.spec.max_episode_steps
    if limit is None:
        raise ValueError(f"max_episode_steps of env {spec.name!r} must be a number for training, got None")

    def see(observation: Array) -> Array:
        return jnp.all(jnp.isfinite(observation))

    def step(walk: _Walk, key: PRNGKey) -> tuple[_Walk, None]:
        key_action, key_step = jax.random.split(key)
        action = jax.random.randint(key_action, (), 0, spec.num_actions)
        state, moved = environment.step(key_step, walk.state, action)
        reward = jnp.where(walk.is_over, 0.0, moved.reward)
        is_finite = walk.is_finite & (walk.is_over | (jnp.isfinite(moved.reward) & see(moved.observation)))
        return _Walk(state, walk.return_ + reward, walk.is_over | moved.terminated | moved.truncated, is_finite), None

    def episode(key: PRNGKey) -> _Walk:
        key_reset, key_steps = jax.random.split(key)
        state, observation = environment.reset(key_reset)
        start = _Walk(state, jnp.zeros(()), jnp.zeros((), bool), see(observation))
        return jax.lax.scan(step, start, jax.random.split(key_steps, limit))[0]

    walks = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(seed), num_episodes))
    if not walks.is_finite.all():
        raise ValueError(f"env {spec.name!r} cannot be trained on: a reward or an observation is not finite")
    if not walks.is_over.all():
        raise ValueError(
            f"env {spec.name!r} cannot be trained on: an episode had not ended after max_episode_steps = "
            f"{limit} steps; terminated or truncated must be True by then"
        )
    return float(walks.return_.mean())


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

    yield "actions are the whole numbers from 0", actions
    yield "observations have a fixed size", lambda: _check_fixed_size(getattr(env, "observation_space", None))
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


def _check_fixed_size(space: Any) -> None:
    if isinstance(space, gymnasium.spaces.Dict) and not _is_fixed_size(space):
        kept = [name for name, part in space.items() if _is_fixed_size(part)]
        lost = next(name for name in space if name not in kept)
        how = f"gymnasium.wrappers.FilterObservation(env, {kept}) leaves it out" if kept else "no part has"
        _demand(False, f"part {lost!r} of observation_space has no fixed size, got {_short(space[lost])}; {how}")
    _demand(
        isinstance(space, gymnasium.spaces.Space) and _is_fixed_size(space),
        f"observation_space must be a space of fixed size, such as a Box, got {space}",
    )


def _is_fixed_size(space: gymnasium.spaces.Space) -> bool:
    try:
        return space.is_np_flattenable
    except NotImplementedError:  # a kind of space that is not Gymnasium's own, such as the missions of MiniGrid
        return False


def _reset(env: Any, seed: int | None) -> Any:
    try:
        answer = env.reset(seed=seed)
    except TypeError as error:
        _demand("'seed'" not in str(error), f"reset must take the keyword arguments seed and options ({error})")
        raise
    _demand(
        isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict),
        f"reset(seed=…) must return (observation, info), got {_short(answer)}",
    )
    return answer[0]


def _observe(env: Any, observation: Any, where: str, strict: bool = True) -> None:
    """Requires that an observation fits its space, and its bounds if `strict`."""
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
        outside = f"{where} returned {_short(observation)}, outside the bounds of observation_space {space}"
        _demand(is_within or not strict, outside)
        kinds = f"{where} returned dtype {array.dtype}, observation_space has {space.dtype}"
        _demand(np.can_cast(array.dtype, space.dtype, "same_kind"), kinds)
    else:
        fits = space.contains(observation) if strict else _is_flattenable(space, observation)
        _demand(fits, f"{where} returned {_short(observation)}, which is not in {space}")


def _is_flattenable(space: Any, observation: Any) -> bool:
    """Whether an observation becomes a vector of the right size, as in training."""
    try:
        flat: Any = gymnasium.spaces.flatten(space, observation)
        return np.shape(flat) == gymnasium.spaces.flatten_space(space).shape
    except Exception:  # whatever an observation of another kind leads to
        return False


def _same(one: Any, other: Any) -> None:
    advice = "draw from self.np_random, and call super().reset(seed=seed)"
    _demand(data_equivalence(one, other), f"two resets with the same seed gave different observations; {advice}")


def _step(env: Any, action: int) -> Any:
    """The answer of a step; wrappers of Gymnasium unpack it before it can be checked."""
    whole = "step must return (observation, reward, terminated, truncated, info)"
    try:
        answer = env.step(action)
    except ValueError as error:
        _demand("values to unpack" not in str(error), f"{whole}; it raised ValueError: {error}")
        raise
    _demand(isinstance(answer, tuple) and len(answer) == 5, f"{whole}, got {_short(answer)}")
    return answer


def _play(env: Any, num_steps: int, seed: int, strict: bool = True) -> int:
    """Plays random actions; returns the number of episodes that ended."""
    draws, num_ends = np.random.default_rng(seed), 0
    _observe(env, _reset(env, seed), "reset", strict)
    for i in range(num_steps):
        answer = _step(env, int(draws.integers(env.action_space.n)))
        observation, reward, terminated, truncated, info = answer
        where = f"step {i + 1}"
        _observe(env, observation, where, strict)
        is_number = np.ndim(reward) == 0 and np.asarray(reward).dtype.kind in "biuf"
        wrong = f"{where} returned the reward {reward!r}, not a finite number"
        _demand(is_number and math.isfinite(float(reward)), wrong)
        for name, end in (("terminated", terminated), ("truncated", truncated)):
            is_flag = isinstance(end, bool | np.bool_) or (not strict and np.shape(end) == ())
            _demand(is_flag, f"{where} returned {name} = {end!r}, not True or False")
        _demand(isinstance(info, dict), f"{where} returned info = {_short(info)}, not a dictionary")
        if terminated or truncated:
            num_ends += 1
            _observe(env, _reset(env, None), "reset", strict)
    return num_ends


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}…"
