"""The examples run, and have the results that they describe."""

import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import samplers

FOLDER = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested_and_short():
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {"bandit_service", "posterior", "own_environment", "own_gymnasium", "own_sampler"}
    assert all(len(path.read_text().splitlines()) <= 50 for path in FOLDER.glob("*.py"))


def test_the_posterior_of_arms_is_the_exact_one():
    example = load("posterior")
    draws = np.asarray(example.main())
    phi, weight = np.asarray(example.arms), example.feel_good_weight
    rows = phi[np.asarray(example.tried)]
    precision = 2 * rows.T @ rows + np.eye(2)
    mean = np.linalg.solve(precision, 2 * rows.T @ np.asarray(example.rewards))
    exact = samplers.exact_feel_good(jnp.float32(mean), jnp.float32(precision), example.arms, weight)
    draw = jax.jit(jax.vmap(lambda key: exact.step(key, exact.init(example.arms[0]), None)[0].params))
    expected = np.asarray(draw(jax.random.split(jax.random.key(1), 2000)))
    error = np.sqrt((draws.var(0) + expected.var(0)) / 2000)
    # Four standard errors, and a little for the step size.
    assert np.all(np.abs(draws.mean(0) - expected.mean(0)) < 4 * error + 0.02)
    np.testing.assert_allclose(draws.std(0), expected.std(0), rtol=0.1)


def test_the_corridor_inside_xla_is_trained_on():
    curve = load("own_environment").main("dqn", num_steps=100).curve  # on quickstart ensemble_dqn learns it
    assert curve.groupby("seed")["step"].max().to_dict() == {0: 100, 1: 100}
    assert curve["finite"].all()


def test_the_corridor_of_gymnasium_is_trained_on_and_its_policy_kept(tmp_path):
    policy = load("own_gymnasium").main("dqn", num_steps=64, folder=str(tmp_path))  # the README trains ensemble_dqn
    assert set(policy.evaluate(3)) <= {float(-steps) for steps in range(4, 13)}
    assert int(policy(0)) in (0, 1)


@pytest.mark.slow
def test_the_corridor_of_gymnasium_is_learnt(tmp_path):
    policy = load("own_gymnasium").main(folder=str(tmp_path))
    assert policy.evaluate(3).tolist() == [-4.0] * 3
    assert int(policy(0)) == 1


@pytest.mark.slow
def test_the_corridor_inside_xla_is_learnt():
    curve = load("own_environment").main().curve
    assert (curve.groupby("seed")["return"].max() == -4).all()


def test_a_sampler_of_your_own_learns():
    result, regret = load("own_sampler").main(num_steps=1000)
    assert result.curve["finite"].all()
    assert float(regret[-10:].mean()) < 0.5 * float(regret[:10].mean())


@pytest.mark.parametrize("step_size", [0.1])
def test_the_tamed_sampler_follows_its_equation(step_size):
    sampler = load("own_sampler").tamed(step_size, np.inf)
    start = np.float32([3.0, 4.0])
    state, info = sampler.step(jax.random.key(0), sampler.init({"w": start}), lambda tree: (tree["w"] ** 2).sum() / 2)
    np.testing.assert_allclose(state.params["w"], start * (1 - step_size / (1 + step_size * 5)), rtol=1e-6)
    assert float(info.potential) == 12.5


def test_the_bandit_in_service_earns_more_than_one_arm_would(tmp_path):
    found = load("bandit_service").main(num_requests=240, path=str(tmp_path / "policy.npz"))
    assert found["earned"] > 0.5  # the best of three arms earns about 1.2 on average, a random one 0
    assert abs(found["always arm 0"]) < 4 * found["±"] + 0.05  # ⟨taste, x⟩ has mean zero
    assert (tmp_path / "policy.npz").exists()


# Notebooks.


def cells(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]


def run(name, monkeypatch):
    """Run the code cells in order in one namespace and return it; figures are not shown."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    namespace = {}
    with jax.numpy_rank_promotion("allow"):  # as users have it
        for cell in cells(name):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"{name}.ipynb", "exec"), namespace)
    return namespace


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.ipynb"))])
def test_notebooks_hold_text_and_code_but_no_output(name):
    assert {cell["cell_type"] for cell in cells(name)} == {"markdown", "code"}
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells(name))


@pytest.mark.slow
def test_the_notebook_on_sampling_agrees_with_the_exact_laws(monkeypatch):
    found = run("sampling_a_posterior", monkeypatch)
    # Variances along the steep direction have more than 5,000 independent draws behind them: five standard errors.
    for ratio in found["ratios"].values():
        assert abs(ratio - 1) < 5 * np.sqrt(2 / 5_000)
    # The flat direction has at least 1,000 independent draws.
    error = 5 * np.sqrt(np.diag(found["covariance"]) / 1_000)
    assert np.all(np.abs(found["tilted"].mean(0) - found["exact"].mean(0)) < error)


@pytest.mark.slow
def test_the_notebook_on_the_chain_shows_that_feel_good_explores(monkeypatch):
    found = run("exploring_a_chain", monkeypatch)
    last = {agent: curve.groupby("seed")["return"].last().mean() for agent, curve in found["curves"].items()}
    assert last["steady_fg_ulmcdqn"] > last["ulmcdqn"]
    assert found["training"]["steady_fg_ulmcdqn"] > found["training"]["ulmcdqn"]
