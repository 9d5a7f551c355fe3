"""The family: each member is a composition, and what makes it different is what it says.

| member            | network                | objective      | sampler                        | acts              |
|-------------------|------------------------|----------------|--------------------------------|-------------------|
| fg_ulmcdqn        | MLP                    | TD + feel-good | adaptive underdamped Langevin  | greedily          |
| steady_fg_ulmcdqn | MLP                    | TD + feel-good | the same, annealed             | greedily, average |
| fg_lmcdqn         | MLP                    | TD + feel-good | Adam-LMC                       | greedily          |
| ulmcdqn           | MLP                    | TD             | adaptive underdamped Langevin  | greedily          |
| adam_lmcdqn       | MLP                    | TD             | Adam-LMC                       | greedily          |
| lmcdqn            | MLP                    | TD             | LMC, no bias term              | greedily          |
| langevin_dqn      | MLP                    | TD             | Adam with preconditioned noise | greedily          |
| dqn               | MLP                    | TD             | Adam, no noise                 | ε-greedily        |
| bootstrapped_dqn  | 10 MLPs, random priors | TD of each     | Adam, no noise                 | by one member     |
| noisynet_dqn      | MLP of noisy layers    | TD             | Adam, no noise                 | greedily          |

Hyper-parameters are numbers or traced arrays, so that one compilation serves a whole grid; whatever changes shapes or
control flow is an option. A hyper-parameter `x` beside an `x_end` moves to it over the budget, see `anneal`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import optax

from feelgood import networks, samplers
from feelgood.agents.base import Agent, epsilon_greedy, one_member_an_episode, value_agent
from feelgood.checks import check_choice
from feelgood.networks import Network
from feelgood.objectives import Objective, feel_good, td
from feelgood.typing import Scalar

__all__ = ["ZOO", "Options", "Recipe", "anneal", "make_agent"]

Hyper = Mapping[str, Scalar]


@dataclass(frozen=True)
class Options:
    """What is fixed when an agent is compiled.

    Attributes:
      hidden: widths of the hidden layers.
      double: whether the online network picks the action that the target network values.
      form: of the adaptive samplers. "released": noise in the parameters, α₂ = 0.999, √v + λ, as in the authors' code.
        "paper": noise in the momentum, α₂ = 0.99, √(v + λ), as in the paper's equation.
      num_members: of an ensemble.
    """

    hidden: tuple[int, ...] = (32, 32)
    double: bool = False
    form: Literal["released", "paper"] = "released"
    num_members: int = 10

    def __post_init__(self):
        check_choice("form", self.form, ("released", "paper"))

    def bias(self) -> dict[str, Any]:
        """Arguments of `adaptive_bias` in this form."""
        released = self.form == "released"
        return {"second_decay": 0.999 if released else 0.99, "epsilon_in_root": not released}


class Spaces(NamedTuple):
    """What a network must fit: the shape of observations, the number of actions, and how codes become observations."""

    observation_shape: tuple[int, ...]
    num_actions: int
    decode: Callable[[Any], Any] = lambda code: code


def _network(spaces: Spaces, make_model: Callable) -> Network:
    """A network on codes: observations stay in their stored form until the network reads them."""
    plain = networks.network(make_model)
    return Network(
        plain.init, lambda params, frozen, code, key=None: plain.apply(params, frozen, spaces.decode(code), key)
    )


def _mlp(spaces: Spaces, options: Options) -> Network:
    return _network(spaces, lambda key: networks.mlp(key, spaces.observation_shape, options.hidden, spaces.num_actions))


def _td(options: Options) -> Objective:
    return td(double=options.double)


def _adaptive_underdamped(hyper: Hyper, options: Options) -> samplers.Sampler:
    return samplers.adaptive_underdamped(
        hyper["step_size"],
        hyper["friction"],
        hyper["inverse_temperature"],
        bias_factor=hyper["bias_factor"],
        noise_in="params" if options.form == "released" else "momentum",
        **options.bias(),
    )


def _adam_langevin(hyper: Hyper, options: Options) -> samplers.Sampler:
    return samplers.adam_langevin(
        hyper["step_size"], hyper["inverse_temperature"], bias_factor=hyper["bias_factor"], **options.bias()
    )


def fg_ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Feel-good underdamped Langevin Monte Carlo DQN."""
    objective = _td(options) + feel_good(hyper["feel_good_weight"])
    return value_agent(_mlp(spaces, options), objective, _adaptive_underdamped(hyper, options))


def steady_fg_ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """FG-ULMCDQN made steady: step and optimism fall over the budget, evaluation acts on the average of the draws."""
    objective = _td(options) + feel_good(hyper["feel_good_weight"])
    sampler = _adaptive_underdamped(hyper, options)
    return value_agent(_mlp(spaces, options), objective, sampler, average=hyper["average"])


def fg_lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Feel-good Langevin Monte Carlo DQN."""
    objective = _td(options) + feel_good(hyper["feel_good_weight"])
    return value_agent(_mlp(spaces, options), objective, _adam_langevin(hyper, options))


def ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Underdamped Langevin Monte Carlo DQN."""
    return value_agent(_mlp(spaces, options), _td(options), _adaptive_underdamped(hyper, options))


def adam_lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Langevin Monte Carlo DQN with the adaptive bias (Ishfaq et al., 2024)."""
    return value_agent(_mlp(spaces, options), _td(options), _adam_langevin(hyper, options))


def lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Langevin Monte Carlo DQN without bias term."""
    sampler = samplers.langevin(hyper["step_size"], hyper["inverse_temperature"])
    return value_agent(_mlp(spaces, options), _td(options), sampler)


