"""The sweep: every point is tried, the winner is chosen on some seeds and measured on others, and both are reported."""

import contextlib
import json
from dataclasses import replace

import gymnasium
import numpy as np
import pandas as pd
import pytest

import feelgood
from feelgood import api
from feelgood.studies import cells, sweep
from feelgood.studies.cells import Cell
from feelgood.studies.engine import carry_out, local
from feelgood.studies.nchain.study import GRIDS
from feelgood.studies.options import FIRST_TUNING_SEED
from feelgood.studies.sweep import SweepStudy, run_task


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agent": "dnq"}, r"agent must be one of .* did you mean 'dqn'\?"),
        ({"grid": ("step_size",)}, "grid must be of the form name=number,number, got 'step_size'"),
        ({"grid": ("step_size=1,,2",)}, "grid must be of the form name=number,number, got 'step_size=1,,2'"),
        ({"grid": ("step_size=small",)}, "got 'step_size=small'"),
        ({"grid": ("step_size=1", "step_size=2")}, "grid must give each name once, got 'step_size=2'"),
        ({"grid": ("step_size=1,1.0",)}, "grid must not repeat a number, got step_size=1,1"),
        ({"tuning_seeds": ()}, r"tuning_seeds must name at least one round, got \(\)"),
        ({"tuning_seeds": (0,)}, "tuning_seeds must be a whole number of at least 1, got 0"),
        ({"num_steps": 1500}, "num_steps must be a multiple of 1000, got 1500"),
        ({"num_seeds": FIRST_TUNING_SEED + 1}, "num_seeds must be at most 1000000"),
        ({"num_kept": 0}, "num_kept must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        SweepStudy(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"environment": "two_arms"}, "environment must be one of 'nchain-N', .* did you mean 'two_armed'"),
        ({"environment": "nchain-N"}, "environment must have a number for N, as in 'nchain-25'"),
        ({"environment": "nchain-3"}, "num_states must be a whole number of at least 4, got 3"),
        ({"grid": ("step_sise=1",)}, "grid of ulmcdqn must be one of .* got 'step_sise'; did you mean 'step_size'"),
        ({"grid": ("step_size=0.1,-0.1",)}, "step_size must be positive.*, got -0.1"),
        ({"environment": "CartPole-v1", "grid": ("friction=-1",)}, "friction must be positive.*, got -1"),
        ({"environment": "CartPole-v1", "grid": ("frict=1",)}, "grid of ulmcdqn must be .* did you mean 'friction'"),
        ({"environment": "CartPol-v1"}, "env 'CartPol-v1' cannot be made: .*CartPol"),
        ({"environment": "atari:ventur"}, "game must be one of .* did you mean 'venture'"),
        ({"environment": "Pendulum-v1"}, "env 'Pendulum-v1' must have discrete actions"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(tmp_path, settings, message):
    study = SweepStudy(**{"agent": "ulmcdqn", **settings}, output=tmp_path / "new")
    with pytest.raises(ValueError, match=message) as caught:
        sweep.run(study)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "new").exists()


@pytest.fixture
def swept(fake_runs, tmp_path):
    # On tuning seeds step size 2 with friction 3 looks best, by 10; on fresh seeds it scores 5 + seed.
    def score(cell, point, seed):
        if seed < FIRST_TUNING_SEED:
            return 5.0 + seed
        return 4.0 * point["step_size"] + point["friction"] - (seed - FIRST_TUNING_SEED)

    ran = fake_runs(score)
    grid = ("step_size=1,2", "friction=1,2,3")
    study = SweepStudy(
        agent="ulmcdqn", grid=grid, tuning_seeds=(1, 2), num_kept=2, num_seeds=3, num_steps=1000, output=tmp_path
    )
    shown = []
    return ran, sweep.run(study, shown.append), shown


def test_every_point_is_tried_and_the_best_go_on_to_fresh_seeds(swept, tmp_path):
    ran, paths, _ = swept
    assert [cell.stage for cell in ran] == ["tune-0", "tune-1", "report"]
    assert [len(cell.points) for cell in ran] == [6, 2, 1]
    tuning, more, fresh = (set(cell.seeds) for cell in ran)
    assert fresh == {0, 1, 2}
    assert not fresh & (tuning | more)
    assert not tuning & more
    assert ran[-1].points == [{"step_size": 2.0, "friction": 3.0}]
    table = pd.read_csv(tmp_path / "sweep.csv")
    assert table[["step_size", "friction"]].drop_duplicates().shape == (6, 2)
    assert table.loc[table["won"], ["step_size", "friction", "count"]].to_numpy().tolist() == [[2.0, 3.0, 3]]
    # A heat map is one pivot away: 4·step_size + friction, less 0, 1, 2 for the three seeds of those that went on.
    heat = table.pivot(index="step_size", columns="friction", values="score")
    assert heat.to_numpy().tolist() == [[5.0, 6.0, 7.0], [9.0, 9.0, 10.0]]
    assert {path.name for path in paths} == {"sweep.csv", "curves.parquet", "summary.md", "sweep.png", "sweep.pdf"}
    curves = feelgood.load_results(tmp_path)
    assert (curves["friction"] == 3.0).all()
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["study"] == "sweep"
    assert manifest["finished"] is True


def test_both_scores_of_the_winner_are_printed_with_the_one_to_report(swept):
    (text,) = swept[2]
    assert "Of 6 points for ulmcdqn on nchain-25, step_size = 2, friction = 3 won." in text
    assert "on the 3 tuning seeds that chose it is 10.00; as the best of 6 it is too high on average" in text
    # Seeds 0, 1, 2 score 5, 6, 7. One resample in 27 has 5 alone, more than 2.5%, so the interval is the range.
    assert "On 3 fresh seeds it is 6.00 (95% bootstrap interval [5.00, 7.00]): report this one." in text
    assert "| 1 | 3 | 1 | 7.00 | – |" in text  # one seed has no standard error
    assert text.index("| 2 | 3 | 3 | 10.00 |") < text.index("| 2 | 2 | 3 | 9.00 |") < text.index("| 1 | 3 | 1 | 7.00 |")


def test_runs_of_the_winner_that_diverged_are_left_out_and_named(swept, tmp_path):
    points, curves = pd.read_csv(tmp_path / "sweep.csv"), pd.read_parquet(tmp_path / "curves.parquet")
    study = SweepStudy(agent="ulmcdqn", num_seeds=3)
    alone = sweep.as_markdown(replace(study, num_seeds=1), points, curves[curves["seed"] == 0])
    assert "On 1 fresh seed it is 5.00: report this one." in alone
    text = sweep.as_markdown(study, points, curves.assign(finite=curves["seed"] < 2))
    assert "it is 5.50 (95% bootstrap interval [5.00, 6.00]): report this one. Runs that diverged" in text
    assert "are left out: 1 of 3 of ulmcdqn." in text


def test_a_sweep_in_which_all_points_diverge_has_no_winner_and_no_heat_map(fake_runs, monkeypatch, tmp_path):
    fake_runs(lambda cell, point, seed: 0.0)
    whole = cells._run
    monkeypatch.setattr(cells, "_run", lambda *job: whole(*job).assign(finite=False))
    study = SweepStudy(
        agent="dqn", grid=("step_size=1e30,1e31",), tuning_seeds=(1,), num_seeds=2, num_steps=1000, output=tmp_path
    )
    shown = []
    paths = sweep.run(study, shown.append)
    assert {path.name for path in paths} == {"sweep.csv", "curves.parquet", "summary.md"}
    assert "No point won: none of the 2 for dqn on nchain-25 that passed all rounds has a score" in shown[0]
    assert "nan" not in shown[0]
    assert not pd.read_csv(tmp_path / "sweep.csv")["won"].any()
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is True


def test_without_a_grid_that_of_the_agent_is_taken(fake_runs, monkeypatch, tmp_path):
    ran = fake_runs(lambda cell, point, seed: point["step_size"])
    monkeypatch.setitem(GRIDS, "dqn", {"step_size": (0.1, 0.2, 0.3)})
    sweep.run(SweepStudy(agent="dqn", tuning_seeds=(1,), num_seeds=2, output=tmp_path), lambda _: None)
    assert [point["step_size"] for point in ran[0].points] == [0.1, 0.2, 0.3]


class Coin(gymnasium.Env):
    """One toss an episode; the second side pays 1."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.ones(1, np.float32), {}

    def step(self, action):
        return np.ones(1, np.float32), float(action == 1), True, False, {}


gymnasium.register("feelgood-tests/Coin-v0", Coin)


def test_a_gymnasium_environment_is_swept_like_the_others(monkeypatch, tmp_path):
    # Nothing is trained. The return is 10 · step_size + seed, and 4 more with a small final_epsilon.
    jobs = []

    def train_external(job, folder, *rest):
        (seed,), hyper = job.seeds, job.spec.hyper
        folder.mkdir(parents=True)  # for checkpoints
        jobs.append(job)
        score = 10 * hyper["step_size"] + seed % FIRST_TUNING_SEED + 4 * (hyper["final_epsilon"] < 0.1)
        about = {"agent": "dqn", "environment": "feelgood-tests/Coin-v0", "seed": seed, "finite": True}
        return api.Result(pd.DataFrame([{**about, "step": step, "return": score} for step in (0, 1000)]), ())

    monkeypatch.setattr(api, "train_external", train_external)
    study = SweepStudy(
        agent="dqn",
        environment="feelgood-tests/Coin-v0",
        grid=("step_size=0.1,0.2", "final_epsilon=0.05,0.5"),
        tuning_seeds=(2,),
        num_seeds=2,
        num_steps=1000,
        output=tmp_path,
    )
    shown = []
    paths = sweep.run(study, shown.append)
    assert len(jobs) == 4 * 2 + 2
    hyper = {"step_size": 0.2, "final_epsilon": 0.05}
    by_train = api.prepare("dqn", "feelgood-tests/Coin-v0", [0], hyper, config={"num_steps": 1000})
    assert jobs[-2].settings == by_train.settings
    table = pd.read_csv(tmp_path / "sweep.csv")
    heat = table.pivot(index="step_size", columns="final_epsilon", values="score")
    np.testing.assert_allclose(heat, [[5.5, 1.5], [6.5, 2.5]])
    assert {"sweep.png", "sweep.pdf"} < {path.name for path in paths}
    assert "step_size = 0.2, final_epsilon = 0.05 won." in shown[0]
    curves = feelgood.load_results(tmp_path)
    assert curves.groupby("seed")["return"].last().to_dict() == {0: 6.0, 1: 7.0}
    assert not list((tmp_path / "cells").glob("*.checkpoint"))
    # The runs are there: nothing is trained again.
    sweep.run(study, shown.append)
    assert len(jobs) == 10


@pytest.mark.slow
def test_a_run_of_a_sweep_is_that_of_train(tmp_path):
    name, settings = "feelgood-tests/Coin-v0", {"num_steps": 1000, "progress": False}
    cell = Cell(name, "dqn", "report", [{"step_size": 0.02}], [3], 1000)

    def plan():
        (table,) = yield [run_task(cell)]
        return table

    class Quiet:
        task = staticmethod(lambda name, total: contextlib.nullcontext(lambda moment: None))

    (ours,) = carry_out([plan()], tmp_path, local(tmp_path, Quiet))
    theirs = feelgood.train("dqn", name, seed=3, hyper={"step_size": 0.02}, **settings).curve
    pd.testing.assert_frame_equal(ours.drop(columns="seconds"), theirs.drop(columns="seconds"))
    assert ours["return"].iloc[-1] == 1.0


@pytest.mark.slow
def test_a_real_sweep_of_a_bandit(tmp_path):
    study = SweepStudy(
        agent="dqn",
        environment="two_armed",
        grid=("step_size=1e-2,1e-9",),
        tuning_seeds=(4,),
        num_steps=1000,
        num_seeds=4,
        output=tmp_path,
    )
    sweep.run(study, lambda _: None)
    curves = feelgood.load_results(tmp_path)
    assert (curves["step_size"] == 1e-2).all()
    assert (curves.loc[curves["step"] == 1000, "return"] == 1.0).all()
    assert (curves["environment"] == "two_armed").all()
