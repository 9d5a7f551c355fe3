"""A feel-good posterior over the values of three arms, from a potential of your own."""

import jax
import jax.numpy as jnp

from feelgood import samplers

arms = jnp.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])  # features of each arm
tried = jnp.array([0, 0, 0, 1])  # the third was never tried
rewards = jnp.array([0.4, 0.6, 0.5, 0.7])
feel_good_weight = 0.5


def potential(w):
    """Squared errors on the data, a Gaussian prior, and the feel-good term −λ · max over arms of the value."""
    errors = rewards - arms[tried] @ w
    return jnp.sum(errors**2) + jnp.sum(w**2) / 2 - feel_good_weight * jnp.max(arms @ w)


def main(num_chains: int = 2000, num_steps: int = 100):
    """Draws by underdamped Langevin, one chain each; exp(−potential) is the posterior."""
    sampler = samplers.underdamped_exact(step_size=0.1, friction=2.0)
    draw = lambda key: samplers.sample(key, sampler, potential, jnp.zeros(2), num_steps, thin=num_steps)[0][-1]
    draws = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), num_chains))
    chosen = jnp.bincount(jnp.argmax(draws @ arms.T, -1), length=3) / num_chains
    print("mean of w", draws.mean(0), "; share of draws that choose each arm", chosen)
    return draws


if __name__ == "__main__":
    main()
