"""Randomised exploration in reinforcement learning by approximate posterior sampling."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feelgood import noise, samplers
    from feelgood.results.store import load_results

__all__ = ["load_results", "noise", "samplers"]
__version__ = "0.1.0"


def __getattr__(name: str):
    # Rooms load when first used, so that the command line answers without waiting for JAX.
    if name == "load_results":
        return importlib.import_module("feelgood.results.store").load_results
    if name in __all__:
        return importlib.import_module(f"feelgood.{name}")
    raise AttributeError(f"module 'feelgood' has no attribute {name!r}")
