"""Standard normals: their law, their independence, their bits.

Every statistical bound is a p-value of at least 1e-5 at a fixed seed, from the law of the statistic under independent
standard normals.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from scipy import special, stats

from feelgood import noise
from feelgood.noise import normal, normal_like

P_VALUE = 1e-5
SIGMAS = stats.norm.isf(P_VALUE / 2)
KEY = jax.random.key(20)


def random_words(seed: int, count: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return list(rng.integers(0, 2**32, (count, size), dtype=np.uint32))


@functools.cache
def big_draw() -> np.ndarray:
    return np.asarray(normal(KEY, (2**22,)))


block = jax.jit(noise._threefry, static_argnames="rounds")
transform = jax.jit(noise._transform)


def per_key(keys, size: int) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(lambda key: normal(key, (size,))))(keys))


# The words.


@pytest.mark.parametrize(
    ("rounds", "counter", "key", "words"),
    [
        (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
        (13, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0xFD36D048, 0x2D17272C)),
        (13, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xBA3E4725, 0xF27D669E)),
        (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        (20, (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        (20, (0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_blocks_agree_with_the_published_vectors_of_random123(rounds, counter, key, words):
    inputs = [jnp.uint32(word) for word in (*key, *counter)]
    assert tuple(int(word) for word in block(*inputs, rounds=rounds)) == words


def test_normals_are_made_from_thirteen_rounds_at_their_own_index():
    index = jnp.arange(1000, dtype=jnp.uint32)
    k0, k1 = jax.random.key_data(KEY)
    blocks = block(k0, k1, index, jnp.zeros_like(index), rounds=13)
    np.testing.assert_array_equal(normal(KEY, (1000,)), transform(*blocks))


def test_flipping_any_bit_of_key_or_index_flips_every_output_bit_half_of_the_time():
    # Small keys and small indices: the inputs that samplers use, and the hardest to mix.
    size = 2**12
    base = [word >> np.uint32(16) for word in random_words(0, 2, size)] + [np.arange(size, dtype=np.uint32)]
    zero = np.zeros(size, np.uint32)
    reference = np.stack(block(*base, zero))
    for word, bit in itertools.product(range(3), range(32)):
        flipped = list(base)
        flipped[word] = flipped[word] ^ np.uint32(1 << bit)
        difference = np.stack(block(*flipped, zero)) ^ reference
        flips = np.unpackbits(difference.view(np.uint8).reshape(2, size, 4), axis=2).sum(1)
        z = (flips - size / 2) / math.sqrt(size / 4)
        assert np.abs(z).max() < stats.norm.isf(P_VALUE / 2 / (96 * 64)), (word, bit)


# The transform.


def test_transform_is_accurate_to_float32():
    a, b = random_words(1, 2, 2**19)
    shift = random_words(2, 1, 2**19)[0] % 31
    a = np.concatenate([a, a >> shift, ~(a >> shift), a])  # everywhere, far tail, tiny radius, tiny sine
    b = np.concatenate([b, b, b, b >> shift])
    u = ((a >> 1) | 1).astype(np.float32).astype(np.float64) / 2**31
    t = (b | 1).view(np.int32).astype(np.float32).astype(np.float64) / 2**31
    exact = np.sqrt(-2 * np.log(u)) * np.sin(np.pi / 2 * t)
    np.testing.assert_allclose(transform(a, b), exact, rtol=4e-7, atol=0)


def test_every_extreme_word_gives_a_finite_number():
    words = np.unique(np.array([[2**k - 1, 2**k, 2**32 - 2**k, 2**32 - 2**k - 1] for k in range(32)]) % 2**32)
    a, b = (word.ravel().astype(np.uint32) for word in np.meshgrid(words, words))
    x = np.asarray(transform(a, b))
    assert np.isfinite(x).all()
    assert np.abs(x).max() == pytest.approx(math.sqrt(62 * math.log(2)), rel=1e-6)


@pytest.mark.parametrize(("sigma", "rtol"), [(5.0, 1e-3), (5.5, 1e-3), (6.0, 1e-2)])
def test_tails_have_the_right_frequency_by_enumeration(sigma, rtol):
    # All cells of u that can reach sigma, times a fine grid of t.
    cells = int(math.exp(-(sigma**2) / 2) * 2**30) + 2
    a = 4 * np.arange(cells, dtype=np.uint32)
    grid = 2**24 // cells
    b = ((np.arange(grid) + 0.5) * (2**32 / grid)).astype(np.uint32)
    beyond = jax.jit(lambda a, b: (jnp.abs(noise._transform(a, b)) > sigma).sum())(a[:, None], b[None])
    assert int(beyond) / grid / 2**30 == pytest.approx(2 * stats.norm.sf(sigma), rel=rtol)


# The law.


def test_moments_to_order_eight_are_those_of_a_standard_normal():
    x = big_draw().astype(np.float64)
    power = np.ones_like(x)
    for order in range(1, 9):
        power *= x
        mean = 0 if order % 2 else special.factorial2(order - 1)
        error = math.sqrt((special.factorial2(2 * order - 1) - mean**2) / x.size)
        assert abs(power.mean() - mean) < SIGMAS * error, order


def test_draws_pass_kolmogorov_smirnov():
    assert stats.kstest(big_draw()[: 2**20], "norm").pvalue > P_VALUE


def test_draws_fill_cells_of_equal_probability_equally():
    counts = np.bincount((special.ndtr(big_draw().astype(np.float64)) * 4096).astype(int), minlength=4096)
    assert stats.chisquare(counts).pvalue > P_VALUE


def test_tails_have_the_right_frequency_by_counting():
    levels, draws, size = np.array([3, 4, 5]), 16, 2**22
    counts = np.zeros(3, int)
    for key in jax.random.split(KEY, draws):
        far = np.abs(np.asarray(normal(key, (size,))))
        far = far[far > 3]
        counts += (far[:, None] > levels).sum(0)
    for level, seen in zip(levels, counts, strict=True):
        law = stats.binom(size * draws, 2 * stats.norm.sf(level))
        assert law.ppf(P_VALUE / 2) <= seen <= law.isf(P_VALUE / 2), level


def test_positive_and_negative_numbers_are_equally_frequent():
    positive = int((big_draw() > 0).sum())
    assert abs(positive - 2**21) < SIGMAS * math.sqrt(2**22 / 4)


# Independence.


def assert_independent(x: np.ndarray, y: np.ndarray) -> None:
    """Correlations of the numbers and of their squares, and the joint law on 16 x 16 cells of equal probability."""
    x, y = np.ravel(x).astype(np.float64), np.ravel(y).astype(np.float64)
    hx, hy = (x**2 - 1) / math.sqrt(2), (y**2 - 1) / math.sqrt(2)  # normalised Hermite polynomials
    for left, right in ((x, y), (hx, hy), (x, hy), (hx, y)):
        assert abs(left @ right) < SIGMAS * math.sqrt(x.size)
    cell = (special.ndtr(x) * 16).astype(int) * 16 + (special.ndtr(y) * 16).astype(int)
    assert stats.chisquare(np.bincount(cell, minlength=256)).pvalue > P_VALUE


@pytest.mark.parametrize("lag", [1, 2, 3, 64, 2**15, 2**19, 2**20])
def test_coordinates_of_one_draw_are_independent(lag):
    x = big_draw()[: 2**20 + lag]
    assert_independent(x[:-lag], x[lag:])


def test_the_halves_of_a_draw_of_odd_size_are_independent():
    x = np.asarray(normal(jax.random.key(5), (2**20 + 1,)))
    assert_independent(x[: 2**19], x[-(2**19) :])
    assert_independent(x[: 2**19], x[: -(2**19) - 1 : -1])


KEYS = {
    "split": lambda: jax.random.split(KEY, 1024),
    "sequential": lambda: jax.vmap(jax.random.key)(jnp.arange(1024)),
    "sequential in the first word": lambda: jax.random.wrap_key_data(
        jnp.stack([jnp.arange(1024, dtype=jnp.uint32), jnp.zeros(1024, jnp.uint32)], axis=1), impl="threefry2x32"
    ),
    "fold_in": lambda: jax.vmap(functools.partial(jax.random.fold_in, KEY))(jnp.arange(1024)),
    "sequential rbg": lambda: jax.vmap(functools.partial(jax.random.key, impl="rbg"))(jnp.arange(1024)),
    "split rbg": lambda: jax.random.split(jax.random.key(0, impl="rbg"), 1024),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS.keys())
def test_draws_of_different_keys_are_independent(keys):
    x = per_key(keys(), 1024)
    assert_independent(x[:-1], x[1:])
    assert_independent(x[:-1, :-1], x[1:, 1:])
    # A component shared by all keys, or by all coordinates, however small, adds up here.
    for axis in (0, 1):
        assert stats.kstest(x.sum(axis) / 32, "norm").pvalue > P_VALUE
        assert stats.kstest((x**2).sum(axis), stats.chi2(1024).cdf).pvalue > P_VALUE
        assert stats.kstest((x * np.resize([1, -1], 1024)[:, None]).sum(axis) / 32, "norm").pvalue > P_VALUE


def test_draws_of_keys_that_differ_in_one_bit_are_independent():
    words = np.tile(np.array([[3, 5]], np.uint32), (65, 1))
    for i in range(64):
        words[i + 1, i // 32] ^= np.uint32(1 << i % 32)
    x = per_key(words, 2**14)
    for flipped in x[1:]:
        assert_independent(x[0], flipped)


def test_steps_of_a_scan_are_independent():
    def step(key, _):
        key, subkey = jax.random.split(key)
        return key, normal(subkey, (2048,))

    x = np.asarray(jax.jit(lambda key: jax.lax.scan(step, key, length=256)[1])(KEY))
    assert_independent(x[:-1], x[1:])


def test_eight_consecutive_numbers_fill_the_orthants_equally():
    signs = (big_draw() > 0).reshape(-1, 8) @ (2 ** np.arange(8))
    assert stats.chisquare(np.bincount(signs, minlength=256)).pvalue > P_VALUE


# Keys, shapes, types.


def test_the_same_key_gives_the_same_bits():
    np.testing.assert_array_equal(normal(KEY, (1001,)), normal(KEY, (1001,)))
    np.testing.assert_array_equal(normal(KEY, (1001,)), jax.jit(lambda key: normal(key, (1001,)))(KEY))
    assert (normal(KEY, (1001,)) != normal(jax.random.key(21), (1001,))).all()


@pytest.mark.parametrize("shape", [(7,), (33, 31)])
def test_vmap_over_keys_gives_the_bits_of_a_loop_over_keys(shape):
    keys = jax.random.split(KEY, 9)
    loop = np.stack([normal(key, shape) for key in keys])
    draw = lambda key: normal(key, shape)
    np.testing.assert_array_equal(jax.jit(jax.vmap(draw))(keys), loop)
    np.testing.assert_array_equal(jax.vmap(jax.vmap(draw))(keys.reshape(3, 3)).reshape(loop.shape), loop)
    # A compiled loop may fuse a product and a sum into one rounding.
    np.testing.assert_array_max_ulp(np.asarray(jax.lax.map(draw, keys)), loop, maxulp=2)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7,), (3, 5), (2, 3, 5)])
def test_every_shape_holds_the_first_numbers_of_the_stream_in_row_major_order(shape):
    x = normal(KEY, shape)
    assert x.shape == shape
    assert x.dtype == jnp.float32
    np.testing.assert_array_equal(x.ravel(), normal(KEY, (100,))[: x.size])


def test_two_to_the_32_numbers_are_allowed_and_no_more():
    for shape in ((2**32,), (2**16, 2**16), (1, 2**32)):
        assert jax.eval_shape(lambda key, shape=shape: normal(key, shape), KEY).shape == shape
    too_many = jax.ShapeDtypeStruct((2**16, 2**16 + 1), jnp.float32)
    with pytest.raises(ValueError, match="at most 2\\*\\*32"):
        normal(KEY, too_many.shape)
    with pytest.raises(ValueError, match="at most 2\\*\\*32"):
        normal_like(KEY, [too_many])


def test_the_last_numbers_of_the_stream_use_the_last_indices():
    index = jnp.arange(2**32 - 6, 2**32, dtype=jnp.uint32)
    k0, k1 = jax.random.key_data(KEY)
    last = transform(*block(k0, k1, index, jnp.zeros_like(index)))
    np.testing.assert_array_equal(noise._normal(KEY, (2, 3), jnp.dtype("float32"), np.uint32(2**32 - 6)).ravel(), last)


@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_old_and_new_keys_give_the_same_numbers(seed):
    np.testing.assert_array_equal(
        normal(jax.random.PRNGKey(seed), (9,)), normal(jax.random.key(seed, impl="threefry2x32"), (9,))
    )


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_every_word_of_a_long_key_counts(impl):
    words = np.array([1, 2, 3, 4], np.uint32)
    keys = [jax.random.wrap_key_data(words ^ (np.arange(4) == i).astype(np.uint32), impl=impl) for i in range(5)]
    draws = np.stack([normal(key, (50,)) for key in keys])
    for x, y in itertools.combinations(draws, 2):
        assert (x != y).all()


def test_an_array_of_keys_is_refused():
    for keys in (jax.random.split(KEY, 3), jax.random.split(jax.random.PRNGKey(0), 3)):
        with pytest.raises(
            (TypeError, ValueError)
        ):  # from the run-time types where they are checked, else from `normal`
            normal(keys, (2,))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_types_round_the_float32_draw(dtype):
    x = normal(KEY, (1000,), dtype)
    assert x.dtype == dtype
    np.testing.assert_array_equal(x, normal(KEY, (1000,)).astype(dtype))


def test_float64_is_jax_random_normal_and_float32_does_not_depend_on_x64():
    with jax.enable_x64(False):
        single = np.asarray(normal(KEY, (1000,)))
        np.testing.assert_array_equal(normal(KEY, (1000,), float), single)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(normal(KEY, (1000,)), single)
        double = normal(KEY, (1000,), jnp.float64)
        assert double.dtype == jnp.float64
        np.testing.assert_array_equal(double, jax.random.normal(KEY, (1000,), jnp.float64))


def test_an_integer_type_is_refused():
    with pytest.raises(ValueError, match="dtype"):
        normal(KEY, (3,), jnp.int32)


# Trees.

TREE = {"w": jnp.zeros((13, 7)), "b": jnp.zeros(7), "deep": [jnp.zeros(()), jnp.zeros((0, 3)), jnp.zeros((2, 1, 5))]}


@pytest.mark.parametrize("draw", [normal, jax.random.normal])
def test_a_tree_and_its_flat_vector_receive_the_same_numbers(draw):
    flat = ravel_pytree(TREE)[0]
    tree = normal_like(KEY, TREE, draw)
    assert jax.tree.map(jnp.shape, tree) == jax.tree.map(jnp.shape, TREE)
    expected = draw(KEY, flat.shape, flat.dtype)
    np.testing.assert_array_equal(ravel_pytree(tree)[0], expected)
    np.testing.assert_array_equal(normal_like(KEY, flat, draw), expected)
    compiled = jax.jit(lambda key: ravel_pytree(normal_like(key, TREE, draw))[0])(KEY)
    np.testing.assert_array_equal(compiled, expected)


@pytest.mark.parametrize("draw", [normal, jax.random.normal])
def test_every_leaf_keeps_its_type(draw):
    tree = [jnp.zeros(5, jnp.bfloat16), jnp.zeros(6, jnp.float32), jnp.zeros(4, jnp.float16)]
    flat = draw(KEY, (15,), jnp.float32)
    for leaf, like, part in zip(normal_like(KEY, tree, draw), tree, jnp.split(flat, [5, 11]), strict=True):
        assert leaf.dtype == like.dtype
        np.testing.assert_array_equal(leaf, part.astype(like.dtype))


def test_a_tree_of_doubles_is_drawn_in_doubles():
    with jax.enable_x64(True):
        tree = [jnp.zeros(3, jnp.float64), jnp.zeros(2, jnp.float32)]
        first, second = normal_like(KEY, tree)
        flat = jax.random.normal(KEY, (5,), jnp.float64)
        assert (first.dtype, second.dtype) == (jnp.float64, jnp.float32)
        np.testing.assert_array_equal(first, flat[:3])
        np.testing.assert_array_equal(second, flat[3:].astype(jnp.float32))


def test_an_empty_tree_stays_empty():
    assert normal_like(KEY, {}) == {}
