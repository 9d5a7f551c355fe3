"""β = ∞ equals the optimiser; with noise, each scheme equals its equation written out in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from feelgood import noise, samplers

START = jnp.array([1.0, -2.0, 0.5])
COLD = float("inf")


def potential(w):
    return jnp.sum(jnp.array([1.0, 3.0, 10.0]) * w**2) / 2 + jnp.sum(w**4) / 4


def gradient(w):
    return np.array([1.0, 3.0, 10.0]) * w + w**3


def end_of_chain(sampler, num_steps=25):
    return jax.jit(lambda key: samplers.sample(key, sampler, potential, START, num_steps)[0][-1])(jax.random.key(0))


def normals(num_steps):
    keys = jax.random.split(jax.random.key(0), (num_steps, 1))[:, 0]
    return [np.asarray(noise.normal(key, (3,)), np.float64) for key in keys]


@pytest.mark.parametrize("cold", [COLD, np.float32(COLD)], ids=["static", "array"])
@pytest.mark.parametrize(
    ("sampler", "optimiser"),
    [
        (lambda b: samplers.langevin(0.01, b), optax.sgd(0.01)),
        (
            lambda b: samplers.langevin(0.01, b, drift=optax.scale_by_adam()),
            optax.adam(0.01),
        ),
        (
            lambda b: samplers.preconditioned_langevin(0.01, b, decay=0.9, epsilon=1e-3),
            optax.rmsprop(0.01, decay=0.9, eps=1e-3, eps_in_sqrt=False),
        ),
        (lambda b: samplers.preconditioned_adam_langevin(0.01, b), optax.adam(0.01)),
        # Momentum τ·trace: heavy-ball with learning rate τ² and momentum 1 − γτ.
        (
            lambda b: samplers.adaptive_underdamped(0.1, 2.0, b, bias_factor=0.0),
            optax.sgd(0.01, momentum=0.8),
        ),
    ],
    ids=["sgd", "drift", "rmsprop", "adam", "momentum"],
)
def test_without_noise_a_sampler_is_its_optimiser(sampler, optimiser, cold):
    np.testing.assert_allclose(
        end_of_chain(sampler(cold)), end_of_chain(samplers.from_optax(optimiser)), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("epsilon_in_root", [True, False])
def test_adam_langevin_follows_its_equation(epsilon_in_root, corrected):
    step, beta, a, a1, a2, eps = 0.01, 50.0, 0.7, 0.8, 0.95, 1e-2
    w, m, v = np.array(START, np.float64), np.zeros(3), np.zeros(3)
    for t, xi in enumerate(normals(25), start=1):
        g = gradient(w)
        m, v = a1 * m + (1 - a1) * g, a2 * v + (1 - a2) * g**2
        m_hat, v_hat = (m / (1 - a1**t), v / (1 - a2**t)) if corrected else (m, v)
        root = np.sqrt(v_hat + eps) if epsilon_in_root else np.sqrt(v_hat) + eps
        w = w - step * (g + a * m_hat / root) + np.sqrt(2 * step / beta) * xi
    sampler = samplers.adam_langevin(
        step,
        beta,
        bias_factor=a,
        first_decay=a1,
        second_decay=a2,
        epsilon=eps,
        epsilon_in_root=epsilon_in_root,
        corrected=corrected,
    )
    np.testing.assert_allclose(end_of_chain(sampler), w, rtol=1e-5, atol=1e-6)


def test_the_corrected_bias_is_the_step_of_adam():
    ours = samplers.adaptive_bias(0.7, second_decay=0.999, epsilon_in_root=False, corrected=True)
    adam = optax.scale_by_adam(0.9, 0.999, 1e-8)
    ours_state, adam_state = ours.init(START), adam.init(START)
    for t in range(30):
        slope = jax.random.normal(jax.random.key(t), START.shape)
        biased, ours_state = ours.update(slope, ours_state)
        step, adam_state = adam.update(slope, adam_state)
        np.testing.assert_allclose(biased - slope, 0.7 * step, rtol=1e-4, atol=1e-6)


def test_preconditioned_langevin_follows_its_equation():
    step, beta, decay, eps = 0.01, 50.0, 0.9, 0.1
    w, v = np.array(START, np.float64), np.zeros(3)
    for xi in normals(25):
        g = gradient(w)
        v = decay * v + (1 - decay) * g**2
        G = 1 / (np.sqrt(v) + eps)
        w = w - step * G * g + np.sqrt(2 * step * G / beta) * xi
    sampler = samplers.preconditioned_langevin(step, beta, decay=decay, epsilon=eps)
    np.testing.assert_allclose(end_of_chain(sampler), w, rtol=1e-5, atol=1e-6)


def test_preconditioned_adam_langevin_follows_its_equation():
    step, beta, a1, a2, eps = 0.01, 50.0, 0.9, 0.99, 1e-3
    w, m, v = np.array(START, np.float64), np.zeros(3), np.zeros(3)
    for t, xi in enumerate(normals(25), start=1):
        g = gradient(w)
        m, v = a1 * m + (1 - a1) * g, a2 * v + (1 - a2) * g**2
        c1, c2 = 1 - a1**t, 1 - a2**t
        w = w - step * (m / c1) / (np.sqrt(v / c2) + eps)
        w = w + np.sqrt(2 * step * np.sqrt(c2) / (beta * c1)) * xi / np.sqrt(np.sqrt(v) + eps)
    sampler = samplers.preconditioned_adam_langevin(step, beta, first_decay=a1, second_decay=a2, epsilon=eps)
    np.testing.assert_allclose(end_of_chain(sampler), w, rtol=2e-5, atol=1e-6)


def test_a_nearly_constant_preconditioner_keeps_the_target():
    """With λ ≫ √v the preconditioner is 1/λ and pSGLD is LMC with step τ/λ: variance 1/(βp(1 − τp/2λ))."""
    curvature, beta, step, eps = 2.0, 4.0, 20.0, 100.0
    sampler = samplers.preconditioned_langevin(step, beta, decay=0.999, epsilon=eps)
    keys = jax.random.split(jax.random.key(1), 8192)
    run = jax.vmap(lambda k: samplers.sample(k, sampler, lambda w: curvature * w**2 / 2, jnp.zeros(()), 60)[0][-1])
    draws = np.asarray(jax.jit(run)(keys))
    # √v ~ gradient's root mean square ~ √(p/β) ≈ 0.7, a correction of 0.7 %.
    predicted = 1 / (beta * curvature * (1 - step * curvature / (2 * (eps + np.sqrt(curvature / beta)))))
    assert abs(draws.var() / predicted - 1) < 4 * np.sqrt(2 / 8192) + 0.01
