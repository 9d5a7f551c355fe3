"""Bonuses and perturbations against NumPy in float64, their laws against brute force, and that they learn."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.linear import learning, mdps
from feelgood.linear import least_squares as ls
from marks import fast_only

RIDGE = 0.7


def episodes(mdp, num_episodes, seed=0):
    """Raw transitions (s, a, r, s') of a uniform policy, (num_episodes, H) each."""
    rng = np.random.default_rng(seed)
    transitions, rewards = (np.asarray(table, np.float64) for table in mdps.tables(mdp))
    raw = np.zeros((4, num_episodes, mdp.horizon))
    for k in range(num_episodes):
        s = rng.integers(mdp.num_states)
        for h in range(mdp.horizon):
            a = rng.integers(mdp.num_actions)
            law = np.maximum(transitions[h, s, a], 0)
            after = rng.choice(mdp.num_states, p=law / law.sum())
            raw[:, k, h] = s, a, rewards[h, s, a], after
            s = after
    return raw[0].astype(int), raw[1].astype(int), raw[2], raw[3].astype(int)


def data_of(mdp, raw):
    s, a, r, after = raw
    states = np.concatenate([s, after[:, -1:]], 1)
    add = jax.jit(learning.add_episode)
    data = learning.no_data(mdp.features, mdp.horizon)
    for k in range(len(s)):
        data = add(data, mdp.features, states[k], a[k], r[k].astype(np.float32))
    return data


def numpy_values(mdp, raw, ridge, values_of):
    """Backward recursion on raw transitions; `values_of(fitted, widths, stages_left)`."""
    phi = np.asarray(mdp.features, np.float64)
    s, a, r, after = raw
    value, qs = np.zeros(mdp.num_states), []
    for h in reversed(range(mdp.horizon)):
        x = phi[s[:, h], a[:, h]]
        gram = x.T @ x + ridge * np.eye(mdp.dimension)
        w = np.linalg.solve(gram, x.T @ (r[:, h] + value[after[:, h]]))
        widths = np.sqrt(np.einsum("sad,de,sae->sa", phi, np.linalg.inv(gram), phi))
        qs.append(values_of(phi @ w, widths, mdp.horizon - h))
        value = qs[-1].max(-1)
    return np.array(qs[::-1])


def plenty(mdp, count=1e5):
    """The data of `count` visits of every (s, a) at every stage, without noise."""
    phi, (transitions, rewards) = mdp.features, mdps.tables(mdp)
    return learning.Data(
        jnp.asarray(1, jnp.int32),
        count * jnp.tile(jnp.einsum("sad,sae->de", phi, phi)[None], (mdp.horizon, 1, 1)),
        count * jnp.einsum("sad,hsa->hd", phi, rewards),
        count * jnp.einsum("sad,hsat->hdt", phi, transitions),
        count * transitions,
        count * rewards,
    )


@pytest.fixture(scope="module")
def chain():
    mdp = mdps.nchain(4)
    return mdp, plenty(mdp), np.asarray(mdps.optimal_values(mdp)[1][0])


@pytest.fixture(scope="module")
def small():
    mdp = mdps.random_simplex(3, dimension=4, num_states=6, num_actions=3, horizon=4)
    raw = episodes(mdp, 25)
    return mdp, raw, data_of(mdp, raw)


@pytest.fixture(scope="module")
def flat():
    """One stage whose values keep clear of 0 and 1, so that laws are not truncated."""
    features = jnp.asarray(np.random.default_rng(5).dirichlet(np.ones(3), (4, 2)), jnp.float32)
    mdp = mdps.linear_mdp(features, np.full((1, 3, 4), 0.25), np.array([[0.45, 0.5, 0.55]]), 0)
    raw = episodes(mdp, 40)
    return mdp, raw, data_of(mdp, raw)


def draws(learner, data, num_draws, seed=0):
    keys = jax.random.split(jax.random.key(seed), num_draws)
    plan = jax.jit(jax.vmap(lambda key: learner.plan(key, learner.init(), data, jnp.int32(0))))
    return plan(keys)


def assert_gaussian(samples, mean, covariance):
    """Mean and covariance within five standard errors."""
    n = len(samples)
    variances = np.diag(covariance)
    np.testing.assert_array_less(np.abs(samples.mean(0) - mean), 5 * np.sqrt(variances / n))
    errors = np.sqrt((covariance**2 + np.outer(variances, variances)) / n)
    np.testing.assert_array_less(np.abs(np.cov(samples.T) - covariance), 5 * errors)


def test_the_fitted_model_is_the_batch_regression(small):
    mdp, (s, a, r, after), data = small
    model = jax.jit(ls.fit)(mdp.features, data, RIDGE)
    phi = np.asarray(mdp.features, np.float64)
    for h in range(mdp.horizon):
        x = phi[s[:, h], a[:, h]]
        inverse = np.linalg.inv(x.T @ x + RIDGE * np.eye(mdp.dimension))
        np.testing.assert_allclose(model.rewards[h], phi @ inverse @ x.T @ r[:, h], atol=1e-5)
        arrivals = np.eye(mdp.num_states)[after[:, h]]
        np.testing.assert_allclose(model.transitions[h], phi @ inverse @ x.T @ arrivals, atol=1e-5)
        products = np.einsum("sad,de,tbe->satb", phi, inverse, phi)
        ours = jnp.einsum("sad,tbd->satb", model.directions[h], model.directions[h])
        np.testing.assert_allclose(ours, products, atol=1e-5)


def test_lsvi_ucb_is_the_recursion_in_numpy(small):
    mdp, raw, data = small
    learner = ls.lsvi_ucb(mdp.features, mdp.horizon, bonus=2.0, ridge=RIDGE)
    ours = jax.jit(learner.plan)(jax.random.key(0), (), data, jnp.int32(0)).values
    theirs = numpy_values(mdp, raw, RIDGE, lambda q, x, left: np.clip(q + 2.0 * x, 0, left))
    np.testing.assert_allclose(ours, theirs, atol=2e-5)
    assert 0.05 < np.mean(theirs < np.arange(4, 0, -1)[:, None, None]) < 0.95  # some are truncated, some are not


def test_opt_rlsvi_without_noise_is_the_recursion_in_numpy(small):
    mdp, raw, data = small
    lower, upper = 0.25, 0.45
    learner = ls.opt_rlsvi(mdp.features, mdp.horizon, noise_scale=0.0, lower=lower, upper=upper, ridge=RIDGE)
    ours = jax.jit(learner.plan)(jax.random.key(0), (), data, jnp.int32(0)).values
    seen = []

    def values_of(q, x, left):
        seen.append(x)
        between = q * (upper - x) / (upper - lower) + left * (x - lower) / (upper - lower)
        return np.where(x <= lower, q, np.where(x >= upper, left, between))

    np.testing.assert_allclose(ours, numpy_values(mdp, raw, RIDGE, values_of), atol=2e-5)
    shares = np.mean(np.array(seen) <= lower), np.mean(np.array(seen) >= upper)
    assert min(*shares, 1 - sum(shares)) > 0.05  # all three cases occur


def test_opt_rlsvi_does_not_truncate(flat):
    mdp, _, data = flat
    learner = ls.opt_rlsvi(mdp.features, 1, noise_scale=3.0, lower=5.0, upper=math.inf)
    free = draws(learner, data, 64).values
    assert free.min() < 0
    assert free.max() > 1


def test_perturbed_values_have_the_law_of_regressions_on_perturbed_rewards(flat):
    mdp, raw, data = flat
    sigma, n = 0.1, 20_000
    phi = np.asarray(mdp.features, np.float64)
    x, y = phi[raw[0][:, 0], raw[1][:, 0]], raw[2][:, 0]
    gram = x.T @ x + RIDGE * np.eye(3)
    rng = np.random.default_rng(0)
    # argmin Σ (y + ε − ⟨w, x⟩)² + ρ‖w − ζ‖², by brute force over the stored data
    targets = y + sigma * rng.standard_normal((n, len(y)))
    pulls = np.sqrt(RIDGE) * sigma * rng.standard_normal((n, 3))  # ρζ
    brute = np.linalg.solve(gram, (targets @ x + pulls).T).T @ phi.reshape(-1, 3).T
    mean = phi.reshape(-1, 3) @ np.linalg.solve(gram, x.T @ y)
    covariance = sigma**2 * phi.reshape(-1, 3) @ np.linalg.inv(gram) @ phi.reshape(-1, 3).T
    assert_gaussian(brute, mean, covariance)
    phe = ls.lsvi_phe(mdp.features, 1, noise_scale=sigma, num_samples=1, ridge=RIDGE)
    assert_gaussian(np.asarray(draws(phe, data, n).values).reshape(n, -1), mean, covariance)
    rlsvi = ls.opt_rlsvi(mdp.features, 1, noise_scale=sigma, lower=5.0, upper=6.0, ridge=RIDGE)
    assert_gaussian(np.asarray(draws(rlsvi, data, n).values).reshape(n, -1), mean, covariance)


def test_stages_and_samples_are_perturbed_independently():
    directions = jnp.tile(jnp.eye(2).reshape(1, 1, 2, 2), (3, 1, 1, 1))
    keys = jax.random.split(jax.random.key(0), 20_000)
    z = jax.jit(jax.vmap(lambda key: ls.perturbations(key, directions, 2)))(keys).reshape(len(keys), -1)
    assert_gaussian(np.asarray(z, np.float64), np.zeros(12), np.eye(12))


def test_lsvi_phe_takes_the_largest_of_its_samples(flat):
    mdp, _, data = flat
    sigma, n = 0.05, 20_000
    values = draws(ls.lsvi_phe(mdp.features, 1, noise_scale=sigma, num_samples=4), data, n).values[:, 0]
    model = jax.jit(ls.fit)(mdp.features, data, 1.0)
    largest_of_four, spread = 1.02938, 0.70122  # mean and standard deviation of the largest of four normals
    expected = model.rewards[0] + largest_of_four * sigma * model.widths[0]
    assert jnp.all(jnp.abs(values.mean(0) - expected) < 5 * spread * sigma * model.widths[0] / math.sqrt(n))


def test_lmc_lsvi_settles_at_its_gaussian(flat):
    mdp, raw, data = flat
    beta, step, n = 50.0, 0.5, 10_000
    learner = ls.lmc_lsvi(mdp.features, 1, inverse_temperature=beta, num_updates=300, step_size=step, ridge=RIDGE)
    samples = np.asarray(draws(learner, data, n).state.params[:, 0])
    x = np.asarray(mdp.features, np.float64)[raw[0][:, 0], raw[1][:, 0]]
    gram = x.T @ x + RIDGE * np.eye(3)
    mean = np.linalg.solve(gram, x.T @ raw[2][:, 0])
    precision = 2 * beta * gram  # of N(ŵ, (2βΛ)⁻¹); a step of finite size widens it by (I − τP/2)⁻¹
    widened = np.eye(3) - step / 2 * precision / np.linalg.eigvalsh(precision)[-1]
    assert_gaussian(samples, mean, np.linalg.inv(precision @ widened))


def test_theory_constants_by_hand():
    assert ls.lsvi_ucb_bonus(2, 3, 5, failure=0.1) == pytest.approx(6 * math.sqrt(6.39693), rel=1e-5)
    sigma, lower, upper = ls.opt_rlsvi_constants(2, 4, 10, failure=0.1)
    assert sigma == pytest.approx(2 * 8 * math.sqrt(math.log(1600)), rel=1e-6)
    assert upper == pytest.approx(1 / (16 * math.sqrt(2) * math.log(1600)), rel=1e-6)
    assert lower == upper / 2
    assert ls.lsvi_phe_noise(2, 3, 5, failure=0.1) == pytest.approx(3 * math.sqrt(2 * 6.39693), rel=1e-5)
    assert ls.lsvi_phe_samples(3, failure=0.01) == 119  # 3 · 6.80239 / 0.172753 = 118.13
    assert ls.lmc_lsvi_temperature(2, 3, 5, failure=0.1) == pytest.approx(1 / (18 * 6.39693), rel=1e-5)


LEARNERS = {
    "lsvi_ucb": lambda phi, horizon: ls.lsvi_ucb(phi, horizon, bonus=1.0),
    "opt_rlsvi": lambda phi, horizon: ls.opt_rlsvi(phi, horizon, noise_scale=0.5, lower=0.5, upper=0.9),
    "lsvi_phe": lambda phi, horizon: ls.lsvi_phe(phi, horizon, noise_scale=0.5, num_samples=8),
    "lmc_lsvi": lambda phi, horizon: ls.lmc_lsvi(phi, horizon, inverse_temperature=4.0, num_updates=20),
}


def lsvi(phi, horizon):
    return ls.lsvi(phi, horizon, ridge=1.0)


@pytest.mark.parametrize("make", [*LEARNERS.values(), lsvi], ids=[*LEARNERS, "lsvi"])
def test_with_plenty_of_data_the_policy_is_optimal(chain, make):
    mdp, data, best = chain
    learner = make(mdp.features, mdp.horizon)

    @jax.jit
    def reached():
        plan = learner.plan(jax.random.key(0), learner.init(), data, jnp.int32(1))
        return mdps.policy_values(mdp, mdps.greedy_policy(plan.values))[0]

    np.testing.assert_allclose(reached(), best, atol=1e-4)


def regrets(mdp, make, num_episodes, num_seeds=8):
    run = lambda key: learning.learn(key, mdp, make(mdp.features, mdp.horizon), num_episodes).regret
    return np.asarray(jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(1), num_seeds)))


