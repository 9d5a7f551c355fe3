"""Standard normals for samplers, several times cheaper than `jax.random.normal`.

Each number is an elementwise function of the key and of its own index i, so a draw fuses with the code that uses it:

    (a, b) = Threefry-2x32-13(key, (i, 0))        Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011
    u = (2⌊a/4⌋ + 1)/2³¹ in (0, 1)                midpoints of 2³⁰ equal cells
    t = (2⌊b/2⌋ + 1)/2³¹ in (−1, 1), b signed     midpoints of 2³¹ equal cells
    x = √(−2·ln u)·sin(π·t/2)                     Box and Muller, 1958, one of the two coordinates

Half a circle is enough: sin(π·t/2) has the law of a coordinate of a uniform point on the circle. The other coordinate
is not used: joining both coordinates takes two loops and was measured to be no faster. So every number has a block of
its own, no two share a radius, and a shorter draw is the beginning of a longer one.

Statistics. Thirteen rounds are the fewest for which the authors of Threefry-2x32 know of no statistical flaw (JAX uses
twenty). |x| ≤ √(62·ln 2) = 6.56; the frequency of |x| > z is right to 0.1 % up to z = 5.5 and to 1 % up to z = 6. u and
t are rounded to float32, and from there x has a relative error below 4·10⁻⁷: logarithm and sine are polynomials. The
words are the same on every platform; x can differ in its last bits where compilers fuse multiply and add differently.

Cost. About 2 to 3 ns a number on one x86-64 core with AVX-512 or AVX2, and 8 ns with 128-bit vectors, which is 4 to 7
times faster than `jax.random.normal` on the same core; `benchmarks/noise.py` measures it.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from feelgood.typing import Array, Normal, Params, PRNGKey

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_DTYPES = (jnp.float32, jnp.float16, jnp.bfloat16)
_PARITY = np.uint32(0x1BD11BDA)

# Minimax in relative error, lowest power first. −log₂(1 + f)/f on [−1/2, 0], to 2.3e-8:
_LOG = (-1.4426950, 0.7213372, -0.48142824, 0.3502937, -0.38896894, -0.29364464, -1.8144341, -2.4465399, -2.0790794)
# √(2·ln 2)·sin(π·t/2)/t in powers of t² on [0, 1], to 5.3e-9; the factor turns √(−log₂ u) into √(−2·ln u):
_SIN = (1.8494713, -0.76056415, 0.09382743, -0.0055029397, 0.00017836012)


def normal(key: PRNGKey, shape: tuple[int, ...] = (), dtype=jnp.float32) -> Array:
    """Draws independent standard normals, as `jax.random.normal` does but with other numbers.

    Args:
      key: one key of any JAX generator; only its words are used.
      shape: of the result, at most 2³² numbers.
      dtype: float32, or float16 and bfloat16, which round the float32 draw. For any other type, such as float64,
        `jax.random.normal` is called, at its cost.

    Examples:
      >>> import jax
      >>> normal(jax.random.key(0), (2, 3)).shape
      (2, 3)
    """
    shape, dtype = tuple(shape), jnp.result_type(dtype)
    if dtype not in _DTYPES:
        return jax.random.normal(key, shape, dtype)
    _check_size(math.prod(shape))
    return _normal(key, shape, dtype, np.uint32(0))


_own = normal  # `normal_like` has an argument of the same name


def normal_like(key: PRNGKey, tree: Params, normal: Normal = normal) -> Params:
    """Draws a standard normal for every number in `tree`.

    The draw is one flat vector cut into the leaves, in the order of `jax.flatten_util.ravel_pytree`, so a tree and
    its flat vector receive the same numbers.
    """
    leaves, treedef = jax.tree.flatten(tree)
    if not leaves:
        return tree
    *starts, size = itertools.accumulate((leaf.size for leaf in leaves), initial=0)
    dtype = jnp.result_type(*leaves)
    if normal is _own and dtype in _DTYPES:
        # The same numbers without the vector: the compiler fuses each leaf's loop with its use, but not a slice of one.
        _check_size(size)
        piece = lambda leaf, start: _normal(key, leaf.shape, leaf.dtype, np.uint32(start % 2**32))
    else:
        flat = normal(key, (size,), dtype)
        piece = lambda leaf, start: flat[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype)
    return jax.tree.unflatten(treedef, map(piece, leaves, starts))


def _check_size(size: int) -> None:
    if size > 2**32:
        raise ValueError(f"one key gives at most 2**32 numbers, asked for {size}")


@functools.partial(jax.jit, static_argnums=(1, 2))
def _normal(key: PRNGKey, shape: tuple[int, ...], dtype, start) -> Array:
    """Numbers `start`, `start` + 1, … of the key's stream, in row-major order."""
    # An index built axis by axis keeps the loop elementwise in every shape, where a reshape would cut it in two.
    index, stride = jnp.full(shape, start, jnp.uint32), 1
    for axis in reversed(range(len(shape))):
        index = index + lax.broadcasted_iota(jnp.uint32, shape, axis) * np.uint32(stride % 2**32)
        stride *= shape[axis]
    return normal_at(key_words(key), index).astype(dtype)


