"""Off-policy estimates by enumeration of every log; the bound of the theory; policies on disk."""

import itertools
from inspect import unwrap

import jax
import numpy as np
import pytest

from feelgood import bandits
from feelgood.bandits import theory

LOGGING = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
TARGET = np.array([[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]])
REWARD = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
VALUE = float(np.mean(np.sum(TARGET * REWARD, 1)))


def enumerate_logs(estimate):
    """The exact expectation and variance of an estimate over all logs of the two rounds."""
    terms = []
    for actions in itertools.product(range(3), repeat=2):
        p = LOGGING[[0, 1], actions]
        terms.append((np.prod(p), estimate(REWARD[[0, 1], actions], np.array(actions), p, TARGET).value))
    weights, values = map(np.array, zip(*terms, strict=True))
    mean = np.sum(weights * values)
    return mean, np.sum(weights * (values - mean) ** 2)


def test_ips_is_unbiased_over_all_logs_and_has_the_variance_of_its_formula():
    mean, variance = enumerate_logs(bandits.ips)
    np.testing.assert_allclose(mean, VALUE, rtol=1e-12)
    second = np.sum(LOGGING * (TARGET / LOGGING * REWARD) ** 2, 1)
    np.testing.assert_allclose(variance, np.sum(second - np.sum(TARGET * REWARD, 1) ** 2) / 4, rtol=1e-12)


def test_dr_is_unbiased_with_any_model_and_has_no_variance_with_the_right_one():
    wrong = lambda *log: bandits.dr(*log, np.full((2, 3), 0.7))
    np.testing.assert_allclose(enumerate_logs(wrong)[0], VALUE, rtol=1e-12)
    mean, variance = enumerate_logs(lambda *log: bandits.dr(*log, REWARD))
    np.testing.assert_allclose(mean, VALUE, rtol=1e-12)
    assert variance < 1e-24


def test_dr_with_a_right_model_forgives_wrong_propensities():
    actions = np.array([0, 2])
    estimate = bandits.dr(REWARD[[0, 1], actions], actions, [0.9, 0.9], TARGET, REWARD)
    np.testing.assert_allclose(estimate.value, VALUE, rtol=1e-12)


def test_snips_is_a_ratio_of_sums_and_shifts_with_rewards():
    rng = np.random.default_rng(0)
    actions, p = np.array([0, 1]), np.array([0.5, 0.6])
    w = TARGET[[0, 1], actions] / p
    r = rng.normal(size=2)
    value = bandits.snips(r, actions, p, TARGET).value
    np.testing.assert_allclose(value, np.sum(w * r) / np.sum(w), rtol=1e-12)
    np.testing.assert_allclose(bandits.snips(r + 5, actions, p, TARGET).value, value + 5, rtol=1e-12)


def test_estimates_are_those_of_the_open_bandit_pipeline():
    """Numbers of obp 0.4.1 for this log: IPW, self-normalised IPW and DoublyRobust with `model` as regression model."""
    rng = np.random.default_rng(0)
    logging, target = rng.dirichlet(np.ones(4), 50), rng.dirichlet(np.ones(4), 50)
    actions = (rng.uniform(size=(50, 1)) > np.cumsum(logging, 1)).sum(1)
    rewards, model = rng.normal(size=50), rng.normal(size=(50, 4))
    log = rewards, actions, logging[np.arange(50), actions], target
    found = bandits.ips(*log).value, bandits.snips(*log).value, bandits.dr(*log, model).value
    np.testing.assert_allclose(found, (0.035007861853502416, 0.036940883045400136, -0.13719116031889558), rtol=1e-12)


