"""Errors of stages against quadrature and simulation; bounds must hold always, and be tight where an action leads."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from feelgood.linear import errors
from feelgood.samplers import diagnostics


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


KERNELS = {
    "langevin": lambda step_size: diagnostics.langevin_kernel(step_size, 1.0),
    "euler": lambda step_size: diagnostics.underdamped_kernel(step_size, 3.0, 1.0),
    "exact": lambda step_size: diagnostics.underdamped_exact_kernel(step_size, 3.0, 1.0),
    "baoab": lambda step_size: diagnostics.underdamped_splitting_kernel(step_size, 3.0, 1.0),
    "obabo": lambda step_size: diagnostics.underdamped_splitting_kernel(step_size, 3.0, 1.0, scheme="OBABO"),
    "noise in params": lambda step_size: diagnostics.adaptive_underdamped_kernel(
        step_size, 3.0, 1.0, noise_in="params"
    ),
}


@functools.cache
def compiled(name):
    """The bounds as floats, compiled once for each shape."""
    bounds = jax.jit(
        lambda step_size, *stage: errors.feel_good_error(KERNELS[name](step_size), *stage),
    )

    def call(step_size, *stage):
        return tuple(map(float, bounds(step_size, *(jnp.asarray(part) for part in stage))))

    return call


@functools.cache
def compiled_stage(name):
    error = jax.jit(lambda step_size, *stage: errors.stage_error(KERNELS[name](step_size), *stage))
    return lambda step_size, *stage: float(error(step_size, *(jnp.asarray(part) for part in stage)))


def problem(seed, d, condition):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    curvature = np.geomspace(1, condition, d)
    mean = rng.normal(size=d)
    return (basis * curvature) @ basis.T, mean, mean + basis @ (rng.normal(size=d) / np.sqrt(curvature))


# Exact errors.


@pytest.mark.parametrize("d", [1, 20])
def test_total_variation_of_modes_is_that_of_the_laws(d):
    rng = np.random.default_rng(d)
    ours = jax.jit(diagnostics.total_variation_of_modes)
    theirs = jax.jit(lambda m, s: diagnostics.total_variation((m, jnp.diag(s**2)), (jnp.zeros(d), jnp.eye(d))))
    for spread in (0.001, 0.1, 0.5, 2.0):
        shift, scale = spread * rng.normal(size=d), np.exp(spread * rng.normal(size=d))
        assert abs(ours(shift, scale) - theirs(shift, scale)) < 1e-11
    assert ours(shift, np.zeros(d)) == 1


@pytest.mark.parametrize("name", ["langevin", "exact"])
def test_the_error_of_a_stage_is_that_of_its_laws(name):
    precision, mean, start = problem(0, 4, 20.0)

    @jax.jit
    def expected_error(precision, mean, start):
        law = diagnostics.law_after(KERNELS[name](0.05), mean, precision, 30, start)
        return diagnostics.total_variation(law, diagnostics.target_law(mean, precision, 1.0))

    expected = float(expected_error(precision, mean, start))
    assert 0.01 < expected < 0.99
    assert compiled_stage(name)(0.05, precision, mean, start, 30) == pytest.approx(expected, abs=1e-10)


def test_a_lower_temperature_is_a_steeper_potential():
    """β P with step τ is the same chain as P with step τβ and temperature 1."""
    precision, mean, start = problem(0, 4, 20.0)
    cold = jax.jit(lambda *stage: errors.stage_error(diagnostics.langevin_kernel(0.02, 4.0), *stage, 30, 4.0))
    expected = compiled_stage("langevin")(0.02 / 4, 4 * precision, mean, start, 30)
    assert 0.01 < expected < 0.99
    assert float(cold(precision, mean, start)) == pytest.approx(expected, abs=1e-10)


def test_one_step_of_langevin_by_hand():
    # From 1 with τ = 1/2 and curvature 1: N(1/2, 1) against N(0, 1).
    ours = compiled_stage("langevin")(0.5, np.eye(1), [0.0], [1.0], 1)
    assert ours == pytest.approx(2 * scipy.stats.norm.cdf(0.25) - 1, abs=1e-12)
    assert compiled_stage("langevin")(0.5, np.eye(1), [0.0], [1.0], 0) == 1


@pytest.mark.parametrize(("condition", "tolerance"), [(10.0, 2e-6), (100.0, 2e-5), (1e4, 1e-3)])
def test_single_precision_is_as_good_as_documented(condition, tolerance):
    for seed in range(3):
        stage = problem(seed, 10, condition)
        for num_steps in (int(10 * condition), int(40 * condition)):
            double = compiled_stage("langevin")(0.05 / condition, *stage, num_steps)
            single = compiled_stage("langevin")(
                0.05 / condition, *(part.astype(np.float32) for part in stage), num_steps
            )
            assert 0.01 < double < 0.999
            assert 0 < abs(single - double) < tolerance


def test_errors_of_many_stages_come_at_once():
    stages = [problem(seed, 3, 10.0) for seed in range(4)]
    batch = [jnp.stack([stage[i] for stage in stages]) for i in range(3)]
    num_steps = jnp.array([1, 5, 20, 100])

    def error(precision, mean, start, count):
        return errors.stage_error(KERNELS["langevin"](0.1), precision, mean, start, count)

    together = jax.jit(jax.vmap(error))(*batch, num_steps)
    alone = [compiled_stage("langevin")(0.1, *stage, count) for stage, count in zip(stages, num_steps, strict=True)]
    np.testing.assert_allclose(together, alone, atol=1e-12)
    assert together[0] > together[3]


# Bounds with the feel-good term.

GRID = np.linspace(-12, 12, 1601)


def error_on_the_line(precision, mean, start, step_size, num_steps, features, weight):
    """TV of Langevin Monte Carlo from π in one dimension, its density carried from step to step on a grid."""
    spacing = GRID[1] - GRID[0]
    values = GRID[:, None] * features[None, :]
    log_target = -precision * (GRID - mean) ** 2 / 2 + weight * values.max(1)
    target = np.exp(log_target - log_target.max())
    target /= target.sum() * spacing

    def move(x):
        lead = features[np.argmax(np.outer(x, features), axis=1)]
        return x - step_size * (precision * (x - mean) - weight * lead)

    scale = np.sqrt(2 * step_size)
    density = scipy.stats.norm.pdf(GRID, move(np.array([start])), scale)
    kernel = scipy.stats.norm.pdf(GRID[:, None], move(GRID)[None, :], scale)
    for _ in range(num_steps - 1):
        density = kernel @ density * spacing
    assert density.sum() * spacing == pytest.approx(1, abs=1e-6)
    return np.abs(density - target).sum() * spacing / 2


LINES = [
    # precision, mean, start, step size, steps, features, weight
    (1.0, 3.0, 2.0, 0.1, 8, [1.0, -1.0], 0.5),
    (1.0, 3.0, 2.0, 0.1, 8, [1.0, 0.2, -0.5], 0.5),
    (2.0, 0.1, 0.3, 0.1, 10, [1.0, -1.0], 0.3),
    (1.0, 0.0, 0.5, 0.05, 20, [1.0, -1.0], 0.05),
    (1.0, 0.0, 0.0, 0.2, 5, [1.0, -0.5], 1.5),
    (1.0, -1.0, 1.0, 0.1, 10, [0.7, 0.5, -0.2], 0.4),
    (1.0, 2.0, -0.3, 0.05, 40, [1.0, -1.0], 0.8),
]


@pytest.mark.parametrize("case", LINES)
def test_bounds_enclose_the_error_on_the_line(case):
    precision, mean, start, step_size, num_steps, features, weight = case
    true = error_on_the_line(precision, mean, start, step_size, num_steps, np.array(features), weight)
    lower, upper = compiled("langevin")(
        step_size, [[precision]], [mean], [start], num_steps, np.array(features)[:, None], weight
    )
    assert lower - 1e-4 <= true <= upper + 1e-4


def test_bounds_are_tight_if_an_action_leads():
    case = (1.0, 6.0, 5.5, 0.1, 8)
    for features in ([1.0, -1.0], [1.0, 0.0, -0.5]):
        true = error_on_the_line(*case, np.array(features), 0.5)
        lower, upper = compiled("langevin")(0.1, np.eye(1), [6.0], [5.5], 8, np.array(features)[:, None], 0.5)
        assert 0.05 < true < 0.9
        assert upper - lower < 1e-4
        assert lower - 1e-5 <= true <= upper + 1e-5
    # With BAOAB it is the rarity of departures alone that makes them so.
    lower, upper = compiled("baoab")(0.1, np.eye(1), [6.0], [5.5], 8, [[1.0], [-1.0]], 0.5)
    assert 0.05 < lower < upper < lower + 1e-4


@pytest.mark.parametrize(("precision", "mean", "weight"), [(1.0, 0.5, 0.7), (2.0, 0.3, 1.5)])
def test_before_the_first_step_only_the_distance_to_the_nearest_tilt_is_left(precision, mean, weight):
    """The law is a point, at distance 1 from everything; the lower bound is 1 less the nearest tilt's distance to π."""
    features, spacing = np.array([1.0, -0.6]), GRID[1] - GRID[0]
    log_target = -precision * (GRID - mean) ** 2 / 2 + weight * np.max(np.outer(GRID, features), axis=1)
    target = np.exp(log_target - log_target.max())
    target /= target.sum() * spacing
    tilts = scipy.stats.norm.pdf(GRID[:, None], mean + weight * features / precision, precision**-0.5)
    distances = np.abs(tilts - target[:, None]).sum(0) * spacing / 2
    lower, upper = compiled("langevin")(0.1, [[precision]], [mean], [0.0], 0, features[:, None], weight)
    assert (lower, upper) == pytest.approx((1 - distances.min(), 1), abs=1e-4)
    assert 0.01 < distances.min() < 0.5


