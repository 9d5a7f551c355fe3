"""Evaluation on external environments: whole episodes with raw rewards, while training goes on."""

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

from feelgood.envs.external import ExternalEnvironment
from feelgood.training.acting import Acting
from feelgood.typing import Array


def stacked(stacks: np.ndarray | None, frames: np.ndarray, is_first: np.ndarray, stack: int) -> np.ndarray:
    """Observations after `frames` (lanes, *frame_shape) arrived: stacks shift by one, or restart if `is_first`.

    `stacks`, (lanes, stack, *frame_shape), are those before, or None at the very start; they are not changed.
    """
    if stack == 1:
        return frames
    if stacks is None:
        return np.repeat(frames[:, None], stack, 1)
    moved = np.concatenate([stacks[:, 1:], frames[:, None]], 1)
    moved[is_first] = frames[is_first, None]
    return moved


class Episodes:
    """One episode in each lane of a vector environment `env`, a step at a time; see `play`.

    Attributes:
      frames, observations: the current ones, with a leading axis of lanes.
      time: steps so far.
      returns, lengths: of the episodes so far, (lanes,).
      is_over: whether all have ended.
      num_cut: episodes that were cut off.
    """

    def __init__(self, env: Any, environment: ExternalEnvironment, *, seed: int, max_steps: int):
        self._env, self._environment, self._max_steps = env, environment, max_steps
        self._playing = np.ones(env.num_envs, bool)
        self.time, self.is_over, self.num_cut = 0, False, 0
        self.returns, self.lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, int)
        self.frames = self._shown(env.reset(seed=seed)[0])
        self.observations = stacked(None, self.frames, self._playing, environment.stack)

    def _shown(self, seen: Any) -> np.ndarray:
        shape = (self._env.num_envs, *self._environment.frame_shape)
        return np.asarray(seen, self._environment.frame_dtype).reshape(shape)

    def take(self, answer: tuple[Any, ...]) -> None:
        """Takes in the result of a step, in the form of Gymnasium."""
        seen, rewards, terminated, truncated, _ = answer
        self.frames = self._shown(seen)
        self.returns += np.where(self._playing, rewards, 0)
        self.lengths += self._playing
        self._playing &= ~(terminated | truncated)
        self.time += 1
        self.is_over = self.time == self._max_steps or not self._playing.any()
        self.num_cut = int(self._playing.sum()) if self.is_over else 0
        # A lane whose episode is over plays on without being counted; its stack may span two episodes.
        none = np.zeros(len(self._playing), bool)
        self.observations = stacked(self.observations, self.frames, none, self._environment.stack)