def test_standard_errors_are_those_of_repeated_logs():
    rng = np.random.default_rng(1)
    n, runs = 400, 300
    target, reward = np.tile(TARGET, (n // 2, 1)), np.tile(REWARD, (n // 2, 1))
    logging = np.tile(LOGGING, (n // 2, 1))
    found = {name: [] for name in ("ips", "snips")}
    for _ in range(runs):
        actions = (rng.uniform(size=(n, 1)) > np.cumsum(logging, 1)).sum(1)
        log = reward[np.arange(n), actions], actions, logging[np.arange(n), actions], target
        for name in found:
            found[name].append(getattr(bandits, name)(*log))
    # For IPS the formula counts the spread between the two contexts too, which these logs do not have.
    for name, slack in (("ips", 1.35), ("snips", 1.35)):
        values, errors = map(np.array, zip(*found[name], strict=True))
        assert values.std() * 0.85 < errors.mean() < values.std() * slack
        assert abs(values.mean() - VALUE) < 4 * values.std() / np.sqrt(runs) + 0.01 * (name == "snips")


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        (([1.0], [0], [0.0], [[1.0, 0.0]]), r"propensities must be in \(0, 1\], got 0.0"),
        (([np.nan], [0], [0.5], [[1.0, 0.0]]), "rewards must be finite, got nan in round 0"),
        (([1.0], [2], [0.5], [[1.0, 0.0]]), "actions must be whole numbers from 0 to 1, got 2 to 2"),
        (([1.0], [0], [0.5], [[0.7, 0.7]]), "target must have rows of non-negative numbers that add up to 1"),
        (([1.0, 2.0], [0], [0.5], [[1.0, 0.0]]), r"rewards must have shape \(1,\) to match target, got \(2,\)"),
    ],
)
def test_a_bad_log_gives_one_sentence(log, sentence):
    with pytest.raises(ValueError, match=sentence):
        bandits.ips(*log)


# The bound.


def test_the_bound_is_the_sum_of_its_terms_at_the_best_weight():
    bound = bandits.fgts_bound(1000, 4, noise_std=0.5, norm=1.0)
    eta, weight = 0.5, bound.feel_good_weight
    assert bound.loss_weight == eta
    by_hand = bound.complexity / weight + weight * 1000 + weight * 4 * 1000 / (2 * eta * (1 - eta / 2))
    np.testing.assert_allclose(bound.regret, by_hand, rtol=1e-12)
    for factor in (0.5, 0.9, 1.1, 2.0):
        other = bandits.fgts_bound(1000, 4, noise_std=0.5, norm=1.0, feel_good_weight=factor * weight)
        assert other.regret >= bound.regret


def test_the_mass_of_a_ball_is_bounded_from_below():
    draws = np.random.default_rng(0).normal(size=(400_000, 3)) / np.sqrt(2.0)
    share = np.mean(np.linalg.norm(draws - [0.5, 0, 0], axis=1) < 0.6)
    assert np.exp(-theory.log_inverse_mass(3, 2.0, 0.5, 0.6)) < share


def test_the_bound_grows_like_the_root_of_the_rounds():
    small, large = (bandits.fgts_bound(n, 10).regret for n in (10_000, 1_000_000))
    assert 9 < large / small < 14


def test_measured_regret_is_below_the_bound():
    bandit = bandits.cosine(num_arms=3, num_features=2, noise_std=0.3)  # means in [−1, 1]

    def round_(key, theta, t):
        now = bandit.round(key, theta, t)
        means = now.context.features @ theta
        return now._replace(means=means, rewards=means + (now.rewards - now.means))

    bound = bandits.fgts_bound(300, 2, value_range=2.0, noise_std=0.3, norm=1.0)
    good = bandits.FeelGood(bound.feel_good_weight, capacity=64)
    algorithm = bandits.fgts(bandit.model, good, loss_weight=bound.loss_weight, num_candidates=4)
    linear = bandit._replace(round=round_)
    run = jax.jit(jax.vmap(lambda key: bandits.simulate(key, linear, algorithm, 300).regret.sum()))
    regret = np.asarray(run(jax.random.split(jax.random.key(0), 20)))
    assert 0 < regret.mean() < bound.regret
    assert bound.regret < 300 * 2  # not vacuous


# Policies.


def test_a_policy_goes_on_as_if_it_had_never_been_saved(tmp_path):
    settings = {"feel_good": {"weight": 0.1, "capacity": 8}, "temperature": 0.5, "num_candidates": 2}
    policy = bandits.Policy("fgts", 3, 2, settings=settings, seed=3, num_draws=20)
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.normal(size=2)
        action, share = policy.act(x)
        policy.learn(x, action, float(rng.normal()))
        np.testing.assert_allclose(share.sum(), 1)
    policy.save(tmp_path / "policy.npz")
    again = bandits.Policy.load(tmp_path / "policy.npz")
    for _ in range(3):
        x = rng.normal(size=2)
        ours, theirs = policy.act(x), again.act(x)
        assert ours[0] == theirs[0]
        np.testing.assert_array_equal(ours[1], theirs[1])


def test_arms_that_are_absent_have_probability_zero_and_others_never():
    policy = bandits.Policy("lin_ucb", 4, 2)
    action, share = policy.act([1.0, 0.0], available=[False, True, True, False])
    assert action in (1, 2)
    assert share[0] == share[3] == 0
    assert (share[1:3] > 0).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda p: bandits.Policy("lin_tz", 2, 3), "algorithm must be one of .*did you mean 'lin_ts'?"),
        (lambda p: bandits.Policy("lin_ts", 0, 3), "num_arms must be a whole number of at least 1, got 0"),
        (lambda p: bandits.Policy("lin_ts", 2, 3, settings={"heat": 1}), "settings of lin_ts are not valid"),
        (lambda p: p.act([1.0, 2.0]), r"features must have shape \(2, 3\) or \(3,\), got \(2,\)"),
        (lambda p: p.act([1.0, 2.0, np.nan]), "features must be finite, got nan"),
        (lambda p: p.act([1.0, 2.0, 3.0], available=[False, False]), "available must be true for at least one arm"),
        (lambda p: p.learn([1.0, 2.0, 3.0], 0, float("nan")), "reward must be a finite real number, got nan"),
        (
            lambda p: unwrap(bandits.Policy.learn)(p, [1.0, 2.0, 3.0], 0, "much"),
            "reward must be a finite real number, got 'much'",
        ),
        (lambda p: p.learn([1.0, 2.0, 3.0], 2, 1.0), "action must be below num_arms 2, got 2"),
        (lambda p: bandits.Policy.load(__file__), "is not a saved policy"),
    ],
)
def test_bad_use_of_a_policy_gives_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(bandits.Policy("lin_ts", 2, 3))
