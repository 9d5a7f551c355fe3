"""Compile-time options of an agent, and the spaces of its environment."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from feelgood.checks import check_choice, check_count, check_kind, check_positive
from feelgood.choices import CRITICS, FORMS, INITS, NETWORKS, REDUCTIONS, Critic, Form, Init, NetworkName, Reduction
from feelgood.typing import Scalar

Hyper = Mapping[str, Scalar]


@dataclass(frozen=True)
class Options:
    """Compile-time options of an agent.

    Attributes:
      hidden: widths of the hidden layers of an MLP; if None, (64, 64) for ensemble_dqn and (32, 32) for the others.
      double: whether the online network picks the action that the target network values.
      form: form of the adaptive samplers. "released": noise in the parameters, α₂ = 0.999, √v + ε, as in the authors'
        code. "paper": noise in the momentum, α₂ = 0.99, √(v + ε), as in the paper's equation. "corrected": the released
        one with Adam's bias correction of its moving averages and with one momentum: in underdamped samplers P averages
        gradients already, so m does not (α₁ = 0). "bounded": the corrected one, where the drift of each array has a
        root mean square of at most a; see `bound` of `feelgood.samplers.adaptive_bias`.
      matched_noise: whether the noise of the adaptive samplers fits their drift, so that they keep their law and it is
        large for parameters that had few gradients; see `feelgood.samplers.adaptive_underdamped`.
      num_members: number of ensemble members; if None, 20 for ensemble_dqn and 10 for bootstrapped_dqn.
      init: initial weights. "torch": PyTorch's. "unbiased": PyTorch's with zero biases; see
        `feelgood.networks.zero_biases`. "he": He's, with zero biases; see `feelgood.networks.he_weights`.
      network: "mlp", "nature" (Mnih et al., 2015), or "auto": "nature" for images of at least 36 × 36 pixels, else
        "mlp"; but ensemble_dqn has tables for one-hot observations of 32 cells or more.
      critic: the statistic that the network estimates. "mean": the mean return. "categorical": probabilities of
        `num_atoms` returns on [−v_max, v_max], as in C51. "quantile": quantiles of the return at random fractions, as
        in IQN.
      num_atoms: number of atoms of the categorical critic.
      v_max: the largest return that the categorical critic can represent.
      prioritized: whether replay is prioritised, by |TD error| or by the loss of a distribution.
      noisy_evaluation: whether noisy layers draw noise in evaluation too; otherwise they use their means. With the
        quantile critic, which draws its fractions, they always draw noise.
      reduction: how the losses of a minibatch are combined. "mean": the posterior has the same width however many data
        there are. "sum": their mean times the number of transitions stored, so the posterior sharpens as data grow.
        Gradients grow with it, so unscaled samplers need smaller step sizes, and ε of the adaptive ones is relative to
        larger gradients; see `feelgood.objectives.potential`.
    """

    hidden: Sequence[int] | None = None
    double: bool = False
    form: Form = "released"
    matched_noise: bool = False
    num_members: int | None = None
    init: Init = "torch"
    network: NetworkName = "auto"
    critic: Critic = "mean"
    num_atoms: int = 51
    v_max: float = 10.0
    prioritized: bool = False
    noisy_evaluation: bool = True
    reduction: Reduction = "mean"

    def __post_init__(self):
        check_choice("form", self.form, FORMS)
        check_choice("init", self.init, INITS)
        check_choice("network", self.network, NETWORKS)
        check_choice("critic", self.critic, CRITICS)
        check_choice("reduction", self.reduction, REDUCTIONS)
        if self.hidden is not None:
            check_kind("hidden", self.hidden, (tuple, list), "widths of layers")
            for width in self.hidden:
                check_count("hidden", width, maximum=1_000_000)
            object.__setattr__(self, "hidden", tuple(int(width) for width in self.hidden))
        if self.num_members is not None:
            check_count("num_members", self.num_members)
            object.__setattr__(self, "num_members", int(self.num_members))
        check_count("num_atoms", self.num_atoms, minimum=2)
        check_positive("v_max", self.v_max)
        for name in ("double", "matched_noise", "prioritized", "noisy_evaluation"):
            check_kind(name, getattr(self, name), bool, "True or False")
        object.__setattr__(self, "num_atoms", int(self.num_atoms))

    @property
    def widths(self) -> tuple[int, ...]:
        """`hidden`, which must not be None any more; see `feelgood.agents.complete`."""
        return tuple(self._known("hidden"))

    @property
    def members(self) -> int:
        """`num_members`, which must not be None any more; see `feelgood.agents.complete`."""
        return self._known("num_members")

    def _known(self, name: str) -> Any:
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"option {name} must be a value, got None; feelgood.agents.complete gives the agent's own")
        return value


class Spaces(NamedTuple):
    """Observation shape, number of actions, and how stored observations are decoded.

    Attributes:
      observation_shape: shape of one observation.
      num_actions: number of actions.
      decode: from the stored form of observations to observations.
      is_one_hot: whether observations are one-hot, stored as the index of their 1 (any index past the end for zeros).
        The networks of the zoo then look up rows of their first layer; see `feelgood.networks.OneHot`.
      bound: largest absolute value of each entry of an observation, infinite if there is none; see
        `feelgood.networks.scaled`.
    """

    observation_shape: tuple[int, ...]
    num_actions: int
    decode: Callable[[Any], Any] = lambda code: code
    is_one_hot: bool = False
    bound: Any = 1.0