def langevin_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Adam plus preconditioned noise (Dwaracherla and Van Roy, 2020)."""
    sampler = samplers.preconditioned_adam_langevin(hyper["step_size"], hyper["inverse_temperature"])
    return value_agent(_mlp(spaces, options), _td(options), sampler)


def _adam(hyper: Hyper) -> samplers.Sampler:
    return samplers.from_optax(optax.adam(hyper["step_size"]))


def dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN with Adam and ε-greedy (Mnih et al., 2015); double if the options say so."""
    return value_agent(_mlp(spaces, options), _td(options), _adam(hyper), epsilon_greedy())


def bootstrapped_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Ensemble of separate networks with random priors, one active member an episode (Osband et al., 2016, 2018)."""

    def member(key):
        key_model, key_prior = jax.random.split(key)
        make = lambda key: networks.mlp(key, spaces.observation_shape, options.hidden, spaces.num_actions)
        return networks.with_prior(make(key_model), make(key_prior), 1.0)

    network = _network(spaces, lambda key: networks.ensemble(key, member, options.num_members))
    exploration = one_member_an_episode(options.num_members)
    return value_agent(network, _td(options), _adam(hyper), exploration, is_random=True)


def noisynet_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Trained noise in every layer, drawn anew in every step, in evaluation too (Fortunato et al., 2018)."""
    network = _network(
        spaces, lambda key: networks.noisy_mlp(key, spaces.observation_shape, options.hidden, spaces.num_actions)
    )
    return value_agent(network, _td(options), _adam(hyper), is_random=True)


@dataclass(frozen=True)
class Recipe:
    """A member of the zoo.

    Attributes:
      make: `(spaces, hyper, options) -> Agent`.
      hyper: names of its hyper-parameters with values that work.
      num_updates: J, gradient steps per environment step, in the paper's N-chain protocol.
    """

    make: Callable[[Spaces, Hyper, Options], Agent]
    hyper: Mapping[str, float] = field(default_factory=dict)
    num_updates: int = 1

    @property
    def summary(self) -> str:
        """One line on what it is."""
        return (self.make.__doc__ or "").splitlines()[0]


# Defaults: the winners on tuning seeds at N = 100, of the paper's grid and for steady_fg_ulmcdqn of a search beyond it;
# see docs/reproduction.md.
ZOO: dict[str, Recipe] = {
    "fg_ulmcdqn": Recipe(
        fg_ulmcdqn,
        {
            "step_size": 1e-3,
            "inverse_temperature": 1e10,
            "bias_factor": 1.0,
            "friction": 0.1,
            "feel_good_weight": 0.1,
        },
        num_updates=4,
    ),
    "steady_fg_ulmcdqn": Recipe(
        steady_fg_ulmcdqn,
        {
            "step_size": 1e-2,
            "step_size_end": 0.0,
            "inverse_temperature": 1e10,
            "bias_factor": 1.0,
            "friction": 1.0,
            "feel_good_weight": 0.05,
            "feel_good_weight_end": 0.0,
            "average": 0.997,
        },
        num_updates=4,
    ),
    "fg_lmcdqn": Recipe(
        fg_lmcdqn,
        {"step_size": 1e-2, "inverse_temperature": 1e10, "bias_factor": 1.0, "feel_good_weight": 0.1},
        num_updates=4,
    ),
    "ulmcdqn": Recipe(
        ulmcdqn,
        {"step_size": 1e-3, "inverse_temperature": 1e12, "bias_factor": 1.0, "friction": 0.1},
        num_updates=4,
    ),
    "adam_lmcdqn": Recipe(
        adam_lmcdqn, {"step_size": 1e-2, "inverse_temperature": 1e8, "bias_factor": 1.0}, num_updates=4
    ),
    "lmcdqn": Recipe(lmcdqn, {"step_size": 1e-3, "inverse_temperature": 1e8}, num_updates=4),
    "langevin_dqn": Recipe(langevin_dqn, {"step_size": 1e-2, "inverse_temperature": 1e10}, num_updates=4),
    "dqn": Recipe(dqn, {"step_size": 1e-2}),
    "bootstrapped_dqn": Recipe(bootstrapped_dqn, {"step_size": 1e-4}),
    "noisynet_dqn": Recipe(noisynet_dqn, {"step_size": 1e-2}),
}


def anneal(hyper: Hyper, progress: Scalar) -> dict[str, Scalar]:
    """What the hyper-parameters are at `progress` in [0, 1]: each `x` beside an `x_end` moves to it linearly.

    Example:
      >>> anneal({"step_size": 0.1, "step_size_end": 0.0, "friction": 1.0}, 0.25)["step_size"]
      0.075
    """
    at = dict(hyper)
    for name in [name for name in hyper if name.endswith("_end")]:
        start = hyper[name.removesuffix("_end")]
        at[name.removesuffix("_end")] = start + (hyper[name] - start) * progress
    return at


def make_agent(name: str, spaces: Spaces, hyper: Hyper | None = None, options: Options | None = None) -> Agent:
    """Builds a member of the zoo, its hyper-parameters replaced where `hyper` names them."""
    check_choice("agent", name, ZOO)
    recipe = ZOO[name]
    for given in hyper or {}:
        check_choice(f"hyper-parameter of {name}", given, recipe.hyper)
    return recipe.make(spaces, {**recipe.hyper, **(hyper or {})}, options or Options())
