"""Environments as pure functions inside XLA; `feelgood.envs.gym` hands them out as Gymnasium environments."""

from feelgood.envs.base import Environment, Spec, Step, check_environment
from feelgood.envs.deep_sea import DeepSeaState, deep_sea
from feelgood.envs.nchain import NChainState, nchain

__all__ = ["DeepSeaState", "Environment", "NChainState", "Spec", "Step", "check_environment", "deep_sea", "nchain"]
