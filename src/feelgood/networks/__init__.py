"""Networks: pytrees that map observations to action values, or to distributions of returns.

A model is an Equinox module, `model(observation, key=None) -> outputs`. It takes one observation or a batch with any
leading axes, so that a minibatch is a chain of matrix products: (..., *observation_shape) -> (..., num_actions).
`key` is for models that draw noise or quantile fractions; without it they use their mean weights and fixed fractions.

Large models are a trunk, from observations to features, and a head, from features to outputs; see `over`.

`partition` is the one place that separates trainable arrays from the rest.
"""

from feelgood.networks.builders import (
    categorical,
    ensemble,
    implicit_quantiles,
    mlp,
    mlp_features,
    nature_cnn,
    nature_convolutions,
    noisy_mlp,
    normalized_mlp,
    over,
    random_prior,
    scaled,
    with_prior,
)
from feelgood.networks.functional import Network, network, partition
from feelgood.networks.layers import OneHot
from feelgood.networks.models import Quantiles
from feelgood.networks.weights import he_weights, with_init, zero_biases

__all__ = [
    "Network",
    "OneHot",
    "Quantiles",
    "categorical",
    "ensemble",
    "he_weights",
    "implicit_quantiles",
    "mlp",
    "mlp_features",
    "nature_cnn",
    "nature_convolutions",
    "network",
    "noisy_mlp",
    "normalized_mlp",
    "over",
    "partition",
    "random_prior",
    "scaled",
    "with_init",
    "with_prior",
    "zero_biases",
]
