"""Suggested steps against the stability of each scheme, schedules against hand-written loops, draws for ArviZ."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from feelgood import samplers
from feelgood.samplers import diagnostics as d

EIGENVALUES = jnp.array([0.5, 2.0, 30.0])
ROTATION = jnp.linalg.qr(jax.random.normal(jax.random.key(3), (3, 3)))[0]
PRECISION = ROTATION @ jnp.diag(EIGENVALUES) @ ROTATION.T


def potential(tree):
    w = jnp.concatenate([tree["a"], tree["b"]])
    return w @ PRECISION @ w / 2


TREE = {"a": jnp.array([0.3]), "b": jnp.array([-1.0, 2.0])}


def suggest(name, **settings):
    return float(samplers.suggest_step_size(name, jax.random.key(0), potential, TREE, **settings))


def test_the_largest_curvature_is_the_largest_eigenvalue_of_the_hessian():
    for tree in (TREE, optax.tree.cast(TREE, jnp.bfloat16)):
        np.testing.assert_allclose(samplers.largest_curvature(jax.random.key(0), potential, tree), 30.0, rtol=1e-4)
    assert samplers.largest_curvature(jax.random.key(0), lambda w: jnp.sum(w), jnp.ones(3)) == 0


def test_a_model_of_equinox_has_the_curvature_of_its_arrays():
    import equinox as eqx

    linear = eqx.nn.Linear(3, 1, use_bias=False, key=jax.random.key(1))  # also holds counts and flags
    steep = lambda model: 5 * jnp.sum(model.weight**2) + jnp.sum(model(jnp.ones(3))) * 0
    np.testing.assert_allclose(samplers.largest_curvature(jax.random.key(0), steep, linear), 10.0, rtol=1e-4)
    mala = samplers.suggest_step_size("mala", jax.random.key(0), steep, linear)
    np.testing.assert_allclose(mala, 1 / (10 * 3 ** (1 / 3)), rtol=1e-4)


@pytest.mark.parametrize("friction", [0.5, 3.0, 20.0])
def test_suggested_steps_are_half_the_largest_stable_step(friction):
    kernels = {
        "langevin": lambda h: d.langevin_kernel(h, 1.0),
        "underdamped": lambda h: d.underdamped_kernel(h, friction, 1.0),
        "underdamped_exact": lambda h: d.underdamped_exact_kernel(h, friction, 1.0),
        "underdamped_splitting": lambda h: d.underdamped_splitting_kernel(h, friction, 1.0, scheme="BAOAB"),
        "adaptive_underdamped": lambda h: d.adaptive_underdamped_kernel(h, friction, 1.0, noise_in="momentum"),
    }
    for name, kernel in kernels.items():
        step = suggest(name, friction=friction)
        assert d.spectral_radius(kernel(1.99 * step), PRECISION) < 1, name
        if name != "underdamped_exact":
            np.testing.assert_allclose(step, d.largest_stable_step(kernel, PRECISION) / 2, rtol=5e-3, err_msg=name)


@pytest.mark.parametrize("name", ["mala", "hmc", "proximal"])
def test_adjusted_samplers_accept_most_proposals_at_the_suggested_step(name):
    beta, step = 4.0, suggest(name, inverse_temperature=4.0)
    sampler = samplers.hmc(step, 4, beta) if name == "hmc" else getattr(samplers, name)(step, beta)
    _, record = samplers.sample(jax.random.key(1), sampler, potential, TREE, 400)
    assert record.num_rejections.mean() < 1
    assert record.acceptance.mean() > 0.5
    assert not record.diverged.any()


def test_a_sampler_without_a_rule_is_refused_with_the_names_that_have_one():
    with pytest.raises(ValueError, match=r"sampler must be one of 'langevin'.*did you mean 'langevin'"):
        suggest("langevn")


@pytest.mark.parametrize(
    "make",
    [
        samplers.langevin,
        lambda s: samplers.adam_langevin(s, bias_factor=0.3, corrected=True),
        lambda s: samplers.underdamped_splitting(s, 2.0),
        samplers.mala,
        lambda s: samplers.hmc(s, 3),
    ],
    ids=["langevin", "adam_langevin", "underdamped_splitting", "mala", "hmc"],
)
def test_a_schedule_takes_the_steps_of_a_loop_that_changes_the_step_size(make):
    schedule = optax.exponential_decay(0.1, 5, 0.5)
    quartic = lambda w: jnp.sum(w**4) / 4
    start = jnp.array([1.0, -0.5])
    draws, _ = jax.jit(lambda key: samplers.sample(key, make(schedule), quartic, start, 12))(jax.random.key(0))
    step = jax.jit(lambda key, size, state: make(size).step(key, state, quartic)[0])
    state = make(0.1).init(start)
    for i, key in enumerate(jax.random.split(jax.random.key(0), (12, 1))[:, 0]):
        state = step(key, 0.1 * 0.5 ** (i / 5), state)
        np.testing.assert_allclose(draws[i], state.params, rtol=1e-4, atol=1e-5)


def test_a_schedule_works_in_an_optax_loop():
    transform = samplers.to_optax(samplers.langevin(lambda t: 0.1 / (1 + t), float("inf")))
    params, state = jnp.ones(2), transform.init(jnp.ones(2))
    for t in range(3):
        updates, state = transform.update(params, state, params, key=jax.random.key(t))
        np.testing.assert_allclose(updates, -0.1 / (1 + t) * params, rtol=1e-6)
    with pytest.raises(ValueError, match="inverse_temperature must be positive"):
        samplers.langevin(lambda t: 0.1, -1.0)


def test_draws_for_arviz_are_named_by_their_place(monkeypatch):
    draws = {"layers": [jnp.zeros((4, 10, 3)), jnp.ones((4, 10), jnp.bfloat16)], "activation": jnp.tanh}
    for from_dict in (lambda posterior=None: posterior, lambda data: data["posterior"]):
        monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=from_dict))
        posterior = d.to_arviz(draws)
        assert {name: value.shape for name, value in posterior.items()} == {
            "layers.0": (4, 10, 3),
            "layers.1": (4, 10),
        }
        assert list(d.to_arviz(draws["layers"][0])) == ["params"]
        with pytest.raises(ValueError, match=r"params must have shape \(chains, steps, ...\), got shape \(5,\)"):
            d.to_arviz(jnp.zeros(5))
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ModuleNotFoundError, match="to_arviz needs ArviZ, which is not installed"):
        d.to_arviz(draws)
