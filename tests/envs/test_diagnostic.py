"""Diagnostic environments: their closed-form values satisfy the Bellman equation wherever one can go."""

import itertools

import jax
import numpy as np
import pytest

from feelgood.envs import diagnostic

DISCOUNT = 0.9
NAMES = sorted(diagnostic.DIAGNOSTICS)


def transitions(problem, num_keys=8):
    """Every (observation, action, step) met over all action sequences and several starts."""
    env = problem.environment
    step = jax.jit(env.step)
    for seed in range(num_keys):
        key = jax.random.key(seed)
        for actions in itertools.product(range(env.spec.num_actions), repeat=env.spec.max_episode_steps):
            state, observation = env.reset(key)
            for action in actions:
                state, outcome = step(key, state, action)
                yield observation, action, outcome
                observation = outcome.observation


def row(problem, observation):
    """The index of an observation in the list."""
    (found,) = np.flatnonzero((np.asarray(problem.observations) == np.asarray(observation)).all(-1))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_values_satisfy_the_bellman_equation_at_every_transition(name):
    problem = diagnostic.DIAGNOSTICS[name]()
    values, met = np.asarray(problem.action_values(DISCOUNT)), set()
    for observation, action, step in transitions(problem):
        here = row(problem, observation)
        future = 0.0 if step.terminated else DISCOUNT * values[row(problem, step.observation)].max()
        np.testing.assert_allclose(values[here, action], step.reward + future, rtol=1e-6)
        met.add((here, action))
    # Together with a discount below 1 this makes the solution unique.
    assert met == set(itertools.product(range(len(values)), range(problem.environment.spec.num_actions)))


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_ends_exactly_at_its_length(name):
    env = diagnostic.DIAGNOSTICS[name]().environment
    state, _ = env.reset(jax.random.key(0))
    ends = []
    for _ in range(env.spec.max_episode_steps):
        state, step = env.step(jax.random.key(0), state, 0)
        ends.append(bool(step.truncated if name == "truncation" else step.terminated))
        assert not (step.terminated if name == "truncation" else step.truncated)
    assert ends == [False] * (env.spec.max_episode_steps - 1) + [True]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("constant_reward", [[1]]),
        ("discounting", [[0.5], [1]]),
        ("two_armed", [[-1, 1]]),
        ("observation_reward", [[0, -1], [0, 1]]),
        ("credit", [[0, 0.5], [0, 0], [1, 1]]),
        ("truncation", [[2]]),
    ],
)
def test_values_at_discount_one_half(name, values):
    assert diagnostic.DIAGNOSTICS[name]().action_values(0.5).tolist() == values


def test_the_random_observation_takes_both_signs():
    env = diagnostic.observation_reward().environment
    seen = jax.vmap(lambda key: env.reset(key)[1])(jax.random.split(jax.random.key(0), 50))
    assert set(np.unique(seen)) == {-1.0, 1.0}


def test_greedy_actions_are_marked_with_their_ties():
    assert diagnostic.credit().greedy_actions(0.5).tolist() == [[False, True], [True, True], [True, True]]


@pytest.mark.parametrize("name", NAMES)
def test_observations_match_the_spec(name):
    problem = diagnostic.DIAGNOSTICS[name]()
    spec = problem.environment.spec
    _, observation = problem.environment.reset(jax.random.key(0))
    assert (observation.shape, observation.dtype) == (spec.observation_shape, spec.observation_dtype)
    assert problem.observations.shape[1:] == spec.observation_shape
    assert problem.observations.min() >= spec.observation_low
    assert problem.observations.max() <= spec.observation_high
