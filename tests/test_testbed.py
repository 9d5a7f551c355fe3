"""The score and the posterior of `benchmarks/testbed.py`, against closed forms."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from feelgood import noise
from scripts import benchmark

testbed = benchmark("testbed")


def test_the_score_of_a_few_functions_is_that_of_their_mixture(testbed):
    rng = np.random.default_rng(0)
    values, picks, labels = rng.normal(size=(3, 4, 2)), rng.integers(0, 2, (4, 5)), rng.normal(size=(4, 5))
    marginal, joint = [], []
    for pair in range(4):
        likelihoods = np.array(
            [[stats.norm.pdf(labels[pair, t], f[pair, picks[pair, t]], 0.7) for t in range(5)] for f in values]
        )
        marginal += list(np.log(likelihoods.mean(0)))
        joint.append(np.log(likelihoods.prod(1).mean()))
    found = testbed.log_likelihoods(jnp.asarray(values), jnp.asarray(picks), jnp.asarray(labels), 0.7)
    np.testing.assert_allclose(found, [np.mean(marginal), np.mean(joint)], rtol=1e-5)


def test_the_joint_score_of_exact_draws_is_the_gaussian_predictive_density(testbed):
    # Linear functions w·x with prior N(0, I): the posterior and the predictive density of all labels are Gaussian.
    rng = np.random.default_rng(1)
    x, weights, sigma = rng.normal(size=(6, 3)), rng.normal(size=3), 0.5
    y = x @ weights + sigma * rng.normal(size=6)
    covariance = np.linalg.inv(np.eye(3) + x.T @ x / sigma**2)
    center = covariance @ x.T @ y / sigma**2
    pair, picks = rng.normal(size=(2, 3)), rng.integers(0, 2, (1, 10))
    labels = pair[picks[0]] @ weights + sigma * rng.normal(size=10)
    draws = rng.multivariate_normal(center, covariance, size=100_000)
    found = testbed.log_likelihoods(
        jnp.asarray(draws @ pair.T)[:, None], jnp.asarray(picks), jnp.asarray(labels)[None], sigma
    )
    at = pair[picks[0]]
    joint = stats.multivariate_normal.logpdf(labels, at @ center, at @ covariance @ at.T + sigma**2 * np.eye(10))
    marginal = stats.norm.logpdf(labels, at @ center, np.sqrt(np.einsum("ti,ij,tj->t", at, covariance, at) + sigma**2))
    # The relative error of a mean of likelihoods is their spread over √M, here below 1%.
    np.testing.assert_allclose(found, [marginal.mean(), joint], atol=0.03)
    assert abs(joint - marginal.sum()) > 0.3  # so the joint score differs from the sum of marginal ones


def test_the_potential_is_the_posterior_and_ignores_padding(testbed):
    problem = jax.jit(testbed.make_problem)(3, 2, 10)
    apply = lambda params, x: testbed.function(params, x, 2)
    two = [testbed.prior_draw(jax.random.key(seed)) for seed in (0, 1)]
    _, _, prior = testbed.start("mlp", jax.random.key(0), 1.0, 2)
    potential = jax.jit(testbed.potential_of(problem, apply, prior))
    beta = 10 / (2 * testbed.NOISE**2)

    def log_density(params):
        fit = stats.norm.logpdf(problem.y[:10], apply(params, problem.x)[:10, 0], testbed.NOISE).sum()
        return fit + sum(stats.norm.logpdf(leaf).sum() for leaf in jax.tree.leaves(params))

    found = beta * (potential(two[1]) - potential(two[0]))
    np.testing.assert_allclose(found, log_density(two[0]) - log_density(two[1]), rtol=1e-4)


def test_diverged_chains_score_minus_infinity(testbed):
    values = jnp.array([[[0.0, jnp.nan]], [[0.0, 0.0]]])
    found = testbed.log_likelihoods(values, jnp.zeros((1, 3), int), jnp.zeros((1, 3)))
    assert np.all(np.isneginf(found))


class Fits(NamedTuple):
    """Hypermodels of the two weights of a linear function of ten data, at the minima of their potentials."""

    x: np.ndarray  # (10, 2)
    y: np.ndarray
    towards: np.ndarray  # (fits, 10, INDEX_DIM), the directions of the data
    anchors: np.ndarray  # (fits, 2, INDEX_DIM)
    mean: np.ndarray  # (fits, 2)
    spread: np.ndarray  # (fits, 2, INDEX_DIM)


@pytest.fixture(scope="module")
def fits(testbed) -> Fits:
    dim = testbed.INDEX_DIM
    # Indices of mean 0 and E[zzᵀ] = I: the loss is quadratic in z, so its mean over them is that over normal ones.
    indices = np.sqrt(dim) * np.concatenate([np.eye(dim), -np.eye(dim)]).astype(np.float32)

    @jax.jit
    def solve(keys):
        apply = lambda weights, x: (x[..., :2] @ weights)[..., None]

        def one(key):
            key_model, key_data = jax.random.split(key)
            model = testbed.start_indexed("hypermodel", key_model, 1.0, 2)._replace(apply=apply)
            towards = testbed.directions(key_data)
            loss = testbed.indexed_potential(problem, model, indices, towards)
            slope, times = jax.linearize(jax.grad(loss), jnp.zeros_like(model.params))
            return towards, model.params[:, 1:], slope, times

        def parts(key):
            towards, anchors, slope, _ = one(key)
            return towards[:10], anchors, slope

        units = jnp.eye(2 * (1 + dim)).reshape(-1, 2, 1 + dim)
        return jax.vmap(parts)(keys), jax.vmap(one(keys[0])[-1])(units)

    rng = np.random.default_rng(4)
    x, y = 0.3 * rng.normal(size=(testbed.NUM_DATA, testbed.DIM)), rng.normal(size=testbed.NUM_DATA)
    problem = testbed.Problem(2, 10, np.float32(x), np.float32(y), None, None, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(testbed, "LIKE", jnp.zeros(2))
        results = solve(jax.random.split(jax.random.key(6), 400))
    (towards, anchors, slopes), curvature = jax.tree.map(np.float64, results)
    size = 2 * (1 + dim)
    best = -np.linalg.solve(curvature.reshape(size, size), slopes.reshape(-1, size).T).T.reshape(slopes.shape)
    return Fits(x[:10, :2], y[:10], towards, anchors, best[..., 0], best[..., 1:])


def test_each_member_of_a_linear_hypermodel_at_its_optimum_is_a_randomised_least_squares_fit(testbed, fits):
    rows = np.concatenate([fits.x / testbed.NOISE, np.eye(2)])
    for index in np.random.default_rng(2).normal(size=(3, testbed.INDEX_DIM)):
        # Least squares of perturbed labels (y + σ·b·z)/σ on x/σ, and of B₀z on the weights themselves.
        labels = np.concatenate([fits.y / testbed.NOISE + fits.towards[0] @ index, fits.anchors[0] @ index])
        expected = np.linalg.lstsq(rows, labels)[0]
        np.testing.assert_allclose(fits.mean[0] + fits.spread[0] @ index, expected, rtol=1e-4, atol=1e-4)


def test_the_law_of_a_linear_hypermodel_at_its_optimum_is_the_posterior(testbed, fits):
    covariance = np.linalg.inv(np.eye(2) + fits.x.T @ fits.x / testbed.NOISE**2)
    center = covariance @ fits.x.T @ fits.y / testbed.NOISE**2
    np.testing.assert_allclose(fits.mean, np.broadcast_to(center, fits.mean.shape), rtol=1e-4, atol=1e-4)
    # BBᵀ varies with the directions of the data and the anchor, as the index is finite; its mean is the covariance.
    each = fits.spread @ fits.spread.swapaxes(1, 2)
    error = each.std(0) / np.sqrt(len(each))
    assert np.all(error < 0.03 * np.sqrt(np.outer(np.diag(covariance), np.diag(covariance))))
    assert np.all(np.abs(each.mean(0) - covariance) < 4 * error)


def test_the_random_prior_of_an_index_has_its_closed_form_variance(testbed, monkeypatch):
    monkeypatch.setattr(testbed, "HIDDEN", (20,))  # fewer layers compile faster
    # Untrained networks are 0, so f(x, z) = scale·p(x)·z/√D, whose variance over z is the sum of f(x, e_j)² over j.
    count, dim = 4_000, testbed.INDEX_DIM

    @jax.jit
    def squares(keys):
        x = jnp.linspace(-1, 1, 2 * testbed.DIM).reshape(2, testbed.DIM)
        indices = jnp.concatenate([jnp.eye(dim), testbed.indices_of("last layer", jax.random.key(2), (count,))])

        def one(key):
            start = testbed.start_indexed("last layer", key, 2.0, testbed.DIM)
            return jax.vmap(lambda index: start.apply(start.member(start.params, index), x)[..., 0])(indices) ** 2

        return jax.lax.map(one, keys)

    values = np.asarray(squares(jax.random.split(jax.random.key(3, impl="unsafe_rbg"), 50)))
    exact, sampled = values[:, :dim].sum(1), values[:, dim:].mean(1)
    # The mean square over normal indices has a relative standard error of √(2/count); 100 are compared.
    np.testing.assert_allclose(sampled, exact, rtol=4.5 * np.sqrt(2 / count))
    # Outputs of p have a variance of 1 over networks: 50 networks of 20 outputs give 4.5%, and features vary, too.
    np.testing.assert_allclose(exact.mean(0), 2.0**2, rtol=0.2)


def test_the_anchors_of_a_hypermodel_are_draws_of_the_prior(testbed):
    leaves = jax.jit(lambda: jax.tree.leaves(testbed.start_indexed("hypermodel", jax.random.key(0), 1.0, 2).params))()
    rows = np.concatenate([np.asarray(leaf).reshape(-1, 1 + testbed.INDEX_DIM) for leaf in leaves])
    assert not rows[:, 0].any()
    variances = (rows[:, 1:] ** 2).sum(-1)  # of each weight over indices
    assert abs(variances.mean() - 1) < 4 * np.sqrt(2 / rows[:, 1:].size)


def test_no_gradient_flows_from_the_index_of_an_epinet_into_its_network(testbed, monkeypatch):
    monkeypatch.setattr(testbed, "HIDDEN", (8,))  # fewer layers compile faster
    monkeypatch.setattr(testbed, "INDEX_HIDDEN", (8,))

    @jax.jit
    def run():
        model = testbed.start_indexed("epinet", jax.random.key(0, impl="unsafe_rbg"), 1.0, testbed.DIM)
        net, head = noise.normal_like(jax.random.key(1), model.params)
        x, index = jnp.linspace(-1, 1, 4 * testbed.DIM).reshape(4, -1), jnp.linspace(-1, 1, testbed.INDEX_DIM)
        added = lambda net, head: (model.apply(model.member((net, head), index), x) - net(x)).sum()
        return jax.grad(added, (0, 1))(net, head), added(net, head) - added(jax.tree.map(jnp.negative, net), head)

    (slopes, slopes_of_head), difference = run()
    jax.tree.map(lambda leaf: np.testing.assert_allclose(leaf, 0, atol=1e-4), slopes)
    assert all(np.abs(leaf).max() > 0.01 for leaf in jax.tree.leaves(slopes_of_head))
    assert abs(difference) > 0.1  # the index reads the features of the network
