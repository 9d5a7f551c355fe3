"""Training on external environments: acting, stepping, storing and learning, overlapped.

One turn of the loop:

    receive  wait for the environments of the group whose turn it is
    act      store the arrivals and choose actions for the newest observations (device)
    send     hand the actions to the group's thread, which waits for them and steps the environments
    learn    the block of gradient steps that is due (device)

Python waits only in `receive`. It queues the work of the device, acting before learning, and goes on. So the device
always has work, and the environments step as soon as their actions are computed. Events have the same order as
in a sequential loop: actions come from parameters that have learnt from all arrivals. Several groups of environments
take turns, so that some step while the device chooses actions for another.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import AgentState
from feelgood.envs.external import ExternalEnvironment
from feelgood.replay.frames import Arrival
from feelgood.training.acting import acting_part, policy_of
from feelgood.training.batch import SECONDS_TO_FIRST_CHECKPOINT, Interrupted, stop_on_signal
from feelgood.training.config import ExternalConfig
from feelgood.training.curve import CurveRecorder, Point
from feelgood.training.evaluation import Evaluator
from feelgood.training.external_steps import ExternalSteps
from feelgood.training.group import Counts, Group
from feelgood.training.journal import Journal
from feelgood.typing import Array


class Outcome(NamedTuple):
    """The result of a run.

    Attributes:
      curve: one point for each evaluation, starting with the untrained network.
      agent: the agent's final state.
      best: the policy with the highest evaluation return, the latest one in a tie. As the best of several noisy
        evaluations, this return is biased upwards.
      best_step: its environment step.
      seconds: time by part of the loop ("receive", "act", "learn", "rest", and "total") since this process began the
        run; and the mean time that the groups' threads spent "waiting" for actions and "stepping" environments.
      num_steps: environment steps in that time.
      step: environment steps in all.
    """

    curve: list[Point]
    agent: AgentState
    best: AgentState
    best_step: int
    seconds: dict[str, float]
    num_steps: int
    step: int


class _Counters(NamedTuple):
    """Counts so far: turns of the loop, gradient steps, seconds, and resets of all environments."""

    turns: int = 0
    gradients: int = 0
    seconds: float = 0.0
    beginnings: int = 0


class Run:
    """A run in progress."""

    def __init__(
        self,
        environment: ExternalEnvironment,
        steps: ExternalSteps,
        config: ExternalConfig,
        hyper: Any,
        seed: int,
        num_evaluators: int,
        report: Callable[[Point], None],
        tick: Callable[[int, float], None],
        say: Callable[[str], None],
    ):
        self.environment, self.steps, self.config, self.tick, self.say = environment, steps, config, tick, say
        self.hyper = jax.tree.map(jnp.asarray, dict(hyper))
        key_init, self.key_act, self.key_learn, key_evaluate, key_envs = jax.random.split(jax.random.key(seed), 5)
        self.seed_envs = int(jax.random.randint(key_envs, (), 0, 2**30))
        self.agent, self.lanes = steps.init(key_init, self.hyper)
        self.counters, self.began = _Counters(), time.monotonic()
        self.journal: Journal | None = None
        self.potentials: list[Any] = []
        with ThreadPoolExecutor(1) as pool:  # making emulators takes as long as compiling
            compiled = pool.map(lambda part: part.compile(), self._lowered())
            self.groups = [Group(environment, config.num_lanes) for _ in range(config.num_groups)]
            list(compiled)
        num_episodes, max_steps = config.num_evaluation_episodes, config.max_evaluation_steps
        play = {"num_episodes": num_episodes, "max_steps": max_steps, "num_places": num_evaluators}
        self.evaluator = Evaluator(environment, steps.acting, self.hyper, **play)
        self.curve = CurveRecorder(config.num_steps, config.evaluation_period, self.evaluator, key_evaluate, report)

    def _lowered(self) -> list[Any]:
        """Acting and learning, before compilation."""
        none, start = np.zeros(self.config.num_lanes, bool), np.uint32(0)
        frame = np.zeros((self.config.num_lanes, *self.environment.frame_shape), self.environment.frame_dtype)
        arrival = Arrival(frame, none, none.astype(np.int32), none.astype(np.float32), none)
        rest = (self.hyper, self._progress())
        return [
            self.steps.act.lower(self.key_act, start, acting_part(self.agent), self.lanes, arrival, *rest),
            self.steps.learn.lower(self.key_learn, start, self.agent, self.lanes, *rest),
        ]

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return self.counters.turns * self.config.num_lanes

    @property
    def group(self) -> Group:
        """The group whose turn it is."""
        return self.groups[self.counters.turns % self.config.num_groups]

    # On disk.

    def keep(self, folder: Path, label: str, checkpoint_seconds: float) -> None:
        """Keeps the run in a folder from now on; continues a run that is already there."""
        self.checkpoint_seconds, self.num_spare = checkpoint_seconds, self.config.num_rows // 8 + 1
        row = self.lanes.frames.frame[0]
        self.journal = Journal(folder, label, self.config.num_rows, 2 * self.num_spare, row)
        found = self.journal.restore(self._all_but_frames())
        if found is not None:
            self.agent, lanes, counters, rows = found
            self.counters, self.curve.rows = _Counters(*(x.item() for x in counters)), np.array(rows)
            frames = self.lanes.frames.frame
            if not self._is_trained():  # a finished run keeps no frames
                frames.delete()  # memory may not suffice for two rings
                frames = jnp.asarray(self.journal.rows(self.counters.turns))
            self.lanes = lanes._replace(frames=lanes.frames._replace(frame=frames))
            self.say(f"continuing from step {self.step}; the environments begin new episodes")
            self._evaluate_again(self.journal.snapshots(jax.eval_shape(policy_of, self.agent)))
        self.saved, self.saved_turns = time.monotonic(), self.counters.turns
        self.wait = min(checkpoint_seconds, SECONDS_TO_FIRST_CHECKPOINT)

    def _evaluate_again(self, snapshots: Mapping[int, Any]) -> None:
        """Starts the evaluations that were in progress; removes the points whose policies are lost, with a message."""
        assert self.journal is not None
        waiting, best = self.curve.unevaluated_steps(), self.curve.best_step()
        if best is not None and best in snapshots:
            self.curve.best = best, snapshots[best]
        for step in waiting:
            policy = policy_of(self.agent) if step == self.step else snapshots.get(step)
            if policy is not None:
                self.curve.evaluate(step, policy)
                continue
            self.curve.drop(step)
            why = "because its policy cannot be read; the curve leaves it out"
            self.say(f"the evaluation at step {step} is lost, {why}")
        for step in snapshots.keys() - {*waiting, best}:
            self.journal.forget(step)

    def _all_but_frames(self) -> Any:
        """The contents of a checkpoint; the journal already holds the frames."""
        lanes = self.lanes._replace(frames=self.lanes.frames._replace(frame=jnp.zeros((0,), jnp.uint8)))
        counters = self.counters._replace(seconds=self._seconds())
        return self.agent, lanes, tuple(map(np.asarray, counters)), self.curve.rows

    def _seconds(self) -> float:
        """Working time so far, including that before a resumption."""
        return self.counters.seconds + time.monotonic() - self.began

    def _checkpoint(self) -> None:
        assert self.journal is not None
        copy = lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf.copy()
        evaluated = [step for step in self.curve.reported_steps() if step != self.curve.best_step()]
        self.journal.checkpoint(jax.tree.map(copy, self._all_but_frames()), evaluated)
        self.saved, self.saved_turns = time.monotonic(), self.counters.turns
        self.wait = self.checkpoint_seconds

    # Evaluation.

    def _evaluate(self) -> None:
        """Adds a point to the curve: training statistics now, the evaluation return later."""
        counts = Counts(*(sum(values) for values in zip(*(group.counts for group in self.groups), strict=True)))
        mean = lambda total, count: total / count if count else np.nan
        is_finite = bool(self.steps.is_finite(self.agent))
        point = Point(
            step=self.step,
            return_=np.nan,
            return_spread=np.nan,
            episode_length=np.nan,
            training_return=mean(counts.ended_return, counts.num_ended),
            num_episodes=counts.num_ended,
            action_changes=mean(counts.num_changes, counts.num_followed),
            potential=float(np.mean(jax.device_get(self.potentials))) if self.potentials else np.nan,
            seconds=self._seconds(),
            is_finite=is_finite,
        )
        self.curve.add(point)
        self.potentials = []
        for group in self.groups:
            group.counts = Counts()
        if is_finite:
            policy = policy_of(self.agent)
            if self.journal is not None:
                self.journal.snapshot(self.step, policy)
            self.curve.evaluate(self.step, policy)

    # The loop.

    def go(self) -> Outcome:
        """Runs to the end of the budget."""
        first_turn, lap = self.counters.turns, time.monotonic
        seconds = dict.fromkeys(("receive", "act", "learn", "rest"), 0.0)
        self._begin()
        self.ticked = lap(), self.step
        if self.counters.turns == 0:
            self._evaluate()
        with stop_on_signal() as stop:
            while not self._is_trained() and not stop.is_set():
                t0 = lap()
                arrival = self.group.receive()
                t1 = lap()
                if self.journal is not None:
                    self.journal.row(self.counters.turns, arrival.frame.copy())  # the environments may overwrite it
                self.group.send(self._act(arrival))
                self.counters = self.counters._replace(turns=self.counters.turns + 1)
                t2 = lap()
                self._learn()
                t3 = lap()
                self._look_after()
                t4 = lap()
                for part, spent in zip(seconds, (t1 - t0, t2 - t1, t3 - t2, t4 - t3), strict=True):
                    seconds[part] += spent
            if stop.is_set():
                self._collect()
                if self.journal is not None:
                    self._checkpoint()
                    self.journal.flush()
            else:
                self._keep_end()  # before waiting for the last evaluations
            while self.curve.is_waiting() and not stop.is_set():
                self.curve.wait(0.2)
                self._collect()
            if stop.is_set():
                raise Interrupted(self._outcome(first_turn, seconds))
        self._collect()
        self._keep_end()
        if self.journal is not None:
            self.journal.release()
        return self._outcome(first_turn, seconds)

    def _outcome(self, first_turn: int, seconds: Mapping[str, float]) -> Outcome:
        """The result so far, given the first turn of this process and the time that the loop's parts have taken."""
        ours = {"total": time.monotonic() - self.began}
        for name in ("waiting", "stepping"):
            ours[name] = float(np.mean([getattr(group, f"seconds_{name}") for group in self.groups]))
        num_steps = (self.counters.turns - first_turn) * self.config.num_lanes
        best_step, best = self.curve.best or (self.step, policy_of(self.agent))
        return Outcome(self.curve.points(), self.agent, best, best_step, {**seconds, **ours}, num_steps, self.step)

    def _collect(self) -> None:
        """Takes in finished evaluations, and reports the first that was cut off."""
        before = self.curve.num_cut
        self.curve.collect(self.step)
        if self.curve.num_cut and not before:
            when = f"after {self.config.max_evaluation_steps} steps, because the environment had not ended them"
            how = "the setting max_evaluation_steps changes this"
            self.say(f"evaluation episodes of {self.environment.name} were cut off {when}; {how}")

    def _is_trained(self) -> bool:
        """Whether the budget is used up, or the parameters are no longer finite."""
        return self.step >= self.config.num_steps or not self.curve.is_alive(self.step)

    def _keep_end(self) -> None:
        """Writes the last checkpoint; if the disk fails, the result is still returned."""
        if self.journal is None:
            return
        try:
            self._checkpoint()
            self.journal.flush()
        except OSError as error:
            self.say(str(error))
            self.journal.close()
            self.journal = None

    def _begin(self) -> None:
        """Begins new episodes in all environments, with new seeds each time."""
        num_envs, num_groups = self.config.num_envs, self.config.num_groups
        seed = (self.seed_envs + self.counters.beginnings * 1_000_003) % 2**30
        self.counters = self.counters._replace(beginnings=self.counters.beginnings + 1)
        stagger = np.arange(num_envs) * self.config.num_stagger_turns // num_envs  # 0: no reset
        for i, group in enumerate(self.groups):
            group.begin(seed + i * self.config.num_lanes, stagger[i::num_groups])

    def _progress(self) -> np.float32:
        return np.float32(min(self.step / self.config.num_steps, 1.0))

    def _act(self, arrival: Arrival) -> Array:
        """Queues the choice of actions."""
        turn, policy = np.uint32(self.counters.turns), acting_part(self.agent)  # fewer arrays to pass
        inputs = self.lanes, arrival, self.hyper, self._progress()
        self.lanes, actions = self.steps.act(self.key_act, turn, policy, *inputs)
        return actions

    def _learn(self) -> None:
        """Queues the block of gradient steps if one is due."""
        config, turns = self.config, self.counters.turns
        if turns < config.first_block or turns % config.turns_per_block:
            return
        count, inputs = np.uint32(self.counters.gradients), (self.lanes, self.hyper, self._progress())
        self.agent, priorities, potential = self.steps.learn(self.key_learn, count, self.agent, *inputs)
        self.lanes = self.lanes._replace(frames=self.lanes.frames._replace(priorities=priorities))
        self.potentials.append(potential)
        self.counters = self.counters._replace(gradients=self.counters.gradients + config.updates_per_block)

    def _look_after(self) -> None:
        """Evaluates, reports and writes checkpoints when they are due."""
        now, (before, step) = time.monotonic(), self.ticked
        if now - before > 1:
            self.tick(self.step, (self.step - step) / (now - before))
            self.ticked = now, self.step
        index = self.curve.index(self.step)
        if index > self.curve.index(self.step - self.config.num_lanes):
            self._evaluate()
        if self.curve.is_waiting() or self.curve.num_reported <= index:
            self._collect()
        if self.journal is not None:
            # Two rows below the journal's limit: one is in flight, and one is to come.
            rows_left = self.num_spare - (self.counters.turns - self.saved_turns) - 2
            if rows_left <= 0 or time.monotonic() - self.saved > self.wait:
                self._checkpoint()

    def close(self) -> None:
        """Ends all threads and environments, even if closing one of them fails."""
        with contextlib.ExitStack() as stack:
            if self.journal is not None:
                stack.callback(self.journal.close)
            for group in self.groups:
                stack.callback(group.close)
            stack.callback(self.evaluator.close)