@functools.cache
def plane(num_actions, seed):
    """A problem in three dimensions in which action 0 leads, but not by much."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_actions, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    factor = rng.normal(size=(3, 6))
    precision = factor @ factor.T / 2 + np.eye(3)
    return precision, 2.5 * features[0], 2.2 * features[0], features


def simulate(kernel, precision, mean, start, num_steps, features, weight, num_chains):
    """Chains of the sampler, by how its step acts on position, momentum and gradient."""
    rng = np.random.default_rng(0)
    transition, noise = (np.asarray(part) for part in kernel.affine(jnp.array([0.0, 1.0])))
    free, kick = transition[0], transition[1, :, 0] - transition[0, :, 0]
    variances, basis = np.linalg.eigh(noise[0])
    factor = basis * np.sqrt(np.maximum(variances, 0))
    w, momentum = np.tile(start, (num_chains, 1)), np.zeros((num_chains, start.size))
    for _ in range(num_steps):
        gradient = (w - mean) @ precision - weight * features[np.argmax(w @ features.T, axis=1)]
        xi = rng.normal(size=(2, *w.shape))
        w, momentum = (
            free[i, 0] * w + free[i, 1] * momentum + kick[i] * gradient + factor[i, 0] * xi[0] + factor[i, 1] * xi[1]
            for i in range(2)
        )
    return w


@pytest.mark.parametrize(("name", "num_actions"), [("langevin", 2), ("exact", 4)])
def test_bounds_enclose_simulated_values(name, num_actions):
    """TV of histograms along one direction, a hundred thousand draws each, is below δ but for noise."""
    precision, mean, start, features = plane(num_actions, 3)
    weight, num_steps, num_chains = 0.8, 12, 100_000
    draws = simulate(KERNELS[name](0.05), precision, mean, start, num_steps, features, weight, num_chains)
    truth = np.random.default_rng(1).multivariate_normal(mean, np.linalg.inv(precision), size=2 * num_chains)
    importance = np.exp(weight * np.max(truth @ features.T, axis=1))
    importance /= importance.sum()
    lower, upper = compiled(name)(0.05, precision, mean, start, num_steps, features, weight)
    shown = []
    for direction in np.linalg.eigh(precision)[1].T:
        x, y = draws @ direction, truth @ direction
        bins = np.quantile(y, np.linspace(0, 1, 31))
        bins[[0, -1]] = -np.inf, np.inf
        ours, theirs = np.histogram(x, bins)[0] / num_chains, np.histogram(y, bins, weights=importance)[0]
        shown.append(np.abs(ours - theirs).sum() / 2)
    noise = np.sqrt(30 / (np.pi * num_chains))
    assert 0.05 < max(shown) - 2 * noise <= upper
    # The bounds are not vacuous.
    assert 0.1 < lower < upper < 1


tilt_error = jax.jit(errors._tilt_error)


def test_the_distance_of_the_target_to_its_tilt_is_exact_for_two_actions():
    """After very many tiny steps only that distance is left, and the bounds' width is twice it and the chain's."""
    for mean, rate in ((0.5, 0.7), (-1.0, 2.0), (0.0, 1e-3)):
        # X ~ N(mean, 1) and π ∝ exp(rate X⁺)
        x = np.linspace(-12, 14, 400_001)
        tilt = scipy.stats.norm.pdf(x, mean)
        target = tilt * np.exp(rate * np.maximum(x, 0))
        target /= target.sum() * (x[1] - x[0])
        expected = np.abs(target - tilt).sum() * (x[1] - x[0]) / 2
        two = tilt_error(jnp.array([0.0, mean]), jnp.array([0.0, 1.0]), jnp.asarray(rate))
        assert two == pytest.approx(expected, rel=1e-5)
        # The bound for any number of actions bounds the same integral.
        three = tilt_error(jnp.array([0.0, mean, -50.0]), jnp.array([0.0, 1.0, 1.0]), jnp.asarray(rate))
        normaliser = np.sum(tilt * np.exp(rate * np.maximum(x, 0))) * (x[1] - x[0])
        assert three == pytest.approx(1 - 1 / normaliser, rel=1e-5)
        assert three >= two


def test_the_distance_of_the_target_to_its_tilt_is_bounded_for_many_actions():
    rng = np.random.default_rng(0)
    for _ in range(5):
        covariance = np.cov(rng.normal(size=(3, 8)))
        mean, rate = rng.normal(size=3) - 1, 0.6
        draws = rng.multivariate_normal(mean, covariance, size=200_000)
        density = np.exp(rate * np.maximum(draws.max(1), 0))
        true = np.mean(np.abs(density / density.mean() - 1)) / 2
        bound = tilt_error(
            jnp.append(mean, 0.0), jnp.append(jnp.sqrt(jnp.diagonal(covariance)), 0.0), jnp.asarray(rate)
        )
        assert true <= bound < 1
        assert bound < 8 * true


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("langevin", 0.1 / 2),
        ("euler", 0.1 / (2 * 3.0)),
        # a kick before and one after the thermostat, whose noise is 1 − e^{−2γτ}
        ("obabo", (0.05 * (1 + np.exp(-0.3))) ** 2 / (1 - np.exp(-0.6))),
        ("baoab", np.inf),
        ("noise in params", np.inf),
    ],
)
def test_the_cost_of_noise_in_gradients_by_hand(name, cost):
    assert errors._noise_cost(KERNELS[name](0.1), jnp.float64) == pytest.approx(cost)


def test_the_cost_of_noise_in_gradients_in_the_closed_form_scheme():
    kernel = KERNELS["exact"](0.1)
    transition, noise = kernel.affine(jnp.array([0.0, 1.0]))
    move = transition[1, :, 0] - transition[0, :, 0]
    assert errors._noise_cost(kernel, jnp.float64) == pytest.approx(move @ np.linalg.solve(noise[0], move))
    # As τ → 0 the cost of the path is that of the dynamics: τβ/2γ
    small = errors._noise_cost(KERNELS["exact"](1e-3), jnp.float64)
    assert small == pytest.approx(1e-3 / 6, rel=0.01)


LINE = (np.array([[1.5]]), np.array([0.4]), np.array([-0.2]))


@pytest.mark.slow
def test_one_action_leaves_nothing_to_bound():
    bounds = compiled("langevin")(0.05, *LINE, 12, np.array([[0.9]]), 0.8)
    tilt = LINE[1] + 0.8 * 0.9 / 1.5
    assert bounds[0] == bounds[1] == pytest.approx(compiled_stage("langevin")(0.05, LINE[0], tilt, LINE[2], 12))
    for num_actions in (2, 3):
        same = compiled("langevin")(0.05, *LINE, 12, np.full((num_actions, 1), 0.9), 0.8)
        assert same == pytest.approx(bounds)


def test_no_weight_leaves_the_gaussian_stage():
    expected = compiled_stage("langevin")(0.05, *LINE, 12)
    for features in ([[1.0], [-1.0]], [[1.0], [-1.0], [0.3]]):
        assert compiled("langevin")(0.05, *LINE, 12, features, 0.0) == pytest.approx([expected] * 2)


def test_bounds_are_trivial_if_no_tilt_resembles_the_posterior():
    # Two actions far apart, equally good: no tilt resembles the posterior.
    features = np.array([[5.0], [-5.0]])
    assert compiled("langevin")(0.1, np.eye(1), np.zeros(1), np.zeros(1), 50, features, 3.0) == (0, 1)


def test_a_start_where_another_action_leads_is_paid_for_once():
    """Girsanov's argument for the first steps and the union bound for the rest beat either alone."""
    arguments = (np.eye(1), np.array([7.0]), np.array([-0.05]))
    features = np.array([[1.0], [-1.0]])
    lower, upper = compiled("langevin")(0.4, *arguments, 3, features, 0.05)
    true = error_on_the_line(1.0, 7.0, -0.05, 0.4, 3, features[:, 0], 0.05)
    assert lower - 1e-4 <= true <= upper + 1e-4
    # The first step's divergence, (τ/4)λ²‖φ_b − φ_a‖² = 0.001, by Pinsker; after it the chain is at 2.8 ± 0.9.
    assert 2 * np.sqrt(0.001 / 2) < upper - lower < 2 * np.sqrt(0.0011 / 2)
    # The noise of BAOAB does not reach all that a gradient moves, so there is no bound.
    assert compiled("baoab")(0.4, *arguments, 3, features, 0.05) == (0, 1)


