"""Algorithm 1 against closed forms and a NumPy recomputation."""

import functools
from inspect import unwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import samplers
from feelgood.linear import ase, learning, mdps, schemes
from feelgood.samplers.diagnostics import langevin_kernel

MDP = mdps.random_simplex(0, dimension=3, num_states=4, num_actions=3, horizon=3)
FEATURES = np.asarray(MDP.features, np.float64)


def some_data(mdp=MDP, num_episodes=200, seed=0):
    """Episodes under uniform actions, and the statistics of them."""
    rng = np.random.default_rng(seed)
    transitions, rewards, initial = (np.asarray(x, np.float64) for x in (*mdps.tables(mdp), mdp.initial))
    # A draw for each episode: the number of values of the distribution function that a uniform number exceeds.
    draw = lambda laws: (
        laws.clip(0).cumsum(-1) / laws.clip(0).sum(-1, keepdims=True) <= rng.random((num_episodes, 1))
    ).sum(-1)
    s, a, r = [draw(np.tile(initial, (num_episodes, 1)))], [], []
    for h in range(mdp.horizon):
        a.append(rng.integers(mdp.num_actions, size=num_episodes))
        r.append(rewards[h, s[-1], a[-1]])
        s.append(draw(transitions[h, s[-1], a[-1]]))
    past = list(zip(*(np.stack(column, 1).tolist() for column in (s, a, r)), strict=True))
    states, actions, paid = (jnp.asarray(np.array(column)) for column in zip(*past, strict=True))
    add = lambda data, episode: (learning.add_episode(data, mdp.features, *episode), None)
    empty = learning.no_data(mdp.features, mdp.horizon)
    return jax.jit(lambda *episodes: jax.lax.scan(add, empty, episodes)[0])(states, actions, paid), past


@functools.cache  # not at import, which every worker does
def stored():
    return some_data()


def least_squares(past, ridge, features=FEATURES, horizon=3):
    """Value iteration by ridge regression on the stored episodes, in NumPy."""
    value, ws = np.zeros(len(features)), []
    for h in reversed(range(horizon)):
        phi = np.array([features[s[h], a[h]] for s, a, _ in past])
        y = np.array([r[h] + value[s[h + 1]] for s, _, r in past])
        ws.insert(0, np.linalg.solve(phi.T @ phi + ridge * np.eye(phi.shape[1]), phi.T @ y))
        value = np.clip(features @ ws[0], 0, horizon - h).max(-1)
    return np.array(ws)


def plans(learner, num, data=None, first=1, key=0):
    state, data = learner.init(), stored()[0] if data is None else data
    keys = jax.random.split(jax.random.key(key), num)
    return jax.jit(jax.vmap(lambda key: learner.plan(key, state, data, jnp.int32(first))))(keys)


def test_cold_draws_are_least_squares_value_iteration():
    eta, variance = 0.4, 2.0
    learner = ase.lsvi_ase(
        MDP.features,
        3,
        schemes.exact(),
        num_updates=1,
        loss_weight=eta,
        prior_variance=variance,
        inverse_temperature=1e9,
    )
    plan = plans(learner, 1)
    assert plan.facts.num_gradients.tolist() == [0]
    expected = least_squares(stored()[1], 1 / (2 * eta * variance))
    np.testing.assert_allclose(plan.state.params[0], expected, rtol=2e-3, atol=2e-3)
    values = np.stack([np.clip(FEATURES @ w, 0, 3 - h) for h, w in enumerate(expected)])
    np.testing.assert_allclose(plan.values[0], values, rtol=2e-3, atol=2e-3)


def test_exact_draws_without_feel_good_centre_on_least_squares():
    eta, variance = 0.1, 2.0
    learner = ase.lsvi_ase(MDP.features, 3, schemes.exact(), num_updates=1, loss_weight=eta, prior_variance=variance)
    last = np.asarray(plans(learner, 20_000).state.params[:, 2], np.float64)
    phi = np.array([FEATURES[s[2], a[2]] for s, a, _ in stored()[1]])
    covariance = np.linalg.inv(2 * eta * phi.T @ phi + np.eye(3) / variance)
    expected = least_squares(stored()[1], 1 / (2 * eta * variance))[2]
    error = (last.mean(0) - expected) / np.sqrt(np.diag(covariance) / len(last))
    assert np.abs(error).max() < 4.5
    np.testing.assert_allclose(np.cov(last.T), covariance, rtol=0.08, atol=0.01)


