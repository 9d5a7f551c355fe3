"""The zoo. Each agent composes a network, an objective, a sampler and an exploration rule.

| agent             | network                  | objective      | sampler                        | acts              |
|-------------------|--------------------------|----------------|--------------------------------|-------------------|
| ensemble_dqn      | 20 members with priors   | TD             | Adam, no noise                 | by one member     |
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
| bootstrapped_dqn  | 10 members with priors   | TD of each     | Adam, no noise                 | by one member     |
| noisynet_dqn      | noisy layers             | TD             | Adam, no noise                 | greedily          |

"Plain" is an MLP on vectors and the network of Mnih et al. (2015) on images. No agent except ensemble_dqn adds anything
that its name does not imply: targets are neither double nor over several steps unless the options and the replay ask
for it. Any agent can use priorities, and any agent except the ensembles can use a distributional critic:
`Options(critic="categorical")` makes FG-ULMCDQN a feel-good C51.

Hyper-parameters are numbers or traced arrays, so that one compilation serves a whole grid. Settings that change shapes
or control flow are options. A hyper-parameter `x` that has an `x_end` moves to it over the budget; see `anneal`.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax

from feelgood import networks, objectives, samplers
from feelgood.agents.base import Agent, value_agent
from feelgood.agents.critics import QCritic, is_nature, make_critic, on_codes, plain_model
from feelgood.agents.exploration import Exploration, epsilon_greedy, one_draw_an_episode, one_member_an_episode
from feelgood.agents.options import Hyper, Options, Spaces
from feelgood.agents.tables import visit_rates
from feelgood.agents.wrappers import (
    bounded_rewards,
    fitted_bounds,
    mixed_horizons,
    own_reward_noise,
    restless,
    without_step_cost,
)
from feelgood.choices import Critic
from feelgood.objectives import feel_good
from feelgood.typing import PRNGKey, Scalar

# With few cells nearly every minibatch holds all one-hot observations, and networks learn them fast enough. Members are
# tables from the first number on; networks, if the options choose them, have smaller first layers from the second on.
_TABLE_CELLS, _MANY_CELLS = 32, 100

# Priors are smooth functions of observations with at most this many numbers.
_MOST_COORDINATES = 16


def _agent(
    critic: QCritic,
    options: Options,
    sampler: samplers.Sampler,
    exploration: Exploration | None = None,
    *,
    feel_good_weight: Scalar | None = None,
    num_starts: int | None = None,
    mostly_without: bool = False,
    average_decay: Scalar | None = None,
    is_random: bool = False,
    keyless_evaluation: bool = False,
) -> Agent:
    """An agent with the TD objective; a weight adds the feel-good term at `num_starts` starts of each minibatch.

    If the weight is 0 and the agent is `mostly_without`, the term costs nothing.
    """
    objective = critic.td
    if feel_good_weight is not None:
        term = feel_good(feel_good_weight, values=critic.network.values, num_observations=num_starts)
        objective += term.only_if(jnp.asarray(feel_good_weight) > 0) if mostly_without else term
    return value_agent(
        critic.network,
        objective,
        sampler,
        exploration,
        reduction=options.reduction,
        average_decay=average_decay,
        priority=critic.priority if options.prioritized else None,
        is_random=is_random or critic.is_random,
        keyless_evaluation=keyless_evaluation,
    )


def _bias(hyper: Hyper, options: Options) -> dict[str, Any]:
    """Arguments of the samplers with the adaptive bias."""
    paper = options.form == "paper"
    form = {
        "second_decay": 0.99 if paper else 0.999,
        "epsilon_in_root": paper,
        "corrected": options.form in ("corrected", "bounded"),
        "bound": 1.0 if options.form == "bounded" else math.inf,
        "matched_noise": options.matched_noise,
    }
    return {"bias_factor": hyper["bias_factor"], "epsilon": hyper["bias_epsilon"], **form}


def _adaptive_underdamped(hyper: Hyper, options: Options) -> samplers.Sampler:
    first_decay = 0.0 if options.form in ("corrected", "bounded") else 0.9
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
    return _agent(make_critic(spaces, options), options, sampler, feel_good_weight=hyper["feel_good_weight"])


def steady_fg_ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """FG-ULMCDQN with annealed step size and feel-good weight, evaluated on a moving average of its draws."""
    sampler, weight = _adaptive_underdamped(hyper, options), hyper["feel_good_weight"]
    return _agent(
        make_critic(spaces, options), options, sampler, feel_good_weight=weight, average_decay=hyper["average_decay"]
    )


def fg_lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Feel-good Langevin Monte Carlo DQN."""
    sampler = _adam_langevin(hyper, options)
    return _agent(make_critic(spaces, options), options, sampler, feel_good_weight=hyper["feel_good_weight"])


def ulmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Underdamped Langevin Monte Carlo DQN."""
    return _agent(make_critic(spaces, options), options, _adaptive_underdamped(hyper, options))


def adam_lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Langevin Monte Carlo DQN with the adaptive bias (Ishfaq et al., 2024)."""
    return _agent(make_critic(spaces, options), options, _adam_langevin(hyper, options))


def lmcdqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Langevin Monte Carlo DQN without bias term."""
    sampler = samplers.langevin(hyper["step_size"], hyper["inverse_temperature"])
    return _agent(make_critic(spaces, options), options, sampler)


def langevin_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Adam plus preconditioned noise (Dwaracherla and Van Roy, 2020)."""
    step_size, beta, epsilon = (hyper[name] for name in ("step_size", "inverse_temperature", "adam_epsilon"))
    sampler = samplers.preconditioned_adam_langevin(step_size, beta, epsilon=epsilon)
    return _agent(make_critic(spaces, options), options, sampler)


def _adam(hyper: Hyper) -> samplers.Sampler:
    return samplers.from_optax(optax.adam(hyper["step_size"], eps=hyper["adam_epsilon"]))


def _epsilon(hyper: Hyper) -> tuple[Scalar, Scalar, Scalar]:
    return hyper["initial_epsilon"], hyper["final_epsilon"], hyper["epsilon_fraction"]


def dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN with Adam, squared error and ε-greedy (Mnih et al., 2015)."""
    return _agent(make_critic(spaces, options), options, _adam(hyper), epsilon_greedy(*_epsilon(hyper)))


def prioritized_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN with prioritised replay by TD error (Schaul et al., 2016)."""
    return dqn(spaces, hyper, replace(options, prioritized=True))


def _with_critic(agent: str, critic: Critic, options: Options) -> Options:
    """The options with the critic that defines an agent; any other critic is an error."""
    if options.critic not in ("mean", critic):
        raise ValueError(f"critic must be {critic!r} for {agent}, got {options.critic!r}")
    return replace(options, critic=critic)


