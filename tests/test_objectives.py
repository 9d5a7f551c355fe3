"""Objectives with numbers worked out by hand, on tables of action values."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.objectives import (
    Objective,
    categorical_losses,
    categorical_td,
    categorical_values,
    feel_good,
    gaussian_prior,
    potential,
    project,
    quantile_losses,
    quantile_td,
    quantile_values,
    repetitions,
    td,
    td_errors,
    together,
)

# Action values of three observations; parameters are the table itself.
ONLINE = jnp.array([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]])
TARGET = jnp.array([[0.0, 1.0], [2.0, 6.0], [4.0, 3.0]])


class Batch(NamedTuple):
    observation: jax.Array
    action: jax.Array
    return_: jax.Array
    bootstrap_discount: jax.Array
    next_observation: jax.Array
    first_observation: jax.Array
    weight: jax.Array | None = None


BATCH = Batch(
    observation=jnp.array([0, 1]),
    action=jnp.array([1, 0]),
    return_=jnp.array([0.5, 1.0]),
    bootstrap_discount=jnp.array([0.5, 0.0]),
    next_observation=jnp.array([1, 2]),
    first_observation=jnp.array([0, 2]),
)
# δ₁ = 0.5 + 0.5·max(2, 6) − 2 = 1.5; δ₂ = 1 + 0 − 3 = −2.
ERRORS = [1.5, -2.0]


def q(params, observation, key):
    return params[observation]


def target_q(observation, key):
    return TARGET[observation]


def value(objective, batch=BATCH, params=ONLINE, **settings):
    return float(potential(objective, q, target_q, batch, **settings)(params))


def test_errors_compare_with_the_target_networks_best_action():
    assert td_errors(q, target_q, ONLINE, BATCH).tolist() == ERRORS


def test_double_lets_the_online_network_choose_the_action():
    # The online network prefers action 0 at observation 1, which the target network values at 2.
    assert td_errors(q, target_q, ONLINE, BATCH, double=True).tolist() == [0.5 + 0.5 * 2 - 2, -2.0]
    assert value(td(double=True)) == ((-0.5) ** 2 + 2**2) / 2


def test_squared_loss_is_the_mean_square_without_a_half():
    assert value(td()) == (1.5**2 + 2**2) / 2


def test_huber_loss_is_half_a_square_near_zero_and_linear_beyond():
    assert value(td(loss="huber")) == ((1.5 - 0.5) + (2 - 0.5)) / 2
    assert value(td(loss="huber", huber_width=1.75)) == (1.5**2 / 2 + 1.75 * (2 - 1.75 / 2)) / 2


def test_huber_gradient_is_the_clipped_error():
    gradient = jax.grad(potential(td(loss="huber"), q, target_q, BATCH))(ONLINE)
    np.testing.assert_allclose(gradient, [[0, -1 / 2], [1 / 2, 0], [0, 0]])


def test_squared_gradient_is_minus_twice_the_mean_error_at_the_taken_actions_only():
    gradient = jax.grad(potential(td(), q, target_q, BATCH))(ONLINE)
    np.testing.assert_allclose(gradient, [[0, -1.5], [2, 0], [0, 0]])


def test_a_pair_of_observation_and_action_may_count_once_however_often_it_occurs():
    numbers = {"observation": [0, 1, 0, 0], "action": [1, 0, 0, 1], "next_observation": [1, 2, 1, 2]}
    batch = Batch(
        **{name: jnp.array(value) for name, value in numbers.items()},
        return_=jnp.array([0.5, 1.0, 0.0, 3.0]),
        bootstrap_discount=jnp.array([0.5, 0.0, 0.0, 0.0]),
        first_observation=jnp.zeros(4, jnp.int32),
    )
    assert repetitions(batch).tolist() == [2, 1, 1, 2]
    errors = np.array([1.5, -2.0, -1.0, 1.0])
    assert value(td(per="pair"), batch) == pytest.approx((errors[0] ** 2 + errors[3] ** 2) / 4 + 2.0**2 / 2 + 0.5)
    gradient = jax.grad(potential(td(per="pair"), q, target_q, batch))(ONLINE)
    np.testing.assert_allclose(gradient, [[1.0, -1.25], [2.0, 0.0], [0.0, 0.0]])  # minus the mean error of each pair


@pytest.mark.parametrize("double", [False, True])
def test_no_gradient_flows_through_the_target_even_if_it_is_the_online_network(double):
    def loss(params):
        return potential(td(double=double), q, lambda observation, key: params[observation], BATCH)(params)

    gradient = jax.grad(loss)(ONLINE)
    # δ₁ = 0.5 + 0.5·3 − 2 = 0 and δ₂ = −2.
    np.testing.assert_allclose(gradient, [[0, 0], [2, 0], [0, 0]])
    moved = BATCH._replace(return_=jnp.array([1.5, 1.0]))
    gradient = jax.grad(lambda params: potential(td(double=double), q, lambda o, k: params[o], moved)(params))(ONLINE)
    np.testing.assert_allclose(gradient, [[0, -1], [2, 0], [0, 0]])


def test_feel_good_is_minus_the_weighted_mean_of_the_best_value_at_the_first_observations():
    assert value(feel_good(0.5)) == -0.5 * (2 + 5) / 2
    gradient = jax.grad(potential(feel_good(0.5), q, target_q, BATCH))(ONLINE)
    np.testing.assert_allclose(gradient, [[0, -0.25], [0, 0], [-0.25, 0]])


def test_feel_good_raises_the_start_by_half_the_weight_times_the_length_of_an_episode():
    length, zeros = 40, jnp.zeros(40, jnp.int32)
    episode = Batch(jnp.minimum(jnp.arange(length), 1), zeros, 0.0 * zeros, 0.0 * zeros, zeros, zeros)
    raised = jnp.array([[0.01 * length / 2, -1.0], [0.0, -1.0]])  # all returns are 0
    gradient = jax.grad(potential(td() + feel_good(0.01), q, target_q, episode))(raised)
    np.testing.assert_allclose(gradient, np.zeros((2, 2)), atol=1e-8)


@pytest.mark.parametrize("per", ["transition", "posterior"])
def test_feel_good_may_look_at_a_few_observations_that_stand_for_all(per):
    few = lambda count, batch=BATCH: value(feel_good(0.5, per=per, num_observations=count), batch, num_data=1)
    assert few(1) == -0.5 * 2
    assert few(2) == few(7) == value(feel_good(0.5))
    # Over both orders of the minibatch, one observation gives the mean of all.
    turned = BATCH._replace(first_observation=BATCH.first_observation[::-1])
    assert (few(1) + few(1, turned)) / 2 == value(feel_good(0.5))
    with pytest.raises(ValueError, match=r"num_observations must be .* got 0"):
        feel_good(0.5, num_observations=0)


def test_the_prior_is_the_squared_norm_over_twice_the_variance_and_counts_once():
    params = {"a": jnp.array([1.0, 2.0]), "b": jnp.array([[3.0]])}
    assert value(gaussian_prior(2.0), params=params, num_data=10) == pytest.approx(14 / 8 / 10)
    assert value(gaussian_prior(2.0), params=params, num_data=10, reduction="sum") == 14 / 8


def test_terms_add_up():
    whole = td() + feel_good(0.5) + gaussian_prior(2.0)
    parts = (td(), feel_good(0.5), gaussian_prior(2.0))
    assert value(whole, num_data=4) == pytest.approx(sum(value(part, num_data=4) for part in parts))
    assert value(td() + td()) == 2 * value(td())
    with pytest.raises(TypeError):
        td() + 1.0


def test_terms_under_a_condition_count_if_it_holds_and_are_not_computed_otherwise():
    computed = []

    def q(params, state, key):
        jax.debug.callback(lambda: computed.append(True))
        return params[state]

    for objective in (feel_good(0.5), feel_good(0.5, per="posterior"), gaussian_prior(2.0)):
        gradient = jax.jit(
            lambda on, objective=objective: jax.grad(
                potential(objective.only_if(on), q, lambda state, key: TARGET[state], BATCH, num_data=4)
            )(ONLINE)
        )
        expected = jax.grad(
            potential(objective, lambda w, state, key: w[state], lambda state, key: TARGET[state], BATCH, num_data=4)
        )(ONLINE)
        computed.clear()
        np.testing.assert_array_equal(gradient(False), np.zeros_like(ONLINE))
        jax.effects_barrier()
        assert not computed
        np.testing.assert_allclose(gradient(True), expected, rtol=1e-6)
        both = jax.vmap(gradient)(jnp.array([False, True]))
        np.testing.assert_allclose(both, [np.zeros_like(ONLINE), expected], rtol=1e-6)


def test_the_full_data_sum_is_the_number_of_data_times_the_mean():
    objective = td() + feel_good(0.5) + gaussian_prior(2.0)
    assert value(objective, reduction="sum", num_data=50) == pytest.approx(50 * value(objective, num_data=50))
    # 50/2·Σ(δ² − 0.5·best) + ‖w‖²/8
    by_hand = 25 * (1.5**2 + 2**2 - 0.5 * (2 + 5)) + (1 + 4 + 9 + 25 + 16) / 8
    assert value(objective, reduction="sum", num_data=50) == pytest.approx(by_hand)


def test_feel_good_may_count_once_like_a_prior():
    once = feel_good(0.5, per="posterior")
    assert value(once, reduction="sum", num_data=50) == -0.5 * 3.5
    assert value(once, num_data=50) == pytest.approx(-0.5 * 3.5 / 50)


def test_importance_weights_multiply_every_transitions_terms():
    batch = BATCH._replace(weight=jnp.array([1.0, 3.0]))
    assert value(td(), batch) == (1.5**2 + 3 * 2**2) / 2
    assert value(feel_good(0.5), batch) == -0.5 * (2 + 3 * 5) / 2
    assert value(feel_good(0.5, per="posterior"), batch, num_data=1) == -0.5 * (2 + 3 * 5) / 2
    assert value(gaussian_prior(2.0), batch, num_data=1) == 55 / 8
    weightless = BATCH._replace(weight=jnp.ones(2))
    assert value(td(), weightless) == value(td())


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_an_ensemble_is_the_sum_of_its_members_each_with_its_own_target(double, loss):
    rng = np.random.default_rng(0)
    online, target = (jnp.asarray(rng.normal(size=(3, 4, 2)), jnp.float32) for _ in range(2))
    objective = td(double=double, loss=loss) + feel_good(0.5)
    together = potential(objective, q, lambda observation, key: target[observation], BATCH)(online)

    def alone(m):
        return potential(objective, q, lambda observation, key: target[observation, m], BATCH)(online[:, m])

    np.testing.assert_allclose(together, sum(alone(m) for m in range(4)), rtol=1e-5)
    assert td_errors(q, lambda observation, key: target[observation], online, BATCH).shape == (2, 4)


def test_weights_scales_and_data_counts_may_be_traced():
    def evaluate(weight, scale, num_data):
        objective = td() + feel_good(weight) + gaussian_prior(scale)
        return potential(objective, q, target_q, BATCH, num_data=num_data)(ONLINE)

    grid = (jnp.array([0.0, 0.5]), jnp.array([1.0, 2.0]), jnp.array([10, 20]))
    several = jax.jit(jax.vmap(evaluate))(*grid)
    expected = [6.25 / 2 - 0 + 55 / 2 / 10, 6.25 / 2 - 1.75 + 55 / 8 / 20]
    np.testing.assert_allclose(several, expected, rtol=1e-6)


def test_all_terms_see_one_draw_of_the_online_network_and_the_target_draws_its_own():
    online, target = [], []

    def noisy_q(params, observation, key):
        online.append(jax.random.key_data(key).tolist())
        return params[observation]

    def noisy_target(observation, key):
        target.append(jax.random.key_data(key).tolist())
        return TARGET[observation]

    potential(td(double=True) + feel_good(1.0), noisy_q, noisy_target, BATCH, jax.random.key(0))(ONLINE)
    assert len(online) == 3
    assert online[0] == online[1] == online[2]
    assert len(target) == 1
    assert target[0] != online[0]


def test_without_a_key_networks_are_called_without_one():
    def keyless(params, observation, key):
        assert key is None
        return params[observation]

    potential(td() + feel_good(1.0), keyless, target_q, BATCH)(ONLINE)


def test_wrong_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="loss must be one of 'squared', 'huber'"):
        td(loss="absolute")
    with pytest.raises(ValueError, match="weight must be non-negative"):
        feel_good(-1.0)
    with pytest.raises(ValueError, match="per must be one of"):
        feel_good(1.0, per="episode")
    with pytest.raises(ValueError, match="scale must be positive"):
        gaussian_prior(0.0)
    with pytest.raises(ValueError, match="reduction must be one of"):
        value(td(), reduction="max")
    with pytest.raises(ValueError, match="num_data must be given"):
        value(td(), reduction="sum")
    with pytest.raises(ValueError, match="num_data must be given"):
        value(gaussian_prior(1.0))


ATOMS = np.linspace(-1, 1, 5)  # −1, −0.5, 0, 0.5, 1


def test_mass_between_two_atoms_is_shared_and_mass_beyond_them_stays_at_the_end():
    places = jnp.array([[0.1, 7.0], [-0.5, -0.75], [-3.0, 0.5]])
    found = project(places, jnp.array([[0.5, 0.5], [0.25, 0.75], [0.9, 0.1]]), ATOMS)
    expected = [[0, 0, 0.4, 0.1, 0.5], [0.375, 0.625, 0, 0, 0], [0.9, 0, 0, 0.1, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def move_mass(places, probabilities, atoms):
    """The projection of Bellemare et al., one place after the other, by its lower and its upper atom."""
    mass, gap = np.zeros(len(atoms)), atoms[1] - atoms[0]
    for place, probability in zip(places, probabilities, strict=True):
        b = (min(max(place, atoms[0]), atoms[-1]) - atoms[0]) / gap
        low, high = int(np.floor(b)), int(np.ceil(b))
        if low == high:
            mass[low] += probability
        else:
            mass[low] += probability * (high - b)
            mass[high] += probability * (b - low)
    return mass


def test_the_projection_moves_mass_as_the_loop_over_atoms_does_and_keeps_the_mean_within_the_range():
    rng, atoms = np.random.default_rng(0), np.linspace(-10, 10, 51)
    places, probabilities = rng.uniform(-14, 14, size=(20, 51)), rng.dirichlet(np.ones(51), 20)
    found = np.asarray(project(jnp.asarray(places), jnp.asarray(probabilities), atoms))
    expected = [move_mass(*row, atoms) for row in zip(places, probabilities, strict=True)]
    np.testing.assert_allclose(found, expected, atol=3e-6)
    inside = np.asarray(project(jnp.asarray(places / 2), jnp.asarray(probabilities), atoms))
    np.testing.assert_allclose(inside @ atoms, (places / 2 * probabilities).sum(-1), atol=2e-4)


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


RNG = np.random.default_rng(1)
LOGITS, TARGET_LOGITS = (jnp.asarray(2 * RNG.normal(size=(3, 2, 5)), jnp.float32) for _ in range(2))


def cross_entropies(double):
    """The cross-entropies of the batch by hand, in float64."""
    online, target = (np.asarray(table, np.float64) for table in (LOGITS, TARGET_LOGITS))
    losses = []
    for i in range(2):
        chooser = online if double else target
        best = (softmax(chooser[BATCH.next_observation[i]]) @ ATOMS).argmax()
        places = float(BATCH.return_[i]) + float(BATCH.bootstrap_discount[i]) * ATOMS
        mass = move_mass(places, softmax(target[BATCH.next_observation[i], best]), ATOMS)
        losses.append(-(mass * np.log(softmax(online[BATCH.observation[i], BATCH.action[i]]))).sum())
    return losses


@pytest.mark.parametrize("double", [False, True])
def test_categorical_losses_are_cross_entropies_with_the_moved_target(double):
    ahead = lambda o, k: TARGET_LOGITS[o]

    @jax.jit
    def both(logits):
        losses = categorical_losses(q, ahead, logits, BATCH, atoms=ATOMS, double=double)
        return losses, potential(categorical_td(ATOMS, double=double), q, ahead, BATCH)(logits)

    found, value = both(LOGITS)
    np.testing.assert_allclose(found, cross_entropies(double), rtol=1e-5)
    assert float(value) == pytest.approx(np.mean(cross_entropies(double)), rel=1e-5)


def test_the_two_networks_disagree_on_the_best_action_so_that_double_can_be_seen():
    assert not np.allclose(cross_entropies(False), cross_entropies(True))


def test_the_categorical_gradient_is_the_difference_of_distributions_at_the_taken_actions():
    batch = BATCH._replace(return_=jnp.array([0.5, 0.2]))
    loss = lambda logits: potential(categorical_td(ATOMS), q, lambda o, k: logits[o], batch)(logits)
    gradient = np.asarray(jax.jit(jax.grad(loss))(LOGITS))
    # Nothing flows through the target even though it is the online network.
    expected = np.zeros((3, 2, 5))
    for i in range(2):
        table = np.asarray(LOGITS, np.float64)
        best = (softmax(table[batch.next_observation[i]]) @ ATOMS).argmax()
        places = float(batch.return_[i]) + float(batch.bootstrap_discount[i]) * ATOMS
        mass = move_mass(places, softmax(table[batch.next_observation[i], best]), ATOMS)
        expected[batch.observation[i], batch.action[i]] += (softmax(table[i, batch.action[i]]) - mass) / 2
    np.testing.assert_allclose(gradient, expected, atol=1e-6)


def test_values_are_the_means_of_distributions_with_any_leading_axes():
    expected = softmax(np.asarray(LOGITS, np.float64)) @ ATOMS
    np.testing.assert_allclose(categorical_values(ATOMS)(LOGITS), expected, atol=1e-6)
    np.testing.assert_allclose(categorical_values(ATOMS)(LOGITS[0, 1]), expected[0, 1], atol=1e-6)
    assert quantile_values(Quantiles(jnp.array([[1.0, 3.0], [5.0, 6.0]]), jnp.array([0.25, 0.75]))).tolist() == [2, 5.5]


def test_feel_good_uses_the_values_of_a_network_s_outputs():
    objective = feel_good(0.5, values=categorical_values(ATOMS))
    best = (softmax(np.asarray(LOGITS, np.float64)) @ ATOMS).max(-1)
    found = potential(objective, q, target_q, BATCH)(LOGITS)
    assert float(found) == pytest.approx(-0.5 * (best[0] + best[2]) / 2, rel=1e-5)


class Quantiles(NamedTuple):
    values: jax.Array
    fractions: jax.Array


def quantile_loss(params, batch, **settings):
    """Online quantiles (3, 2, N) at fractions ¼ and ¾ against those of the target network."""
    at = lambda table, o: Quantiles(table[o], jnp.broadcast_to(jnp.array([0.25, 0.75]), (len(o), 2)))
    online = lambda params, o, k: at(params, o)
    target = lambda o, k: at(TARGET_QUANTILES, o)
    return jax.jit(lambda params: quantile_losses(online, target, params, batch, **settings))(params)


# The best mean at observation 1 is that of action 1 (3) for the target and of action 0 (4) for the online network.
QUANTILES = jnp.array([[[0.0, 0.0], [2.0, 2.5]], [[3.0, 5.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
TARGET_QUANTILES = jnp.array([[[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])


def test_quantile_huber_losses_with_numbers_worked_out_by_hand():
    # Transition 1: targets 0.5 + 0.5·(2, 4) = 1.5, 2.5 against quantiles 2 and 2.5.
    #   τ = ¼: u = −0.5, 0.5: ¾·0.125 and ¼·0.125, mean 0.0625. τ = ¾: u = −1, 0: ¼·0.5 and 0, mean 0.0625.
    # Transition 2: targets 1 + 0 = 1 twice against 3 and 5.
    #   τ = ¼: u = −2: ¾·(2 − 0.5) = 1.125. τ = ¾: u = −4: ¼·(4 − 0.5) = 0.875.
    np.testing.assert_allclose(quantile_loss(QUANTILES, BATCH), [0.125, 2.0], rtol=1e-6)
    # Double: the target's values of action 0, 0.5 + 0.5·(1, 2) = 1, 1.5.
    #   τ = ¼: u = −1, −0.5: ¾·0.5 and ¾·0.125, mean 0.234375. τ = ¾: u = −1.5, −1: ¼·1 and ¼·0.5, mean 0.1875.
    np.testing.assert_allclose(quantile_loss(QUANTILES, BATCH, double=True), [0.421875, 2.0], rtol=1e-6)
    np.testing.assert_allclose(quantile_loss(QUANTILES, BATCH, kappa=0.5)[1], 0.75 * 1.75 + 0.25 * 3.75, rtol=1e-6)


@pytest.mark.parametrize(("double", "kappa"), [(False, 1.0), (True, 1.0), (False, 0.3)])
def test_quantile_losses_are_those_of_loops_over_all_pairs(double, kappa):
    rng = np.random.default_rng(2)
    online, target = (rng.normal(size=(3, 2, 4)) for _ in range(2))
    online_at, target_at = (rng.uniform(size=(3, 4)) for _ in range(2))
    table = lambda values, at: lambda o: Quantiles(jnp.asarray(values)[o], jnp.asarray(at)[o])
    q = lambda params, o, k: table(online, online_at)(o)
    ahead = lambda o, k: table(target, target_at)(o)
    found = jax.jit(lambda: quantile_losses(q, ahead, (), BATCH, double=double, kappa=kappa))()
    for b in range(2):
        ahead = int(BATCH.next_observation[b])
        best = (online if double else target)[ahead].mean(-1).argmax()
        total = 0.0
        for i in range(4):
            for j in range(4):
                goal = float(BATCH.return_[b]) + float(BATCH.bootstrap_discount[b]) * target[ahead, best, j]
                u = goal - online[BATCH.observation[b], BATCH.action[b], i]
                huber = u**2 / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)
                total += abs(online_at[BATCH.observation[b], i] - (u < 0)) * huber / kappa / 4
        assert float(found[b]) == pytest.approx(total, rel=1e-5)


def test_minimising_the_quantile_loss_finds_the_quantiles_of_the_target():
    # A hundred rewards 0.00, 0.01, …, 0.99 and nothing after them: the quantile at τ is τ, as κ goes to 0.
    batch = Batch(
        jnp.zeros(100, int), jnp.zeros(100, int), jnp.arange(100) / 100, jnp.zeros(100), *[jnp.zeros(100, int)] * 2
    )
    fractions = jnp.array([0.1, 0.5, 0.8])
    at = lambda params, o, k: Quantiles(
        jnp.broadcast_to(params, (len(o), 1, 3)), jnp.broadcast_to(fractions, (len(o), 3))
    )
    gradient = jax.grad(potential(quantile_td(kappa=1e-3), at, lambda o, k: at(jnp.zeros((1, 1, 3)), o, k), batch))
    descend = lambda params, _: (params - 0.02 * gradient(params), None)
    params = jax.jit(lambda start: jax.lax.scan(descend, start, length=300)[0])(jnp.zeros((1, 1, 3)))
    np.testing.assert_allclose(params[0, 0], fractions, atol=0.02)


def test_wrong_atoms_and_widths_are_refused_in_one_sentence():
    for atoms in ([1.0], [1.0, 0.0], [0.0, 1.0, 3.0], [[0.0, 1.0]]):
        with pytest.raises(ValueError, match="atoms must be at least two evenly spaced numbers in rising order"):
            categorical_td(np.array(atoms))
    with pytest.raises(ValueError, match="kappa must be positive"):
        quantile_td(kappa=0.0)


@pytest.mark.parametrize("double", [False, True])
def test_looking_at_all_observations_together_changes_nothing_but_the_number_of_calls(double):
    calls = []

    def q(params, observation, key):
        calls.append(observation.shape[0])
        return jnp.tanh(observation @ params)

    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    batch = Batch(draw(6, 3), jnp.arange(6) % 2, draw(6), draw(6), draw(6, 3), draw(1, 3), None)
    objective = td(double=double) + feel_good(0.3) + gaussian_prior(2.0)
    params, target_q = draw(3, 2), lambda observation, key: observation @ jnp.ones((3, 2))
    gradient = lambda q: jax.value_and_grad(potential(objective, q, target_q, batch, num_data=9))(params)
    apart, num_apart = gradient(q), len(calls)
    calls.clear()
    joined = gradient(together(q, objective, batch))
    assert num_apart == (3 if double else 2)
    assert calls == [13 if double else 7]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), joined, apart)
    # Other parameters are evaluated again, as are observations that the objective did not announce.
    q_together = together(q, objective, batch)
    first, second = (q_together(p, batch.observation, None) for p in (params, 2 * params))
    assert not np.allclose(first, second)
    np.testing.assert_allclose(q_together(params, draw(2, 3), None).shape, (2, 2))


@pytest.mark.parametrize("shape", [(2, 1), (3,), (), (2, 2)])
def test_a_term_of_another_shape_than_the_batch_is_refused(shape):
    term = lambda q, target_q, params, batch, key: jnp.ones(shape)
    evaluate = potential(Objective(per_transition=(term,)), q, target_q, BATCH)
    with pytest.raises(ValueError, match=r"a term per transition must have shape \(2,\), got"):
        evaluate(jnp.zeros(()))


def test_an_action_gap_lowers_the_target_of_other_actions_up_to_a_share_of_the_value():
    # Action 0 of three is taken everywhere; V − Q = 0, 0.5, 8, 0.4 and V = 2, 2, −4, −0.5; the target is 1.
    values = jnp.array([[2.0, 0.0, 1.0], [1.5, 2.0, 0.0], [-12.0, -4.0, -5.0], [-0.9, -0.5, -1.0]])
    batch = Batch(
        observation=jnp.arange(4),
        action=jnp.zeros(4, jnp.int32),
        return_=jnp.ones(4),
        bootstrap_discount=jnp.zeros(4),
        next_observation=jnp.arange(4),
        first_observation=jnp.arange(4),
    )
    errors = td_errors(q, lambda observation, key: values[observation], values, batch, action_gap=0.5)
    np.testing.assert_allclose(
        errors, [1 - 2, 1 - 1.5 - 0.9 * 0.5, 1 + 12 - 0.9 * 0.5 * 1, 1 + 0.9 - 0.9 * 0.5 * 0.5], rtol=1e-6
    )
    gradient = jax.grad(potential(td(action_gap=0.5), q, lambda o, key: values[o], batch))(values)
    np.testing.assert_allclose(gradient[:, 0], -2 / 4 * errors, rtol=1e-6)
    np.testing.assert_allclose(gradient[:, 1:], 0)
    with pytest.raises(ValueError, match="action_gap must be"):
        td(action_gap=-1.0)


def test_an_action_gap_keeps_optimal_values_and_actions_and_widens_gaps():
    rng = np.random.default_rng(0)
    num_states, num_actions, discount = 6, 3, 0.9
    successor = rng.integers(num_states, size=(num_states, num_actions))
    reward = rng.normal(size=(num_states, num_actions))
    # The optimal policy by brute force: of all deterministic ones, the one with the largest sum of values.
    best, rows = None, np.arange(num_states)
    for policy in itertools.product(range(num_actions), repeat=num_states):
        moves = np.eye(num_states)[successor[rows, policy]]
        values = np.linalg.solve(np.eye(num_states) - discount * moves, reward[rows, policy])
        if best is None or values.sum() > best[0].sum():
            best = values, np.array(policy)
    state, action = (x.ravel() for x in np.meshgrid(rows, np.arange(num_actions), indexing="ij"))
    batch = Batch(
        observation=jnp.asarray(state),
        action=jnp.asarray(action),
        return_=jnp.asarray(reward.ravel(), jnp.float32),
        bootstrap_discount=jnp.full(state.size, discount),
        next_observation=jnp.asarray(successor.ravel()),
        first_observation=jnp.asarray(state),
    )
    tables = {}
    for gap in (0.0, 0.3):

        def sweep(table, _, gap=gap):
            errors = td_errors(q, lambda observation, key: table[observation], table, batch, action_gap=gap)
            return table + errors.reshape(table.shape), None

        tables[gap] = np.asarray(jax.lax.scan(sweep, jnp.zeros((num_states, num_actions)), length=2000)[0])
        np.testing.assert_allclose(tables[gap].max(1), best[0], atol=1e-4)
        np.testing.assert_array_equal(tables[gap].argmax(1), best[1])
    gaps = {gap: table.max(1, keepdims=True) - table for gap, table in tables.items()}
    size = np.where(best[0] > 0, best[0], np.minimum(-best[0], 1))[:, None]
    expected = np.minimum(10 * gaps[0.0], gaps[0.0] + 0.9 * 0.3 * size)
    np.testing.assert_allclose(gaps[0.3], expected, atol=1e-3)
