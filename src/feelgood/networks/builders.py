"""Functions that make models, with their initial weights."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from feelgood.checks import check_count
from feelgood.networks.layers import Convolution, Dense, NoisyDense, cut
from feelgood.networks.models import (
    MLP,
    Categorical,
    Convolutions,
    Frozen,
    ImplicitQuantiles,
    Over,
    Rectified,
    Scaled,
    Table,
)
from feelgood.typing import Array, PRNGKey


def shape_of(observation_shape: int | Sequence[int]) -> tuple[int, ...]:
    """The shape of an observation; a number is a length."""
    return (observation_shape,) if isinstance(observation_shape, int) else tuple(observation_shape)


def sizes_of(observation_shape, hidden, num_actions) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The shape of an observation, and the numbers of inputs and outputs of each dense layer."""
    shape = shape_of(observation_shape)
    for name, values in (("observation_shape", shape), ("hidden", hidden), ("num_actions", (num_actions,))):
        for value in values:
            check_count(name, value)
    return shape, list(itertools.pairwise((math.prod(shape), *hidden, num_actions)))


def _stack(observation_shape, hidden, num_actions, draw, make_layer) -> MLP:
    """Deals one flat draw out to the layers, each a block of (num_inputs + 1, num_outputs) with the bias last."""
    shape, sizes = sizes_of(observation_shape, hidden, num_actions)
    counts = [(num_inputs + 1) * num_outputs for num_inputs, num_outputs in sizes]
    blocks = zip(cut(draw((sum(counts),)), counts), sizes, strict=True)
    layers = (make_layer(block.reshape(num_inputs + 1, num_outputs)) for block, (num_inputs, num_outputs) in blocks)
    return MLP(tuple(layers), shape)


def _torch_dense(block: Array) -> Dense:
    block = block / math.sqrt(block.shape[0] - 1)
    return Dense(block[:-1], block[-1])


def _uniform(key: PRNGKey) -> Callable[[tuple[int, ...]], Array]:
    return lambda shape: jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


def mlp(key: PRNGKey, observation_shape: int | Sequence[int], hidden: Sequence[int], num_actions: int) -> MLP:
    """Builds a multi-layer perceptron with ReLU.

    Weights and biases start uniform in ±1/√num_inputs of their layer, PyTorch's default; `he_weights` makes them He's.

    Args:
      key: randomness of the initial weights.
      observation_shape: shape of one observation, or its length.
      hidden: widths of the hidden layers; empty for a linear model.
      num_actions: length of the output.

    Examples:
      >>> import jax
      >>> mlp(jax.random.key(0), 4, (32,), 2)(jax.numpy.ones((7, 4))).shape
      (7, 2)
    """
    return _stack(observation_shape, hidden, num_actions, _uniform(key), _torch_dense)


def table(observation_shape: int | Sequence[int], num_actions: int, key: PRNGKey | None = None) -> Table:
    """Builds a table with one value for each pair of a one-hot observation and an action.

    Args:
      observation_shape: shape of one observation, or its length.
      num_actions: length of the output.
      key: randomness of the values, which are then independent standard normals: a prior for tables, see `with_prior`.
        Without a key all values are 0.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import networks
      >>> table(500, 6)(networks.OneHot(jnp.array([0, 499]))).shape
      (2, 6)
    """
    shape, ((num_cells, _),) = sizes_of(observation_shape, (), num_actions)
    size = (num_cells, num_actions)
    return Table(jnp.zeros(size) if key is None else jax.random.normal(key, size), shape)


