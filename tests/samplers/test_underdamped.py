"""Underdamped schemes against their equations, and the closed form against matrix exponentials."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from feelgood import noise, samplers
from feelgood.samplers.underdamped import exact_coefficients

START = jnp.array([1.0, -2.0, 0.5])
STEP, FRICTION, BETA = 0.07, 1.3, 20.0


def potential(w):
    return jnp.sum(jnp.array([1.0, 3.0, 10.0]) * w**2) / 2 + jnp.sum(w**4) / 4


def gradient(w):
    return np.array([1.0, 3.0, 10.0]) * w + w**3


def end_of_chain(sampler, num_steps=25):
    return jax.jit(lambda key: samplers.sample(key, sampler, potential, START, num_steps)[0][-1])(jax.random.key(0))


def normals(num_steps, size=3):
    keys = jax.random.split(jax.random.key(0), (num_steps, 1))[:, 0]
    return [np.asarray(noise.normal(key, (size,)), np.float64) for key in keys]


def test_the_euler_scheme_follows_its_equation():
    w, p = np.array(START, np.float64), np.zeros(3)
    for xi in normals(25):
        w, p = (
            w + STEP * p,
            p - STEP * gradient(w) - FRICTION * STEP * p + np.sqrt(2 * FRICTION * STEP / BETA) * xi,
        )
    np.testing.assert_allclose(end_of_chain(samplers.underdamped(STEP, FRICTION, BETA)), w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("noise_in", ["momentum", "params"])
@pytest.mark.parametrize("epsilon_in_root", [True, False])
def test_the_adaptive_scheme_follows_its_equation(noise_in, epsilon_in_root):
    """Written with the paper's sign of the momentum, so the noise in the momentum enters with a minus sign."""
    a, a1, a2, eps = 0.7, 0.8, 0.95, 1e-2
    w, p, m, v = np.array(START, np.float64), np.zeros(3), np.zeros(3), np.zeros(3)
    for xi in normals(25):
        g = gradient(w)
        m, v = a1 * m + (1 - a1) * g, a2 * v + (1 - a2) * g**2
        root = np.sqrt(v + eps) if epsilon_in_root else np.sqrt(v) + eps
        scaled = np.sqrt(2 * FRICTION * STEP / BETA) * xi
        p = (1 - FRICTION * STEP) * p + STEP * (g + a * m / root) - (scaled if noise_in == "momentum" else 0)
        w = w - STEP * p + (scaled if noise_in == "params" else 0)
    sampler = samplers.adaptive_underdamped(
        STEP,
        FRICTION,
        BETA,
        bias_factor=a,
        first_decay=a1,
        second_decay=a2,
        epsilon=eps,
        epsilon_in_root=epsilon_in_root,
        noise_in=noise_in,
    )
    np.testing.assert_allclose(end_of_chain(sampler), w, rtol=1e-5, atol=1e-6)


def unrotated(scheme, num_steps):
    """The palindrome itself, two gradients a step; its first O (or B) acts before our cycle starts."""
    w, p = np.array(START, np.float64), np.zeros(3)
    decay = np.exp(-FRICTION * STEP)
    spread = np.sqrt((1 - decay**2) / BETA)
    for xi in normals(num_steps):
        if scheme == "BAOAB":
            p = p - STEP / 2 * gradient(w)
            w = w + STEP / 2 * p
            p = decay * p + spread * xi
            w = w + STEP / 2 * p
            p = p - STEP / 2 * gradient(w)
        else:  # OBABO started after its O: one whole O sits between two steps
            p = p - STEP / 2 * gradient(w)
            w = w + STEP * p
            p = p - STEP / 2 * gradient(w)
            p = decay * p + spread * xi
    return w


