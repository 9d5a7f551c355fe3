"""Networks: initialisation, forward passes by hand, noise, images, distributions, ensembles, priors, trained parts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import noise
from feelgood.envs import nchain
from feelgood.networks import (
    OneHot,
    categorical,
    ensemble,
    fourier_prior,
    he_weights,
    implicit_quantiles,
    mlp,
    mlp_features,
    nature_cnn,
    nature_convolutions,
    network,
    noisy_mlp,
    normalized_mlp,
    over,
    partition,
    scaled,
    table,
    with_init,
    with_prior,
    zero_biases,
)

KEY = jax.random.key(0)


def leaves(tree):
    return jax.tree.leaves(tree)


def test_torch_initialisation_is_uniform_within_one_over_the_root_of_the_inputs():
    model = mlp(KEY, 400, [300, 200], 100)
    for layer, num_inputs in zip(model.layers, (400, 300, 200), strict=True):
        bound = 1 / np.sqrt(num_inputs)
        for array in (np.asarray(layer.weight), np.asarray(layer.bias)):
            # 5 standard errors of the moments of a uniform variable.
            assert np.abs(array).max() <= bound
            assert np.abs(array).max() > bound * (1 - 10 / array.size)
            assert abs(array.mean()) < 5 * bound / np.sqrt(3 * array.size)
            assert abs((array**2).mean() - bound**2 / 3) < 5 * bound**2 * np.sqrt(4 / 45 / array.size)


def test_he_weights_have_variance_two_over_the_inputs_and_no_bias():
    layer = he_weights(mlp(KEY, 400, [300], 2)).layers[0]
    # The square of a uniform variable has variance 4/5 of its squared mean.
    assert abs(layer.weight.var() * 400 / 2 - 1) < 5 * np.sqrt(4 / 5 / layer.weight.size)
    assert not layer.bias.any()


def test_layers_with_he_weights_keep_the_scale_of_activations():
    x = jax.random.normal(KEY, (64, 1000))
    power = lambda model: float(jnp.mean(jax.nn.relu(model(x)) ** 2))
    for hidden, shrinks in (([], 6), ([1000], 36)):
        model = mlp(KEY, 1000, hidden, 1000)
        assert abs(power(he_weights(model)) - 1) < 0.1
        assert abs(power(zero_biases(model)) * shrinks - 1) < 0.1


@pytest.mark.parametrize("num_states", [25, 100])
def test_an_untrained_network_walks_right_to_the_end_on_about_a_third_of_seeds(num_states):
    observations = jax.vmap(nchain(num_states).decode)(jnp.arange(1, num_states))  # s_2, …, s_N

    def goes_right(key):
        return (mlp(key, num_states, [32, 32], 2)(observations).argmax(-1) == 1).all()

    fraction = jax.jit(jax.vmap(goes_right))(jax.random.split(KEY, 2000)).mean()
    # 0.34 was seen with the original initialisation; 3 binomial standard errors are 0.032.
    assert abs(fraction - 0.34) < 0.032


def test_the_forward_pass_is_a_chain_of_products_with_relu_between():
    model = mlp(KEY, 3, [5, 4], 2)
    x = np.array([0.5, -2.0, 1.0], np.float32)
    expected = x
    for i, layer in enumerate(model.layers):
        expected = expected @ np.asarray(layer.weight) + np.asarray(layer.bias)
        expected = np.maximum(expected, 0) if i < 2 else expected
    np.testing.assert_allclose(model(x), expected, rtol=1e-5)
    assert (expected < 0).any()  # no ReLU at the output


def test_a_batch_with_any_leading_axes_equals_its_observations_one_by_one():
    model = mlp(KEY, (2, 3), [8], 4)
    observations = np.random.default_rng(0).integers(255, size=(5, 7, 2, 3)).astype(np.uint8)
    together, call = model(observations), jax.jit(model.__call__)
    assert (together.shape, together.dtype) == ((5, 7, 4), jnp.float32)
    alone = [[np.asarray(call(o)) for o in row] for row in observations]
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-4)


def test_no_hidden_layer_gives_a_linear_model():
    model = mlp(KEY, 3, [], 2)
    x = jnp.arange(3.0)
    np.testing.assert_allclose(model(x), x @ model.layers[0].weight + model.layers[0].bias)


def test_a_small_first_layer_of_normalised_layers_gives_the_same_values_with_a_gradient_in_inverse_proportion():
    def values_and_gradient(scale):
        model = normalized_mlp(jax.random.key(0), 6, (8, 8), 2, input_scale=scale)
        model = eqx.tree_at(lambda model: model.layers[-1], model, mlp(KEY, 8, [], 2).layers[0])  # no zeros
        values = lambda first: eqx.tree_at(lambda model: model.layers[0], model, first)(jnp.eye(6))
        return values(model.layers[0]), jax.grad(lambda first: jnp.sum(values(first)[:, 0]))(model.layers[0])

    (values, gradient), (same, steeper) = values_and_gradient(1.0), values_and_gradient(0.1)
    np.testing.assert_allclose(same, values, atol=1e-3)  # 1e-6 in the denominator of the normalisation
    np.testing.assert_allclose(steeper.weight, 10 * gradient.weight, atol=1e-2 * float(jnp.abs(steeper.weight).max()))
    assert np.ptp(values) > 1


@pytest.mark.parametrize("make", [mlp, noisy_mlp, normalized_mlp])
def test_indices_of_one_hot_observations_give_the_values_and_gradients_of_the_vectors(make):
    index = jnp.array([[0, 5, 3], [2, 5, 6]], jnp.uint8)  # 6 is past the end: zeros
    vectors = jnp.asarray(np.vstack([np.eye(6), np.zeros(6)])[index], jnp.float32).reshape(2, 3, 3, 2)
    model = ensemble(KEY, lambda key: make(key, (3, 2), [4], 2), 3)
    if make is normalized_mlp:  # its last layer starts at 0
        model = jax.tree.map(lambda x: x + 0.1, model)
    for key in (None, KEY):
        loss = lambda model, observation, key=key: jnp.sum(jnp.sin(model(observation, key=key)))
        np.testing.assert_array_equal(model(OneHot(index), key=key), model(vectors, key=key))
        given, wanted = (jax.grad(loss)(model, x) for x in (OneHot(index), vectors))
        assert np.any(np.asarray(wanted.members.layers[0].weight))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), given, wanted)


def test_a_table_looks_up_rows_starts_at_zero_and_draws_independent_normals_as_a_prior():
    index = jnp.array([[0, 5], [2, 6]])  # 6 is past the end: zeros
    prior = table((3, 2), 4, KEY)
    rows = np.vstack([prior.values, np.zeros(4)])
    np.testing.assert_array_equal(prior(OneHot(index)), rows[index])
    np.testing.assert_allclose(prior(jnp.eye(6).reshape(6, 3, 2)), prior.values, rtol=1e-6)
    assert not np.any(table((3, 2), 4).values)
    values = np.asarray(table(1000, 10, KEY).values)
    assert abs(values.std() - 1) < 4 / np.sqrt(2 * values.size)  # four standard errors
    assert abs(np.corrcoef(values[:500].ravel(), values[500:].ravel())[0, 1]) < 4 / np.sqrt(5000)


def test_wrong_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="init must be one of"):
        with_init(mlp(KEY, 3, [], 2), "torhc")
    with pytest.raises(ValueError, match=r"observation must end in shape \(3,\), got shape \(4,\)"):
        mlp(KEY, 3, [], 2)(jnp.ones(4))
    with pytest.raises(ValueError, match="hidden must be a whole number"):
        mlp(KEY, 3, [0], 2)


def test_noisy_layers_start_with_the_published_scales():
    model = noisy_mlp(KEY, 100, [32], 2)
    plain = mlp(KEY, 100, [32], 2)
    for layer, mean, num_inputs in zip(model.layers, plain.layers, (100, 32), strict=True):
        np.testing.assert_allclose(layer.weight_scale, 0.5 / np.sqrt(num_inputs), rtol=1e-6)
        np.testing.assert_allclose(layer.bias_scale, 0.5 / np.sqrt(num_inputs), rtol=1e-6)
        np.testing.assert_array_equal(layer.weight, mean.weight)


def test_without_a_key_a_noisy_network_uses_its_mean_weights():
    x = jnp.linspace(-1, 1, 100)
    np.testing.assert_array_equal(noisy_mlp(KEY, 100, [32], 2)(x), mlp(KEY, 100, [32], 2)(x))


def layer_noise(model, num_inputs, key):
    """Noise of the weights and biases of a one-layer network, in units of their scales."""
    scale = 0.5 / np.sqrt(num_inputs)
    bias = model(jnp.zeros(num_inputs), key=key)
    weight = model(jnp.eye(num_inputs), key=key) - bias[None]
    return (weight - model.layers[0].weight) / scale, (bias - model.layers[0].bias) / scale


def test_weight_noise_is_the_outer_product_of_input_noise_and_bias_noise():
    model = noisy_mlp(KEY, 6, [], 4)
    weight, bias = layer_noise(model, 6, jax.random.key(1))
    input_noise = weight[:, 0] / bias[0]
    np.testing.assert_allclose(weight, input_noise[:, None] * bias[None], atol=1e-4)
    assert np.std(input_noise) > 0.1


def test_noise_has_the_law_of_signed_roots_of_normals():
    model = noisy_mlp(KEY, 2, [], 3)
    draws = jax.jit(jax.vmap(lambda key: layer_noise(model, 2, key)))(jax.random.split(KEY, 20_000))
    weight, bias = map(np.asarray, draws)
    # f² = |normal|: E f = 0, E f² = √(2/π), E f⁴ = 1. Independent factors multiply. 5 standard errors.
    second, count = np.sqrt(2 / np.pi), 20_000
    np.testing.assert_allclose(bias.mean(0), 0, atol=5 * np.sqrt(second / count))
    np.testing.assert_allclose((bias**2).mean(0), second, atol=5 * np.sqrt((1 - second**2) / count))
    np.testing.assert_allclose((bias**4).mean(0), 1, atol=5 * np.sqrt(2 / count))
    np.testing.assert_allclose((weight**2).mean(0), second**2, atol=5 * np.sqrt((1 - second**4) / count))
    assert abs((bias[:, 0] * bias[:, 1]).mean()) < 5 * second / np.sqrt(count)


def test_layers_of_a_noisy_network_draw_different_noise():
    model = noisy_mlp(KEY, 3, [3], 3)
    model = jax.tree.map(jnp.zeros_like, model)
    layers = tuple(type(layer)(layer.weight, layer.bias, layer.weight, layer.bias + 1) for layer in model.layers)
    # With no weights, the output is the bias noise of the last layer; the first layer's shows through an identity.
    last = type(model)(layers, (3,))(jnp.zeros(3), key=KEY)
    identity = type(layers[1])(jnp.eye(3), layers[1].bias, layers[1].weight, layers[1].bias)
    first = type(model)((layers[0], identity), (3,))(jnp.zeros(3), key=KEY)
    assert not np.any(np.isclose(jnp.maximum(last, 0), first) & (first > 0))


def test_one_draw_of_noise_serves_a_batch_and_another_key_gives_another():
    model = noisy_mlp(KEY, 5, [8], 2)
    batch = jnp.ones((3, 5))
    one, other = (np.asarray(model(batch, key=jax.random.key(seed))) for seed in (1, 2))
    np.testing.assert_allclose(one, one[:1].repeat(3, 0), rtol=1e-6)
    assert not np.isclose(one, other).any()


def test_an_ensemble_stacks_the_members_that_its_keys_would_make_alone():
    make = lambda key: mlp(key, 3, [8], 2)
    model, x = ensemble(KEY, make, 4), jnp.ones((6, 3)) * jnp.arange(6.0)[:, None]
    assert model(x).shape == (6, 4, 2)
    assert model(x[0]).shape == (4, 2)
    alone = jax.jit(lambda key: make(key)(x))
    for i, key in enumerate(jax.random.split(KEY, 4)):
        np.testing.assert_allclose(np.asarray(model(x))[:, i], alone(key), rtol=1e-5, atol=1e-6)
    assert len(np.unique(model(x[1]))) == 8


def test_members_are_the_same_bit_for_bit_as_by_a_vectorised_map():
    make = lambda key: with_prior(mlp(key, 3, [8], 2), fourier_prior(key, 3, 16, 2, length_scale=1.0), 0.3)
    split = jax.random.split(KEY, 4)
    expected = jax.jit(lambda: eqx.filter(eqx.filter_vmap(make)(split), eqx.is_array))()
    found = jax.jit(lambda: eqx.filter(ensemble(KEY, make, 4).members, eqx.is_array))()
    assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))


def test_members_of_a_noisy_ensemble_draw_their_own_noise():
    make = lambda key: ensemble(key, lambda _: noisy_mlp(KEY, 3, [8], 2), 3)  # three times the same member
    mean, noisy = map(np.asarray, jax.jit(lambda key: (make(key)(jnp.ones(3)), make(key)(jnp.ones(3), key=key)))(KEY))
    np.testing.assert_allclose(mean, mean[:1].repeat(3, 0), rtol=1e-6)
    assert len(np.unique(noisy)) == 6


def with_random_prior(key, scale=3.0):
    key_model, key_prior = jax.random.split(key)
    return with_prior(mlp(key_model, 3, [8], 2), mlp(key_prior, 3, [8], 2), scale)


def test_a_prior_adds_scale_times_its_output():
    key_model, key_prior = jax.random.split(KEY)
    x = jnp.ones(3)
    expected = mlp(key_model, 3, [8], 2)(x) + 3 * mlp(key_prior, 3, [8], 2)(x)
    np.testing.assert_allclose(with_random_prior(KEY)(x), expected, rtol=1e-5)


def test_prior_networks_are_frozen_arrays_and_never_parameters():
    params, frozen, apply = partition(with_random_prior(KEY))
    key_model, key_prior = jax.random.split(KEY)
    jax.tree.map(np.testing.assert_array_equal, leaves(params), leaves(mlp(key_model, 3, [8], 2)))
    jax.tree.map(np.testing.assert_array_equal, leaves(frozen), [*leaves(mlp(key_prior, 3, [8], 2)), jnp.float32(3)])
    np.testing.assert_array_equal(apply(params, frozen, jnp.ones(3)), with_random_prior(KEY)(jnp.ones(3)))
    through_frozen = jax.grad(lambda frozen: apply(params, frozen, jnp.ones(3)).sum())(frozen)
    assert not any(leaf.any() for leaf in leaves(through_frozen))
    through_params = jax.grad(lambda params: apply(params, frozen, jnp.ones(3)).sum())(params)
    assert all(leaf.any() for leaf in leaves(through_params))


def test_a_plain_network_has_all_its_arrays_in_params_and_nothing_frozen():
    params, frozen, _ = partition(noisy_mlp(KEY, 3, [8], 2))
    assert len(leaves(params)) == 8
    assert leaves(frozen) == []


def test_apply_holds_no_arrays_of_its_own():
    net = network(lambda key: ensemble(key, with_random_prior, 4))
    params, frozen = net.init(KEY)
    assert not jax.make_jaxpr(net.apply)(params, frozen, jnp.ones(3)).consts


def test_many_seeds_at_once_equal_each_seed_alone_priors_included():
    net = network(lambda key: ensemble(key, with_random_prior, 4))
    keys, batch = jax.random.split(KEY, 5), np.random.default_rng(0).normal(size=(7, 3))
    params, frozen = jax.jit(jax.vmap(net.init))(keys)
    together = np.asarray(jax.jit(jax.vmap(net.apply, (0, 0, None)))(params, frozen, batch))
    assert together.shape == (5, 7, 4, 2)
    alone = jax.jit(lambda key: ensemble(key, with_random_prior, 4)(batch))
    for i, key in enumerate(keys):
        np.testing.assert_allclose(together[i], alone(key), rtol=1e-4, atol=1e-5)


def test_the_prior_scale_may_be_traced():
    def value(scale):
        net = network(lambda key: with_random_prior(key, scale))
        return net.apply(*net.init(KEY), jnp.ones(3))

    several = jax.vmap(value)(jnp.array([0.0, 1.0, 2.0]))
    np.testing.assert_allclose(several[2] - several[1], several[1] - several[0], rtol=1e-4)
    assert not np.isclose(several[0], several[1]).any()


def test_a_noisy_layer_is_that_of_its_equation_with_explicit_weights():
    model, key = noisy_mlp(KEY, 6, [], 4), jax.random.key(3)
    layer = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.sin(jnp.arange(leaf.size)).reshape(leaf.shape), model.layers[0])
    x = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    z = np.asarray(noise.normal(key, (10,)), np.float64)
    root = np.sign(z) * np.sqrt(np.abs(z))
    weight = np.asarray(layer.weight) + np.asarray(layer.weight_scale) * np.outer(root[:6], root[6:])
    expected = x @ weight + np.asarray(layer.bias) + np.asarray(layer.bias_scale) * root[6:]
    np.testing.assert_allclose(type(model)((layer,), (6,))(x, key=key), expected, rtol=1e-4, atol=1e-5)


def test_noise_for_many_lanes_makes_no_weights_for_each_of_them():
    model, lanes = noisy_mlp(KEY, 40, [30], 2), 8
    act = jax.vmap(lambda key, x: model(x, key=key))
    program = jax.jit(act).lower(jax.random.split(KEY, lanes), jnp.ones((lanes, 40))).as_text()
    assert "tensor<8x30xf32>" in program
    assert "tensor<8x40x30xf32>" not in program


IMAGE = (2, 36, 44)


def by_hand(model, image):
    """The network of Mnih et al. in plain loops and float64, for one image."""
    x = np.asarray(image, np.float64)
    for layer, stride in zip(model.trunk.layers, (4, 2, 1), strict=True):
        weight, bias = np.asarray(layer.weight, np.float64), np.asarray(layer.bias, np.float64)
        size = weight.shape[-1]
        height, width = ((n - size) // stride + 1 for n in x.shape[1:])
        out = np.zeros((len(weight), height, width))
        for i in range(height):
            for j in range(width):
                patch = x[:, i * stride : i * stride + size, j * stride : j * stride + size]
                out[:, i, j] = (weight * patch).sum((1, 2, 3)) + bias
        x = np.maximum(out, 0)
    x = x.transpose(1, 2, 0).ravel()
    for i, layer in enumerate(model.head.layers):
        x = np.maximum(x, 0) if i else x
        x = x @ np.asarray(layer.weight, np.float64) + np.asarray(layer.bias, np.float64)
    return x


def test_images_go_through_convolutions_and_dense_layers_as_in_plain_loops():
    model = nature_cnn(KEY, IMAGE, 3, hidden=20)
    images = np.random.default_rng(0).integers(256, size=(2, 2, *IMAGE)).astype(np.uint8)
    together = jax.jit(model.__call__)(images)
    assert (together.shape, together.dtype) == ((2, 2, 3), jnp.float32)
    expected = np.array([[by_hand(model, image) for image in row] for row in images])
    np.testing.assert_allclose(together, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    one = jax.jit(model.__call__)(images[0, 1].astype(np.float32))
    np.testing.assert_allclose(one, expected[0, 1], rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_convolutions_have_the_published_shapes_and_start_uniform_within_one_over_the_root_of_their_inputs():
    trunk = nature_convolutions(KEY, (4, 84, 84))
    assert [layer.weight.shape for layer in trunk.layers] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert jax.eval_shape(trunk, jnp.zeros((5, 4, 84, 84))).shape == (5, 3136)
    for layer in trunk.layers:
        bound = 1 / np.sqrt(np.prod(layer.weight.shape[1:]))
        for array in (np.asarray(layer.weight), np.asarray(layer.bias)):
            assert bound * (1 - 10 / array.size) < np.abs(array).max() <= bound
            assert abs((array**2).mean() - bound**2 / 3) < 5 * bound**2 * np.sqrt(4 / 45 / array.size)
    assert nature_cnn(KEY, (4, 84, 84), 6).head.layers[0].weight.shape == (3136, 512)


def test_images_that_convolutions_cannot_read_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"height and width at least 36, for convolutions, got \(4, 84, 35\)"):
        nature_cnn(KEY, (4, 84, 35), 2)
    with pytest.raises(ValueError, match=r"must be \(stack, height, width\) for convolutions, got \(84, 84\)"):
        nature_cnn(KEY, (84, 84), 2)
    with pytest.raises(ValueError, match=r"observation must end in shape \(4, 36, 36\), got shape \(36, 36, 4\)"):
        nature_cnn(KEY, (4, 36, 36), 2)(jnp.zeros((36, 36, 4)))


def test_noisy_dense_layers_sit_on_plain_convolutions():
    model = nature_cnn(KEY, IMAGE, 2, hidden=8, dense=noisy_mlp)
    image = jnp.ones(IMAGE)
    call = jax.jit(lambda key: (model.trunk(image, key=key), model(image, key=key)))
    (features, one), (same, other) = call(jax.random.key(1)), call(jax.random.key(2))
    np.testing.assert_array_equal(features, same)
    assert not np.isclose(one, other).any()


def test_the_gradient_that_reaches_a_shared_trunk_is_scaled_and_nothing_else_is():
    key_trunk, key_head = jax.random.split(KEY)
    heads = lambda num_features: ensemble(key_head, lambda key: mlp(key, num_features, [4], 2), 3)
    whole, third = (over(mlp_features(key_trunk, 3, [5]), heads, gradient_scale=scale) for scale in (1.0, 1 / 3))
    x = jnp.ones((2, 3))
    square = jax.jit(jax.value_and_grad(lambda model: jnp.sum(model(x) ** 2)))
    (value, full), (same, scaled) = square(whole), square(third)
    assert value == same
    for a, b in zip(leaves(full.trunk), leaves(scaled.trunk), strict=True):
        np.testing.assert_allclose(b, a / 3, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), leaves(full.head), leaves(scaled.head))


def test_features_pass_the_last_relu_and_without_layers_are_the_observation_itself():
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    np.testing.assert_array_equal(mlp_features(KEY, 3, [8, 6])(x), np.maximum(mlp(KEY, 3, [8], 6)(x), 0))
    np.testing.assert_array_equal(mlp_features(KEY, (3,), [])(x), x)


def test_logits_of_an_action_lie_side_by_side():
    flat = mlp(KEY, 3, [4], 6)
    logits = categorical(flat, 3)(jnp.ones((5, 3)))
    np.testing.assert_array_equal(logits, flat(jnp.ones((5, 3))).reshape(5, 2, 3))


def quantile_model():
    key_trunk, key_embedding, key_head = jax.random.split(KEY, 3)
    head = lambda num_features: mlp(key_head, num_features, [6], 2)
    return implicit_quantiles(key_embedding, mlp_features(key_trunk, 3, [5]), head, num_fractions=4, num_cosines=7)


def test_quantiles_are_the_head_of_features_times_embedded_fractions():
    model, x = quantile_model(), np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    values, fractions = jax.jit(lambda x, key: model(x, key=key))(x, jax.random.key(1))
    assert (values.shape, fractions.shape) == ((3, 2, 4), (3, 4))
    features, head = np.asarray(model.trunk(x)), jax.jit(model.head.__call__)
    weight, bias = np.asarray(model.embedding.weight), np.asarray(model.embedding.bias)
    for b in range(3):
        for n in range(4):
            embedded = bias.copy()
            for i in range(7):
                embedded += np.cos(np.pi * i * float(fractions[b, n])) * weight[i]
            expected = head(features[b] * np.maximum(embedded, 0))
            np.testing.assert_allclose(values[b, :, n], expected, rtol=1e-4, atol=1e-5)


def test_fractions_are_midpoints_without_a_key_and_uniform_and_fresh_for_each_observation_with_one():
    model = quantile_model()
    np.testing.assert_allclose(model(jnp.ones((2, 3))).fractions, [[0.125, 0.375, 0.625, 0.875]] * 2)
    drawn = np.asarray(jax.jit(lambda key: model(jnp.ones((50, 3)), key=key, num_fractions=40))(KEY).fractions)
    assert drawn.shape == (50, 40)
    assert len(np.unique(drawn)) == 2000
    # Kolmogorov's distance from the uniform law, 99.9% quantile.
    assert np.abs(np.sort(drawn.ravel()) - (np.arange(2000) + 0.5) / 2000).max() < 1.95 / np.sqrt(2000)


def test_an_action_value_network_maps_outputs_to_values():
    net = network(lambda key: categorical(mlp(key, 3, [], 4), 2), lambda logits: logits.max(-1))
    assert net.values(net.apply(*net.init(KEY), jnp.ones((7, 3)))).shape == (7, 2)
    plain = network(lambda key: mlp(key, 3, [], 4))
    outputs = plain.apply(*plain.init(KEY), jnp.ones(3))
    assert plain.values(outputs) is outputs


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: mlp(KEY, 5, [7, 6], 3), (5,)),
        (lambda: nature_cnn(KEY, (2, 36, 36), 3, hidden=8), (2, 36, 36)),
        (lambda: noisy_mlp(KEY, 5, [7], 3), (5,)),
        (lambda: ensemble(KEY, lambda key: with_prior(mlp(key, 5, [7], 3), mlp(key, 5, [4], 3)), 2), (5,)),
    ],
    ids=["mlp", "nature", "noisy", "ensemble with priors"],
)
def test_a_network_without_biases_is_homogeneous_in_its_input(make, shape):
    model = make()
    seen = jax.random.uniform(KEY, (4, *shape))
    for scale_free in (zero_biases(model), he_weights(model)):
        np.testing.assert_allclose(scale_free(seen / 64), scale_free(seen) / 64, rtol=1e-4, atol=1e-6)
        assert np.abs(scale_free(seen)).max() > 0
    assert np.abs(model(seen / 64) - model(seen) / 64).max() > 1e-2


def test_observations_are_divided_by_their_bounds_and_unbounded_ones_compressed():
    model = mlp(KEY, 3, [4], 2)
    wrapped = scaled(model, np.array([2.0, 0.1, np.inf]), (3,))
    observation = jnp.array([[1.0, -0.1, 50.0], [-2.0, 0.0, -1e-3]])
    by_hand = np.stack([[0.5, -1.0, np.arcsinh(50.0)], [-1.0, 0.0, np.arcsinh(-1e-3)]]).astype(np.float32)
    np.testing.assert_allclose(wrapped(observation), model(by_hand), rtol=1e-6)
    assert leaves(partition(wrapped)[0])[0].shape == (3, 4)  # the bound is not trained
    assert len(leaves(partition(wrapped)[1])) == 1
    with pytest.raises(ValueError, match="bound must be positive, got 0"):
        scaled(model, 0.0, (3,))
