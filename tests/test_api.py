"""Training in one call: checks before it runs, external and functional runs, and their files."""

import json
import os
import pkgutil
import signal
import subprocess
import sys
import threading
from functools import cache, partial

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import feelgood
from compiled import compiled_once, steps_compiled_once
from feelgood import api, networks, objectives, samplers
from feelgood.agents import ZOO, Options, Spaces, anneal, atari_hyper, make_agent, value_agent
from feelgood.api.agent_spec import agent_spec, settings_of
from feelgood.api.functional import functional_config
from feelgood.cli.train import TrainOptions
from feelgood.envs import Environment, Spec, Step, deep_sea, nchain
from feelgood.envs.conversion import as_external
from feelgood.envs.diagnostic import two_armed
from feelgood.envs.external import vector_environment
from feelgood.envs.gym import GymEnv
from feelgood.protocols import ATARI, CONTROL
from feelgood.runs import store
from feelgood.studies.atari.runs import settings as study_settings
from feelgood.studies.atari.study import AtariStudy, runs_of
from feelgood.training import FunctionalConfig, Interrupted, external_steps, run_batch, trainer
from feelgood.training.acting import spaces_of
from feelgood.training.functional import functional_spaces

SMALL = {"num_envs": 4, "learning_starts": 40, "batch_size": 16, "capacity": 400, "num_evaluation_episodes": 3}
TINY = {"num_steps": 100, "evaluation_period": 50, "capacity": 64, "batch_size": 4, "replay_ratio": 1}


class Lever(gymnasium.Env):
    """Three pulls of one of two levers; the second pays 1."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.ones(1, np.float32), float(action == 1), self.time == 3, False, {}


def levers(num_envs, training):
    return SyncVectorEnv([Lever] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def own_agent(spaces, hyper):
    """Langevin Monte Carlo on a linear model, passed as a function."""
    network = networks.network(lambda key: networks.mlp(key, spaces.observation_shape, (), spaces.num_actions))
    return value_agent(network, objectives.td(), samplers.langevin(hyper["step_size"], 10.0))


@pytest.fixture(scope="module")
def outside():
    """A run in a user's environment, and its reports."""
    seen = []
    report = lambda seed, row: seen.append((seed, row["step"], row["return"]))
    hyper = {"step_size": 0.01, "epsilon_fraction": 0.5}
    result = feelgood.train("dqn", levers, num_steps=400, seeds=3, hyper=hyper, callback=report, **SMALL)
    return result, seen


@pytest.fixture(scope="module")
def compiled():
    """The compiled functions of `inside`."""
    return {}


@pytest.fixture(scope="module")
def inside(compiled):
    """Two seeds of a functional environment."""
    with compiled_once(compiled):
        return feelgood.train("dqn", nchain(4), seeds=(7, 8), hyper={"step_size": 0.02}, **TINY)


