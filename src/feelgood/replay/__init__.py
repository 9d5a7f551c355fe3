"""Replay: where transitions are kept, and how minibatches are drawn from them."""

from feelgood.replay.priorities import Priorities, PrioritiesState, priorities
from feelgood.replay.ring import Batch, Replay, ReplayState, Transition, replay

__all__ = [
    "Batch",
    "Priorities",
    "PrioritiesState",
    "Replay",
    "ReplayState",
    "Transition",
    "priorities",
    "replay",
]
