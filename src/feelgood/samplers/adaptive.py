"""The adaptive bias, and the samplers with it in their drift: those of FG-ULMCDQN, ULMCDQN and Adam LMCDQN.

The bias a · m ⊘ √(v + ε) is added to the gradient; m and v are moving averages of the gradient and of its square.

Matched noise. Where m is close to the gradient, the drift is D ⊙ ∇U with D = 1 + a ⊘ √(v + ε), so the bias is a
preconditioner. The samplers' noise has the same size for all parameters, which does not fit this drift. With
`matched_noise` it is multiplied by √D. If v is constant and α₁ = 0, the chain then keeps exp(−β·U) to first order in τ;
with a momentum P, D is the inverse of a mass, and P has the law N(0, D/β). The noise depends on past gradients. A
parameter without a gradient so far, such as the value of a cell that was never visited, has v = 0 and noise
√(1 + a/√ε) times as large (√(1 + a/ε) if ε is outside the root).
"""

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from feelgood import noise
from feelgood.checks import check_choice, check_finite, check_fraction, check_non_negative, check_positive
from feelgood.samplers.base import Sampler, first_order, like, widen
from feelgood.samplers.langevin import thermal_noise
from feelgood.samplers.schedules import StepSize, schedulable
from feelgood.samplers.underdamped import check_scales
from feelgood.typing import Array, Normal, Params, PRNGKey, Scalar


class AdaptiveBiasState(NamedTuple):
    """Moving averages m of the gradient and v of its square, and the number of updates if they are corrected."""

    first_moment: Params
    second_moment: Params
    count: Any = ()


def adaptive_bias(
    bias_factor: Scalar,
    *,
    first_decay: Scalar = 0.9,
    second_decay: Scalar = 0.99,
    epsilon: Scalar = 1e-8,
    epsilon_in_root: bool = True,
    corrected: bool = False,
    bound: Scalar = math.inf,
) -> optax.GradientTransformation:
    r"""Adds the adaptive bias to a gradient, as an Optax transformation.

        m ← α₁ m + (1 − α₁) g
        v ← α₂ v + (1 − α₂) g ⊙ g
        g ↦ g + a · m ⊘ √(v + ε)

    With a ≠ 0 the drift is no longer a gradient, so a sampler that uses it does *not* keep
    exp(−β·U) stationary; the bias trades the law for speed on badly scaled losses.

    Args:
      bias_factor: a, any finite number; 0 leaves the gradient unchanged.
      first_decay: α₁ in [0, 1).
      second_decay: α₂ in [0, 1). The paper uses 0.99, its released code 0.999.
      epsilon: ε > 0. Gradients well above it, or above √ε if it is under the root, move parameters by a, independently
        of their size; gradients well below it move them in proportion. If it is much smaller than the gradients, the
        bias has full size even where gradients are pure noise, and convolutional features can die of it
        (docs/atari-settings.md).
      epsilon_in_root: True for √(v + ε) as in the paper, False for √v + ε as in its released code. Both have
        ε = 1e-8, which stands for gradients of 1e-4 in the one and of 1e-8 in the other.
      corrected: whether m and v are divided by 1 − α₁ᵗ and 1 − α₂ᵗ after t updates, as in Adam. In the paper and its
        code they are not: as v starts from 0 and grows slowly, the first steps are too large, by a factor of
        (1 − α₁ᵗ)/√(1 − α₂ᵗ), which for α₂ = 0.999 is at most 6.6 and still 2.2 after 230 updates.
      bound: c > 0. The biased gradient of an array is scaled down to a root mean square of c·|a| if it has a larger
        one. A gradient that suddenly grows is up to 1/√(1 − α₂) times as large as √v, and a squared error has no
        bound at all; with c = 1, as in Adafactor's clipping of updates, such a step is no longer than the others.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import samplers
      >>> bias = samplers.adaptive_bias(0.5, corrected=True)
      >>> gradient = jnp.array([0.1, -10.0])
      >>> biased, state = bias.update(gradient, bias.init(gradient))
      >>> (biased - gradient).round(2).tolist()  # a·sign of the gradient, whatever its size
      [0.5, -0.5]
    """
    check_finite("bias_factor", bias_factor)
    check_fraction("first_decay", first_decay)
    check_fraction("second_decay", second_decay)
    check_positive("epsilon", epsilon)
    check_positive("bound", bound, infinite=True)
    is_bounded = not (isinstance(bound, float) and math.isinf(bound))

    def shorten(direction: Array) -> Array:
        if not is_bounded:
            return direction
        longest, length = bound * jnp.abs(bias_factor), jnp.sqrt(jnp.mean(direction**2))
        return direction * jnp.where(length > longest, longest / length, 1.0)

    def init(params: Params) -> AdaptiveBiasState:
        zeros = jax.tree.map(jnp.zeros_like, widen(params))
        return AdaptiveBiasState(zeros, zeros, jnp.zeros((), jnp.int32) if corrected else ())

    def update(gradient, state: AdaptiveBiasState, params=None):
        del params
        given, gradient = gradient, widen(gradient)
        m = optax.tree.update_moment(gradient, state.first_moment, first_decay, 1)
        v = optax.tree.update_moment(gradient, state.second_moment, second_decay, 2)
        count, whole_m, whole_v = state.count, 1.0, 1.0
        if corrected:
            count = optax.safe_increment(count)
            whole_m, whole_v = 1 - jnp.asarray(first_decay) ** count, 1 - jnp.asarray(second_decay) ** count
        root = lambda v: _root(v / whole_v, epsilon, epsilon_in_root)
        towards = lambda g, m, v: shorten(g + bias_factor * (m / whole_m) / root(v))
        return like(jax.tree.map(towards, gradient, m, v), given), AdaptiveBiasState(m, v, count)

    return optax.GradientTransformation(init, update)


