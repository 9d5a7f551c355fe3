"""Neural bandits: one perceptron values all arms, learns from minibatches of a replay, and explores in six ways.

If arms see a common context, an arm's input is that context in the arm's block, as the authors of NeuralUCB do. A round
takes a fixed number of gradient steps on minibatches, so its cost does not grow.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood import samplers
from feelgood.algebra import cholesky, solve_lower, solve_lower_transposed
from feelgood.bandits.base import Algorithm, Context, Model, best_arm
from feelgood.bandits.exact import perhaps_random
from feelgood.bandits.feel_good import FeelGood, credit_and_slope, weight_at
from feelgood.bandits.perceptron import (
    Memory,
    Training,
    apply_net,
    arm_values,
    first_layer,
    fit,
    hidden,
    init_net,
    parts_of,
    played,
    values_and_norms,
)
from feelgood.checks import check_choice, check_count, check_non_negative, check_positive, check_probability
from feelgood.noise import normal
from feelgood.samplers import SamplerState
from feelgood.typing import Array, PRNGKey, Scalar

TRAINING = Training()


class NeuralState(NamedTuple):
    """Parameters, optimiser, replay and the algorithm's own state."""

    net: Any
    opt_state: Any
    memory: Memory
    extra: Any


def _trained(
    model: Model,
    choose,
    init_extra=None,
    learn_extra=None,
    *,
    training: Training = TRAINING,
    common_context: bool | None = None,
):
    """An algorithm that fits one perceptron by Adam; `choose(key, state, features) -> scores` explores."""
    parts = parts_of(model, training, common_context)

    def init(key: PRNGKey) -> NeuralState:
        net = init_net(key, parts.sizes)
        extra = () if init_extra is None else init_extra(net)
        return NeuralState(net, optax.adam(training.step_size).init(net), parts.no_memory(), extra)

    def pick(key: PRNGKey, state: NeuralState, context: Context):
        return best_arm(choose(key, state, context.features), context), state

    def learn(key: PRNGKey, state: NeuralState, context: Context, action: Array, reward: Array) -> NeuralState:
        extra = state.extra if learn_extra is None else learn_extra(state, played(model, context.features, action))
        memory = parts.keep(state.memory, context, action, reward)
        net, opt_state = fit(key, state.net, memory, state.opt_state, training, parts)
        return NeuralState(net, opt_state, memory, extra)

    return Algorithm(init, pick, learn)


def neural_greedy(model: Model, epsilon: Scalar = 0.05, **options) -> Algorithm:
    """ε-greedy on the perceptron's values.

    Args:
      model: shape of the features.
      epsilon: ε in [0, 1].
      **options: `training`, a `Training`; `common_context`, whether all arms see the same features (by default if arms
        have parameters of their own).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm = neural_greedy(model, epsilon=0.4)
      >>> estimate = lambda key: bandits.choice_probabilities(key, algorithm, algorithm.init(key), context, num_arms=2)
      >>> sorted(round(chance, 1) for chance in jax.jit(estimate)(jax.random.key(0)).tolist())  # 0.4/2 and the rest
      [0.2, 0.8]
    """
    check_probability("epsilon", epsilon)
    scores = lambda key, state, features: perhaps_random(key, epsilon, arm_values(model, state.net, features))
    return _trained(model, scores, **options)


def _diagonal(model, kind: str, scale: Scalar, ridge: Scalar, training: Training = TRAINING, **options):
    check_non_negative("scale", scale)
    check_positive("ridge", ridge)
    width = training.width

    def choose(key, state, features):
        values, norms = values_and_norms(model, state.net, state.extra, features)
        xi = normal(key, (model.num_arms,)) if kind == "ts" else 1.0
        return values + scale * jnp.sqrt(ridge * norms / width) * xi

    def learn_extra(state, x):
        gradient = jax.grad(apply_net)(state.net, x)
        return jax.tree.map(lambda u, g: u + g**2 / width, state.extra, gradient)

    init_extra = lambda net: jax.tree.map(lambda leaf: jnp.full_like(leaf, ridge), net)
    return _trained(model, choose, init_extra, learn_extra, training=training, **options)


def neural_ucb(model: Model, scale: Scalar = 0.1, ridge: Scalar = 1.0, **options) -> Algorithm:
    """NeuralUCB with the diagonal of its authors' code: f(x_a) + γ·σ_a, σ_a² = ρ Σ g_a²/(U·m), U += g²/m.

    Args:
      model: shape of the features.
      scale: γ ≥ 0.
      ridge: ρ > 0.
      **options: as in `neural_greedy`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = neural_ucb(model), jax.random.key(0)
      >>> learn, state = jax.jit(algorithm.learn), algorithm.init(key)
      >>> for key in jax.random.split(key, 20):
      ...     state = learn(key, state, context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # it avoids the arm that paid -2 twenty times
      1

    References:
      Zhou, Li and Gu (2020), "Neural contextual bandits with UCB-based exploration".
    """
    return _diagonal(model, "ucb", scale, ridge, **options)


