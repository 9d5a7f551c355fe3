"""Environments that step together, as a loop sees them: what arrives, what it adds up to, which begin anew."""

import contextlib
from typing import Any

import numpy as np

from feelgood.envs.external import Task
from feelgood.replay.frames import Arrival

__all__ = ["Group"]


class Group:
    """A vector environment in training.

    Args:
      task: what it belongs to.
      num_lanes: environments in it.

    Attributes:
      ended_return: sum of the raw returns of the episodes that ended, since it was last set to 0.
      num_ended: how many these are.
    """

    def __init__(self, task: Task, num_lanes: int):
        self.ended_return, self.num_ended = 0.0, 0
        self._task, self._num_lanes = task, num_lanes
        self._env: Any = task.make(num_lanes, True)
        self._actions: np.ndarray | None = None  # what it was sent and has not answered

    def begin(self, seed: int, stagger: np.ndarray) -> None:
        """Begins new episodes everywhere.

        Args:
          seed: of the environments.
          stagger: int (lanes,), after how many steps each begins anew once; 0 for not at all.
        """
        frames = self._frames(self._env.reset(seed=seed)[0])
        none, zeros = np.zeros(self._num_lanes, bool), np.zeros(self._num_lanes, np.int32)
        self._actions, self._num_steps, self._stagger = None, 0, stagger
        self._ended, self._returns = none, np.zeros(self._num_lanes)
        self._first = Arrival(frames, ~none, zeros, zeros.astype(np.float32), none)

    def _frames(self, seen: Any) -> np.ndarray:
        return np.asarray(seen, self._task.frame_dtype).reshape(self._num_lanes, *self._task.frame_shape)

    def send(self, actions: np.ndarray) -> None:
        """Lets the environments begin to step, where they can do so by themselves."""
        self._actions = actions
        if hasattr(self._env, "send"):
            self._env.send(actions)
        elif hasattr(self._env, "step_async"):
            self._env.step_async(actions)

    def _wait(self) -> tuple[Any, ...]:
        actions, self._actions = self._actions, None
        if hasattr(self._env, "send"):
            return self._env.recv()
        return self._env.step_wait() if hasattr(self._env, "step_async") else self._env.step(actions)

    def receive(self) -> Arrival:
        """What the environments answer, once all have; after `begin` their first frames."""
        if self._actions is None:
            return self._first
        actions = self._actions
        seen, rewards, terminated, truncated, _ = self._wait()
        self._num_steps += 1
        # An environment resets itself in the step after its end: whatever it shows then begins an episode.
        is_first, anew = self._ended, self._stagger == self._num_steps
        if self._task.reset_lanes is not None and anew.any():
            seen = self._task.reset_lanes(self._env, anew)
            is_first, terminated, truncated = is_first | anew, terminated & ~anew, truncated & ~anew
            rewards, self._returns[anew] = np.where(anew, 0, rewards), 0
        self._ended = terminated | truncated
        self._returns += rewards
        if self._ended.any():
            self.ended_return += float(self._returns[self._ended].sum())
            self.num_ended += int(self._ended.sum())
            self._returns[self._ended] = 0
        reward = np.asarray(rewards, np.float32)
        return Arrival(self._frames(seen), is_first, actions.astype(np.int32), reward, np.asarray(terminated))

    def close(self) -> None:
        """Ends the environments."""
        if self._actions is not None:
            with contextlib.suppress(Exception):  # whatever it was, nobody waits for the answer any more
                self._wait()
        self._env.close()
