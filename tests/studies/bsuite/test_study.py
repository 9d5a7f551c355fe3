"""The bsuite study: exact totals over a number of episodes, batches by experiment, and its files."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from feelgood.agents import ZOO
from feelgood.studies.bsuite import study as module
from feelgood.studies.bsuite.experiments import EXPERIMENTS, environments
from feelgood.studies.bsuite.study import BsuiteStudy, batches
from feelgood.studies.tallies import episodes, have_ended


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": ("dqm",)}, r"agents must be one of .*; did you mean 'dqn'\?"),
        ({"ids": ("catch/20",)}, "ids of catch must be catch/0 to catch/19, got 'catch/20'"),
        ({"num_episodes": 0}, "num_episodes must be a whole number of at least 1, got 0"),
        ({"num_episodes": 10_001}, "num_episodes must be at most 10000, got 10001"),
        ({"num_seeds": 0}, "num_seeds must be a whole number of at least 1, got 0"),
        ({"seeds": ("10000",)}, "seeds must be below 10000, got 10000"),
        ({"hyper": ("step_size",)}, "hyper must be of the form name=number, got 'step_size'"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        BsuiteStudy(**settings)
    assert "\n" not in str(caught.value)


def test_the_default_has_all_ids_with_bsuites_budgets_and_seas_of_one_size_in_a_batch():
    found = batches(BsuiteStudy(preset="default"))
    assert {batch.experiment for batch in found} == set(EXPERIMENTS)
    assert sum(len(batch.numbers) for batch in found) == 2 * 21 + 5 * 20
    assert all(len(batch.numbers) == (1 if "deep_sea" in batch.experiment else 20) for batch in found)
    assert {batch.experiment: batch.num_episodes for batch in found} == {
        name: 1000 if name in ("mountain_car", "cartpole", "cartpole_swingup") else 10_000 for name in EXPERIMENTS
    }


def test_totals_are_over_exactly_the_first_episodes_however_a_run_is_cut():
    rng = np.random.default_rng(0)
    ended, rewards = rng.random(400) < 0.1, rng.integers(-3, 4, 400).astype(np.float32)
    returns, running = [], 0.0
    for end, reward in zip(ended, rewards, strict=True):
        running += reward
        returns.append(running)
        running = 0.0 if end else running
    whole = np.array(returns)[ended]
    assert len(whole) > 25
    for num_pieces in (1, 8):
        tally = episodes(20)
        totals = tally.init
        for piece in np.array_split(np.arange(400), num_pieces):
            totals = tally.add(totals, jnp.asarray(ended[piece]), jnp.asarray(returns, jnp.float32)[piece], None)
        assert int(totals.episodes) == len(whole)
        assert float(totals.total) == whole[:20].sum()
        assert float(totals.best) == max(whole[:20].max(), 0)
        assert have_ended(20, totals)
        assert not have_ended(len(whole) + 1, totals)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_longest_episode_of_an_experiment_is_that_of_its_environment(name):
    environment_of, settings = environments(name, [2])
    spec = environment_of(jax.tree.map(lambda x: x[0], settings)).spec
    assert module.Batch(name, (2,), (0,), 10).max_steps == spec.max_episode_steps


def test_ids_of_one_batch_have_their_own_settings():
    environment_of, settings = environments("bandit", [0, 7])
    pay = lambda own: environment_of(own).step(jax.random.key(0), jnp.int32(0), 3)[1].reward
    ours = jax.vmap(pay)(settings)
    assert ours.tolist() == pytest.approx([environments("bandit", [i])[1][0, 3] for i in (0, 7)])
    assert ours[0] != ours[1]


def test_settings_are_those_of_every_agent():
    study = BsuiteStudy(hyper=("step_size=1e-3",), options=("double=true",), config=("batch_size=7",))
    agent = study.chosen("dqn")
    assert agent.spec().hyper == {**ZOO["dqn"].hyper, "step_size": 1e-3}
    assert agent.spec().options.double
    config = agent.training(995, 10, is_one_hot=False)
    assert (config.batch_size, config.num_steps, config.evaluation_period) == (7, 1000, 10)
    changed = [BsuiteStudy(hyper=study.hyper), BsuiteStudy(options=study.options), BsuiteStudy(config=study.config)]
    first = batches(study)[0]
    files = {next(module.plan(each.chosen("dqn"), first))[0].file for each in (study, BsuiteStudy(), *changed)}
    assert len(files) == 5


def test_chunks_hold_whole_blocks_of_updates():
    study = BsuiteStudy(options=("hidden=7,5",), config=("train_frequency=20", "replay_ratio=2"))
    config = study.chosen("dqn").training(995, 30, is_one_hot=False)
    assert (config.train_frequency, config.num_steps, config.evaluation_period) == (20, 1000, 40)
    assert study.chosen("dqn").spec().options.hidden == (7, 5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hyper": ("stepsize=1e-3",)}, r"hyper-parameter of dqn must be one of .*, got 'stepsize'; did you mean"),
        ({"hyper": ("step_size=0",)}, "step_size must be positive"),
        ({"options": ("networks=mlp",)}, r"option must be one of .*, got 'networks'; did you mean 'network'\?"),
        ({"config": ("batch=3",)}, r"setting must be one of .*, got 'batch'"),
        ({"config": ("num_steps=30",)}, "config must not have 'num_steps', which the study sets"),
    ],
)
def test_settings_that_no_agent_has_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        BsuiteStudy(**settings)


def test_a_study_writes_a_row_per_run_and_continues(tmp_path):
    ids = ("bandit/0", "bandit/3", "deep_sea/0")
    study = BsuiteStudy(ids=ids, agents=("dqn",), num_episodes=30, seeds=("4", "5"), output=tmp_path)
    shown = []
    paths = module.run(study, report=shown.append)
    assert {path.name for path in paths} == set(module.FILES)
    runs = pd.read_csv(tmp_path / "runs.csv")
    assert sorted(zip(runs["bsuite_id"], runs["seed"], strict=True)) == [(i, s) for i in sorted(ids) for s in (4, 5)]
    assert (runs["episodes"] == 30).all()
    arms = runs[runs["experiment"] == "bandit"]["total_return"]
    assert arms.between(0, 30).all()
    assert arms.nunique() == 4  # ids and seeds have keys of their own
    assert "| bandit | basic | " in shown[0]
    assert "Environment steps per second" in shown[0]
    assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is True
    # The tables are there already, so a second call only reads them.
    before = (tmp_path / "runs.csv").read_bytes()
    module.run(study, report=lambda _: None)
    assert (tmp_path / "runs.csv").read_bytes() == before