def test_importing_feelgood_loads_neither_jax_nor_gymnasium():
    code = "import feelgood, sys; print([name for name in ('jax', 'gymnasium', 'pandas') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
    assert all(getattr(feelgood, name) is not None for name in feelgood.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = feelgood.trian


def test_every_package_but_the_command_line_and_the_protocols_load_as_attributes():
    packages = {module.name for module in pkgutil.iter_modules(feelgood.__path__) if module.ispkg}
    assert {*packages, "protocols"} - {"cli"} <= {*feelgood.__all__}


def test_an_agent_learns_in_an_environment_of_your_own(outside):
    result, _ = outside
    assert result.curve["return"].iloc[-1] == 3
    assert (result.curve["training_return"] < 3).any()  # it explored on the way
    assert result.policy.evaluate(3).tolist() == [3.0] * 3


def test_the_curve_has_a_row_for_each_evaluation_in_the_order_reported(outside):
    result, seen = outside
    curve = result.curve
    assert list(curve["step"]) == list(range(0, 401, 16))
    assert list(curve["seed"]) == 26 * [3]
    assert {*curve["agent"]} == {"dqn"}
    assert {*curve["environment"]} == {"custom"}
    assert seen == list(curve[["seed", "step", "return"]].itertuples(index=False, name=None))


class Signal(Lever):
    """The lever that pays is the parity of a whole number, which is shown."""

    observation_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.sign = 0, int(seed or 0) % 4
        return self.sign, {}

    def step(self, action):
        reward, self.sign, self.time = float(action == self.sign % 2), (self.sign + action + 1) % 4, self.time + 1
        return self.sign, reward, self.time == 8, False, {}


def test_learning_from_whole_numbers_is_learning_from_their_one_hot_vectors():
    shown = lambda: gymnasium.wrappers.FlattenObservation(Signal())
    settings = {"num_steps": 96, "seeds": 3, "options": {"hidden": (4,)}, "progress": False, **SMALL}
    numbers, vectors = (feelgood.train("dqn", env, evaluation_period=48, **settings) for env in (Signal, shown))
    assert vectors.policy.environment.frame_shape == (4,)
    assert numbers.policy.environment.frame_shape == ()
    of_numbers, of_vectors = numbers.policy.values(np.arange(4)), vectors.policy.values(np.eye(4))
    assert of_numbers.std(0).min() > 0.01
    np.testing.assert_allclose(of_numbers, of_vectors, rtol=1e-3, atol=1e-3)
    assert list(numbers.curve["return"]) == list(vectors.curve["return"])


def test_a_result_is_saved_with_a_figure_and_a_policy_for_each_seed(outside, inside, tmp_path):
    paths = inside.save(tmp_path)
    assert all(path.exists() for path in paths)
    found = {str(path.relative_to(tmp_path)) for path in paths}
    assert found >= {"curves.parquet", "curves.png", "policy/seed-7/policy.json", "policy/seed-8/policy.npz"}
    pd.testing.assert_frame_equal(feelgood.load_results(tmp_path), inside.curve)
    with np.load(tmp_path / "policy" / "seed-8" / "policy.npz") as arrays:
        params = inside.policies[1].state.sampler.params
        np.testing.assert_array_equal(arrays["sampler/params/layers/0/bias"], params.layers[0].bias)
    outside[0].save(tmp_path / "one")
    assert (tmp_path / "one" / "policy" / "policy.json").exists()


def test_a_result_prints_its_returns_and_keeps_the_best_policy_with_all_settings(outside, tmp_path):
    result, _ = outside
    # A random lever pays 1 in half of three pulls; the mean of three episodes is within four standard errors of 1.5.
    (random,) = set(result.curve["random_return"])
    assert abs(random - 1.5) < 4 * np.sqrt(3 / 4 / 3)
    assert repr(result) == f"dqn in custom: final return 3 after 400 steps, random actions {random:.3g}"
    assert repr(result.policy) == "Policy(dqn in custom, seed 3)"
    assert result.not_above_random() == []
    best = result.curve[result.curve["return"] == 3]["step"].max()
    assert result.best_policy.training["step"] == best
    assert result.best_policy.evaluate(3).tolist() == [3.0] * 3
    result.save(tmp_path)
    about = json.loads((tmp_path / "best_policy" / "policy.json").read_text())["training"]
    assert (about["seed"], about["num_steps"], about["num_envs"], about["step"]) == (3, 400, 4, best)


def test_an_agent_that_is_no_better_than_random_actions_is_named():
    rows = [
        {"environment": "x", "agent": agent, "seed": seed, "step": step, "return": value, "random_return": 0.5}
        for agent, values in {"stuck": (0, 0, 0), "worse": (0, 0.2, 0.3), "good": (0, 1, 1)}.items()
        for seed in (0, 1)
        for step, value in enumerate(values)
    ]
    result = api.Result(pd.DataFrame(rows), ())
    assert result.not_above_random() == [
        ("x", "stuck did not learn in x: its return never changed, and that of random actions is 0.5"),
        ("x", "worse did not learn in x: its return ended at 0.25, and that of random actions is 0.5"),
    ]
    assert result.summary()[2] == "good in x: final return 1 (1 to 1 over 2 seeds) after 2 steps, random actions 0.5"


def test_a_folder_of_the_command_line_is_left_alone(tmp_path):
    with store.recorded(tmp_path, "train", TrainOptions("CartPole-v1")):
        store.write_table(tmp_path / "curves.parquet", pd.DataFrame({"seed": [3], "return": [1.0]}))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"holds results of the command line \(train\); choose another folder"):
        feelgood.train("dqn", levers, seed=3, folder=tmp_path, progress=False, **SMALL)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_an_environment_its_class_and_a_function_that_makes_it_train_alike():
    for env in (Lever(), Lever, lambda: Lever(), gymnasium.wrappers.TimeLimit(Lever(), 7)):
        job = api.prepare("dqn", env)
        assert (job.environment.name, job.environment.num_actions) == ("Lever", 2)
        limit = 7 if isinstance(env, gymnasium.wrappers.TimeLimit) else 1000
        assert job.config.max_evaluation_steps == limit
        both = job.environment.make(2, True)
        both.reset(seed=0)
        assert both.step(np.array([1, 0]))[1].tolist() == [1.0, 0.0]  # copies, each with its own state
        both.close()
    assert api.prepare("dqn", "CartPole-v1").config.max_evaluation_steps == 500
    held = Lever()
    held.file = (line for line in ())  # cannot be copied
    for env, why in (
        (levers(1, True), "must not be a vector environment"),
        (held, "cannot be copied .*pass a function"),
    ):
        with pytest.raises(ValueError, match=why):
            api.prepare("dqn", env)


def test_small_images_are_taken_by_a_plain_network():
    class Tiles(Lever):
        observation_space = gymnasium.spaces.Box(0, 255, (7, 7, 3), np.uint8)

        def reset(self, *, seed=None, options=None):
            return np.zeros((7, 7, 3), np.uint8), super().reset()[1]

        def step(self, action):
            return (np.zeros((7, 7, 3), np.uint8), *super().step(action)[1:])

    job = api.prepare("dqn", Tiles)
    agent = job.spec.make(Spaces((7, 7, 3), 2), dict(job.spec.hyper))
    assert agent.values(jax.random.key(0), agent.init(jax.random.key(1)), jnp.ones((7, 7, 3))).shape == (2,)


