"""The proximal sampler: Gibbs sampling on a smoothed copy of the target, each half drawn exactly."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from feelgood import noise
from feelgood.checks import check_count, check_positive
from feelgood.samplers.base import Info, Sampler, SamplerState, info, initial_state, is_finite, like, widen
from feelgood.samplers.schedules import StepSize, schedulable
from feelgood.typing import Normal, Params, Potential, PRNGKey, Scalar


@schedulable
def proximal(
    step_size: StepSize,
    inverse_temperature: Scalar = 1.0,
    *,
    num_minimisation_steps: int | float = 2,
    max_rejections: int | float = 1000,
    normal: Normal = noise.normal,
) -> Sampler:
    r"""Alternates y | w ~ N(w, τI) and w | y ∝ exp(−βU(w) − ‖w − y‖²/(2τ)).

    The second draw, the restricted Gaussian oracle, is by minimisation and rejection. Write V = βU and let ŵ be near
    the minimiser of V(w) + ‖w − y‖²/(2τ), found from the current w by steps ŵ ← ŵ − s (ŵ − y + τ∇V(ŵ)), s = 1 halved
    where it overshoots. Then

        propose w ~ N(y − τ∇V(ŵ), τI),    accept with exp(−D),    D = V(w) − V(ŵ) − ⟨∇V(ŵ), w − ŵ⟩ ≥ 0.

    D is the Bregman divergence of V, non-negative for convex U. So the draw is exact for every convex U, every τ and
    *every* ŵ. The quality of ŵ affects only the rejection rate. If V is M-smooth, τ = 1/(M d) keeps the expected number
    of rejections below one. If U is not convex, D < 0 counts as 0 and the sampler is approximate.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      inverse_temperature: β > 0, finite.
      num_minimisation_steps: steps towards ŵ, one gradient each.
      max_rejections: cap of rejected proposals. The step that reaches it keeps the current w and is then not exact; its
        record has `gave_up` set and acceptance 0. For convex U and a τ near 1/(M d) this does not happen; for others
        the cap keeps the loop from running forever.
      normal: the generator of standard normals.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> potential = lambda w: jnp.sum(jnp.cosh(w))
      >>> draws, info = samplers.sample(jax.random.key(0), samplers.proximal(0.3), potential, jnp.zeros(2), 1000)
      >>> draws.shape, bool(info.gave_up.any())
      ((1000, 2), False)

    References:
      Lee, Shen and Tian (2021), "Structured logconcave sampling with a restricted Gaussian oracle".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature)
    num_approaches = check_count("num_minimisation_steps", num_minimisation_steps)
    check_count("max_rejections", max_rejections)

    def step(key: PRNGKey, state: SamplerState, potential: Potential) -> tuple[SamplerState, Info]:
        key_y, key_oracle = jax.random.split(key)
        current = widen(state.params)
        spread = jnp.sqrt(jnp.asarray(step_size))

        def gaussian(key, mean):
            xi = noise.normal_like(key, current, normal)
            return jax.tree.map(lambda m, x: (m + spread * x).astype(x.dtype), mean, xi)

        y = gaussian(key_y, current)
        value_here, minimiser, value, gradient = _minimise(
            potential, current, y, step_size, inverse_temperature, num_approaches
        )
        centre = jax.tree.map(lambda y, g: (y - step_size * inverse_temperature * g).astype(y.dtype), y, gradient)

        def propose(carry):
            key, _, _, _, rejections = carry
            key, key_proposal, key_accept = jax.random.split(key, 3)
            proposal = gaussian(key_proposal, centre)
            linear = optax.tree.vdot(gradient, optax.tree.sub(proposal, minimiser))
            divergence = inverse_temperature * (potential(proposal) - value - linear)
            probability = jnp.where(jnp.isnan(divergence), 0.0, jnp.exp(-jnp.maximum(divergence, 0.0)))
            probability = probability.astype(jnp.float32)
            accepted = jax.random.uniform(key_accept) < probability
            return key, proposal, probability, accepted, rejections + 1 - accepted.astype(jnp.int32)

        def unfinished(carry):
            _, _, _, accepted, rejections = carry
            return ~accepted & (rejections < max_rejections)

        start = (key_oracle, current, jnp.zeros((), jnp.float32), jnp.zeros((), bool), jnp.zeros((), jnp.int32))
        _, proposal, probability, accepted, rejections = jax.lax.while_loop(unfinished, propose, start)
        params = optax.tree.where(accepted, like(proposal, state.params), state.params)
        return SamplerState(params), info(
            value_here,
            acceptance=jnp.where(accepted, probability, 0.0),
            num_gradients=num_approaches + 1,
            num_rejections=rejections,
            diverged=~is_finite(params),
            gave_up=~accepted,
        )

    return Sampler(initial_state, step)


def _minimise(
    potential: Potential, start: Params, y: Params, step_size: Scalar, inverse_temperature: Scalar, num_steps: int
) -> tuple[Any, Params, Any, Params]:
    """U at the start; then a point near the minimiser of βU(w) + ‖w − y‖²/(2τ), with U and its gradient there."""
    value_and_gradient = jax.value_and_grad(potential)

    def smooth(point, value):
        distance = optax.tree.norm(optax.tree.sub(point, y), squared=True)
        return inverse_temperature * value + distance / (2 * step_size)

    def approach(carry, _):
        """One damped step towards the minimiser; where it leads uphill, stay and halve the step instead."""
        *here, damping = carry
        point, _, gradient, smoothed = here
        move = lambda w, y, g: (w - damping * (w - y + step_size * inverse_temperature * g)).astype(w.dtype)
        candidate = jax.tree.map(move, point, y, gradient)
        value_there, gradient_there = value_and_gradient(candidate)
        smoothed_there = smooth(candidate, value_there)
        downhill = smoothed_there <= smoothed
        there = [candidate, value_there, gradient_there, smoothed_there]
        return (*optax.tree.where(downhill, there, here), jnp.where(downhill, damping, damping / 2)), None

    value, gradient = value_and_gradient(start)
    smoothed = smooth(start, value)
    carry = (start, value, gradient, smoothed, jnp.ones((), smoothed.dtype))
    (point, value_there, gradient_there, *_), _ = jax.lax.scan(approach, carry, length=num_steps)
    return value, point, value_there, gradient_there
