"""Environments: functional ones, which run inside XLA, and external ones in `feelgood.envs.external`.

`feelgood.envs.gym` offers functional environments to Gymnasium.
"""

from feelgood.envs.base import Environment, Spec, Step, check_environment
from feelgood.envs.control import ControlState, acrobot, cart_pole, mountain_car
from feelgood.envs.deep_sea import DeepSeaState, deep_sea, deep_sea_mapping
from feelgood.envs.nchain import NChainState, nchain

__all__ = [
    "ControlState",
    "DeepSeaState",
    "Environment",
    "NChainState",
    "Spec",
    "Step",
    "acrobot",
    "cart_pole",
    "check_environment",
    "deep_sea",
    "deep_sea_mapping",
    "mountain_car",
    "nchain",
]
