"""External environments from environments in any other form."""

import copy
import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from feelgood.checks import check_kind
from feelgood.envs.base import Environment, check_environment, observation_bound
from feelgood.envs.external import ExternalEnvironment, unchanged, vector_environment
from feelgood.envs.gym import GymEnv
from feelgood.envs.indices import one_hot_decoder, one_hot_index
from feelgood.envs.rules import check_playable

__all__ = ["as_external", "functional_as_external"]


def as_external(env: Any, name: str | None = None) -> ExternalEnvironment:
    """An external environment from an environment in any other form.

    Args:
      env: an `ExternalEnvironment`, which is returned; a functional environment; a Gymnasium environment, which is
        copied; a class of Gymnasium environments, or a function without arguments that makes one; or a
        function `(num_envs, training) -> VectorEnv`.
      name: its name in tables; the name of the environment or its class if not given.

    Raises:
      ValueError: if it is none of these.
    """
    if isinstance(env, ExternalEnvironment):
        return env
    if isinstance(env, Environment):
        return functional_as_external(env)
    if isinstance(env, VectorEnv):
        raise ValueError("env must not be a vector environment; pass a function (num_envs, training) -> VectorEnv")
    if not callable(env):
        check_kind("env", env, gymnasium.Env, "a name, an environment, its class, or a function that makes one")
    if not isinstance(env, gymnasium.Env) and _num_required(env):
        if isinstance(env, type) or _num_required(env) != 2:
            raise ValueError(
                "env must be callable without arguments, or be a function (num_envs, training) -> VectorEnv, "
                f"got {env!r}"
            )
        return vector_environment(env, name or "custom")
    make = partial(_copied, env) if isinstance(env, gymnasium.Env) else env
    one = make()
    if isinstance(one, Environment):
        raise ValueError(f"env must be a functional environment itself, got {env!r}, which makes one: call it")
    check_kind("result of env", one, gymnasium.Env, "a gymnasium.Env")
    own_name = name or (one.spec.id if one.spec is not None else type(one.unwrapped).__name__)
    one.close()
    check_playable(own_name, make)

    def several(num_envs: int, training: bool) -> VectorEnv:
        del training
        return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)

    return vector_environment(several, own_name)


def _num_required(function: Callable) -> int:
    """Number of arguments without defaults."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a function of a compiled module
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is each.empty for each in parameters)


def _copied(env: gymnasium.Env) -> gymnasium.Env:
    try:
        return copy.deepcopy(env)
    except Exception as error:  # whatever its parts raise
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"env {env} cannot be copied ({why}); pass a function without arguments that makes it"
        ) from error


def functional_as_external(environment: Environment) -> ExternalEnvironment:
    """A functional environment as an external one, played step by step.

    Agents see the observations of functional training: one-hot ones as indices, images unscaled.
    """
    check_environment(environment)
    spec = environment.spec
    shape = spec.observation_shape

    def one() -> gymnasium.Env:
        env = GymEnv(environment)
        if not spec.is_one_hot:
            return env
        space = gymnasium.spaces.Discrete(math.prod(shape) + 1)  # the last index stands for zeros
        return gymnasium.wrappers.TransformObservation(env, partial(one_hot_index, shape=shape), space)

    def make(num_envs: int, training: bool) -> SyncVectorEnv:
        del training
        return SyncVectorEnv([one] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)

    return vector_environment(make, spec.name)._replace(
        decode=one_hot_decoder(shape) if spec.is_one_hot else unchanged,
        observation_bound=observation_bound(spec.observation_low, spec.observation_high),
        time_limit=spec.max_episode_steps,
        space=GymEnv(environment).observation_space if spec.is_one_hot else None,
    )
