"""Choices that several rooms offer under one name; without JAX, for the command line reads them before it is needed."""

from typing import Literal, TypeAlias, get_args

__all__ = ["CRITICS", "FORMS", "INITS", "Critic", "Form", "Init"]

Form: TypeAlias = Literal["released", "paper", "corrected"]
"""Forms of the adaptive samplers; see `feelgood.agents.Options`."""

Init: TypeAlias = Literal["torch", "unbiased", "he"]
"""Weights that networks start with; see `feelgood.agents.Options`."""

Critic: TypeAlias = Literal["mean", "categorical", "quantile"]
"""What a network tells of a return; see `feelgood.agents.Options`."""

CRITICS: tuple[str, ...] = get_args(Critic)
FORMS: tuple[str, ...] = get_args(Form)
INITS: tuple[str, ...] = get_args(Init)