def test_feel_good_tilts_the_first_stage_alone():
    """With one action the tilt of a Gaussian is a shift by λΣφ(s₁)."""
    mdp = mdps.random_simplex(1, dimension=3, num_states=4, num_actions=1, horizon=2)
    data, _ = some_data(mdp, 100)
    eta, variance, weight = 0.1, 2.0, 3.0

    @jax.jit
    def draws(weight):
        learner = ase.lsvi_ase(
            mdp.features,
            2,
            schemes.exact(),
            num_updates=1,
            loss_weight=eta,
            prior_variance=variance,
            feel_good_weight=weight,
        )
        return plans(learner, 20_000, data, first=2).state.params

    mean_of = lambda weight: np.asarray(draws(weight), np.float64).mean(0)
    precision = 2 * eta * np.asarray(data.gram, np.float64) + np.eye(3) / variance
    covariance = np.linalg.inv(precision[0])
    shift = weight * covariance @ np.asarray(mdp.features[2, 0], np.float64)
    got = mean_of(weight) - mean_of(0.0)
    tolerance = 5 * np.sqrt(2 * np.diag(covariance).max() / 20_000) * 2
    np.testing.assert_allclose(got[0], shift, atol=tolerance)
    np.testing.assert_allclose(got[1], 0, atol=tolerance)
    assert np.abs(shift).max() > 3 * tolerance


TILTED = {"loss_weight": 0.1, "prior_variance": 2.0, "feel_good_weight": 1.0}


@pytest.fixture(scope="module")
def exact_draws():
    """All stages' parameters under the posterior, feel-good term and all."""
    return plans(ase.lsvi_ase(MDP.features, 3, schemes.exact(), num_updates=1, **TILTED), 3000).state.params


@pytest.mark.parametrize(
    ("scheme", "num_updates", "gradients_per_update"),
    [
        (schemes.lmc(0.05), 400, 1),
        # Its sampler is held against its law in test_laws_of_samplers.
        pytest.param(schemes.ulmc(0.1), 400, 1, marks=pytest.mark.slow),
        (schemes.ulmc(0.5, form="splitting"), 100, 1),
        pytest.param(schemes.mala(0.5), 100, 2, marks=pytest.mark.slow),
        (schemes.hmc(0.5, 4), 20, 5),
        pytest.param(schemes.proximal(), 100, 5, marks=pytest.mark.slow),
    ],
    ids=["lmc", "ulmc", "splitting", "mala", "hmc", "proximal"],
)
def test_every_scheme_reaches_the_exact_posterior_and_counts_its_gradients(
    scheme, num_updates, gradients_per_update, exact_draws
):
    """Means and variances of all stages after many steps, against exact draws."""
    plan = plans(ase.lsvi_ase(MDP.features, 3, scheme, num_updates=num_updates, **TILTED), 3000, key=1)
    np.testing.assert_array_equal(plan.facts.num_gradients, 3 * num_updates * gradients_per_update)
    many, spread = plan.state.params, np.asarray(exact_draws).std(0)
    np.testing.assert_allclose((many.mean(0) - exact_draws.mean(0)) / spread, 0, atol=0.12)
    np.testing.assert_allclose(np.asarray(many).std(0) / spread, 1, atol=0.08)


def test_stages_start_from_their_last_weights():
    learner = ase.lsvi_ase(MDP.features, 3, schemes.lmc(1e-7), num_updates=2, loss_weight=0.1)
    start = jnp.arange(9.0).reshape(3, 3)
    plan = jax.jit(learner.plan)(jax.random.key(0), samplers.SamplerState(start), stored()[0], jnp.int32(0))
    np.testing.assert_allclose(plan.state.params, start, atol=0.02)
    assert not np.array_equal(plan.state.params, start)
    np.testing.assert_array_equal(learner.init().params, np.zeros((3, 3)))


@pytest.mark.slow
def test_momentum_is_kept_if_requested():
    """Twice J steps with momentum kept in between are 2J steps, but for the noise, which is off."""
    options = {"loss_weight": 0.1, "inverse_temperature": 1e9, "keep_momentum": True}
    once = ase.lsvi_ase(MDP.features, 3, schemes.ulmc(0.3, 0.1, form="splitting"), num_updates=8, **options)
    twice = ase.lsvi_ase(MDP.features, 3, schemes.ulmc(0.3, 0.1, form="splitting"), num_updates=4, **options)
    last = lambda learner, state: learner.plan(jax.random.key(0), state, stored()[0], jnp.int32(0)).state
    state = last(twice, last(twice, twice.init()))
    np.testing.assert_allclose(state.params[2], last(once, once.init()).params[2], rtol=1e-3, atol=1e-3)
    forgetful = ase.lsvi_ase(
        MDP.features, 3, schemes.ulmc(0.3, 0.1, form="splitting"), num_updates=4, **options | {"keep_momentum": False}
    )
    other = last(forgetful, last(forgetful, forgetful.init()))
    assert np.abs(np.asarray(other.params[2] - state.params[2])).max() > 0.05


