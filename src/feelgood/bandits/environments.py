"""Bandits whose means are known, so that regret is exact."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from feelgood import noise
from feelgood.bandits.base import Bandit, Context, Model, Round
from feelgood.checks import check_count, check_non_negative, check_probability
from feelgood.typing import Array, PRNGKey


def linear(num_arms: int = 5, num_features: int = 4, noise_std: float = 0.5) -> Bandit:
    """Gaussian contexts that all arms see, a parameter vector for each arm: d = A·k.

    x ~ N(0, I_k), θ*_a ~ N(0, I_k), reward ⟨θ*_a, x⟩ + σ·N(0, 1). The defaults are linear-20d; 8 features make
    linear-40d.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> bandit = linear(num_arms=2, num_features=3, noise_std=0.0)
      >>> shown = jax.jit(bandit.round)(jax.random.key(0), jnp.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]), 0)
      >>> x = shown.context.features[0]
      >>> bool(jnp.allclose(shown.means, jnp.array([x[0], 2 * x[1]])))
      True
    """
    check_non_negative("noise_std", noise_std)
    model = Model(num_arms, num_features, False).check()

    def init(key: PRNGKey) -> Array:
        return jax.random.normal(key, (num_arms, num_features))

    def round_(key: PRNGKey, theta: Array, t: Array) -> Round:
        del t
        draws = noise.normal(key, (num_features + num_arms,))
        x = draws[:num_features]
        means = jnp.sum(theta * x[None], -1)
        return Round(Context(x[None]), means, means + noise_std * draws[num_features:])

    return Bandit(init, round_, model)


def logistic(num_arms: int = 50, num_features: int = 20) -> Bandit:
    """Bernoulli rewards with mean σ(⟨θ*, φ_a⟩); all arms share θ* ~ N(0, I).

    φ is a Gaussian (A, k) matrix divided by its largest singular value, drawn in every round.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> bandit = logistic(num_arms=3, num_features=2)
      >>> shown = jax.jit(bandit.round)(jax.random.key(0), jnp.zeros(2), 0)  # θ* = 0
      >>> shown.means.tolist(), set(shown.rewards.tolist()) <= {0.0, 1.0}
      ([0.5, 0.5, 0.5], True)
    """
    model = Model(num_arms, num_features, True).check()

    def init(key: PRNGKey) -> Array:
        return jax.random.normal(key, (num_features,))

    def round_(key: PRNGKey, theta: Array, t: Array) -> Round:
        del t
        key_features, key_rewards = jax.random.split(key)
        features = noise.normal(key_features, (num_arms, num_features))
        features = features / _spectral_norm(features)
        means = jax.nn.sigmoid(features @ theta)
        rewards = (jax.random.uniform(key_rewards, (num_arms,)) < means).astype(jnp.float32)
        return Round(Context(features), means, rewards)

    return Bandit(init, round_, model)


def _spectral_norm(matrix: Array) -> Array:
    """The largest singular value, by power iteration on the smaller Gram matrix, to about 10⁻³ or better."""
    wide = matrix.shape[0] < matrix.shape[1]
    gram = matrix @ matrix.T if wide else matrix.T @ matrix
    power = gram / jnp.linalg.norm(gram)
    for _ in range(8):  # gram²⁵⁶, rescaled
        power = power @ power
        power = power / jnp.linalg.norm(power)
    vector = power @ jnp.ones(gram.shape[0])
    return jnp.sqrt(vector @ (gram @ vector) / (vector @ vector))


def wheel(delta: float = 0.95, *, noise_std: float = 0.01) -> Bandit:
    """The wheel: one arm is safe, and each of four others is rich in one quadrant of the outer ring.

    x is uniform in the unit disc. Arm 0 pays 1.2 everywhere. Arms 1 to 4 pay 1.0, but 50 where ‖x‖ > δ and x lies in
    the arm's quadrant: (+,+), (+,−), (−,−), (−,+). Features are (1, x₁, x₂, ‖x‖), with parameters for each arm; linear
    models cannot represent the ring's edge.

    Examples:
      >>> import jax
      >>> bandit = wheel(delta=0.0)  # the ring is everywhere
      >>> shown = jax.jit(bandit.round)(jax.random.key(0), 0, 0)
      >>> [round(mean, 1) for mean in shown.means.tolist()]
      [1.2, 50.0, 1.0, 1.0, 1.0]

    References:
      Riquelme, Tucker and Snoek (2018), "Deep Bayesian bandits showdown".
    """
    check_probability("delta", delta)
    model = Model(5, 4, False)

    def init(key: PRNGKey) -> Array:
        del key
        return jnp.zeros(())

    def round_(key: PRNGKey, instance: Array, t: Array) -> Round:
        del instance, t
        key_context, key_noise = jax.random.split(key)
        radius2, turn = jax.random.uniform(key_context, (2,))
        radius, angle = jnp.sqrt(radius2), 2 * jnp.pi * turn
        x = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        first, second = x[0] > 0, x[1] > 0
        quadrants = jnp.stack([first & second, first & ~second, ~first & ~second, ~first & second])
        means = jnp.concatenate([jnp.array([1.2]), jnp.where(quadrants & (radius > delta), 50.0, 1.0)])
        features = jnp.concatenate([jnp.ones(1), x, radius[None]])[None]
        return Round(Context(features), means, means + noise_std * noise.normal(key_noise, (5,)))

    return Bandit(init, round_, model)


def quadratic(num_arms: int = 4, num_features: int = 20, noise_std: float = 1.0) -> Bandit:
    """Means 10·⟨θ*, φ_a⟩² with φ_a and θ* uniform on the sphere: linear models fail (Zhou et al., 2020).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> shown = jax.jit(quadratic(num_arms=2, num_features=3).round)(jax.random.key(0), jnp.array([1.0, 0.0, 0.0]), 0)
      >>> bool(jnp.allclose(shown.means, 10 * shown.context.features[:, 0] ** 2))
      True
    """
    return _on_the_sphere(num_arms, num_features, noise_std, lambda u: 10 * u**2)


def cosine(num_arms: int = 4, num_features: int = 20, noise_std: float = 1.0) -> Bandit:
    """Means cos(3·⟨θ*, φ_a⟩) with φ_a and θ* uniform on the sphere (Zhou et al., 2020).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> shown = jax.jit(cosine(num_arms=2, num_features=3).round)(jax.random.key(0), jnp.zeros(3), 0)
      >>> shown.means.tolist()  # cos 0
      [1.0, 1.0]
    """
    return _on_the_sphere(num_arms, num_features, noise_std, lambda u: jnp.cos(3 * u))


def _on_the_sphere(num_arms: int, num_features: int, noise_std: float, link: Callable[[Array], Array]) -> Bandit:
    num_arms = check_count("num_arms", num_arms)
    check_non_negative("noise_std", noise_std)
    unit = lambda v: v / jnp.linalg.norm(v, axis=-1, keepdims=True)

    def init(key: PRNGKey) -> Array:
        return unit(jax.random.normal(key, (num_features,)))

    def round_(key: PRNGKey, theta: Array, t: Array) -> Round:
        del t
        key_features, key_noise = jax.random.split(key)
        features = unit(noise.normal(key_features, (num_arms, num_features)))
        means = link(features @ theta)
        return Round(Context(features), means, means + noise_std * noise.normal(key_noise, (num_arms,)))

    return Bandit(init, round_, Model(num_arms, num_features, True).check())
