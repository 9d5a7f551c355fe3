"""The family: each member is a composition, and what makes it different is what it says.

| member            | network                  | objective      | sampler                        | acts              |
|-------------------|--------------------------|----------------|--------------------------------|-------------------|
| fg_ulmcdqn        | plain                    | TD + feel-good | adaptive underdamped Langevin  | greedily          |
| steady_fg_ulmcdqn | plain                    | TD + feel-good | the same, annealed             | greedily, average |
| fg_lmcdqn         | plain                    | TD + feel-good | Adam-LMC                       | greedily          |
| ulmcdqn           | plain                    | TD             | adaptive underdamped Langevin  | greedily          |
| adam_lmcdqn       | plain                    | TD             | Adam-LMC                       | greedily          |
| lmcdqn            | plain                    | TD             | LMC, no bias term              | greedily          |
| langevin_dqn      | plain                    | TD             | Adam with preconditioned noise | greedily          |
| dqn               | plain                    | TD             | Adam, no noise                 | ε-greedily        |
| prioritized_dqn   | plain                    | TD, weighted   | Adam, no noise                 | ε-greedily        |
| c51               | 51 atoms an action       | cross-entropy  | Adam, no noise                 | ε-greedily        |
| iqn               | implicit quantiles       | quantile Huber | Adam, no noise                 | ε-greedily        |
| bootstrapped_dqn  | 10 heads, random priors  | TD of each     | Adam, no noise                 | by one member     |
| noisynet_dqn      | noisy layers             | TD             | Adam, no noise                 | greedily          |

"Plain" is an MLP on vectors and the network of Mnih et al. (2015) on images. Every member is what its name says and no
more: targets are neither double nor over several steps unless the options and the replay say so. Distributions and
priorities go with any member but the ensemble, which has no distributions: `Options(critic="categorical")` makes
FG-ULMCDQN a feel-good C51.

Hyper-parameters are numbers or traced arrays, so that one compilation serves a whole grid; whatever changes shapes or
control flow is an option. A hyper-parameter `x` beside an `x_end` moves to it over the budget, see `anneal`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import optax

from feelgood import networks, objectives, samplers
from feelgood.agents.base import Agent, Exploration, epsilon_greedy, one_member_an_episode, value_agent
from feelgood.checks import check_choice, check_count, check_kind, check_positive
from feelgood.choices import CRITICS, FORMS, INITS, Critic, Form, Init
from feelgood.networks import Network
from feelgood.objectives import Objective, feel_good
from feelgood.typing import Array, PRNGKey, Scalar

__all__ = [
    "Hyper",
    "Options",
    "Spaces",
    "adam_lmcdqn",
    "bootstrapped_dqn",
    "c51",
    "dqn",
    "fg_lmcdqn",
    "fg_ulmcdqn",
    "iqn",
    "langevin_dqn",
    "lmcdqn",
    "noisynet_dqn",
    "prioritized_dqn",
    "steady_fg_ulmcdqn",
    "ulmcdqn",
]

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


class _Critic(NamedTuple):
    """A network with what its outputs call for: the TD term of the objective, and what priorities are made of."""

    network: Network
    td: Objective
    priority: Callable[..., Array]
    is_random: bool = False


# Dabney et al. (2018): fractions drawn for each observation, in learning and in acting.
_NUM_LEARNING_FRACTIONS, _NUM_ACTING_FRACTIONS = 64, 32


def _network(
    spaces: Spaces, options: Options, make: Callable[[PRNGKey], Any], values: Callable[..., Array] | None = None
) -> Network:
    """A network on codes: observations stay in their stored form until the network reads them."""
    make_model = lambda key: networks.with_init(make(key), options.init)
    plain = networks.network(make_model) if values is None else networks.network(make_model, values)

    def apply(params, frozen, code, key=None, **settings):
        return plain.apply(params, frozen, spaces.decode(code), key, **settings)

    return plain._replace(apply=apply, is_large=len(spaces.observation_shape) == 3)


def _is_nature(spaces: Spaces, options: Options) -> bool:
    return options.network == "nature" or (options.network == "auto" and len(spaces.observation_shape) == 3)


def _model(spaces: Spaces, options: Options, dense: Callable[..., Any], num_outputs: int) -> Callable[[PRNGKey], Any]:
    """`key -> model` from observations to `num_outputs` numbers, of plain or of noisy dense layers."""
    if _is_nature(spaces, options):
        return lambda key: networks.nature_cnn(key, spaces.observation_shape, num_outputs, dense=dense)
    return lambda key: dense(key, spaces.observation_shape, options.hidden, num_outputs)


def _quantile_model(spaces: Spaces, options: Options, dense: Callable[..., Any]) -> Callable[[PRNGKey], Any]:
    """Fractions enter where the head begins: after the convolutions, or before the last of several hidden layers."""
    last = max(len(options.hidden) - 1, 1)
    shape = spaces.observation_shape

    def make(key: PRNGKey) -> Any:
        key_trunk, key_embedding, key_head = jax.random.split(key, 3)
        trunk: Any
        hidden: Sequence[int]
        if _is_nature(spaces, options):
            trunk, hidden = networks.nature_convolutions(key_trunk, shape), (512,)
        else:
            trunk = networks.mlp_features(key_trunk, shape, options.hidden[:last], dense=dense)
            hidden = options.hidden[last:]
        head = lambda num_features: dense(key_head, num_features, hidden, spaces.num_actions)
        return networks.implicit_quantiles(key_embedding, trunk, head, num_fractions=_NUM_LEARNING_FRACTIONS)

    return make


def _critic(spaces: Spaces, options: Options, dense: Callable[..., Any] = networks.mlp) -> _Critic:
    """The network that the options ask for, of `dense` layers, and its TD term."""
    double = options.double
    if options.critic == "mean":
        network = _network(spaces, options, _model(spaces, options, dense, spaces.num_actions))
        return _Critic(network, objectives.td(double=double), partial(objectives.td_errors, double=double))
    if options.critic == "categorical":
        atoms = np.linspace(-options.v_max, options.v_max, options.num_atoms)
        make = _model(spaces, options, dense, spaces.num_actions * options.num_atoms)
        network = _network(
            spaces,
            options,
            lambda key: networks.categorical(make(key), options.num_atoms),
            objectives.categorical_values(atoms),
        )
        losses = partial(objectives.categorical_losses, atoms=atoms, double=double)
        return _Critic(network, objectives.categorical_td(atoms, double=double), losses)
    network = _network(spaces, options, _quantile_model(spaces, options, dense), objectives.quantile_values)
    network = network._replace(act=partial(network.apply, num_fractions=_NUM_ACTING_FRACTIONS))
    losses = partial(objectives.quantile_losses, double=double)
    return _Critic(network, objectives.quantile_td(double=double), losses, is_random=True)


def _agent(
    critic: _Critic,
    options: Options,
    sampler: samplers.Sampler,
    exploration: Exploration | None = None,
    *,
    feel_good_weight: Scalar | None = None,
    average: Scalar | None = None,
    is_random: bool = False,
    keyless_evaluation: bool = False,
) -> Agent:
    """TD, and optimism where a weight is given, moved by the sampler."""
    objective = critic.td
    if feel_good_weight is not None:
        objective = objective + feel_good(feel_good_weight, values=critic.network.values)
    return value_agent(
        critic.network,
        objective,
        sampler,
        exploration,
        average=average,
        priority=critic.priority if options.prioritized else None,
        is_random=is_random or critic.is_random,
        keyless_evaluation=keyless_evaluation,
    )


def _bias(hyper: Hyper, options: Options) -> dict[str, Any]:
    """Arguments of `adaptive_bias`."""
    paper = options.form == "paper"
    form = {
        "second_decay": 0.99 if paper else 0.999,
        "epsilon_in_root": paper,
        "corrected": options.form == "corrected",
    }
    return {"bias_factor": hyper["bias_factor"], "epsilon": hyper["bias_epsilon"], **form}


def _adaptive_underdamped(hyper: Hyper, options: Options) -> samplers.Sampler:
    first_decay = 0.0 if options.form == "corrected" else 0.9
    return samplers.adaptive_underdamped(
        hyper["step_size"],
        hyper["friction"],
        hyper["inverse_temperature"],
        noise_in="momentum" if options.form == "paper" else "params",
        first_decay=first_decay,
        **_bias(hyper, options),
    )


def _adam_langevin(hyper: Hyper, options: Options) -> samplers.Sampler:
    return samplers.adam_langevin(hyper["step_size"], hyper["inverse_temperature"], **_bias(hyper, options))


def fg_ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Feel-good underdamped Langevin Monte Carlo DQN."""
    sampler = _adaptive_underdamped(hyper, options)
    return _agent(_critic(spaces, options), options, sampler, feel_good_weight=hyper["feel_good_weight"])


