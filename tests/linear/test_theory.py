"""Formulas against numbers worked by hand, brute force and identities between them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from feelgood.linear import table1, theory

# d = 2, H = 3, K = 5: T = 15 and ln(2KH) = ln 30.
LOG = 1 + 3.4011973816621555


def test_the_decoupling_coefficient_is_the_propositions():
    assert theory.decoupling_coefficient_bound(2, 3, 5) == pytest.approx(12 * LOG)
    assert theory.decoupling_coefficient_bound(1, 1, 1) == pytest.approx(2 * 1.6931471805599454)


def test_the_lemma_gives_prior_complexity_up_to_a_constant():
    assert theory.prior_complexity_rate(2, 3, 6 / math.e) == pytest.approx(6)
    assert theory.prior_complexity_rate(2, 3, 6 / math.e**2, constant=0.5) == pytest.approx(6)


@pytest.mark.parametrize("dimension", [1, 2, 7, 30])
@pytest.mark.parametrize("radius", [1.0, 8.0, 60.0])
@pytest.mark.parametrize("distance", [0.0, 0.5, 9.0])
def test_the_mass_of_a_ball_is_that_of_the_noncentral_chi_squared_law(dimension, radius, distance):
    variance = 2.5
    expected = stats.ncx2.cdf(radius**2 / variance, dimension, distance**2 / variance)
    if distance == 0:
        expected = stats.chi2.cdf(radius**2 / variance, dimension)
    assert theory.log_ball_mass(dimension, radius, distance, variance) == pytest.approx(
        math.log(expected), rel=1e-8, abs=1e-10
    )


def test_the_mass_of_a_ball_is_right_where_it_underflows():
    # In a hundred dimensions it is volume times density; in one, a difference of normal tails.
    tiny = theory.log_ball_mass(100, 1e-6, 3.0, 2.0)
    log_volume = 50 * math.log(math.pi) - special.gammaln(51) + 100 * math.log(1e-6)
    assert tiny == pytest.approx(log_volume - 50 * math.log(4 * math.pi) - 9 / 4, abs=1e-6)
    assert tiny < -1000
    far = theory.log_ball_mass(1, 1.0, 60.0, 1.0)
    assert far == pytest.approx(
        stats.norm.logsf(59) + math.log1p(-math.exp(stats.norm.logsf(61) - stats.norm.logsf(59)))
    )
    assert far < -1500


def test_the_mass_of_a_ball_agrees_with_draws():
    draws = np.random.default_rng(0).normal(size=(400_000, 3)) * math.sqrt(1.5)
    share = np.mean(np.linalg.norm(draws - np.array([1.0, 0, 1]), axis=1) < 1.2)
    expected = math.exp(theory.log_ball_mass(3, 1.2, math.sqrt(2), 1.5))
    assert share == pytest.approx(expected, abs=4 * math.sqrt(expected / 400_000))


def log_ball_mass_bound(d, radius, distance, variance):
    """By Jensen's inequality for a uniform point of the ball, whose mean squared norm is ρ² + r² d/(d+2)."""
    log_volume = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1) + d * math.log(radius)
    exponent = (distance**2 + radius**2 * d / (d + 2)) / (2 * variance)
    return log_volume - d / 2 * math.log(2 * math.pi * variance) - exponent


@pytest.mark.parametrize("dimension", [1, 3, 20])
@pytest.mark.parametrize("radius", [1e-3, 0.5, 5.0])
def test_the_closed_form_is_never_above_the_mass_of_a_ball_and_tends_to_it(dimension, radius):
    exact = theory.log_ball_mass(dimension, radius, 2.0, 1.5)
    bound = log_ball_mass_bound(dimension, radius, 2.0, 1.5)
    assert bound <= exact + 1e-9
    assert bound == pytest.approx(exact, abs=radius**2 * 5)
    # Without the mean squared norm of the ball it would be too large somewhere.
    assert log_ball_mass_bound(1, 3.0, 0.0, 1.0) == pytest.approx(math.log(6 / math.sqrt(2 * math.pi)) - 1.5)


def test_prior_complexity_sums_stages_at_their_distance():
    # The paper's prior and the largest norm of a backup: σ² = √d H, ρ = 2H√d.
    stage = theory.log_ball_mass(4, 0.1, 12.0, 6.0)
    assert theory.prior_complexity(4, 3, 0.1) == pytest.approx(-3 * stage)
    stages = [theory.log_ball_mass(4, 0.1, distance, 2.0) for distance in (1.0, 2.0, 3.0)]
    given = theory.prior_complexity(4, 3, 0.1, prior_variance=2.0, weight_norm=np.array([1.0, 2.0, 3.0]))
    assert given == pytest.approx(-sum(stages))


