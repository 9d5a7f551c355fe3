"""The record of a network, and how a model becomes one: pure functions of arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax

from feelgood.networks.layers import Observation
from feelgood.networks.models import Frozen
from feelgood.typing import Array, Params, PRNGKey


def partition(model: Any) -> tuple[Params, Any, Callable[..., Any]]:
    """Splits a model into trainable arrays, other arrays, and the function that combines them.

    Returns:
      params: the trainable arrays, a pytree shaped like the model with None elsewhere.
      frozen: the other arrays (prior networks), shaped likewise.
      apply: `(params, frozen, observation, key=None) -> outputs`. It closes over no array, so one `apply` serves all
        seeds and `jax.vmap` runs over `params` and `frozen`. Further arguments by name go to the model.

    Examples:
      >>> from feelgood import networks
      >>> model = networks.mlp(jax.random.key(0), 4, (), 2)
      >>> params, frozen, apply = partition(networks.with_prior(model, model))
      >>> len(jax.tree.leaves(params)), len(jax.tree.leaves(frozen))  # weight and bias; the prior's and its scale
      (2, 3)
    """
    is_frozen = lambda node: isinstance(node, Frozen)  # not an array, so all below it counts as not trained
    params, rest = eqx.partition(model, jax.tree.map(eqx.is_inexact_array, model, is_leaf=is_frozen))
    frozen, static = eqx.partition(rest, eqx.is_array)

    def apply(
        params: Params, frozen: Any, observation: Observation, key: PRNGKey | None = None, **settings: Any
    ) -> Any:
        return eqx.combine(params, frozen, static)(observation, key=key, **settings)

    return params, frozen, apply


def _identity(outputs: Any) -> Any:
    return outputs


class Network(NamedTuple):
    """A network as pure functions.

    Attributes:
      init: `key -> (params, frozen)`, both pytrees of arrays.
      apply: `(params, frozen, observation, key=None) -> outputs`, as learning uses it.
      values: `outputs -> action values`, for outputs with any leading axes; the mean if outputs are distributions.
      act: `apply` for acting if it differs, for example with fewer quantiles; None if it is the same.
      is_large: whether one call on several batches is much faster than several calls, as for convolutions on a GPU.
    """

    init: Callable[[PRNGKey], tuple[Params, Any]]
    apply: Callable[..., Any]
    values: Callable[[Any], Array] = _identity
    act: Callable[..., Any] | None = None
    is_large: bool = False


def network(make_model: Callable[[PRNGKey], Any], values: Callable[[Any], Array] = _identity) -> Network:
    """Turns `make_model(key) -> model` into pure functions; `values` maps the model's output to action values.

    A model is any Equinox module, called with observations of any leading axes, and with `key=` if it draws random
    numbers. To use a module for single observations, such as those of `equinox.nn`, store it as `self.one` in your own
    module whose `__call__` is `jnp.vectorize(self.one, signature="(i)->(a)")(observation)`.

    Examples:
      >>> import jax
      >>> from feelgood.networks import mlp
      >>> net = network(lambda key: mlp(key, 4, [32, 32], 2))
      >>> params, frozen = jax.vmap(net.init)(jax.random.split(jax.random.key(0), 5))
      >>> jax.vmap(net.apply, (0, 0, None))(params, frozen, jax.numpy.ones((7, 4))).shape
      (5, 7, 2)
    """
    found = []

    def init(key: PRNGKey) -> tuple[Params, Any]:
        params, frozen, apply = partition(make_model(key))
        found.append(apply)
        return params, frozen

    jax.eval_shape(init, jax.random.key(0))  # `apply` closes over no array, so shapes suffice to find it
    return Network(lambda key: partition(make_model(key))[:2], found[0], values)
