"""Small linear algebra against NumPy: unrolled, in a loop, and by LAPACK."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import algebra


@pytest.mark.parametrize(("d", "in_loop"), [(1, False), (2, True), (7, False), (33, False), (33, True)])
def test_factors_and_solutions_are_those_of_numpy(d, in_loop):
    rng = np.random.default_rng(d)
    root = rng.normal(size=(5, d, 2 * d))
    matrices, vectors, tables = root @ root.transpose(0, 2, 1), rng.normal(size=(5, d)), rng.normal(size=(5, d, 3))

    @jax.jit
    @jax.vmap
    def ours(matrix, *rights):
        factor = algebra.cholesky(matrix)
        lower = [algebra.solve_lower(factor, right, in_loop=in_loop) for right in rights]
        transposed = [algebra.solve_lower_transposed(factor, right, in_loop=in_loop) for right in rights]
        return factor, lower, transposed, [algebra.solve_positive(matrix, right) for right in rights]

    with jax.enable_x64(True):
        factors, *solutions = ours(*(jnp.asarray(x) for x in (matrices, vectors, tables)))
    np.testing.assert_allclose(factors, np.linalg.cholesky(matrices), rtol=1e-9, atol=1e-11)
    factors = np.asarray(factors)
    for system, found in zip((factors, factors.transpose(0, 2, 1), matrices), solutions, strict=True):
        for one, numbers in zip(found, (vectors[..., None], tables), strict=True):
            theirs = np.linalg.solve(system, numbers)
            np.testing.assert_allclose(one, theirs.reshape(one.shape), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("matrix", [[[1.0, 2.0], [2.0, 1.0]], [[0.0, 0.0], [0.0, 1.0]], [[np.nan, 0.0], [0.0, 1.0]]])
def test_matrices_without_a_factor_give_none(matrix):
    assert jnp.isnan(algebra.cholesky(jnp.asarray(matrix))).all()


@pytest.mark.parametrize("d", [1, 2, 40])
def test_a_raised_factor_is_that_of_the_sum(d):
    rng = np.random.default_rng(d)
    root, vectors = rng.normal(size=(5, d, 2 * d)), rng.normal(size=(5, d))
    matrices = root @ root.transpose(0, 2, 1)
    with jax.enable_x64(True):
        ours = jax.vmap(algebra.raised)(jnp.asarray(np.linalg.cholesky(matrices)), jnp.asarray(vectors))
    theirs = np.linalg.cholesky(matrices + vectors[:, :, None] * vectors[:, None, :])
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)
