import blackjax.diagnostics
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

from feelgood.samplers import diagnostics

autocorrelation = jax.jit(diagnostics.autocorrelation)
autocorrelation_time = jax.jit(diagnostics.autocorrelation_time)
effective_sample_size = jax.jit(diagnostics.effective_sample_size)
split_rhat = jax.jit(diagnostics.split_rhat)


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


def autoregression(seed, rho, shape):
    """Stationary chains x' = ρx + √(1−ρ²) ξ along axis 1."""
    noise = np.random.default_rng(seed).normal(size=shape)
    noise[:, 1:] *= np.sqrt(1 - rho**2)
    return scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)


def geyer_by_hand(draws):
    """The definition, lag by lag, for draws (chains, steps)."""
    chains, steps = draws.shape
    centred = draws - draws.mean(1, keepdims=True)
    covariance = [np.mean(np.sum(centred[:, : steps - t] * centred[:, t:], axis=1)) / steps for t in range(steps)]
    within = np.mean(np.var(draws, axis=1, ddof=1))
    total = within * (steps - 1) / steps + (np.var(draws.mean(1), ddof=1) if chains > 1 else 0)
    rho = [1.0] + [1 - (within - covariance[t]) / total for t in range(1, steps)]
    time, smallest = -1.0, np.inf
    for k in range(steps // 2):
        pair = rho[2 * k] + rho[2 * k + 1]
        if pair <= 0:
            break
        smallest = min(smallest, pair)
        time += 2 * smallest
    return chains * steps / max(time, 1 / np.log10(chains * steps))


@pytest.mark.parametrize("steps", [4, 101])
def test_autocorrelation_is_the_sum_of_its_definition(steps):
    x = np.random.default_rng(0).normal(size=(steps, 2, 3)).cumsum(axis=0)
    centred = x - x.mean(0)
    expected = [np.sum(centred[: steps - t] * centred[t:], axis=0) for t in range(steps)] / np.sum(centred**2, axis=0)
    np.testing.assert_allclose(autocorrelation(x), expected, rtol=0, atol=1e-13)


def test_autocorrelation_of_an_autoregression_decays_geometrically():
    rho, steps = 0.8, 100_000
    estimate = autocorrelation(autoregression(0, rho, (1, steps))[0])
    # Bartlett: the variance of ρ̂_t is at most (1 + ρ²)/(1 − ρ²) / n.
    standard_error = np.sqrt((1 + rho**2) / (1 - rho**2) / steps)
    assert np.all(np.abs(estimate[:10] - rho ** np.arange(10)) < 4 * standard_error)


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregression_is_known(rho):
    steps = 200_000
    expected = (1 + rho) / (1 - rho)
    estimate = autocorrelation_time(autoregression(1, rho, (1, steps))[0])
    # Sokal: a sum of the first k lags has relative variance 2(2k + 1)/n. Geyer's rule stops where ρ_t sinks into the
    # noise of order √(τ/n).
    lags = 2 if rho <= 0 else np.log(np.sqrt(expected / steps)) / np.log(rho)
    assert abs(estimate / expected - 1) < 4 * np.sqrt(2 * (2 * lags + 1) / steps)


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_effective_sample_size_is_the_variance_of_one_draw_over_that_of_the_mean(rho):
    chains, steps, repeats = 4, 1000, 1000
    draws = autoregression(2, rho, (chains, steps, repeats))
    estimates = np.asarray(effective_sample_size(draws))
    # The mean over repeats, against the truth measured on the same draws: a χ² of `repeats` degrees of freedom.
    measured = 1 / np.var(draws.mean((0, 1)))
    standard_error = np.sqrt(2 / repeats)
    bias = 0.02  # of order τ log(n/τ)/n, from cutting the sum
    assert abs(estimates.mean() / measured - 1) < 4 * standard_error + bias


def test_independent_draws_count_fully():
    draws = np.random.default_rng(3).normal(size=(4, 5000, 50))
    ratio = np.asarray(effective_sample_size(draws)) / 20_000
    # Sums over k ≈ 2 lags: relative standard error √(2(2k + 1)/N) = 2.2 % each.
    assert np.all(np.abs(ratio - 1) < 5 * np.sqrt(10 / 20_000))
    assert abs(ratio.mean() - 1) < 0.02


@pytest.mark.parametrize("shape", [(1, 4), (1, 50), (3, 201)])
@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.7, 0.99])
def test_effective_sample_size_is_geyers_sum_done_by_hand(shape, rho):
    draws = autoregression(4, rho, shape)
    np.testing.assert_allclose(effective_sample_size(draws), geyer_by_hand(draws), rtol=1e-10)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_effective_sample_size_is_close_to_that_of_blackjax(rho):
    draws = autoregression(5, rho, (4, 2000, 3))
    # Theirs adds one more even lag to the sum, of the size of the noise there.
    theirs = jax.jit(blackjax.diagnostics.effective_sample_size)(draws)
    np.testing.assert_allclose(effective_sample_size(draws), theirs, rtol=0.05)


