"""Algorithm 1: least-squares value iteration with approximate sampling exploration (LSVI-ASE)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from feelgood.algebra import solve_positive
from feelgood.checks import check_count, check_kind, check_positive
from feelgood.linear.learning import Data, Learner, Plan, clip_values, moments, no_data, prior_variance_of
from feelgood.linear.schemes import Scheme, Stage
from feelgood.samplers import Sampler, SamplerState
from feelgood.typing import Array, Params, Potential, PRNGKey, Scalar


class SamplingFacts(NamedTuple):
    """Facts about the sampling of an episode's values.

    Attributes:
      num_gradients: gradients of all stages together.
      acceptance: acceptance probability of the last proposal, averaged over stages.
      measured: the results of `measure`, stacked over stages; empty without it.
    """

    num_gradients: Array
    acceptance: Array
    measured: Any = ()


def lsvi_ase(
    features: Array,
    horizon: int,
    scheme: Scheme,
    *,
    num_updates: int | Array,
    loss_weight: Scalar,
    feel_good_weight: Scalar = 0.0,
    prior_variance: Scalar | None = None,
    inverse_temperature: Scalar = 1.0,
    keep_momentum: bool = False,
    measure: Callable[[Stage, Array, int | Array], Any] | None = None,
) -> Learner:
    r"""LSVI-ASE with linear Q, the paper's Algorithm 1.

    In each episode, backward over the stages h = H−1 … 0, J steps of a sampler move w_h, from its value in the last
    episode, through

        q_h(w) ∝ exp(−β [‖w‖²/(2σ²) + η Σ (r + max_a Q_{h+1}(s', a) − ⟨w, φ⟩)² − λ 1{h = 0} max_a ⟨w, φ(s₁, a)⟩]),

    then Q_h = ⟨w_h, φ⟩ truncated to [0, H − h].

    Args:
      features: φ, (S, A, d).
      horizon: H.
      scheme: how to sample a stage; see `feelgood.linear.schemes`.
      num_updates: J, sampler steps per stage and episode; may be traced.
      loss_weight: η > 0; the paper's theory has 2/(5H²).
      feel_good_weight: λ ≥ 0.
      prior_variance: σ² > 0; √d·H, as in the paper, if not given.
      inverse_temperature: β > 0, of the whole posterior; 1 in the paper's theory.
      keep_momentum: whether momentum (all of the sampler's memory) carries over to the next episode as w does. The
        paper keeps w alone, but momentum that is lost every J steps cannot speed up mixing that takes longer.
      measure: `(stage, start, num_updates) -> facts`, called for each stage before it is sampled from `start`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import linear
      >>> features, scheme = jnp.eye(2)[None], linear.schemes.exact()  # one state, two actions
      >>> learner = linear.lsvi_ase(features, 2, scheme, num_updates=1, loss_weight=0.1, feel_good_weight=100.0)
      >>> data = linear.learning.no_data(features, 2)
      >>> plan = jax.jit(learner.plan)(jax.random.key(0), learner.init(), data, jnp.array(0))
      >>> float(plan.values[0, 0].max())  # a strong feel-good term: as much as two stages can pay
      2.0
    """
    check_kind("scheme", scheme, Scheme, "a Scheme such as linear.schemes.baoab(1.0, 0.1)")
    num_updates = check_count("num_updates", num_updates)
    check_positive("inverse_temperature", inverse_temperature)
    features, beta = jnp.asarray(features), inverse_temperature
    d = features.shape[-1]
    prior_variance = prior_variance_of(features, horizon, loss_weight, feel_good_weight, prior_variance)
    if measure is not None and keep_momentum:
        raise ValueError("keep_momentum must be False if a law is measured, as laws start from zero momentum")
    scale, ridge = 2 * loss_weight * beta, beta / prior_variance

    def sample(key: PRNGKey, stage: Stage, start: SamplerState) -> tuple[SamplerState, SamplingFacts]:
        sampler = scheme.sampler(stage)
        begin = start if keep_momentum else sampler.init(start.params)
        end, facts = _run(key, sampler, stage.potential, begin, num_updates)
        measured = () if measure is None else measure(stage, start.params, num_updates)
        return end if keep_momentum else SamplerState(end.params), facts._replace(measured=measured)

    def stage_posterior(data: Data, h, value: Array, first_state: Array, weight) -> Stage:
        precision = scale * data.gram[h] + ridge * jnp.eye(d, dtype=features.dtype)
        mean = solve_positive(precision, scale * moments(data, h, value))
        return Stage(precision, mean, features[first_state], weight)

    def values_of(w: Array, h) -> Array:
        return clip_values(features @ w, horizon - h)

    def plan(key: PRNGKey, state: SamplerState, data: Data, first_state: Array) -> Plan:
        keys = jax.random.split(key, horizon)
        first, later = (jax.tree.map(lambda leaf, part=part: leaf[part], state) for part in (0, slice(1, None)))

        def back(value: Array, inputs):
            key, h, start = inputs
            end, facts = sample(key, stage_posterior(data, h, value, first_state, None), start)
            q = values_of(end.params, h)
            return q.max(-1), (end, q, facts)

        nothing = jnp.zeros(features.shape[0], features.dtype)
        inputs = (keys[1:], jnp.arange(1, horizon), later)
        value, others = jax.lax.scan(back, nothing, inputs, reverse=True)
        end, facts = sample(keys[0], stage_posterior(data, 0, value, first_state, beta * feel_good_weight), first)
        join = lambda one, rest: jnp.concatenate([one[None], rest])
        state, q, facts = jax.tree.map(join, (end, values_of(end.params, 0), facts), others)
        return Plan(state, q, SamplingFacts(facts.num_gradients.sum(), facts.acceptance.mean(), facts.measured))

    def init() -> SamplerState:
        if not keep_momentum:
            return SamplerState(jnp.zeros((horizon, d), features.dtype))
        empty = stage_posterior(no_data(features, horizon), 0, jnp.zeros(features.shape[0]), jnp.int32(0), None)
        return jax.vmap(scheme.sampler(empty).init)(jnp.zeros((horizon, d), features.dtype))

    def check(num_episodes: int) -> None:
        """Raises an error if the step is unstable at the largest curvature that data can have."""
        with jax.ensure_compile_time_eval():  # a run may be checked while it is traced
            largest = scale * num_episodes * jnp.max(jnp.sum(features**2, -1)) + ridge
            if not isinstance(largest, jax.core.Tracer):
                scheme.check(float(largest))

    return Learner(init, plan, check)


def _run(
    key: PRNGKey, sampler: Sampler, potential: Potential, state: SamplerState, num_updates: int | Array
) -> tuple[SamplerState, SamplingFacts]:
    """`num_updates` steps; returns the final state, the gradients they took, and the last acceptance."""

    def advance(j, carry):
        state, facts = carry
        state, info = sampler.step(jax.random.fold_in(key, j), state, potential)
        return state, SamplingFacts(facts.num_gradients + info.num_gradients, info.acceptance)

    nothing = SamplingFacts(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))
    return jax.lax.fori_loop(0, num_updates, advance, (state, nothing))


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
    num_updates: int | Array,
    loss_weight: Scalar,
    feel_good_weight: Scalar = 0.0,
    prior_variance: Scalar | None = None,
) -> Learner:
    r"""Algorithm 1 with any differentiable Q(w; φ): the same loss, no closed forms.

    Each transition counts as often as it was seen; as states are finite, the cost of an episode does not grow.

    Args:
      features: φ, (S, A, d).
      horizon: H.
      value_function: Q.
      sampler: any sampler of this package; its step size is not scaled.
      num_updates: J, sampler steps per stage and episode.
      loss_weight: η > 0.
      feel_good_weight: λ ≥ 0.
      prior_variance: σ² > 0 of every parameter; √d·H if not given, d the number of features. A step that is unstable
        for this loss, whose curvature is unknown, gives a regret of NaN.
    """
    num_updates = check_count("num_updates", num_updates)
    features = jnp.asarray(features)
    prior_variance = prior_variance_of(features, horizon, loss_weight, feel_good_weight, prior_variance)
    evaluate = jax.vmap(jax.vmap(value_function.apply, (None, 0)), (None, 0))

    def plan(key: PRNGKey, state: Params, data: Data, first_state: Array) -> Plan:
        keys = jax.random.split(key, horizon)
        counts = data.visits.sum(-1)

        def back(value: Array, inputs):
            key, h, start, weight = inputs

            def potential(params: Params) -> Array:
                # Σ (y − Q)² over the data of (s, a) is n Q² − 2 Q Σ y plus terms without Q.
                q = evaluate(params, features)
                targets = data.rewards[h] + data.visits[h] @ value
                loss = jnp.sum(counts[h] * q**2 - 2 * q * targets)
                prior = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)) / (2 * prior_variance)
                return loss_weight * loss + prior - weight * jnp.max(q[first_state])

            end, facts = _run(key, sampler, potential, sampler.init(start), num_updates)
            q = clip_values(evaluate(end.params, features), horizon - h)
            return q.max(-1), (end.params, q, facts)

        weights = jnp.zeros(horizon, features.dtype).at[0].set(feel_good_weight)
        end = jnp.zeros(features.shape[0], features.dtype)
        _, (params, q, facts) = jax.lax.scan(back, end, (keys, jnp.arange(horizon), state, weights), reverse=True)
        return Plan(params, q, SamplingFacts(facts.num_gradients.sum(), facts.acceptance.mean()))

    def init() -> Params:
        one = value_function.init()
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (horizon, *jnp.shape(leaf))), one)

    return Learner(init, plan)
