"""Randomised exploration in reinforcement learning by approximate posterior sampling."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from feelgood import noise, samplers

__all__ = ["noise", "samplers"]
__version__ = "0.1.0"


def __getattr__(name: str):
    # Rooms load when first used, so that the command line answers without waiting for JAX.
    if name in __all__:
        return importlib.import_module(f"feelgood.{name}")
    raise AttributeError(f"module 'feelgood' has no attribute {name!r}")