def test_autocorrelation_time_is_steps_per_effective_draw():
    x = autoregression(6, 0.5, (1, 300, 2))
    np.testing.assert_allclose(autocorrelation_time(x[0]), 300 / effective_sample_size(x), rtol=1e-12)


def test_alternating_chains_count_for_more_than_their_draws_but_not_without_bound():
    draws = np.resize([1.0, -1.0], (2, 1000)) + 1e-3 * np.random.default_rng(7).normal(size=(2, 1000))
    np.testing.assert_allclose(effective_sample_size(draws), 2000 * np.log10(2000), rtol=1e-12)


def test_chains_that_disagree_count_for_little():
    draws = np.random.default_rng(8).normal(size=(4, 1000)) + np.arange(4)[:, None]
    assert effective_sample_size(draws) < 20


@pytest.mark.parametrize("steps", [4, 100, 101])
def test_split_rhat_is_that_of_blackjax_on_halved_chains(steps):
    draws = autoregression(9, 0.9, (3, steps, 2))
    halves = np.concatenate([draws[:, : steps // 2], draws[:, -(steps // 2) :]])
    theirs = jax.jit(blackjax.diagnostics.potential_scale_reduction)(halves)
    np.testing.assert_allclose(split_rhat(draws), theirs, rtol=1e-12)


def test_split_rhat_of_independent_draws_is_one():
    draws = np.random.default_rng(10).normal(size=(4, 1000, 200))
    # n(R̂² − 1) + 1 is close to a χ² of 7 degrees of freedom over 7, for 8 halves of length n = 500.
    excess = 500 * (np.asarray(split_rhat(draws)) ** 2 - 1) + 1
    assert abs(excess.mean() - 1) < 4 * np.sqrt(2 / 7 / 200)


def test_split_rhat_sees_chains_with_different_means():
    draws = np.random.default_rng(11).normal(size=(4, 500)) + np.arange(4)[:, None]
    assert split_rhat(draws) > 1.1


def test_split_rhat_sees_a_drift_within_a_single_chain():
    assert split_rhat(np.random.default_rng(12).normal(size=(1, 500)) + np.linspace(0, 3, 500)) > 1.1


@pytest.mark.parametrize("statistic", [effective_sample_size, split_rhat])
def test_entries_of_the_trailing_axes_do_not_touch_each_other(statistic):
    draws = autoregression(13, 0.5, (3, 80, 2, 2))
    expected = [[statistic(draws[:, :, i, j]) for j in range(2)] for i in range(2)]
    np.testing.assert_allclose(statistic(draws), expected, rtol=1e-10)
    draws[0, 5, 0, 1] = np.nan
    np.testing.assert_array_equal(np.isnan(statistic(draws)), [[False, True], [False, False]])


def test_chains_that_never_move_have_no_statistics():
    # 0.1 is not its own mean in floating point, so that rounding could pass for movement.
    draws = np.full((2, 10), 0.1)
    assert np.isnan(effective_sample_size(draws))
    assert np.isnan(split_rhat(draws))
    assert np.isnan(autocorrelation(draws[0])).all()
    assert np.isnan(autocorrelation_time(draws[0]))


def test_chains_stuck_at_different_points_count_for_at_most_one_draw_each():
    draws = np.array([0.1, 0.3, 0.7])[:, None] * np.ones(100)
    assert effective_sample_size(draws) <= 3
    assert split_rhat(draws) > 1e3


@pytest.mark.parametrize("statistic", [effective_sample_size, split_rhat])
def test_statistics_keep_single_precision(statistic):
    draws = autoregression(14, 0.5, (2, 500, 3))
    value = statistic(jnp.asarray(draws, jnp.float32))
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, statistic(draws), rtol=1e-3)


@pytest.mark.parametrize(
    ("statistic", "shape", "expected"),
    [
        (diagnostics.effective_sample_size, (4, 3, 2), r"draws must have shape \(chains, steps, ...\)"),
        (diagnostics.effective_sample_size, (100,), r"draws must have shape \(chains, steps, ...\)"),
        (diagnostics.effective_sample_size, (0, 100), r"draws must have shape \(chains, steps, ...\)"),
        (diagnostics.split_rhat, (4, 3), r"draws must have shape \(chains, steps, ...\)"),
        (diagnostics.autocorrelation, (3,), r"x must have shape \(steps, ...\)"),
        (diagnostics.autocorrelation_time, (3, 100), r"x must have shape \(steps, ...\)"),
    ],
)
def test_too_few_steps_are_refused_in_one_sentence(statistic, shape, expected):
    with pytest.raises(ValueError, match=rf"^{expected} with at least 4 steps, got shape [^.\n]*$"):
        statistic(np.zeros(shape))


@pytest.mark.parametrize(
    ("statistic", "shape"),
    [
        (diagnostics.autocorrelation, (50,)),
        (diagnostics.autocorrelation_time, (50,)),
        (diagnostics.effective_sample_size, (3, 50)),
        (diagnostics.split_rhat, (3, 50)),
    ],
)
def test_statistics_of_a_pytree_are_those_of_its_arrays(statistic, shape):
    rng = np.random.default_rng(0)
    draws = {"slope": rng.normal(size=(*shape, 2)), "offset": (rng.normal(size=shape),)}
    told = statistic(draws)
    in_list = statistic([draws["slope"], draws["slope"]])
    np.testing.assert_array_equal(in_list, [told["slope"]] * 2)
    assert isinstance(in_list, list)
    np.testing.assert_array_equal(told["slope"], statistic(draws["slope"]))
    np.testing.assert_array_equal(told["offset"][0], statistic(draws["offset"][0]))
    np.testing.assert_array_equal(statistic(draws["offset"][0].tolist()), told["offset"][0])
    with pytest.raises(ValueError, match="with at least 4 steps, got shape"):
        statistic({"slope": np.zeros((2, 3)[-len(shape) :])})


def test_functions_in_a_model_are_unchanged_and_a_single_chain_is_explained():
    draws = {"weight": jax.random.normal(jax.random.key(0), (2, 50, 3)), "activation": jnp.tanh}
    found = diagnostics.effective_sample_size(draws)
    assert found["activation"] is jnp.tanh
    np.testing.assert_array_equal(found["weight"], diagnostics.effective_sample_size(draws["weight"]))
    with pytest.raises(ValueError, match=r"got shape \(50,\); a single chain needs an axis in front"):
        diagnostics.split_rhat(jnp.ones(50))
    with pytest.warns(UserWarning, match=r"draws of shape \(50, 4\) are 50 chains of 4 steps; pass draws\[None\]"):
        diagnostics.effective_sample_size(jax.random.normal(jax.random.key(0), (50, 4)))