# The slow one settles at its Gaussian in a test above.
@pytest.mark.parametrize("name", fast_only(set(LEARNERS) - {"lmc_lsvi"}, LEARNERS))
def test_exploration_opens_the_lock(name):
    curves = regrets(mdps.combination_lock(horizon=4, num_actions=2), LEARNERS[name], 400)
    assert curves.min() >= -1e-5
    assert curves[:, :5].mean() > 0.5  # there was something to learn
    assert curves[:, -100:].mean() < 0.05


def test_without_exploration_the_lock_stays_shut():
    curves = regrets(mdps.combination_lock(horizon=4, num_actions=2), lsvi, 400)
    assert curves[:, -100:].mean() > 0.9


def test_one_compilation_serves_a_grid(small):
    mdp, _, data = small

    def values(bonus):
        learner = ls.lsvi_ucb(mdp.features, mdp.horizon, bonus=bonus)
        return learner.plan(jax.random.key(0), (), data, jnp.int32(0)).values

    grid = jax.jit(jax.vmap(values))(jnp.array([0.1, 0.4]))
    np.testing.assert_allclose(grid[1], jax.jit(lambda: values(0.4))(), atol=1e-5)
    assert jnp.any(grid[0] != grid[1])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda phi: ls.lsvi(phi, 0), "horizon must be a whole number"),
        (lambda phi: ls.lsvi(phi, 2, ridge=0.0), "ridge must be positive"),
        (lambda phi: ls.lsvi_ucb(phi, 2, bonus=-1.0), "bonus must be non-negative"),
        (lambda phi: ls.lsvi_phe(phi, 2, noise_scale=1.0, num_samples=0), "num_samples must be a whole number"),
        (lambda phi: ls.opt_rlsvi(phi, 2, noise_scale=1.0, lower=0.5, upper=0.5), "upper must be above lower"),
        (
            lambda phi: ls.lmc_lsvi(phi, 2, inverse_temperature=1.0, num_updates=1, step_size=2.5),
            "step_size must be below 2",
        ),
        (lambda phi: ls.lsvi_ucb_bonus(2, 2, 2, failure=1.5), "failure must be a probability"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make(jnp.ones((1, 1, 1)))