@pytest.mark.slow
def test_bounds_of_many_stages_come_at_once():
    features = jnp.array([[1.0], [-1.0]])
    kernel = KERNELS["langevin"](0.05)
    bounds = jax.vmap(lambda count, weight, *stage: errors.feel_good_error(kernel, *stage, count, features, weight))
    counts, weights = jnp.array([3, 10, 30]), jnp.array([0.001, 0.01, 0.1])
    together = jax.jit(bounds)(counts, weights, *(jnp.stack([part, part + 0.5, part + 1]) for part in LINE))
    for i in range(3):
        stage = [part + i / 2 for part in LINE]
        alone = compiled("langevin")(0.05, *stage, counts[i], features, weights[i])
        np.testing.assert_allclose([together.lower[i], together.upper[i]], alone, atol=1e-12)
        assert 0 < alone[0] < alone[1] < 1
    assert together.lower[0] > together.upper[2]


def test_features_of_the_wrong_shape_are_named():
    with pytest.raises(ValueError, match=r"features must have shape \(num_actions, 1\), got \(2, 3\)"):
        errors.feel_good_error(KERNELS["langevin"](0.1), np.eye(1), np.zeros(1), np.zeros(1), 5, np.ones((2, 3)), 1.0)


# Both stages together.


class JointError(NamedTuple):
    """δ of both stages together, δ² of stage 2, and δ¹(w₂) of stage 1: its mean over draws of w₂, and its largest."""

    joint: jax.Array
    last: jax.Array
    first: jax.Array
    first_largest: jax.Array