def noisy_mlp(key: PRNGKey, observation_shape: int | Sequence[int], hidden: Sequence[int], num_actions: int) -> MLP:
    """Builds a perceptron of noisy layers with factorised noise (Fortunato et al., 2018).

    Means start uniform in ±1/√num_inputs, scales at 0.5/√num_inputs; both are trained. Called with a key, the
    model draws its noise, the same for the whole batch; without one it uses the means.
    """

    def make_layer(block: Array) -> NoisyDense:
        mean, scale = _torch_dense(block), jnp.asarray(0.5) / math.sqrt(block.shape[0] - 1)
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
    return MLP((), shape_of(observation_shape))


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
        raise ValueError(
            f"observation_shape must be (channels, height, width), height and width at least 36, for convolutions, "
            f"got {shape}; an mlp takes any shape (Options.network)"
        )
    layers, num_inputs = [], shape[0]
    for key_layer, (num_outputs, size, stride) in zip(jax.random.split(key, len(_NATURE)), _NATURE, strict=True):
        fan_in = num_inputs * size * size
        flat = _uniform(key_layer)((num_outputs * (fan_in + 1),)) / math.sqrt(fan_in)
        weight, bias = cut(flat, [num_outputs * fan_in, num_outputs])
        layers.append(Convolution(weight.reshape(num_outputs, num_inputs, size, size), bias, stride))
        num_inputs = num_outputs
    return Convolutions(tuple(layers), shape)


def _num_features(trunk: Any) -> int:
    """Number of features of a trunk for one observation."""
    return jax.eval_shape(trunk, jnp.zeros(trunk.observation_shape)).shape[-1]


def over(trunk: Any, make_head: Callable[[int], Any], *, gradient_scale: float = 1.0) -> Over:
    """Puts a head on a trunk, o ↦ head(trunk(o)).

    Args:
      trunk: a model from observations to features, such as `nature_convolutions`.
      make_head: `num_features -> model` from features to outputs.
      gradient_scale: factor on the gradient that reaches the trunk; 1/M if M heads share it.
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
      observation_shape: (stack, height, width) of one observation. Pixels are not scaled here.
      num_actions: length of the output.
      hidden: width of the dense layer.
      dense: `(key, num_inputs, hidden, num_actions) -> model` of the part after the convolutions; `noisy_mlp` for
        noisy dense layers.

    Examples:
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
    num_atoms = check_count("num_atoms", num_atoms, minimum=2)
    return Categorical(model, num_atoms)


def implicit_quantiles(
    key: PRNGKey, trunk: Any, make_head: Callable[[int], Any], *, num_fractions: int = 64, num_cosines: int = 64
) -> ImplicitQuantiles:
    """Builds an implicit quantile network (Dabney et al., 2018).

    With ψ the trunk, f the head and φ_j(τ) = ReLU(Σ_i cos(π·i·τ)·w_ij + b_j), i = 0, …, num_cosines − 1, the quantile
    function of the return of action a is Z_τ(o, a) = f(ψ(o) ∘ φ(τ))_a.

    Called with a key, the fractions τ are drawn uniformly for each observation of a batch; without one they are
    the midpoints (i + ½)/N. A call can set their number by `num_fractions`.

    Args:
      key: randomness of the initial weights of φ.
      trunk: ψ, a model from observations to features.
      make_head: `num_features -> f`, a model from features to one number for each action.
      num_fractions: N, unless a call gives another number.
      num_cosines: length of the embedding of a fraction.
    """
    num_fractions = check_count("num_fractions", num_fractions)
    num_cosines = check_count("num_cosines", num_cosines)
    num_features = _num_features(trunk)
    block = _uniform(key)((num_cosines + 1, num_features))
    return ImplicitQuantiles(trunk, _torch_dense(block), make_head(num_features), num_fractions)


def scaled(model: Any, bound: ArrayLike, observation_shape: Sequence[int]) -> Scaled:
    """Divides each entry of an observation by its bound, max(|low|, |high|), before the model; zero stays zero.

    Entries with an infinite bound become asinh(o), which keeps small values and takes the logarithm of large ones. The
    bound is not trained and is saved with the model.

    Args:
      model: any model of observations.
      bound: largest absolute value of each entry, positive or infinite; a number, or an array of the shape below.
      observation_shape: shape of one observation.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> model = scaled(mlp(jax.random.key(0), 2, (), 1), jnp.array([1.2, 0.07]), (2,))
      >>> bool(jnp.allclose(model(jnp.array([1.2, 0.07])), model.model(jnp.ones(2))))
      True
    """
    filled = np.broadcast_to(np.asarray(bound, np.float32), tuple(observation_shape))
    if not np.all(filled > 0):
        raise ValueError(f"bound must be positive, got {float(filled.min())}")
    return Scaled(model, Frozen(jnp.asarray(filled)))
