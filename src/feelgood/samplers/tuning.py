"""A first guess of the step size, from the largest curvature of the potential."""

import jax
import jax.numpy as jnp
import optax

from feelgood import noise
from feelgood.checks import check_choice, check_count, check_kind, check_positive
from feelgood.samplers.base import check_key, like, split_params, widen
from feelgood.typing import Array, Params, Potential, PRNGKey, Scalar


def largest_curvature(key: PRNGKey, potential: Potential, params: Params, *, num_iterations: int | float = 50) -> Array:
    """The largest |eigenvalue| of the Hessian of U at `params`, by power iteration on Hessian–vector products.

    Each iteration costs about two gradients. The estimate approaches M from below; k iterations from a random start
    give M to about a relative log(d)/(2k) in the worst case, and far better where the largest eigenvalue stands out.

    Args:
      key: key of the random start.
      potential: U.
      params: the point at which the curvature is measured. Near the mode it describes the posterior.
      num_iterations: k ≥ 1.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> potential = lambda w: (w[0] ** 2 + 9 * w[1] ** 2) / 2
      >>> float(samplers.largest_curvature(jax.random.key(0), potential, jnp.zeros(2)).round(3))
      9.0
    """
    check_count("num_iterations", num_iterations)
    check_key(key)
    moving, whole = split_params(params)
    slope = jax.grad(lambda moving: potential(whole(moving)))

    def multiply(vector: Params) -> Params:
        return jax.jvp(slope, (wide,), (vector,))[1]

    def unit(vector: Params) -> tuple[Params, Array]:
        length = optax.tree.norm(vector)
        scale = jnp.where(length > 0, 1 / length, 0.0)
        return like(jax.tree.map(lambda v: scale * v, vector), vector), length

    wide = widen(moving)
    start, _ = unit(noise.normal_like(key, wide))
    iterate = lambda _, carry: unit(multiply(carry[0]))
    return jax.lax.fori_loop(0, int(num_iterations), iterate, (start, jnp.zeros_like(optax.tree.norm(start))))[1]


# From curvature M, friction γ, inverse temperature β and d parameters; see `suggest_step_size`. The step of
# `underdamped_exact` is half that of the Euler scheme, whose limit is smaller.
_STEPS = {
    "langevin": lambda m, friction, beta, d: 1 / m,
    "underdamped": lambda m, friction, beta, d: jnp.minimum(friction / m, 2 / friction) / 2,
    "underdamped_exact": lambda m, friction, beta, d: jnp.minimum(friction / m, 2 / friction) / 2,
    "underdamped_splitting": lambda m, friction, beta, d: 1 / jnp.sqrt(m),
    # The root of τ²M = 4 − 2γτ, halved.
    "adaptive_underdamped": lambda m, friction, beta, d: 2 / (friction + jnp.sqrt(friction**2 + 4 * m)),
    "mala": lambda m, friction, beta, d: 1 / (m * d ** (1 / 3)),
    "hmc": lambda m, friction, beta, d: 1 / (jnp.sqrt(m) * d**0.25),
    "proximal": lambda m, friction, beta, d: 1 / (beta * m * d),
}


def suggest_step_size(
    sampler: str,
    key: PRNGKey,
    potential: Potential,
    params: Params,
    *,
    friction: Scalar = 1.0,
    inverse_temperature: Scalar = 1.0,
    num_iterations: int | float = 50,
) -> Array:
    """A step size at which a sampler is stable for the curvature of U at `params`.

    For the unadjusted samplers it is at most half the largest stable step on a quadratic with that curvature. For
    `mala`, `hmc` and `proximal` it shrinks with the number d of parameters as acceptance requires, as d^(−1/3),
    d^(−1/4) and 1/d. It is a first guess: halve it if `Info.diverged` is set, or if draws at half the step have a
    different law.

    Args:
      sampler: name of the factory: "langevin", "underdamped", "underdamped_exact", "underdamped_splitting",
        "adaptive_underdamped" (its law without the adaptive bias), "mala", "hmc" or "proximal".
      key: key of the power iteration in `largest_curvature`.
      potential: U.
      params: the point at which the curvature is measured, best near the mode; may be a model of Equinox, as in
        `sample`.
      friction: γ > 0 of the underdamped samplers.
      inverse_temperature: β > 0.
      num_iterations: iterations of the power iteration.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> potential = lambda w: 50 * jnp.sum(w**2)
      >>> round(float(samplers.suggest_step_size("langevin", jax.random.key(0), potential, jnp.zeros(3))), 4)
      0.01
    """
    check_kind("sampler", sampler, str, "the name of a sampler, such as 'langevin'")
    check_choice("sampler", sampler, _STEPS)
    check_positive("friction", friction)
    check_positive("inverse_temperature", inverse_temperature)
    curvature = largest_curvature(key, potential, params, num_iterations=num_iterations)
    num_params = sum(leaf.size for leaf in jax.tree.leaves(split_params(params)[0]))
    return _STEPS[sampler](curvature, jnp.asarray(friction), jnp.asarray(inverse_temperature), num_params)