@pytest.mark.parametrize("shape", [(36, 40, 3), (3, 36, 40)])
def test_large_images_reach_the_network_scaled_and_with_their_channels_first(shape):
    picture = np.random.default_rng(0).integers(256, size=shape).astype(np.uint8)

    class Screen(Lever):
        observation_space = gymnasium.spaces.Box(0, 255, shape, np.uint8)

        def reset(self, *, seed=None, options=None):
            return picture, super().reset()[1]

        def step(self, action):
            return (picture, *super().step(action)[1:])

    environment = as_external(Screen)
    assert environment.observation_shape == shape  # policies take observations as the environment has them
    spaces = spaces_of(environment)
    assert spaces.observation_shape == (3, 36, 40)
    seen = spaces.decode(np.stack([picture, picture]))
    expected = picture.transpose(2, 0, 1) if shape[-1] == 3 else picture
    np.testing.assert_allclose(seen, np.stack([expected, expected]) / 255, rtol=1e-6)
    job = api.prepare("dqn", Screen)
    agent = job.spec.make(spaces, dict(job.spec.hyper))
    values = jax.eval_shape(lambda key: agent.values(key, agent.init(key), picture), jax.random.key(0))
    assert values.shape == (2,)


def test_a_reward_that_is_not_finite_stops_training_with_a_sentence():
    class Leak(Lever):
        pulls = 0

        def step(self, action):
            self.pulls += 1
            seen, reward, *rest = super().step(action)
            return (seen, float("nan") if self.pulls == 30 else reward, *rest)

    with pytest.raises(ValueError, match=r"env 'Leak' returned the reward nan in step \d+ of training; every"):
        feelgood.train("dqn", Leak, num_steps=400, progress=False, **SMALL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
def test_finished_runs_leave_no_threads_descriptors_or_frames(tmp_path):
    def counts(name):
        feelgood.train("dqn", levers, num_steps=80, folder=tmp_path / name, progress=False, **SMALL)
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    first = counts("a")  # includes those of JAX itself
    assert counts("b") == first
    assert [path.stat().st_size for path in tmp_path.rglob("frames.bin")] == [0, 0]


def test_a_figure_shows_the_mean_over_seeds(inside):
    (axes,) = inside.plot().axes
    line, random = axes.lines
    np.testing.assert_allclose(random.get_ydata(), inside.curve["random_return"][:2], rtol=1e-3)
    mean = inside.curve.groupby("step")["return"].mean()
    np.testing.assert_allclose(line.get_xdata(), mean.index)
    np.testing.assert_allclose(line.get_ydata(), mean, rtol=1e-3)


def test_functional_policies_have_the_returns_of_their_curves_outside_xla(inside):
    # The N-chain is deterministic, so one episode is enough.
    last = inside.curve.groupby("seed")["return"].last()
    np.testing.assert_allclose([policy.evaluate(1).item() for policy in inside.policies], last, rtol=1e-5)
    assert inside.policy is inside.policies[0]
    assert list(inside.curve["step"]) == [0, 50, 100] * 2
    # Episodes of the 4-chain have 12 steps.
    assert set(inside.curve["num_episodes"]) <= {0, 4, 5}
    assert inside.curve["potential"][1] != inside.curve["potential"][4]


def test_a_policy_of_a_functional_environment_is_loaded_with_it(inside, tmp_path):
    inside.save(tmp_path)
    folder = tmp_path / "policy" / "seed-8"
    with pytest.raises(ValueError, match="needs your own environment; pass environment to load_policy"):
        feelgood.load_policy(folder).evaluate(1)
    loaded = feelgood.load_policy(folder, environment=nchain(4))
    assert loaded.environment.name == "nchain-4"
    assert set(inside.curve["environment"]) == {"nchain-4"}
    np.testing.assert_array_equal(loaded.evaluate(1), inside.policies[1].evaluate(1))
    with pytest.raises(ValueError, match="does not fit its agent or environment"):
        feelgood.load_policy(folder, environment=nchain(5))


def test_a_policy_of_environments_of_your_own_is_loaded_with_their_maker(outside, tmp_path):
    outside[0].save(tmp_path)
    assert feelgood.load_policy(tmp_path, environment=levers).evaluate(3).tolist() == [3.0] * 3


@pytest.mark.parametrize("stage", ["training", "beginning"])
def test_a_stop_returns_the_results_of_finished_seeds_and_of_a_run_in_progress(stage, monkeypatch):
    from feelgood.training import external

    def stop(seed, row):
        if (seed, row["step"], stage) == (1, 80, "training"):
            signal.raise_signal(signal.SIGINT)

    class Run(external.Run):
        def __init__(self, environment, steps, config, hyper, seed, *rest):
            if (seed, stage) == (1, "beginning"):
                raise KeyboardInterrupt
            super().__init__(environment, steps, config, hyper, seed, *rest)

    monkeypatch.setattr(external, "Run", Run)
    options = {"hidden": (8,)}
    with pytest.raises(Interrupted) as stopped:
        feelgood.train(
            "dqn", levers, num_steps=2000, seeds=(0, 1), callback=stop, evaluation_period=40, options=options, **SMALL
        )
    so_far = stopped.value.so_far
    steps = {seed: list(rows["step"]) for seed, rows in so_far.curve.groupby("seed")}
    assert steps[0] == list(range(0, 2001, 40))
    ends = [policy.training["step"] for policy in so_far.policies]
    assert ends[0] == 2000
    if stage == "beginning":
        assert (len(ends), list(steps)) == (1, [0])
    else:
        assert steps[1][:3] == [0, 40, 80]
        assert 80 <= ends[1] < 2000
        assert len(so_far.best_policies) == 2


@pytest.mark.slow
def test_functional_environments_train_as_batches_of_runs_do(inside):
    make = lambda spaces, hyper: make_agent("dqn", spaces, hyper)
    hyper = {name: jnp.full(2, value) for name, value in {**ZOO["dqn"].hyper, "step_size": 0.02}.items()}
    curves = run_batch(trainer(nchain(4), make, FunctionalConfig(**TINY), anneal), 2, np.array([7, 8]), hyper)
    expected = np.concatenate([curves.initial[:, None], curves.record.evaluation], 1)
    column = lambda name: inside.curve[name].to_numpy().reshape(2, 3)
    np.testing.assert_allclose(column("return"), expected, rtol=1e-6)
    np.testing.assert_allclose(column("potential")[:, 1:], curves.record.potential, rtol=1e-5)
    means = curves.record.training_return / curves.record.num_episodes
    np.testing.assert_allclose(column("training_return")[:, 1:], means, rtol=1e-6)


def test_runs_inside_xla_are_stopped_and_go_on_from_their_folder(inside, compiled, tmp_path, capsys):
    def stop(seed, row):
        if (seed, row["step"]) == (8, 50):
            signal.raise_signal(signal.SIGINT)

    told = []
    train = partial(feelgood.train, "dqn", nchain(4), seeds=(7, 8), hyper={"step_size": 0.02}, folder=tmp_path, **TINY)
    with compiled_once(compiled), pytest.raises(Interrupted):
        train(callback=stop)
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"runs.checkpoint"}
    capsys.readouterr()
    with compiled_once(compiled):
        result = train(callback=lambda seed, row: told.append((row["step"], seed)))
        said = capsys.readouterr().err
        again = train()  # nothing is left to do
    assert said.startswith(f"continuing from {tmp_path / 'runs.checkpoint'}\n")
    assert "nchain-4 dqn: 2 seeds, step 100, mean return " in said
    # Rows from before the stop are reported again, so that a table made of reports is complete.
    assert told == [(step, seed) for step in (0, 50, 100) for seed in (7, 8)]
    pd.testing.assert_frame_equal(feelgood.load_results(tmp_path), inside.curve)
    for found in (result, again):
        pd.testing.assert_frame_equal(found.curve, inside.curve)
        for policy, expected in zip(found.policies, inside.policies, strict=True):
            assert eqx.tree_equal(policy.state, expected.state)
    elsewhere = partial(feelgood.train, "dqn", seeds=(7, 8), hyper={"step_size": 0.02}, folder=tmp_path, **TINY)
    chain = nchain(4)

    def pays_less(key, state, action):
        state, step = chain.step(key, state, action)
        return state, step._replace(reward=step.reward - 5)

    for change in (
        partial(train, hyper={"step_size": 0.03}),
        partial(elsewhere, nchain(4, small_reward=0.5)),
        partial(elsewhere, chain._replace(step=pays_less)),
        partial(elsewhere, chain._replace(encode=lambda observation: chain.encode(observation))),
        partial(train, schedule=lambda hyper, progress: {**hyper, "step_size": 0.0}),
    ):
        with pytest.raises(ValueError, match=r"folder .* belongs to another run: (step_size is 0.02 there|.* differs)"):
            change()


