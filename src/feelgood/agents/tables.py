"""Learning rates of tables of action values."""

import jax
import jax.numpy as jnp
import optax

from feelgood.typing import Array, Params, Scalar


def visit_rates(least_rate: Scalar, period: Scalar = 50) -> optax.GradientTransformation:
    """Learning rates that fall with the number of visits of an entry: gradients other than 0.

    At its n-th visit, in update t, an entry moves against its gradient at the rate

      max(1/(n + 1), min(`least_rate`, t/(n·`period`))).

    With `feelgood.objectives.td(per="pair")` the gradient of a table's entry is minus its mean TD error y − q. While
    1/(n + 1) is the largest rate, a value is the mean of its start and all its targets so far,

      q_n = (q₀ + y₁ + … + y_n)/(n + 1),

    the posterior mean of a Gaussian whose prior has mean q₀ and the variance of one target. So a new pair is learnt at
    its first visits, and noise is averaged. Targets change as the values of later states do, so rates do not fall to 0:
    an entry that every update visits forgets over `period` updates, one that few visit over 1/`least_rate` visits.

    Examples:
      >>> import jax.numpy as jnp
      >>> transform, q = visit_rates(0.1), jnp.array(6.0)
      >>> state = transform.init(q)
      >>> for y in (0.0, 3.0):
      ...     update, state = transform.update(q - y, state)
      ...     q = q + update
      >>> float(q)  # (6 + 0 + 3)/3
      3.0
    """

    def init(params: Params) -> tuple[Params, Array]:
        return jax.tree.map(jnp.zeros_like, params), jnp.zeros(())

    def update(
        gradient: Params, state: tuple[Params, Array], params: Params | None = None
    ) -> tuple[Params, tuple[Params, Array]]:
        del params
        visits, num_updates = state
        visits, num_updates = jax.tree.map(lambda n, g: n + (g != 0), visits, gradient), num_updates + 1

        def step(g: Array, n: Array) -> Array:
            least = jnp.minimum(jnp.asarray(least_rate), num_updates / (jnp.asarray(period) * jnp.maximum(n, 1)))
            return -jnp.maximum(1 / (n + 1), least) * g

        return jax.tree.map(step, gradient, visits), (visits, num_updates)

    return optax.GradientTransformation(init, update)