def steady_fg_ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """FG-ULMCDQN made steady: step and optimism fall over the budget, evaluation acts on the average of the draws."""
    sampler, weight = _adaptive_underdamped(hyper, options), hyper["feel_good_weight"]
    return _agent(_critic(spaces, options), options, sampler, feel_good_weight=weight, average=hyper["average"])


def fg_lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Feel-good Langevin Monte Carlo DQN."""
    sampler = _adam_langevin(hyper, options)
    return _agent(_critic(spaces, options), options, sampler, feel_good_weight=hyper["feel_good_weight"])


def ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Underdamped Langevin Monte Carlo DQN."""
    return _agent(_critic(spaces, options), options, _adaptive_underdamped(hyper, options))


def adam_lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Langevin Monte Carlo DQN with the adaptive bias (Ishfaq et al., 2024)."""
    return _agent(_critic(spaces, options), options, _adam_langevin(hyper, options))


def lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Langevin Monte Carlo DQN without bias term."""
    sampler = samplers.langevin(hyper["step_size"], hyper["inverse_temperature"])
    return _agent(_critic(spaces, options), options, sampler)


def langevin_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Adam plus preconditioned noise (Dwaracherla and Van Roy, 2020)."""
    sampler = samplers.preconditioned_adam_langevin(hyper["step_size"], hyper["inverse_temperature"])
    return _agent(_critic(spaces, options), options, sampler)


def _adam(hyper: Hyper) -> samplers.Sampler:
    return samplers.from_optax(optax.adam(hyper["step_size"], eps=hyper["adam_epsilon"]))


def _epsilon(hyper: Hyper) -> tuple[Scalar, Scalar, Scalar]:
    return hyper["initial_epsilon"], hyper["final_epsilon"], hyper["epsilon_fraction"]


def dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN with Adam, squared error and ε-greedy (Mnih et al., 2015); double if the options say so."""
    return _agent(_critic(spaces, options), options, _adam(hyper), epsilon_greedy(*_epsilon(hyper)))


