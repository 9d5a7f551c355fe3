"""The loop: when algorithms learn, the definition of regret, and the errors for bad input."""

from inspect import unwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits
from feelgood.bandits.base import Algorithm, Context
from feelgood.bandits.exact import least_squares
from feelgood.bandits.perceptron import parts_of


def counting(num_arms):
    """Plays the arm whose number is the count of rewards learnt so far."""
    return Algorithm(
        lambda key: jnp.zeros((), jnp.int32),
        lambda key, state, context: (state % num_arms, state),
        lambda key, state, context, action, reward: state + 1,
    )


@pytest.mark.parametrize(
    ("batch_size", "delay", "expected"),
    [
        (1, 0, [0, 1, 2, 3, 4, 5]),
        (2, 0, [0, 0, 2, 2, 4, 4]),
        (1, 2, [0, 0, 0, 1, 2, 3]),
        (2, 1, [0, 0, 0, 0, 2, 2]),
    ],
)
def test_rewards_are_learnt_when_they_arrive(batch_size, delay, expected):
    bandit = bandits.linear(num_arms=7)
    curve = bandits.simulate(jax.random.key(0), bandit, counting(7), 6, batch_size=batch_size, delay=delay)
    assert curve.action.tolist() == expected


def test_delayed_rewards_belong_to_their_own_contexts():
    """With a delay of d batches the statistics after T rounds are those of the first T − d rounds."""
    bandit = bandits.linear(num_arms=2, num_features=3)
    recording = Algorithm(
        lambda key: jnp.zeros(3),
        lambda key, state, context: (jnp.int32(0), state),
        lambda key, state, context, action, reward: context.features[0] * reward,
    )
    seen = []
    spy = recording._replace(choose=lambda key, state, context: (jnp.int32(0), _record(seen, state, context)))
    bandits.simulate(jax.random.key(1), bandit, spy, 5, delay=2)
    jax.effects_barrier()
    states, features = zip(*seen, strict=True)
    curve = bandits.simulate(jax.random.key(1), bandit, recording, 5, delay=2)
    for t in (3, 4):
        np.testing.assert_allclose(states[t], features[t - 3][0] * curve.reward[t - 3], rtol=1e-6)


def _record(seen, state, context):
    jax.debug.callback(lambda s, f: seen.append((np.array(s), np.array(f))), state, context.features, ordered=True)
    return state


def test_regret_is_the_gap_of_the_means_and_never_negative():
    bandit = bandits.linear(num_arms=3, num_features=2)
    key = jax.random.key(2)
    curve = bandits.simulate(key, bandit, counting(3), 30)
    key_instance, _, key_rounds = jax.random.split(key, 3)
    theta = np.asarray(bandit.init(key_instance))
    for t, key_step in enumerate(jax.random.split(key_rounds, 30)):
        key_round = jax.random.split(jax.random.split(key_step)[0])[0]
        context = bandit.round(key_round, jnp.asarray(theta), jnp.int32(t)).context
        means = theta @ np.asarray(context.features[0])
        np.testing.assert_allclose(curve.regret[t], means.max() - means[t % 3], atol=1e-6)


def test_a_batch_of_runs_equals_single_runs():
    bandit = bandits.linear(num_arms=3, num_features=2)
    algorithm = bandits.lin_ts(bandit.model)
    keys = jax.random.split(jax.random.key(3), 3)
    run = lambda key: bandits.simulate(key, bandit, algorithm, 40)
    together = jax.jit(jax.vmap(run))(keys)
    for i in range(3):
        np.testing.assert_array_equal(together.action[i], jax.jit(run)(keys[i]).action)


def test_unavailable_arms_are_not_played():
    bandit = bandits.linear(num_arms=4, num_features=2)

    def round_(key, instance, t):
        now = bandit.round(key, instance, t)
        return now._replace(context=Context(now.context.features, jnp.arange(4) % 2 == t % 2))

    absent = bandit._replace(round=round_)
    for algorithm in (bandits.lin_ts(bandit.model), bandits.epsilon_greedy(bandit.model, 0.5)):
        curve = bandits.simulate(jax.random.key(4), absent, algorithm, 50)
        assert (np.asarray(curve.action) % 2 == np.arange(50) % 2).all()
        assert float(curve.regret.min()) >= 0