@pytest.mark.parametrize("scheme", ["BAOAB", "OBABO"])
def test_one_gradient_a_step_visits_the_points_of_the_two_gradient_palindrome(scheme):
    """The cycles start at other places, so the starts are shifted to agree; from there on the paths are the same."""
    num_steps = 12
    w, p = np.array(START, np.float64), np.zeros(3)
    sampler = samplers.underdamped_splitting(STEP, FRICTION, BETA, scheme=scheme)
    if scheme == "BAOAB":  # ours kicks by a whole step where the palindrome has only its first half yet
        p = STEP / 2 * gradient(w)
        expected = unrotated(scheme, num_steps)
    else:  # ours: B/2 O B/2 A. Its path is that of the palindrome from the point after our first B/2 O
        decay = np.exp(-FRICTION * STEP)
        xi = normals(num_steps)
        p0 = decay * (0 - STEP / 2 * gradient(w)) + np.sqrt((1 - decay**2) / BETA) * xi[0]
        q, u = p0, w
        for i in range(num_steps):
            q = q - STEP / 2 * gradient(u)
            u = u + STEP * q
            q = q - STEP / 2 * gradient(u)
            if i + 1 < num_steps:
                q = decay * q + np.sqrt((1 - decay**2) / BETA) * xi[i + 1]
        expected = u
    state = sampler.init(START)
    state = state._replace(memory=state.memory._replace(momentum=jnp.asarray(p, jnp.float32)))
    for key in jax.random.split(jax.random.key(0), (num_steps, 1))[:, 0]:
        state, record = sampler.step(key, state, potential)
    assert record.num_gradients == 1
    np.testing.assert_allclose(state.params, expected, rtol=2e-5, atol=1e-6)


def van_loan(step, friction):
    """Transition and noise covariance of dw = P dt, dP = −g dt − γP dt + √(2γ) dB by one matrix exponential."""
    drift = np.array([[0.0, 1.0], [0.0, -friction]])
    diffusion = np.diag([0.0, 2 * friction])
    block = scipy.linalg.expm(step * np.block([[-drift, diffusion], [np.zeros((2, 2)), drift.T]]))
    transition = block[2:, 2:].T
    covariance = transition @ block[:2, 2:]
    force = scipy.linalg.expm(step * np.block([[drift, np.array([[0.0], [-1.0]])], [np.zeros((1, 3))]]))[:2, 2]
    return transition, covariance, force


@pytest.mark.parametrize("friction", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("x", [0.05, 0.3, 0.599, 0.601, 2.0, 8.0])
def test_the_closed_form_is_the_matrix_exponential(x, friction):
    step = x / friction
    transition, covariance, force = van_loan(step, friction)
    with jax.enable_x64(True):
        c = exact_coefficients(step, friction)
        got = [c.decay, c.momentum_to_params, -c.gradient_to_params]
        np.testing.assert_allclose(got, [np.exp(-x), transition[0, 1], force[0]], rtol=1e-9)
        factor = np.array([[c.noise_shared, c.noise_params], [c.noise_momentum, 0.0]])
        np.testing.assert_allclose(factor @ factor.T, covariance, rtol=1e-9)


@pytest.mark.parametrize("x", [1e-12, 1e-8, 1e-4, 1e-2])
def test_the_closed_form_keeps_its_digits_for_small_steps(x):
    """Leading orders in x = γτ, in float32, where 1 − e^{−x} and its kin would cancel to nothing."""
    step, friction = 0.5, x / 0.5
    c = exact_coefficients(step, friction)
    np.testing.assert_allclose(c.momentum_to_params, step * (1 - x / 2), rtol=1e-4)
    np.testing.assert_allclose(c.gradient_to_params, step**2 / 2 * (1 - x / 3), rtol=1e-4)
    np.testing.assert_allclose(c.noise_momentum**2, 2 * x * (1 - x), rtol=2e-4)
    np.testing.assert_allclose(c.noise_params**2, step**2 * x / 6, rtol=1e-4)
    np.testing.assert_allclose(c.noise_shared**2, step**2 * x / 2, rtol=1.1e-2)


def test_the_closed_form_follows_its_coefficients():
    w, p = np.array(START, np.float64), np.zeros(3)
    transition, covariance, force = van_loan(STEP, FRICTION)
    s = np.sqrt(covariance[1, 1])
    shared, rest = covariance[0, 1] / s, np.sqrt(covariance[0, 0] - (covariance[0, 1] / s) ** 2)
    for xi in normals(25, size=6):
        g = gradient(w)
        w = w + transition[0, 1] * p + force[0] * g + (shared * xi[:3] + rest * xi[3:]) / np.sqrt(BETA)
        p = transition[1, 1] * p + force[1] * g + s * xi[:3] / np.sqrt(BETA)
    np.testing.assert_allclose(end_of_chain(samplers.underdamped_exact(STEP, FRICTION, BETA)), w, rtol=1e-5, atol=1e-6)
