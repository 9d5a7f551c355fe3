"""Noise that fits the adaptive bias: against its equation, and against the law that it keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import noise, samplers
from feelgood.samplers import diagnostics

CURVATURES, BETA = np.array([0.3, 1.0, 4.0]), 2.0
NUM_CHAINS = 4096


def potential(w):
    return jnp.sum(jnp.asarray(CURVATURES, jnp.float32) * w**2) / 2


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("epsilon_in_root", [True, False])
@pytest.mark.parametrize("noise_in", [None, "momentum", "params"])
def test_each_scheme_multiplies_its_noise_by_the_root_of_its_preconditioner(noise_in, epsilon_in_root, corrected):
    step, friction, a, settings = 0.05, 1.3, 0.7, {"epsilon_in_root": epsilon_in_root, "corrected": corrected}
    if noise_in is None:
        friction, sampler = 1.0, samplers.adam_langevin(step, BETA, bias_factor=a, matched_noise=True, **settings)
    else:
        sampler = samplers.adaptive_underdamped(
            step, friction, BETA, bias_factor=a, matched_noise=True, noise_in=noise_in, **settings
        )
    start = jnp.array([1.0, -2.0, 0.5])
    run = jax.jit(lambda key: samplers.sample(key, sampler, potential, start, 25)[0][-1])

    w, p, m, v = np.array(start, np.float64), np.zeros(3), np.zeros(3), np.zeros(3)
    for t, key in enumerate(jax.random.split(jax.random.key(0), (25, 1))[:, 0], start=1):
        g = CURVATURES * w
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2  # the defaults
        m_hat, v_hat = (m / (1 - 0.9**t), v / (1 - 0.99**t)) if corrected else (m, v)
        root = np.sqrt(v_hat + 1e-8) if epsilon_in_root else np.sqrt(v_hat) + 1e-8
        scaled = np.sqrt(2 * friction * step / BETA * (1 + a / root)) * np.asarray(noise.normal(key, (3,)), np.float64)
        drift = g + a * m_hat / root
        if noise_in is None:
            w = w - step * drift + scaled
        else:
            p = (1 - friction * step) * p - step * drift + (scaled if noise_in == "momentum" else 0)
            w = w + step * p + (scaled if noise_in == "params" else 0)
    np.testing.assert_allclose(run(jax.random.key(0)), w, rtol=1e-4, atol=1e-5)


def preconditioner(a):
    """D at the target's mean square of the gradient, p/β."""
    return 1 + a / np.sqrt(CURVATURES / BETA)


def variances(make, momentum_variance, num_steps):
    """Variances after steps from exact draws of the target, with v at its mean."""
    sampler = make(first_decay=0.0, second_decay=0.999)
    square = jnp.asarray(CURVATURES / BETA, jnp.float32)

    def chain(key):
        key_start, key_momentum, key_chain = jax.random.split(key, 3)
        start = jax.random.normal(key_start, (3,)) / jnp.sqrt(BETA * jnp.asarray(CURVATURES, jnp.float32))
        state = sampler.init(start)
        if momentum_variance is None:
            memory = state.memory._replace(second_moment=square)
        else:
            momentum = jnp.sqrt(jnp.asarray(momentum_variance, jnp.float32)) * jax.random.normal(key_momentum, (3,))
            memory = state.memory._replace(momentum=momentum, bias=state.memory.bias._replace(second_moment=square))
        step = lambda state, key: (sampler.step(key, state, potential)[0], None)
        state, _ = jax.lax.scan(step, state._replace(memory=memory), jax.random.split(key_chain, num_steps))
        return state.params

    return np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), NUM_CHAINS))).var(0)


def test_matched_noise_keeps_the_target_and_unmatched_noise_does_not():
    step, a = 0.01, 1.0
    make = lambda matched: (
        lambda **decays: samplers.adam_langevin(step, BETA, bias_factor=a, matched_noise=matched, **decays)
    )
    # LMC with the step τD of each coordinate; the slowest of them forgets its start in a hundred steps.
    expected = 1 / (BETA * CURVATURES * (1 - step * preconditioner(a) * CURVATURES / 2))
    error = 4 * np.sqrt(2 / NUM_CHAINS)
    np.testing.assert_allclose(variances(make(True), None, 500), expected, rtol=error)
    # Without it the law is that of the drift D ⊙ ∇U: narrower by D.
    assert (variances(make(False), None, 500) < 0.8 * expected).all()


def test_matched_noise_makes_the_preconditioner_the_inverse_of_a_mass():
    step, friction, a = 0.05, 2.0, 1.0
    scale = preconditioner(a)
    make = lambda matched: (
        lambda **decays: samplers.adaptive_underdamped(
            step, friction, BETA, bias_factor=a, matched_noise=matched, **decays
        )
    )
    # In the coordinates w/√D it is the scheme without a bias, on the curvatures pD.
    kernel = diagnostics.adaptive_underdamped_kernel(step, friction, BETA, noise_in="momentum")
    law = diagnostics.stationary_law(kernel, jnp.zeros(3), jnp.diag(jnp.asarray(scale * CURVATURES, jnp.float32)))
    expected = scale * np.diag(law[1])
    error = 4 * np.sqrt(2 / NUM_CHAINS)
    np.testing.assert_allclose(variances(make(True), scale / BETA, 500), expected, rtol=error)
    assert (variances(make(False), scale / BETA, 500) < 0.8 * expected).all()


def test_the_noise_of_a_parameter_falls_with_its_visits():
    """Cells of a table; each step visits each cell by chance, and a visit has a gradient of 1."""
    step, beta, num_draws = 0.01, 1e6, 2000
    transform = samplers.to_optax(samplers.adam_langevin(step, beta, matched_noise=True, corrected=True))
    shares, cells = jnp.array([0.0, 0.01, 0.1, 1.0]), jnp.zeros(4)

    def visit(state, key):
        key_visit, key_noise = jax.random.split(key)
        gradient = jnp.where(jax.random.uniform(key_visit, (4,)) < shares, 1.0, 0.0)
        return transform.update(gradient, state, cells, key=key_noise)[1], None

    keys = jax.random.split(jax.random.key(0), 4000)
    state, _ = jax.jit(lambda: jax.lax.scan(visit, transform.init(cells), keys))()
    move = jax.vmap(lambda key: transform.update(cells, state, cells, key=key)[0])
    spread = np.asarray(jax.jit(move)(jax.random.split(jax.random.key(1), num_draws))).std(0)
    # √(1 + 1/√(v + ε)): v = 0 and ε = 1e-8 in the cell without visits, v = 0.99 in the one that is always visited.
    assert spread[[0, 3]] == pytest.approx(
        np.sqrt(2 * step / beta * np.array([1 + 1e4, 2.005])), rel=4 / np.sqrt(2 * num_draws)
    )
    assert (np.diff(spread) < 0).all()


@pytest.mark.parametrize("factory", [samplers.adam_langevin, samplers.adaptive_underdamped])
def test_a_negative_bias_cannot_be_matched(factory):
    with pytest.raises(ValueError, match=r"bias_factor with matched_noise must be non-negative and finite, got -0\.5"):
        factory(0.1, bias_factor=-0.5, matched_noise=True)
