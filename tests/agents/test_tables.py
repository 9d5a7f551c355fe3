"""Learning rates of tables against running means."""

import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.agents import visit_rates


@pytest.mark.parametrize(("least_rate", "period"), [(0.0, 50), (0.25, 2), (0.5, 5)])
def test_values_are_running_means_of_their_targets_and_of_their_start_down_to_the_least_rate(least_rate, period):
    random, transform = np.random.default_rng(0), visit_rates(least_rate, period)
    start, targets, is_hit = random.normal(size=(3, 2)), random.normal(size=(20, 3, 2)), random.random((20, 3, 2)) < 0.5
    is_hit[:, 0, 0] = False
    values, seen = jnp.asarray(start, jnp.float32), [[[start[i, j]] for j in range(2)] for i in range(3)]
    state, expected = transform.init(values), start.copy()
    for t, (target, hit) in enumerate(zip(targets, is_hit, strict=True), start=1):
        update, state = transform.update(jnp.where(hit, values - jnp.asarray(target, jnp.float32), 0.0), state)
        values = values + update
        for i, j in np.argwhere(hit):
            seen[i][j].append(target[i, j])
            num_visits = len(seen[i][j]) - 1
            rate = max(1 / (num_visits + 1), min(least_rate, t / (num_visits * period)))
            expected[i, j] += rate * (target[i, j] - expected[i, j])
    np.testing.assert_allclose(values, expected, atol=1e-5)
    assert values[0, 0] == jnp.float32(start[0, 0])
    if least_rate == 0:
        np.testing.assert_allclose(values, [[np.mean(each) for each in row] for row in seen], atol=1e-5)