def c51(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN on the distribution of returns over fixed atoms (Bellemare et al., 2017)."""
    return dqn(spaces, hyper, _with_critic("c51", "categorical", options))


def iqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN on quantiles of the return at random fractions, drawn in evaluation too (Dabney et al., 2018)."""
    return dqn(spaces, hyper, _with_critic("iqn", "quantile", options))


def _ensemble(
    name: str,
    spaces: Spaces,
    options: Options,
    num_members: int,
    prior_scale: Scalar,
    member: Callable[[PRNGKey], Any],
    prior: Callable[[PRNGKey], Any],
    is_scaled: bool = False,
) -> networks.Network:
    """Members with a random prior each; on images they are heads that share a trunk, and so do their priors.

    On vectors the members are separate networks. A shared trunk receives the mean of the members' gradients.
    """
    if options.critic != "mean":
        raise ValueError(f"critic must be 'mean' for the ensemble of {name}, got {options.critic!r}")
    num_actions = spaces.num_actions

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

    def with_prior(make, make_prior, key):
        key_model, key_prior = jax.random.split(key)
        return networks.with_prior(make(key_model), make_prior(key_prior), prior_scale)

    def separate(key):
        return networks.ensemble(key, partial(with_prior, member, prior), num_members)

    model = partial(with_prior, shared, shared) if is_nature(spaces, options) else separate
    if is_scaled and not is_nature(spaces, options):
        model = lambda key: networks.scaled(separate(key), spaces.bound, spaces.observation_shape)
    return on_codes(spaces, options, model)


def bootstrapped_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Ensemble with random priors, one active member an episode (Osband et al., 2016, 2018)."""
    plain = plain_model(spaces, options, networks.mlp, spaces.num_actions)
    num_members = options.members
    network = _ensemble("bootstrapped_dqn", spaces, options, num_members, hyper["prior_scale"], plain, plain)
    # Each member has its own TD error, and their squares add up.
    double = options.double
    critic = QCritic(network, objectives.td(double=double), partial(objectives.td_errors, double=double))
    exploration = one_member_an_episode(num_members, *_epsilon(hyper))
    return _agent(critic, options, _adam(hyper), exploration, is_random=True)


def _prior(spaces: Spaces, options: Options) -> Callable[[PRNGKey], Any]:
    """`key -> prior` of a network: on a few coordinates a smooth function of them, else one of their direction.

    Two random points of [−1, 1]^d have a mean squared distance of 2d/3. With the length scale √(d/8) of a smooth
    function, its values there have a correlation of about exp(−8/3) = 0.07.
    """
    shape, num_actions = spaces.observation_shape, spaces.num_actions
    num_inputs = math.prod(shape)
    if spaces.is_one_hot or num_inputs > _MOST_COORDINATES:
        return lambda key: networks.random_prior(key, shape, options.widths, num_actions)
    return lambda key: networks.fourier_prior(key, shape, options.widths[-1], num_actions, math.sqrt(num_inputs / 8))


def ensemble_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """Ensemble of draws with normalised random priors and mixed horizons, one draw an episode; recommended.

    Each member is one draw of the value function: a network plus a fixed random prior of unit variance times
    `prior_scale` (`networks.fourier_prior` if an observation has at most 16 numbers and is not one-hot, else
    `networks.random_prior`). Members disagree where there are no data and agree where there are.
    Horizons differ while rewards are rare: member m has the discount to the power c_m, with c_m from `horizon_spread`
    to 1 in equal ratios (`mixed_horizons`). Members with short horizons soon forget optimism about loops without
    reward; those with long ones explore deeply.
    The gap between the best and other actions is widened by up to `action_gap` times the value, so that errors of
    approximation seldom change the greedy action. The replay is shared. As long as all rewards are 0, half of the
    episodes are random (`restless`). A constant cost per step becomes a reward for the end (`without_step_cost`).
    Returns are divided by a unit (`bounded_rewards`): the largest reward so far, but at least 1, and as long as only
    costs were found that can be avoided, such that a prior promises what an endless search costs. Once a reward was
    found, the least unit falls with the cube of `reward_floor`. Loose bounds of observations are tightened to the
    values observed (`fitted_bounds`).

    One-hot observations share no features. If there are 32 or more, members are tables: a value for each observation
    and action, with independent normal priors, learnt at rates that fall with visits to at most `table_rate`
    (`visit_rates`). With `network="mlp"` members are networks; if there are a hundred cells or more, first layers then
    start `one_hot_scale` times as large as usual, so that networks distinguish cells after fewer updates.

    A `perturbation` σ above 0 adds noise of standard deviation σ to rewards, fixed for each member and transition, so
    that the spread of members is close to a posterior's for rewards with that noise (`objectives.td`). It delays
    exploration, so the default is 0.

    A `feel_good_weight` λ above 0 adds optimism about the start; it acts like a reward for staying there that grows
    with the length of an episode, so the default is 0.
    """
    num_members = options.members
    shape, num_actions = spaces.observation_shape, spaces.num_actions
    num_cells = math.prod(shape) if spaces.is_one_hot else 0
    is_table = num_cells >= _TABLE_CELLS and options.network == "auto"
    member: Callable[[PRNGKey], Any]
    prior: Callable[[PRNGKey], Any]
    if is_table:
        member = lambda key: networks.table(shape, num_actions)
        prior = lambda key: networks.table(shape, num_actions, key)
    else:
        input_scale = hyper["one_hot_scale"] if num_cells >= _MANY_CELLS else 1.0
        member = lambda key: networks.normalized_mlp(key, shape, options.widths, num_actions, input_scale=input_scale)
        prior = _prior(spaces, options)
    network = _ensemble(
        "ensemble_dqn", spaces, options, num_members, hyper["prior_scale"], member, prior, is_scaled=True
    )
    settings: dict[str, Any] = {"double": options.double, "action_gap": hyper["action_gap"]}
    per = "pair" if is_table else "transition"
    td = objectives.td(per=per, perturbation=hyper["perturbation"], **settings)
    critic = QCritic(network, td, partial(objectives.td_errors, **settings))
    sampler = samplers.from_optax(visit_rates(hyper["table_rate"])) if is_table else _adam(hyper)
    exploration = one_draw_an_episode(num_members, hyper["dither"])
    # A large network evaluates a whole minibatch of starts together with the other observations.
    num_starts = None if network.is_large else 16
    weight = hyper["feel_good_weight"]
    optimism: dict[str, Any] = {"feel_good_weight": weight, "num_starts": num_starts, "mostly_without": True}
    agent = _agent(critic, options, sampler, exploration, **optimism)
    powers = jnp.asarray(hyper["horizon_spread"]) ** (1 - jnp.arange(num_members) / max(num_members - 1, 1))
    agent = mixed_horizons(agent, powers)
    if not (spaces.is_one_hot or is_nature(spaces, options)):
        agent = fitted_bounds(agent, spaces.bound, spaces.decode)
    # Costs make tables search: each visit lowers one value, and those of other cells and actions stay. The value of a
    # network's prior is as large as the cost of an endless search.
    prior_scale = jnp.asarray(hyper["prior_scale"], jnp.float32)
    search_factor = 0.0 if is_table else jnp.where(prior_scale > 0, 1 / prior_scale, 0.0)
    agent = bounded_rewards(own_reward_noise(agent), floor=hyper["reward_floor"] ** 3, search_factor=search_factor)
    agent = restless(agent, num_actions)
    return agent if is_table else without_step_cost(agent)


def noisynet_dqn(spaces: Spaces, hyper: Hyper, options: Options) -> Agent:
    """DQN with learned noise in its dense layers, drawn at every step and in evaluation (Fortunato et al., 2018)."""
    critic = make_critic(spaces, options, networks.noisy_mlp)
    keyless = not (options.noisy_evaluation or critic.is_random)
    return _agent(critic, options, _adam(hyper), is_random=not keyless, keyless_evaluation=keyless)