@functools.partial(jax.jit, static_argnums=(0, 1))
def joint_error(last, first, grid):
    """δ = ½ ∬ |q(w₂) q(w₁|w₂) − q̃(w₂) q̃(w₁|w₂)| dw₁ dw₂ for two stages of one parameter each, by quadrature.

    q is the exact posterior and q̃ the sampler's law: `last(w₂)` and `first(w₁, w₂)` return the densities of both.
    """
    spacing = grid[1] - grid[0]
    exact_last, drawn_last = jax.vmap(last)(grid)
    exact_first, drawn_first = jax.vmap(lambda w2: jax.vmap(lambda w1: first(w1, w2))(grid))(grid)
    joint = jnp.sum(jnp.abs(exact_last[:, None] * exact_first - drawn_last[:, None] * drawn_first)) * spacing**2 / 2
    errors = jnp.sum(jnp.abs(exact_first - drawn_first), axis=1) * spacing / 2
    last_error = jnp.sum(jnp.abs(exact_last - drawn_last)) * spacing / 2
    return JointError(joint, last_error, jnp.sum(drawn_last * errors) * spacing, jnp.max(errors))


def test_proposition_1_on_two_normals():
    """A deviation of 1.1 at stage 1, whose posterior follows w₂, and a mean that is off by 0.1 at stage 2."""
    pdf = jax.scipy.stats.norm.pdf
    last = lambda w2: (pdf(w2), pdf(w2, 0.1))
    first = lambda w1, w2: (pdf(w1, w2 / 2), pdf(w1, w2 / 2, 1.1))
    error = joint_error(last, first, jnp.linspace(-8, 8, 801))
    assert [round(float(each), 3) for each in error[:3]] == [0.061, 0.040, 0.046]