def play(
    env: Any,
    environment: ExternalEnvironment,
    act: Callable[[int, np.ndarray], Any],
    *,
    seed: int,
    max_steps: int,
    on_step: Callable[[np.ndarray], None] = lambda frames: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Plays one episode in each lane of a vector environment; gives their returns and lengths, (lanes,).

    Args:
      env: from `environment.make`; reset here.
      act: `(time, observations) -> actions`, both with a leading axis of lanes.
      max_steps: episodes are cut off after this number of steps.
      on_step: called with the frames of every step, including the first.
    """
    episodes = Episodes(env, environment, seed=seed, max_steps=max_steps)
    on_step(episodes.frames)
    while not episodes.is_over:
        episodes.take(env.step(np.asarray(act(episodes.time, episodes.observations), np.int64)))
        on_step(episodes.frames)
    return episodes.returns, episodes.lengths


def external_random_return(environment: ExternalEnvironment, num_episodes: int, max_steps: int) -> float:
    """The mean return of episodes with uniformly random actions."""
    draws, env = np.random.default_rng(0), environment.make(num_episodes, False)
    act = lambda time, observations: draws.integers(environment.num_actions, size=num_episodes)
    try:
        return float(play(env, environment, act, seed=0, max_steps=max_steps)[0].mean())
    finally:
        env.close()


class _Asked(NamedTuple):
    """An evaluation that waits for its turn."""

    answer: Future[Episodes]
    key: Array
    agent: Any


@dataclass
class _Place:
    """A slot in which evaluations are played one after the other, in the same environments."""

    env: Any = None  # made on first use
    answer: Future[Episodes] | None = None  # None if the place is free
    episodes: Any = None

    def end(self, error: BaseException | None = None) -> None:
        """Returns the episodes, or the error."""
        assert self.answer is not None
        answer, self.answer = self.answer, None
        if error is None:
            answer.set_result(self.episodes)
            return
        answer.set_exception(error)
        env, self.env = self.env, None  # its state is unknown after an error
        if env is not None:
            with contextlib.suppress(Exception):
                env.close()


class Evaluator:
    """Plays evaluation episodes in a thread of its own, each evaluation with the parameters that it was given.

    The thread plays several evaluations in parallel and chooses all their actions in one call, so that they delay the
    training thread no more than one evaluation would. When one ends, the next takes its place.

    Args:
      environment: the external environment.
      acting: how the agent acts; only `begin` and `exploit_each` are used.
      hyper: its hyper-parameters.
      num_episodes: episodes of an evaluation, of `max_steps` steps at most.
      num_places: evaluations played in parallel. Others wait in a queue and do not hold up training, because now and
        then an episode takes a hundred times as long as most.
    """

    MOST_WAITING = 30  # each holds a copy of the parameters

    def __init__(
        self,
        environment: ExternalEnvironment,
        acting: Acting,
        hyper: Any,
        *,
        num_episodes: int,
        max_steps: int,
        num_places: int = 1,
    ):
        self._environment, self._acting, self._hyper = environment, acting, hyper
        self._num_episodes, self._max_steps = num_episodes, max_steps
        self._places = [_Place() for _ in range(num_places)]
        self._table: Any = None  # key, policy and context of every place
        self._seen = np.zeros((num_places, num_episodes, *environment.observation_shape), environment.frame_dtype)
        self._room = threading.Semaphore(num_places + self.MOST_WAITING)
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()  # None wakes the thread and ends it
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evaluation", daemon=True)
        self._thread.start()

    def submit(self, key: Array, agent: Any) -> Future[Episodes]:
        """Queues an evaluation of `policy_of(agent)`; blocks if the queue is full. The result is its `Episodes`."""
        if self._is_closing.is_set():
            raise RuntimeError("the evaluator is closed")
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
            except BaseException as error:  # passed on to the caller of `submit`
                for i in playing:
                    if self._places[i].answer is not None:
                        self._places[i].end(error)
                self._table = None

    def _fill(self) -> None:
        """Assigns queued evaluations to idle slots; waits for an evaluation if all slots are idle."""
        for i, place in enumerate(self._places):
            if place.answer is not None:
                continue
            try:
                asked = self._asked.get(block=all(each.answer is None for each in self._places))
            except queue.Empty:
                return
            if asked is None:
                return
            if asked.answer.set_running_or_notify_cancel():
                place.answer = asked.answer
                try:
                    self._seat(i, asked)
                except BaseException as error:
                    place.end(error)

    def _seat(self, i: int, asked: _Asked) -> None:
        """Begins the episodes of an evaluation."""
        place = self._places[i]
        if place.env is None:
            place.env = self._environment.make(self._num_episodes, False)
        key_seed, key_context, key_act = jax.random.split(asked.key, 3)
        one = key_act, asked.agent, self._acting.begin(key_context, self._num_episodes, self._hyper)
        if self._table is None:
            self._table = jax.tree.map(lambda x: jnp.stack([x] * len(self._places)), one)
        else:
            self._table = _put(self._table, i, one)
        seed = int(jax.random.randint(key_seed, (), 0, 2**30))
        place.episodes = Episodes(place.env, self._environment, seed=seed, max_steps=self._max_steps)

    def _step(self, playing: Sequence[int]) -> None:
        """One step of all evaluations in progress; an error in one does not affect the others."""
        times = np.zeros(len(self._places), np.int32)
        for i in playing:
            times[i], self._seen[i] = self._places[i].episodes.time, self._places[i].episodes.observations
        keys, policies, contexts = self._table
        exploit, by_itself = self._acting.exploit_each, self._environment.steps_by_itself
        actions = np.asarray(exploit(keys, times, policies, contexts, self._seen, self._hyper), np.int64)
        if by_itself:
            for i in playing:
                self._places[i].env.send(actions[i])
        for i in playing:
            place = self._places[i]
            try:
                place.episodes.take(place.env.recv() if by_itself else place.env.step(actions[i]))
            except BaseException as error:
                place.end(error)
                continue
            if place.episodes.is_over:
                place.end()

    def close(self) -> None:
        """Cancels the evaluations and closes the environments."""
        self._is_closing.set()
        self._asked.put(None)
        self._thread.join()
        self._asked.put(None)  # the thread may have taken the first
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
