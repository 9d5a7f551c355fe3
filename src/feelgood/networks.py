"""Networks: pytrees that map observations to action values, or to distributions of which these are the means.

A model is an Equinox module, `model(observation, key=None) -> outputs`. It takes one observation or a batch with any
leading axes, so that a minibatch is a chain of matrix products: (..., *observation_shape) -> (..., num_actions).
`key` is for models that draw noise or quantile fractions; without it they use their mean weights and fixed fractions.

Large models are a trunk, from observations to features, and a head, from features to outputs; see `over`.

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

__all__ = [
    "Network",
    "Quantiles",
    "categorical",
    "ensemble",
    "implicit_quantiles",
    "mlp",
    "mlp_features",
    "nature_cnn",
    "nature_convolutions",
    "network",
    "noisy_mlp",
    "over",
    "partition",
    "with_prior",
]


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
    """x ↦ x·(M + S∘ε_in ε_outᵀ) + m + s∘ε_out with ε = f(noise), f(z) = sign(z)·√|z|, and noise = 0 for None.

    Computed as x·M + ((x∘ε_in)·S)∘ε_out + …, so that a `vmap` over noise has no weights of its own for each draw.
    """

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
        scaled = _affine(x * jnp.broadcast_to(root_in, x.shape), self.weight_scale, self.bias_scale)
        return _affine(x, self.weight, self.bias) + scaled * jnp.broadcast_to(root_out, scaled.shape)


def _leading(observation: ArrayLike, observation_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes before those of one observation."""
    shape = jnp.shape(observation)
    split = len(shape) - len(observation_shape)
    if split < 0 or shape[split:] != observation_shape:
        raise ValueError(f"observation must end in shape {observation_shape}, got shape {shape}")
    return shape[:split]


class MLP(eqx.Module):
    """Layers with ReLU between them, on the observation flattened and cast to float32.

    With a key, one flat draw of normals is dealt out to the layers that use noise and serves the whole batch.
    """

    layers: tuple[Any, ...]
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        leading = _leading(observation, self.observation_shape)
        x = jnp.asarray(observation, jnp.float32).reshape(*leading, math.prod(self.observation_shape))
        counts = [layer.num_noise for layer in self.layers]
        noise = None if key is None or not any(counts) else _cut(normal(key, (sum(counts),)), counts)
        for i, layer in enumerate(self.layers):
            x = layer(jax.nn.relu(x) if i else x, None if noise is None else noise[i])
        return x