def density(law, w):
    return jax.scipy.stats.norm.pdf(w, law.mean[0], jnp.sqrt(law.covariance[0, 0]))


def test_the_joint_error_is_at_most_the_sum_of_the_stages_errors():
    """Two stages as Algorithm 1 makes them: stage 1 regresses on a truncated maximum over the actions at stage 2."""
    kernel = KERNELS["langevin"](0.1)
    last_laws = diagnostics.law_after(kernel, jnp.array([0.4]), 2 * jnp.eye(1), 9, jnp.zeros(1))
    last_target = diagnostics.target_law(jnp.array([0.4]), 2 * jnp.eye(1), 1.0)

    def last(w2):
        return density(last_target, w2), density(last_laws, w2)

    def first_laws(w2):
        value = jnp.clip(jnp.maximum(w2, -0.5 * w2), 0, 1)
        mean = (0.3 + value)[None]
        precision = 3 * jnp.eye(1)
        law = diagnostics.law_after(kernel, mean, precision, 5, jnp.array([0.2]))
        return diagnostics.target_law(mean, precision, 1.0), law

    def first(w1, w2):
        target, law = first_laws(w2)
        return density(target, w1), density(law, w1)

    error = JointError(*map(float, joint_error(last, first, jnp.linspace(-7, 7, 701))))
    alone = compiled_stage("langevin")(0.1, 2 * np.eye(1), [0.4], [0.0], 9)
    assert error.last == pytest.approx(alone, abs=1e-4)
    # At w₂ = 0 the mean of stage 1 is 0.3, at 1 and beyond it is 1.3, farthest from the start.
    farthest = compiled_stage("langevin")(0.1, 3 * np.eye(1), [1.3], [0.2], 5)
    assert error.first_largest == pytest.approx(farthest, abs=1e-4)
    assert 0.02 < error.last < error.joint
    assert 0.02 < error.first < error.joint
    assert error.joint < error.last + error.first - 0.005
    assert error.first < error.first_largest - 0.01