def normal_at(words: tuple[Array, Array], index: Array) -> Array:
    """The float32 numbers with the given indices, uint32, of the stream of a key, whose `key_words` are `words`.

    It uses elementwise operations only, so it also runs inside a GPU kernel.
    """
    return _transform(*_threefry(*words, index, jnp.zeros_like(index)))


def key_words(key: PRNGKey) -> tuple[Array, Array]:
    """The two words of a key; longer keys are folded by encrypting each further pair under the words so far."""
    data = jax.random.key_data(key)
    if data.ndim != 1:
        raise ValueError(f"normal takes one key, got an array of shape {key.shape}: use jax.vmap for several")
    # XOR would not do: both halves of an `rbg` key made from a seed are the same.
    first, second = data[0], data[1]
    for i in range(2, data.size, 2):
        first, second = _threefry(first, second, data[i], data[i + 1])
    return first, second


def _threefry(k0: Array, k1: Array, x0: Array, x1: Array, rounds: int = 13) -> tuple[Array, Array]:
    """Encrypts the counter (x0, x1) under the key (k0, k1), in 32-bit words."""
    schedule = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = x0 + k0, x1 + k1
    for i in range(rounds):
        turn = _ROTATIONS[i % 8]
        x0 = x0 + x1
        x1 = ((x1 << turn) | (x1 >> (32 - turn))) ^ x0
        if i % 4 == 3:
            j = i // 4 + 1
            x0, x1 = x0 + schedule[j % 3], x1 + (schedule[(j + 1) % 3] + np.uint32(j))
    return x0, x1


def _transform(a: Array, b: Array) -> Array:
    """One float32 normal from two words."""
    # With u = m·2ᵉ and m in (1/2, 1], −log₂ u is a sum of two terms ≥ 0: nothing cancels, and the root is always real.
    # `half` is the first float above 1/2, so that u = 1 falls on m = 1, e = 0. The scale 2⁻³¹ goes into the exponent.
    half = np.int32(0x3F000001)
    bits = lax.bitcast_convert_type(((a >> 1) | 1).astype(jnp.int32).astype(jnp.float32), jnp.int32)
    bits = bits - (half + np.int32(31 << 23))
    e = (bits >> 23).astype(jnp.float32)
    f = lax.bitcast_convert_type((bits & 0x7FFFFF) + half, jnp.float32) - 1
    t = lax.bitcast_convert_type(b | 1, jnp.int32).astype(jnp.float32) * np.float32(2.0**-31)
    return jnp.sqrt(f * _polynomial(_LOG, f) - e) * (t * _polynomial(_SIN, t * t))


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Horner's rule: every product meets one sum, so there is one way only to fuse them and vmap changes no bit."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + np.float32(coefficient)
    return value
