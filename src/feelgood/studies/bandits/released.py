"""The settings of the released comparison (Anand and Liaw, 2025), and its Metropolis step as it was released.

Two errors are kept here on purpose, to measure them. The Metropolis ratio of the released MALA has x + τ∇U where the
proposal's mean is x − τ∇U, and no temperature although the proposal's noise has one. With a feel-good term, the value
and gradient of a proposal take that term at the old parameters. `corrected_…` is the same scheme without these errors.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from feelgood import bandits
from feelgood.bandits import Algorithm, FeelGood, Model
from feelgood.bandits.base import Context, best_arm
from feelgood.bandits.chains import Chain, ChainState, chain_ts
from feelgood.bandits.feel_good import bonus
from feelgood.bandits.statistics import quadratic, values
from feelgood.samplers import langevin
from feelgood.typing import Array, PRNGKey

# U = Σ (f − r)² + 0.01‖θ‖²: a loss weight of 1 and a prior precision of 0.02.
LOSS: dict[str, Any] = {"loss_weight": 1.0, "prior_precision": 0.02}
CAPACITY = 256
NUM_DESCENTS, NUM_PROPOSALS, STEP = 20, 5, 0.1


def _heat(model: Model, num_rounds: int) -> float:
    return 0.001 * model.size * math.log(num_rounds)


def mala(model: Model, temperature: float, feel_good: FeelGood | None, *, correct: bool) -> Algorithm:
    """The released MALA-TS: 20 steps of gradient descent, then 5 Metropolis steps of size 0.1/t, a round.

    The temperature is that of the proposal's noise, and of the accept test if it is `correct`, the one of MALA.
    """
    carrier = chain_ts(model, Chain(lambda t, largest: langevin(STEP / t)), feel_good, **LOSS)

    def choose(key: PRNGKey, state: ChainState, context: Context) -> tuple[Array, ChainState]:
        statistics = state.statistics
        tau = STEP / jnp.maximum(statistics.num_rounds, 1)
        plain = lambda w: quadratic(statistics.precision, w - statistics.mean)

        def good(w: Array) -> Array:
            if feel_good is None or state.past is None:
                return jnp.zeros(())
            return bonus(feel_good, state.past, statistics.num_rounds, w)

        whole = jax.value_and_grad(lambda w: plain(w) - good(w))
        theta = jax.lax.fori_loop(0, NUM_DESCENTS, lambda _, w: w - tau * whole(w)[1], state.chain.params)

        def step(carry, key):
            w, value, gradient = carry
            key_noise, key_accept = jax.random.split(key)
            xi = jax.random.normal(key_noise, w.shape)
            y = w - tau * gradient + jnp.sqrt(2 * tau * temperature) * xi
            new_value, new_gradient = whole(y) if correct else (plain(y) - good(w), jax.grad(plain)(y))
            drift, heat = (-tau, temperature) if correct else (tau, 1.0)  # of the proposal in the ratio
            forth = jnp.sum((y - w - drift * gradient) ** 2)
            back = jnp.sum((w - y - drift * new_gradient) ** 2)
            log_ratio = (value - new_value + (forth - back) / (4 * tau)) / heat
            accept = jnp.log(jax.random.uniform(key_accept)) < log_ratio
            new = (y, new_value, new_gradient)
            return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, carry), None

        start = (theta, *whole(theta))
        theta = jax.lax.scan(step, start, jax.random.split(key, NUM_PROPOSALS))[0][0]
        theta = jnp.where(statistics.num_rounds > 0, theta, state.chain.params)
        return best_arm(values(theta, context.features), context), state._replace(
            chain=state.chain._replace(params=theta)
        )

    return carrier._replace(choose=choose)


def exact(make: Callable[..., Algorithm]) -> Callable[..., Algorithm]:
    """The released LinUCB or LinTS."""
    return lambda model, link, num_rounds, hyper: make(model, 1.0, prior_precision=0.01)


def lmc_ts(weight: float | None) -> Callable[..., Algorithm]:
    """The released LMC-TS, with a feel-good term of this weight."""
    settings = {"decay": True, "feel_good": _term(weight), **LOSS}
    return lambda model, link, num_rounds, hyper: bandits.lmc_ts(model, STEP, _heat(model, num_rounds), **settings)


def mala_ts(weight: float | None, correct: bool) -> Callable[..., Algorithm]:
    """The released MALA-TS, see `mala`, with a feel-good term of this weight."""
    heat = _heat
    return lambda model, link, num_rounds, hyper: mala(model, heat(model, num_rounds), _term(weight), correct=correct)


def _term(weight: float | None) -> FeelGood | None:
    return None if weight is None else FeelGood(weight, capacity=CAPACITY)
