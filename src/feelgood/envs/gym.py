"""Functional environments as Gymnasium environments; importing this module registers `feelgood/NChain-v0`.

Examples:
  >>> import gymnasium, feelgood.envs.gym
  >>> env = gymnasium.make("feelgood/NChain-v0", num_states=10)
  >>> env.reset(seed=0)[0].tolist()
  [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]
"""

from typing import Any

import gymnasium
import jax
import numpy as np

from feelgood.envs.base import Environment
from feelgood.envs.nchain import nchain


class GymEnv(gymnasium.Env):
    """Steps a functional environment one call at a time, with NumPy observations and Python scalars.

    Episodes end as in the functional environment; call `reset` after the end. A seed given to `reset` fixes everything
    that follows.

    Attributes:
      environment: the functional environment that is stepped.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  (the type is Gymnasium's)

    def __init__(self, environment: Environment, render_mode: str | None = None):
        if render_mode is not None:
            raise ValueError(f"render_mode must be None, got {render_mode!r}")
        self.render_mode = None
        spec = environment.spec
        low, high = (np.asarray(end, np.float64) for end in (spec.observation_low, spec.observation_high))
        if np.issubdtype(spec.observation_dtype, np.integer):  # integers have no infinity
            bounds = np.iinfo(spec.observation_dtype)
            low, high = np.maximum(low, bounds.min), np.minimum(high, bounds.max)
        low, high = (np.broadcast_to(end, spec.observation_shape).astype(spec.observation_dtype) for end in (low, high))
        self.environment = environment
        self.observation_space = gymnasium.spaces.Box(low, high, spec.observation_shape, spec.observation_dtype)
        self.action_space = gymnasium.spaces.Discrete(spec.num_actions)
        self._reset, self._step = jax.jit(environment.reset), jax.jit(environment.step)
        self._state: Any = None
        self._key: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        """Starts an episode; returns (observation, {})."""
        super().reset(seed=seed)
        self._key, key = jax.random.split(jax.random.key(int(self.np_random.integers(2**31))))
        self._state, observation = self._reset(key)
        return np.array(observation), {}

    def step(self, action: Any):
        """Takes one action; returns (observation, reward, terminated, truncated, {})."""
        if self._state is None:
            raise RuntimeError("step() needs an episode: call reset() first")
        if not self.action_space.contains(action):
            num_actions = self.environment.spec.num_actions
            raise ValueError(f"action must be a whole number from 0 to {num_actions - 1}, got {action!r}")
        self._key, key = jax.random.split(self._key)
        self._state, step = self._step(key, self._state, action)
        return np.array(step.observation), float(step.reward), bool(step.terminated), bool(step.truncated), {}


class NChainEnv(GymEnv):
    """The N-chain for Gymnasium; keyword arguments are those of `feelgood.envs.nchain`."""

    def __init__(self, num_states: int = 25, *, render_mode: str | None = None, **settings: Any):
        super().__init__(nchain(num_states, **settings), render_mode)


gymnasium.register("feelgood/NChain-v0", entry_point="feelgood.envs.gym:NChainEnv")
