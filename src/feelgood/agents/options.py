"""What is fixed when an agent is compiled, and what its network must fit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from feelgood.checks import check_choice, check_count, check_kind, check_positive
from feelgood.choices import CRITICS, FORMS, INITS, Critic, Form, Init
from feelgood.typing import Scalar

__all__ = ["Hyper", "Options", "Spaces"]

Hyper = Mapping[str, Scalar]


@dataclass(frozen=True)
class Options:
    """What is fixed when an agent is compiled.

    Attributes:
      hidden: widths of the hidden layers of an MLP.
      double: whether the online network picks the action that the target network values.
      form: of the adaptive samplers. "released": noise in the parameters, α₂ = 0.999, √v + λ, as in the authors' code.
        "paper": noise in the momentum, α₂ = 0.99, √(v + λ), as in the paper's equation. "corrected": the released one
        with its moving averages corrected for their start from 0, as Adam's are, and with one momentum: in underdamped
        samplers P averages gradients, so that m need not (α₁ = 0).
      num_members: of an ensemble.
      init: weights that networks start with. "torch": PyTorch's. "unbiased": these, and no biases; see
        `feelgood.networks.zero_biases`. "he": larger, and no biases; see `feelgood.networks.he_weights`.
      network: "mlp", "nature" (Mnih et al., 2015), or "auto": "nature" for observations of rank 3, else "mlp".
      critic: what the network tells of a return. "mean": its mean. "categorical": probabilities of `num_atoms` atoms on
        [−v_max, v_max], as C51 does. "quantile": its quantiles at random fractions, as IQN does.
      num_atoms: of the categorical critic.
      v_max: the largest return that the categorical critic can tell.
      prioritized: whether transitions are replayed by priority: |TD error| or the loss of a distribution.
      noisy_evaluation: whether noisy layers draw their noise in evaluation too, or go by their means; they always draw
        it with the quantile critic, which draws its fractions.
    """

    hidden: Sequence[int] = (32, 32)
    double: bool = False
    form: Form = "released"
    num_members: int = 10
    init: Init = "torch"
    network: Literal["auto", "mlp", "nature"] = "auto"
    critic: Critic = "mean"
    num_atoms: int = 51
    v_max: float = 10.0
    prioritized: bool = False
    noisy_evaluation: bool = True

    def __post_init__(self):
        check_choice("form", self.form, FORMS)
        check_choice("init", self.init, INITS)
        check_choice("network", self.network, ("auto", "mlp", "nature"))
        check_choice("critic", self.critic, CRITICS)
        check_kind("hidden", self.hidden, (tuple, list), "widths of layers")
        for width in self.hidden:
            check_count("hidden", width)
        check_count("num_members", self.num_members)
        check_count("num_atoms", self.num_atoms, minimum=2)
        check_positive("v_max", self.v_max)
        for name in ("double", "prioritized", "noisy_evaluation"):
            check_kind(name, getattr(self, name), bool, "True or False")
        whole = {"num_members": int(self.num_members), "num_atoms": int(self.num_atoms)}
        for name, value in {**whole, "hidden": tuple(int(width) for width in self.hidden)}.items():
            object.__setattr__(self, name, value)


class Spaces(NamedTuple):
    """What a network must fit: the shape of observations, the number of actions, and how codes become observations."""

    observation_shape: tuple[int, ...]
    num_actions: int
    decode: Callable[[Any], Any] = lambda code: code