def _root(v: Array, epsilon: Scalar, epsilon_in_root: bool) -> Array:
    """The denominator of the bias."""
    return jnp.sqrt(v + epsilon) if epsilon_in_root else jnp.sqrt(v) + epsilon


def _matched(
    noise: Params,
    state: AdaptiveBiasState,
    bias_factor: Scalar,
    *,
    second_decay: Scalar = 0.99,
    epsilon: Scalar = 1e-8,
    epsilon_in_root: bool = True,
    corrected: bool = False,
    **_: Any,
) -> Params:
    """Multiplies noise by √D of the drift with the bias in `state`; the settings are those of `adaptive_bias`."""
    whole = 1 - jnp.asarray(second_decay) ** state.count if corrected else 1.0
    match = lambda xi, v: xi * jnp.sqrt(1 + bias_factor / _root(v / whole, epsilon, epsilon_in_root))
    return jax.tree.map(match, noise, state.second_moment)


def _driven(bias_factor: Scalar, inverse_temperature: Scalar, matched_noise: bool, normal: Normal, settings: dict):
    """`init(params) -> bias` and `drive(key, gradient, bias, params) -> (biased gradient, ξ/√β, new bias)`."""
    bias = adaptive_bias(bias_factor, **settings)
    if matched_noise:
        check_non_negative("bias_factor with matched_noise", bias_factor)

    def drive(key: PRNGKey, gradient: Params, state: AdaptiveBiasState, params: Params):
        direction, state = bias.update(gradient, state)
        xi = thermal_noise(key, params, inverse_temperature, normal)
        return direction, _matched(xi, state, bias_factor, **settings) if matched_noise else xi, state

    return bias.init, drive


@schedulable
def adam_langevin(
    step_size: StepSize,
    inverse_temperature: Scalar = 1.0,
    *,
    bias_factor: Scalar = 1.0,
    matched_noise: bool = False,
    normal: Normal = noise.normal,
    **settings: Any,
) -> Sampler:
    r"""Adam-LMC: Langevin Monte Carlo with the adaptive bias in its drift.

        w ← w − τ (∇U(w) + a · m ⊘ √(v + ε)) + √(2τ/β) ξ

    m and v are the moving averages of `adaptive_bias`, which also describes the effect of the bias on the stationary
    law.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      inverse_temperature: β > 0; infinity leaves out the noise.
      bias_factor: a, any finite number.
      matched_noise: whether the noise is multiplied by √(1 + a ⊘ √(v + ε)), so that it fits the drift; then a ≥ 0.
      normal: the generator of standard normals.
      **settings: the other arguments of `adaptive_bias`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.adam_langevin(0.1, inverse_temperature=jnp.inf, bias_factor=0.5, corrected=True)
      >>> step = jax.jit(sampler.step, static_argnums=2)
      >>> state, info = step(jax.random.key(0), sampler.init(jnp.ones(1)), lambda w: w[0] ** 2 / 2)
      >>> round(float(state.params[0]), 4)  # 1 - 0.1 · (1 + 0.5 · 1): the gradient, and the bias of size 0.5
      0.85

    References:
      Ishfaq et al. (2024), "Provable and practical: efficient exploration in RL via Langevin Monte Carlo".
    """
    check_positive("step_size", step_size)
    check_positive("inverse_temperature", inverse_temperature, infinite=True)
    init, drive = _driven(bias_factor, inverse_temperature, matched_noise, normal, settings)

    def update(gradient, state: AdaptiveBiasState, params, *, key: PRNGKey, **_):
        direction, xi, state = drive(key, gradient, state, params)
        noise_scale = jnp.sqrt(2 * jnp.asarray(step_size))
        return jax.tree.map(lambda g, x: -step_size * g + noise_scale * x, direction, xi), state

    return first_order(init, update)


