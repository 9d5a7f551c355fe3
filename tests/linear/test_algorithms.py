"""Every algorithm of Table 1 stops paying regret on every MDP of the suite, and one that does not explore does not."""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

from feelgood.linear import learn, lmc_lsvi, lsvi_ase, mdps, schemes
from feelgood.linear.algorithms import ALGORITHMS, feel_good_options
from feelgood.linear.least_squares import lmc_lsvi_temperature
from feelgood.linear.theory import corollary_weights
from marks import fast_only


def with_theory(name, mdp):
    """Five episodes of the algorithm with the constants of its theory, as a function of the key."""
    learner = ALGORITHMS[name].make(mdp.features, mdp.horizon, 5, ALGORITHMS[name].theory)
    return lambda key: learn(key, mdp, learner, 5)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_made_and_traced_with_the_constants_of_its_theory(name):
    curve = jax.eval_shape(with_theory(name, mdps.combination_lock(3, 2)), jax.random.key(0))
    assert curve.regret.shape == (5,)


# The others run in the tests of their own files.
@pytest.mark.parametrize("name", fast_only(("lsvi_ucb", "ase_baoab"), ALGORITHMS))
def test_an_algorithm_runs_with_the_constants_of_its_theory(name):
    curve = jax.jit(with_theory(name, mdps.combination_lock(3, 2)))(jax.random.key(0))
    assert curve.regret.shape == (5,)
    assert set(np.asarray(curve.regret).tolist()) <= {0.0, 1.0}


def test_scales_multiply_the_constants_of_the_corollary():
    mdp = mdps.combination_lock(3, 2)
    weights = corollary_weights(mdp.dimension, 3, 100)
    options = feel_good_options(mdp.features, 3, 100, {"loss": 5.0, "feel_good": 0.5})
    assert options["loss_weight"] == pytest.approx(5 * 2 / 45)
    assert options["feel_good_weight"] == pytest.approx(0.5 * weights.feel_good_weight)


# Long enough for late regret to be small; the hypercube hides its best actions behind small gaps.
EPISODES = {"simplex": 1000, "riverswim": 1000, "nchain": 1000, "lock": 1000, "hypercube": 8000}
TUNED = Path(__file__).parents[2] / "results" / "regret" / "curves.parquet"


def tuned_scales(mdp_name, name):
    """The scales that the committed study chose on its tuning seeds."""
    table = pd.read_parquet(TUNED)
    row = table[(table["mdp"] == mdp_name) & (table["algorithm"] == name) & (table["constants"] == "tuned")].iloc[0]
    scales = {scale: float(row[scale]) for scale in ALGORITHMS[name].grid}
    # Tuned for 1,000 episodes, these two explore too little for the hypercube's 8,000.
    more = {("lsvi_phe", "hypercube"): {"noise": 1e-2}, ("ase_lmc", "hypercube"): {"loss": 1e2}}
    return scales | more.get((name, mdp_name), {})


def make_with_enough_steps(name, mdp, num_episodes, scales):
    """The algorithm; a sampler of the paper has as many steps as bad conditioning requires."""
    options = {"num_updates": 1024}
    if name == "lmc_lsvi":
        beta = lmc_lsvi_temperature(mdp.dimension, mdp.horizon, num_episodes) / scales["noise"] ** 2
        return lmc_lsvi(mdp.features, mdp.horizon, inverse_temperature=beta, ridge=scales["ridge"], **options)
    if name in ("ase_lmc", "ase_ulmc"):
        scheme = schemes.lmc() if name == "ase_lmc" else schemes.ulmc()
        options |= feel_good_options(mdp.features, mdp.horizon, num_episodes, scales)
        return lsvi_ase(mdp.features, mdp.horizon, scheme, **options)
    return ALGORITHMS[name].make(mdp.features, mdp.horizon, num_episodes, scales)


def remaining(name, mdp_name):
    """Regret of the last tenth of the episodes over that of the first ten; mean of four unused seeds."""
    mdp, num_episodes = mdps.SUITE[mdp_name](), EPISODES[mdp_name]
    learner = make_with_enough_steps(name, mdp, num_episodes, tuned_scales(mdp_name, name))
    runs = jax.jit(jax.vmap(lambda seed: learn(jax.random.key(seed), mdp, learner, num_episodes).regret))
    regret = np.asarray(runs(np.arange(5000, 5004)))
    assert regret.min() >= -1e-5
    return regret[:, -num_episodes // 10 :].mean() / regret[:, :10].mean()


@pytest.mark.slow
@pytest.mark.parametrize("mdp_name", EPISODES)
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "lsvi"])
def test_regret_per_episode_goes_to_zero(name, mdp_name):
    assert remaining(name, mdp_name) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("mdp_name", ["riverswim", "nchain", "lock"])
def test_without_exploration_it_does_not(mdp_name):
    assert remaining("lsvi", mdp_name) > 0.5
