"""Objectives with numbers worked out by hand, on tables of action values."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.objectives import feel_good, gaussian_prior, potential, td, td_errors

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
