"""Training on environments outside XLA: acting, stepping, storing and learning, overlapped.

One turn of the loop:

    receive  wait for the environments of the group whose turn it is
    act      store what arrived, look at the newest observations, choose actions (device)
    send     tell the group's thread, which waits for the actions and lets the environments step
    learn    the gradient steps that are due (device)

The host waits in `receive` only: it starts what the device has to do, acting before learning, and goes on. So the
device always has work, the environments step as soon as they may, and the order of events is that of a loop that does
one after the other: actions come from parameters that have seen everything but the steps in flight. Several groups of
environments take turns, so that one steps also while the device chooses for another.
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

from feelgood.agents import Agent, AgentState, Spaces, constant
from feelgood.envs.external import Task
from feelgood.replay.frames import Arrival
from feelgood.training.batch import Interrupted, stop_on_signal
from feelgood.training.curve import Curve, Point
from feelgood.training.evaluation import Evaluator, acting_part, policy_of
from feelgood.training.group import Group, Tally
from feelgood.training.journal import Journal
from feelgood.training.machinery import Machinery, machinery
from feelgood.training.protocol import HostProtocol
from feelgood.typing import Array, Scalar

__all__ = ["Outcome", "Point", "train"]


class Outcome(NamedTuple):
    """What a run leaves behind.

    Attributes:
      curve: one point for each evaluation, the untrained network's first.
      agent: the agent's last state.
      seconds: by part of the loop ("receive", "act", "learn", "rest", and "total"), since this process began the run;
        of the groups' threads, on average, "waiting" for actions and "stepping" their environments.
      num_steps: environment steps that these seconds were for.
    """

    curve: list[Point]
    agent: AgentState
    seconds: dict[str, float]
    num_steps: int


class _Counters(NamedTuple):
    """Where a run stands: turns of the loop, gradient steps, seconds, how often the environments were begun."""

    turns: int = 0
    gradients: int = 0
    seconds: float = 0.0
    beginnings: int = 0


def train(
    task: Task,
    make_agent: Callable[[Spaces, Any], Agent],
    protocol: HostProtocol,
    hyper: Mapping[str, Scalar],
    seed: int,
    *,
    schedule: Callable[[Any, Scalar], Any] = constant,
    folder: Path | None = None,
    label: str = "",
    checkpoint_seconds: float = 60.0,
    num_evaluators: int | None = None,
    report: Callable[[Point], None] = lambda point: None,
    tick: Callable[[int, float], None] = lambda step, speed: None,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Trains one run.

    The same seed gives the same run on the same device, as long as the environments are deterministic.

    Args:
      task: the external environment.
      make_agent: `(spaces, hyper) -> Agent`.
      protocol: how the run goes.
      hyper: hyper-parameters of the agent.
      seed: of initialisation, noise, minibatches and environments.
      schedule: `(hyper, progress) -> hyper`; see `machinery`.
      folder: where to keep checkpoints; None keeps none. A run found there is continued: agent, replay, counters and
        curve as they were; the environments begin new episodes, and `say` is told so.
      label: what run it is; the checkpoint of another is refused.
      checkpoint_seconds: time between two checkpoints; they also come when the journal's spare rows are used up.
      num_evaluators: evaluations that are played side by side, beside the training; None for 4 on an accelerator and
        1 on a CPU, where an empty place costs as much as a taken one.
      report: called with each point of the curve as it is known, in order.
      tick: called every second or so with the environment steps so far and how many there are a second.
      say: called with a sentence where something happens that the user should know.

    Raises:
      Interrupted: after Ctrl-C; the run is in the folder.
    """
    if num_evaluators is None:
        num_evaluators = 1 if jax.default_backend() == "cpu" else 4
    parts = machinery(task, make_agent, protocol, hyper, schedule)
    run = _Run(task, parts, protocol, hyper, seed, num_evaluators, report, tick)
    try:
        if folder is not None:
            run.keep(folder, f"{label} seed {seed} {protocol}", checkpoint_seconds, say)
        return run.go()
    finally:
        run.close()