def test_a_folder_is_refused_after_a_change_of_the_schedule_or_of_a_part_of_your_own_task(tmp_path):
    environment = vector_environment(levers, "levers")
    train = partial(feelgood.train, "dqn", folder=tmp_path, num_steps=64, num_envs=4)
    train(environment)
    changes = (
        partial(train, environment._replace(transform_reward=lambda reward: 0 * reward)),
        partial(train, environment._replace(decode=lambda code: 2 * code)),
        partial(train, environment, schedule=lambda hyper, progress: {**hyper, "step_size": 0.0}),
    )
    for change in changes:
        with pytest.raises(ValueError, match="another run"):
            change()
    train(environment)  # which is still there


@pytest.mark.parametrize(
    ("settings", "period"),
    [
        ({}, 1_000),
        ({"num_steps": 3_000}, 1_000),
        ({"num_steps": 100}, 10),
        ({"num_steps": 2_400}, 100),
        ({"num_steps": 2_400, "evaluation_period": 800}, 800),
        ({"num_steps": 2_100, "train_frequency": 7}, 84),
    ],
)
def test_a_run_inside_xla_has_about_25_evaluations_if_the_usual_period_does_not_divide_it(settings, period):
    spec = agent_spec("dqn", None, Options(), anneal)
    assert functional_config(spec, settings, is_one_hot=False).evaluation_period == period