class AdaptiveUnderdampedState(NamedTuple):
    """The momentum P and the moving averages of the gradient."""

    momentum: Params
    bias: AdaptiveBiasState


@schedulable
def adaptive_underdamped(
    step_size: StepSize,
    friction: Scalar = 1.0,
    inverse_temperature: Scalar = 1.0,
    *,
    bias_factor: Scalar = 1.0,
    noise_in: Literal["momentum", "params"] = "momentum",
    matched_noise: bool = False,
    normal: Normal = noise.normal,
    **settings: Any,
) -> Sampler:
    r"""ULMC with the adaptive bias, the sampler of FG-ULMCDQN and ULMCDQN.

        P ← (1 − γτ) P − τ (∇U(w) + a · m ⊘ √(v + ε)) + √(2γτ/β) ξ
        w ← w + τ P

    The new momentum moves w, unlike in `underdamped`; P has the opposite sign to the paper's. The released code adds
    the same noise to w instead of P (`noise_in="params"`), which is another law: on a quadratic of curvature p, with
    a = 0 and small τ, noise in P gives w the target's variance 1/(βp), noise in w gives it (1 + γ²/p)/β,
    almost the same in all directions that are steep, p ≫ γ². With a ≠ 0 neither keeps exp(−β·U), see `adaptive_bias`.

    Args:
      step_size: τ > 0, or a schedule: a function of the number of steps taken.
      friction: γ > 0.
      inverse_temperature: β > 0; infinity leaves out the noise.
      bias_factor: a, any finite number.
      noise_in: "momentum" as in the paper, or "params" as in its released code.
      matched_noise: whether the noise is multiplied by √(1 + a ⊘ √(v + ε)), so that it fits the drift; then a ≥ 0.
      normal: the generator of standard normals.
      **settings: the other arguments of `adaptive_bias`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import samplers
      >>> sampler = samplers.adaptive_underdamped(0.1, friction=2.0, bias_factor=0.3)
      >>> draws, info = samplers.sample(jax.random.key(0), sampler, lambda w: (w**2).sum() / 2, jnp.zeros(3), 1000)
      >>> draws.shape
      (1000, 3)

    References:
      Eq. `aulmc` of the paper.
    """
    check_scales(step_size, friction, inverse_temperature)
    check_choice("noise_in", noise_in, ("momentum", "params"))
    init_bias, drive = _driven(bias_factor, inverse_temperature, matched_noise, normal, settings)

    def init(params: Params) -> AdaptiveUnderdampedState:
        return AdaptiveUnderdampedState(jax.tree.map(jnp.zeros_like, params), init_bias(params))

    def update(gradient, state: AdaptiveUnderdampedState, params, *, key: PRNGKey, **_):
        direction, xi, bias = drive(key, gradient, state.bias, params)
        noise_scale = jnp.sqrt(2 * jnp.asarray(friction) * step_size)
        add_noise = lambda tree: jax.tree.map(lambda leaf, x: leaf + noise_scale * x, tree, xi)
        momentum = jax.tree.map(lambda p, g: (1 - friction * step_size) * p - step_size * g, state.momentum, direction)
        if noise_in == "momentum":
            momentum = add_noise(momentum)
        increment = jax.tree.map(lambda p: step_size * p, momentum)
        if noise_in == "params":
            increment = add_noise(increment)
        return increment, AdaptiveUnderdampedState(momentum, bias)

    return first_order(init, update)