def prioritized_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN that replays transitions by their TD error (Schaul et al., 2016); double if the options say so."""
    return dqn(spaces, hyper, replace(options, prioritized=True))


def _with_critic(agent: str, critic: Critic, options: Options) -> Options:
    """The options with the critic that an agent is named for, where no other was asked for."""
    if options.critic not in ("mean", critic):
        raise ValueError(f"critic must be {critic!r} for {agent}, got {options.critic!r}")
    return replace(options, critic=critic)


def c51(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN on the distribution of returns over fixed atoms (Bellemare et al., 2017)."""
    return dqn(spaces, hyper, _with_critic("c51", "categorical", options))


def iqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN on quantiles of the return at random fractions, drawn in evaluation too (Dabney et al., 2018)."""
    return dqn(spaces, hyper, _with_critic("iqn", "quantile", options))


def bootstrapped_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Ensemble with random priors, one active member an episode (Osband et al., 2016, 2018).

    On vectors the members are separate networks; on images they are linear heads that share all else, which receives
    the mean of their gradients, and so are the members of the prior.
    """
    if options.critic != "mean":
        raise ValueError(f"critic must be 'mean' for the ensemble of bootstrapped_dqn, got {options.critic!r}")
    num_members, num_actions = options.num_members, spaces.num_actions

    def shared(key):
        key_convolutions, key_dense, key_heads = jax.random.split(key, 3)
        trunk = networks.over(
            networks.nature_convolutions(key_convolutions, spaces.observation_shape),
            lambda num_features: networks.mlp_features(key_dense, num_features, (512,)),
        )
        head = lambda num_features, key: networks.mlp(key, num_features, (), num_actions)
        return networks.over(
            trunk,
            lambda num_features: networks.ensemble(key_heads, partial(head, num_features), num_members),
            gradient_scale=1 / num_members,
        )

    def with_prior(make, key):
        key_model, key_prior = jax.random.split(key)
        return networks.with_prior(make(key_model), make(key_prior), 1.0)

    def separate(key):
        member = partial(with_prior, _model(spaces, options, networks.mlp, num_actions))
        return networks.ensemble(key, member, num_members)

    model = partial(with_prior, shared) if _is_nature(spaces, options) else separate
    # TD errors of members stand side by side and their squares add up.
    double = options.double
    critic = _Critic(
        _network(spaces, options, model), objectives.td(double=double), partial(objectives.td_errors, double=double)
    )
    exploration = one_member_an_episode(num_members, *_epsilon(hyper))
    return _agent(critic, options, _adam(hyper), exploration, is_random=True)


def noisynet_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Trained noise in every dense layer, drawn anew in every step, in evaluation too (Fortunato et al., 2018)."""
    critic = _critic(spaces, options, networks.noisy_mlp)
    keyless = not (options.noisy_evaluation or critic.is_random)
    return _agent(critic, options, _adam(hyper), is_random=not keyless, keyless_evaluation=keyless)
