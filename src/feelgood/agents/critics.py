"""Critics: the network that the options choose, with the TD loss and the priorities that match its outputs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from feelgood import networks, objectives
from feelgood.agents.options import Options, Spaces
from feelgood.networks import Network
from feelgood.objectives import Objective
from feelgood.typing import Array, PRNGKey


class QCritic(NamedTuple):
    """A network, its TD objective, the errors that priorities are computed from, and whether it is random."""

    network: Network
    td: Objective
    priority: Callable[..., Array]
    is_random: bool = False


# Dabney et al. (2018): fractions drawn for each observation when learning and when acting.
_NUM_LEARNING_FRACTIONS, _NUM_ACTING_FRACTIONS = 64, 32


def on_codes(
    spaces: Spaces, options: Options, make: Callable[[PRNGKey], Any], values: Callable[..., Array] | None = None
) -> Network:
    """A network that decodes its input, so that replay and batches hold observations in their stored form."""
    make_model = lambda key: networks.with_init(make(key), options.init)
    plain = networks.network(make_model) if values is None else networks.network(make_model, values)

    decode = networks.OneHot if spaces.is_one_hot and not is_nature(spaces, options) else spaces.decode

    def apply(params, frozen, code, key=None, **settings):
        return plain.apply(params, frozen, decode(code), key, **settings)

    return plain._replace(apply=apply, is_large=len(spaces.observation_shape) == 3)


def is_nature(spaces: Spaces, options: Options) -> bool:
    """Whether the options choose the network of Mnih et al. (2015); "auto" takes an mlp for images below 36 pixels."""
    is_image = len(spaces.observation_shape) == 3 and sorted(spaces.observation_shape)[1] >= 36
    return options.network == "nature" or (options.network == "auto" and is_image)


def plain_model(
    spaces: Spaces, options: Options, dense: Callable[..., Any], num_outputs: int
) -> Callable[[PRNGKey], Any]:
    """`key -> model` from observations to `num_outputs` numbers, of plain or of noisy dense layers."""
    if is_nature(spaces, options):
        return lambda key: networks.nature_cnn(key, spaces.observation_shape, num_outputs, dense=dense)
    return lambda key: dense(key, spaces.observation_shape, options.widths, num_outputs)


def _quantile_model(spaces: Spaces, options: Options, dense: Callable[..., Any]) -> Callable[[PRNGKey], Any]:
    """An IQN: fractions enter after the convolutions, or before the last of several hidden layers."""
    last = max(len(options.widths) - 1, 1)
    shape = spaces.observation_shape

    def make(key: PRNGKey) -> Any:
        key_trunk, key_embedding, key_head = jax.random.split(key, 3)
        trunk: Any
        hidden: Sequence[int]
        if is_nature(spaces, options):
            trunk, hidden = networks.nature_convolutions(key_trunk, shape), (512,)
        else:
            trunk = networks.mlp_features(key_trunk, shape, options.widths[:last], dense=dense)
            hidden = options.widths[last:]
        head = lambda num_features: dense(key_head, num_features, hidden, spaces.num_actions)
        return networks.implicit_quantiles(key_embedding, trunk, head, num_fractions=_NUM_LEARNING_FRACTIONS)

    return make


def make_critic(spaces: Spaces, options: Options, dense: Callable[..., Any] = networks.mlp) -> QCritic:
    """The critic that the options choose, built from `dense` layers."""
    double = options.double
    if options.critic == "mean":
        network = on_codes(spaces, options, plain_model(spaces, options, dense, spaces.num_actions))
        return QCritic(network, objectives.td(double=double), partial(objectives.td_errors, double=double))
    if options.critic == "categorical":
        atoms = np.linspace(-options.v_max, options.v_max, options.num_atoms)
        make = plain_model(spaces, options, dense, spaces.num_actions * options.num_atoms)
        network = on_codes(
            spaces,
            options,
            lambda key: networks.categorical(make(key), options.num_atoms),
            objectives.categorical_values(atoms),
        )
        losses = partial(objectives.categorical_losses, atoms=atoms, double=double)
        return QCritic(network, objectives.categorical_td(atoms, double=double), losses)
    network = on_codes(spaces, options, _quantile_model(spaces, options, dense), objectives.quantile_values)
    network = network._replace(act=partial(network.apply, num_fractions=_NUM_ACTING_FRACTIONS))
    losses = partial(objectives.quantile_losses, double=double)
    return QCritic(network, objectives.quantile_td(double=double), losses, is_random=True)
