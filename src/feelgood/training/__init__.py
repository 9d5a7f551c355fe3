"""Training loops: inside XLA for functional environments, and around external ones."""

from feelgood.training.batch import Curves, Interrupted, Progress, run_batch
from feelgood.training.config import ExternalConfig, FunctionalConfig, TrainingConfig
from feelgood.training.functional import Record, RunState, Tally, Trainer, Varied, trainer, varied_trainer

__all__ = [
    "Curves",
    "ExternalConfig",
    "FunctionalConfig",
    "Interrupted",
    "Progress",
    "Record",
    "RunState",
    "Tally",
    "Trainer",
    "TrainingConfig",
    "Varied",
    "run_batch",
    "trainer",
    "varied_trainer",
]
