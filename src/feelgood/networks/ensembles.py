"""Functions that make ensembles: members with normalised layers, and random functions as their priors."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from feelgood.checks import check_count, check_non_negative, check_positive
from feelgood.networks.builders import shape_of, sizes_of
from feelgood.networks.layers import Dense
from feelgood.networks.models import Ensemble, Fourier, Frozen, NormalizedMLP, WithPrior
from feelgood.typing import PRNGKey, Scalar


def ensemble(key: PRNGKey, make_member: Callable[[PRNGKey], Any], num_members: int) -> Ensemble:
    """Builds independent members from `make_member(key)`; the output is (..., num_members, num_actions).

    Examples:
      >>> import jax
      >>> from feelgood.networks import mlp
      >>> model = ensemble(jax.random.key(0), lambda key: mlp(key, 4, (), 2), num_members=3)
      >>> model(jax.numpy.ones((7, 4))).shape
      (7, 3, 2)
    """
    num_members = check_count("num_members", num_members)
    is_shape = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
    _, rest = eqx.partition(eqx.filter_eval_shape(make_member, key), is_shape)
    # One member at a time: the same numbers as by `vmap`, compiled twice as fast.
    arrays = jax.lax.map(lambda key: eqx.filter(make_member(key), eqx.is_array), jax.random.split(key, num_members))
    return Ensemble(eqx.combine(arrays, rest), num_members)


def with_prior(model: Any, prior: Any, scale: Scalar = 1.0) -> WithPrior:
    """Adds a fixed random prior, model + scale·prior (Osband et al., 2018); neither `prior` nor `scale` is trained.

    Examples:
      >>> import jax
      >>> from feelgood.networks import mlp
      >>> model, o = mlp(jax.random.key(0), 1, (), 1), jax.numpy.ones(1)
      >>> round(float(with_prior(model, model, scale=3.0)(o)[0] / model(o)[0]), 3)  # 1 + scale
      4.0
    """
    return WithPrior(model, Frozen((prior, jnp.asarray(scale, jnp.float32))))


def normalized_mlp(
    key: PRNGKey,
    observation_shape: int | Sequence[int],
    hidden: Sequence[int],
    num_actions: int,
    *,
    input_scale: Scalar = 1.0,
) -> NormalizedMLP:
    """Builds a perceptron whose hidden layers are normalised over their units; its outputs start at 0.

    Hidden layers start as those of `random_prior`. The last layer starts at 0, so that a network with a prior starts as
    its prior (see `with_prior`). The size of the first layer does not change its normalised outputs, but a step of Adam
    moves them in inverse proportion to it. So a small `input_scale` makes the features of an input learn faster, which
    helps for one-hot inputs: each of them is seen rarely, and its weights serve no other input.

    Args:
      key: randomness of the initial weights.
      observation_shape: shape of one observation, or its length.
      hidden: widths of the hidden layers, at least one.
      num_actions: length of the output.
      input_scale: factor on the initial weights and biases of the first layer.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> normalized_mlp(jax.random.key(0), 4, (8, 8), 2)(jnp.ones((3, 4))).tolist()
      [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    prior = random_prior(key, observation_shape, hidden, num_actions)
    first, *middle, last = prior.layers
    first = jax.tree.map(lambda weights: input_scale * weights, first)
    return NormalizedMLP((first, *middle, jax.tree.map(jnp.zeros_like, last)), prior.observation_shape)


def random_prior(
    key: PRNGKey,
    observation_shape: int | Sequence[int],
    hidden: Sequence[int],
    num_actions: int,
    *,
    bias_scale: float = 0.3,
) -> NormalizedMLP:
    """Builds a random function to add to a network as its prior; see `with_prior`.

    An `mlp` with PyTorch's initial weights is a poor prior on inputs of high dimension: on one-hot inputs of n numbers
    its first layer varies by 1/√n from input to input and its biases do not vary at all, so all inputs get nearly the
    same value. Here hidden layers are normalised over their units, and their features have mean 0, so outputs have mean
    0 and variance 1 over draws of the prior, and two one-hot inputs have nearly independent outputs, whatever their
    number. (Features of plain ReLUs have a common mean, which gives all inputs outputs with a correlation of about ½.)

    Args:
      key: randomness of the weights.
      observation_shape: shape of one observation, or its length.
      hidden: widths of the hidden layers, at least one.
      num_actions: length of the output.
      bias_scale: standard deviation of the first layer's biases. Inputs that are small next to it look alike.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> draw = lambda key: random_prior(key, 100, (50, 50), 2)(jnp.eye(100)[:2])
      >>> values = jax.vmap(draw)(jax.random.split(jax.random.key(0), 200))  # (draws, inputs, actions)
      >>> round(float(values.std()), 1)
      1.0
    """
    check_non_negative("bias_scale", bias_scale)
    if not hidden:
        raise ValueError("hidden must have at least one width for normalised layers, got none")
    shape, sizes = sizes_of(observation_shape, hidden, num_actions)
    keys = jax.random.split(key, len(hidden) + 2)

    def make_layer(i: int, num_inputs: int, num_outputs: int) -> Dense:
        weight = jax.random.normal(keys[i], (num_inputs, num_outputs))
        if i == len(hidden):  # the variance of ReLU(z) is ½ − 1/(2π) for standard normal z
            return Dense(weight / math.sqrt(num_inputs * (0.5 - 0.5 / math.pi)), jnp.zeros(num_outputs))
        bias = bias_scale * jax.random.normal(keys[-1], (num_outputs,)) if i == 0 else jnp.zeros(num_outputs)
        return Dense(weight if i == 0 else weight / math.sqrt(num_inputs), bias)

    return NormalizedMLP(tuple(make_layer(i, *size) for i, size in enumerate(sizes)), shape, is_centred=True)


def fourier_prior(
    key: PRNGKey,
    observation_shape: int | Sequence[int],
    num_features: int,
    num_actions: int,
    length_scale: float,
) -> Fourier:
    """Builds a random smooth function to add to a network as its prior; see `with_prior`.

    It is close to a draw of a Gaussian process with covariance exp(−‖x − y‖²/(2ℓ²)) for each action, where ℓ is
    `length_scale`: a sum of cosines with random frequencies and phases (Rahimi and Recht, 2007). `random_prior` sees
    little more than the direction of its input, which is nearly the same for neighbours if an observation is a few
    coordinates. Then a network that learns the values of visited states changes those of other states, too, and the
    members of an ensemble agree on states that none has seen.

    Args:
      key: randomness of the function.
      observation_shape: shape of one observation, or its length.
      num_features: number of cosines.
      num_actions: length of the output.
      length_scale: distance of inputs beyond which outputs are nearly independent.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> draw = lambda key: fourier_prior(key, 2, 64, 1, length_scale=1.0)(jnp.array([[0.0, 0.0], [1.0, 0.0]]))
      >>> values = jax.vmap(draw)(jax.random.split(jax.random.key(0), 2000))[..., 0]  # (draws, inputs)
      >>> round(float(jnp.mean(values[:, 0] * values[:, 1])), 1), round(float(jnp.exp(-0.5)), 1)
      (0.6, 0.6)
    """
    shape = shape_of(observation_shape)
    num_inputs = math.prod(shape)
    for name, value in (
        ("observation_shape", num_inputs),
        ("num_features", num_features),
        ("num_actions", num_actions),
    ):
        check_count(name, value)
    check_positive("length_scale", length_scale)
    key_frequencies, key_phases, key_amplitudes = jax.random.split(key, 3)
    frequencies = jax.random.normal(key_frequencies, (num_inputs, num_features)) / length_scale
    phases = jax.random.uniform(key_phases, (num_features,), maxval=2 * math.pi)
    amplitudes = math.sqrt(2 / num_features) * jax.random.normal(key_amplitudes, (num_features, num_actions))
    return Fourier(Dense(frequencies, phases), amplitudes, shape)
