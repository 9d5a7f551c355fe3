"""Distances are compared with formulas and integrals that share nothing with their implementation."""

import functools
import itertools

import hypothesis
import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.stats
from hypothesis import strategies as st

from feelgood.samplers import diagnostics

# Compiled once per dimension.
kl = jax.jit(diagnostics.kl)
wasserstein2 = jax.jit(diagnostics.wasserstein2)
total_variation = jax.jit(diagnostics.total_variation)


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


def random_law(seed, d, spread=1.0):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(d, 2 * d))
    return spread * rng.normal(size=d), factor @ factor.T / (2 * d)


def line_law(mean, deviation):
    return np.array([mean], float), np.array([[deviation]], float) ** 2


def log_density(law, x):
    return scipy.stats.multivariate_normal(*law).logpdf(x)


def variation_on_the_line(mean, deviation):
    """|P(I) − Q(I)| for Q = N(0, 1) and I the interval between the two points where the densities cross."""
    if deviation == 1:
        return 2 * scipy.stats.norm.cdf(abs(mean) / 2) - 1
    precision = deviation**-2
    # ½(1 − λ)x² + λm x − ½λm² − log σ = 0, with the root that cancels obtained from the product of both.
    a, b, c = (1 - precision) / 2, precision * mean, -precision * mean**2 / 2 - np.log(deviation)
    large = -(b + np.copysign(np.sqrt(b**2 - 4 * a * c), b)) / 2
    low, high = sorted([large / a, c / large])
    ours = scipy.stats.norm.cdf([low, high], mean, deviation)
    theirs = scipy.stats.norm.cdf([low, high])
    return abs((ours[1] - ours[0]) - (theirs[1] - theirs[0]))


@pytest.mark.parametrize("mean", [0.0, 1e-6, 1e-3, 0.1, 1.0, 3.0, 10.0, 1e3])
@pytest.mark.parametrize("deviation", [1e-6, 1e-2, 0.5, 0.9, 0.999, 1.0, 1.001, 1.1, 3.0, 1e2, 1e6])
def test_total_variation_on_the_line_is_the_two_crossing_formula(mean, deviation):
    value = total_variation(line_law(mean, deviation), line_law(0.0, 1.0))
    np.testing.assert_allclose(value, variation_on_the_line(mean, deviation), rtol=0, atol=1e-12)


STANDARD = np.zeros(2), np.eye(2)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (random_law(0, 2), random_law(100, 2)),
        (random_law(1, 2), random_law(101, 2)),
        ((np.array([0.3, 0.05]), np.diag([1.5, 0.99])), STANDARD),
    ],
)
def test_total_variation_in_the_plane_is_the_integral_over_it(p, q):
    # In polar coordinates whitened by q, min(p, q)/q = min(e^{ℓ(r)}, 1) with ℓ quadratic along every ray.
    root = np.linalg.cholesky(q[1])
    mean = np.linalg.solve(root, p[0] - q[0])
    precision = np.linalg.inv(np.linalg.solve(root, np.linalg.solve(root, p[1]).T))

    def log_ratio_coefficients(angle):
        ray = np.array([np.cos(angle), np.sin(angle)])
        constant = (np.linalg.slogdet(precision)[1] - mean @ precision @ mean) / 2
        return (1 - ray @ precision @ ray) / 2, ray @ precision @ mean, constant

    def overlap_along(angle):
        a, b, c = log_ratio_coefficients(angle)
        roots = np.roots([a, b, c])
        cuts = sorted({0.0, 12.0, *(x.real for x in roots if abs(x.imag) < 1e-12 and 0 < x.real < 12)})
        pieces = itertools.pairwise(cuts)

        def integrand(r):
            return r * np.exp(np.minimum(a * r**2 + b * r + c, 0) - r**2 / 2)

        return sum(scipy.integrate.fixed_quad(integrand, low, high, n=60)[0] for low, high in pieces) / (2 * np.pi)

    overlap, _ = scipy.integrate.quad(overlap_along, 0, 2 * np.pi, epsabs=1e-10, epsrel=1e-10, limit=400)
    np.testing.assert_allclose(total_variation(p, q), 1 - overlap, rtol=0, atol=1e-8)


