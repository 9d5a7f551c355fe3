"""Networks: pytrees that map observations to action values.

A model is an Equinox module, `model(observation, key=None) -> action values`. It takes one observation or a batch with
any leading axes, so that a minibatch is a chain of matrix products: (..., *observation_shape) -> (..., num_actions).
`key` is for models that draw noise; without it they use their mean weights.

`partition` is the one place that tells trainable arrays from the rest.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from feelgood.checks import check_choice, check_count, check_non_negative
from feelgood.noise import normal
from feelgood.typing import Array, Params, PRNGKey, Scalar

__all__ = ["Network", "ensemble", "mlp", "network", "noisy_mlp", "partition", "with_prior"]


def _affine(x: Array, weight: Array, bias: Array) -> Array:
    product = x @ weight
    return product + jnp.broadcast_to(bias, product.shape)


class Dense(eqx.Module):
    """x ↦ x·W + b with W of shape (num_inputs, num_outputs)."""

    weight: Array
    bias: Array
    num_noise = 0

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        return _affine(x, self.weight, self.bias)


class NoisyDense(eqx.Module):
    """x ↦ x·(M + S∘ε_in ε_outᵀ) + m + s∘ε_out with ε = f(noise), f(z) = sign(z)·√|z|, and noise = 0 for None."""

    weight: Array
    bias: Array
    weight_scale: Array
    bias_scale: Array

    @property
    def num_noise(self) -> int:
        return sum(self.weight.shape)

    def __call__(self, x: Array, noise: Array | None = None) -> Array:
        if noise is None:
            return _affine(x, self.weight, self.bias)
        root = jnp.sign(noise) * jnp.sqrt(jnp.abs(noise))
        root_in, root_out = root[: self.weight.shape[0]], root[self.weight.shape[0] :]
        weight = self.weight + self.weight_scale * root_in[:, None] * root_out[None, :]
        return _affine(x, weight, self.bias + self.bias_scale * root_out)


class MLP(eqx.Module):
    """Layers with ReLU between them, on the observation flattened and cast to float32.

    With a key, one flat draw of normals is dealt out to the layers that use noise and serves the whole batch.
    """

    layers: tuple[Any, ...]
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        num_axes, shape = len(self.observation_shape), jnp.shape(observation)
        if shape[len(shape) - num_axes :] != self.observation_shape:
            raise ValueError(f"observation must end in shape {self.observation_shape}, got shape {shape}")
        x = jnp.asarray(observation, jnp.float32).reshape(*shape[: len(shape) - num_axes], -1)
        counts = [layer.num_noise for layer in self.layers]
        noise = None if key is None or not any(counts) else _cut(normal(key, (sum(counts),)), counts)
        for i, layer in enumerate(self.layers):
            x = layer(jax.nn.relu(x) if i else x, None if noise is None else noise[i])
        return x


class Ensemble(eqx.Module):
    """Members stacked along a leading axis of their arrays; (..., *observation_shape) -> (..., members, actions)."""

    members: Any
    num_members: int = eqx.field(static=True)

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        keys = None if key is None else jax.random.split(key, self.num_members)
        in_axes = (eqx.if_array(0), None, None if key is None else 0)
        call = lambda member, observation, key: member(observation, key=key)
        return eqx.filter_vmap(call, in_axes=in_axes, out_axes=-2)(self.members, observation, keys)


class Frozen(eqx.Module):
    """Marks a part of a model that is not trained; `partition` keeps its arrays apart."""

    value: Any


class WithPrior(eqx.Module):
    """o ↦ model(o) + scale·prior(o), the prior held fixed."""

    model: Any
    prior: Frozen

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        prior, scale = self.prior.value
        return self.model(observation, key=key) + jax.lax.stop_gradient(scale * prior(observation))


def _cut(flat: Array, counts: Sequence[int]) -> list[Array]:
    starts = [sum(counts[:i]) for i in range(len(counts))]
    return [flat[start : start + count] for start, count in zip(starts, counts, strict=True)]


def _stack(observation_shape, hidden, num_actions, draw, make_layer) -> MLP:
    """Deals one flat draw out to the layers, each a block of (num_inputs + 1, num_outputs) with the bias last."""
    shape = (observation_shape,) if isinstance(observation_shape, int) else tuple(observation_shape)
    for name, values in (("observation_shape", shape), ("hidden", hidden), ("num_actions", (num_actions,))):
        for value in values:
            check_count(name, value)
    widths = (math.prod(shape), *hidden, num_actions)
    sizes = list(itertools.pairwise(widths))
    counts = [(num_inputs + 1) * num_outputs for num_inputs, num_outputs in sizes]
    blocks = zip(_cut(draw((sum(counts),)), counts), sizes, strict=True)
    layers = (make_layer(block.reshape(num_inputs + 1, num_outputs)) for block, (num_inputs, num_outputs) in blocks)
    return MLP(tuple(layers), shape)


def _torch_dense(block: Array) -> Dense:
    block = block / math.sqrt(block.shape[0] - 1)
    return Dense(block[:-1], block[-1])


def _he_dense(block: Array) -> Dense:
    return Dense(block[:-1] * math.sqrt(2 / (block.shape[0] - 1)), jnp.zeros_like(block[-1]))


def _uniform(key: PRNGKey) -> Callable[[tuple[int, ...]], Array]:
    return lambda shape: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


def mlp(
    key: PRNGKey,
    observation_shape: int | Sequence[int],
    hidden: Sequence[int],
    num_actions: int,
    *,
    init: str = "torch",
) -> MLP:
    """Builds a multi-layer perceptron with ReLU.

    Args:
      key: randomness of the initial weights.
      observation_shape: shape of one observation, or its length.
      hidden: widths of the hidden layers; empty for a linear model.
      num_actions: length of the output.
      init: "torch" draws weights and biases uniformly from ±1/√num_inputs of the layer, PyTorch's default; "he" draws
        weights from N(0, 2/num_inputs) and sets biases to zero.
    """
    check_choice("init", init, ("torch", "he"))
    if init == "he":
        return _stack(observation_shape, hidden, num_actions, lambda shape: normal(key, shape), _he_dense)
    return _stack(observation_shape, hidden, num_actions, _uniform(key), _torch_dense)


def noisy_mlp(
    key: PRNGKey,
    observation_shape: int | Sequence[int],
    hidden: Sequence[int],
    num_actions: int,
    *,
    noise_scale: Scalar = 0.5,
) -> MLP:
    """Builds a perceptron of noisy layers with factorised noise (Fortunato et al., 2018).

    Means start uniform in ±1/√num_inputs, scales at `noise_scale`/√num_inputs; both are trained. Called with a key, the
    model draws its noise, the same for the whole batch; without one it uses the means.
    """
    check_non_negative("noise_scale", noise_scale)

    def make_layer(block: Array) -> NoisyDense:
        mean, scale = _torch_dense(block), jnp.asarray(noise_scale) / math.sqrt(block.shape[0] - 1)
        return NoisyDense(mean.weight, mean.bias, jnp.full_like(mean.weight, scale), jnp.full_like(mean.bias, scale))

    return _stack(observation_shape, hidden, num_actions, _uniform(key), make_layer)


def ensemble(key: PRNGKey, make_member: Callable[[PRNGKey], Any], num_members: int) -> Ensemble:
    """Builds independent members from `make_member(key)`; the output is (..., num_members, num_actions)."""
    check_count("num_members", num_members)
    return Ensemble(eqx.filter_vmap(make_member)(jax.random.split(key, num_members)), num_members)


def with_prior(model: Any, prior: Any, scale: Scalar = 1.0) -> WithPrior:
    """Adds a fixed random prior, model + scale·prior (Osband et al., 2018); neither `prior` nor `scale` is trained."""
    return WithPrior(model, Frozen((prior, jnp.asarray(scale, jnp.float32))))


def partition(model: Any) -> tuple[Params, Any, Callable[..., Array]]:
    """Splits a model into what is trained, what is merely held, and what to do with them.

    Returns:
      params: the trainable arrays, a pytree shaped like the model with None elsewhere.
      frozen: the other arrays (prior networks), shaped likewise.
      apply: `(params, frozen, observation, key=None) -> action values`. It closes over no array, so one `apply` serves
        all seeds and `jax.vmap` runs over `params` and `frozen`.
    """
    is_frozen = lambda node: isinstance(node, Frozen)  # not an array, so all below it counts as not trained
    params, rest = eqx.partition(model, jax.tree.map(eqx.is_inexact_array, model, is_leaf=is_frozen))
    frozen, static = eqx.partition(rest, eqx.is_array)

    def apply(params: Params, frozen: Any, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        return eqx.combine(params, frozen, static)(observation, key=key)

    return params, frozen, apply


class Network(NamedTuple):
    """A network as two pure functions.

    Attributes:
      init: `key -> (params, frozen)`, both pytrees of arrays.
      apply: `(params, frozen, observation, key=None) -> action values`.
    """

    init: Callable[[PRNGKey], tuple[Params, Any]]
    apply: Callable[..., Array]


def network(make_model: Callable[[PRNGKey], Any]) -> Network:
    """Turns `make_model(key) -> model` into pure functions.

    Example:
      >>> import jax
      >>> net = network(lambda key: mlp(key, 4, [32, 32], 2))
      >>> params, frozen = jax.vmap(net.init)(jax.random.split(jax.random.key(0), 5))
      >>> jax.vmap(net.apply, (0, 0, None))(params, frozen, jax.numpy.ones((7, 4))).shape
      (5, 7, 2)
    """
    apply = partition(make_model(jax.random.key(0)))[2]
    return Network(lambda key: partition(make_model(key))[:2], apply)
