"""The N-chain against a table written down independently in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.envs import nchain

VARIANTS = ("released", "paper")
KEY = jax.random.key(0)


def table(num_states, variant):
    """{(state, action): (next state, reward)} with states 1, …, N and actions "left", "right"."""
    moves = {}
    for state in range(1, num_states + 1):
        moves[state, "left"] = (state - 1 if state > 1 else 1, 0.0)
        moves[state, "right"] = (state + 1 if state < num_states else num_states, 0.0)
    if variant == "released":
        moves[1, "left"] = (1, 0.001)
        moves[num_states, "right"] = (num_states, 1.0)
    else:
        moves[1, "left"] = (1, 0.001)
        moves[2, "left"] = (1, 0.001)
        moves[num_states, "right"] = (num_states, 1.0)
        moves[num_states - 1, "right"] = (num_states, 1.0)
    return moves


def length(num_states, variant):
    return {"released": num_states + 8, "paper": num_states + 9}[variant]


def rollout(env, actions):
    """First observation and the stacked steps of one episode."""
    state, first = env.reset(KEY)
    _, steps = jax.lax.scan(lambda state, action: env.step(KEY, state, action), state, jnp.asarray(actions))
    return first, steps


def best_return(num_states, variant):
    """Optimal return from s_2 by dynamic programming over the table, in plain Python."""
    moves, values = table(num_states, variant), dict.fromkeys(range(1, num_states + 1), 0.0)
    for _ in range(length(num_states, variant)):
        values = {s: max(moves[s, a][1] + values[moves[s, a][0]] for a in ("left", "right")) for s in values}
    return values[2]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("num_states", [4, 5, 10, 25])
def test_every_step_agrees_with_the_table_for_random_actions(num_states, variant):
    env, moves = nchain(num_states, variant=variant), table(num_states, variant)
    run = jax.jit(lambda actions: rollout(env, actions))
    rng = np.random.default_rng(num_states)
    for probability_right in (0.1, 0.5, 0.7, 0.95, 1.0):
        actions = (rng.random(length(num_states, variant)) < probability_right).astype(np.int32)
        first, steps = run(actions)
        state = 2
        assert first.tolist() == [1, 1] + [0] * (num_states - 2)
        for t, action in enumerate(actions):
            state, reward = moves[state, "right" if action else "left"]
            assert steps.observation[t].tolist() == [1] * state + [0] * (num_states - state)
            assert steps.reward[t] == np.float32(reward)
            assert bool(steps.terminated[t]) == (t + 1 == length(num_states, variant))
            assert not steps.truncated[t]


@pytest.mark.parametrize("num_states", [4, 25, 75, 100])
def test_always_right_is_optimal_and_returns_exactly_ten_in_the_released_variant(num_states):
    env = nchain(num_states)
    _, steps = rollout(env, [1] * env.spec.max_episode_steps)
    assert np.sum(steps.reward) == 10
    assert best_return(num_states, "released") == 10


@pytest.mark.parametrize("num_states", [4, 100])
def test_always_right_is_optimal_and_returns_twelve_in_the_paper_variant(num_states):
    env = nchain(num_states, variant="paper")
    _, steps = rollout(env, [1] * env.spec.max_episode_steps)
    assert np.sum(steps.reward) == 12
    assert best_return(num_states, "paper") == 12


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_truncating_timeout_moves_the_end_to_the_other_flag_and_changes_nothing_else(variant):
    actions = np.random.default_rng(0).integers(2, size=length(6, variant))
    _, ends = rollout(nchain(6, variant=variant), actions)
    _, cuts = rollout(nchain(6, variant=variant, timeout="truncated"), actions)
    assert ends.terminated.tolist() == cuts.truncated.tolist()
    assert not cuts.terminated.any()
    np.testing.assert_array_equal(ends.observation, cuts.observation)
    np.testing.assert_array_equal(ends.reward, cuts.reward)


def test_the_last_observation_is_the_true_successor_not_a_reset():
    env = nchain(4)
    _, steps = rollout(env, [1] * env.spec.max_episode_steps)
    assert steps.terminated[-1]
    assert steps.observation[-1].tolist() == [1, 1, 1, 1]


def test_other_rewards_are_paid_at_the_ends():
    env = nchain(5, small_reward=0.25, large_reward=3.0)
    assert rollout(env, [1] * 13)[1].reward.sum() == 30
    assert rollout(env, [0] * 13)[1].reward.sum() == 12 * 0.25


@pytest.mark.parametrize(("num_states", "dtype"), [(4, "uint8"), (256, "uint8"), (257, "uint16")])
def test_a_code_is_one_small_integer_and_decodes_to_the_same_observation(num_states, dtype):
    env = nchain(num_states)
    observations = jnp.tril(jnp.ones((num_states, num_states), jnp.int8))
    codes = jax.vmap(env.encode)(observations)
    assert codes.dtype == dtype
    assert codes.shape == (num_states,)
    for decoded in (jax.vmap(env.decode)(codes), env.decode(codes)):
        assert decoded.dtype == env.spec.observation_dtype
        np.testing.assert_array_equal(decoded, observations)


def test_the_spec_has_shape_dtype_actions_and_length():
    spec = nchain(7, variant="paper").spec
    assert (spec.observation_shape, spec.observation_dtype, spec.num_actions) == ((7,), np.int8, 2)
    assert spec.max_episode_steps == 16
    observation = nchain(7).reset(KEY)[1]
    assert (observation.shape, observation.dtype) == (spec.observation_shape, spec.observation_dtype)


def test_many_runs_at_once_equal_each_run_alone():
    env = nchain(6)
    actions = np.random.default_rng(1).integers(2, size=(5, 14))
    _, together = jax.vmap(lambda actions: rollout(env, actions))(actions)
    for i in range(5):
        _, alone = rollout(env, actions[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), together, alone)


@pytest.mark.parametrize("num_states", [3, 2, 0, -1, True])
def test_a_chain_of_three_states_or_fewer_is_refused_in_one_sentence(num_states):
    with pytest.raises(ValueError, match=r"^num_states must be a whole number of at least 4, got .+$"):
        nchain(num_states)


def test_misspelt_choices_are_named():
    with pytest.raises(ValueError, match=r"variant must be one of .*did you mean 'released'"):
        nchain(5, variant="release")
    with pytest.raises(ValueError, match=r"timeout must be one of .*did you mean 'truncated'"):
        nchain(5, timeout="truncate")
