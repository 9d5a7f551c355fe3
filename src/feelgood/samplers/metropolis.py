"""Metropolis-adjusted samplers: exp(−β·U) is exactly stationary, whatever the step.

Both evaluate U and its gradient again at the current point in every step, as the potential may have changed since the
last one; `sample`, whose potential never changes, keeps them instead (`Sampler.fixed`). With another minibatch in each
step the accept test compares noisy values, and "exact" becomes a heuristic.

Parameters in float16 or bfloat16 are widened to float32 for the step, so that U, kinetic energies and norms keep their
digits; the new position is rounded to the parameters' dtype after the accept test.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood import noise
from feelgood.checks import check_count, check_fraction, check_positive
from feelgood.samplers.base import Info, Sampler, SamplerState, info, initial_state, like, widen
from feelgood.samplers.langevin import thermal_noise
from feelgood.samplers.schedules import StepSize, schedulable
from feelgood.typing import Array, Normal, Params, Potential, PRNGKey, Scalar


class _Point(NamedTuple):
    """A position with U and its gradient there."""

    params: Params
    value: Array
    gradient: Params


def _evaluate(potential: Potential, params: Params) -> _Point:
    params = widen(params)
    return _Point(params, *jax.value_and_grad(potential)(params))


def _metropolis(
    propose: Callable[[PRNGKey, PRNGKey, _Point, Potential], tuple[_Point, Array]], num_gradients: int | Array
) -> Sampler:
    """A sampler that accepts a proposal with probability min(1, ratio); one that is not a number is rejected.

    Args:
      propose: `(key_noise, key_step, point, potential) -> (proposal, log of the ratio)`.
      num_gradients: gradients of U that a proposal needs.
    """

    def advance(key: PRNGKey, now: _Point, potential: Potential, num_gradients) -> tuple[_Point, Info]:
        key_noise, key_accept, key_step = jax.random.split(key, 3)
        proposal, log_ratio = propose(key_noise, key_step, now, potential)
        probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accepted = jax.random.uniform(key_accept, dtype=probability.dtype) < probability
        return optax.tree.where(accepted, proposal, now), info(
            now.value,
            acceptance=probability,
            num_gradients=num_gradients,
            num_rejections=1 - accepted.astype(jnp.int32),
            diverged=~(log_ratio > -1000),  # NaN too
        )

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        then, record = advance(key, _evaluate(potential, state.params), potential, num_gradients + 1)
        return SamplerState(like(then.params, state.params)), record

    def fixed(potential: Potential) -> Sampler:
        def init(params: Params) -> SamplerState:
            params = initial_state(params).params
            return SamplerState(params, _evaluate(potential, params))

        def step(key: PRNGKey, state: SamplerState, _: Potential) -> tuple[SamplerState, Info]:
            then, record = advance(key, state.memory, potential, num_gradients)
            return SamplerState(then.params, then), record

        return Sampler(init, step)

    return Sampler(initial_state, step, fixed=fixed)


@schedulable
def mala(step_size: StepSize, inverse_temperature: Scalar = 1.0, *, normal: Normal = noise.normal) -> Sampler:
    r"""Metropolis-adjusted Langevin algorithm.

        w' = w − τ ∇U(w) + √(2τ/β) ξ
        accept with min{1, exp(−β [U(w') − U(w)]) · q(w | w') / q(w' | w)},
        log q(w' | w) = −β ‖w' − w + τ ∇U(w)‖² / (4τ)

    Two gradients a step, or one if the potential is fixed, as in `sample`.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      inverse_temperature: β > 0, finite.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> quartic = lambda w: jnp.sum(w**4) / 4
      >>> draws, info = samplers.sample(jax.random.key(0), samplers.mala(0.3), quartic, jnp.zeros(2), 1000)
      >>> draws.shape, int(info.num_gradients[0])
      ((1000, 2), 1)

    References:
      Roberts and Tweedie (1996), "Exponential convergence of Langevin distributions and their discrete approximations".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature)

    def propose(key_noise: PRNGKey, _: PRNGKey, now: _Point, potential: Potential) -> tuple[_Point, Array]:
        xi = thermal_noise(key_noise, now.params, inverse_temperature, normal)
        noise_scale = jnp.sqrt(2 * jnp.asarray(step_size))
        move = lambda w, g, x: (w - step_size * g + noise_scale * x).astype(w.dtype)
        proposal = _evaluate(potential, jax.tree.map(move, now.params, now.gradient, xi))

        def log_density(to: _Point, since: _Point):
            residual = jax.tree.map(lambda t, s, g: t - s + step_size * g, to.params, since.params, since.gradient)
            return -inverse_temperature * optax.tree.norm(residual, squared=True) / (4 * step_size)

        forwards, backwards = log_density(proposal, now), log_density(now, proposal)
        return proposal, inverse_temperature * (now.value - proposal.value) + backwards - forwards

    return _metropolis(propose, 1)


@schedulable
def hmc(
    step_size: StepSize,
    num_leapfrog_steps: int | float | Array,
    inverse_temperature: Scalar = 1.0,
    *,
    jitter: Scalar = 0.5,
    normal: Normal = noise.normal,
) -> Sampler:
    r"""Hamiltonian Monte Carlo with unit mass and a fresh momentum in every step.

        h = τ (1 − jitter · u),  u ~ Uniform(0, 1);  P ~ N(0, I/β)
        L times:  P ← P − h/2 ∇U(w),  w ← w + hP,  P ← P − h/2 ∇U(w)
        accept with min{1, exp(−β [H(w', P') − H(w, P)])},    H(w, P) = U(w) + ‖P‖²/2

    L + 1 gradients a step, or L if the potential is fixed, as in `sample`. With L = 1, step √(2τ) and no jitter it is
    `mala` with step τ.

    Trajectories of one fixed length resonate: a mode of curvature p with Lτ√p near a multiple of π returns to where it
    started, or to its mirror image, and does not mix, while nearly all proposals are accepted. A random step for each
    trajectory prevents it. As the step does not depend on the position, exp(−β·U) remains exactly stationary; as it is
    never longer than τ, the acceptance does not fall.

    Args:
      step_size: τ > 0 or a schedule, of the longest leapfrog step.
      num_leapfrog_steps: L ≥ 1.
      inverse_temperature: β > 0, finite.
      jitter: in [0, 1); the leapfrog steps of a trajectory are uniform in ((1 − jitter) τ, τ]. 0 gives trajectories of
        fixed length, for problems where no mode can resonate.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler, potential = samplers.hmc(0.5, num_leapfrog_steps=5), lambda w: (w**2).sum() / 2
      >>> draws, info = samplers.sample(jax.random.key(0), sampler, potential, jnp.zeros(3), 1000)
      >>> round(float(draws.var()), 1), int(info.num_gradients[0])
      (1.0, 5)

    References:
      Neal (2011), "MCMC using Hamiltonian dynamics".
    """
    check_positive("step_size", step_size)
    length = check_count("num_leapfrog_steps", num_leapfrog_steps)
    check_positive("inverse_temperature", inverse_temperature)
    check_fraction("jitter", jitter)

    def propose(key_noise: PRNGKey, key_step: PRNGKey, now: _Point, potential: Potential) -> tuple[_Point, Array]:
        momentum = thermal_noise(key_noise, now.params, inverse_temperature, normal)
        momentum = optax.tree.cast_like(momentum, now.params)
        h = step_size * (1 - jitter * jax.random.uniform(key_step))

        def kick(p, g):
            return jax.tree.map(lambda p, g: (p - h / 2 * g).astype(p.dtype), p, g)

        def leapfrog(_, carry):
            point, p = carry
            p = kick(p, point.gradient)
            w = jax.tree.map(lambda w, p: (w + h * p).astype(w.dtype), point.params, p)
            point = _evaluate(potential, w)
            return point, kick(p, point.gradient)

        proposal, final_momentum = jax.lax.fori_loop(0, length, leapfrog, (now, momentum))
        kinetic = optax.tree.norm(momentum, squared=True) / 2
        final_kinetic = optax.tree.norm(final_momentum, squared=True) / 2
        return proposal, inverse_temperature * (now.value + kinetic - proposal.value - final_kinetic)

    return _metropolis(propose, length)