@pytest.mark.parametrize("deviations", [(2.0, 0.5), (0.7, 0.999), (12.6, 1.009), (1e-3, 40.0)])
def test_total_variation_between_centred_laws_in_the_plane_is_an_integral_over_the_angle(deviations):
    # The hardest kind: modes that act on different scales, or that turn M in opposite senses.
    log_height = -np.log(np.prod(deviations))

    def overlap_along(angle):
        # p and q fall off along a ray like e^{c − λr²/2} and e^{−r²/2}; they cross where r² = 2c/(λ − 1).
        decay = (np.cos(angle) / deviations[0]) ** 2 + (np.sin(angle) / deviations[1]) ** 2
        total = np.exp(log_height) / decay
        crossing = log_height / (decay - 1)
        if crossing <= 0:
            return min(total, 1)
        inner, outer = 1 - np.exp(-crossing), total * np.exp(-decay * crossing)
        return inner + outer if decay > 1 else total - outer + 1 - inner

    equal = [np.arctan(np.sqrt(x)) for x in [(deviations[0] ** -2 - 1) / (1 - deviations[1] ** -2)] if x > 0]
    overlap, _ = scipy.integrate.quad(overlap_along, 0, np.pi / 2, points=equal, epsabs=1e-13, epsrel=0, limit=1000)
    value = total_variation((np.zeros(2), np.diag(deviations) ** 2), STANDARD)
    np.testing.assert_allclose(value, 1 - overlap / (np.pi / 2), rtol=0, atol=1e-11)


