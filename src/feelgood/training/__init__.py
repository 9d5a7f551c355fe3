"""Loops that train agents: inside XLA for functional environments, many runs at a time."""

from feelgood.training.batch import Curves, Interrupted, Progress, run_batch
from feelgood.training.ingraph import Protocol, Record, RunState, Trainer, trainer

__all__ = ["Curves", "Interrupted", "Progress", "Protocol", "Record", "RunState", "Trainer", "run_batch", "trainer"]
