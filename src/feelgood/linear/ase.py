"""Algorithm 1: least-squares value iteration with approximate sampling exploration (LSVI-ASE)."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from feelgood.checks import check_count, check_non_negative, check_positive
from feelgood.linear.learning import Data, Learner, Plan, clip_values, moments
from feelgood.linear.schemes import Scheme, Stage
from feelgood.samplers import Sampler, SamplerState
from feelgood.typing import Array, Params, Potential, PRNGKey, Scalar

__all__ = ["SamplingFacts", "ValueFunction", "lsvi_ase", "lsvi_ase_general"]


class SamplingFacts(NamedTuple):
    """What sampling an episode's values took.

    Attributes:
      num_gradients: of all stages together.
      acceptance: mean over stages of the last proposal's.
      measured: what `measure` returned, stacked over stages; empty without it.
    """

    num_gradients: Array
    acceptance: Array
    measured: Any = ()


def lsvi_ase(
    features: Array,
    horizon: int,
    scheme: Scheme,
    *,
    num_updates: int,
    loss_weight: Scalar,
    feel_good_weight: Scalar = 0.0,
    prior_variance: Scalar | None = None,
    inverse_temperature: Scalar = 1.0,
    measure: Callable[[Stage, Array, int], Any] | None = None,
) -> Learner:
    r"""LSVI-ASE with linear Q, the paper's Algorithm 1.

    In each episode, backward over the stages h = H−1 … 0, J steps of a sampler move w_h, from where it was in the last
    episode, through

        q_h(w) ∝ exp(−β [‖w‖²/(2σ²) + η Σ (r + max_a Q_{h+1}(s', a) − ⟨w, φ⟩)² − λ 1{h = 0} max_a ⟨w, φ(s₁, a)⟩]),

    then Q_h = ⟨w_h, φ⟩ truncated to [0, H − h]. Momentum starts from zero in every episode.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      scheme: how to sample a stage; see `feelgood.linear.schemes`.
      num_updates: J, sampler steps per stage and episode.
      loss_weight: η > 0; the paper's theory has 2/(5H²).
      feel_good_weight: λ ≥ 0.
      prior_variance: σ² > 0; √d·H, as in the paper, if not given.
      inverse_temperature: β > 0, of the whole posterior; 1 in the paper's theory.
      measure: `(stage, start, num_updates) -> facts`, called for each stage before it is sampled from `start`.
    """
    check_count("num_updates", num_updates)
    check_count("horizon", horizon)
    check_positive("loss_weight", loss_weight)
    check_non_negative("feel_good_weight", feel_good_weight)
    check_positive("inverse_temperature", inverse_temperature)
    d = features.shape[-1]
    prior_variance = math.sqrt(d) * horizon if prior_variance is None else prior_variance
    check_positive("prior_variance", prior_variance)
    beta = inverse_temperature
    scale, ridge = 2 * loss_weight * beta, beta / prior_variance

    def stage_posterior(data: Data, h, value: Array, first_state: Array, weight) -> Stage:
        precision = scale * data.gram[h] + ridge * jnp.eye(d, dtype=features.dtype)
        linear = scale * moments(data, h, value)
        mean = jax.scipy.linalg.solve(precision, linear, assume_a="pos")
        return Stage(precision, linear, mean, features[first_state], weight)

    def sample(key: PRNGKey, stage: Stage, start: Array) -> tuple[Array, SamplingFacts]:
        w, num_gradients, acceptance = _run(key, scheme.sampler(stage), stage.potential, start, num_updates)
        measured = () if measure is None else measure(stage, start, num_updates)
        return w, SamplingFacts(num_gradients, acceptance, measured)

    def values_of(w: Array, h) -> Array:
        return clip_values(features @ w, horizon - h)

    def plan(key: PRNGKey, state: Array, data: Data, first_state: Array) -> Plan:
        keys = jax.random.split(key, horizon)

        def back(value: Array, inputs):
            key, h, start = inputs
            w, facts = sample(key, stage_posterior(data, h, value, first_state, None), start)
            q = values_of(w, h)
            return q.max(-1), (w, q, facts)

        end = jnp.zeros(features.shape[0], features.dtype)
        later = jnp.arange(1, horizon)
        value, (ws, qs, facts) = jax.lax.scan(back, end, (keys[1:], later, state[1:]), reverse=True)
        first_stage = stage_posterior(data, 0, value, first_state, beta * feel_good_weight)
        w, first_facts = sample(keys[0], first_stage, state[0])
        facts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_facts, facts)
        facts = SamplingFacts(facts.num_gradients.sum(), facts.acceptance.mean(), facts.measured)
        ws, qs = jnp.concatenate([w[None], ws]), jnp.concatenate([values_of(w, 0)[None], qs])
        return Plan(ws, qs, facts)

    def check(num_episodes: int) -> None:
        with jax.ensure_compile_time_eval():  # a run may be checked while it is traced
            largest = scale * num_episodes * jnp.max(jnp.sum(features**2, -1)) + ridge
            if not isinstance(largest, jax.core.Tracer):
                scheme.check(float(largest))

    return Learner(lambda: jnp.zeros((horizon, d), features.dtype), plan, check)


def _run(
    key: PRNGKey, sampler: Sampler, potential: Potential, start: Params, num_updates: int
) -> tuple[Params, Array, Array]:
    """`num_updates` steps; returns where they end, the gradients they took, and the last acceptance."""

    def advance(state: SamplerState, key: PRNGKey):
        state, info = sampler.step(key, state, potential)
        return state, (info.num_gradients, info.acceptance)

    state, (gradients, acceptance) = jax.lax.scan(advance, sampler.init(start), jax.random.split(key, num_updates))
    return state.params, gradients.sum(), acceptance[-1]


class ValueFunction(NamedTuple):
    """A differentiable Q(w; φ).

    Attributes:
      init: `() -> params` at which every stage starts.
      apply: `(params, features) -> value` for one feature vector.
    """

    init: Callable[[], Params]
    apply: Callable[[Params, Array], Array]


def lsvi_ase_general(
    features: Array,
    horizon: int,
    value_function: ValueFunction,
    sampler: Sampler,
    *,
    num_updates: int,
    loss_weight: Scalar,
    feel_good_weight: Scalar = 0.0,
    prior_variance: Scalar = 1.0,
) -> Learner:
    r"""Algorithm 1 with any differentiable Q(w; φ): the same loss, no closed forms.

    Each transition seen often counts as often; as states are finite, the cost of an episode does not grow.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      value_function: Q.
      sampler: any of this package, its step size as it is.
      num_updates: J, sampler steps per stage and episode.
      loss_weight: η > 0.
      feel_good_weight: λ ≥ 0.
      prior_variance: σ² > 0 of every parameter.
    """
    check_count("num_updates", num_updates)
    check_count("horizon", horizon)
    check_positive("loss_weight", loss_weight)
    check_non_negative("feel_good_weight", feel_good_weight)
    check_positive("prior_variance", prior_variance)
    evaluate = jax.vmap(jax.vmap(value_function.apply, (None, 0)), (None, 0))

    def plan(key: PRNGKey, state: Params, data: Data, first_state: Array) -> Plan:
        keys = jax.random.split(key, horizon)
        counts = data.visits.sum(-1)

        def back(value: Array, inputs):
            key, h, start, weight = inputs

            def potential(params: Params) -> Array:
                # Σ (y − Q)² over the data of (s, a) is n Q² − 2 Q Σ y plus what does not depend on Q.
                q = evaluate(params, features)
                targets = data.rewards[h] + data.visits[h] @ value
                loss = jnp.sum(counts[h] * q**2 - 2 * q * targets)
                prior = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)) / (2 * prior_variance)
                return loss_weight * loss + prior - weight * jnp.max(q[first_state])

            params, num_gradients, acceptance = _run(key, sampler, potential, start, num_updates)
            q = clip_values(evaluate(params, features), horizon - h)
            return q.max(-1), (params, q, SamplingFacts(num_gradients, acceptance))

        weights = jnp.zeros(horizon, features.dtype).at[0].set(feel_good_weight)
        end = jnp.zeros(features.shape[0], features.dtype)
        _, (params, q, facts) = jax.lax.scan(back, end, (keys, jnp.arange(horizon), state, weights), reverse=True)
        return Plan(params, q, SamplingFacts(facts.num_gradients.sum(), facts.acceptance.mean()))

    def init() -> Params:
        one = value_function.init()
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (horizon, *jnp.shape(leaf))), one)

    return Learner(init, plan)
