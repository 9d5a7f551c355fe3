"""Metropolis-adjusted samplers: exp(−β·U) is exactly stationary, whatever the step.

Both evaluate U and its gradient again at the current point in every step, as the potential may have changed since the
last one. With another minibatch in each step the accept test compares noisy values, and "exact" becomes a heuristic.

Parameters in float16 or bfloat16 are widened to float32 for the step, so that U, kinetic energies and norms keep their
digits; the new position is rounded to the parameters' dtype after the accept test.
"""

import jax
import jax.numpy as jnp
import optax

from feelgood import noise
from feelgood.checks import check_count, check_fraction, check_positive
from feelgood.samplers.base import Info, Sampler, SamplerState, info, initial_state, like, widen
from feelgood.samplers.langevin import thermal_noise
from feelgood.samplers.schedules import StepSize, schedulable
from feelgood.typing import Array, Normal, Params, Potential, PRNGKey, Scalar


def _finish(
    key: PRNGKey, state: SamplerState, proposal: Params, log_ratio: Array, value: Array, num_gradients
) -> tuple[SamplerState, Info]:
    """Accepts with probability min(1, exp(log_ratio)); a proposal that is not a number is rejected."""
    probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
    accepted = jax.random.uniform(key, dtype=probability.dtype) < probability
    params = optax.tree.where(accepted, like(proposal, state.params), state.params)
    return SamplerState(params), info(
        value,
        acceptance=probability,
        num_gradients=num_gradients,
        num_rejections=1 - accepted.astype(jnp.int32),
        diverged=~(log_ratio > -1000),  # NaN too
    )


@schedulable
def mala(step_size: StepSize, inverse_temperature: Scalar = 1.0, *, normal: Normal = noise.normal) -> Sampler:
    r"""Metropolis-adjusted Langevin algorithm.

        w' = w − τ ∇U(w) + √(2τ/β) ξ
        accept with min{1, exp(−β [U(w') − U(w)]) · q(w | w') / q(w' | w)},
        log q(w' | w) = −β ‖w' − w + τ ∇U(w)‖² / (4τ)

    Two gradients a step.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      inverse_temperature: β > 0, finite.
      normal: the generator of standard normals.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> quartic = lambda w: jnp.sum(w**4) / 4
      >>> draws, info = samplers.sample(jax.random.key(0), samplers.mala(0.3), quartic, jnp.zeros(2), 1000)
      >>> draws.shape, int(info.num_gradients[0])
      ((1000, 2), 2)

    References:
      Roberts and Tweedie (1996), "Exponential convergence of Langevin distributions and their discrete approximations".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature)

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        key_proposal, key_accept = jax.random.split(key)
        current = widen(state.params)
        value, gradient = jax.value_and_grad(potential)(current)
        xi = thermal_noise(key_proposal, current, inverse_temperature, normal)
        noise_scale = jnp.sqrt(2 * jnp.asarray(step_size))
        proposal = jax.tree.map(
            lambda w, g, x: (w - step_size * g + noise_scale * x).astype(w.dtype), current, gradient, xi
        )
        proposal_value, proposal_gradient = jax.value_and_grad(potential)(proposal)

        def log_density(to, since, gradient):
            residual = jax.tree.map(lambda t, s, g: t - s + step_size * g, to, since, gradient)
            return -inverse_temperature * optax.tree.norm(residual, squared=True) / (4 * step_size)

        log_ratio = (
            inverse_temperature * (value - proposal_value)
            + log_density(current, proposal, proposal_gradient)
            - log_density(proposal, current, gradient)
        )
        return _finish(key_accept, state, proposal, log_ratio, value, 2)

    return Sampler(initial_state, step)


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

    L + 1 gradients a step. With L = 1, step √(2τ) and no jitter it is `mala` with step τ.

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

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> quartic = lambda w: jnp.sum(w**4) / 4
      >>> draws, info = samplers.sample(jax.random.key(0), samplers.hmc(0.5, 4), quartic, jnp.zeros(2), 1000)
      >>> draws.shape, int(info.num_gradients[0])
      ((1000, 2), 5)

    References:
      Neal (2011), "MCMC using Hamiltonian dynamics".
    """
    check_positive("step_size", step_size)
    check_count("num_leapfrog_steps", num_leapfrog_steps)
    check_positive("inverse_temperature", inverse_temperature)
    check_fraction("jitter", jitter)
    if isinstance(num_leapfrog_steps, float):
        num_leapfrog_steps = int(num_leapfrog_steps)

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        key_momentum, key_accept, key_step = jax.random.split(key, 3)
        current = widen(state.params)
        value_and_gradient = jax.value_and_grad(potential)
        value, gradient = value_and_gradient(current)
        momentum = thermal_noise(key_momentum, current, inverse_temperature, normal)
        momentum = optax.tree.cast_like(momentum, current)
        h = step_size * (1 - jitter * jax.random.uniform(key_step))

        def kick(p, g):
            return jax.tree.map(lambda p, g: (p - h / 2 * g).astype(p.dtype), p, g)

        def leapfrog(_, carry):
            w, p, _, g = carry
            p = kick(p, g)
            w = jax.tree.map(lambda w, p: (w + h * p).astype(w.dtype), w, p)
            value, g = value_and_gradient(w)
            return w, kick(p, g), value, g

        proposal, final_momentum, proposal_value, _ = jax.lax.fori_loop(
            0, num_leapfrog_steps, leapfrog, (current, momentum, value, gradient)
        )
        kinetic = optax.tree.norm(momentum, squared=True) / 2
        final_kinetic = optax.tree.norm(final_momentum, squared=True) / 2
        log_ratio = inverse_temperature * (value + kinetic - proposal_value - final_kinetic)
        return _finish(key_accept, state, proposal, log_ratio, value, num_leapfrog_steps + 1)

    return Sampler(initial_state, step)
