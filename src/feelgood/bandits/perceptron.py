"""The perceptron behind neural bandits: its parameters, its replay, and how it learns from minibatches."""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood.bandits.base import Context, Model
from feelgood.bandits.exact import feature_shape
from feelgood.checks import check_count, check_kind, check_non_negative, check_positive
from feelgood.typing import Array, PRNGKey


class Training(NamedTuple):
    """Training settings of the perceptron.

    Attributes:
      width: hidden units of each layer.
      depth: hidden layers.
      step_size: step size of Adam.
      num_steps: gradient steps a round.
      batch_size: rewards in a minibatch.
      capacity: rewards kept; the oldest go first.
      prior_precision: weight of ½‖θ − θ₀‖² in the sum of squares.
    """

    width: int = 50
    depth: int = 1
    step_size: float = 1e-2
    num_steps: int = 4
    batch_size: int = 32
    capacity: int = 2000
    prior_precision: float = 1e-3

    def check(self) -> "Training":
        """Raises ValueError if a setting is out of range."""
        for name in ("width", "depth", "num_steps", "batch_size", "capacity"):
            check_count(name, getattr(self, name))
        check_positive("step_size", self.step_size)
        check_non_negative("prior_precision", self.prior_precision)
        return self


class Memory(NamedTuple):
    """The last rewards: contexts (n, A, k) or (n, 1, k), arms (n,), rewards (n,) and how many have been seen."""

    features: Array
    actions: Array
    rewards: Array
    num_seen: Array


def first_layer(model: Model, weights: Array, features: Array) -> Array:
    """Products with the first layer's weights for every arm, (…, A, m), of features (…, A, k) or (…, 1, k).

    The input of an arm is φ_a, or a common context in the arm's block of A·k numbers. Outside of the block the input is
    zero, so an arm needs the weights of its block only.
    """
    if features.shape[-1] != model.num_features:
        raise ValueError(f"features must have {model.num_features} columns, as the model has, got {features.shape[-1]}")
    if _has_own_features(model, features):
        return features @ weights
    blocks = weights.reshape(model.num_arms, model.num_features, -1)
    return jnp.einsum("...k,akm->...am", features[..., 0, :], blocks)


def played(model: Model, features: Array, actions: Array) -> Array:
    """Inputs of the arms that were played, (…, k), or (…, A·k) for a common context in the arm's block."""
    if _has_own_features(model, features):
        return jnp.take_along_axis(features, actions[..., None, None], -2)[..., 0, :]
    blocks = jax.nn.one_hot(actions, model.num_arms)[..., None] * features
    return blocks.reshape(*blocks.shape[:-2], -1)


def _has_own_features(model: Model, features: Array) -> bool:
    return features.shape[-2] == model.num_arms and model.num_arms > 1


def init_net(key: PRNGKey, sizes: list[int]) -> list[tuple[Array, Array]]:
    """Weights N(0, 2/fan in) and biases of zero."""
    pairs = zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True)
    return [(math.sqrt(2 / n) * jax.random.normal(k, (n, m)), jnp.zeros(m)) for k, n, m in pairs]


def hidden(net: Any, product: Array) -> list[Array]:
    """The hidden layers, first to last, from the products with the first layer's weights."""
    layers: list[Array] = []
    for (_, bias), (weights, _) in itertools.pairwise(net):
        layers.append(jax.nn.relu(product + jnp.broadcast_to(bias, product.shape)))
        product = layers[-1] @ weights
    return layers


def value(net: Any, layers: list[Array]) -> Array:
    """The value, from the hidden layers."""
    weights, bias = net[-1]
    return (layers[-1] @ weights)[..., 0] + bias[0]


def apply_net(net: Any, x: Array) -> Array:
    """The value, for x of shape (…, inputs)."""
    return value(net, hidden(net, x @ net[0][0]))


def arm_values(model: Model, net: Any, features: Array) -> Array:
    """The value of every arm, (…, A), for features (…, A, k) or (…, 1, k)."""
    return value(net, hidden(net, first_layer(model, net[0][0], features)))


