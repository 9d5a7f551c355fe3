"""Evaluation on external environments: whole episodes with raw rewards, beside the training that goes on."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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


class _Asked(NamedTuple):
    """An evaluation that waits for its turn."""

    answer: "Future[tuple[np.ndarray, np.ndarray]]"
    key: Array
    agent: Any


@dataclass
class _Place:
    """Where one evaluation after the other is played, in the same environments."""

    env: Any = None  # made when first needed
    episodes: Episodes | None = None  # None where nothing is played
    answer: "Future[tuple[np.ndarray, np.ndarray]] | None" = None


class Evaluator:
    """Plays evaluation episodes beside the training, each evaluation with the parameters that it was asked with.

    One thread plays several evaluations side by side, which act in one call: the thread that trains is kept waiting no
    more often than by one. As soon as one has ended, the next takes its place.

    Args:
      task: the external environment.
      exploit: `(key, time, agent, context, observations, hyper) -> actions`, jitted.
      begin: `(key, num_lanes, hyper) -> context`, jitted.
      hyper: hyper-parameters.
      num_episodes: of an evaluation.
      max_steps: of an episode.
      num_places: evaluations that are played side by side. Others wait without holding up whoever asked: now and then
        an episode takes a hundred times as long as most.
    """

    MOST_WAITING = 30  # a copy of the parameters each

    def __init__(self, task: Task, exploit, begin, hyper, *, num_episodes: int, max_steps: int, num_places: int = 1):
        self._task, self._begin, self._hyper = task, begin, hyper
        self._num_episodes, self._max_steps = num_episodes, max_steps
        self._exploit = jax.jit(jax.vmap(exploit, (0, 0, 0, 0, 0, None)))
        self._put = jax.jit(_put, donate_argnums=0)
        self._places = [_Place() for _ in range(num_places)]
        self._table: Any = None  # key, policy and context of every place
        self._seen = np.zeros((num_places, num_episodes, *task.observation_shape), task.frame_dtype)
        self._room = threading.Semaphore(num_places + self.MOST_WAITING)
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()  # None wakes the thread to its end
        self._is_closing = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluation")
        self._thread.submit(self._work)

    def submit(self, key: Array, agent: Any) -> "Future[tuple[np.ndarray, np.ndarray]]":
        """Asks for an evaluation of `policy_of(agent)`, its returns and lengths; waits first where too many wait."""
        self._room.acquire()
        asked = _Asked(Future(), key, agent)
        asked.answer.add_done_callback(lambda _: self._room.release())
        self._asked.put(asked)
        return asked.answer

    def _work(self) -> None:
        while not self._is_closing.is_set():
            try:
                self._fill()
                self._step()
            except Exception as error:  # whoever asked will know what to do
                for place in self._places:
                    if place.answer is not None:
                        self._leave(place).set_exception(error)
                    place.env = None  # what it would answer next nobody knows
                self._table = None

    def _fill(self) -> None:
        """Lets those that wait take the places that are free; waits for one where nothing is played."""
        for i in [i for i, place in enumerate(self._places) if place.episodes is None]:
            try:
                asked = self._asked.get(block=all(place.episodes is None for place in self._places))
            except queue.Empty:
                return
            if asked is None:
                return
            self._places[i].answer = asked.answer
            self._seat(i, asked)

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
            self._table = self._put(self._table, i, one)
        seed = int(jax.random.randint(key_seed, (), 0, 2**30))
        place.episodes = Episodes(place.env, self._task, seed=seed, max_steps=self._max_steps)

    def _step(self) -> None:
        """A step of all that are playing."""
        playing = [(i, place.env, place.episodes) for i, place in enumerate(self._places) if place.episodes is not None]
        if not playing:
            return
        times = np.zeros(len(self._places), np.int32)
        for i, _, episodes in playing:
            times[i], self._seen[i] = episodes.time, episodes.observations
        keys, policies, contexts = self._table
        actions = np.asarray(self._exploit(keys, times, policies, contexts, self._seen, self._hyper), np.int64)
        answers = _answers([env for _, env, _ in playing], actions[[i for i, _, _ in playing]])
        for (i, _, episodes), answer in zip(playing, answers, strict=True):
            episodes.take(answer)
            if episodes.is_over:
                self._leave(self._places[i]).set_result((episodes.returns, episodes.lengths))

    def _leave(self, place: _Place) -> "Future[tuple[np.ndarray, np.ndarray]]":
        assert place.answer is not None
        answer, place.answer, place.episodes = place.answer, None, None
        return answer

    def close(self) -> None:
        """Stops what is under way and closes the environments."""
        self._is_closing.set()
        self._asked.put(None)
        self._thread.shutdown()
        self._asked.put(None)  # the thread may have taken the other
        while (asked := self._asked.get()) is not None:
            asked.answer.cancel()
        for place in self._places:
            if place.answer is not None:
                self._leave(place).cancel()
            if place.env is not None:
                place.env.close()


def _put(table: Any, i: Array, one: Any) -> Any:
    return jax.tree.map(lambda many, new: many.at[i].set(new), table, one)


def _answers(envs: Sequence[Any], actions: np.ndarray) -> list[tuple[Any, ...]]:
    """What vector environments answer to a step; those that step by themselves, as ALE's do, step at the same time."""
    if not all(hasattr(env, "send") and hasattr(env, "recv") for env in envs):
        return [env.step(chosen) for env, chosen in zip(envs, actions, strict=True)]
    for env, chosen in zip(envs, actions, strict=True):
        env.send(chosen)
    return [env.recv() for env in envs]
