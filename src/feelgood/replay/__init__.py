"""Replay: storage of transitions, and the sampling of minibatches."""

from feelgood.replay.priorities import Priorities, PrioritiesState, priorities
from feelgood.replay.transitions import Batch, Replay, ReplayState, Transition, replay

__all__ = ["Batch", "Priorities", "PrioritiesState", "Replay", "ReplayState", "Transition", "priorities", "replay"]
