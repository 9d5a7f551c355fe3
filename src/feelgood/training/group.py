"""Environments that step together, as a loop sees them: what arrives, what it adds up to, which begin anew."""

import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from feelgood.envs.external import Task
from feelgood.replay.frames import Arrival

__all__ = ["Group", "Tally"]


class Tally(NamedTuple):
    """What has happened in training.

    Attributes:
      num_ended: episodes that ended.
      ended_return: sum of their raw returns.
      num_followed: actions that another one came before, in the same episode.
      num_changes: how many of these are not what was done before.
    """

    num_ended: int = 0
    ended_return: float = 0.0
    num_followed: int = 0
    num_changes: int = 0


class Group:
    """A vector environment in training, with a thread of its own that waits for actions and takes the step.

    Args:
      task: what it belongs to.
      num_lanes: environments in it.

    Attributes:
      tally: what has happened since it was last set to `Tally()`.
      seconds_waiting: that its thread has spent until actions were known.
      seconds_stepping: that its steps have taken.
    """

    def __init__(self, task: Task, num_lanes: int):
        self.tally = Tally()
        self.seconds_waiting = self.seconds_stepping = 0.0
        self._task, self._num_lanes = task, num_lanes
        self._env: Any = task.make(num_lanes, True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="environments")
        self._answer: Future[tuple[np.ndarray, tuple[Any, ...]]] | None = None

    def begin(self, seed: int, stagger: np.ndarray) -> None:
        """Begins new episodes everywhere.

        Args:
          seed: of the environments.
          stagger: int (lanes,), after how many steps each begins anew once; 0 for not at all.
        """
        frames = self._frames(self._env.reset(seed=seed)[0])
        none, zeros = np.zeros(self._num_lanes, bool), np.zeros(self._num_lanes, np.int32)
        self._answer, self._num_steps, self._stagger = None, 0, stagger
        self._ended, self._returns = none, np.zeros(self._num_lanes)
        self._acted, self._actions = none, zeros
        self._first = Arrival(frames, ~none, zeros, zeros.astype(np.float32), none)

    def _frames(self, seen: Any) -> np.ndarray:
        return np.asarray(seen, self._task.frame_dtype).reshape(self._num_lanes, *self._task.frame_shape)

    def send(self, actions: ArrayLike) -> None:
        """Lets the environments step once actions are known; waits neither for these nor for the environments."""
        self._answer = self._thread.submit(self._step, actions)

    def _step(self, actions: ArrayLike) -> tuple[np.ndarray, tuple[Any, ...]]:
        began = time.monotonic()
        chosen = np.asarray(actions).astype(np.int64)
        known = time.monotonic()
        seen = self._env.step(chosen)
        self.seconds_waiting += known - began
        self.seconds_stepping += time.monotonic() - known
        return chosen, seen

    def receive(self) -> Arrival:
        """What the environments answer, once all have; after `begin` their first frames."""
        if self._answer is None:
            return self._first
        actions, (seen, rewards, terminated, truncated, _) = self._answer.result()
        self._num_steps += 1
        # An environment resets itself in the step after its end: whatever it shows then begins an episode.
        is_first, anew = self._ended, self._stagger == self._num_steps
        if self._task.reset_lanes is not None and anew.any():
            seen = self._task.reset_lanes(self._env, anew)
            is_first, terminated, truncated = is_first | anew, terminated & ~anew, truncated & ~anew
            rewards, self._returns[anew] = np.where(anew, 0, rewards), 0
        self._ended = terminated | truncated
        self._returns += rewards
        follows = self._acted & ~is_first
        before, self._acted, self._actions = self._actions, ~is_first, actions
        self.tally = Tally(
            self.tally.num_ended + int(self._ended.sum()),
            self.tally.ended_return + float(self._returns[self._ended].sum()),
            self.tally.num_followed + int(follows.sum()),
            self.tally.num_changes + int((follows & (actions != before)).sum()),
        )
        self._returns[self._ended] = 0
        reward = np.asarray(rewards, np.float32)
        return Arrival(self._frames(seen), is_first, actions.astype(np.int32), reward, np.asarray(terminated))

    def close(self) -> None:
        """Ends the environments."""
        self._thread.shutdown()
        if self._answer is not None and self._answer.exception() is not None:
            # Their answers may never come; whoever asked for them knows why. What is left of them ends with us.
            with contextlib.suppress(Exception):
                self._env.close(terminate=True)
            return
        self._env.close()