def test_prior_complexity_grows_as_in_the_lemma():
    # dH for each factor e in 1/ε, once ε is small
    step = theory.prior_complexity(5, 4, 1e-6) - theory.prior_complexity(5, 4, 1e-6 * math.e)
    assert step == pytest.approx(20, rel=1e-4)


def test_the_prior_really_puts_that_much_mass_near_every_backup():
    """Every w within ε of w* in norm has all Q values within ε, here on a thousand feature vectors."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(1000, 3))
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1)
    backup = np.array([1.0, -0.5, 0.3])
    draws = rng.normal(size=(100_000, 3))
    near = np.all(np.abs((draws - backup) @ features.T) <= 0.8, axis=1)
    mass = math.exp(theory.log_ball_mass(3, 0.8, float(np.linalg.norm(backup)), 1.0))
    assert np.mean(near) >= mass - 4 * math.sqrt(mass / 100_000)


def test_theorem_weights_balance_the_bound():
    weights = theory.theorem_weights(16, 100, decoupling_coefficient=50.0, prior_complexity=8.0)
    assert weights.loss_weight == pytest.approx(1 / 1024)
    assert weights.feel_good_weight == pytest.approx(math.sqrt(800 / 12800))
    bound = theory.regret_bound(
        horizon=2, num_episodes=100, bound=16, decoupling_coefficient=50.0, prior_complexity=8.0, **weights._asdict()
    )
    assert bound.decoupling + bound.prior == pytest.approx(6 * 16 * math.sqrt(50 * 8 * 100))


def test_corollary_weights():
    weights = theory.corollary_weights(2, 3, 5, prior_complexity=54.0)
    assert weights.loss_weight == pytest.approx(2 / 45)
    assert weights.feel_good_weight == pytest.approx(math.sqrt(5 / LOG))
    default = theory.corollary_weights(2, 3, 5)
    kappa = theory.prior_complexity(2, 3, 3 / 25)
    assert default.feel_good_weight == pytest.approx(math.sqrt(5 * kappa / (54 * LOG)))


def test_the_regret_bound_term_by_term():
    bound = theory.regret_bound(
        horizon=2,
        num_episodes=3,
        bound=4.0,
        loss_weight=0.02,
        feel_good_weight=0.5,
        decoupling_coefficient=10.0,
        prior_complexity=7.0,
        errors=np.array([0.1, 0.0, 0.2]),
    )
    # α_k = 0.02/2 · 16 · 2 (k−1) + 4 = 0.32 (k−1) + 4
    assert bound == pytest.approx((250.0, 84.0, 24.0, 4 / 3, 0.4 + 0.2 * 4.64))
    assert bound.origin == pytest.approx(250 + 84 + 24 + 4 / 3)
    assert bound.total == pytest.approx(bound.origin + 1.328)


def test_errors_of_stages_add_up():
    arguments = dict(horizon=2, num_episodes=3, bound=4.0, loss_weight=0.02, feel_good_weight=0.5)
    arguments |= dict(decoupling_coefficient=10.0, prior_complexity=7.0)
    stages = np.array([[0.1, 0.2], [0.0, 0.3], [0.05, 0.05]])
    ours = theory.regret_bound(errors=stages, **arguments)
    assert ours.sampling == pytest.approx(theory.regret_bound(errors=stages.sum(1), **arguments).sampling)
    assert theory.regret_bound(**arguments).sampling == 0
    # The distance of an episode is one too, and so at most 1.
    many = theory.regret_bound(errors=np.array([[0.1, 0.2], [0.9, 0.8], [1.0, 1.0]]), **arguments)
    assert many.sampling == pytest.approx(theory.regret_bound(errors=np.array([0.3, 1, 1]), **arguments).sampling)
    with pytest.raises(ValueError, match=r"errors must have shape \(3,\) or \(3, 2\).*got \(2, 3\)"):
        theory.regret_bound(errors=stages.T, **arguments)
    with pytest.raises(ValueError, match=r"errors must be total variation distances"):
        theory.regret_bound(errors=np.array([0.0, 1.2, 0.0]), **arguments)


def test_sampling_weights():
    weights = theory.sampling_weights(np.array([1, 2, 11]), loss_weight=0.1, feel_good_weight=0.5, bound=2.0, horizon=5)
    np.testing.assert_allclose(weights, [2, 3, 12])


def test_the_corollarys_bound_has_its_closed_form_and_rate():
    bound = theory.corollary_bound(2, 3, 5, prior_complexity=54.0)
    assert bound.decoupling + bound.prior == pytest.approx(7 * math.sqrt(54 * LOG * 5 * 54))
    assert bound.horizon == pytest.approx(18 / math.sqrt(5 / LOG))
    assert bound.rounding == pytest.approx(0.6)
    # dH^{3/2}√T = dH²√K, up to logarithms
    ratios = [theory.corollary_bound(d, 5, 10_000).origin / d for d in (4, 16)]
    assert 0.9 < ratios[1] / ratios[0] < 1.3
    ratios = [theory.corollary_bound(4, 5, k).origin / math.sqrt(k) for k in (10**4, 10**6)]
    assert 1 <= ratios[1] / ratios[0] < 1.6


def test_weights_for_which_the_bound_does_not_hold_are_named():
    arguments = dict(horizon=2, num_episodes=3, bound=4.0, decoupling_coefficient=10.0, prior_complexity=7.0)
    with pytest.raises(ValueError, match=r"loss_weight must be at most 2/\(5 bound²\) = 0.025"):
        theory.regret_bound(loss_weight=0.026, feel_good_weight=1.0, **arguments)
    with pytest.raises(ValueError, match=r"feel_good_weight must be at least loss_weight/4 = 0.005"):
        theory.regret_bound(loss_weight=0.02, feel_good_weight=0.0049, **arguments)
    with pytest.raises(ValueError, match=r"feel_good_weight must be positive"):
        theory.regret_bound(loss_weight=0.02, feel_good_weight=0.0, **arguments)
    with pytest.raises(ValueError, match=r"horizon must be a whole number of at least 1, got 0"):
        theory.decoupling_coefficient_bound(2, 0, 5)


def test_curvature_is_that_of_the_losss_hessian():
    features = jax.random.normal(jax.random.key(0), (5, 3))

    def loss(w):
        return 0.3 * jnp.sum((features @ w - 1) ** 2) + 0.2 / 2 * jnp.sum(w**2)

    eigenvalues = jax.jit(lambda w: jnp.linalg.eigvalsh(jax.hessian(loss)(w)))(jnp.ones(3))
    ours = jax.jit(theory.curvature)(features.T @ features, 0.3, 0.2)
    np.testing.assert_allclose(ours.smallest, eigenvalues[0], rtol=1e-4)
    np.testing.assert_allclose(ours.largest, eigenvalues[-1], rtol=1e-5)
    np.testing.assert_allclose(ours.condition, eigenvalues[-1] / eigenvalues[0], rtol=1e-4)


def test_curvature_of_directions_never_seen_is_the_priors():
    feature = 1000 * jax.random.normal(jax.random.key(1), (20,))
    ours = theory.curvature(jnp.outer(feature, feature), 0.5, 1e-3)
    assert float(ours.smallest) == pytest.approx(1e-3)
    assert float(ours.condition) == pytest.approx(float(feature @ feature) * 1e3 + 1, rel=1e-4)


def test_the_allowed_error_spends_the_same_regret_in_every_episode():
    episodes = np.arange(1, 6)
    errors = theory.allowed_error(episodes, 2, 3, 5, constant=0.1)
    np.testing.assert_allclose(errors, 0.1 * 2 * math.sqrt(math.log(30)) / (3 * episodes))
    # with α_k = √(ln(dT)/K) H²k each episode costs H · Hd ln(dT)/√K
    alpha = math.sqrt(math.log(30) / 5) * 9 * episodes
    np.testing.assert_allclose(alpha * 3 * errors, 0.1 * 9 * 2 * math.log(30) / math.sqrt(5))


def test_lmc_schedule():
    schedule = theory.lmc_schedule(np.array([0.5, 0.1]), 3, smallest=2.0, largest=20.0)
    np.testing.assert_allclose(schedule.step_size, [0.25 / 600, 0.01 / 600])
    np.testing.assert_allclose(schedule.num_steps, [1200, 30000])
    np.testing.assert_array_equal(schedule.friction, 0)
    scaled = theory.lmc_schedule(0.5, 3, 2.0, 20.0, step_constant=2.0, steps_constant=0.0011)
    assert scaled.step_size == pytest.approx(0.5 / 600)
    assert scaled.num_steps == 2


def test_ulmc_schedule():
    schedule = theory.ulmc_schedule(np.array([0.5, 0.1]), 4, smallest=4.0, largest=16.0)
    np.testing.assert_allclose(schedule.step_size, [0.5 * 2 / 32, 0.1 * 2 / 32])
    np.testing.assert_allclose(schedule.friction, 4)
    np.testing.assert_allclose(schedule.num_steps, [32, 160])
    scaled = theory.ulmc_schedule(0.5, 4, 4.0, 16.0, step_constant=2.0, friction_constant=3.0, steps_constant=0.1)
    assert scaled == pytest.approx((0.0625, 12, 4))


def test_a_schedule_does_not_depend_on_the_unit_of_the_parameters():
    """Curvatures ×c are lengths /√c: LMC's time has the unit length², ULMC's that of length."""
    for schedule, power in ((theory.lmc_schedule, 1), (theory.ulmc_schedule, 0.5)):
        ours, scaled = schedule(0.1, 5, 1.0, 30.0), schedule(0.1, 5, 100.0, 3000.0)
        assert scaled.num_steps == pytest.approx(ours.num_steps)
        assert scaled.step_size == pytest.approx(ours.step_size / 100**power)


def test_a_spectrum_in_the_wrong_order_is_named():
    with pytest.raises(ValueError, match="largest must be at least smallest"):
        theory.lmc_schedule(0.1, 3, 2.0, 1.0)


def monomial(exponents, *values):
    return math.prod(value**exponent for value, exponent in zip(values, exponents, strict=True))


def test_cumulative_steps_follow_theorem_2():
    """κ²K³H³/(d ln dT) for LMC, where the paper has κ³, and κ^{3/2}K²H²/√(d ln dT) for ULMC, at the paper's ε_k."""
    d, horizon, num_episodes, condition = 3, 4, 200, 7.0
    log_term = math.log(d * horizon * num_episodes)
    errors = theory.allowed_error(np.arange(1, num_episodes + 1), d, horizon, num_episodes)
    # A large constant makes rounding up negligible.
    lmc = theory.lmc_schedule(errors, d, 1.0, condition, steps_constant=1e6)
    expected = condition**2 * num_episodes**3 * horizon**3 / (3 * d * log_term)
    assert theory.cumulative_steps(lmc, horizon) / 1e6 == pytest.approx(expected, rel=0.01)
    ulmc = theory.ulmc_schedule(errors, d, 1.0, condition, steps_constant=1e6)
    row = table1.TABLE1["ase_ulmc"]
    printed = monomial(row.sampling, condition, num_episodes, horizon, d, log_term)
    assert theory.cumulative_steps(ulmc, horizon) / 1e6 == pytest.approx(printed / 2, rel=0.01)
    stages = theory.Schedule(*(np.repeat(part[:, None], horizon, axis=1) for part in ulmc))
    assert theory.cumulative_steps(stages, horizon) == theory.cumulative_steps(ulmc, horizon)


