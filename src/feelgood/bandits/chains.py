"""Thompson sampling by Markov chains in linear bandits: LMC-, ULMC-, BAOAB-, MALA- and HMC-TS.

Each round moves a chain a few steps on the current potential

    U(θ) = ½ (θ−m)ᵀΛ(θ−m) − λ Σ_s min(b, max_a f_θ(x_s, a))

and acts greedily on the chain's position. The quadratic comes from sufficient statistics and the feel-good sum from a
reservoir, so the cost of a round does not grow.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood import samplers
from feelgood.bandits.base import Algorithm, Context, Model, best_arm
from feelgood.bandits.exact import feature_shape, least_squares
from feelgood.bandits.feel_good import FeelGood, Past, bonus, no_past, remember
from feelgood.bandits.statistics import Statistics, largest_curvature, quadratic, unwhiten, values, whiten
from feelgood.checks import check_count, check_positive
from feelgood.samplers import Sampler, SamplerState
from feelgood.typing import Array, PRNGKey, Scalar


class Chain(NamedTuple):
    """The sampler of a round.

    Attributes:
      sampler: `(t, M) -> Sampler` for round t = 1, 2, … and largest curvature M of the quadratic. It targets
        exp(−βU), so it contains the inverse temperature β.
      num_steps: K, steps a round.
      preconditioned: run the chain on z = Lᵀ(θ − m) with Λ = LLᵀ, where all curvatures are 1.
    """

    sampler: Callable[[Array, Array], Sampler]
    num_steps: int = 25
    preconditioned: bool = False


class ChainState(NamedTuple):
    """Statistics, the chain's position (G, k) and momentum, and the past contexts (None without a feel-good term)."""

    statistics: Statistics
    chain: SamplerState
    past: Past | None


def chain_ts(
    model: Model, chain: Chain, feel_good: FeelGood | None = None, *, common_context: bool | None = None, **fit
) -> Algorithm:
    """Thompson sampling with any sampler, from any potential that is quadratic plus a feel-good term.

    Args:
      model: shape of the parameters.
      chain: sampler, steps a round, preconditioning.
      feel_good: the feel-good term; None for plain Thompson sampling.
      common_context: whether all arms see the same features; by default if arms have parameters of their own.
      **fit: arguments of `least_squares`; with link "logistic" the quadratic is the online Laplace approximation.

    Returns:
      The algorithm. The chain starts at a standard normal draw, as LMC-TS's authors do.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits, samplers
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> chain = Chain(lambda t, largest: samplers.proximal(1 / largest, inverse_temperature=1e3), num_steps=10)
      >>> algorithm, key = chain_ts(model, chain), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid -2
      1
    """
    check_count("num_steps", chain.num_steps)
    init_statistics, learn_statistics = least_squares(model, **fit)
    shape = feature_shape(model, common_context)
    if feel_good is not None:
        feel_good.check()

    def init(key: PRNGKey) -> ChainState:
        start = jax.random.normal(key, (model.num_groups, model.num_features))
        past = None if feel_good is None else no_past(feel_good, shape)
        sampler = chain.sampler(jnp.ones(()), jnp.ones(()))
        return ChainState(init_statistics(key), sampler.init(start), past)

    def choose(key: PRNGKey, state: ChainState, context: Context) -> tuple[Array, ChainState]:
        moved = move(key, state, chain, feel_good)
        return best_arm(values(moved.params, context.features), context), state._replace(chain=moved)

    def learn(key: PRNGKey, state: ChainState, context: Context, action: Array, reward: Array) -> ChainState:
        statistics = learn_statistics(key, state.statistics, context, action, reward)
        past = None if state.past is None else remember(key, state.past, context)
        return state._replace(statistics=statistics, past=past)

    return Algorithm(init, choose, learn)


def move(key: PRNGKey, state: ChainState, chain: Chain, feel_good: FeelGood | None) -> SamplerState:
    """K steps of the chain on the potential of this round."""
    statistics, past = state.statistics, state.past
    t = jnp.maximum(statistics.num_rounds, 1).astype(jnp.float32)

    def feels_good(theta: Array) -> Array:
        if feel_good is None or past is None:
            return jnp.zeros(())
        return bonus(feel_good, past, statistics.num_rounds, theta)

    def potential(theta: Array) -> Array:
        return quadratic(statistics.precision, theta - statistics.mean) - feels_good(theta)

    def whitened(z: Array) -> Array:
        return jnp.sum(z**2) / 2 - feels_good(statistics.mean + unwhiten(statistics.factor, z))

    def run(sampler: Sampler, start: SamplerState, target: Callable[[Array], Array]) -> SamplerState:
        keys = jax.random.split(key, chain.num_steps)
        if sampler.fixed is None:
            return jax.lax.scan(lambda state, key: (sampler.step(key, state, target)[0], None), start, keys)[0]
        # The potential is fixed within a round, so the last gradient is kept; the next round has another.
        fixed = sampler.fixed(target)
        step = lambda state, key: (fixed.step(key, state, target)[0], None)
        return start._replace(params=jax.lax.scan(step, fixed.init(start.params), keys)[0].params)

    if not chain.preconditioned:
        return run(chain.sampler(t, largest_curvature(statistics.precision)), state.chain, potential)
    z = whiten(statistics.factor, state.chain.params - statistics.mean)
    moved = run(chain.sampler(t, jnp.ones(())), state.chain._replace(params=z), whitened)
    return moved._replace(params=statistics.mean + unwhiten(statistics.factor, moved.params))


