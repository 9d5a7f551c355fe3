"""Environments: functional ones, which run inside XLA, and external ones in `feelgood.envs.external`.

`feelgood.envs.gym` offers functional environments to Gymnasium.
"""

from feelgood.envs.base import Environment, Spec, Step, check_environment
from feelgood.envs.deep_sea import DeepSeaState, deep_sea
from feelgood.envs.nchain import NChainState, nchain

__all__ = ["DeepSeaState", "Environment", "NChainState", "Spec", "Step", "check_environment", "deep_sea", "nchain"]