def values_and_norms(model: Model, net: Any, diagonal: Any, features: Array) -> tuple[Array, Array]:
    """The value f of every arm and Σ (∂f/∂θ)²/U over all parameters, (A,) each; U is a tree like the net.

    ∂f/∂W of a layer is the product of its input and of the slope of f at its output, so the sum is a forward pass with
    squares in place of inputs and 1/U in place of weights.
    """
    layers = hidden(net, first_layer(model, net[0][0], features))
    slopes, slope = [], jnp.ones((*layers[-1].shape[:-1], 1))
    for layer, (weights, _) in zip(reversed(layers), reversed(net[1:]), strict=True):
        slope = (slope @ weights.T) * (layer > 0)
        slopes.append(slope)
    inverse = jax.tree.map(lambda u: 1 / u, diagonal)
    product, total = first_layer(model, inverse[0][0], features**2), jnp.zeros(layers[-1].shape[:-1])
    for layer, slope, (_, bias), (weights, _) in zip(layers, reversed(slopes), inverse, inverse[1:], strict=False):
        total = total + jnp.sum((product + jnp.broadcast_to(bias, product.shape)) * slope**2, -1)
        product = layer**2 @ weights
    return value(net, layers), total + product[..., 0] + inverse[-1][1][0]


class Parts(NamedTuple):
    """The parts that all neural algorithms share: model, layer sizes, and functions of the replay."""

    model: Model
    sizes: list[int]
    no_memory: Callable[[], Memory]
    keep: Callable[[Memory, Context, Array, Array], Memory]
    draw: Callable[[PRNGKey, Memory], tuple[Array, Array, Array]]


def parts_of(model: Model, training: Training, common_context: bool | None) -> Parts:
    """Checks the settings and makes the shared parts."""
    check_kind("model", model, Model, "a Model such as bandit.model")
    model.check()
    training.check()
    shape = feature_shape(model, common_context)
    width_in = model.num_features * (model.num_arms if shape[0] == 1 else 1)
    n = training.capacity

    def no_memory() -> Memory:
        return Memory(jnp.zeros((n, *shape)), jnp.zeros(n, jnp.int32), jnp.zeros(n), jnp.zeros((), jnp.int32))

    def keep(memory: Memory, context: Context, action: Array, reward: Array) -> Memory:
        slot = memory.num_seen % n
        return Memory(
            memory.features.at[slot].set(context.features),
            memory.actions.at[slot].set(jnp.asarray(action, jnp.int32)),
            memory.rewards.at[slot].set(reward),
            memory.num_seen + 1,
        )

    def draw(key: PRNGKey, memory: Memory) -> tuple[Array, Array, Array]:
        """Features (B, A, k) or (B, 1, k), played arms (B,) and rewards (B,) of a uniform minibatch."""
        rows = jax.random.randint(key, (training.batch_size,), 0, jnp.clip(memory.num_seen, 1, n))
        return memory.features[rows], memory.actions[rows], memory.rewards[rows]

    return Parts(model, [width_in, *[training.width] * training.depth, 1], no_memory, keep, draw)


def fit(
    key: PRNGKey, net: Any, memory: Memory, opt_state: Any, training: Training, parts: Parts, predict=apply_net
) -> tuple[Any, Any]:
    """A few steps of Adam on mean squares + ρ/(2t)·‖θ‖²; all minibatches of a round are drawn at once."""
    optimiser = optax.adam(training.step_size)
    scale = training.prior_precision / jnp.maximum(memory.num_seen, 1)

    def loss(net, batch):
        features, actions, rewards = batch
        errors = predict(net, played(parts.model, features, actions)) - rewards
        return jnp.mean(errors**2) + scale / 2 * optax.tree.norm(net, squared=True)

    def step(carry, batch):
        net, opt_state = carry
        updates, opt_state = optimiser.update(jax.grad(loss)(net, batch), opt_state)
        return (optax.apply_updates(net, updates), opt_state), None

    batches = jax.vmap(parts.draw, (0, None))(jax.random.split(key, training.num_steps), memory)
    return jax.lax.scan(step, (net, opt_state), batches)[0]
