"""Evaluation on external environments: whole episodes with raw rewards, beside the training that goes on."""

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.agents import AgentState
from feelgood.envs.external import Task
from feelgood.typing import Array

__all__ = ["Episodes", "Evaluator", "acting_part", "play", "policy_of", "stacked"]


def acting_part(agent: AgentState) -> AgentState:
    """What acting needs of an agent: no momentum, no moments, no target."""
    return agent._replace(sampler=agent.sampler._replace(memory=()), target=())


def policy_of(agent: AgentState) -> AgentState:
    """A copy of what acting needs of an agent."""
    return jax.tree.map(jnp.copy, acting_part(agent))


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


class Episodes:
    """One episode in each lane of a vector environment, a step at a time.

    Args:
      env: from `task.make`; reset here.
      task: what it belongs to.
      seed: of the environments.
      max_steps: an episode is cut off after so many.

    Attributes:
      frames: what the environments show, (lanes, *frame_shape).
      observations: what a policy sees, (lanes, *observation_shape).
      time: steps so far.
      returns: of the episodes so far, (lanes,).
      lengths: their steps so far, (lanes,).
      is_over: whether all have ended.
    """

    def __init__(self, env: Any, task: Task, *, seed: int, max_steps: int):
        self._env, self._task, self._max_steps = env, task, max_steps
        self._playing = np.ones(env.num_envs, bool)
        self.time, self.is_over = 0, False
        self.returns, self.lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, int)
        self.frames = self._shown(env.reset(seed=seed)[0])
        self.observations = stacked(None, self.frames, self._playing, task.stack)

    def _shown(self, seen: Any) -> np.ndarray:
        return np.asarray(seen, self._task.frame_dtype).reshape(self._env.num_envs, *self._task.frame_shape)

    def step(self, actions: ArrayLike) -> None:
        """Takes a step in every lane."""
        self.take(self._env.step(np.asarray(actions, np.int64)))

    def take(self, answer: tuple[Any, ...]) -> None:
        """Takes in what the environments answer to a step, as Gymnasium has it."""
        seen, rewards, terminated, truncated, _ = answer
        self.frames = self._shown(seen)
        self.returns += np.where(self._playing, rewards, 0)
        self.lengths += self._playing
        self._playing &= ~(terminated | truncated)
        self.time += 1
        self.is_over = self.time == self._max_steps or not self._playing.any()
        # A lane whose episode is over plays on unwatched, on stacks that may span two episodes.
        none = np.zeros(len(self._playing), bool)
        self.observations = stacked(self.observations, self.frames, none, self._task.stack)


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
    episodes = Episodes(env, task, seed=seed, max_steps=max_steps)
    on_step(episodes.frames)
    while not episodes.is_over:
        episodes.step(act(episodes.time, episodes.observations))
        on_step(episodes.frames)
    return episodes.returns, episodes.lengths


Answer = tuple[np.ndarray, np.ndarray]


class _Asked(NamedTuple):
    """An evaluation that waits for its turn."""

    answer: "Future[Answer]"
    key: Array
    agent: Any


@dataclass
class _Place:
    """Where one evaluation after the other is played, in the same environments."""

    env: Any = None  # made when first needed
    answer: "Future[Answer] | None" = None  # None where nothing is played
    episodes: Any = None

    def end(self, error: BaseException | None = None) -> None:
        """Answers with what was played, or with what went wrong."""
        assert self.answer is not None
        answer, self.answer = self.answer, None
        if error is None:
            answer.set_result((self.episodes.returns, self.episodes.lengths))
            return
        answer.set_exception(error)
        env, self.env = self.env, None  # what it would show next nobody knows
        if env is not None:
            with contextlib.suppress(Exception):
                env.close()