@pytest.mark.parametrize("d", [1, 5, 50])
@pytest.mark.parametrize("distance", [1e-9, 1e-3, 0.5, 2.0, 8.0, 40.0])
def test_total_variation_between_laws_of_equal_covariance_depends_on_their_distance_alone(d, distance):
    mean, covariance = random_law(d, d)
    direction = np.random.default_rng(d + 1).normal(size=d)
    direction *= distance / np.sqrt(direction @ np.linalg.solve(covariance, direction))
    value = total_variation((mean + direction, covariance), (mean, covariance))
    np.testing.assert_allclose(value, 2 * scipy.stats.norm.cdf(distance / 2) - 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", [2, 10, 100])
@pytest.mark.parametrize("ratio", [0.9, 1.001, 1.3, 4.0])
def test_total_variation_between_centred_balls_is_a_difference_of_chi_squares(d, ratio):
    # N(0, ρI) is the denser one where |x|² < dρ log ρ / (ρ − 1).
    squared_radius = d * ratio * np.log(ratio) / (ratio - 1)
    expected = abs(scipy.stats.chi2.cdf(squared_radius, d) - scipy.stats.chi2.cdf(squared_radius / ratio, d))
    value = total_variation((np.zeros(d), ratio * np.eye(d)), (np.zeros(d), np.eye(d)))
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_total_variation_in_ten_dimensions_is_the_mean_shortfall_of_the_density_ratio(seed):
    q = random_law(seed, 10)
    other = random_law(seed + 50, 10)
    p = q[0] + 0.2 * other[0], 0.7 * q[1] + 0.3 * other[1]
    draws = np.random.default_rng(seed).multivariate_normal(*q, 200_000)
    shortfall = np.maximum(1 - np.exp(log_density(p, draws) - log_density(q, draws)), 0)
    standard_error = shortfall.std() / np.sqrt(len(draws))
    assert abs(total_variation(p, q) - shortfall.mean()) < 4 * standard_error


@pytest.mark.parametrize("d", [1, 3, 50])
def test_total_variation_from_itself_is_zero(d):
    law = random_law(0, d)
    assert total_variation(law, law) < 1e-14


@pytest.mark.parametrize("d", [1, 3, 50])
def test_total_variation_is_symmetric(d):
    p, q = random_law(1, d, 0.3), random_law(2, d, 0.3)
    np.testing.assert_allclose(total_variation(p, q), total_variation(q, p), rtol=0, atol=1e-13)


def test_total_variation_does_not_change_under_affine_maps():
    p, q = random_law(3, 5), random_law(4, 5)
    rng = np.random.default_rng(0)
    matrix, shift = rng.normal(size=(5, 5)), rng.normal(size=5)

    def moved(law):
        return matrix @ law[0] + shift, matrix @ law[1] @ matrix.T

    np.testing.assert_allclose(total_variation(moved(p), moved(q)), total_variation(p, q), rtol=0, atol=1e-12)


@functools.cache
def laws():
    """Pairs of laws in three dimensions, from close to far."""

    def build(numbers, closeness):
        means, factors = numbers[:6].reshape(2, 3), numbers[6:].reshape(2, 3, 3)
        p, q = ((mean, factor @ factor.T + 0.1 * np.eye(3)) for mean, factor in zip(means, factors, strict=True))
        mixed = tuple(closeness * theirs + (1 - closeness) * ours for ours, theirs in zip(p, q, strict=True))
        return mixed, q

    numbers = hnp.arrays(np.float64, 24, elements=st.floats(-3, 3))
    return st.builds(build, numbers, st.sampled_from([0.0, 0.5, 0.99, 1 - 1e-6]))


def bounds(pair):
    """1 − b ≤ TV ≤ min(√(1 − b²), √(KL/2)), with the Bhattacharyya coefficient b = ∫ √(pq) and KL in either order."""
    (m, s), (n, t) = pair
    middle = (s + t) / 2
    log_determinant = np.linalg.slogdet(middle)[1] - (np.linalg.slogdet(s)[1] + np.linalg.slogdet(t)[1]) / 2
    coefficient = np.exp(-(m - n) @ np.linalg.solve(middle, m - n) / 8 - log_determinant / 2)
    pinsker = min(kl(*pair), kl(*pair[::-1])) / 2
    return 1 - coefficient, np.sqrt(min(max(1 - coefficient**2, 0), pinsker))


@hypothesis.settings(deadline=None, derandomize=True, max_examples=100)
@hypothesis.given(laws())
def test_bounds_of_bhattacharyya_and_pinsker_bracket_total_variation(pair):
    lower, upper = bounds(pair)
    value = total_variation(*pair)
    assert 0 <= value <= 1
    assert lower - 1e-11 <= value <= upper + 1e-7  # the root of rounding in 1 − b²


def test_kl_on_the_line_is_the_integral_of_its_definition():
    p, q = line_law(0.4, 0.7), line_law(-0.3, 1.5)

    def integrand(x):
        return np.exp(log_density(p, x)) * (log_density(p, x) - log_density(q, x))

    expected, _ = scipy.integrate.quad(integrand, -10, 10, epsabs=1e-13)
    np.testing.assert_allclose(kl(p, q), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_kl_is_the_mean_log_ratio_of_densities(seed):
    p, q = random_law(seed, 4), random_law(seed + 30, 4)
    draws = np.random.default_rng(seed).multivariate_normal(*p, 100_000)
    ratios = log_density(p, draws) - log_density(q, draws)
    assert abs(kl(p, q) - ratios.mean()) < 4 * ratios.std() / np.sqrt(len(draws))


def test_kl_from_itself_is_zero():
    law = random_law(0, 6)
    np.testing.assert_allclose(kl(law, law), 0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_wasserstein_is_the_formula_with_matrix_roots(seed):
    (m, s), (n, t) = random_law(seed, 4), random_law(seed + 10, 4)
    root = scipy.linalg.sqrtm(s).real
    squared = np.sum((m - n) ** 2) + np.trace(s + t - 2 * scipy.linalg.sqrtm(root @ t @ root).real)
    np.testing.assert_allclose(wasserstein2((m, s), (n, t)), np.sqrt(squared), rtol=1e-10)


def test_wasserstein_on_the_line_is_pythagorean_in_means_and_deviations():
    np.testing.assert_allclose(wasserstein2(line_law(1.0, 2.0), line_law(4.0, 6.0)), 5.0, rtol=1e-14)


def test_wasserstein_resolves_distances_far_below_the_root_of_rounding():
    mean, covariance = random_law(0, 5)
    value = wasserstein2((mean, covariance), (mean, covariance * (1 + 1e-11) ** 2))
    np.testing.assert_allclose(value, 1e-11 * np.sqrt(np.trace(covariance)), rtol=1e-2)


def test_wasserstein_from_a_point_is_the_root_mean_square_distance():
    mean, covariance = random_law(0, 3)
    value = wasserstein2((mean, covariance), (mean + 1, np.zeros((3, 3))))
    np.testing.assert_allclose(value, np.sqrt(np.trace(covariance) + 3), rtol=1e-12)


def test_a_point_is_as_far_as_can_be_from_a_law_with_a_density():
    point, law = (np.zeros(2), np.zeros((2, 2))), random_law(0, 2)
    for p, q in [(point, law), (law, point)]:
        assert total_variation(p, q) == 1
        assert kl(p, q) == np.inf


def test_distances_of_a_law_that_does_not_exist_are_nan():
    broken, law = (np.zeros(2), np.full((2, 2), np.nan)), random_law(0, 2)
    for distance in (total_variation, kl, wasserstein2):
        assert np.isnan(distance(broken, law))
        assert np.isnan(distance(law, broken))


@pytest.mark.parametrize("d", [1, 100])
@pytest.mark.parametrize("change", [1e-4, 0.1, 1.0])
def test_single_precision_gives_total_variation_to_six_digits(d, change):
    rng = np.random.default_rng(d)
    p = change * rng.normal(size=d) / np.sqrt(d), np.diag(np.exp(change * rng.normal(size=d) / np.sqrt(d)))
    q = np.zeros(d), np.eye(d)
    single = jax.tree.map(lambda array: jnp.asarray(array, jnp.float32), (p, q))
    value = total_variation(*single)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, total_variation(*jax.tree.map(np.float64, single)), rtol=0, atol=1e-6)


def test_distances_run_over_many_laws_at_once():
    pairs = [(random_law(seed, 3), random_law(seed + 9, 3)) for seed in range(4)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *pairs)
    for distance in (total_variation, kl, wasserstein2):
        np.testing.assert_allclose(jax.vmap(distance)(*stacked), [distance(*pair) for pair in pairs], rtol=1e-10)


def test_laws_of_different_dimension_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"^laws must be pairs .* got shapes \(2,\), \(2, 2\), \(3,\), \(3, 3\)$"):
        diagnostics.kl(random_law(0, 2), random_law(0, 3))
