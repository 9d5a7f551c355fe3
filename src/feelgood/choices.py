"""Choices that agents, studies and the command line share; see `feelgood.agents.Options`. They do not import JAX."""

from typing import Literal, TypeAlias, get_args

Form: TypeAlias = Literal["released", "paper", "corrected", "bounded"]  # of the adaptive samplers
Init: TypeAlias = Literal["torch", "unbiased", "he"]  # initial weights of networks
NetworkName: TypeAlias = Literal["auto", "mlp", "nature"]
Critic: TypeAlias = Literal["mean", "categorical", "quantile"]  # the statistic of the return that a network estimates
Reduction: TypeAlias = Literal["mean", "sum"]  # how the losses of a minibatch are combined

CRITICS: tuple[str, ...] = get_args(Critic)
FORMS: tuple[str, ...] = get_args(Form)
INITS: tuple[str, ...] = get_args(Init)
NETWORKS: tuple[str, ...] = get_args(NetworkName)
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
