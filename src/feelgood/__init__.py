"""Randomised exploration in reinforcement learning by approximate posterior sampling."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feelgood import (
        agents,
        api,
        bandits,
        envs,
        figures,
        linear,
        networks,
        noise,
        objectives,
        protocols,
        replay,
        report,
        runs,
        samplers,
        statistics,
        studies,
        training,
    )
    from feelgood.api import Result, train
    from feelgood.runs.store import load_results
    from feelgood.training.policy import Policy
    from feelgood.training.policy_files import load_policy, save_policy

__all__ = [
    "Policy",
    "Result",
    "agents",
    "api",
    "bandits",
    "envs",
    "figures",
    "linear",
    "load_policy",
    "load_results",
    "networks",
    "noise",
    "objectives",
    "protocols",
    "replay",
    "report",
    "runs",
    "samplers",
    "save_policy",
    "statistics",
    "studies",
    "train",
    "training",
]
__version__ = "0.1.0"

# Packages load on first use, so that the command line starts without loading JAX.
_HOMES = {
    "Policy": "feelgood.training.policy",
    "Result": "feelgood.api",
    "load_policy": "feelgood.training.policy_files",
    "load_results": "feelgood.runs.store",
    "save_policy": "feelgood.training.policy_files",
    "train": "feelgood.api",
}


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in __all__:
        return importlib.import_module(f"feelgood.{name}")
    raise AttributeError(f"module 'feelgood' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
