"""Cholesky factors and triangular systems of small matrices, in plain JAX operations.

Up to `LARGEST_UNROLLED` rows they are unrolled, which vectorises over a batch of problems; larger ones go to LAPACK.
There is a second reason to unroll. On a CPU, jaxlib 0.10 maps a batch of LAPACK calls over the thread pool that runs
the program itself, and waits for it: two such calls at a time on two cores wait for each other forever. Triangular
systems can be solved in a loop instead, which also vectorises, but is slower for a few large systems.
"""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from feelgood.typing import Array

LARGEST_UNROLLED = 32


def cholesky(matrix: Array) -> Array:
    """The lower triangular L with L Lᵀ = matrix, (d, d); NaN if there is none."""
    d = matrix.shape[-1]
    if d > LARGEST_UNROLLED:
        return jnp.linalg.cholesky(matrix)
    rows = jnp.arange(d)
    columns, rest = [], matrix
    for j in range(d):
        column = jnp.where(rows >= j, rest[:, j] / jnp.sqrt(rest[j, j]), 0)
        columns.append(column)
        rest = rest - column[:, None] * column[None, :]
    factor = jnp.stack(columns, axis=1)
    # The square root of a negative pivot is NaN, a zero pivot divides by zero: either spoils the whole factor.
    return jnp.where(jnp.all(jnp.isfinite(factor)), factor, jnp.nan)


def raised(factor: Array, vector: Array) -> Array:
    """The Cholesky factor of L Lᵀ + v vᵀ, by a rotation of each column of L with v.

    Its error is relative to ‖L‖. That of `cholesky(L Lᵀ + v vᵀ)` is relative to ‖L‖², so in float32 the latter has no
    result once the condition number exceeds about 10⁷.
    """
    rows = jnp.arange(factor.shape[-1])

    def rotate(vector, indexed):
        j, column = indexed
        length = jnp.hypot(column[j], vector[j])
        cosine, sine = column[j] / length, vector[j] / length
        moved = jnp.where(rows >= j, cosine * column + sine * vector, 0)
        return jnp.where(rows > j, cosine * vector - sine * column, 0), moved

    return jax.lax.scan(rotate, vector, (rows, factor.T))[1].T


def solve_lower(factor: Array, right: Array, *, in_loop: bool = False) -> Array:
    """L⁻¹ right, for right of shape (d,) or (d, n); large systems by LAPACK or `in_loop`."""
    d = factor.shape[-1]
    if d > LARGEST_UNROLLED and not in_loop:
        return solve_triangular(factor, right, lower=True)
    return _substitute(factor, right, range(d))


def solve_lower_transposed(factor: Array, right: Array, *, in_loop: bool = False) -> Array:
    """L⁻ᵀ right, for right of shape (d,) or (d, n); large systems by LAPACK or `in_loop`."""
    d = factor.shape[-1]
    if d > LARGEST_UNROLLED and not in_loop:
        return solve_triangular(factor, right, lower=True, trans="T")
    return _substitute(factor.T, right, range(d - 1, -1, -1))


def solve_positive(matrix: Array, right: Array) -> Array:
    """matrix⁻¹ right, for a symmetric positive definite matrix."""
    factor = cholesky(matrix)
    return solve_lower_transposed(factor, solve_lower(factor, right))


def _substitute(factor: Array, right: Array, order: range) -> Array:
    """Solves for the unknowns in this order, taking each out of the equations of the others."""

    def take_out(rest, i):
        solved = rest[i] / factor[i, i]
        column = factor[:, i]
        return rest - (column * solved if right.ndim == 1 else column[:, None] * solved[None, :]), solved

    if len(order) > LARGEST_UNROLLED:
        return jax.lax.scan(take_out, right, jnp.arange(len(order)), reverse=order.step < 0)[1]
    solved: list[Array] = [right] * len(order)
    rest = right
    for i in order:
        rest, solved[i] = take_out(rest, i)
    return jnp.stack(solved)