def _chain(
    model: Model,
    make: Callable[[Array, Array], Sampler],
    step_size: Scalar,
    power: float,
    decay: bool,
    *,
    num_steps: int = 25,
    preconditioned: bool = False,
    feel_good: FeelGood | None = None,
    **options,
) -> Algorithm:
    """`chain_ts` with the sampler `make(τ, M)`, where τ = step_size / M^power, or step_size / t if `decay`."""
    check_positive("step_size", step_size)
    sampler = lambda t, largest: make(step_size / t if decay else step_size / largest**power, largest)
    return chain_ts(model, Chain(sampler, num_steps, preconditioned), feel_good, **options)


def lmc_ts(
    model: Model, step_size: Scalar = 0.5, temperature: Scalar = 1.0, *, decay: bool = False, **options
) -> Algorithm:
    """LMC-TS: θ ← θ − τ∇U(θ) + √(2τ/β) ξ, K times a round.

    Args:
      model: shape of the parameters.
      step_size: τ in units of 1/M, M the largest curvature; of 1/t if `decay`, as in the authors' code.
      temperature: 1/β > 0.
      decay: whether τ = step_size / t.
      **options: `num_steps` (K, 25), `preconditioned` (run on Lᵀ(θ − m), Λ = LLᵀ: drift and noise have the metric
        Λ⁻¹), `feel_good`, and the options of `chain_ts` and `least_squares`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = lmc_ts(model, temperature=1e-3), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid -2
      1

    References:
      Xu, Zheng, Mazumdar, Azizzadenesheli and Anandkumar (2022), "Langevin Monte Carlo for contextual bandits".
    """
    make = lambda tau, _: samplers.langevin(tau, 1 / temperature)
    return _chain(model, make, step_size, 1.0, decay, **options)


def mala_ts(
    model: Model, step_size: Scalar = 0.5, temperature: Scalar = 1.0, *, decay: bool = False, **options
) -> Algorithm:
    """MALA-TS: Langevin proposals, accepted or rejected, so that exp(−βU) is exactly stationary; see `lmc_ts`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = mala_ts(model, temperature=1e-3), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid -2
      1
    """
    make = lambda tau, _: samplers.mala(tau, 1 / temperature)
    return _chain(model, make, step_size, 1.0, decay, **options)


def ulmc_ts(
    model: Model, step_size: Scalar = 0.5, friction: Scalar = 2.0, temperature: Scalar = 1.0, **options
) -> Algorithm:
    """ULMC-TS: underdamped Langevin in closed form over a step, momentum kept between rounds.

    Args:
      model: shape of the parameters.
      step_size: τ in units of 1/√M.
      friction: γ in units of √M.
      temperature: 1/β > 0.
      **options: as in `lmc_ts`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = ulmc_ts(model, temperature=1e-3), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid -2
      1

    References:
      Zheng, Deng, Moya and Lin (2024), "Accelerating approximate Thompson sampling with underdamped Langevin Monte
      Carlo".
    """
    make = lambda tau, largest: samplers.underdamped_exact(tau, friction * jnp.sqrt(largest), 1 / temperature)
    return _chain(model, make, step_size, 0.5, False, **options)


def baoab_ts(
    model: Model, step_size: Scalar = 1.0, friction: Scalar = 0.5, temperature: Scalar = 1.0, **options
) -> Algorithm:
    """BAOAB-TS: underdamped Langevin by splitting, stable at low friction; see `ulmc_ts`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = baoab_ts(model, temperature=1e-3), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid -2
      1
    """
    make = lambda tau, largest: samplers.underdamped_splitting(tau, friction * jnp.sqrt(largest), 1 / temperature)
    return _chain(model, make, step_size, 0.5, False, **options)


def hmc_ts(
    model: Model, step_size: Scalar = 0.5, num_leapfrog_steps: int = 5, temperature: Scalar = 1.0, **options
) -> Algorithm:
    """HMC-TS: K (5) Hamiltonian proposals a round of L leapfrog steps of step_size / √M each; see `lmc_ts`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = hmc_ts(model, temperature=1e-3), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid -2
      1
    """
    make = lambda tau, _: samplers.hmc(tau, num_leapfrog_steps, 1 / temperature)
    return _chain(model, make, step_size, 0.5, False, **{"num_steps": 5} | options)
