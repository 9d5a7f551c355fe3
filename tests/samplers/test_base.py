"""Properties that every sampler has, whatever its equation."""

import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from feelgood import samplers
from marks import fast_only

TREE = {"weights": jnp.array([[0.5, -1.0, 0.3], [0.2, 0.1, -0.4]]), "bias": jnp.array([1.0, -2.0])}
FLAT, UNRAVEL = ravel_pytree(TREE)
CURVATURE = jnp.linspace(0.5, 4.0, 8)
PRECISION = jnp.diag(CURVATURE)
PHI = jnp.eye(3, 8)


def flat_potential(w):
    return jnp.sum(CURVATURE * w**2) / 2 + jnp.sum(w**4) / 10


def tree_potential(tree):
    return flat_potential(ravel_pytree(tree)[0])


# Each factory takes a step size (exact samplers: a temperature) and the mean of a target, as a tree or flat.
ZOO = {
    "langevin": lambda step, mean: samplers.langevin(step, 2.0),
    "adam_langevin": lambda step, mean: samplers.adam_langevin(step, 2.0, bias_factor=0.3),
    "preconditioned_langevin": lambda step, mean: samplers.preconditioned_langevin(step, 2.0, epsilon=0.1),
    "preconditioned_adam_langevin": lambda step, mean: samplers.preconditioned_adam_langevin(step, 2.0),
    "underdamped": lambda step, mean: samplers.underdamped(step, 1.5, 2.0),
    "underdamped_exact": lambda step, mean: samplers.underdamped_exact(step, 1.5, 2.0),
    "underdamped_splitting": lambda step, mean: samplers.underdamped_splitting(step, 1.5, 2.0),
    "underdamped_obabo": lambda step, mean: samplers.underdamped_splitting(step, 1.5, 2.0, scheme="OBABO"),
    "adaptive_underdamped": lambda step, mean: samplers.adaptive_underdamped(step, 1.5, 2.0, bias_factor=0.3),
    "adaptive_underdamped_released": lambda step, mean: samplers.adaptive_underdamped(
        step, 1.5, 2.0, bias_factor=0.3, noise_in="params", epsilon_in_root=False
    ),
    "adaptive_underdamped_corrected": lambda step, mean: samplers.adaptive_underdamped(
        step, 1.5, 2.0, bias_factor=0.3, noise_in="params", epsilon_in_root=False, first_decay=0.0, corrected=True
    ),
    "mala": lambda step, mean: samplers.mala(step, 2.0),
    "hmc": lambda step, mean: samplers.hmc(step, 3, 2.0),
    "proximal": lambda step, mean: samplers.proximal(step, 2.0),
    "exact_gaussian": lambda step, mean: samplers.exact_gaussian(mean, PRECISION, 1 / step),
    "exact_feel_good": lambda step, mean: samplers.exact_feel_good(mean, PRECISION, PHI, 0.5, 1 / step),
    "from_optax": lambda step, mean: samplers.from_optax(optax.adam(step)),
}
ADJUSTED = {"mala", "hmc", "proximal", "exact_gaussian", "exact_feel_good"}
FIRST_ORDER = sorted(set(ZOO) - ADJUSTED)
every_sampler = pytest.mark.parametrize("name", sorted(ZOO))
# Orders of the same parts of a step.
VARIANTS = {"underdamped_obabo", "adaptive_underdamped_released"}
every_scheme = pytest.mark.parametrize("name", fast_only(set(ZOO) - VARIANTS, sorted(ZOO)))


@functools.cache
def compiled(name):
    """Ten steps of one chain as a function of its key and step size, compiled once for all tests."""
    return jax.jit(lambda key, step: samplers.sample(key, ZOO[name](step, FLAT), flat_potential, FLAT, 10))


def chain(name, key, step=0.05):
    return compiled(name)(key, step)


