"""Evaluation on external environments: whole episodes with raw rewards, beside the training that goes on."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import AgentState
from feelgood.envs.external import Task
from feelgood.typing import Array

__all__ = ["Evaluator", "play", "policy_of", "stacked"]


def policy_of(agent: AgentState) -> AgentState:
    """A copy of what acting needs of an agent: no momentum, no moments, no target."""
    kept = agent._replace(sampler=agent.sampler._replace(memory=()), target=())
    return jax.tree.map(jnp.copy, kept)


def stacked(stacks: np.ndarray | None, frames: np.ndarray, is_first: np.ndarray, stack: int) -> np.ndarray:
    """Observations after `frames` (lanes, *frame_shape) arrived: the stacks moved on, or begun anew where `is_first`.

    Args:
      stacks: (lanes, stack, *frame_shape) before, or None at the very start; not changed.
      frames: what arrived.
      is_first: bool (lanes,), whether an episode begins.
      stack: frames in an observation; 1 gives the frames themselves.
    """
    if stack == 1:
        return frames
    if stacks is None:
        return np.repeat(frames[:, None], stack, 1)
    moved = np.concatenate([stacks[:, 1:], frames[:, None]], 1)
    moved[is_first] = frames[is_first, None]
    return moved


def play(
    env: Any,
    task: Task,
    act: Callable[[int, np.ndarray], Any],
    *,
    seed: int,
    max_steps: int,
    on_step: Callable[[np.ndarray], None] = lambda frames: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Plays one episode in each lane of a vector environment.

    Args:
      env: from `task.make`; reset here.
      task: what it belongs to.
      act: `(time, observations) -> actions`, both with a leading axis of lanes.
      seed: of the environments.
      max_steps: an episode is cut off after so many.
      on_step: called with all that is seen, the first frames included.

    Returns:
      Returns and lengths of the episodes, (lanes,).
    """
    num_lanes = env.num_envs
    frames = _frames(task, env.reset(seed=seed)[0], num_lanes)
    stacks = stacked(None, frames, np.ones(num_lanes, bool), task.stack)
    on_step(frames)
    returns, lengths, playing = np.zeros(num_lanes), np.zeros(num_lanes, int), np.ones(num_lanes, bool)
    for time in range(max_steps):
        actions = np.asarray(act(time, stacks), np.int64)
        seen, rewards, terminated, truncated, _ = env.step(actions)
        frames = _frames(task, seen, num_lanes)
        returns += np.where(playing, rewards, 0)
        lengths += playing
        playing &= ~(terminated | truncated)
        on_step(frames)
        if not playing.any():
            break
        # A lane whose episode is over plays on unwatched, on stacks that may span two episodes.
        stacks = stacked(stacks, frames, np.zeros(num_lanes, bool), task.stack)
    return returns, lengths


def _frames(task: Task, seen: Any, num_lanes: int) -> np.ndarray:
    """What a vector environment shows, in the task's form."""
    return np.asarray(seen, task.frame_dtype).reshape(num_lanes, *task.frame_shape)


class Evaluator:
    """Plays evaluation episodes in threads, each evaluation with the parameters that it was asked with.

    Args:
      task: the external environment.
      exploit: `(key, time, agent, context, observations, hyper) -> actions`, jitted.
      begin: `(key, num_lanes, hyper) -> context`, jitted.
      hyper: hyper-parameters.
      num_episodes: of an evaluation.
      max_steps: of an episode.
      num_workers: evaluations that run at the same time. Others wait without holding up whoever asked: now and then an
        episode takes a hundred times as long as most.
    """

    MOST_WAITING = 30  # a copy of the parameters each

    def __init__(self, task: Task, exploit, begin, hyper, *, num_episodes: int, max_steps: int, num_workers: int = 4):
        self._task, self._exploit, self._begin, self._hyper = task, exploit, begin, hyper
        self._num_episodes, self._max_steps = num_episodes, max_steps
        self._pool = ThreadPoolExecutor(num_workers, thread_name_prefix="evaluation")
        self._places: queue.Queue[Any] = queue.Queue()
        self._envs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        for _ in range(num_workers):
            self._envs.put(None)  # made when first needed
        for _ in range(num_workers + self.MOST_WAITING):
            self._places.put(None)

    def submit(self, key: Array, agent: Any) -> "Future[tuple[np.ndarray, np.ndarray]]":
        """Starts an evaluation of `policy_of(agent)`; waits first where too many are under way."""
        self._places.get()
        future = self._pool.submit(self._evaluate, key, agent)
        future.add_done_callback(lambda _: self._places.put(None))
        return future

    def _evaluate(self, key: Array, agent: Any) -> tuple[np.ndarray, np.ndarray]:
        env = self._envs.get()
        try:
            env = self._task.make(self._num_episodes, False) if env is None else env
            key_seed, key_context, key_act = jax.random.split(key, 3)
            context = self._begin(key_context, self._num_episodes, self._hyper)
            seed = int(jax.random.randint(key_seed, (), 0, 2**30))

            def act(time: int, observations: np.ndarray) -> Array:
                if self._is_closing.is_set():  # nobody waits for it any more
                    raise CancelledError
                return self._exploit(key_act, np.int32(time), agent, context, observations, self._hyper)

            return play(env, self._task, act, seed=seed, max_steps=self._max_steps)
        finally:
            self._envs.put(env)

    def close(self) -> None:
        """Stops what is under way and closes the environments."""
        self._is_closing.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        while not self._envs.empty():
            env = self._envs.get()
            if env is not None:
                env.close()
