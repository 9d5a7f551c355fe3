"""Models: layers, trunks, heads and their wrappers. `builders` and `ensembles` next to it build them."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from feelgood.networks.layers import Convolution, Dense, Observation, OneHot, cut, product
from feelgood.noise import normal
from feelgood.typing import Array, PRNGKey


def _leading(observation: Any, observation_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes before those of one observation."""
    shape = jnp.shape(observation)
    split = len(shape) - len(observation_shape)
    if split < 0 or shape[split:] != observation_shape:
        raise ValueError(f"observation must end in shape {observation_shape}, got shape {shape}")
    return shape[:split]


def _flat(observation: Observation, observation_shape: tuple[int, ...]) -> Array | OneHot:
    """Observations as float32 vectors; one-hot ones stay indices."""
    if isinstance(observation, OneHot):
        return observation
    leading = _leading(observation, observation_shape)
    return jnp.asarray(observation, jnp.float32).reshape(*leading, math.prod(observation_shape))


def cosine(angle: Array) -> Array:
    """cos(angle) within float32's precision of the angle; on a CPU XLA's own takes ten times as long.

    It is the Taylor series of sin(y) to y¹¹, where y in [−π/2, π/2] has cos(angle) = sin(y).
    """
    turns = angle * (1 / (2 * math.pi))
    y = 2 * math.pi * (0.25 - jnp.abs(turns - jnp.round(turns)))
    series: Any = 1.0
    for n in (110, 72, 42, 20, 6):  # 10·11, 8·9, …, 2·3
        series = 1 - y**2 / n * series
    return y * series


class MLP(eqx.Module):
    """Layers with ReLU between them, on the observation flattened and cast to float32.

    With a key, one flat draw of normals is dealt out to the layers that use noise and serves the whole batch.
    """

    layers: tuple[Any, ...]
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        x = _flat(observation, self.observation_shape)
        counts = [layer.num_noise for layer in self.layers]
        noise = None if key is None or not any(counts) else cut(normal(key, (sum(counts),)), counts)
        for i, layer in enumerate(self.layers):
            x = layer(x if isinstance(x, OneHot) or i == 0 else jax.nn.relu(x), None if noise is None else noise[i])
        return x.vectors(math.prod(self.observation_shape)) if isinstance(x, OneHot) else x


class Table(eqx.Module):
    """One value for each pair of a one-hot observation and an action; on other observations a linear model."""

    values: Array
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        del key
        return product(_flat(observation, self.observation_shape), self.values)


class Convolutions(eqx.Module):
    """Convolutions with ReLU after each, on images cast to float32; (..., *observation_shape) -> (..., features).

    Observations are (channels, height, width); features are in the order (height, width, channels).
    """

    layers: tuple[Convolution, ...]
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
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

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        return jax.nn.relu(self.model(observation, key=key))


class Over(eqx.Module):
    """o ↦ head(trunk(o)); the gradient into the trunk is multiplied by `gradient_scale`."""

    trunk: Any
    head: Any
    gradient_scale: float = eqx.field(static=True, default=1.0)

    @property
    def observation_shape(self) -> tuple[int, ...]:
        return self.trunk.observation_shape

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        key_trunk, key_head = (None, None) if key is None else jax.random.split(key)
        features = self.trunk(observation, key=key_trunk)
        if self.gradient_scale != 1:
            held = jax.lax.stop_gradient(features)
            features = held + self.gradient_scale * (features - held)
        return self.head(features, key=key_head)


class Categorical(eqx.Module):
    """Logits of a distribution over atoms for each action, (..., actions, atoms), from actions·atoms outputs."""

    model: Any
    num_atoms: int = eqx.field(static=True)

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
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
        self, observation: Observation, key: PRNGKey | None = None, *, num_fractions: int | None = None
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
        cosines = cosine(fractions[..., None] * jnp.broadcast_to(waves, (*shape, waves.size)))
        merged = features[..., None, :] * jax.nn.relu(self.embedding(cosines))
        return Quantiles(jnp.swapaxes(self.head(merged, key=key_head), -1, -2), fractions)


class Ensemble(eqx.Module):
    """Members stacked along a leading axis of their arrays; (..., *observation_shape) -> (..., members, actions)."""

    members: Any
    num_members: int = eqx.field(static=True)

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        keys = None if key is None else jax.random.split(key, self.num_members)
        in_axes = (eqx.if_array(0), None, None if key is None else 0)
        call = lambda member, observation, key: member(observation, key=key)
        return eqx.filter_vmap(call, in_axes=in_axes, out_axes=-2)(self.members, observation, keys)


class Frozen(eqx.Module):
    """Marks a part of a model that is not trained; `partition` keeps its arrays apart."""

    value: Any


class NormalizedMLP(eqx.Module):
    """Layers with normalisation over units and ReLU between them, on the observation flattened and cast to float32.

    Hidden units have mean 0 and variance 1 before their ReLU, so an input enters by its direction, whatever its scale
    and fan-in, and values cannot grow without bound through the hidden layers: TD with a target network that follows
    closely is stable (Gallici et al., 2025), where a plain MLP diverges. If `is_centred`, features have mean 0: the
    mean 1/√(2π) of ReLU(z) for standard normal z is subtracted.
    """

    layers: tuple[Dense, ...]
    observation_shape: tuple[int, ...] = eqx.field(static=True)
    is_centred: bool = eqx.field(static=True, default=False)

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        del key
        x = _flat(observation, self.observation_shape)
        *hidden, last = self.layers
        for layer in hidden:
            x = layer(x)
            centred = x - x.mean(-1, keepdims=True)
            x = jax.nn.relu(centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-6))
            x = x - 1 / math.sqrt(2 * math.pi) if self.is_centred else x
        return last(x)


class Fourier(eqx.Module):
    """A sum of cosines of the observation, flattened and cast to float32; see `fourier_prior`."""

    angles: Dense
    amplitudes: Array
    observation_shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        del key
        return cosine(self.angles(_flat(observation, self.observation_shape))) @ self.amplitudes


class Scaled(eqx.Module):
    """o ↦ model(o/bound), each entry divided by its own bound; asinh(o) for entries without a finite one.

    One-hot observations that come as indices pass unchanged: their bound is 1.
    """

    model: Any
    bound: Frozen

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        if not isinstance(observation, OneHot):
            o = jnp.asarray(observation, jnp.float32)
            bound = jnp.broadcast_to(self.bound.value, o.shape)
            observation = jnp.where(jnp.isfinite(bound), o / bound, jnp.arcsinh(o))
        return self.model(observation, key=key)


class WithPrior(eqx.Module):
    """o ↦ model(o) + scale·prior(o), the prior held fixed."""

    model: Any
    prior: Frozen

    def __call__(self, observation: Observation, key: PRNGKey | None = None) -> Array:
        prior, scale = self.prior.value
        return self.model(observation, key=key) + jax.lax.stop_gradient(scale * prior(observation))
