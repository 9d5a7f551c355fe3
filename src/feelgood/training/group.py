"""A group of environments that step together: their arrivals, training statistics and staggered resets."""

import contextlib
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from feelgood.envs.external import ExternalEnvironment
from feelgood.replay.frames import Arrival


class Counts(NamedTuple):
    """Training statistics: episodes that ended and the sum of their raw returns; actions that follow another one in
    the same episode, and how many of these differ from the action before."""

    num_ended: int = 0
    ended_return: float = 0.0
    num_followed: int = 0
    num_changes: int = 0


class Group:
    """A vector environment in training; its own thread waits for actions and takes the step.

    Attributes:
      counts: statistics since it was last set to `Counts()`.
      seconds_waiting: time that its thread has waited for actions.
      seconds_stepping: time that its steps have taken.
    """

    def __init__(self, environment: ExternalEnvironment, num_lanes: int):
        self.counts = Counts()
        self.seconds_waiting = self.seconds_stepping = 0.0
        self._environment, self._num_lanes = environment, num_lanes
        self._env: Any = environment.make(num_lanes, True)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="environments")
        self._answer: Future[tuple[np.ndarray, tuple[Any, ...]]] | None = None

    def begin(self, seed: int, stagger: np.ndarray) -> None:
        """Begins new episodes in all environments; `stagger`, int (lanes,), is the step of a reset, 0 for never."""
        frames = self._frames(self._env.reset(seed=seed)[0])
        none, zeros = np.zeros(self._num_lanes, bool), np.zeros(self._num_lanes, np.int32)
        self._answer, self._num_steps, self._stagger = None, 0, stagger
        self._ended, self._returns = none, np.zeros(self._num_lanes)
        self._acted, self._actions = none, zeros
        self._first = Arrival(frames, ~none, zeros, zeros.astype(np.float32), none)

    def _frames(self, seen: Any) -> np.ndarray:
        return np.asarray(seen, self._environment.frame_dtype).reshape(self._num_lanes, *self._environment.frame_shape)

    def _check(self, what: str, numbers: Any) -> None:
        """Stops a run before numbers that are not finite enter its replay, where they would spoil all of it."""
        numbers = np.asarray(numbers)
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            value = f"{what} {numbers[~np.isfinite(numbers)].flat[0]} in step {self._num_steps} of training"
            raise ValueError(f"env {self._environment.name!r} returned the {value}; every {what} must be finite")

    def send(self, actions: ArrayLike) -> None:
        """Steps the environments as soon as the actions are computed; returns at once."""
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
        """Waits for the step and returns its arrival; after `begin` the first frames."""
        if self._answer is None:
            return self._first
        actions, (seen, rewards, terminated, truncated, _) = self._answer.result()
        self._num_steps += 1
        frames = self._frames(seen)
        with np.errstate(over="ignore"):  # a reward that float32 cannot hold is refused as infinite
            self._check("reward", np.asarray(rewards, np.float32))
        self._check("observation", frames)
        # An environment resets itself in the step after its end, so the frame of that step begins an episode.
        is_first, is_reset = self._ended, self._stagger == self._num_steps
        if self._environment.reset_lanes is not None and is_reset.any():
            frames = self._frames(self._environment.reset_lanes(self._env, is_reset))
            is_first, terminated, truncated = is_first | is_reset, terminated & ~is_reset, truncated & ~is_reset
            rewards, self._returns[is_reset] = np.where(is_reset, 0, rewards), 0
        self._ended = terminated | truncated
        self._returns += rewards
        follows = self._acted & ~is_first
        before, self._acted, self._actions = self._actions, ~is_first, actions
        self.counts = Counts(
            self.counts.num_ended + int(self._ended.sum()),
            self.counts.ended_return + float(self._returns[self._ended].sum()),
            self.counts.num_followed + int(follows.sum()),
            self.counts.num_changes + int((follows & (actions != before)).sum()),
        )
        self._returns[self._ended] = 0
        reward = np.asarray(rewards, np.float32)
        return Arrival(frames, is_first, actions.astype(np.int32), reward, np.asarray(terminated))

    def close(self) -> None:
        """Closes the environments."""
        self._thread.shutdown()
        if self._answer is None or self._answer.exception() is None:
            self._env.close()
            return
        # The step failed, and `receive` has raised its error. Environments that hang end with this process.
        with contextlib.suppress(Exception):
            self._env.close(terminate=True)
