"""Pólya–Gamma Thompson sampling for logistic bandits: Gibbs draws from the logistic posterior."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood import noise
from feelgood.algebra import cholesky, solve_lower, solve_lower_transposed
from feelgood.bandits.base import Algorithm, Context, Model, best_arm
from feelgood.bandits.exact import least_squares
from feelgood.bandits.statistics import Statistics, values
from feelgood.checks import check_count, check_kind, check_positive
from feelgood.typing import Array, PRNGKey, Scalar

NUM_TERMS = 16


def polya_gamma(key: PRNGKey, z: Array) -> Array:
    """Draws ω ~ PG(1, z), elementwise, from the first terms of its series of exponentials.

    ω = (1/2π²) Σ_{k≥1} E_k / ((k − ½)² + z²/4π²). The terms beyond `NUM_TERMS` are replaced by their mean, so that the
    mean tanh(z/2)/2z is exact; their variance, 10⁻⁵ of the whole, is lost.
    """
    terms = [(k - 0.5) ** 2 + z**2 / (4 * jnp.pi**2) for k in range(1, NUM_TERMS + 1)]
    draws = -jnp.log(jax.random.uniform(key, (NUM_TERMS, *z.shape), minval=1e-12))
    head = sum(draws[k] / term for k, term in enumerate(terms)) / (2 * math.pi**2)
    size = jnp.maximum(jnp.abs(z), 1e-3)
    mean = jnp.where(jnp.abs(z) < 1e-3, 0.25, jnp.tanh(size / 2) / (2 * size))
    return head + jnp.maximum(mean - sum(1 / term for term in terms) / (2 * math.pi**2), 0)


class PolyaGammaState(NamedTuple):
    """The Gaussian of rewards that left the window, the window itself, and the current draw.

    Attributes:
      settled: the online Laplace approximation of all rewards older than the window.
      features: φ of the rewards in the window, (n, k).
      rewards: (n,).
      num_rounds: rewards seen.
      theta: (1, k).
    """

    settled: Statistics
    features: Array
    rewards: Array
    num_rounds: Array
    theta: Array


def polya_gamma_ts(
    model: Model, *, prior_precision: Scalar = 1.0, temperature: Scalar = 1.0, window: int = 512
) -> Algorithm:
    r"""Thompson sampling with Pólya–Gamma Gibbs draws; parameters are shared by all arms.

        ω_s | θ ~ PG(1, ⟨θ, φ_s⟩),    θ | ω ~ N(V⁻¹b, V⁻¹/β),    V = Λ₀ + Σ ω_s φ_s φ_sᵀ,  b = Λ₀m₀ + Σ (r_s − ½) φ_s

    While all rewards fit the window, the chain's law is the logistic posterior (at β = 1). A reward that leaves the
    window enters the Gaussian N(m₀, Λ₀⁻¹) by a Laplace step; so the cost of a round does not grow.

    Args:
      model: shape of the parameters, shared.
      prior_precision: ρ.
      temperature: 1/β, a factor on the variance of θ.
      window: n, rewards that are treated exactly.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=True), bandits.Context(jnp.array([[1.0], [-1.0]]))
      >>> algorithm, key = polya_gamma_ts(model, temperature=1e-3, window=8), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, 0.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid 0
      1

    References:
      Polson, Scott and Windle (2013), "Bayesian inference for logistic models using Pólya–Gamma latent variables".
      Dumitrascu, Feng and Engelhardt (2018), "PG-TS: improved Thompson sampling for logistic contextual bandits".
    """
    check_kind("model", model, Model, "a Model such as bandit.model")
    if not model.shared:
        raise ValueError("polya_gamma_ts needs a model with shared parameters, got one with parameters for each arm")
    window = check_count("window", window)
    check_positive("temperature", temperature)
    init_settled, learn_settled = least_squares(model, prior_precision=prior_precision, link="logistic")
    k = model.num_features

    def init(key: PRNGKey) -> PolyaGammaState:
        zero = jnp.zeros((), jnp.int32)
        return PolyaGammaState(init_settled(key), jnp.zeros((window, k)), jnp.zeros(window), zero, model.zeros())

    def sweep(key: PRNGKey, state: PolyaGammaState) -> Array:
        key_omega, key_theta = jax.random.split(key)
        filled = (jnp.arange(window) < state.num_rounds).astype(jnp.float32)
        omega = filled * polya_gamma(key_omega, state.features @ state.theta[0])
        prior = state.settled.precision[0]
        precision = prior + (state.features * omega[:, None]).T @ state.features
        right = prior @ state.settled.mean[0] + state.features.T @ (filled * (state.rewards - 0.5))
        factor = cholesky(precision)
        xi = jnp.sqrt(jnp.asarray(temperature, jnp.float32)) * noise.normal(key_theta, (k,))
        return solve_lower_transposed(factor, solve_lower(factor, right) + xi)[None]

    def choose(key: PRNGKey, state: PolyaGammaState, context: Context) -> tuple[Array, PolyaGammaState]:
        (key_sweep,) = jax.random.split(key, 1)  # `key` itself would change the published results
        state = state._replace(theta=sweep(key_sweep, state))
        return best_arm(values(state.theta, context.features), context), state

    def learn(key: PRNGKey, state: PolyaGammaState, context: Context, action: Array, reward: Array):
        slot = state.num_rounds % window
        old = Context(state.features[slot][None])
        settled = learn_settled(key, state.settled, old, jnp.zeros((), jnp.int32), state.rewards[slot])
        full = state.num_rounds >= window
        settled = jax.tree.map(lambda new, kept: jnp.where(full, new, kept), settled, state.settled)
        here = jnp.arange(window) == slot
        return PolyaGammaState(
            settled,
            jnp.where(here[:, None], context.row(action)[None], state.features),
            jnp.where(here, reward, state.rewards),
            state.num_rounds + 1,
            state.theta,
        )

    return Algorithm(init, choose, learn)