def test_a_budget_that_blocks_of_steps_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="num_steps must be a multiple of train_frequency = 10, got 105"):
        feelgood.train("dqn", nchain(4), num_steps=105)


def test_a_run_inside_xla_that_diverges_has_no_return():
    # The network's values are NaN from the first update on, and argmax of NaN is the action that pays.
    env = two_armed((1.0, -1.0)).environment
    result = feelgood.train("dqn", env, hyper={"step_size": 1e30}, **TINY)
    assert not result.curve["finite"].iloc[-1]
    assert np.isnan(result.curve["return"].iloc[-1])


def test_observations_of_whole_numbers_without_bounds_are_stepped_outside_too():
    spec = Spec((5,), np.dtype(np.uint8), 2, 12)
    space = GymEnv(nchain(4)._replace(spec=spec)).observation_space
    assert (space.low.max(), space.high.min(), space.dtype) == (0, 255, np.uint8)


def test_an_agent_of_your_own_is_used_unchanged():
    job = api.prepare(own_agent, levers, hyper={"step_size": 0.5})
    assert job.spec.name == "own"
    assert job.spec.hyper == {"step_size": 0.5}
    assert job.spec.make is own_agent


@pytest.mark.parametrize("env", [levers, nchain(4)])
@pytest.mark.parametrize("num_outputs", [1, 3])
def test_a_network_without_a_value_for_each_action_is_refused(env, num_outputs):
    def agent(spaces, hyper):
        model = lambda key: networks.mlp(key, spaces.observation_shape, (), num_outputs)
        network = networks.network(model)
        decoded = network._replace(apply=lambda *given: network.apply(*given[:2], spaces.decode(given[2])))
        return value_agent(decoded, objectives.td(), samplers.langevin(0.1, 10.0))

    with pytest.raises(ValueError, match=rf"must return 2 values for an observation, .*, got shape \({num_outputs},\)"):
        feelgood.train(agent, env, num_steps=1000)


def test_control_tasks_games_and_the_chain_have_defaults_of_their_own():
    control = api.prepare("dqn", "CartPole-v1")
    assert control.spec.hyper == {**ZOO["dqn"].hyper, **ZOO["dqn"].control}
    assert control.spec.options == Options(**CONTROL["options"])
    assert control.config.num_steps == CONTROL["config"]["num_steps"]
    assert control.config.evaluation_period == control.config.num_steps // 25
    said = api.prepare("dqn", "CartPole-v1", hyper={"step_size": 0.5}, config={"num_steps": 100, "n_step": 5})
    assert (control.config.learning_starts, said.config.learning_starts) == (1000, 50)
    assert said.spec.hyper == {**control.spec.hyper, "step_size": 0.5}
    assert (said.config.n_step, said.config.evaluation_period) == (5, 8)  # a step of all eight at least
    pytest.importorskip("ale_py")
    game = api.prepare("dqn", "atari:freeway", env_settings={"sticky": 0.25})
    assert game.spec.hyper == {**ZOO["dqn"].hyper, **ZOO["dqn"].atari}
    assert (game.origin.kind, game.origin.name, game.environment.stack) == ("atari", "freeway", 4)
    assert (game.config.num_envs, game.config.num_groups) == (300, 3)
    assert game.spec.options == Options((32, 32), double=True, init="unbiased", form="bounded", prioritized=True)
    kept = {"sticky": 0.25, "life_loss": True, "pixel_scale": 1 / 255}
    assert game.origin.settings == kept  # with a saved policy
    np.testing.assert_allclose(game.environment.decode(np.array([0, 255], np.uint8)), [0, 1], rtol=1e-6)
    for settings, pixel_scale in ((None, 1 / 255), ({"pixel_scale": 1.0}, 1.0)):
        langevin = api.prepare("fg_ulmcdqn", "atari:freeway", env_settings=settings)
        assert langevin.spec.hyper == atari_hyper("fg_ulmcdqn", pixel_scale, "bounded")
    for config, num_groups in (({"num_envs": 1}, 1), ({"num_envs": 200}, 2), ({"num_envs": 60, "num_chains": 10}, 3)):
        assert api.prepare("dqn", "atari:freeway", config=config).config.num_groups == num_groups


def test_the_recommended_agent_has_one_setting_inside_and_outside_xla():
    spec = agent_spec("ensemble_dqn", None, Options(), anneal)
    for name, is_one_hot in (("CartPole-v1", False), ("Taxi-v4", True)):
        inside, outside = functional_config(spec, {}, is_one_hot), api.prepare("ensemble_dqn", name)
        assert outside.spec.hyper == spec.hyper
        assert (outside.spec.options.hidden, outside.spec.options.num_members) == (spec.options.hidden, 20)
        shared = ("batch_size", "replay_ratio", "target_update_period", "capacity", "discount", "n_step")
        assert [getattr(inside, each) for each in shared] == [getattr(outside.config, each) for each in shared]
        assert inside.batch_size == (128 if is_one_hot else 64)  # tables need larger minibatches


