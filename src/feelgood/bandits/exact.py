"""Algorithms for linear bandits whose draws or bounds are exact: LinUCB, LinTS, greedy, ε-greedy, IDS and FGTS."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood import noise
from feelgood.bandits.base import Algorithm, Context, Model, best_arm
from feelgood.bandits.feel_good import FeelGood, Past, feel_good_sum, no_past, remember, weight_at
from feelgood.bandits.statistics import Statistics, add_reward, no_rewards, solve_lower, unwhiten, values, widths
from feelgood.checks import check_choice, check_count, check_kind, check_non_negative, check_positive, check_probability
from feelgood.typing import Array, PRNGKey, Scalar


def least_squares(
    model: Model, *, loss_weight: Scalar = 0.5, prior_precision: Scalar = 1.0, link: str = "identity"
) -> tuple[Callable[..., Statistics], Callable[..., Statistics]]:
    """`init` and `learn` of every algorithm that needs the Gaussian posterior and nothing else.

    With link "logistic" the posterior of rewards in [0, 1] with mean σ(⟨θ, φ⟩) is its online Laplace approximation: one
    Newton step a round, with the curvature σ'(⟨m, φ⟩)φφᵀ taken at the mean of that round.

    Args:
      model: shape of the parameters.
      loss_weight: η; 1/(2σ²) for noise of variance σ².
      prior_precision: ρ.
      link: "identity", or "logistic" for rewards in [0, 1].

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> (init, learn), key = least_squares(bandits.Model(1, 1, shared=True)), jax.random.key(0)
      >>> state = jax.jit(learn)(key, init(key), bandits.Context(jnp.ones((1, 1))), 0, 3.0)
      >>> round(float(state.mean[0, 0]), 3)  # 3/(1 + 1): one reward, and the prior
      1.5
    """
    check_kind("model", model, Model, "a Model such as bandit.model")
    model.check()
    check_choice("link", link, ("identity", "logistic"))
    check_positive("loss_weight", loss_weight)
    check_positive("prior_precision", prior_precision)

    def init(key: PRNGKey) -> Statistics:
        del key
        return no_rewards(model, prior_precision)

    def learn(key: PRNGKey, state: Statistics, context: Context, action: Array, reward: Array) -> Statistics:
        del key
        if link == "identity":
            return add_reward(state, model, context, action, reward, 2 * loss_weight)
        linear = jnp.sum(model.mask(action)[:, None] * state.mean, 0) @ context.row(action)
        chance = jax.nn.sigmoid(linear)
        slope = jnp.maximum(chance * (1 - chance), 1e-6)
        return add_reward(state, model, context, action, linear + (reward - chance) / slope, 2 * loss_weight * slope)

    return init, learn


def _by_scores(model: Model, scores: Callable[[PRNGKey, Statistics, Array], Array], fit: dict) -> Algorithm:
    """Least squares, and the arm with the largest of `scores(key, statistics, features)`."""
    init, learn = least_squares(model, **fit)
    choose = lambda key, state, context: (best_arm(scores(key, state, context.features), context), state)
    return Algorithm(init, choose, learn)


def lin_ucb(model: Model, bonus: Scalar = 1.0, **fit) -> Algorithm:
    """LinUCB: the largest ⟨m_g, φ_a⟩ + α √(φ_aᵀ Λ_g⁻¹ φ_a).

    Args:
      model: shape of the parameters.
      bonus: α ≥ 0; 0 is greedy.
      **fit: arguments of `least_squares`; with link "logistic" it is GLM-UCB with a Laplace approximation.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = lin_ucb(model), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, 0.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # arm 0 has a smaller width now
      1

    References:
      Li, Chu, Langford and Schapire (2010), "A contextual-bandit approach to personalized news article recommendation".
    """
    check_non_negative("bonus", bonus)
    scores = lambda key, state, x: values(state.mean, x) + bonus * widths(state.factor, x)
    return _by_scores(model, scores, fit)


def lin_ts(model: Model, temperature: Scalar = 1.0, **fit) -> Algorithm:
    """LinTS: greedy on an exact draw θ_g ~ N(m_g, Λ_g⁻¹/β).

    Args:
      model: shape of the parameters.
      temperature: 1/β ≥ 0, a factor on the posterior's variance; 0 is greedy.
      **fit: arguments of `least_squares`; with link "logistic" it is Laplace-TS, online.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = lin_ts(model), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, 2.0)  # θ₀ ~ N(1, ½), θ₁ ~ N(0, 1)
      >>> chances = jax.jit(lambda key: bandits.choice_probabilities(key, algorithm, state, context, num_arms=2))(key)
      >>> [round(chance, 1) for chance in chances.tolist()]  # Φ(1/√1.5) = 0.79
      [0.8, 0.2]

    References:
      Agrawal and Goyal (2013), "Thompson sampling for contextual bandits with linear payoffs".
    """
    check_non_negative("temperature", temperature)
    return _by_scores(model, lambda key, state, x: values(gaussian_draw(key, state, temperature), x), fit)


def lin_ids(model: Model, bonus: Scalar = 1.0, **fit) -> Algorithm:
    r"""Information-directed sampling: the mixture p of arms with the least (E_p Δ)² / E_p I.

        Δ_a = max_b (⟨m, φ_b⟩ + α w_b) − (⟨m, φ_a⟩ − α w_a),    I_a = ½ ln(1 + 2η w_a²),    w_a = √(φ_aᵀ Λ_g⁻¹ φ_a)

    Δ is an upper bound on the gap of an arm and I the information of its reward about θ. A best mixture has two arms
    at most, so all pairs are tried, each with its best mixture in closed form.

    Args:
      model: shape of the parameters.
      bonus: α > 0.
      **fit: arguments of `least_squares`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = lin_ids(model), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, 0.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # equal means, and less is known about arm 1
      1

    References:
      Kirschner and Krause (2018), "Information directed sampling and linear bandits with heteroscedastic noise".
    """
    check_positive("bonus", bonus)
    init, learn = least_squares(model, **fit)
    loss_weight = fit.get("loss_weight", 0.5)

    def choose(key: PRNGKey, state: Statistics, context: Context) -> tuple[Array, Statistics]:
        key_pair, key_coin = jax.random.split(key)
        centre, width = values(state.mean, context.features), widths(state.factor, context.features)
        optimistic = centre + bonus * width
        gap = optimistic[best_arm(optimistic, context)] - centre + bonus * width
        ratio, share = least_information_ratio(gap, jnp.log1p(2 * loss_weight * width**2) / 2)
        if context.available is not None:
            there = context.available[:, None] & context.available[None, :]
            ratio = jnp.where(there, ratio, jnp.inf)
        # Equal pairs, as in the first round, are picked at random.
        ties = jnp.where(ratio <= jnp.min(ratio), jax.random.uniform(key_pair, ratio.shape), -1.0)
        first, second = jnp.unravel_index(jnp.argmax(ties), ratio.shape)
        return jnp.where(jax.random.uniform(key_coin) < share[first, second], first, second), state

    return Algorithm(init, choose, learn)


def least_information_ratio(gap: Array, information: Array) -> tuple[Array, Array]:
    """Least (pΔ_i + (1−p)Δ_j)² / (pI_i + (1−p)I_j) over p in [0, 1] and the p that reaches it, (A, A) each."""
    d, g = gap[None, :], information[None, :]
    rise, gain = gap[:, None] - d, information[:, None] - g
    # The derivative is zero at p = Δ_j/(Δ_i − Δ_j) − 2I_j/(I_i − I_j), or at an end.
    ratio = lambda p: (d + p * rise) ** 2 / jnp.maximum(g + p * gain, 1e-30)
    inner = d / jnp.where(rise == 0, 1.0, rise) - 2 * g / jnp.where(gain == 0, 1.0, gain)
    inner = jnp.where((rise == 0) | (gain == 0), 0.0, jnp.clip(inner, 0.0, 1.0))
    shares = jnp.stack([jnp.zeros_like(inner), inner, jnp.ones_like(inner)])
    ratios = jax.vmap(ratio)(shares)
    least = jnp.argmin(ratios, 0)[None]
    return jnp.take_along_axis(ratios, least, 0)[0], jnp.take_along_axis(shares, least, 0)[0]


def epsilon_greedy(model: Model, epsilon: Scalar = 0.05, **fit) -> Algorithm:
    """ε-greedy on the least-squares fit: a uniform arm with probability ε, else the best by the mean.

    Args:
      model: shape of the parameters.
      epsilon: ε in [0, 1].
      **fit: arguments of `least_squares`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = epsilon_greedy(model, epsilon=0.0), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -1.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # the mean of arm 0 is -½ now
      1
    """
    check_probability("epsilon", epsilon)
    return _by_scores(model, lambda key, state, x: perhaps_random(key, epsilon, values(state.mean, x)), fit)


def perhaps_random(key: PRNGKey, epsilon: Scalar, scores: Array) -> Array:
    """The scores, (A,), or with probability ε uniform numbers in their place."""
    key_coin, key_arm = jax.random.split(key)
    return jnp.where(jax.random.uniform(key_coin) < epsilon, jax.random.uniform(key_arm, scores.shape), scores)


def gaussian_draw(key: PRNGKey, state: Statistics, temperature: Scalar) -> Array:
    """Draws θ ~ N(m, Λ⁻¹/β), (G, k)."""
    xi = noise.normal(key, state.mean.shape)
    return state.mean + jnp.sqrt(jnp.asarray(temperature, jnp.float32)) * unwhiten(state.factor, xi)


class FGTSState(NamedTuple):
    """Statistics, the reservoir of contexts and the current draw in whitened coordinates, z = Lᵀ(θ − centre), (G, k).

    As data come in, the posterior moves away from an old θ. z stays a typical draw of N(0, I/β).
    """

    statistics: Statistics
    past: Past
    z: Array


def fgts(
    model: Model,
    feel_good: FeelGood,
    temperature: Scalar = 1.0,
    *,
    num_candidates: int = 8,
    common_context: bool | None = None,
    **fit,
) -> Algorithm:
    r"""Feel-Good Thompson Sampling with a chain that leaves its posterior exactly invariant.

        π(θ) ∝ exp(−β[½ (θ−m)ᵀΛ(θ−m) − λF(θ)]),    F(θ) = Σ_s min(b, max_a f_θ(x_s, a))

    The tilted Gaussian q = N(m + λΛ⁻¹g, Λ⁻¹/β) with g = ∇F near the mode is close to π, as λF is nearly linear over the
    posterior's width. A round draws N candidates from q and picks one of them or the current θ with probability
    ∝ π/q (iterated sampling importance resampling). This keeps π invariant for every N; π/q = exp(βλ[F(θ) − ⟨g, θ⟩]).

    Args:
      model: shape of the parameters.
      feel_good: weight λ, bound b and the reservoir that F is summed over.
      temperature: 1/β > 0.
      num_candidates: N ≥ 1.
      common_context: whether all arms see the same features; by default if arms have parameters of their own.
      **fit: arguments of `least_squares`; the feel-good term is that of ⟨θ, φ_a⟩, before the link.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = fgts(model, bandits.FeelGood(weight=0.1), temperature=1e-3), jax.random.key(0)
      >>> state = jax.jit(algorithm.learn)(key, algorithm.init(key), context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # cold, it avoids the arm that paid -2
      1

    References:
      Zhang (2022), "Feel-good Thompson sampling for contextual bandits and reinforcement learning".
      Andrieu, Lee and Vihola (2018), "Uniform ergodicity of the iterated conditional SMC and geometric ergodicity of
      particle Gibbs samplers".
    """
    feel_good.check()
    check_positive("temperature", temperature)
    num_candidates = check_count("num_candidates", num_candidates)
    init_statistics, learn_statistics = least_squares(model, **fit)
    shape = feature_shape(model, common_context)

    def init(key: PRNGKey) -> FGTSState:
        return FGTSState(init_statistics(key), no_past(feel_good, shape), model.zeros())

    def choose(key: PRNGKey, state: FGTSState, context: Context) -> tuple[Array, FGTSState]:
        theta, z = tilted_draw(key, state, feel_good, temperature, num_candidates)
        return best_arm(values(theta, context.features), context), state._replace(z=z)

    def learn(key: PRNGKey, state: FGTSState, context: Context, action: Array, reward: Array) -> FGTSState:
        statistics = learn_statistics(key, state.statistics, context, action, reward)
        return state._replace(statistics=statistics, past=remember(key, state.past, context))

    return Algorithm(init, choose, learn)


def tilted_draw(
    key: PRNGKey, state: FGTSState, feel_good: FeelGood, temperature: Scalar, num_candidates: int
) -> tuple[Array, Array]:
    """One step of the chain of `fgts`: the next θ and its z, (G, k) each."""
    key_draws, key_pick = jax.random.split(key)
    statistics, past = state.statistics, state.past
    weight = weight_at(feel_good, statistics.num_rounds)
    total = lambda theta: feel_good_sum(feel_good, past, theta)
    tilt = lambda g: statistics.mean + weight * unwhiten(statistics.factor, jax.vmap(solve_lower)(statistics.factor, g))
    gradient = total(tilt(total(statistics.mean)[1]))[1]
    centre = tilt(gradient)
    scale = jnp.sqrt(jnp.asarray(temperature, jnp.float32))
    draws = scale * noise.normal(key_draws, (num_candidates, *state.z.shape))
    z = jnp.concatenate([state.z[None], draws])
    candidates = centre[None] + jax.vmap(unwhiten, in_axes=(None, 0))(statistics.factor, z)
    linear_part = jnp.sum(gradient[None] * candidates, (1, 2))
    scores = weight * (jax.vmap(total)(candidates)[0] - linear_part) / temperature
    pick = jax.random.categorical(key_pick, scores)
    return candidates[pick], z[pick]


def feature_shape(model: Model, common_context: bool | None) -> tuple[int, int]:
    """Shape of `Context.features`."""
    common = (not model.shared) if common_context is None else common_context
    return (1 if common else model.num_arms, model.num_features)