def test_probabilities_are_those_of_two_independent_gaussian_arms():
    model = bandits.Model(2, 1, False)
    algorithm = bandits.lin_ts(model, prior_precision=1.0)
    state = algorithm.init(jax.random.key(0))
    context = Context(jnp.ones((1, 1)))
    state = algorithm.learn(jax.random.key(0), state, context, jnp.int32(0), jnp.float32(2.0))
    # Arm 0 is N(1, 1/2) after one reward of 2, arm 1 is N(0, 1): P(arm 0) = Φ(1/√1.5).
    share = bandits.choice_probabilities(jax.random.key(1), algorithm, state, context, 2, 20_000)
    expected = 0.79289
    assert abs(float(share[0]) - expected) < 4 * np.sqrt(expected * (1 - expected) / 20_000)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda b: bandits.linear(num_arms=0), "num_arms must be a whole number of at least 1, got 0"),
        (lambda b: bandits.linear(noise_std=-1.0), "noise_std must be non-negative and finite, got -1.0"),
        (lambda b: bandits.wheel(delta=1.5), r"delta must be in \[0, 1\], got 1.5"),
        (lambda b: bandits.lin_ts(b.model, -1.0), "temperature must be non-negative and finite, got -1.0"),
        # The tests check types at run time, users do not.
        (lambda b: unwrap(least_squares)(b), r"model must be a Model such as bandit.model, got Bandit\("),
        (lambda b: unwrap(parts_of)(b, None, None), r"model must be a Model such as bandit.model, got Bandit\("),
        (lambda b: unwrap(bandits.polya_gamma_ts)(b), r"model must be a Model such as bandit.model, got Bandit\("),
        (lambda b: bandits.lmc_ts(b.model, 0.0), "step_size must be positive and finite, got 0.0"),
        (lambda b: bandits.fgts(b.model, bandits.FeelGood(-0.1)), "weight must be non-negative and finite, got -0.1"),
        (
            lambda b: bandits.simulate(jax.random.key(0), b, bandits.lin_ts(b.model), 5, batch_size=2),
            "num_rounds must be a multiple of batch_size 2, got 5",
        ),
    ],
)
def test_bad_input_gives_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(bandits.linear())


@pytest.mark.parametrize(
    ("round_", "message"),
    [
        (lambda now: now.rewards, "round of a bandit must return a Round"),
        (lambda now: now._replace(means=now.means[:2]), r"means of a Round must have shape \(3,\).*got \(2,\)"),
        (lambda now: now._replace(rewards=now.rewards[:, None]), r"rewards of a Round must have shape \(3,\)"),
        (
            lambda now: now._replace(context=Context(now.context.features[0])),
            r"features of a Context must have shape \(3, 2\) or \(1, 2\), got \(2,\)",
        ),
    ],
)
def test_a_round_of_the_wrong_shape_is_explained(round_, message):
    bandit = bandits.linear(num_arms=3, num_features=2)
    broken = bandit._replace(round=lambda key, instance, t: round_(bandit.round(key, instance, t)))
    with pytest.raises(ValueError, match=message):
        bandits.simulate(jax.random.key(0), broken, counting(3), 5)


def test_arms_that_share_their_weights_need_features_of_their_own():
    bandit = bandits.linear(num_arms=3, num_features=2)
    shared = bandit._replace(model=bandit.model._replace(shared=True))
    one_row = lambda now: now._replace(context=Context(now.context.features[:1]))
    alike = shared._replace(round=lambda key, instance, t: one_row(bandit.round(key, instance, t)))
    with pytest.raises(ValueError, match=r"features of a Context must have shape \(3, 2\), got \(1, 2\)"):
        bandits.simulate(jax.random.key(0), alike, counting(3), 5)


def test_an_algorithm_that_returns_no_state_is_explained():
    forgetful = counting(7)._replace(choose=lambda key, state, context: state % 7)
    with pytest.raises(ValueError, match=r"choose of an algorithm must return \(action, state\)"):
        bandits.simulate(jax.random.key(0), bandits.linear(num_arms=7), forgetful, 5)


def test_cumulative_regret_is_the_sum_so_far():
    curve = bandits.simulate(jax.random.key(0), bandits.linear(num_arms=7), counting(7), 6)
    np.testing.assert_allclose(curve.cumulative_regret, np.cumsum(curve.regret), rtol=1e-6)