def test_the_potential_keeps_its_differences_where_data_abound():
    """A Metropolis test needs differences with errors far below 1, even if the loss is of order 10⁶."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    precision, mean = 1e5 * (root @ root.T + np.eye(5)), 3 * rng.normal(size=5)
    stage = schemes.Stage(jnp.asarray(precision, jnp.float32), jnp.asarray(mean, jnp.float32), jnp.eye(5), None)
    draws = np.float32(mean) + np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=(5, 40))).T
    draws = draws.astype(np.float32)
    ours = np.array([float(stage.potential(jnp.asarray(w))) for w in draws])
    offset = draws.astype(np.float64) - np.asarray(stage.mean, np.float64)
    exact = np.einsum("ni,ij,nj->n", offset, np.asarray(stage.precision, np.float64), offset) / 2
    assert np.einsum("i,ij,j", mean, precision, mean) > 1e6
    np.testing.assert_allclose(ours - ours[0], exact - exact[0], atol=1e-3)


def test_laws_are_measured_only_if_they_have_a_closed_form():
    with pytest.raises(ValueError, match="keep_momentum must be False if a law is measured"):
        _learner(keep_momentum=True, measure=lambda *stage: ())


def test_values_are_truncated():
    learner = ase.lsvi_ase(MDP.features, 3, schemes.exact(), num_updates=1, loss_weight=0.1, prior_variance=100.0)
    empty = learning.no_data(MDP.features, 3)
    values = np.asarray(plans(learner, 200, empty).values)
    for h in range(3):
        assert values[:, h].max() == 3 - h
        assert values[:, h].min() == 0


def test_gradients_of_proposals_are_counted():
    plan = plans(ase.lsvi_ase(MDP.features, 3, schemes.mala(), num_updates=5, loss_weight=0.1), 1)
    assert plan.facts.num_gradients.tolist() == [30]


def test_measurements_are_recorded_for_each_stage():
    measure = lambda stage, start, steps: (stage.mean, start, jnp.int32(steps))
    learner = ase.lsvi_ase(
        MDP.features, 3, schemes.lmc(), num_updates=4, loss_weight=0.5, prior_variance=1.0, measure=measure
    )
    start = jnp.ones((3, 3)) * jnp.arange(3.0)[:, None]
    plan = jax.jit(learner.plan)(jax.random.key(0), samplers.SamplerState(start), stored()[0], jnp.int32(0))
    mean, began, steps = plan.facts.measured
    np.testing.assert_array_equal(began, start)
    np.testing.assert_array_equal(steps, [4, 4, 4])
    np.testing.assert_allclose(mean[2], least_squares(stored()[1], 1.0)[2], rtol=1e-3)


def test_zero_noise_and_plenty_of_data_give_the_optimal_policy_of_a_table():
    mdp = mdps.riverswim(3, 4)
    data, _ = some_data(mdp, 4000)
    learner = ase.lsvi_ase(
        mdp.features, 4, schemes.exact(), num_updates=1, loss_weight=1.0, prior_variance=1e3, inverse_temperature=1e8
    )
    values = plans(learner, 1, data, first=0).values[0]
    reached = jax.jit(mdps.policy_values)(mdp, mdps.greedy_policy(values))[0, 0]
    assert reached == pytest.approx(float(jax.jit(mdps.optimal_values)(mdp)[1][0, 0]), rel=1e-6)


def linear_function(d):
    return ase.ValueFunction(lambda: jnp.zeros(d), lambda w, phi: w @ phi)


def test_the_general_form_with_a_linear_function_is_the_linear_one_step_for_step():
    sampler = samplers.underdamped(0.01, 2.0)
    options = {"num_updates": 7, "loss_weight": 0.2, "feel_good_weight": 1.5, "prior_variance": 2.0}
    linear = ase.lsvi_ase(MDP.features, 3, schemes.fixed(sampler), **options)
    general = ase.lsvi_ase_general(MDP.features, 3, linear_function(3), sampler, **options)
    ours, theirs = plans(linear, 3), plans(general, 3)
    np.testing.assert_allclose(theirs.state, ours.state.params, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(theirs.values, ours.values, rtol=1e-3, atol=1e-4)
    assert np.asarray(ours.values).max() > 0


@pytest.mark.slow
def test_the_general_loss_is_that_of_the_stored_transitions():
    """A sampler that moves to the gradient makes the gradient visible."""

    def step(key, state, potential):
        gradient = jax.grad(potential)(state.params)
        return samplers.SamplerState(gradient), samplers.base.info()

    spy = samplers.Sampler(samplers.SamplerState, step)
    apply = lambda w, phi: jnp.tanh(w["a"] @ phi) * w["b"]
    function = ase.ValueFunction(lambda: {"a": jnp.array([0.3, -0.2, 0.5]), "b": jnp.array(1.5)}, apply)
    eta, variance, weight, first = 0.3, 2.0, 4.0, 1
    learner = ase.lsvi_ase_general(
        MDP.features,
        3,
        function,
        spy,
        num_updates=1,
        loss_weight=eta,
        feel_good_weight=weight,
        prior_variance=variance,
    )
    plan = learner.plan(jax.random.key(0), learner.init(), stored()[0], jnp.int32(first))

    def loss(params, h, value):
        total = sum(jnp.sum(leaf**2) for leaf in params.values()) / (2 * variance)
        for s, a, r in stored()[1]:
            total += eta * (r[h] + value[s[h + 1]] - apply(params, MDP.features[s[h], a[h]])) ** 2
        bonus = jnp.max(jnp.stack([apply(params, phi) for phi in MDP.features[first]]))
        return total - (weight * bonus if h == 0 else 0.0)

    for h in (2, 1, 0):
        value = jnp.max(plan.values[h + 1], -1) if h < 2 else jnp.zeros(4)
        expected = jax.grad(loss)(function.init(), h, value)
        for name in expected:
            np.testing.assert_allclose(plan.state[name][h], expected[name], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schemes.lmc(2.5), r"step_size must be below 2 \(in units of 1/M\) to be stable, got 2.5"),
        (lambda: schemes.ulmc(9.0), r"step_size must be below .* \(in units of 1/√M\) to be stable, got 9"),
        # Stable in the steepest mode up to 2, in flat ones only where γτ < 2.
        (lambda: schemes.ulmc(1.5, 2.0, form="euler"), r"step_size must be below 1 \(in units of 1/√M\) to be stable"),
        (lambda: schemes.lmc(-1.0), "step_size must be positive"),
        (lambda: _learner(prior_variance=0.0), "prior_variance must be positive and finite, got 0.0"),
        (lambda: _learner(horizon=0), "horizon must be a whole number of at least 1, got 0"),
        (lambda: _learner(num_updates=0), "num_updates must be"),
        (
            lambda: unwrap(ase.lsvi_ase)(MDP.features, 3, "lmc", num_updates=1, loss_weight=0.1),
            "scheme must be a Scheme such as .*, got 'lmc'",
        ),
        (
            lambda: ase.lsvi_ase(MDP.features[0], 3, schemes.lmc(), num_updates=1, loss_weight=0.1),
            r"features must have shape \(states, actions, d\), got shape \(\d+, \d+\)",
        ),
        (
            lambda: unwrap(learning.learn)(jax.random.key(0), MDP, MDP, 1),
            "learner must be a Learner such as .*, got LinearMDP",
        ),
        (lambda: _learner(loss_weight=-1.0), "loss_weight must be positive"),
        (lambda: _learner(feel_good_weight=-1.0), "feel_good_weight must be non-negative"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def _learner(horizon=3, **options):
    return ase.lsvi_ase(MDP.features, horizon, schemes.lmc(), **{"num_updates": 1, "loss_weight": 0.1, **options})


def test_a_step_that_would_become_unstable_is_named_before_the_run():
    scheme = schemes.fixed(samplers.langevin(0.05), 0.05, lambda step: langevin_kernel(step, 1.0))
    learner = ase.lsvi_ase(MDP.features, 3, scheme, num_updates=1, loss_weight=0.5, prior_variance=1.0)
    longest = float(jnp.max(jnp.sum(MDP.features**2, -1)))
    learner.check(int(38 / longest))
    with pytest.raises(ValueError, match=r"step_size 0\.05 is unstable.*curvature of the loss can reach (\d+\.?\d*)"):
        learner.check(int(42 / longest))
    with pytest.raises(ValueError, match=f"largest stable step is {2 / (500 * longest + 1):.4g}"):
        jax.jit(lambda key: learning.learn(key, MDP, learner, 500))(jax.random.key(0))


@pytest.mark.slow
def test_hyper_parameters_can_be_mapped_over():
    def regret(weight, key):
        learner = ase.lsvi_ase(
            MDP.features, 3, schemes.lmc(0.5), num_updates=2, loss_weight=weight, feel_good_weight=weight
        )
        return learning.learn(key, MDP, learner, 20).regret

    keys = jax.random.split(jax.random.key(0), 2)
    both = jax.jit(jax.vmap(regret))(jnp.array([0.1, 1.0]), keys)
    np.testing.assert_allclose(both[1], regret(1.0, keys[1]), rtol=1e-3, atol=1e-5)


def test_features_may_be_arrays_of_numpy(unchecked_types):
    mdp = mdps.riverswim(2, 2)

    def regret(features, key):
        learner = ase.lsvi_ase(features, 2, schemes.exact(), num_updates=1, loss_weight=0.1)
        return learning.learn(key, mdp, learner, 2).regret

    both = jax.jit(lambda key: [regret(features, key) for features in (np.asarray(mdp.features), mdp.features)])
    ours, theirs = both(jax.random.key(0))
    assert (ours == theirs).all()