@every_scheme
def test_a_tree_moves_like_its_flat_vector(name):
    flat, flat_info = chain(name, jax.random.key(0))
    run = jax.jit(lambda key: samplers.sample(key, ZOO[name](0.05, TREE), tree_potential, TREE, 10))
    tree, tree_info = run(jax.random.key(0))
    as_flat = jax.vmap(lambda t: ravel_pytree(t)[0])(tree)
    np.testing.assert_allclose(as_flat, flat, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tree_info.num_rejections, flat_info.num_rejections)
    assert jax.tree.structure(jax.tree.map(lambda x: x[0], tree)) == jax.tree.structure(TREE)


@every_scheme
def test_vmap_over_chains_and_steps_equals_a_loop_and_chains_of_different_keys_are_uncorrelated(name):
    keys = jax.vmap(jax.random.key)(jnp.arange(4100))
    steps = jnp.full(4100, 0.05).at[:4].set(jnp.array([0.01, 0.03, 0.05, 0.09]))
    together = np.asarray(jax.jit(jax.vmap(lambda key, step: chain(name, key, step)[0]))(keys, steps))
    apart = np.stack([chain(name, keys[i], steps[i])[0] for i in range(8)])
    np.testing.assert_allclose(together[:4], apart[:4], rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(together[4:8], apart[4:], rtol=2e-5, atol=1e-6)
    if name == "from_optax":
        return  # no noise
    end = together[4:, -1]
    noise = (end - end.mean(0)) / end.std(0)
    lagged = np.mean(noise[1:, :, None] * noise[:-1, None, :], axis=0) * np.sqrt(4095)
    assert np.abs(lagged).max() < 4.5  # 64 standard normals if uncorrelated


@every_sampler
def test_the_same_key_gives_the_same_bits_and_another_key_gives_others(name):
    first, again, other = (chain(name, jax.random.key(seed))[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (name == "from_optax") == bool(jnp.all(first == other))


@every_sampler
def test_info_has_the_same_leaves_for_every_sampler(name):
    sampler = ZOO[name](0.05, FLAT)
    _, record = jax.eval_shape(
        lambda key, state: sampler.step(key, state, flat_potential), jax.random.key(0), sampler.init(FLAT)
    )
    assert [leaf.shape for leaf in record] == [()] * 6
    assert [leaf.dtype for leaf in record] == [jnp.float32, jnp.float32, jnp.int32, jnp.int32, bool, bool]


@every_sampler
def test_a_step_keeps_dtype_and_structure_even_with_float64_hyper_parameters(name):
    with jax.enable_x64(True):
        params = jax.tree.map(lambda x: x.astype(jnp.float32), TREE)

        def step(key, step_size):
            sampler = ZOO[name](step_size, params)
            state = sampler.init(params)
            return state, sampler.step(key, state, tree_potential)[0]

        old, new = jax.eval_shape(step, jax.random.key(0), jnp.asarray(0.05, jnp.float64))
        assert jax.tree.map(lambda x: (x.shape, x.dtype), new) == jax.tree.map(lambda x: (x.shape, x.dtype), old)


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_as_an_optax_transformation_it_takes_the_same_steps(name):
    transform = samplers.to_optax(ZOO[name](0.05, FLAT))
    params, state = FLAT, transform.init(FLAT)
    update = jax.jit(transform.update)
    for key in jax.random.split(jax.random.key(0), (10, 1))[:, 0]:
        updates, state = update(jax.grad(flat_potential)(params), state, params, key=key)
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(params, chain(name, jax.random.key(0))[0][-1], rtol=1e-5, atol=1e-6)


def test_an_optax_chain_hands_the_key_through():
    plain = samplers.to_optax(samplers.langevin(0.1))
    chained = optax.chain(optax.clip_by_global_norm(1e6), plain)
    key, gradient = jax.random.key(0), jax.grad(flat_potential)(FLAT)
    expected, _ = plain.update(gradient, plain.init(FLAT), FLAT, key=key)
    updates, _ = chained.update(gradient, chained.init(FLAT), FLAT, key=key)
    np.testing.assert_allclose(updates, expected, rtol=1e-6)


@pytest.mark.parametrize("make", [samplers.langevin, samplers.underdamped, samplers.adam_langevin])
def test_a_transformation_takes_a_number_and_refuses_other_leaves(make):
    transform, key = samplers.to_optax(make(0.1)), jax.random.key(0)
    array = jnp.asarray(1.0)
    expected, expected_state = transform.update(array, transform.init(array), array, key=key)
    updates, state = transform.update(1.0, transform.init(1.0), 1.0, key=key)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, (updates, state), (expected, expected_state)))
    with pytest.raises(ValueError, match=r"params must be .* floating-point arrays, got 1.0 at params\['a'\]"):
        transform.init({"a": 1.0})


@pytest.mark.parametrize("name", sorted(ADJUSTED))
def test_samplers_that_need_several_gradients_are_no_transformation(name):
    with pytest.raises(TypeError, match="cannot be an Optax transformation"):
        samplers.to_optax(ZOO[name](0.05, FLAT))


def test_sample_counts_and_thins():
    draws, record = samplers.sample(
        jax.random.key(0), samplers.langevin(0.1), flat_potential, FLAT, num_steps=12, thin=4
    )
    every, _ = samplers.sample(jax.random.key(0), samplers.langevin(0.1), flat_potential, FLAT, num_steps=12, thin=12)
    assert draws.shape == (3, 8)
    assert record.potential.shape == (3,)
    assert every.shape == (1, 8)
    with pytest.raises(ValueError, match="num_steps must be a whole number of at least 1, got 0"):
        samplers.sample(jax.random.key(0), samplers.langevin(0.1), flat_potential, FLAT, num_steps=0)


def test_the_burn_in_is_taken_and_left_out():
    run = lambda *args, **options: samplers.sample(jax.random.key(0), *args, **options)[0]
    descent = samplers.from_optax(optax.sgd(0.05))
    whole = run(descent, flat_potential, FLAT, 10)
    np.testing.assert_allclose(run(descent, flat_potential, FLAT, 6, burn_in=4, thin=2), whole[5::2], rtol=1e-6)


def test_whole_numbers_may_be_floats_and_others_are_refused_in_a_sentence():
    run = lambda *args, **options: samplers.sample(jax.random.key(0), *args, **options)[0]
    assert run(samplers.langevin(0.1), flat_potential, FLAT, 10.0, burn_in=2.0, thin=5.0).shape == (2, 8)
    assert run(samplers.hmc(0.1, 3.0), flat_potential, FLAT, 2).shape == (2, 8)
    assert run(samplers.proximal(0.1, num_minimisation_steps=2.0), flat_potential, FLAT, 2).shape == (2, 8)
    for options, message in [
        ({"num_steps": 2.5}, "num_steps must be a whole number of at least 1, got 2.5"),
        ({"num_steps": 5, "burn_in": -1}, "burn_in must be a whole number of at least 0, got -1"),
        ({"num_steps": 5, "thin": 6}, "thin must be at most num_steps, 5, or no position is kept, got 6"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            run(samplers.langevin(0.1), flat_potential, FLAT, **options)


@pytest.mark.parametrize("name", ["langevin", "mala", "exact_gaussian"])
def test_a_number_is_a_chain_of_scalars(name):
    make = {"exact_gaussian": lambda: samplers.exact_gaussian(jnp.zeros(()), jnp.eye(1))}
    sampler = make.get(name, lambda: getattr(samplers, name)(0.1))()
    draws, _ = samplers.sample(jax.random.key(0), sampler, lambda w: w**2 / 2, 0.5, 20)
    assert draws.shape == (20,)
    assert sampler.init(1).params.dtype == jnp.float32


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"slope": 0.0, "offset": jnp.zeros(2)}, "params['slope'] is the Python number 0.0: make it an array"),
        ({"count": jnp.arange(3)}, "params must have at least one floating-point array"),
    ],
)
def test_parameters_that_cannot_move_are_refused_in_a_sentence(params, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        samplers.sample(jax.random.key(0), samplers.langevin(0.1), lambda w: 0.0, params, 5)
    with pytest.raises(ValueError, match="params must be a pytree of floating-point arrays, got "):
        samplers.langevin(0.1).init(params)


def test_an_equinox_model_is_sampled_and_its_other_leaves_stay():
    import equinox as eqx

    model = eqx.nn.MLP(2, "scalar", width_size=4, depth=1, key=jax.random.key(0))
    inputs = jax.random.normal(jax.random.key(1), (5, 2))
    potential = lambda model: jnp.sum(jax.vmap(model)(inputs) ** 2)
    for sampler in (samplers.langevin(1e-3), samplers.hmc(1e-2, 2)):
        draws, record = samplers.sample(jax.random.key(2), sampler, potential, model, 6)
        assert draws.activation is model.activation
        assert draws.layers[0].weight.shape == (6, 4, 2)
        last = jax.tree.map(lambda leaf: leaf[-1] if eqx.is_array(leaf) else leaf, draws)
        assert potential(last) != potential(model)
        np.testing.assert_allclose(record.potential[0], potential(model), rtol=1e-6)


@pytest.mark.parametrize(
    "sampler",
    [samplers.langevin(1.0), samplers.underdamped(1.0), samplers.mala(1.0), samplers.hmc(1.0, 5, jitter=0.0)],
    ids=["langevin", "underdamped", "mala", "hmc"],
)
def test_a_step_that_is_too_large_is_flagged_as_diverged(sampler):
    steep = lambda w: 1e6 * jnp.sum(w**2)
    _, record = samplers.sample(jax.random.key(0), sampler, steep, jnp.ones(2), 20)
    assert record.diverged[-1]
    _, record = samplers.sample(jax.random.key(0), sampler, lambda w: 1e-2 * jnp.sum(w**2), jnp.ones(2), 20)
    assert not record.diverged.any()


def test_the_proximal_sampler_flags_a_step_that_reached_its_cap_of_rejections():
    sampler = samplers.proximal(10.0, max_rejections=3)
    state, record = sampler.step(jax.random.key(0), sampler.init(jnp.ones(4)), lambda w: 1e3 * jnp.sum(w**2))
    np.testing.assert_array_equal(state.params, jnp.ones(4))
    assert record.gave_up
    assert record.num_rejections == 3
    easy = samplers.proximal(0.01, max_rejections=100)
    _, record = samplers.sample(jax.random.key(0), easy, lambda w: jnp.sum(w**2), jnp.ones(4), 20)
    assert not record.gave_up.any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: samplers.hmc(0.1, 3, jitter=1.0), "jitter must be in [0, 1), got 1.0"),
        (lambda: samplers.hmc(0.1, 2.5), "num_leapfrog_steps must be a whole number of at least 1, got 2.5"),
        (lambda: samplers.langevin(0.0), "step_size must be positive and finite, got 0.0"),
        (lambda: samplers.langevin(-1.0), "step_size must be positive and finite, got -1.0"),
        (lambda: samplers.langevin(float("nan")), "step_size must be positive and finite, got nan"),
        (lambda: samplers.langevin(0.1, 0.0), "inverse_temperature must be positive (infinity allowed), got 0.0"),
        (lambda: samplers.adam_langevin(0.1, bias_factor=float("inf")), "bias_factor must be a finite real number"),
        (lambda: samplers.adam_langevin(0.1, first_decay=1.0), "first_decay must be in [0, 1), got 1.0"),
        (lambda: samplers.preconditioned_langevin(0.1, epsilon=0.0), "epsilon must be positive and finite, got 0.0"),
        (lambda: samplers.preconditioned_adam_langevin(-0.1), "step_size must be positive and finite, got -0.1"),
        (lambda: samplers.underdamped(0.1, 0.0), "friction must be positive and finite, got 0.0"),
        (lambda: samplers.underdamped_exact(0.1, -2.0), "friction must be positive and finite, got -2.0"),
        (lambda: samplers.underdamped_splitting(0.1, 1.0, -1.0), "inverse_temperature must be positive"),
        (lambda: samplers.adaptive_underdamped(0.1, bias_factor=float("nan")), "bias_factor must be a finite real"),
        (lambda: samplers.mala(0.1, float("inf")), "inverse_temperature must be positive and finite, got inf"),
        (lambda: samplers.hmc(0.1, 0), "num_leapfrog_steps must be a whole number of at least 1, got 0"),
        (lambda: samplers.proximal(0.1, num_minimisation_steps=0), "num_minimisation_steps must be a whole number"),
        (lambda: samplers.exact_gaussian(FLAT, jnp.eye(3)), "precision must have shape (8, 8) to match mean"),
        (lambda: samplers.exact_feel_good(FLAT, PRECISION, PHI, -1.0), "weight must be non-negative and finite"),
        (lambda: samplers.exact_feel_good(FLAT, PRECISION, jnp.eye(3), 1.0), "features must have shape"),
        (lambda: samplers.linear_regression(PHI, jnp.ones(3), weight=0.0), "weight must be positive and finite"),
    ],
)
def test_a_bad_hyper_parameter_is_named_with_its_value(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_an_optimiser_that_searches_along_a_line_takes_the_steps_it_takes_in_optax():
    scales = jnp.array([1.0, 10.0, 100.0])
    potential = lambda w: jnp.sum(scales * (w - jnp.arange(3.0)) ** 2)
    sampler, optimiser = samplers.from_optax(optax.lbfgs()), optax.lbfgs()
    state = sampler.init(3 * jnp.ones(3))
    params, memory = state.params, optimiser.init(state.params)

    @jax.jit
    def step(params, memory):
        value, gradient = jax.value_and_grad(potential)(params)
        extra = {"value": value, "grad": gradient, "value_fn": potential}
        updates, memory = optimiser.update(gradient, memory, params, **extra)
        return optax.apply_updates(params, updates), memory, value

    own_step = jax.jit(lambda key, state: sampler.step(key, state, potential))
    for i in range(5):
        state, info = own_step(jax.random.key(i), state)
        params, memory, value = step(params, memory)
        np.testing.assert_allclose(state.params, params, rtol=1e-6)
        assert info.potential == value
    assert potential(params) < 0.1 * potential(3 * jnp.ones(3))


def test_an_update_without_parameters_is_refused_in_a_sentence():
    transform = samplers.to_optax(samplers.langevin(0.1, 1.0))
    with pytest.raises(ValueError, match="update of a sampler needs the parameters"):
        transform.update(jnp.ones(3), transform.init(jnp.ones(3)), key=jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampler": "langevin"}, r"sampler must be a Sampler such as samplers.langevin\(0.1\), got 'langevin'"),
        (
            {"sampler": samplers.Sampler(lambda params: params, lambda key, state, potential: (state, None))},
            "result of a sampler's init must be a SamplerState, got",
        ),
        (
            {"sampler": samplers.Sampler(samplers.SamplerState, lambda key, state, potential: state)},
            "first result of a sampler's step must be a SamplerState, and the second an Info, got",
        ),
        ({"key": 3}, r"key must be a JAX key such as jax.random.key\(0\), got 3"),
        ({"potential": lambda w: w**2}, r"potential must return a number, an array of shape \(\), got shape \(2,\)"),
    ],
)
def test_a_wrong_argument_of_sample_is_named(changes, message):
    right = {"key": jax.random.key(0), "sampler": samplers.langevin(0.1), "potential": lambda w: jnp.sum(w**2)}
    samplers.sample(**right | {"key": jax.random.PRNGKey(0)}, params=jnp.ones(2), num_steps=1)
    unchecked = inspect.unwrap(samplers.sample)  # the tests check types at run time, users do not
    with pytest.raises(ValueError, match=message):
        unchecked(**right | changes, params=jnp.ones(2), num_steps=1)
