"""Statistics, bounds and draws against closed forms and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits, samplers
from feelgood.bandits import exact, feel_good, statistics
from feelgood.bandits.base import Context, Model

ETA, RHO = 0.7, 0.3


def played(model, num_rounds=30, seed=0, common=True):
    """Random plays, and the statistics of them."""
    rng = np.random.default_rng(seed)
    rows = 1 if common else model.num_arms
    features = rng.normal(size=(num_rounds, rows, model.num_features)).astype(np.float32)
    actions = rng.integers(model.num_arms, size=num_rounds)
    rewards = rng.normal(size=num_rounds).astype(np.float32)

    def step(state, inputs):
        x, a, r = inputs
        return statistics.add_reward(state, model, Context(x), a, r, 2 * ETA), None

    state = jax.lax.scan(step, statistics.no_rewards(model, RHO), (features, jnp.asarray(actions), rewards))[0]
    return state, features, actions, rewards


def ridge(model, features, actions, rewards):
    """Mean and precision of every group from the stored data, in NumPy."""
    precision = np.stack([RHO * np.eye(model.num_features)] * model.num_groups)
    right = np.zeros((model.num_groups, model.num_features))
    for x, a, r in zip(features, actions, rewards, strict=True):
        phi, g = x[0 if len(x) == 1 else a].astype(float), 0 if model.shared else a
        precision[g] += 2 * ETA * np.outer(phi, phi)
        right[g] += 2 * ETA * r * phi
    return np.stack([np.linalg.solve(p, b) for p, b in zip(precision, right, strict=True)]), precision


@pytest.mark.parametrize(("shared", "common"), [(False, True), (False, False), (True, False)])
def test_statistics_are_those_of_ridge_regression(shared, common):
    model = Model(4, 3, shared)
    state, *data = played(model, common=common)
    mean, precision = ridge(model, *data)
    np.testing.assert_allclose(state.mean, mean, atol=1e-5)
    np.testing.assert_allclose(state.precision, precision, rtol=1e-5, atol=1e-5)
    product = np.einsum("gij,gkj->gik", state.factor, state.factor)
    np.testing.assert_allclose(product, precision, rtol=1e-5, atol=1e-5)
    assert int(state.num_rounds) == 30


def test_collinear_features_with_a_weak_prior_keep_their_posterior_in_float32():
    # Twelve one-hot codes of four, as in the Mushroom data: the entries of each code add up to 1. The condition number
    # of P is 1.7e7; from its Cholesky factor in float32, the width of a single entry is wrong by three quarters.
    rng, model, num_rounds, weight, prior = np.random.default_rng(0), Model(1, 48, True), 4000, 1.4, 1e-3
    codes = np.eye(4, dtype=np.float32)[rng.integers(4, size=(num_rounds, 12))].reshape(num_rounds, 1, 48)
    rewards = (codes[:, 0, :5].sum(-1) + rng.normal(size=num_rounds)).astype(np.float32)

    def step(state, inputs):
        return statistics.add_reward(state, model, Context(inputs[0]), jnp.int32(0), inputs[1], weight), None

    state = jax.lax.scan(step, statistics.no_rewards(model, prior), (codes, rewards))[0]
    data = codes[:, 0].astype(float)
    precision = prior * np.eye(48) + weight * data.T @ data
    mean, covariance = np.linalg.solve(precision, weight * data.T @ rewards), np.linalg.inv(precision)
    np.testing.assert_allclose(data @ state.mean[0], data @ mean, atol=1e-4)
    for rows in (data[:50], np.eye(48)):
        widths = statistics.widths(state.factor, jnp.asarray(rows, jnp.float32))
        np.testing.assert_allclose(widths, np.sqrt(np.einsum("ri,ij,rj->r", rows, covariance, rows)), rtol=1e-3)


@pytest.mark.parametrize(("shared", "common"), [(False, True), (True, False)])
def test_lin_ucb_picks_the_largest_upper_bound(shared, common):
    model = Model(4, 3, shared)
    state, features, actions, rewards = played(model, common=common)
    mean, precision = ridge(model, features, actions, rewards)
    algorithm = bandits.lin_ucb(model, 1.7, loss_weight=ETA, prior_precision=RHO)
    choose = jax.jit(algorithm.choose)
    for x in np.random.default_rng(1).normal(size=(40, 1 if common else 4, 3)).astype(np.float32):
        bounds = []
        for a in range(4):
            phi, g = x[0 if common else a], 0 if shared else a
            bounds.append(mean[g] @ phi + 1.7 * np.sqrt(phi @ np.linalg.solve(precision[g], phi)))
        assert int(choose(jax.random.key(0), state, Context(jnp.asarray(x)))[0]) == int(np.argmax(bounds))


def test_draws_of_lin_ts_have_the_posterior_law():
    model = Model(2, 3, False)
    state, *data = played(model)
    mean, precision = ridge(model, *data)
    draw = jax.jit(jax.vmap(lambda key: exact.gaussian_draw(key, state, 0.5)))
    draws = np.asarray(draw(jax.random.split(jax.random.key(0), 20_000)))
    for g in range(2):
        covariance = 0.5 * np.linalg.inv(precision[g])
        error = np.sqrt(np.diag(covariance) / 20_000)
        assert (np.abs(draws[:, g].mean(0) - mean[g]) < 4 * error).all()
        np.testing.assert_allclose(np.cov(draws[:, g].T), covariance, atol=6 * covariance.max() / np.sqrt(20_000))


def test_the_feel_good_sum_and_its_gradient_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    for shape, groups in (((1, 3), 4), ((4, 3), 4), ((4, 3), 1)):
        past = feel_good.Past(jnp.asarray(rng.normal(size=(*shape, 10)), jnp.float32), jnp.int32(7))
        theta = jnp.asarray(rng.normal(size=(groups, 3)), jnp.float32)
        for smoothness in (None, 10.0):
            settings = bandits.FeelGood(0.3, bound=0.8, capacity=10, smoothness=smoothness, decay=0.5)

            def direct(theta, past, smoothness=smoothness):
                total = 0.0
                for s in range(7):
                    best = jnp.max(jnp.sum(theta * past.features[:, :, s], -1))
                    if smoothness is None:
                        total += jnp.minimum(best, 0.8)
                    else:
                        total += 0.8 - jax.nn.softplus(smoothness * (0.8 - best)) / smoothness
                return total

            @jax.jit
            def all_three(past, theta, settings=settings, direct=direct):
                bonus = lambda theta: feel_good.bonus(settings, past, jnp.int32(3), theta)
                definition = jax.value_and_grad(lambda theta: direct(theta, past))(theta)
                return feel_good.feel_good_sum(settings, past, theta), definition, jax.value_and_grad(bonus)(theta)

            (total, gradient), (expected, slope), (value, tilt) = all_three(past, theta)
            np.testing.assert_allclose(total, expected, rtol=1e-5)
            np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(value, 0.15 * total, rtol=1e-5)
            np.testing.assert_allclose(tilt, 0.15 * gradient, rtol=1e-5, atol=1e-6)


def test_smoothing_changes_nothing_at_the_released_bound_of_1000():
    """b − softplus(s(b − u))/s = u to machine precision if u is far below b: the smoothed variant is the plain one."""
    past = feel_good.Past(jax.random.normal(jax.random.key(0), (1, 4, 50)), jnp.int32(50))
    theta = jax.random.normal(jax.random.key(1), (5, 4))
    plain, smooth = (feel_good.feel_good_sum(bandits.FeelGood(0.5, 1000.0, 50, s), past, theta) for s in (None, 10.0))
    jax.tree.map(np.testing.assert_array_equal, plain, smooth)


def test_every_past_context_is_kept_with_the_same_probability():
    settings = bandits.FeelGood(1.0, capacity=5)

    def fill(key):
        step = lambda past, inputs: (
            feel_good.remember(inputs[0], past, Context(jnp.full((1, 1), inputs[1]))),
            None,
        )
        start = feel_good.no_past(settings, (1, 1))
        return jax.lax.scan(step, start, (jax.random.split(key, 20), jnp.arange(20.0)))[0].features[0, 0]

    kept = np.asarray(jax.vmap(fill)(jax.random.split(jax.random.key(0), 8000)))
    assert all(len(set(row)) == 5 for row in kept[:100])
    share = np.array([(kept == i).any(1).mean() for i in range(20)])
    assert np.abs(share - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 8000)


def chain_draws(state, settings, temperature, num_draws, num_candidates=8):
    """A long run of the chain at a fixed posterior, many chains in parallel."""

    def one(key):
        def step(z, key):
            theta, z = exact.tilted_draw(key, state._replace(z=z), settings, temperature, num_candidates)
            return z, theta

        return jax.lax.scan(step, state.z, jax.random.split(key, 40))[1][10:]

    keys = jax.random.split(jax.random.key(5), num_draws // 30)
    return np.asarray(jax.jit(jax.vmap(one))(keys)).reshape(-1, *state.z.shape)


def test_fgts_with_one_past_context_has_the_law_of_exact_feel_good_draws():
    model = Model(3, 2, False)
    stats, *_ = played(model, 6)
    x = jnp.array([[1.0, -0.7]])
    settings = bandits.FeelGood(0.3, capacity=1)
    past = feel_good.remember(jax.random.key(0), feel_good.no_past(settings, (1, 2)), Context(x))
    draws = chain_draws(exact.FGTSState(stats, past, model.zeros()), settings, 0.6, 30_000).reshape(-1, 6)
    precision = jax.scipy.linalg.block_diag(*stats.precision)
    features = jnp.kron(jnp.eye(3), x)
    sampler = samplers.exact_feel_good(stats.mean.reshape(-1), precision, features, 0.3, 1 / 0.6)
    step = jax.vmap(lambda key: sampler.step(key, sampler.init(jnp.zeros(6)), None)[0].params)
    reference = np.asarray(jax.jit(step)(jax.random.split(jax.random.key(6), 30_000)))
    spread = reference.std(0)
    # Draws of one chain are correlated: at least one in three is as good as independent.
    assert (np.abs(draws.mean(0) - reference.mean(0)) < 4 * spread * np.sqrt(4 / 30_000)).all()
    np.testing.assert_allclose(draws.std(0), spread, rtol=0.04)


def test_fgts_with_many_contexts_has_the_mean_that_importance_sampling_gives():
    model = Model(3, 2, False)
    stats, features, actions, rewards = played(model, 25)
    settings = bandits.FeelGood(0.3, capacity=25)
    past = feel_good.Past(jnp.asarray(features[:, 0].T[None]), jnp.int32(25))
    draws = chain_draws(exact.FGTSState(stats, past, model.zeros()), settings, 1.0, 30_000)
    mean, precision = ridge(model, features, actions, rewards)
    rng = np.random.default_rng(2)
    plain = np.stack(
        [rng.multivariate_normal(m, np.linalg.inv(p), size=200_000) for m, p in zip(mean, precision, strict=True)], 1
    )
    best = np.einsum("ngk,sk->nsg", plain, features[:, 0]).max(-1).sum(-1)
    weights = np.exp(0.3 * (best - best.max()))
    weights /= weights.sum()
    expected = np.einsum("n,ngk->gk", weights, plain)
    spread = np.sqrt(np.einsum("n,ngk->gk", weights, (plain - expected) ** 2))
    effective = 1 / np.sum(weights**2)
    error = spread * np.sqrt(1 / effective + 3 / 30_000)
    assert effective > 2000
    assert np.abs(expected - mean).max() > 6 * error.max()  # the feel-good term moves the mean
    assert (np.abs(draws.mean(0) - expected) < 4 * error).all()


def test_the_mixture_of_ids_is_the_best_one_on_a_fine_grid_of_all_mixtures():
    rng = np.random.default_rng(0)
    steps = np.arange(0, 101)
    simplex = np.array([(i, j, 100 - i - j) for i in steps for j in steps if i + j <= 100]) / 100
    for _ in range(20):
        gap, information = rng.uniform(0.01, 1, size=(2, 3))
        ratio, share = exact.least_information_ratio(jnp.asarray(gap), jnp.asarray(information))
        i, j = np.unravel_index(np.argmin(ratio), ratio.shape)
        mixture = share[i, j] * np.eye(3)[i] + (1 - share[i, j]) * np.eye(3)[j]
        best = np.min((simplex @ gap) ** 2 / (simplex @ information))
        ours = float((mixture @ gap) ** 2 / (mixture @ information))
        np.testing.assert_allclose(ours, ratio[i, j], rtol=1e-4)
        assert best * 0.995 < ours < best * (1 + 1e-4)  # the grid is coarse, ours is not
