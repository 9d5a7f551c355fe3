"""The Atari study: its config, refusal of bad input, its handling of runs, and a tiny real one that is stopped."""

import contextlib
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("ale_py")

import feelgood.training.external
from feelgood.agents import ZOO, atari_hyper
from feelgood.cli.run import restored
from feelgood.report import kinds as charts
from feelgood.runs import store
from feelgood.studies.atari import runs as atari_runs
from feelgood.studies.atari import study as atari
from feelgood.studies.atari.paper import AGENTS, GAMES, PAPER_SCORES
from feelgood.studies.atari.study import PRESETS, AtariStudy
from feelgood.training import Interrupted
from feelgood.training.config import ExternalConfig
from feelgood.training.external import Point


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"games": ("alein",)}, r"games must be one of .*, got 'alein'; did you mean 'alien'\?"),
        ({"games": ("alien", "alien")}, r"games must not repeat, got \('alien', 'alien'\)"),
        ({"agents": ("fg_ulmcdq",)}, r"agents must be one of .*, got 'fg_ulmcdq'; did you mean 'fg_ulmcdqn'\?"),
        ({"agents": ("dqn", "dqn")}, "agents must not repeat"),
        ({"hyper": ("friction",)}, "hyper must be of the form name=number, got 'friction'"),
        ({"hyper": ("friction=high",)}, "hyper must be of the form name=number, got 'friction=high'"),
        ({"hyper": ("friction=1,2",)}, "hyper must be of the form name=number, got 'friction=1,2'"),
        ({"hyper": ("friction=1", "friction=2")}, "hyper must give each name once, got 'friction=2'"),
        ({"hyper": ("=1",)}, "hyper must give each name once, got '=1'"),
        ({"vary": ("friction=1,",)}, "vary must be of the form name=number,number, got 'friction=1,'"),
        ({"vary": ("friction=1,0.1,1e0",)}, "vary must not repeat a number, got friction=1,0.1,1"),
        (
            {"vary": ("friction=1,2",), "hyper": ("friction=3",)},
            "vary and hyper must name different",
        ),
        ({"num_frames": -4}, "num_frames must be a whole number of at least 1, got -4"),
        (
            {"num_frames": 10_001},
            "num_frames must be a multiple of 10000, the frames between two evaluations, got 10001",
        ),
        ({"config": ("learning_starts=5000",)}, "learning_starts must be below 5000, all steps of a run, got 5000"),
        ({"config": ("n_stpe=1",)}, r"config must be one of .*, got 'n_stpe'; did you mean 'n_step'\?"),
        ({"config": ("num_steps=9",)}, "config must be one of .*, got 'num_steps'"),
        ({"config": ("n_step",)}, "config must be of the form name=value, got 'n_step'"),
        ({"config": ("n_step=1.5",)}, "n_step must be a whole number of at least 0, got 1.5"),
        ({"options": ("prioritized=2",)}, "prioritized must be true or false, got 2"),
        ({"options": ("form=correct",)}, r"form must be one of .*, got 'correct'; did you mean 'corrected'\?"),
        ({"options": ("hidden=wide",)}, "hidden must be widths of layers, got 'wide'"),
        ({"options": ("matched=true",)}, r"options must be one of .*, got 'matched'; did you mean 'matched_noise'\?"),
        ({"options": ("num_members=0",)}, "num_members must be a whole number of at least 1, got 0"),
        ({"env_settings": ("clip=1",)}, r"env_settings must be one of .*, got 'clip'; did you mean 'clip_rewards'\?"),
        ({"env_settings": ("game=pong",)}, "env_settings must be one of .*, got 'game'"),
        ({"seeds": ("3", "x")}, "seeds must be whole numbers below 2.32 or ranges such as 0-19, got 'x'"),
        ({"seeds": ("3", "1-4")}, "seeds must be different, at least one, got '3 1-4'"),
        ({"seeds": ("1000000",)}, "seeds must be below 1000000, got 1000000"),
        ({"num_seeds": -1}, "num_seeds must be a whole number of at least 1, got -1"),
        ({"config": ("capacity=-1",)}, "capacity must be a whole number of at least 0, got -1"),
        ({"env_settings": ("pixel_scale=-1",)}, "pixel_scale must be positive and finite, got -1.0"),
        ({"env_settings": ("sticky=1",)}, r"sticky must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(unchecked_types, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        AtariStudy(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hyper": ("fric=1",)}, r"hyper of fg_ulmcdqn must be one of .*, got 'fric'; did you mean 'friction'\?"),
        ({"vary": ("friction=1,2",)}, "vary of dqn must be one of 'step_size', .*, got 'friction'"),
        ({"hyper": ("step_size=-1",)}, "step_size must be .*, got -1.0"),
        (
            {"config": ("num_envs=10", "num_chains=3")},
            r"num_envs must be a multiple of num_groups \* num_chains = 1 \* 3, got 10",
        ),
        ({"config": ("discount=-0.5",)}, r"discount must be in \[0, 1\], got -0.5"),
        ({"config": ("batch_size=0",)}, "batch_size must be a whole number of at least 1, got 0"),
        ({"config": ("capacity=100",)}, "capacity must be at least 8 steps of 20 environments = 160, got 100"),
        ({"reference": (Path("nowhere.csv"),)}, "reference nowhere.csv cannot be read"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        atari.run(AtariStudy(output=tmp_path / "new", **settings))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_papers_protocol_is_written_out_in_full():
    study = AtariStudy("paper")
    assert study.games == GAMES
    assert study.agents == AGENTS == tuple(PAPER_SCORES)
    assert ExternalConfig(**study.training) == ExternalConfig(
        num_steps=12_500_000,
        num_envs=300,
        num_groups=3,
        num_draws=50,
        draw_steps=50,
        learning_starts=20_000,
        replay_ratio=0.1,
        batch_size=32,
        capacity=1_000_000,
        n_step=3,
        discount=0.99,
        recent_share=0.0,
        target_update_period=500,
        evaluation_period=100_000,
        num_evaluation_episodes=5,
        max_evaluation_steps=27_000,
        num_stagger_turns=500,
        num_chains=1,
        priority_exponent=0.6,
        importance_exponent=0.4,
    )
    assert ExternalConfig(**study.training) == ExternalConfig()  # its defaults are this protocol
    # Nothing is left to defaults elsewhere.
    assert study.training.keys() == {field.name for field in dataclasses.fields(ExternalConfig)}
    emulator = study.mapping("env_settings")
    assert emulator == {"sticky": 0.0, "life_loss": True, "pixel_scale": 1.0}
    dopamine, prioritized = map(AtariStudy, ("dopamine", "prioritized"))
    assert dopamine.mapping("env_settings") == {"sticky": 0.25, "life_loss": False, "pixel_scale": 1 / 255}
    assert prioritized.mapping("env_settings") == {**emulator, "pixel_scale": 1 / 255}
    assert dopamine.config == prioritized.config == study.config
    options = {"form": "released", "init": "torch", "critic": "mean", "double": True, "prioritized": False}
    assert study.mapping("options") == options
    recommended = {**options, "form": "bounded", "init": "unbiased", "prioritized": True}
    assert prioritized.mapping("options") == dopamine.mapping("options") == recommended
    assert len(atari.runs_of(study)) == 8 * 9 * 5


def test_given_options_replace_the_preset_s():
    emulator, config = ("pixel_scale=0.5", "sticky=0"), ("num_envs=60", "discount=1", "priority_exponent=0")
    study = AtariStudy("dopamine", games=("pong",), env_settings=emulator, config=config, seeds=("7", "3"))
    assert (study.games, study.seed_list, study.num_seeds) == (("pong",), [7, 3], 2)
    assert study.mapping("env_settings") == {"sticky": 0.0, "life_loss": False, "pixel_scale": 0.5}
    given = {"num_envs": 60, "discount": 1.0, "priority_exponent": 0.0}
    assert study.mapping("config") == {**PRESETS["dopamine"]["config"], **given}
    assert isinstance(study.mapping("config")["discount"], float)
    assert (study.agents, study.num_frames) == (PRESETS["dopamine"]["agents"], PRESETS["dopamine"]["num_frames"])
    assert study.mapping("options") == PRESETS["dopamine"]["options"]


def test_every_option_and_emulator_setting_may_be_given_and_comes_back_from_its_words():
    words = ("matched_noise=true", "reduction=sum", "hidden=64", "num_members=5", "v_max=5")
    study = AtariStudy(options=words, env_settings=("clip_rewards=false", "full_action_space=true"))
    options = {"matched_noise": True, "reduction": "sum", "hidden": (64,), "num_members": 5, "v_max": 5.0}
    assert study.mapping("options") == {**PRESETS["quick"]["options"], **options}
    assert study.mapping("env_settings") == {
        **PRESETS["quick"]["env_settings"],
        "clip_rewards": False,
        "full_action_space": True,
    }
    assert AtariStudy(options=study.options, env_settings=study.env_settings, config=study.config) == study
    made = atari_runs.settings(atari.runs_of(study)[0]).options
    assert {name: getattr(made, name) for name in options} == options
    assert AtariStudy(options=("hidden=64,32",)).mapping("options")["hidden"] == (64, 32)


@pytest.mark.parametrize("preset", ["quick", "paper", "prioritized", "dopamine", "feel_good_weights", "frictions"])
def test_options_come_back_from_a_manifest_as_they_were(tmp_path, preset):
    paths = Path("a.csv"), Path("b.csv")
    study = AtariStudy(preset, hyper=("step_size=0.5",), reference=paths, checkpoints=False, config=("num_envs=40",))
    with store.recorded(tmp_path, "atari", study):
        pass
    spec = store.read_study(tmp_path)["spec"]
    assert restored(AtariStudy, spec) == study
    # Every setting is in the manifest.
    assert len(spec["config"]) == len(dataclasses.fields(ExternalConfig)) - 1
    assert all(spec[name] for name in ("games", "agents", "num_frames", "num_seeds", "options", "env_settings"))


def test_a_study_that_was_begun_with_other_defaults_does_not_go_on(tmp_path):
    study = AtariStudy(output=tmp_path / "runs", agents=("fg_ulmcdqn",))
    (run,) = atari.runs_of(study)
    with store.recorded(study.output, "atari", study):
        pass
    (study.output / "cells").mkdir()
    (study.output / "cells" / atari_runs.run_task(run).file).touch()
    atari._check(study, [run])
    before = atari_runs.run_task(dataclasses.replace(run, point={"friction": 2.0})).file
    (study.output / "cells" / before).with_suffix(".so-far.csv").touch()
    with pytest.raises(
        ValueError, match=f"holds {before[:-8]}.so-far.csv, a run of this study with defaults of another"
    ):
        atari._check(study, [run])


def test_sensitivity_presets_are_those_of_the_paper():
    weighted, slowed = AtariStudy("feel_good_weights"), AtariStudy("frictions")
    assert weighted.env_settings == slowed.env_settings == AtariStudy("prioritized").env_settings
    assert weighted.games == slowed.games == ("alien",)
    assert (weighted.agents, slowed.agents) == (("fg_ulmcdqn",), ("ulmcdqn",))
    weights = [dict(run.point) for run in atari.runs_of(weighted) if run.seed == 0]
    assert weights == [{"feel_good_weight": weight} for weight in (1.0, 1e-2, 1e-3, 1e-4, 1e-5)]
    frictions = [run.point["friction"] for run in atari.runs_of(slowed) if run.seed == 4]
    assert {1.0, 10.0} < set(frictions)
    assert len(atari.runs_of(slowed)) == 5 * len(frictions)


def test_runs_have_atari_hyper_parameters_double_targets_and_the_requested_options():
    study = AtariStudy(agents=("fg_ulmcdqn", "ulmcdqn"), hyper=("friction=7",), vary=("bias_factor=1,2",), num_seeds=2)
    runs = atari.runs_of(study)
    assert [(run.seed, run.label) for run in runs] == [
        (seed, f"{agent} bias_factor={value}") for seed in (0, 1) for agent in study.agents for value in (1, 2)
    ]
    hyper, config, options = atari_runs.settings(runs[1])
    defaults = atari_hyper("fg_ulmcdqn", 1.0)
    assert hyper == {**defaults, "friction": 7.0, "bias_factor": 2.0}
    assert defaults["inverse_temperature"] == 1e16  # Atari's, not the N-chain's
    settings = {}
    for form in ("released", "paper", "corrected", "bounded"):
        (run, *_) = atari.runs_of(AtariStudy("prioritized", agents=("fg_ulmcdqn",), options=(f"form={form}",)))
        settings[form] = atari_runs.settings(run)
        assert settings[form].options.form == form
        assert settings[form].hyper == atari_hyper("fg_ulmcdqn", 1 / 255, form) != defaults
    released, bounded = settings["released"], settings["bounded"]
    assert bounded.hyper == {**released.hyper, "bias_epsilon": 1e-8}
    assert settings["corrected"].hyper == {**bounded.hyper, "bias_factor": 0.03}
    assert (options.init, bounded.options.init) == ("torch", "unbiased")
    assert (bounded.config.num_envs, bounded.config.num_groups) == (300, 3)
    (run, *_) = atari.runs_of(AtariStudy("prioritized", agents=("fg_ulmcdqn",)))
    assert atari_runs.settings(run) == bounded
    assert options.double
    assert config.n_step == 3
    assert not options.prioritized
    (run, *_) = atari.runs_of(
        AtariStudy("prioritized", options=("init=torch", "prioritized=false"), config=("num_envs=200",))
    )
    as_asked = atari_runs.settings(run)
    assert (as_asked.options.init, as_asked.options.prioritized, as_asked.config.num_groups) == ("torch", False, 2)


def test_a_file_is_named_after_all_that_its_run_depends_on():
    (run, *_) = atari.runs_of(AtariStudy())
    name = atari_runs.run_task(run).file
    assert name.startswith("freeway-fg_ulmcdqn-seed-0-")
    others = [
        dataclasses.replace(run, seed=1),
        dataclasses.replace(run, game="pong"),
        dataclasses.replace(run, agent="ulmcdqn"),
        dataclasses.replace(run, point={"friction": 2.0}),
        *(dataclasses.replace(run, options={**run.options, "form": form}) for form in ("paper", "corrected")),
        dataclasses.replace(run, options={**run.options, "init": "unbiased"}),
        dataclasses.replace(run, options={**run.options, "prioritized": True}),
        dataclasses.replace(run, config={**run.config, "capacity": 6000}),
        dataclasses.replace(run, env_settings={**run.env_settings, "sticky": 0.25}),
        dataclasses.replace(run, env_settings={**run.env_settings, "pixel_scale": 0.5}),
    ]
    digests = [atari_runs.run_task(each).file.rpartition("-")[2] for each in [run, *others]]
    assert len(set(digests)) == len(digests)
    # Where it is kept changes nothing, nor does a default that is spelt out.
    spelt = dataclasses.replace(run, point={"friction": ZOO["fg_ulmcdqn"].atari["friction"]})
    assert atari_runs.run_task(spelt).file == atari_runs.run_task(run, checkpoints=False).file == name


@pytest.fixture
def fake_runs(monkeypatch):
    """Makes the return of every run after training `score(run)` and 100 before; returns the runs and their folders."""

    def install(score):
        ran = []

        def fake(run, checkpoints, progress, checkpoint):
            folder = checkpoint.with_suffix("")
            folder.mkdir(parents=True)
            (folder / "state.npz").write_text("a checkpoint")
            ran.append((run, folder))
            points = [
                Point(
                    step=step,
                    return_=float(score(run)) if step else 100.0,
                    return_spread=1.0,
                    episode_length=9.0,
                    training_return=2.0,
                    num_episodes=3,
                    action_changes=0.25,
                    potential=0.5,
                    seconds=step / 10,
                    is_finite=True,
                )
                for step in (0, 2500, 5000)
            ]
            return atari_runs.tabulate(run, atari_runs.settings(run).hyper, points, resumed=False)

        monkeypatch.setattr(atari_runs, "_run", fake)
        return ran

    return install


def test_a_study_leaves_tables_figures_and_the_emulators_version_and_no_checkpoints(tmp_path, fake_runs):
    values = {"freeway": 10, "venture": 1000}
    ran = fake_runs(lambda run: values[run.game] * (1 + run.seed) + (run.agent == "dqn"))
    (tmp_path / "published.csv").write_text("agent,game,seed,frame,return\ndqn,venture,0,20000,77\n")
    study = AtariStudy(
        games=("venture", "freeway"), num_seeds=2, reference=(tmp_path / "published.csv",), output=tmp_path / "out"
    )
    shown = []
    paths = atari.run(study, report=shown.append)
    # The first seed of everything comes first.
    assert [run.seed for run, _ in ran] == [0] * 4 + [1] * 4
    assert not any(folder.exists() for _, folder in ran)
    curves = pd.read_parquet(tmp_path / "out" / "curves.parquet")
    assert len(curves) == 2 * 2 * 2 * 3
    assert curves["game"].unique().tolist() == ["venture", "freeway"]
    assert (curves["frame"] == 4 * curves["step"]).all()
    assert {"return_spread", "episode_length", "training_return", "num_episodes", "potential", "seconds"} < {*curves}
    assert curves.loc[curves["agent"] == "fg_ulmcdqn", "friction"].eq(10.0).all()
    assert curves.loc[curves["agent"] == "dqn", "friction"].isna().all()
    summary = pd.read_csv(tmp_path / "out" / "summary.csv").set_index(["game", "agent"])
    assert summary.loc[("venture", "dqn"), "max"] == 1501
    assert summary.loc[("freeway", "fg_ulmcdqn"), "last_10"] == 15
    assert summary.loc[("venture", "dqn"), "published_last_10"] == 77
    assert pd.read_csv(tmp_path / "out" / "overall.csv")["runs"].tolist() == [4, 4]
    assert shown[0].startswith("A smoke test of 20,000 frames, not a result.\n")
    assert (tmp_path / "out" / "summary.md").read_text() == shown[0]
    names = {"curves.parquet", "summary.csv", "overall.csv", "summary.md", "curves.png", "curves.pdf"}
    assert {path.name for path in paths} == names <= atari.FILES.keys()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["finished"]
    assert {"ale-py", "gymnasium", "jax"} < manifest["versions"].keys()
    # Again in no time.
    atari.run(study, report=shown.append)
    assert len(ran) == 8
    assert shown[0] == shown[1]


def test_a_run_with_a_table_loses_its_checkpoint_and_one_without_keeps_it(tmp_path, fake_runs):
    ran = fake_runs(lambda run: 1 / (run.agent != "dqn"))
    study = AtariStudy(output=tmp_path)
    with pytest.raises(ZeroDivisionError):
        atari.run(study)
    (_, done), (_, stopped) = ran
    assert not done.exists()
    assert (stopped / "state.npz").exists()
    assert not json.loads((tmp_path / "manifest.json").read_text())["finished"]


def test_varied_runs_are_separate_and_shown_by_value(tmp_path, fake_runs):
    fake_runs(lambda run: 100 * run.point["feel_good_weight"] + run.seed)
    study = AtariStudy(agents=("fg_ulmcdqn",), vary=("feel_good_weight=1,0.1",), num_seeds=2, output=tmp_path)
    shown = []
    paths = atari.run(study, report=shown.append)
    table = pd.read_csv(tmp_path / "sensitivity.csv")
    assert table["value"].tolist() == [0.1, 1.0]
    assert table["last_10"].tolist() == pytest.approx([10.5, 100.5])
    assert "feel-good weight λ" in shown[0]
    curves = pd.read_parquet(tmp_path / "curves.parquet")
    assert sorted(curves["agent"].unique()) == ["fg_ulmcdqn feel_good_weight=0.1", "fg_ulmcdqn feel_good_weight=1"]
    assert (curves["feel_good_weight"] == curves["value"]).all()
    names = {"curves.parquet", "sensitivity.csv", "sensitivity.md", "sensitivity.png", "sensitivity.pdf"}
    assert {path.name for path in paths} == names <= atari.FILES.keys()


def tiny(output):
    """Freeway for 600 steps of ten environments, five gradient steps."""
    return AtariStudy(
        agents=("fg_ulmcdqn",),
        num_frames=2400,
        config=(
            "evaluation_period=300",
            "num_envs=10",
            "learning_starts=100",
            "replay_ratio=0.01",
            "batch_size=4",
            "capacity=400",
            "target_update_period=2",
            "max_evaluation_steps=10",
            "num_stagger_turns=20",
        ),
        output=output,
    )


def test_curves_of_a_study_under_way_can_be_had(tmp_path, monkeypatch):
    asked = iter([(2, Interrupted), (1, Interrupted), (3, None), (3, None)])

    def fake_train(*arguments, report, say, **settings):
        num_points, error = next(asked)
        unknown = (np.nan, 0, np.nan, np.nan)
        points = [Point(300 * i, 5.0 * i, 0.0, 10.0, *unknown, 1.0 * i, True) for i in range(num_points)]
        for point in points:
            report(point)
        if error is not None:
            raise error
        return SimpleNamespace(curve=points)

    monkeypatch.setattr(feelgood.training.external, "train", fake_train)
    study = dataclasses.replace(tiny(tmp_path), hyper=(), vary=("feel_good_weight=0.01,0.1",))
    for known in ([0, 300], [0]):  # a resumed run reports its curve from the beginning
        with pytest.raises(Interrupted):
            atari.run(study)
        curves = feelgood.load_results(tmp_path)
        assert curves["step"].tolist() == known
        assert curves["agent"].tolist() == ["fg_ulmcdqn feel_good_weight=0.01"] * len(known)
    assert "curves" in charts.available(charts.tables_of(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(store, "write_text", Mock(side_effect=OSError("disk full")))
        store.write_so_far(tmp_path / "cells" / "x.checkpoint.npz", curves)  # ends no run
    atari.run(study, report=lambda _: None)
    assert not list(tmp_path.glob("cells/*.csv"))
    assert feelgood.load_results(tmp_path, "curves")["step"].tolist() == [0, 300, 600] * 2


# Convolutions take XLA half a minute to compile, twice here.
@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "nature"])
def test_a_real_run_is_stopped_and_resumed_to_its_end(tmp_path, monkeypatch, capsys, network):
    turns, settings = iter(range(10**6)), atari_runs.settings

    def with_network(run):
        hyper, config, options = settings(run)
        return atari_runs.Settings(hyper, config, dataclasses.replace(options, network=network, hidden=(8,)))

    monkeypatch.setattr(atari_runs, "settings", with_network)

    @contextlib.contextmanager
    def stop_soon():
        yield SimpleNamespace(is_set=lambda: next(turns) >= 7)

    with monkeypatch.context() as patched:
        patched.setattr(feelgood.training.external_run, "stop_on_signal", stop_soon)
        with pytest.raises(Interrupted):
            atari.run(tiny(tmp_path))
    (folder,) = (tmp_path / "cells").glob("*.checkpoint")
    assert (folder / "state.npz").exists()
    manifest = store.read_study(tmp_path)
    assert not manifest["finished"]
    capsys.readouterr()
    paths = atari.run(restored(AtariStudy, manifest["spec"]))
    assert "continuing from step 35; the environments begin new episodes" in capsys.readouterr().out
    assert store.read_study(tmp_path)["finished"]
    assert all(path.exists() for path in paths)
    assert [path.suffix for path in (tmp_path / "cells").iterdir()] == [".parquet"]
    curves = pd.read_parquet(tmp_path / "curves.parquet")
    assert curves["step"].tolist() == [0, 300, 600]
    assert curves["frame"].tolist() == [0, 1200, 2400]
    assert curves["finite"].all()
    assert curves["resumed"].all()
    # Ten steps of play score nothing in Freeway, and all of them are played.
    assert curves["return"].tolist() == [0, 0, 0]
    assert curves["episode_length"].tolist() == [10, 10, 10]
    assert np.isnan(curves["potential"].iloc[0])
    assert np.isfinite(curves["potential"].iloc[1:]).all()
    assert curves["seconds"].is_monotonic_increasing
