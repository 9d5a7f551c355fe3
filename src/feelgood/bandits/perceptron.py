"""The perceptron behind neural bandits: its parameters, its replay, and how it learns from minibatches."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood.bandits.base import Context, Model
from feelgood.bandits.exact import feature_shape
from feelgood.checks import check_count, check_non_negative, check_positive
from feelgood.typing import Array, PRNGKey


class Training(NamedTuple):
    """How the perceptron learns.

    Attributes:
      width: hidden units of each layer.
      depth: hidden layers.
      step_size: of Adam.
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


def inputs(model: Model, features: Array) -> Array:
    """What the perceptron sees of every arm: φ_a, (A, k), or a common context in the arm's block, (A, A·k)."""
    if features.shape[-1] != model.num_features:
        raise ValueError(f"features must have {model.num_features} columns, as the model has, got {features.shape[-1]}")
    if features.shape[0] == model.num_arms and model.num_arms > 1:
        return features
    return jnp.kron(jnp.eye(model.num_arms), features)


def init_net(key: PRNGKey, sizes: list[int]) -> list[tuple[Array, Array]]:
    """Weights N(0, 2/fan in) and biases of zero."""
    pairs = zip(jax.random.split(key, len(sizes) - 1), sizes[:-1], sizes[1:], strict=True)
    return [(math.sqrt(2 / n) * jax.random.normal(k, (n, m)), jnp.zeros(m)) for k, n, m in pairs]


def hidden(net: Any, x: Array) -> Array:
    """The last hidden layer, for x of shape (…, inputs)."""
    for w, b in net[:-1]:
        x = x @ w
        x = jax.nn.relu(x + jnp.broadcast_to(b, x.shape))
    return x


def apply_net(net: Any, x: Array) -> Array:
    """The value, for x of shape (…, inputs)."""
    w, b = net[-1]
    return (hidden(net, x) @ w)[..., 0] + b[0]


class Parts(NamedTuple):
    """What all neural algorithms share: layer sizes, an empty replay, keeping a reward, drawing a minibatch."""

    sizes: list[int]
    no_memory: Callable[[], Memory]
    keep: Callable[[Memory, Context, Array, Array], Memory]
    draw: Callable[[PRNGKey, Memory], tuple[Array, Array, Array]]


def parts_of(model: Model, training: Training, common_context: bool | None) -> Parts:
    """Checks the settings and makes the shared parts."""
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
            memory.actions.at[slot].set(action.astype(jnp.int32)),
            memory.rewards.at[slot].set(reward),
            memory.num_seen + 1,
        )

    def draw(key: PRNGKey, memory: Memory) -> tuple[Array, Array, Array]:
        """Inputs of all arms (B, A, ·), played arms (B,) and rewards (B,) of a uniform minibatch."""
        rows = jax.random.randint(key, (training.batch_size,), 0, jnp.clip(memory.num_seen, 1, n))
        features = jax.vmap(lambda x: inputs(model, x))(memory.features[rows])
        return features, memory.actions[rows], memory.rewards[rows]

    return Parts([width_in, *[training.width] * training.depth, 1], no_memory, keep, draw)


def squares(net: Any, batch: tuple[Array, Array, Array], predict: Callable = apply_net) -> Array:
    """Mean of (f − r)² over a minibatch."""
    features, actions, rewards = batch
    played = jnp.take_along_axis(features, actions[:, None, None], 1)[:, 0]
    return jnp.mean((predict(net, played) - rewards) ** 2)


def fit(
    key: PRNGKey, net: Any, memory: Memory, opt_state: Any, training: Training, parts: Parts, predict=apply_net
) -> tuple[Any, Any]:
    """A few steps of Adam on mean squares + ρ/(2t)·‖θ‖²."""
    optimiser = optax.adam(training.step_size)
    scale = training.prior_precision / jnp.maximum(memory.num_seen, 1)

    def loss(net, batch):
        return squares(net, batch, predict) + scale / 2 * optax.tree.norm(net, squared=True)

    def step(carry, key):
        net, opt_state = carry
        gradient = jax.grad(loss)(net, parts.draw(key, memory))
        updates, opt_state = optimiser.update(gradient, opt_state)
        return (optax.apply_updates(net, updates), opt_state), None

    return jax.lax.scan(step, (net, opt_state), jax.random.split(key, training.num_steps))[0]
