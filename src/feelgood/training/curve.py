"""The curve of a run. Training statistics are recorded at once; the evaluation return arrives later."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

import jax
import numpy as np

from feelgood.agents import AgentState
from feelgood.training.evaluation import Episodes, Evaluator
from feelgood.typing import PRNGKey


class Point(NamedTuple):
    """One evaluation, and the training that led to it.

    Attributes:
      step: environment steps so far, of all environments.
      return_: mean return of the evaluation's episodes, raw rewards; NaN if parameters are no longer finite.
      return_spread: their standard deviation.
      episode_length: their mean length in steps.
      training_return: mean raw return of the training episodes (or lives, if a life counts as an episode) that ended
        since the last evaluation; NaN if none did.
      num_episodes: their number.
      action_changes: share of training steps since then whose action differs from the one before; NaN if there were
        none. Near 0, the actions hardly depend on the observations.
      potential: mean of the potential over the gradient steps since the last evaluation; NaN if there were none.
      seconds: working time so far, including the time before a resumption.
      is_finite: whether all parameters were finite.
    """

    step: int
    return_: float
    return_spread: float
    episode_length: float
    training_return: float
    num_episodes: int
    action_changes: float
    potential: float
    seconds: float
    is_finite: bool

    def row(self) -> dict[str, Any]:
        """The fields by the names of columns in tables of curves."""
        names = {"return_": "return", "is_finite": "finite"}
        return {names.get(name, name): value for name, value in self._asdict().items()}


class CurveRecorder:
    """The points of a run, and the evaluations in progress.

    Attributes:
      rows: a row for each point, its fields in order; NaN for values that have not arrived.
      num_reported: points that have been reported, or were never due.
      num_cut: evaluation episodes that were cut off.
      best: step and policy of the highest return so far, the latest one in a tie; None if there is none.
    """

    def __init__(
        self, num_steps: int, period: int, evaluator: Evaluator, key: PRNGKey, report: Callable[[Point], None]
    ):
        self.num_steps, self.period, self.evaluator, self.key, self.report = num_steps, period, evaluator, key, report
        self.rows = np.full((-(-num_steps // period) + 1, len(Point._fields)), np.nan)
        self.num_reported, self.num_cut = 0, 0
        self.best: tuple[int, AgentState] | None = None
        self._evaluations: dict[int, tuple[Future[Episodes], AgentState]] = {}

    def index(self, step: int) -> int:
        """The point that was last due at a step; the last one is due at the end of the budget."""
        return len(self.rows) - 1 if step >= self.num_steps else step // self.period

    def add(self, point: Point) -> None:
        """Adds a point without its evaluation."""
        self.rows[self.index(point.step)] = point

    def unevaluated_steps(self) -> list[int]:
        """Steps of the points with finite parameters whose evaluation has not arrived."""
        return [int(row[0]) for row in self.rows if not np.isnan(row[0]) and row[-1] != 0 and np.isnan(row[1])]

    def drop(self, step: int) -> None:
        """Removes a point."""
        self.rows[self.index(step)] = np.nan

    def is_alive(self, step: int) -> bool:
        """Whether parameters were finite at the last point."""
        return bool(self.rows[self.index(step), -1] != 0)

    def evaluate(self, step: int, policy: AgentState) -> None:
        """Starts the evaluation of a point."""
        index = self.index(step)
        self._evaluations[index] = self.evaluator.submit(jax.random.fold_in(self.key, index), policy), policy

    def collect(self, step: int) -> None:
        """Takes in finished evaluations, and reports all points up to the first that is incomplete."""
        for index, (future, policy) in list(self._evaluations.items()):
            if future.done():
                played = future.result()
                self.rows[index, 1:4] = played.returns.mean(), played.returns.std(), played.lengths.mean()
                self.num_cut += played.num_cut
                if self.best_step() == self.rows[index, 0]:
                    self.best = int(self.rows[index, 0]), policy
                del self._evaluations[index]
        while self.num_reported < len(self.rows) and self.num_reported not in self._evaluations:
            if not np.isnan(self.rows[self.num_reported, 0]):
                self.report(_point(self.rows[self.num_reported]))
            elif self.num_reported >= self.index(step):
                break  # otherwise no turn ended at this point
            self.num_reported += 1

    def is_waiting(self) -> bool:
        """Whether evaluations are in progress."""
        return bool(self._evaluations)

    def wait(self, seconds: float) -> None:
        """Waits for the evaluations in progress."""
        wait([future for future, _ in self._evaluations.values()], timeout=seconds)

    def best_step(self) -> int | None:
        """Step of the highest return in the rows, the last one in a tie."""
        return max(((row[1], int(row[0])) for row in self.rows if not np.isnan(row[1])), default=(0, None))[1]

    def reported_steps(self) -> list[int]:
        """Steps of the points that have been reported."""
        return [int(row[0]) for row in self.rows[: self.num_reported] if not np.isnan(row[0])]

    def points(self) -> list[Point]:
        """All points so far whose evaluation is not in progress."""
        ended = [row for i, row in enumerate(self.rows) if i not in self._evaluations]
        return [_point(row) for row in ended if not np.isnan(row[0])]


def _point(row: np.ndarray) -> Point:
    return Point(*(kind(value) for kind, value in zip(Point.__annotations__.values(), row, strict=True)))
