"""`feelgood train`, `evaluate` and `record`: their files, their errors, and how a stopped run continues."""

import contextlib
import dataclasses
import io
import json
import re
import shutil
import signal

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import feelgood
from feelgood.api import Result
from feelgood.cli import main, policies, train
from feelgood.cli.run import restored
from feelgood.runs import store
from feelgood.training.evaluation import Evaluator
from feelgood.training.policy import Policy


class Lever(gymnasium.Env):
    """Three pulls of one of two levers; the second pays 1."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.ones(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.ones(1, np.float32), float(action == 1), self.time == 3, False, {}

    def render(self):
        return np.full((8, 8, 3), 50 * self.time, np.uint8)


gymnasium.register("feelgood-tests/Lever-v0", Lever)
COMMAND = ["train", "--env", "feelgood-tests/Lever-v0", "--agent", "dqn", "--num-steps", "400", "--num-envs", "4"]
COMMAND += ["--hyper", "step_size=0.01", "epsilon_fraction=0.5", "--hidden", "8"]
COMMAND += ["--config", "learning_starts=40", "batch_size=16", "capacity=400", "evaluation_period=100"]


@pytest.fixture(autouse=True)
def leave_jax_alone(monkeypatch):
    for module in (train, policies):
        monkeypatch.setattr(module, "set_up_jax", lambda: None)


def call(*arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


@pytest.fixture(scope="module")
def stopped_and_continued(tmp_path_factory):
    """A run that is stopped half-way by Ctrl-C and then called again; its output each time."""
    folder = tmp_path_factory.mktemp("run") / "lever"
    said = []
    reports, submit = train._reports, Evaluator.submit

    def at_once(evaluator, key, agent):
        future = submit(evaluator, key, agent)
        future.exception(60)  # so that training waits for the evaluation
        return future

    def interrupting(*arguments):
        manager = reports(*arguments)

        class Stopping:
            def __enter__(self):
                report, tick = manager.__enter__()

                def stop(seed, row):
                    report(seed, row)
                    if row["step"] == 200:
                        signal.raise_signal(signal.SIGINT)

                return stop, tick

            def __exit__(self, *error):
                return manager.__exit__(*error)

        return Stopping()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "set_up_jax", lambda: None)
        patch.setattr(Evaluator, "submit", at_once)
        patch.setattr(train, "_reports", interrupting)
        said.append(call(*COMMAND, "--output", str(folder)))
        said.append(store.read_study(folder))
        said.append(feelgood.load_policy(folder / "policy"))
        patch.setattr(train, "_reports", reports)
        # As `feelgood resume` does it.
        options = restored(train.TrainOptions, said[1]["spec"] | {"output": str(folder)})
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            train.execute(options, again="feelgood resume")
        said.append(errors.getvalue())
    return folder, said


def test_a_run_stopped_by_control_c_continues_where_it_stopped(stopped_and_continued):
    folder, (code, manifest, policy, errors) = stopped_and_continued
    assert re.search(r"continuing from step 20\d; the environments begin new episodes", errors)
    assert (code, manifest["finished"]) == (130, False)
    # The policy at the stop can be used; the final one takes its place.
    assert policy.evaluate(1).shape == (1,)
    final = feelgood.load_policy(folder / "policy")
    assert 200 <= policy.training["step"] < final.training["step"] == 400
    assert not np.array_equal(*(jax.tree.leaves(each.state.sampler.params)[0] for each in (policy, final)))
    assert store.read_study(folder)["finished"]
    curve = feelgood.load_results(folder)
    assert list(curve["step"]) == [0, 100, 200, 300, 400]
    log = (folder / "logs" / "seed-0.csv").read_text().splitlines()
    steps = [int(line.split(",")[0]) for line in log[1:] if ",return," in line]
    # Rows from before the stop are reported again from the checkpoint, without running again.
    assert steps[:3] == [0, 100, 200]
    assert steps[-5:] == [0, 100, 200, 300, 400]
    values = {line for line in log if line.startswith(("100,return", "200,return"))}
    assert len(values) == 2
    assert not (folder / "checkpoint").exists()


def test_only_given_options_differ_from_those_of_such_an_environment(monkeypatch):
    def prepare(agent, env, seeds, hyper, options, env_settings, *, config, preset):
        raise ValueError(f"told {options} {env_settings} {preset}")

    monkeypatch.setattr("feelgood.api.prepare", prepare)
    with pytest.raises(ValueError, match=r"told {} {} None"):
        train.run(train.TrainOptions("CartPole-v1"))
    words = ("form=corrected", "critic=quantile", "double=true")
    asked = train.TrainOptions("CartPole-v1", hidden=(8,), options=words)
    told = r"told {'form': 'corrected', 'critic': 'quantile', 'double': True, 'hidden': \(8,\)} {} None"
    with pytest.raises(ValueError, match=told):
        train.run(asked)
    with pytest.raises(ValueError, match=r"{'sticky': 0.25, 'life_loss': False} paper"):
        train.run(train.TrainOptions("atari:pong", env_settings=("sticky=0.25", "life_loss=false"), preset="paper"))


def test_steps_environments_and_widths_may_be_given_by_either_option():
    own = train.TrainOptions("CartPole-v1", num_steps=400, num_envs=4, hidden=(8,))
    words = {"config": ("num_steps=400", "num_envs=4"), "options": ("hidden=8",)}
    for each in (own, train.TrainOptions("CartPole-v1", **words), dataclasses.replace(own, **words)):
        assert each.settings() == {"num_steps": 400, "num_envs": 4}
        assert each.agent_options() == {"hidden": (8,)}


def test_a_run_leaves_a_policy_that_has_learnt_a_figure_and_a_manifest(stopped_and_continued):
    folder, _ = stopped_and_continued
    policy = feelgood.load_policy(folder)
    assert policy.evaluate(3).tolist() == [3.0] * 3
    assert policy.options.hidden == (8,)
    assert policy.hyper["step_size"] == 0.01
    assert (folder / "curves.png").stat().st_size > 1000
    manifest = store.read_study(folder)
    assert manifest["command"].startswith("feelgood train --env feelgood-tests/Lever-v0 --agent dqn --num-steps 400")
    assert manifest["seeds"] == {"training": "0"}


def test_the_manifest_and_the_policies_hold_the_settings_that_ran(stopped_and_continued):
    folder, _ = stopped_and_continued
    settings = store.read_study(folder)["settings"]
    assert (settings["agent"], settings["env"]) == ("dqn", "feelgood-tests/Lever-v0")
    assert settings["config"]["num_steps"] == 400
    assert settings["config"]["max_evaluation_steps"] == 1000  # it has no time limit
    assert settings["hyper"]["step_size"] == 0.01
    assert settings["options"]["hidden"] == [8]
    assert "| hyper | " in (folder / "README.md").read_text()
    best = json.loads((folder / "best_policy" / "policy.json").read_text())
    assert best["training"]["num_envs"] == 4


def test_several_agents_and_environments_go_into_one_folder(stopped_and_continued, capsys, monkeypatch, tmp_path):
    policy, jobs = feelgood.load_policy(stopped_and_continued[0]), []

    def train_external(job, folder, report, say, tick):
        jobs.append((job.environment.name, job.spec.name, folder))
        value = {"dqn": 3.0, "iqn": 1.0}[job.spec.name]
        where = {"agent": job.spec.name, "environment": job.environment.name, "random_return": 1.5}
        rows = [{**where, "seed": seed, "step": step, "return": value} for seed in job.seeds for step in (0, 40)]
        both = (policy,) * len(job.seeds)
        return Result(pd.DataFrame(rows), both, both)

    monkeypatch.setattr("feelgood.api.train_external", train_external)
    several = ["--envs", "feelgood-tests/Lever-v0", "CartPole-v1", "--agents", "dqn", "iqn", "--num-seeds", "2"]
    main(["train", *several, "--num-steps", "40", "--output", str(tmp_path / "all")])
    said, folder = capsys.readouterr().out, tmp_path / "all"
    names = ["dqn-feelgood-tests-Lever-v0", "iqn-feelgood-tests-Lever-v0", "dqn-CartPole-v1", "iqn-CartPole-v1"]
    assert [place.name for _, _, place in jobs] == names
    for kind in ("policy", "best_policy"):
        found = {str(path.parent.relative_to(folder / kind)) for path in (folder / kind).rglob("policy.json")}
        assert found == {f"{name}/seed-{seed}" for name in names for seed in (0, 1)}
    assert "iqn did not learn in CartPole-v1: its return never changed, and that of random actions is 1.5" in said
    assert "  feelgood check feelgood-tests/Lever-v0\n  feelgood check CartPole-v1\nnext:\n" in said
    assert f"wrote {folder / 'policy' / names[0] / 'seed-0'}\n" in said
    assert f"next:\n  feelgood report {folder} -o report.html\n" in said
    assert [each["env"] for each in store.read_study(folder)["settings"]] == [env for env, _, _ in jobs]
    main(["compare", str(folder)])
    assert "Of 2 tasks, " in capsys.readouterr().out
    main(["report", str(folder), "-o", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "<h1>DQN, IQN on feelgood-tests/Lever-v0, CartPole-v1</h1>" in page
    assert "\n## Settings of iqn in CartPole-v1\n" in (folder / "README.md").read_text()
    assert "40 steps" in page


def test_a_run_that_is_finished_is_not_run_again(stopped_and_continued, capsys):
    folder, _ = stopped_and_continued
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    main([*COMMAND, "--output", str(folder)])
    assert capsys.readouterr().out == (
        f"train in {folder} is finished already; to train again, choose another folder or remove it\n"
    )
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert call(*COMMAND, "--seed", "1", "--output", str(folder)) == 2
    assert "holds another study" in capsys.readouterr().err


def test_an_evaluation_prints_the_mean_its_interval_and_each_return(stopped_and_continued, capsys):
    folder, _ = stopped_and_continued
    main(["evaluate", str(folder), "--num-episodes", "3"])
    assert capsys.readouterr().out == (
        "dqn in feelgood-tests/Lever-v0, trained with seed 0: mean return 3, 95% interval [3, 3], 3 episodes\n"
        "returns 3 3 3\n"
    )
    main(["evaluate", str(folder), "--num-episodes", "1", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["returns"] == [3.0]
    assert (printed["mean"], printed["interval"], printed["agent"], printed["finite"]) == (3.0, None, "dqn", True)
    assert call("evaluate", str(folder), "--num-episodes", "few") == 2
    assert capsys.readouterr().err == "feelgood: --num-episodes must be a whole number, got 'few'\n"
    assert call("evaluate", str(folder), "--num-episodes", "0") == 2
    assert capsys.readouterr().err == "feelgood: num_episodes must be a whole number of at least 1, got 0\n"


def test_every_policy_of_a_run_is_evaluated_and_recorded(stopped_and_continued, capsys, tmp_path):
    for seed in (0, 1):
        shutil.copytree(stopped_and_continued[0] / "policy", tmp_path / "run" / "policy" / f"seed-{seed}")
    main(["evaluate", str(tmp_path / "run"), "--num-episodes", "2"])
    said = capsys.readouterr().out
    assert said.count("returns 3 3\n") == 2
    assert said.endswith("dqn in feelgood-tests/Lever-v0: 3 over 2 policies (3 to 3)\n")
    main(["record", str(tmp_path / "run"), "-o", str(tmp_path / "film.gif")])
    assert {path.name for path in tmp_path.glob("*.gif")} == {"film-seed-0.gif", "film-seed-1.gif"}
    with pytest.raises(SystemExit):
        main(["evaluate", str(tmp_path / "run"), "--best"])
    assert "holds no policy" in capsys.readouterr().err


def test_several_agents_are_restored_and_their_command_can_be_given_again():
    options = train.TrainOptions(env="CartPole-v1", agents=("dqn", "iqn"))
    assert restored(train.TrainOptions, json.loads(json.dumps(dataclasses.asdict(options), default=str))) == options
    assert store.as_command("train", options) == "feelgood run train --env CartPole-v1 --agents dqn iqn"


@pytest.mark.parametrize(("env", "trust"), [("module:Name-v0", True), ("CartPole-v1", False), ("atari:pong", False)])
def test_the_next_commands_import_the_module_of_an_environment(env, trust, tmp_path):
    curve = pd.DataFrame({"environment": [env], "agent": "dqn", "seed": 0, "step": 8, "return": 1.0})
    *_, evaluation, film = train._advice(Result(curve, ()), train.TrainOptions(env=env, output=tmp_path))
    for command in (evaluation, film):
        assert command.endswith(" --allow-import") == trust


def test_the_interval_of_a_mean_return_stays_within_the_returns(stopped_and_continued, capsys, monkeypatch):
    monkeypatch.setattr(Policy, "evaluate", lambda self, num_episodes, seed: np.array([0.0, 1, 1, 1, 1]))
    main(["evaluate", str(stopped_and_continued[0]), "--json"])
    said = json.loads(capsys.readouterr().out)
    low, high = said["interval"]
    assert 0 < low < said["mean"] == pytest.approx(0.8)
    assert high == 1  # a t-interval would reach 1.36


def test_a_diverged_policy_is_reported(stopped_and_continued, capsys, tmp_path):
    policy = feelgood.load_policy(stopped_and_continued[0])
    lost = jax.tree.map(lambda leaf: leaf * jnp.nan if leaf.dtype == jnp.float32 else leaf, policy.state)
    feelgood.save_policy(tmp_path, dataclasses.replace(policy, state=lost))
    main(["evaluate", str(tmp_path), "--num-episodes", "1"])
    assert capsys.readouterr().err == f"the parameters of {tmp_path} are not finite: its training diverged\n"


def test_a_record_writes_a_film(stopped_and_continued, capsys, tmp_path):
    folder, _ = stopped_and_continued
    main(["record", str(folder), "-o", str(tmp_path / "film.gif")])
    assert capsys.readouterr().out == f"wrote {tmp_path / 'film.gif'}: an episode with return 3\n"
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF8")
    assert call("record", str(folder), "-o", str(tmp_path / "film.avi")) == 2
    assert "must end in .gif or .mp4" in capsys.readouterr().err


def test_another_run_does_not_go_into_the_same_folder(stopped_and_continued, capsys):
    folder, _ = stopped_and_continued
    assert call(*COMMAND, "--seed", "1", "--output", str(folder)) == 2
    assert "holds another study (seed 0 there, 1 here); choose another folder or remove it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--env", "CartPol-v1"], "env 'CartPol-v1' cannot be made: Environment `CartPol` doesn't exist"),
        (["--env", "Pendulum-v1"], "env 'Pendulum-v1' must have discrete actions"),
        (["--env", "no_such_package:X-v0"], "No module named 'no_such_package'"),
        (["--env", "CartPole-v1", "--agent", "dnq"], "did you mean 'dqn'?"),
        (["--env", "CartPole-v1", "--hyper", "step=1"], "did you mean 'step_size'?"),
        (["--env", "CartPole-v1", "--hyper", "step_size=-1"], "step_size must be positive and finite, got -1.0"),
        (
            ["--env", "CartPole-v1", "--hyper", "step_size"],
            "hyper must be of the form name=number, got 'step_size'",
        ),
        (
            ["--env", "CartPole-v1", "--hyper", "step_size=fast"],
            "hyper must be of the form name=number, got 'step_size=fast'",
        ),
        (["--env", "CartPole-v1", "--hyper", "friction=1", "friction=2"], "hyper must give each name once"),
        (["--env", "CartPole-v1", "--hyper", "step_size=inf"], "hyper step_size must be a finite real number"),
        (
            ["--env", "CartPole-v1", "--config", "batch_size=1.5"],
            "batch_size must be a whole number of at least 0, got 1.5",
        ),
        (
            ["--env", "CartPole-v1", "--num-envs", "4", "--config", "num_envs=3"],
            "num_envs must have one value, got 4 by --num-envs and 3 by --config",
        ),
        (
            ["--env", "CartPole-v1", "--hidden", "8", "--options", "hidden=8,8"],
            "hidden must have one value, got (8,) by --hidden and (8, 8) by --options",
        ),
        (["--env", "CartPole-v1", "--options", "hidn=8"], "did you mean 'hidden'?"),
        (["--env", "CartPole-v1", "--config", "steps=3"], "setting must be one of"),
        (["--env", "atari:pong", "--env-settings", "stiky=0.25"], "did you mean 'sticky'?"),
        (["--env", "CartPole-v1", "--env-settings", "sticky"], "env_settings must be of the form name=value"),
        (["--env", "CartPole-v1", "--num-seeds", "0"], "num_seeds must be a whole number of at least 1, got 0"),
        (["--env", "CartPole-v1", "--seed", "-1"], "seed must be a whole number of at least 0, got -1"),
        (["--agent", "dqn"], "one of --env and --envs must be given"),
        (["--env", "CartPole-v1", "--envs", "Acrobot-v1"], "one of --env and --envs must be given"),
        (["--env", "CartPole-v1", "--agent", "dqn", "--agents", "iqn"], "one of --agent and --agents must be given"),
        (["--env", "CartPole-v1", "--agents", "dqn", "dqn"], "agents must be different, got dqn dqn"),
        (["--env", "CartPole-v1", "--num-steps", "1" + 20 * "0"], "num_steps must be at most 1000000000000"),
        (
            ["--env", "CartPole-v1", "--config", "capacity=3000000000"],
            "capacity must be at most 2147483647, got 3000000000",
        ),
        (["--env", "CartPole-v1", "--hidden", "1000001"], "hidden must be at most 1000000, got 1000001"),
    ],
)
def test_a_mistake_gives_one_sentence_code_two_and_writes_nothing(capsys, tmp_path, options, message):
    assert call("train", *options, "--output", str(tmp_path / "new")) == 2
    captured = capsys.readouterr()
    words = " ".join((captured.out + captured.err).replace("│", " ").split())
    assert message in words
    assert "Traceback" not in words
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("flags", "extra"), [(["--tensorboard"], "tensorboard"), (["--wandb-project", "x"], "wandb")])
def test_a_sink_that_is_not_installed_is_named_before_the_run(capsys, monkeypatch, tmp_path, flags, extra):
    monkeypatch.setattr(train.importlib.util, "find_spec", lambda name: None)
    assert call("train", "--env", "CartPole-v1", *flags, "--output", str(tmp_path / "new")) == 2
    captured = capsys.readouterr()
    words = " ".join((captured.out + captured.err).replace("│", " ").split())
    assert f"{extra} needs a package that is not installed: pip install 'feelgood[{extra}]'" in words
    assert call("train", "--env", "CartPole-v1", "--output", str(tmp_path / "new")) == 2
    assert "env needs a package that is not installed: pip install gymnasium" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["evaluate", "record"])
def test_a_folder_without_a_policy_is_named(capsys, tmp_path, command):
    assert call(command, str(tmp_path / "none")) == 2
    assert capsys.readouterr().err == f"feelgood: folder {tmp_path / 'none'} holds no policy: there is no such folder\n"
