"""Choices that agents, studies and the command line share; the module does not import JAX."""

from typing import Literal, TypeAlias, get_args

Form: TypeAlias = Literal["released", "paper", "corrected", "bounded"]
"""Forms of the adaptive samplers; see `feelgood.agents.Options`."""

Init: TypeAlias = Literal["torch", "unbiased", "he"]
"""Initial weights of networks; see `feelgood.agents.Options`."""

NetworkName: TypeAlias = Literal["auto", "mlp", "nature"]
"""Networks of agents; see `feelgood.agents.Options`."""

Critic: TypeAlias = Literal["mean", "categorical", "quantile"]
"""The statistic of the return that a network estimates; see `feelgood.agents.Options`."""

Reduction: TypeAlias = Literal["mean", "sum"]
"""How the losses of a minibatch are combined; see `feelgood.agents.Options`."""

CRITICS: tuple[str, ...] = get_args(Critic)
FORMS: tuple[str, ...] = get_args(Form)
INITS: tuple[str, ...] = get_args(Init)
NETWORKS: tuple[str, ...] = get_args(NetworkName)
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