def neural_ts(model: Model, scale: Scalar = 0.1, ridge: Scalar = 1.0, **options) -> Algorithm:
    """NeuralTS with the diagonal of its authors' code: each arm's value is drawn from N(f(x_a), ν²σ_a²).

    The arguments are those of `neural_ucb`, with ν = scale.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = neural_ts(model), jax.random.key(0)
      >>> learn, state = jax.jit(algorithm.learn), algorithm.init(key)
      >>> for key in jax.random.split(key, 20):
      ...     state = learn(key, state, context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # it avoids the arm that paid -2 twenty times
      1

    References:
      Zhang, Zhou, Li and Gu (2021), "Neural Thompson sampling".
    """
    return _diagonal(model, "ts", scale, ridge, **options)


def neural_linear(
    model: Model,
    temperature: Scalar = 1.0,
    *,
    loss_weight: Scalar = 0.5,
    prior_precision: Scalar = 1.0,
    num_rows: int = 256,
    training: Training = TRAINING,
    common_context: bool | None = None,
) -> Algorithm:
    """Neural-linear TS: an exact draw of the last layer's Bayesian regression on the learnt features.

    The features change as the network learns, so the regression is fitted again in every round, on a minibatch of
    `num_rows` rewards that stands for all t: sums are scaled by t/num_rows.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = neural_linear(model, temperature=1e-3), jax.random.key(0)
      >>> learn, state = jax.jit(algorithm.learn), algorithm.init(key)
      >>> for key in jax.random.split(key, 20):
      ...     state = learn(key, state, context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # it avoids the arm that paid -2 twenty times
      1

    References:
      Riquelme, Tucker and Snoek (2018), "Deep Bayesian bandits showdown".
    """
    num_rows = check_count("num_rows", num_rows)
    rows_of = parts_of(model, training._replace(batch_size=num_rows), common_context).draw

    def choose(key, state, features):
        key_rows, key_draw = jax.random.split(key)
        past, actions, rewards = rows_of(key_rows, state.memory)
        phi = _with_one(hidden(state.net, played(model, past, actions) @ state.net[0][0])[-1])
        weight = 2 * loss_weight * state.memory.num_seen / num_rows
        precision = weight * phi.T @ phi + prior_precision * jnp.eye(phi.shape[1])
        factor = cholesky(precision)
        xi = jnp.sqrt(jnp.asarray(temperature, jnp.float32)) * normal(key_draw, (phi.shape[1],))
        theta = solve_lower_transposed(factor, solve_lower(factor, weight * phi.T @ rewards) + xi)
        return _with_one(hidden(state.net, first_layer(model, state.net[0][0], features))[-1]) @ theta

    return _trained(model, choose, training=training, common_context=common_context)


def _with_one(x: Array) -> Array:
    return jnp.concatenate([x, jnp.ones((*x.shape[:-1], 1))], -1)


def neural_ensemble(
    model: Model,
    num_members: int = 10,
    prior_scale: Scalar = 1.0,
    noise_std: Scalar = 0.1,
    *,
    training: Training = TRAINING,
    common_context: bool | None = None,
) -> Algorithm:
    """Ensemble sampling with prior functions: each member fits rewards with its own noise, and one acts in each round.

    A member's value is f_θ + prior_scale · f_prior with a fixed random network as prior.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm, key = neural_ensemble(model, num_members=2, prior_scale=0.1), jax.random.key(0)
      >>> learn, state = jax.jit(algorithm.learn), algorithm.init(key)
      >>> for key in jax.random.split(key, 20):
      ...     state = learn(key, state, context, 0, -2.0)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # it avoids the arm that paid -2 twenty times
      1

    References:
      Osband, Aslanides and Cassirer (2018), "Randomized prior functions for deep reinforcement learning".
    """
    num_members = check_count("num_members", num_members)
    check_non_negative("prior_scale", prior_scale)
    check_non_negative("noise_std", noise_std)
    parts = parts_of(model, training, common_context)
    optimiser = optax.adam(training.step_size)

    def init(key: PRNGKey) -> NeuralState:
        keys = jax.random.split(key, 2 * num_members).reshape(2, num_members)
        nets, priors = (jax.vmap(lambda k: init_net(k, parts.sizes))(half) for half in keys)
        perturbations = jnp.zeros((num_members, training.capacity))
        return NeuralState(nets, jax.vmap(optimiser.init)(nets), parts.no_memory(), (priors, perturbations))

    def choose(key: PRNGKey, state: NeuralState, context: Context):
        member = jax.random.randint(key, (), 0, num_members)
        net, prior = (jax.tree.map(lambda leaf: leaf[member], tree) for tree in (state.net, state.extra[0]))
        mine, fixed = (arm_values(model, each, context.features) for each in (net, prior))
        return best_arm(mine + prior_scale * fixed, context), state

    def learn(key: PRNGKey, state: NeuralState, context: Context, action: Array, reward: Array) -> NeuralState:
        key_noise, key_fit = jax.random.split(key)
        slot = state.memory.num_seen % training.capacity
        memory = parts.keep(state.memory, context, action, reward)
        priors, perturbations = state.extra
        perturbations = perturbations.at[:, slot].set(noise_std * normal(key_noise, (num_members,)))

        def fit_member(key, net, prior, own, opt_state):
            predict = lambda net, x: apply_net(net, x) + prior_scale * apply_net(prior, x)
            mine = memory._replace(rewards=memory.rewards + own)
            return fit(key, net, mine, opt_state, training, parts, predict)

        keys = jax.random.split(key_fit, num_members)
        nets, opt_states = jax.vmap(fit_member)(keys, state.net, priors, perturbations, state.opt_state)
        return NeuralState(nets, opt_states, memory, (priors, perturbations))

    return Algorithm(init, choose, learn)