class Evaluator:
    """Plays evaluation episodes beside the training, each evaluation with the parameters that it was asked with.

    One thread plays several evaluations side by side, which act in one call: the thread that trains is kept waiting no
    more often than by one. As soon as one has ended, the next takes its place.

    Args:
      task: the external environment.
      exploit_each: `(keys, times, agents, contexts, observations, hyper) -> actions` of several evaluations, jitted.
      begin: `(key, num_lanes, hyper) -> context`, jitted.
      hyper: hyper-parameters.
      num_episodes: of an evaluation.
      max_steps: of an episode.
      num_places: evaluations that are played side by side. Others wait without holding up whoever asked: now and then
        an episode takes a hundred times as long as most.
    """

    MOST_WAITING = 30  # a copy of the parameters each

    def __init__(
        self, task: Task, exploit_each, begin, hyper, *, num_episodes: int, max_steps: int, num_places: int = 1
    ):
        self._task, self._exploit_each, self._begin, self._hyper = task, exploit_each, begin, hyper
        self._num_episodes, self._max_steps = num_episodes, max_steps
        self._places = [_Place() for _ in range(num_places)]
        self._table: Any = None  # key, policy and context of every place
        self._seen = np.zeros((num_places, num_episodes, *task.observation_shape), task.frame_dtype)
        self._room = threading.Semaphore(num_places + self.MOST_WAITING)
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()  # None wakes the thread to its end
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
        self._thread.start()

    def submit(self, key: Array, agent: Any) -> "Future[Answer]":
        """Asks for an evaluation of `policy_of(agent)`, its returns and lengths; waits first where too many wait."""
        if self._is_closing.is_set():
            raise RuntimeError("an evaluator that is closed plays nothing")
        self._room.acquire()
        asked = _Asked(Future(), key, agent)
        asked.answer.add_done_callback(lambda _: self._room.release())
        self._asked.put(asked)
        return asked.answer

    def _work(self) -> None:
        while not self._is_closing.is_set():
            self._fill()
            playing = [i for i, place in enumerate(self._places) if place.answer is not None]
            try:
                if playing:
                    self._step(playing)
            except BaseException as error:  # whoever asked will know what to do
                for i in playing:
                    if self._places[i].answer is not None:
                        self._places[i].end(error)
                self._table = None

    def _fill(self) -> None:
        """Lets those that wait take the places that are free; waits for one where nothing is played."""
        for i in [i for i, place in enumerate(self._places) if place.answer is None]:
            try:
                asked = self._asked.get(block=all(place.answer is None for place in self._places))
            except queue.Empty:
                return
            if asked is None:
                return
            if not asked.answer.set_running_or_notify_cancel():
                continue
            self._places[i].answer = asked.answer
            try:
                self._seat(i, asked)
            except BaseException as error:
                self._places[i].end(error)

    def _seat(self, i: int, asked: _Asked) -> None:
        """Begins the episodes of an evaluation."""
        place = self._places[i]
        if place.env is None:
            place.env = self._task.make(self._num_episodes, False)
        key_seed, key_context, key_act = jax.random.split(asked.key, 3)
        one = key_act, asked.agent, self._begin(key_context, self._num_episodes, self._hyper)
        if self._table is None:
            self._table = jax.tree.map(lambda x: jnp.stack([x] * len(self._places)), one)
        else:
            self._table = _put(self._table, i, one)
        seed = int(jax.random.randint(key_seed, (), 0, 2**30))
        place.episodes = Episodes(place.env, self._task, seed=seed, max_steps=self._max_steps)

    def _step(self, playing: Sequence[int]) -> None:
        """A step of all that are playing; what one of them breaks, breaks that one."""
        times = np.zeros(len(self._places), np.int32)
        for i in playing:
            times[i], self._seen[i] = self._places[i].episodes.time, self._places[i].episodes.observations
        keys, policies, contexts = self._table
        actions = np.asarray(self._exploit_each(keys, times, policies, contexts, self._seen, self._hyper), np.int64)
        if self._task.steps_by_itself:
            for i in playing:
                self._places[i].env.send(actions[i])
        for i in playing:
            place = self._places[i]
            try:
                place.episodes.take(place.env.recv() if self._task.steps_by_itself else place.env.step(actions[i]))
            except BaseException as error:
                place.end(error)
                continue
            if place.episodes.is_over:
                place.end()

    def close(self) -> None:
        """Stops what is under way and closes the environments."""
        self._is_closing.set()
        self._asked.put(None)
        self._thread.join()
        self._asked.put(None)  # the thread may have taken the other
        while (asked := self._asked.get()) is not None:
            asked.answer.cancel()
        for place in self._places:
            if place.answer is not None:
                place.end(CancelledError())
            elif place.env is not None:
                place.env.close()


@partial(jax.jit, donate_argnums=0)
def _put(table: Any, i: ArrayLike, one: Any) -> Any:
    return jax.tree.map(lambda many, new: many.at[i].set(new), table, one)
