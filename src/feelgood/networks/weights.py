"""Initial weights other than PyTorch's."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from feelgood.checks import check_choice
from feelgood.choices import INITS
from feelgood.typing import Array


def zero_biases(model: Any) -> Any:
    """Sets all biases of a model to zero, including the biases of its priors.

    A network of ReLUs then scales with its input, f(c·o) = c·f(o), so the preferences of an untrained one depend on
    its observations, however small their numbers are.

    Examples:
      >>> from feelgood import networks
      >>> model = zero_biases(networks.mlp(jax.random.key(0), 1, (), 2))
      >>> (model(2 * jnp.ones(1)) / model(jnp.ones(1))).tolist()
      [2.0, 2.0]
    """
    return _with_each("bias", jnp.zeros_like, model)


def he_weights(model: Any) -> Any:
    """Turns PyTorch's initial weights into He's, and sets all biases to zero, including the biases of its priors.

    PyTorch draws weights from ±1/√n for n inputs, with variance 1/3n, He from ±√(6/n), with variance 2/n (He et al.,
    2015). With the former every layer with ReLU makes activations and gradients √6 times smaller; with the latter they
    keep their size.

    Examples:
      >>> from feelgood import networks
      >>> model = networks.mlp(jax.random.key(0), 1, (), 1)
      >>> round(float(he_weights(model).layers[0].weight[0, 0] / model.layers[0].weight[0, 0]), 3)  # √6
      2.449
    """
    return _with_each("weight", lambda weight: math.sqrt(6) * weight, zero_biases(model))


def with_init(model: Any, init: str) -> Any:
    """Sets the initial weights of a fresh model: PyTorch's, `zero_biases` of these, or `he_weights`.

    Examples:
      >>> from feelgood import networks
      >>> model = networks.mlp(jax.random.key(0), 1, (), 2)
      >>> with_init(model, "torch") is model, with_init(model, "unbiased").layers[0].bias.tolist()
      (True, [0.0, 0.0])
    """
    check_choice("init", init, INITS)
    return model if init == "torch" else zero_biases(model) if init == "unbiased" else he_weights(model)


def _with_each(name: str, change: Callable[[Array], Array], model: Any) -> Any:
    """The model with each of its arrays of that name changed."""

    def changed(path: tuple[Any, ...], leaf: Any) -> Any:
        is_it = isinstance(path[-1], jax.tree_util.GetAttrKey) and path[-1].name == name
        return change(leaf) if is_it else leaf

    return jax.tree_util.tree_map_with_path(changed, model)