def test_the_joint_error_by_hand():
    """Independent normals with shifted means: the joint error is that of one shift, the root of the sum of squares."""
    pdf = jax.scipy.stats.norm.pdf

    def last(w2):
        return pdf(w2), pdf(w2, 0.3)

    def first(w1, w2):
        return pdf(w1), pdf(w1, 0.4)

    error = joint_error(last, first, jnp.linspace(-8, 8, 801))
    for ours, shift in ((error.joint, 0.5), (error.last, 0.3), (error.first, 0.4), (error.first_largest, 0.4)):
        assert ours == pytest.approx(2 * scipy.stats.norm.cdf(shift / 2) - 1, abs=1e-5)


def test_the_error_of_stage_1_is_averaged_over_draws():
    """It errs only where w₂ > 0.15, which the sampler draws more often than the posterior does."""
    pdf = jax.scipy.stats.norm.pdf

    def last(w2):
        return pdf(w2), pdf(w2, 0.3)

    def first(w1, w2):
        return pdf(w1), pdf(w1, jnp.where(w2 > 0.15, 0.4, 0.0))

    error = joint_error(last, first, jnp.linspace(-8, 8, 801))
    largest = 2 * scipy.stats.norm.cdf(0.2) - 1
    assert float(error.first_largest) == pytest.approx(largest, abs=1e-5)
    assert float(error.first) == pytest.approx(largest * scipy.stats.norm.cdf(0.15), abs=1e-3)
