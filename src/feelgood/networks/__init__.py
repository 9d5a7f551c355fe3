"""Networks: pytrees that map observations to action values, or to distributions of returns.

A model is an Equinox module, `model(observation, key=None) -> outputs`. It takes one observation or a batch with any
leading axes, so that a minibatch is a chain of matrix products: (..., *observation_shape) -> (..., num_actions).
`key` is for models that draw noise or quantile fractions; without it they use their mean weights and fixed fractions.

Large models are a trunk, from observations to features, and a head, from features to outputs; see `over`.

`partition` is the one place that separates trainable arrays from the rest.

Examples:
  >>> import jax, jax.numpy as jnp
  >>> from feelgood import networks
  >>> def outputs(key, o):
  ...     trunk, head = networks.mlp_features(key, 4, (3,)), lambda num_features: networks.mlp(key, num_features, (), 2)
  ...     quantiles = networks.implicit_quantiles(key, trunk, head, num_fractions=8)
  ...     logits = networks.categorical(networks.mlp(key, 4, (), 2 * 51), 51)
  ...     noisy = networks.noisy_mlp(key, 4, (32,), 2)
  ...     return trunk(o), networks.over(trunk, head)(o), quantiles(o).values, logits(o), noisy(o, key)
  >>> [each.shape for each in jax.eval_shape(outputs, jax.random.key(0), jnp.ones((7, 4)))]  # seven observations
  [(7, 3), (7, 2), (7, 2, 8), (7, 2, 51), (7, 2)]
  >>> convolutions = lambda key, o: networks.nature_convolutions(key)(o)
  >>> jax.eval_shape(convolutions, jax.random.key(0), jnp.ones((7, 4, 84, 84))).shape  # 64 · 7 · 7 features
  (7, 3136)
"""

from feelgood.networks.base import Network, network, partition
from feelgood.networks.builders import (
    categorical,
    implicit_quantiles,
    mlp,
    mlp_features,
    nature_cnn,
    nature_convolutions,
    noisy_mlp,
    over,
    scaled,
    table,
)
from feelgood.networks.ensembles import ensemble, fourier_prior, normalized_mlp, random_prior, with_prior
from feelgood.networks.layers import OneHot
from feelgood.networks.models import Quantiles
from feelgood.networks.weights import he_weights, with_init, zero_biases

__all__ = [
    "Network",
    "OneHot",
    "Quantiles",
    "categorical",
    "ensemble",
    "fourier_prior",
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
    "table",
    "with_init",
    "with_prior",
    "zero_biases",
]