def neural_langevin(
    model: Model,
    step_size: Scalar = 1e-3,
    temperature: Scalar = 1e-5,
    feel_good: FeelGood | None = None,
    *,
    sampler: str = "langevin",
    training: Training = TRAINING,
    common_context: bool | None = None,
) -> Algorithm:
    r"""Neural LMC-TS: Langevin steps on minibatches, with the feel-good term over the minibatch's contexts.

        Û(θ) = 1/B Σ_b [(f_θ(x_b, a_b) − r_b)² − λ min(b, max_a f_θ(x_b, a))] + ρ/(2t)·‖θ‖²

    Û is an unbiased estimate of the mean potential U/t of all rewards kept, the feel-good sum included. The temperature
    of the mean potential is 1/β.

    Args:
      model: shape of the features.
      step_size: τ.
      temperature: 1/β of the mean potential.
      feel_good: weight λ, bound and smoothness; its reservoir is not used.
      sampler: "langevin", "adam_langevin" or "underdamped" (BAOAB splitting with friction 0.1/τ).
      training: width, depth, steps a round, minibatch and replay; its step size is not used.
      common_context: whether all arms see the same features; by default if arms have parameters of their own.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> training = bandits.Training(width=8, num_steps=500)
      >>> algorithm, key = neural_langevin(model, step_size=1e-2, training=training), jax.random.key(0)
      >>> learn, state = jax.jit(algorithm.learn), algorithm.init(key)
      >>> for action, reward in ((0, -1.0), (1, 1.0)):
      ...     state = learn(key, state, context, action, reward)
      >>> int(jax.jit(algorithm.choose)(key, state, context)[0])  # the arm that paid more
      1

    References:
      Xu, Zheng, Mazumdar, Azizzadenesheli and Anandkumar (2022), "Langevin Monte Carlo for contextual bandits".
    """
    check_choice("sampler", sampler, ("langevin", "adam_langevin", "underdamped"))
    parts = parts_of(model, training, common_context)
    beta = 1 / temperature
    made = {
        "langevin": lambda: samplers.langevin(step_size, beta),
        "adam_langevin": lambda: samplers.adam_langevin(step_size, beta),
        "underdamped": lambda: samplers.underdamped_splitting(step_size, 0.1 / step_size, beta),
    }[sampler]()

    def potential(net: Any, batch: tuple[Array, Array, Array], num_seen: Array) -> Array:
        features, actions, rewards = batch
        ridge = training.prior_precision / jnp.maximum(num_seen, 1) / 2 * optax.tree.norm(net, squared=True)
        if feel_good is None:
            return jnp.mean((apply_net(net, played(model, features, actions)) - rewards) ** 2) + ridge
        values = arm_values(model, net, features)
        errors = jnp.take_along_axis(values, actions[:, None], 1)[:, 0] - rewards
        credit, _ = credit_and_slope(feel_good, jnp.max(values, -1))
        return jnp.mean(errors**2) + ridge - weight_at(feel_good, num_seen) * jnp.mean(credit)

    def init(key: PRNGKey) -> tuple[SamplerState, Memory]:
        return made.init(init_net(key, parts.sizes)), parts.no_memory()

    def choose(key: PRNGKey, state: tuple[SamplerState, Memory], context: Context):
        chain, memory = state

        def step(chain, inputs):
            key, batch = inputs
            moved = made.step(key, chain, lambda net: potential(net, batch, memory.num_seen))[0]
            return jax.tree.map(lambda new, old: jnp.where(memory.num_seen > 0, new, old), moved, chain), None

        keys = jax.vmap(jax.random.split)(jax.random.split(key, training.num_steps))
        batches = jax.vmap(parts.draw, (0, None))(keys[:, 0], memory)
        chain = jax.lax.scan(step, chain, (keys[:, 1], batches))[0]
        return best_arm(arm_values(model, chain.params, context.features), context), (chain, memory)

    def learn(key: PRNGKey, state, context: Context, action: Array, reward: Array):
        del key
        return state[0], parts.keep(state[1], context, action, reward)

    return Algorithm(init, choose, learn)