def test_options_that_are_given_leave_the_others_unchanged():
    named = api.prepare("dqn", "CartPole-v1", options={"double": True, "hidden": [5]}).spec.options
    assert named == Options(**{**CONTROL["options"], "double": True, "hidden": (5,)})
    assert api.prepare("dqn", "CartPole-v1", options=Options()).spec.options == Options(hidden=(32, 32))
    with pytest.raises(ValueError, match=r"option must be one of .*, got 'duoble'; did you mean 'double'\?"):
        api.prepare("dqn", "CartPole-v1", options={"duoble": True})
    pytest.importorskip("ale_py")
    game = api.prepare("fg_ulmcdqn", "atari:freeway", options={"form": "corrected"}).spec
    assert game.options == Options((32, 32), **{**ATARI["prioritized"]["options"], "form": "corrected"})
    assert game.hyper == atari_hyper("fg_ulmcdqn", 1 / 255, "corrected")


def test_a_preset_is_that_of_the_atari_study():
    with pytest.raises(ValueError, match=r"preset must be left out unless env is an Atari game .*, got 'dopamine'"):
        api.prepare("dqn", "CartPole-v1", preset="dopamine")
    with pytest.raises(ValueError, match="preset must be left out"):
        feelgood.train("dqn", nchain(5), preset="paper")
    pytest.importorskip("ale_py")
    with pytest.raises(ValueError, match=r"preset must be one of .*, got 'dopamin'; did you mean 'dopamine'\?"):
        api.prepare("dqn", "atari:freeway", preset="dopamin")
    for name in (None, *ATARI):
        job = api.prepare("fg_ulmcdqn", "atari:freeway", preset=name)
        (run, *_) = runs_of(AtariStudy(name or "prioritized", agents=("fg_ulmcdqn",)))
        study = study_settings(run)
        assert (job.spec.hyper, job.config, job.spec.options) == (study.hyper, study.config, study.options)
        assert job.origin.settings == run.env_settings
    changed = api.prepare("dqn", "atari:freeway", preset="dopamine", config={"draw_steps": 100})
    assert (changed.config.draw_steps, changed.origin.settings["sticky"]) == (100, 0.25)


