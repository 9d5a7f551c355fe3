"""The search for the cheapest run of a sampler, against exact laws and brute force."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from feelgood.linear import complexity
from feelgood.samplers import diagnostics


def test_the_spectrum_is_even_in_the_logarithm():
    np.testing.assert_allclose(complexity.spectrum(100, 3), [1, 10, 100])
    np.testing.assert_allclose(complexity.spectrum(100, 1), [1])
    with pytest.raises(ValueError, match=r"condition must be at least 1, got 0.5"):
        complexity.spectrum(0.5, 3)


@pytest.mark.parametrize("name", complexity.SCHEMES)
@pytest.mark.parametrize("num_steps", [1, 7, 300])
def test_laws_of_candidates_are_those_of_the_recursion(name, num_steps):
    curvature, offset = np.array([0.5, 2.0, 9.0]), np.array([1.0, -0.5, 0.3])
    scheme = complexity.SCHEMES[name]
    with jax.enable_x64(True):
        candidates = complexity._candidates(
            scheme, curvature, np.array([0.02, 0.05]), np.array([1.0, 2.0 * math.sqrt(2)])
        )
        shift, scale = complexity._laws(candidates, curvature, offset, num_steps)
        assert len(shift) == 4
        for i in range(4):
            kernel = scheme.kernel(candidates.step_size[i], candidates.friction[i])
            law = diagnostics.law_after(kernel, jnp.zeros(3), jnp.diag(curvature), num_steps, jnp.asarray(offset))
            np.testing.assert_allclose(shift[i], np.sqrt(curvature) * law.mean, atol=1e-9)
            np.testing.assert_allclose(scale[i] ** 2, curvature * np.diagonal(law.covariance), rtol=1e-6, atol=1e-9)


def test_unstable_steps_are_no_candidates():
    with jax.enable_x64(True):
        candidates = complexity._candidates(
            complexity.SCHEMES["lmc"], np.array([1.0, 10.0]), np.array([0.1, 0.199, 0.201, 1.0]), np.zeros(1)
        )
    np.testing.assert_allclose(candidates.step_size, [0.1, 0.199])


def test_one_step_is_enough_from_nearby_in_one_dimension():
    """One step of LMC with τ = ½ from the mean is N(0, 1) itself, and from 1 it is N(½, 1)."""
    need = complexity.gradients_needed(complexity.SCHEMES["lmc"], np.ones(1), np.zeros(1), 1e-3)
    assert need.num_gradients == 1
    assert need.step_size == pytest.approx(0.5, abs=1e-3)
    target = 2 * stats.norm.cdf(0.25) - 1
    assert complexity.gradients_needed(complexity.SCHEMES["lmc"], np.ones(1), np.ones(1), target).num_gradients == 1
    assert complexity.gradients_needed(complexity.SCHEMES["lmc"], np.ones(1), np.ones(1), target / 4).num_gradients > 1


def error_of(kernel, curvature, offset, num_steps):
    zeros = jnp.zeros(curvature.size)
    law = diagnostics.law_after(kernel, zeros, jnp.diag(curvature), num_steps, jnp.asarray(offset))
    return diagnostics.total_variation(law, diagnostics.target_law(zeros, jnp.diag(curvature), 1.0))


def test_the_least_number_of_gradients_is_that_of_brute_force():
    curvature = complexity.spectrum(10, 3)
    offset = 1 / np.sqrt(curvature)
    need = complexity.gradients_needed(complexity.SCHEMES["lmc"], curvature, offset, 0.15, tolerance=0)
    with jax.enable_x64(True):
        error = jax.jit(
            jax.vmap(lambda tau, n: error_of(diagnostics.langevin_kernel(tau, 1.0), curvature, offset, n), (0, None))
        )
        step_sizes = jnp.append(jnp.linspace(0.005, 0.195, 100), need.step_size)
        one_less, reached = (np.asarray(error(step_sizes, need.num_gradients - i)) for i in (1, 0))
    assert one_less.min() > 0.15
    assert need.total_variation == pytest.approx(reached[-1], abs=1e-8)
    assert need.total_variation <= min(0.15, reached.min() + 1e-3)


@pytest.mark.slow
def test_friction_is_searched_too():
    curvature = complexity.spectrum(30, 4)
    offset = 1 / np.sqrt(curvature)
    scheme = complexity.SCHEMES["baoab"]
    free = complexity.gradients_needed(scheme, curvature, offset, 0.1, tolerance=0)
    needs = [
        complexity.gradients_needed(scheme, curvature, offset, 0.1, friction=friction, tolerance=0)
        for friction in (1.0, 5.5)
    ]
    assert [need.friction for need in needs] == [1.0, 5.5]
    assert free.num_gradients <= min(need.num_gradients for need in needs)
    assert needs[1].num_gradients > 1.5 * free.num_gradients
    with jax.enable_x64(True):
        kernel = diagnostics.underdamped_splitting_kernel(free.step_size, free.friction, 1.0)
        assert free.total_variation == pytest.approx(
            float(error_of(kernel, curvature, offset, free.num_gradients)), abs=1e-8
        )


def test_more_accuracy_costs_more_and_the_tolerance_is_kept():
    curvature = complexity.spectrum(30, 4)
    lmc = complexity.SCHEMES["lmc"]
    needs = [complexity.gradients_needed(lmc, curvature, 1 / np.sqrt(curvature), e, tolerance=0) for e in (0.2, 0.05)]
    rough = complexity.gradients_needed(lmc, curvature, 1 / np.sqrt(curvature), 0.05, tolerance=0.05)
    assert needs[0].num_gradients < needs[1].num_gradients / 2
    assert needs[1].num_gradients <= rough.num_gradients <= 1.06 * needs[1].num_gradients


def test_targets_out_of_reach_are_named():
    with pytest.raises(ValueError, match=r"target 0.01 is not reached within limit=8 gradients"):
        complexity.gradients_needed(complexity.SCHEMES["lmc"], complexity.spectrum(30, 4), np.ones(4), 0.01, limit=8)
    with pytest.raises(ValueError, match=r"target must be a total variation below 1, got 1.5"):
        complexity.gradients_needed(complexity.SCHEMES["lmc"], np.ones(1), np.ones(1), 1.5)


def test_a_sweep_has_one_row_for_each_setting():
    rows = complexity.sweep(
        ["lmc"], conditions=(2, 4, 8), dimensions=(2, 3), errors=(0.2,), base=(4, 2, 0.3), shift=2.0, tolerance=0
    )
    settings = [(row["varied"], row["condition"], row["dimension"], row["error"]) for row in rows]
    assert settings == [
        ("condition", 2, 2, 0.3),
        ("condition", 4, 2, 0.3),
        ("condition", 8, 2, 0.3),
        ("dimension", 4, 2, 0.3),
        ("dimension", 4, 3, 0.3),
        ("error", 4, 2, 0.2),
    ]
    curvature = complexity.spectrum(2, 2)
    need = complexity.gradients_needed(complexity.SCHEMES["lmc"], curvature, 2 / np.sqrt(curvature), 0.3, tolerance=0)
    assert {key: rows[0][key] for key in need._fields} == need._asdict()
    assert rows[1]["num_gradients"] == rows[3]["num_gradients"]
    with pytest.raises(ValueError, match="did you mean 'ulmc'"):
        complexity.sweep(["ulmcc"])


def test_friction_of_a_sweep_is_in_units_of_the_steepest_frequency():
    rows = complexity.sweep(["baoab"], conditions=(9,), dimensions=(), errors=(), base=(9, 2, 0.3), friction=0.5)
    assert rows[0]["friction"] == pytest.approx(1.5)


def test_exponents_of_rows_that_follow_a_power_law():
    rows = [{"scheme": "lmc", "varied": "condition", "condition": k, "num_gradients": 5 * k**2} for k in (1, 2, 4, 8)]
    rows += [{"scheme": "lmc", "varied": "error", "error": e, "num_gradients": 3 / e} for e in (0.1, 0.2, 0.4)]
    rows += [{"scheme": "ulmc", "varied": "dimension", "dimension": d, "num_gradients": 7 * d**0.5} for d in (1, 4, 9)]
    rows += [{"scheme": "baoab", "varied": "error", "error": e, "num_gradients": 1} for e in (0.1, 0.2)]
    ours = {(row["scheme"], row["varied"]): row for row in complexity.exponents(rows)}
    assert set(ours) == {("lmc", "condition"), ("lmc", "error"), ("ulmc", "dimension")}
    for key, exponent, theorem in (
        (("lmc", "condition"), 2, 2),
        (("lmc", "error"), 1, 2),
        (("ulmc", "dimension"), 0.5, 0.5),
    ):
        row = ours[key]
        assert (row["low"], row["exponent"], row["high"], row["theorem"]) == pytest.approx((exponent,) * 3 + (theorem,))


def test_confidence_intervals_cover_the_exponent():
    """The interval holds the exponent of a power law with lognormal scatter in about 95 of 100 repetitions."""
    rng = np.random.default_rng(0)
    x = np.geomspace(1, 100, 5)
    covered = 0
    for _ in range(400):
        rows = [
            {"scheme": "lmc", "varied": "condition", "condition": k, "num_gradients": k * math.exp(0.3 * z)}
            for k, z in zip(x, rng.normal(size=5), strict=True)
        ]
        row = complexity.exponents(rows)[0]
        covered += row["low"] <= 1 <= row["high"]
    # Four standard errors of a binomial are 4.4%.
    assert 0.906 < covered / 400 < 0.994


def test_a_splitting_scheme_needs_far_fewer_gradients_than_langevin_on_gaussians():
    """The positions of BAOAB have no bias there: with the condition number κ it costs √κ where LMC costs κ."""
    rows = complexity.sweep(["lmc", "baoab"], conditions=(10, 40, 160), dimensions=(), errors=(), base=(10, 4, 0.1))
    exponents = {row["scheme"]: row["exponent"] for row in complexity.exponents(rows)}
    assert exponents["lmc"] == pytest.approx(1, abs=0.2)
    assert exponents["baoab"] == pytest.approx(0.5, abs=0.15)