class _Run:
    """A run in progress."""

    def __init__(
        self,
        task: Task,
        parts: Machinery,
        protocol: HostProtocol,
        hyper: Any,
        seed: int,
        num_evaluators: int,
        report: Callable[[Point], None],
        tick: Callable[[int, float], None],
    ):
        self.task, self.parts, self.protocol, self.tick = task, parts, protocol, tick
        self.hyper = jax.tree.map(jnp.asarray, dict(hyper))
        key_init, self.key_act, self.key_learn, key_evaluate, key_envs = jax.random.split(jax.random.key(seed), 5)
        self.seed_envs = int(jax.random.randint(key_envs, (), 0, 2**30))
        self.agent, self.lanes = parts.init(key_init, self.hyper)
        self.counters, self.began = _Counters(), time.monotonic()
        self.journal: Journal | None = None
        self.potentials: list[Any] = []
        with ThreadPoolExecutor(1) as pool:  # emulators take as long to make as XLA takes to compile
            compiled = pool.map(lambda part: part.compile(), self._lowered())
            self.groups = [Group(task, protocol.num_lanes) for _ in range(protocol.num_groups)]
            list(compiled)
        self.evaluator = Evaluator(
            task,
            parts.exploit_each,
            parts.begin,
            self.hyper,
            num_episodes=protocol.num_evaluation_episodes,
            max_steps=protocol.max_evaluation_steps,
            num_places=num_evaluators,
        )
        self.curve = Curve(protocol.num_steps, protocol.evaluation_period, self.evaluator, key_evaluate, report)

    def _lowered(self) -> list[Any]:
        """Acting and learning, ready to be compiled."""
        num_lanes, task = self.protocol.num_lanes, self.task
        none, start = np.zeros(num_lanes, bool), np.uint32(0)
        frame = np.zeros((num_lanes, *task.frame_shape), task.frame_dtype)
        arrival = Arrival(frame, none, none.astype(np.int32), none.astype(np.float32), none)
        rest = (self.hyper, self._progress())
        return [
            self.parts.act.lower(self.key_act, start, acting_part(self.agent), self.lanes, arrival, *rest),
            self.parts.learn.lower(self.key_learn, start, self.agent, self.lanes, *rest),
        ]

    @property
    def step(self) -> int:
        return self.counters.turns * self.protocol.num_lanes

    @property
    def group(self) -> Group:
        """The environments whose turn it is."""
        return self.groups[self.counters.turns % self.protocol.num_groups]

    # On disk.

    def keep(self, folder: Path, label: str, checkpoint_seconds: float, say: Callable[[str], None]) -> None:
        """Keeps the run in a folder from now on, and continues the one that is there."""
        self.checkpoint_seconds, self.num_spare, self.say = checkpoint_seconds, self.protocol.num_rows // 8 + 1, say
        row = self.lanes.frames.frame[0]
        self.journal = Journal(folder, label, self.protocol.num_rows, self.num_spare, row)
        found = self.journal.restore(self._all_but_frames())
        if found is not None:
            self.agent, lanes, counters, rows = found
            self.counters, self.curve.rows = _Counters(*(x.item() for x in counters)), np.array(rows)
            self.lanes.frames.frame.delete()  # two rings would not fit where one does
            stored = jnp.asarray(self.journal.rows(self.counters.turns))
            self.lanes = lanes._replace(frames=lanes.frames._replace(frame=stored))
            say(f"continuing from step {self.step}; the environments begin new episodes")
            for step, policy in self.journal.snapshots(jax.eval_shape(policy_of, self.agent)).items():
                if step <= self.step and not self.curve.is_evaluated(step):
                    self.curve.evaluate(step, policy)
                else:
                    self.journal.forget(step)
        self.saved, self.saved_turns = time.monotonic(), self.counters.turns

    def _all_but_frames(self) -> Any:
        """What a checkpoint holds; the frames are in the journal already."""
        lanes = self.lanes._replace(frames=self.lanes.frames._replace(frame=jnp.zeros((0,), jnp.uint8)))
        return self.agent, lanes, tuple(map(np.asarray, self._counted())), self.curve.rows

    def _counted(self) -> _Counters:
        return self.counters._replace(seconds=self.counters.seconds + time.monotonic() - self.began)

    def _checkpoint(self) -> None:
        assert self.journal is not None
        copy = lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf.copy()
        self.journal.checkpoint(jax.tree.map(copy, self._all_but_frames()), self.curve.reported_steps())
        self.saved, self.saved_turns = time.monotonic(), self.counters.turns

    def _checkpoint_is_due(self) -> bool:
        # Two rows less than what the journal can spare: the one in flight, and the one to come.
        rows_left = self.num_spare - (self.counters.turns - self.saved_turns) - 2
        return rows_left <= 0 or time.monotonic() - self.saved > self.checkpoint_seconds

    # Evaluation.

    def _evaluate(self) -> None:
        """Asks for a point of the curve: what training was like is known now, what the policy is worth later."""
        tally = Tally(*(sum(values) for values in zip(*(group.tally for group in self.groups), strict=True)))
        mean = lambda total, count: total / count if count else np.nan
        is_finite = bool(self.parts.is_finite(self.agent))
        potential = float(np.mean(jax.device_get(self.potentials))) if self.potentials else np.nan
        point = Point(
            step=self.step,
            return_=np.nan,
            return_spread=np.nan,
            episode_length=np.nan,
            training_return=mean(tally.ended_return, tally.num_ended),
            num_episodes=tally.num_ended,
            action_changes=mean(tally.num_changes, tally.num_followed),
            potential=potential,
            seconds=self._counted().seconds,
            is_finite=is_finite,
        )
        self.curve.add(point)
        self.potentials = []
        for group in self.groups:
            group.tally = Tally()
        if is_finite:
            policy = policy_of(self.agent)
            if self.journal is not None:
                self.journal.snapshot(self.step, policy)
            self.curve.evaluate(self.step, policy)

    # The loop.

    def go(self) -> Outcome:
        """Runs to the end of the budget."""
        protocol, first_turn = self.protocol, self.counters.turns
        num_turns = -(-protocol.num_steps // protocol.num_lanes)
        lap, seconds = time.monotonic, dict.fromkeys(("receive", "act", "learn", "rest"), 0.0)
        self._begin()
        self.ticked = lap(), self.step
        if self.counters.turns == 0:
            self._evaluate()
        with stop_on_signal() as stop:
            while self.counters.turns < num_turns and not stop.is_set() and self.curve.is_alive(self.step):
                t0 = lap()
                arrival = self.group.receive()
                t1 = lap()
                if self.journal is not None:
                    self.journal.row(self.counters.turns, arrival.frame.copy())  # the environments may reuse it
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
                if self.journal is not None:
                    self._checkpoint()
                    self.journal.flush()
                raise Interrupted
            self._keep_end()  # what is learnt is safe before the last evaluations are waited for
            while self.curve.is_waiting() and not stop.is_set():
                self.curve.wait(0.2)
                self.curve.collect(self.step)
            if stop.is_set():
                raise Interrupted
        self.curve.collect(self.step)
        self._keep_end()
        seconds["total"] = lap() - self.began
        for name in ("waiting", "stepping"):
            seconds[name] = float(np.mean([getattr(group, f"seconds_{name}") for group in self.groups]))
        num_steps = (self.counters.turns - first_turn) * protocol.num_lanes
        return Outcome(self.curve.points(), self.agent, seconds, num_steps)

    def _keep_end(self) -> None:
        """Keeps a run that is at its end; a disk that does not take it costs the folder, but not what was learnt."""
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
        """Begins new episodes everywhere; each beginning has seeds of its own."""
        num_envs, num_groups = self.protocol.num_envs, self.protocol.num_groups
        seed = (self.seed_envs + self.counters.beginnings * 1_000_003) % 2**30
        self.counters = self.counters._replace(beginnings=self.counters.beginnings + 1)
        stagger = np.arange(num_envs) * self.protocol.num_stagger_turns // num_envs  # the first ones just began
        for i, group in enumerate(self.groups):
            group.begin(seed + i * self.protocol.num_lanes, stagger[i::num_groups])

    def _progress(self) -> np.float32:
        return np.float32(min(self.step / self.protocol.num_steps, 1.0))

    def _act(self, arrival: Arrival) -> Array:
        """Starts to choose actions."""
        turn, policy = np.uint32(self.counters.turns), acting_part(self.agent)  # half as many arrays to hand over
        self.lanes, actions = self.parts.act(
            self.key_act, turn, policy, self.lanes, arrival, self.hyper, self._progress()
        )
        return actions

    def _learn(self) -> None:
        """Starts the gradient steps that are due."""
        protocol = self.protocol
        turns = self.counters.turns
        if turns < protocol.first_block or turns % protocol.turns_per_block:
            return
        progress = self._progress()
        for _ in range(protocol.updates_per_block // protocol.stretch):
            count = np.uint32(self.counters.gradients)
            self.agent, priorities, potential = self.parts.learn(
                self.key_learn, count, self.agent, self.lanes, self.hyper, progress
            )
            self.lanes = self.lanes._replace(frames=self.lanes.frames._replace(priorities=priorities))
            self.potentials.append(potential)
            self.counters = self.counters._replace(gradients=self.counters.gradients + protocol.stretch)
            if self.counters.gradients % protocol.target_period == 0:
                self.agent = self.parts.sync(self.agent, self.hyper, progress)

    def _look_after(self) -> None:
        """Evaluates, saves and tells where it is time to."""
        now, (before, step) = time.monotonic(), self.ticked
        if now - before > 1:
            self.tick(self.step, (self.step - step) / (now - before))
            self.ticked = now, self.step
        index = self.curve.index(self.step)
        if index > self.curve.index(self.step - self.protocol.num_lanes):
            self._evaluate()
        if self.curve.is_waiting() or self.curve.num_reported <= index:
            self.curve.collect(self.step)
        if self.journal is not None and self._checkpoint_is_due():
            self._checkpoint()

    def close(self) -> None:
        """Ends threads and environments, each whatever happens to the others."""
        with contextlib.ExitStack() as stack:
            if self.journal is not None:
                stack.callback(self.journal.close)
            for group in self.groups:
                stack.callback(group.close)
            stack.callback(self.evaluator.close)