@pytest.mark.parametrize(
    ("agent", "env", "settings", "message"),
    [
        ("dnq", levers, {}, "did you mean 'dqn'?"),
        ("dqn", "CartPol-v1", {}, "env 'CartPol-v1' cannot be made"),
        ("dqn", "Pendulum-v1", {}, "must have discrete actions"),
        (
            "dqn",
            levers,
            {"hyper": {"step": 1.0}},
            "hyper-parameter of dqn must be one of .*'step'; did you mean 'step_size'",
        ),
        (
            "dqn",
            levers,
            {"hyper": {"step_size": float("nan")}},
            "hyper-parameter step_size must be a finite real number",
        ),
        ("fg_ulmcdqn", levers, {"hyper": {"step_size": -1.0}}, "step_size must be positive and finite, got -1"),
        ("dqn", levers, {"hyper": {"step_size": -1.0}}, "step_size must be positive and finite, got -1"),
        ("dqn", levers, {"hyper": {"adam_epsilon": 0.0}}, "adam_epsilon must be positive and finite, got 0"),
        ("fg_ulmcdqn", levers, {"hyper": {"bias_epsilon": 0.0}}, "bias_epsilon must be positive and finite, got 0"),
        ("dqn", levers, {"hyper": {"final_epsilon": 2.0}}, r"final_epsilon must be in \[0, 1\], got 2"),
        (
            "fg_ulmcdqn",
            levers,
            {"hyper": {"inverse_temperature_end": -1.0}},
            "inverse_temperature_end must be positive .* got -1",
        ),
        ("dqn", levers, {"batchsize": 3}, "setting must be one of .*did you mean 'batch_size'"),
        ("dqn", levers, {"step_size": 3}, "'step_size' is not a setting of a run: it belongs into hyper"),
        ("dqn", nchain(4), {"double": True}, "'double' is not a setting of a run: it belongs into options"),
        ("dqn", levers, {"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ("dqn", levers, {"num_steps": 0}, "num_steps must be a whole number of at least 1, got 0"),
        ("dqn", levers, {"seeds": ()}, r"seeds must be different whole numbers below 2\^32, at least one, got"),
        ("dqn", levers, {"seeds": (1, 1)}, "seeds must be different whole numbers"),
        ("dqn", levers, {"seeds": (0, 2**32)}, r"seeds must be different whole numbers below 2\^32"),
        ("dqn", levers, {"num_steps": 800, "learning_starts": 800}, "learning_starts must be below num_steps = 800"),
        ("dqn", nchain(4), {"discount": 5.0}, r"discount must be in \[0, 1\], got 5.0"),
        ("dqn", levers, {"seeds": -1}, "seeds must be a whole number of at least 0, got -1"),
        ("dqn", levers, {"env_settings": {"x": 1}}, "env_settings must be empty unless env is a name"),
        ("dqn", nchain(4), {"num_envs": 2}, "setting must be one of"),
        ("dqn", nchain(4), {"env_settings": {"x": 1}}, "env_settings must be empty unless env is a name"),
        (
            "dqn",
            nchain(4),
            {"learning_starts": 101, **TINY},
            "learning_starts must be at most num_steps = 100, got 101",
        ),
        ("dqn", nchain(4), {**TINY, "replay_ratio": 1e-8}, "replay_ratio must be at least 1/train_frequency = 1/10"),
        ("dqn", nchain, {}, r"env must be callable without arguments, or be a function \(num_envs, training\)"),
        ("dqn", lambda: nchain(4), {}, "env must be a functional environment itself, got .*: call it"),
        (own_agent, levers, {"hyper": {"step_end": 1.0}}, "start of hyper-parameter step_end must be one of"),
        ("dqn", levers, {"callback": lambda row: None}, r"callback must be a function \(seed, row\), got .* too many"),
        ("dqn", levers, {"schedule": lambda hyper: hyper}, r"schedule must be a function \(hyper, progress\), got"),
        (own_agent, levers, {}, "hyper must have 'step_size', which the agent reads, got {}"),
        (own_agent, nchain(4), {"hyper": {"step": 1.0}}, "hyper must have 'step_size', .* got {'step': 1.0}"),
        (lambda spaces: None, levers, {}, r"agent must be a function \(spaces, hyper\) .*: too many positional"),
        (lambda spaces, hyper: 3, nchain(4), {}, "agent must be a function .*, got one that returns 3"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(agent, env, settings, message):
    with pytest.raises(ValueError, match=message):
        feelgood.train(agent, env, **settings)


KINDS = [
    ("dqn", None, {}),
    ("dqn", "CartPole-v1", {"seeds": 1.5}),
    ("dqn", "CartPole-v1", {"seeds": [0, 1], "seed": 0}),
    ("dqn", "CartPole-v1", {"hyper": [1]}),
    ("dqn", "CartPole-v1", {"options": 3}),
    ("dqn", "CartPole-v1", {"options": {"form": "corected"}}),
    ("dqn", "CartPole-v1", {"options": {"hidden": 64}}),
    ("dqn", "CartPole-v1", {"options": {"hidden": [4.5]}}),
    ("dqn", "CartPole-v1", {"options": {"double": "no"}}),
    ("c51", "CartPole-v1", {"options": {"critic": "quantile"}}),
    ("dqn", "CartPole-v1", {"env_settings": 3}),
    ("dqn", "CartPole-v1", {"folder": 3}),
    ("dqn", "CartPole-v1", {"seeds": "01"}),
    ("dqn", "CartPole-v1", {"num_steps": "10"}),
    ("dqn", "CartPole-v1", {"hyper": {3: 1.0}}),
    ("dqn", "CartPole-v1", {"hyper": {"step_size": [1.0]}}),
    ("dqn", "CartPole-v1", {"batch_size": [3]}),
    ("dqn", "CartPole-v1", {"callback": None}),
    ("dqn", "CartPole-v1", {"folder": feelgood.__file__}),
    (3, "CartPole-v1", {}),
]


def test_arguments_of_another_kind_are_refused_in_one_sentence(unchecked_types):
    said = []
    for agent, env, settings in KINDS:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            feelgood.train(agent, env, **settings)
        said.append(str(caught.value))
    *sentences, agent = said
    assert sentences == [
        "env must be a name, an environment, its class, or a function that makes one, got None",
        "seeds must be a whole number or several, got 1.5",
        "seed and seeds mean the same; give one of them, got 0 and [0, 1]",
        "hyper must be a mapping from names to values, got [1]",
        "options must be a mapping from names to values, or Options, got 3",
        "form must be one of 'released', 'paper', 'corrected', 'bounded', got 'corected'; did you mean 'corrected'?",
        "hidden must be widths of layers, got 64",
        "hidden must be a whole number of at least 1, got 4.5",
        "double must be True or False, got 'no'",
        "critic must be 'categorical' for c51, got 'quantile'",
        "env_settings must be a mapping from names to values, got 3",
        "folder must be a path, got 3",
        "seeds must be a whole number of at least 0, got '01'",
        "num_steps must be a whole number of at least 1, got '10'",
        "hyper's names must be words, got 3",
        "hyper-parameter step_size must be a number, got [1.0]",
        "batch_size must be a number, got [3]",
        "callback must be a function (seed, row), got None",
        f"folder must be a folder or a new name, got the file {feelgood.__file__}",
    ]
    assert agent.startswith("agent must be one of 'fg_ulmcdqn', ")
    assert agent.endswith(", got 3")


def test_several_seeds_are_compiled_once_and_each_run_is_as_alone(monkeypatch):
    learn, traced = external_steps.learn, []
    monkeypatch.setattr(external_steps, "learn", lambda *arguments: traced.append(1) or learn(*arguments))
    train = partial(feelgood.train, "dqn", "CartPole-v1", num_steps=64, num_envs=8)
    both = train(seeds=(0, 1)).curve
    assert len(traced) == 1
    second, alone = both[both["seed"] == 1], train(seeds=1).curve
    for column in ("step", "return", "training_return", "potential"):
        np.testing.assert_array_equal(second[column], alone[column])
    assert second["potential"].notna().any()
    assert not second["potential"].equals(both.loc[both["seed"] == 0, "potential"])


def test_the_curves_of_other_seeds_stay_in_their_folder(tmp_path):
    train = partial(feelgood.train, "dqn", "CartPole-v1", folder=tmp_path, num_steps=64, num_envs=8)
    with steps_compiled_once():
        for seeds in (0, 1, 0):
            train(seeds=seeds)
    table = feelgood.load_results(tmp_path)
    assert sorted(table["seed"].unique()) == [0, 1]
    assert not table.duplicated(["seed", "step"]).any()


@pytest.mark.parametrize(
    ("agent", "env", "settings", "difference"),
    [
        ("lmcdqn", "CartPole-v1", {"seeds": 1}, "agent is 'dqn' there, not 'lmcdqn'"),
        ("dqn", nchain(4), {}, "environment is 'CartPole-v1' there, not 'nchain-4'"),
        ("dqn", "CartPole-v1", {"seeds": 1, "hyper": {"step_size": 0.1}}, "step_size is 0.004 there, not 0.1"),
        ("dqn", "CartPole-v1", {"seeds": 1, "batch_size": 3}, "batch_size is 64 there, not 3"),
    ],
)
def test_a_folder_takes_no_runs_with_other_settings(agent, env, settings, difference, tmp_path):
    store.write_table(tmp_path / "curves.parquet", pd.DataFrame({"seed": [0]}), {"settings": settings_of_dqn()})
    with pytest.raises(ValueError, match=f"folder .* belongs to another run: {difference}; choose another folder"):
        feelgood.train(agent, env, folder=tmp_path, **settings)


@cache
def settings_of_dqn():
    job = api.prepare("dqn", "CartPole-v1")
    return settings_of(job.spec, job.environment.name, job.config)


def test_a_policy_of_a_one_hot_environment_acts_on_its_observations(tmp_path):
    sea = deep_sea(6, mapping_seed=42)
    settings = {"options": {"num_members": 3}, "evaluation_period": 40, "num_steps": 80, "batch_size": 4}
    result = feelgood.train("ensemble_dqn", sea, **settings)
    result.save(tmp_path)
    observations = np.eye(36).reshape(36, 6, 6)
    values = result.policy.values(observations)
    assert values.shape == (36, 3, 2)
    assert np.unique(values[:, 0, 0]).size == 36  # a table: each cell has its own value
    for policy in (result.policy, feelgood.load_policy(tmp_path), feelgood.load_policy(tmp_path, environment=sea)):
        np.testing.assert_array_equal(policy.values(observations), values)
        assert policy(observations[0]) in (0, 1)
        np.testing.assert_array_equal(policy.values(np.zeros((6, 6))), np.zeros((3, 2)))  # the end has no cell
    assert result.policy.evaluate(2).mean() == pytest.approx(result.curve["return"].iloc[-1])


def test_a_policy_of_a_functional_environment_with_images_sees_them_as_in_training():
    def reset(key):
        return jnp.int32(0), jnp.full((1, 36, 36), 200, jnp.uint8)

    def step(key, state, action):
        reward = jnp.where(action == 1, 1.0, 0.0)
        return state + 1, Step(jnp.full((1, 36, 36), 200, jnp.uint8), reward, jnp.array(False), state == 1)

    spec = Spec((1, 36, 36), np.dtype(np.uint8), 2, max_episode_steps=2, observation_low=0, observation_high=255)
    result = feelgood.train("dqn", Environment(reset, step, spec), **TINY)
    state, seen = result.policy.state, jnp.full((1, 36, 36), 200.0)
    agent = make_agent("dqn", functional_spaces(Environment(reset, step, spec)))
    expected = jax.jit(agent.values)(jax.random.key(0), state, seen)
    np.testing.assert_allclose(result.policy.values(np.full((1, 36, 36), 200)), expected, rtol=1e-4)


def test_settings_of_a_game_of_another_kind_are_refused_in_one_sentence(unchecked_types):
    pytest.importorskip("ale_py")
    with pytest.raises(ValueError, match=r"^life_loss must be True or False, got 0$"):
        feelgood.train("dqn", "atari:pong", env_settings={"life_loss": 0})


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["fg_ulmcdqn", "dqn"])
def test_the_defaults_solve_the_cart_pole(agent):
    """A mean of 475 over ten episodes in some evaluation; the last policy of a run is not always its best."""
    result = feelgood.train(agent, "CartPole-v1", seeds=(3, 4, 5))
    best = result.curve.groupby("seed")["return"].max()
    assert best.min() >= 475, best