def test_table_1_as_printed():
    rates = {name: monomial(row.regret, 4, 9, 100) for name, row in table1.TABLE1.items()}
    assert rates == pytest.approx(
        {
            "lsvi_ucb": 8 * 27 * 10,
            "opt_rlsvi": 16 * 81 * 10,
            "eleanor": 4 * 27 * 10,
            "cps": 4 * 81 * 10,
            "lsvi_phe": 8 * 27 * 10,
            "lmc_lsvi": 8 * 27 * 10,
            "ase_lmc": 4 * 27 * 10,
            "ase_ulmc": 4 * 27 * 10,
        }
    )
    assert [name for name, row in table1.TABLE1.items() if not row.tractable] == ["eleanor", "cps"]
    rows = table1.TABLE1
    # d = 4, H = 2, K = 3, κ = 9: dT = 24
    for name in ("lmc_lsvi", "ase_lmc"):
        assert monomial(rows[name].sampling, 9, 3, 2, 4, math.log(24)) == pytest.approx(
            729 * 27 * 8 / (4 * math.log(24))
        )
    ulmc = monomial(rows["ase_ulmc"].sampling, 9, 3, 2, 4, math.log(24))
    assert ulmc == pytest.approx(27 * 9 * 4 / math.sqrt(4 * math.log(24)))
    sampled = {"lmc_lsvi", "ase_lmc", "ase_ulmc"}
    assert {name for name, row in table1.TABLE1.items() if row.sampling is not None} == sampled