class Convolution(eqx.Module):
    """Images (batch, height, width, channels) through a kernel (outputs, channels, size, size), with no padding.

    A matrix product over patches: on CPUs an order of magnitude faster than XLA's convolutions and their derivatives,
    on GPUs faster too at the batch sizes of deep Q-learning, and under `vmap` over kernels a batched product.
    """

    weight: Array
    bias: Array
    stride: int = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        num_outputs, num_inputs, size, _ = self.weight.shape
        # Squares of `step` by `step` pixels become pixels of more channels, so that a patch is few of them.
        step = self.stride if size % self.stride == 0 else 1
        patches = _patches(_folded(x, step), size // step, self.stride // step)
        weight = self.weight.reshape(num_outputs, num_inputs, size // step, step, size // step, step)
        weight = weight.transpose(2, 4, 3, 5, 1, 0).reshape(-1, num_outputs)
        product = patches.reshape(-1, patches.shape[-1]) @ weight
        product = product + jnp.broadcast_to(self.bias, product.shape)
        return product.reshape(*patches.shape[:-1], num_outputs)


def _folded(x: Array, step: int) -> Array:
    """Images (batch, height, width, channels) with squares of pixels, (step, step, channels), as channels."""
    batch, height, width, channels = x.shape
    height, width = height // step, width // step
    x = x[:, : height * step, : width * step].reshape(batch, height, step, width, step, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height, width, step * step * channels)


def _patches(x: Array, size: int, stride: int) -> Array:
    """Patches of images, (batch, height, width, size · size · channels)."""
    height, width = ((length - size) // stride + 1 for length in x.shape[1:3])
    cut = lambda i, length: slice(i, i + stride * (length - 1) + 1, stride)
    return jnp.concatenate([x[:, cut(i, height), cut(j, width)] for i in range(size) for j in range(size)], -1)


class Convolutions(eqx.Module):
    """Convolutions with ReLU after each, on images cast to float32; (..., *observation_shape) -> (..., features).

    Observations are (channels, height, width); features are in the order (height, width, channels).
    """

    layers: tuple[Convolution, ...]
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        leading = _leading(observation, self.observation_shape)
        x = jnp.asarray(observation, jnp.float32).reshape(math.prod(leading), *self.observation_shape)
        x = x.transpose(0, 2, 3, 1)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x.reshape(*leading, math.prod(x.shape[1:]))


class Rectified(eqx.Module):
    """An MLP with ReLU after its last layer too."""

    model: MLP

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.model.observation_shape

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        return jax.nn.relu(self.model(observation, key=key))


class Over(eqx.Module):
    """o ↦ head(trunk(o)); what flows back into the trunk is multiplied by `gradient_scale`."""

    trunk: Any
    head: Any
    gradient_scale: float = eqx.field(static=True, default=1.0)

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        key_trunk, key_head = (None, None) if key is None else jax.random.split(key)
        features = self.trunk(observation, key=key_trunk)
        if self.gradient_scale != 1:
            held = jax.lax.stop_gradient(features)
            features = held + self.gradient_scale * (features - held)
        return self.head(features, key=key_head)


class Categorical(eqx.Module):
    """Logits of a distribution over atoms for each action, (..., actions, atoms), from a model of as many outputs."""

    model: Any
    num_atoms: int = eqx.field(static=True)

    def __call__(self, observation: ArrayLike, key: PRNGKey | None = None) -> Array:
        flat = self.model(observation, key=key)
        return flat.reshape(*flat.shape[:-1], -1, self.num_atoms)


class Quantiles(NamedTuple):
    """Quantiles of the return of each action.

    Attributes:
      values: (..., actions, N), the quantile functions at the fractions.
      fractions: (..., N) in (0, 1), the same for all actions.
    """

    values: Array
    fractions: Array


class ImplicitQuantiles(eqx.Module):
    """Quantile functions of each action at any fractions, see `implicit_quantiles`."""

    trunk: Any
    embedding: Dense
    head: Any
    num_fractions: int = eqx.field(static=True)

    def __call__(
        self, observation: ArrayLike, key: PRNGKey | None = None, *, num_fractions: int | None = None
    ) -> Quantiles:
        count = self.num_fractions if num_fractions is None else num_fractions
        key_trunk, key_fractions, key_head = (None,) * 3 if key is None else jax.random.split(key, 3)
        features = self.trunk(observation, key=key_trunk)
        shape = (*features.shape[:-1], count)
        if key_fractions is None:
            fractions = jnp.broadcast_to((jnp.arange(count) + 0.5) / count, shape)
        else:
            fractions = jax.random.uniform(key_fractions, shape)
        waves = jnp.arange(self.embedding.weight.shape[0]) * jnp.pi
        cosines = jnp.cos(fractions[..., None] * jnp.broadcast_to(waves, (*shape, waves.size)))
        merged = features[..., None, :] * jax.nn.relu(self.embedding(cosines))
        return Quantiles(jnp.swapaxes(self.head(merged, key=key_head), -1, -2), fractions)


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


def mlp_features(
    key: PRNGKey, observation_shape: int | Sequence[int], hidden: Sequence[int], *, dense: Callable[..., Any] = mlp
) -> Rectified | MLP:
    """Builds a trunk of dense layers with ReLU after each; without layers, the observation flattened.

    Args:
      key: randomness of the initial weights.
      observation_shape: shape of one observation, or its length.
      hidden: widths of the layers.
      dense: `mlp` or `noisy_mlp`.
    """
    if hidden:
        return Rectified(dense(key, observation_shape, hidden[:-1], hidden[-1]))
    return MLP((), (observation_shape,) if isinstance(observation_shape, int) else tuple(observation_shape))


# Outputs, size of the kernel and stride of each layer.
_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


def nature_convolutions(key: PRNGKey, observation_shape: Sequence[int] = (4, 84, 84)) -> Convolutions:
    """Builds the three convolutions of Mnih et al. (2015), 32 of 8×8/4, 64 of 4×4/2 and 64 of 3×3/1, each with ReLU.

    Weights and biases start uniform in ±1/√(channels·size·size), PyTorch's default.

    Args:
      key: randomness of the initial weights.
      observation_shape: (stack, height, width) of one observation; height and width of at least 36.
    """
    shape = tuple(observation_shape)
    if len(shape) != 3:
        raise ValueError(f"observation_shape must be (stack, height, width) for convolutions, got {shape}")
    for value in shape:
        check_count("observation_shape", value)
    if min(shape[1:]) < 36:
        raise ValueError(f"observation_shape must have height and width of at least 36 for convolutions, got {shape}")
    layers, num_inputs = [], shape[0]
    for key_layer, (num_outputs, size, stride) in zip(jax.random.split(key, len(_NATURE)), _NATURE, strict=True):
        fan_in = num_inputs * size * size
        flat = _uniform(key_layer)((num_outputs * (fan_in + 1),)) / math.sqrt(fan_in)
        weight, bias = _cut(flat, [num_outputs * fan_in, num_outputs])
        layers.append(Convolution(weight.reshape(num_outputs, num_inputs, size, size), bias, stride))
        num_inputs = num_outputs
    return Convolutions(tuple(layers), shape)


def _num_features(trunk: Any) -> int:
    """Length of what a trunk gives for one observation."""
    return jax.eval_shape(trunk, jnp.zeros(trunk.observation_shape)).shape[-1]


def over(trunk: Any, make_head: Callable[[int], Any], *, gradient_scale: float = 1.0) -> Over:
    """Puts a head on a trunk, o ↦ head(trunk(o)).

    Args:
      trunk: a model from observations to features, such as `nature_convolutions`.
      make_head: `num_features -> model` from features to outputs.
      gradient_scale: factor on the gradient that reaches the trunk; 1/M where M heads share it.
    """
    return Over(trunk, make_head(_num_features(trunk)), gradient_scale)


def nature_cnn(
    key: PRNGKey,
    observation_shape: Sequence[int],
    num_actions: int,
    *,
    hidden: int = 512,
    dense: Callable[..., Any] = mlp,
) -> Over:
    """Builds the network of Mnih et al. (2015): three convolutions, a dense layer, a linear one; ReLU between them.

    Args:
      key: randomness of the initial weights.
      observation_shape: (stack, height, width) of one observation. Pixels enter as they are: nothing is scaled here.
      num_actions: length of the output.
      hidden: width of the dense layer.
      dense: `(key, num_inputs, hidden, num_actions) -> model` of the part after the convolutions; `noisy_mlp` for
        noisy dense layers.

    Example:
      >>> import jax
      >>> model = nature_cnn(jax.random.key(0), (4, 84, 84), 6)
      >>> model(jax.numpy.zeros((2, 4, 84, 84), "uint8")).shape
      (2, 6)
    """
    key_trunk, key_head = jax.random.split(key)
    trunk = nature_convolutions(key_trunk, observation_shape)
    return over(trunk, lambda num_features: dense(key_head, num_features, (hidden,), num_actions))


def categorical(model: Any, num_atoms: int) -> Categorical:
    """Reads the outputs of `model` as logits (..., num_actions, num_atoms) (Bellemare et al., 2017).

    The model must have num_actions·num_atoms outputs.
    """
    check_count("num_atoms", num_atoms, minimum=2)
    return Categorical(model, num_atoms)


def implicit_quantiles(
    key: PRNGKey,
    trunk: Any,
    make_head: Callable[[int], Any],
    *,
    num_fractions: int = 64,
    num_cosines: int = 64,
) -> ImplicitQuantiles:
    """Builds an implicit quantile network (Dabney et al., 2018).

    With ψ the trunk, f the head and φ_j(τ) = ReLU(Σ_i cos(π·i·τ)·w_ij + b_j), i = 0, …, num_cosines − 1, the quantile
    function of the return of action a is Z_τ(o, a) = f(ψ(o) ∘ φ(τ))_a.

    Called with a key, the fractions τ are drawn uniformly, anew for each observation of a batch; without one they are
    the midpoints (i + ½)/N. The call takes another number of them as `num_fractions`.

    Args:
      key: randomness of the initial weights of φ.
      trunk: ψ, a model from observations to features.
      make_head: `num_features -> f`, a model from features to one number for each action.
      num_fractions: N, where a call names no other.
      num_cosines: length of the embedding of a fraction.
    """
    check_count("num_fractions", num_fractions)
    check_count("num_cosines", num_cosines)
    num_features = _num_features(trunk)
    block = _uniform(key)((num_cosines + 1, num_features))
    return ImplicitQuantiles(trunk, _torch_dense(block), make_head(num_features), num_fractions)


def ensemble(key: PRNGKey, make_member: Callable[[PRNGKey], Any], num_members: int) -> Ensemble:
    """Builds independent members from `make_member(key)`; the output is (..., num_members, num_actions)."""
    check_count("num_members", num_members)
    return Ensemble(eqx.filter_vmap(make_member)(jax.random.split(key, num_members)), num_members)


def with_prior(model: Any, prior: Any, scale: Scalar = 1.0) -> WithPrior:
    """Adds a fixed random prior, model + scale·prior (Osband et al., 2018); neither `prior` nor `scale` is trained."""
    return WithPrior(model, Frozen((prior, jnp.asarray(scale, jnp.float32))))


def partition(model: Any) -> tuple[Params, Any, Callable[..., Any]]:
    """Splits a model into what is trained, what is merely held, and what to do with them.

    Returns:
      params: the trainable arrays, a pytree shaped like the model with None elsewhere.
      frozen: the other arrays (prior networks), shaped likewise.
      apply: `(params, frozen, observation, key=None) -> outputs`. It closes over no array, so one `apply` serves all
        seeds and `jax.vmap` runs over `params` and `frozen`. Further arguments by name go to the model.
    """
    is_frozen = lambda node: isinstance(node, Frozen)  # not an array, so all below it counts as not trained
    params, rest = eqx.partition(model, jax.tree.map(eqx.is_inexact_array, model, is_leaf=is_frozen))
    frozen, static = eqx.partition(rest, eqx.is_array)

    def apply(params: Params, frozen: Any, observation: ArrayLike, key: PRNGKey | None = None, **settings: Any) -> Any:
        return eqx.combine(params, frozen, static)(observation, key=key, **settings)

    return params, frozen, apply


def _identity(outputs: Any) -> Any:
    return outputs


class Network(NamedTuple):
    """A network as pure functions.

    Attributes:
      init: `key -> (params, frozen)`, both pytrees of arrays.
      apply: `(params, frozen, observation, key=None) -> outputs`, as learning uses it.
      values: `outputs -> action values`, for outputs with any leading axes; the mean where outputs are distributions.
      act: `apply` as acting uses it where that differs, say with fewer quantiles; None where it is the same.
      is_large: whether one call on several batches is much faster than several calls, as for convolutions on a GPU.
    """

    init: Callable[[PRNGKey], tuple[Params, Any]]
    apply: Callable[..., Any]
    values: Callable[[Any], Array] = _identity
    act: Callable[..., Any] | None = None
    is_large: bool = False


def network(make_model: Callable[[PRNGKey], Any], values: Callable[[Any], Array] = _identity) -> Network:
    """Turns `make_model(key) -> model` into pure functions; `values` makes action values of what the model gives.

    Example:
      >>> import jax
      >>> net = network(lambda key: mlp(key, 4, [32, 32], 2))
      >>> params, frozen = jax.vmap(net.init)(jax.random.split(jax.random.key(0), 5))
      >>> jax.vmap(net.apply, (0, 0, None))(params, frozen, jax.numpy.ones((7, 4))).shape
      (5, 7, 2)
    """
    apply = partition(make_model(jax.random.key(0)))[2]
    return Network(lambda key: partition(make_model(key))[:2], apply, values)
