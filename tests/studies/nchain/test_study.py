"""The N-chain study: honest tuning, refusal of bad input before anything is written, and a tiny one from end to end."""

import contextlib
import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import feelgood.training
from compiled import compiled_once
from feelgood.agents import ZOO
from feelgood.pairs import read_seeds
from feelgood.studies import cells
from feelgood.studies.cells import Cell
from feelgood.studies.engine import carry_out, local
from feelgood.studies.nchain import study as nchain
from feelgood.studies.nchain.study import GRIDS, NChainStudy
from feelgood.studies.options import FIRST_TUNING_SEED
from feelgood.training import Curves, FunctionalConfig, Record


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"agents": ("fg_ulmcdq",)}, r"agents must be one of .*, got 'fg_ulmcdq'; did you mean 'fg_ulmcdqn'\?"),
        ({"lengths": (25, 3)}, "lengths must be a whole number of at least 4, got 3"),
        ({"lengths": (25, 25)}, r"lengths must not repeat, got \(25, 25\)"),
        ({"agents": ("dqn", "dqn")}, "agents must not repeat"),
        (
            {"agents": ("dqn", "lmcdqn"), "cold": ("dqn",)},
            r"cold must be one of 'fg_ulmcdqn', .*, 'langevin_dqn', got 'dqn'",
        ),
        ({"ablate": True}, "ablate needs steady_fg_ulmcdqn among the agents, got fg_ulmcdqn, ulmcdqn, dqn"),
        ({"num_steps": -1000}, "num_steps must be a whole number of at least 1000, got -1000"),
        ({"num_steps": 1500}, "num_steps must be a multiple of 1000, got 1500"),
        ({"num_seeds": -1}, "num_seeds must be a whole number of at least 1, got -1"),
        ({"num_seeds": FIRST_TUNING_SEED + 1}, "num_seeds must be at most 1000000, got 1000001"),
        ({"num_kept": 0}, "num_kept must be a whole number of at least 1, got 0"),
        ({"tuning_seeds": (4, 0)}, "tuning_seeds must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        NChainStudy(**settings)
    assert "\n" not in str(caught.value)


def test_given_options_replace_the_preset_s():
    study = NChainStudy("paper", lengths=(10,))
    assert study.lengths == (10,)
    rest = {name: value for name, value in nchain._PRESETS["paper"].items() if name != "lengths"}
    assert {name: getattr(study, name) for name in rest} == rest
    ours = ("steady_fg_ulmcdqn", "prioritized_dqn", "c51", "iqn", "ensemble_dqn")
    assert study.agents == tuple(name for name in GRIDS if name not in ours)
    assert len(study.agents) == 9


SILENT = SimpleNamespace(task=lambda name, total: contextlib.nullcontext(lambda progress: None))


def tree_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("manifest", [json.dumps({"label": "other"}), "{}", "not json"])
def test_a_folder_of_another_study_is_refused_and_not_changed(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    (tmp_path / "summary.csv").write_text("precious")
    before = tree_of(tmp_path)
    with pytest.raises(ValueError, match=r"holds another study|cannot be read") as caught:
        nchain.run(NChainStudy(output=tmp_path))
    assert "\n" not in str(caught.value)
    assert tree_of(tmp_path) == before


GRID = {"step_size": (1.0, 2.0, 3.0), "friction": (0.1, 0.2)}


def carried_out(plan, folder):
    """The result of one plan."""
    (result,) = carry_out([plan], folder, local(folder, SILENT))
    return result


def test_tuning_halves_on_seeds_that_reporting_never_sees(fake_runs, monkeypatch, tmp_path):
    # Friction 0.2 looks best on the first tuning seeds and is not; step size 2 is truly better.
    def score(cell, point, seed):
        early = 5.0 * (point["friction"] == 0.2) if seed < FIRST_TUNING_SEED + 2 else 0.0
        return early + 3.0 * (point["step_size"] == 2.0) + 1.0 * (point["friction"] == 0.1)

    ran = fake_runs(score)
    monkeypatch.setitem(GRIDS, "ulmcdqn", GRID)
    study = NChainStudy(agents=("ulmcdqn",), tuning_seeds=(2, 6), num_kept=4, num_seeds=50)
    curves, table = carried_out(nchain.plan(study, 25, "ulmcdqn"), tmp_path)
    first, second, report = ran
    assert [cell.stage for cell in ran] == ["tune-0", "tune-1", "report"]
    assert len(first.points) == 6
    assert len(second.points) == 4
    # On the first seeds: (2, .2) 8, (1, .2) and (3, .2) 5, (2, .1) 4, the others 1.
    kept = {(point["step_size"], point["friction"]) for point in second.points}
    assert kept == {(2, 0.2), (1, 0.2), (3, 0.2), (2, 0.1)}
    # On all eight: (2, .1) 4, (2, .2) 3 + 2·5/8 = 4.25.
    assert nchain.best(table, GRID) == report.points[0] == {"step_size": 2.0, "friction": 0.2}
    scores = table.set_index(["step_size", "friction"])["score"]
    assert scores[2.0, 0.1] == pytest.approx(4.0)
    assert scores[2.0, 0.2] == pytest.approx(4.25)
    counts = table.set_index(["step_size", "friction"])["count"]
    assert sorted(counts) == [2, 2, 8, 8, 8, 8]
    # The scores of (2, .2) are 8, 8, 3, 3, 3, 3, 3, 3.
    errors = table.set_index(["step_size", "friction"])["error"]
    assert errors[2.0, 0.2] == pytest.approx(np.std([8, 8] + [3] * 6, ddof=1) / np.sqrt(8))
    first_seeds, second_seeds, report_seeds = (set(cell.seeds) for cell in ran)
    assert (len(first_seeds), len(second_seeds)) == (2, 6)
    assert report_seeds == set(range(50))
    assert not first_seeds & second_seeds
    assert not (first_seeds | second_seeds) & report_seeds
    assert (table["length"] == 25).all()
    assert (table["agent"] == "ulmcdqn").all()
    assert curves[0]["step_size"].unique() == [2.0]


def test_a_point_with_a_diverged_run_does_not_win(fake_runs, monkeypatch, tmp_path):
    ran = fake_runs(lambda cell, point, seed: point["step_size"])
    run = cells._run

    def with_one_diverged(cell, progress, checkpoint):
        table = run(cell, progress, checkpoint)
        best = table["point"].map(lambda i: cell.points[i]["step_size"] == 3.0)
        return table.assign(finite=~(best & (table["seed"] == table["seed"].max()) & (table["step"] > 0)))

    monkeypatch.setattr(cells, "_run", with_one_diverged)
    monkeypatch.setitem(GRIDS, "dqn", {"step_size": (1.0, 2.0, 3.0)})
    study = NChainStudy(agents=("dqn",), tuning_seeds=(2, 3), num_kept=2, num_seeds=4)
    _, table = carried_out(nchain.plan(study, 25, "dqn"), tmp_path)
    assert ran[-1].points[0] == {"step_size": 2.0}
    assert table.set_index("step_size")["count"].to_dict() == {1.0: 5, 2.0: 5, 3.0: 2}
    assert table.set_index("step_size")["score"].isna().to_dict() == {1.0: False, 2.0: False, 3.0: True}


def test_the_seeds_in_the_manifest_are_those_of_the_runs(fake_runs, monkeypatch, tmp_path):
    ran = fake_runs(lambda cell, point, seed: point["step_size"])
    monkeypatch.setitem(GRIDS, "dqn", {"step_size": (1.0, 2.0)})
    nchain.run(NChainStudy(agents=("dqn",), tuning_seeds=(2, 3), num_seeds=4, output=tmp_path), report=lambda _: None)
    told = json.loads((tmp_path / "manifest.json").read_text())["seeds"]
    stages = {"reporting": "report", "tuning, round 1": "tune-0", "tuning, round 2": "tune-1"}
    assert told.keys() == stages.keys()
    used = {cell.stage: list(cell.seeds) for cell in ran}
    for use, seeds in told.items():
        assert used[stages[use]] == read_seeds(seeds.split())


def test_any_seeds_can_be_chosen(fake_runs, tmp_path):
    ran = fake_runs(lambda cell, point, seed: float(seed))
    study = NChainStudy(agents=("dqn",), seeds=("11", "3-4"), output=tmp_path)
    assert study.num_seeds == 3
    nchain.run(study, report=lambda _: None)
    assert [list(cell.seeds) for cell in ran] == [[11, 3, 4]]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["seeds"] == {"reporting": "11 3-4"}
    assert "--seeds 11 3-4" in manifest["command"]
    assert sorted(pd.read_parquet(tmp_path / "curves.parquet")["seed"].unique()) == [3, 4, 11]


def table_of(counts, scores, areas):
    points = {"step_size": np.arange(1.0, len(counts) + 1), "friction": 0.1}
    return pd.DataFrame({**points, "count": counts, "score": scores, "area": areas})


def test_the_winner_is_the_best_of_those_that_survived_every_round():
    table = table_of([4, 16, 16], [9.9, 3.0, 4.0], [9.0, 9.0, 0.0])
    assert nchain.best(table, GRID) == {"step_size": 3.0, "friction": 0.1}


def test_of_two_points_with_equal_scores_the_one_that_learnt_sooner_wins():
    table = table_of([16, 16, 16], [4.0, 4.0, 3.0], [1.0, 2.0, 3.0])
    assert nchain.best(table, GRID) == {"step_size": 2.0, "friction": 0.1}


def test_points_that_tie_with_the_last_one_kept_are_kept_in_any_order_of_the_grid(fake_runs, monkeypatch, tmp_path):
    # Four of six points tie at the top of the first round; the one that is best in the end is the last of the grid.
    def score(cell, point, seed):
        if point["friction"] < 3:
            return 0.0
        return 10.0 if seed < FIRST_TUNING_SEED + 2 or point["friction"] == 6 else 5.0

    ran = fake_runs(score)
    monkeypatch.setitem(GRIDS, "dqn", {"friction": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)})
    study = NChainStudy(agents=("dqn",), tuning_seeds=(2, 3), num_kept=1, num_seeds=4)
    carried_out(nchain.plan(study, 25, "dqn"), tmp_path)
    assert [point["friction"] for point in ran[1].points] == [3.0, 4.0, 5.0, 6.0]
    assert ran[-1].points == [{"friction": 6.0}]


def test_points_within_a_standard_error_of_the_last_one_kept_go_on(fake_runs, monkeypatch, tmp_path):
    # Means 10, 5 and 4.5; the second has standard error 1, so the third is within it, and the fourth, at 3.9, is not.
    scores = {1.0: (10.0, 10.0), 2.0: (4.0, 6.0), 3.0: (4.5, 4.5), 4.0: (3.9, 3.9)}
    ran = fake_runs(lambda cell, point, seed: scores[point["step_size"]][seed % 2])
    monkeypatch.setitem(GRIDS, "dqn", {"step_size": tuple(scores)})
    study = NChainStudy(agents=("dqn",), tuning_seeds=(2, 2), num_kept=2, num_seeds=4)
    carried_out(nchain.plan(study, 25, "dqn"), tmp_path)
    assert [point["step_size"] for point in ran[1].points] == [1.0, 2.0, 3.0]


def test_the_reporting_seeds_run_with_the_point_that_tuning_chose(fake_runs, monkeypatch, tmp_path):
    # On the tuning seeds 2 wins although 1 would on the reporting seeds.
    ran = fake_runs(lambda cell, point, seed: point["step_size"] * (1 if seed >= FIRST_TUNING_SEED else -1))
    monkeypatch.setitem(GRIDS, "dqn", {"step_size": (1.0, 2.0)})
    study = NChainStudy(agents=("dqn",), tuning_seeds=(2, 2), num_kept=1, num_seeds=3)
    ((curves,), _) = carried_out(nchain.plan(study, 25, "dqn"), tmp_path)
    # Tables hold all hyper-parameters, defaults included.
    for name, value in {**ZOO["dqn"].hyper, "step_size": 2.0}.items():
        assert set(curves[name]) == {value}
    assert [(cell.stage, cell.points) for cell in ran[1:]] == [
        ("tune-1", [{"step_size": 2.0}]),
        ("report", [{"step_size": 2.0}]),
    ]


def test_the_cold_twin_of_a_winner_runs_on_the_same_seeds_with_all_but_the_temperature_the_same(
    fake_runs, monkeypatch, tmp_path
):
    ran = fake_runs(lambda cell, point, seed: point["step_size"])
    monkeypatch.setitem(GRIDS, "lmcdqn", {"step_size": (1.0, 2.0), "inverse_temperature": (10.0,)})
    study = NChainStudy(agents=("lmcdqn",), cold=("lmcdqn",), tuning_seeds=(2,), num_seeds=3)
    curves, _ = carried_out(nchain.plan(study, 25, "lmcdqn"), tmp_path)
    report, report_cold = ran[-2:]
    (warm,), (cold,) = report.points, report_cold.points
    assert warm == {"step_size": 2.0, "inverse_temperature": 10.0}
    assert list(report.seeds) == list(report_cold.seeds) == [0, 1, 2]
    assert cold["inverse_temperature"] >= 1e30
    assert cold == {**warm, "inverse_temperature": cold["inverse_temperature"]}
    assert [table["agent"].unique().tolist() for table in curves] == [["lmcdqn"], ["lmcdqn_cold"]]


def test_the_steady_agent_runs_with_each_part_taken_away_and_all_else_the_same(fake_runs, monkeypatch, tmp_path):
    ran = fake_runs(lambda cell, point, seed: point.get("average_decay", 7.0))
    monkeypatch.setitem(GRIDS, "steady_fg_ulmcdqn", {"step_size": (0.5,)})
    study = NChainStudy(agents=("steady_fg_ulmcdqn",), tuning_seeds=(1,), ablate=True, num_seeds=3)
    (_, *tables), _ = carried_out(nchain.plan(study, 25, "steady_fg_ulmcdqn"), tmp_path)
    cell = ran[-1]
    assert list(cell.seeds) == [0, 1, 2]
    whole = {**ZOO["steady_fg_ulmcdqn"].hyper, "step_size": 0.5}
    changed = [{name: value for name, value in point.items() if value != whole[name]} for point in cell.points]
    weight = whole["feel_good_weight"]
    assert changed == [
        {"step_size_end": 0.5},
        {"feel_good_weight_end": weight},
        {"average_decay": 0.0},
        {"step_size_end": 0.5, "feel_good_weight_end": weight, "average_decay": 0.0},
    ]
    names = [f"steady_fg_ulmcdqn_no_{part}" for part in ("falling_step", "falling_weight", "average", "part")]
    assert [table["agent"].unique().tolist() for table in tables] == [[name] for name in names]
    # Each table is that of its own point.
    assert [table["return"].iloc[-1] for table in tables] == [whole["average_decay"], whole["average_decay"], 0.0, 0.0]


@pytest.mark.parametrize(
    "change",
    [
        lambda settings, recipe: settings.update(points=[{"step_size": 2e-3}]),
        lambda settings, recipe: settings.update(seeds=[7, 9]),
        lambda settings, recipe: settings.update(options=("form=paper",)),
        lambda settings, recipe: recipe.hyper.update(step_size=2e-3),
        lambda settings, recipe: object.__setattr__(recipe, "config", {"replay_ratio": 2.0}),
    ],
    ids=["point", "seed", "form", "default", "updates"],
)
def test_a_cell_is_read_again_only_while_all_that_it_depends_on_is_the_same(tmp_path, monkeypatch, change):
    recipe = dataclasses.replace(ZOO["dqn"], hyper=dict(ZOO["dqn"].hyper))
    monkeypatch.setitem(ZOO, "dqn", recipe)
    calls = []

    def counted(trainer, num_chunks, seeds, hyper, **settings):
        calls.append(settings["label"])
        shape = (len(seeds), num_chunks)
        return Curves(np.zeros(shape[0]), Record(*(np.ones(shape) for _ in Record._fields)))

    monkeypatch.setattr(feelgood.training, "run_batch", counted)
    settings = {"points": [{}], "seeds": [7, 8], "options": ()}
    plan = lambda: cells.tables_of([Cell("nchain-5", "dqn", "report", num_steps=1000, **settings)])
    run = lambda: carried_out(plan(), tmp_path)[0]
    first = run()
    pd.testing.assert_frame_equal(run(), first)
    assert len(calls) == 1
    change(settings, recipe)
    run()
    assert len(set(calls)) == 2


def test_tables_hold_the_untrained_evaluation_first_and_first_successes_in_steps_of_the_run():
    record = Record(
        evaluation=np.array([[1.0, 2.0], [3.0, 4.0]]),
        num_episodes=np.array([[30, 31], [32, 33]]),
        num_successes=np.array([[0, 2], [1, 0]]),
        first_success=np.array([[1000, 7], [5, 1000]]),
        training_return=np.zeros((2, 2)),
        potential=np.array([[0.1, 0.2], [0.3, 0.4]]),
        is_finite=np.array([[True, True], [True, False]]),
    )
    table = cells._tabulate(Curves(np.array([8.0, 9.0]), record), [(0, 5), (1, 5)], FunctionalConfig(num_steps=2000))
    assert table["point"].tolist() == [0, 0, 0, 1, 1, 1]
    assert table["seed"].tolist() == [5] * 6
    assert table["step"].tolist() == [0, 1000, 2000] * 2
    assert table["return"].tolist() == [8, 1, 2, 9, 3, 4]
    assert table["episodes"].tolist() == [0, 30, 31, 0, 32, 33]
    assert table["successes"].tolist() == [0, 0, 2, 0, 1, 0]
    assert table["first_success"].tolist() == [-1, -1, 1007, -1, 5, -1]
    assert table["finite"].tolist() == [True, True, True, True, True, False]


class Stop(Exception):
    pass


def test_a_tiny_study_is_stopped_continued_and_run_again(tmp_path, monkeypatch):
    monkeypatch.setitem(GRIDS, "dqn", {"step_size": (1e-2, 1e-3)})
    study = NChainStudy(
        lengths=(5,), agents=("dqn",), num_steps=1000, num_seeds=2, tuning_seeds=(1, 1), num_kept=1, output=tmp_path
    )
    run_batch, calls = feelgood.training.run_batch, []

    def counted(trainer, num_chunks, seeds, hyper, **settings):
        calls.append((seeds.tolist(), np.asarray(hyper["step_size"]).tolist()))
        if len(calls) == 3:
            raise Stop
        return run_batch(trainer, num_chunks, seeds, hyper, **settings)

    monkeypatch.setattr(feelgood.training, "run_batch", counted)
    shown = []
    with compiled_once({}):  # all batches are two runs of one agent
        with pytest.raises(Stop):
            nchain.run(study)
        assert json.loads((tmp_path / "manifest.json").read_text())["finished"] is False
        paths = nchain.run(study, report=shown.append)
    # Two rounds of tuning (both points tie in the first), the report that was stopped, and that alone when continued.
    assert [seeds for seeds, _ in calls] == [[FIRST_TUNING_SEED] * 2, [FIRST_TUNING_SEED + 1] * 2, [0, 1], [0, 1]]
    best = nchain.best(pd.read_csv(tmp_path / "sweep.csv"), GRIDS["dqn"])["step_size"]
    assert calls[3][1] == pytest.approx([best, best])

    names = {"curves.parquet", "summary.csv", "summary.md", "sweep.csv", "curves.png", "curves.pdf"}
    assert {path.name for path in paths} == names
    assert all(path.stat().st_size for path in paths)
    curves = pd.read_parquet(tmp_path / "curves.parquet")
    assert curves[["seed", "step"]].to_numpy().tolist() == [[0, 0], [0, 1000], [1, 0], [1, 1000]]
    assert curves["step_size"].to_numpy() == pytest.approx(best)
    summary = pd.read_csv(tmp_path / "summary.csv")
    assert summary["score"].tolist() == pytest.approx([curves.loc[curves["step"] == 1000, "return"].mean()])
    assert len(pd.read_csv(tmp_path / "sweep.csv")) == 2
    assert shown == [(tmp_path / "summary.md").read_text()]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["finished"] is True
    assert manifest["study"] == "nchain"
    assert not list(tmp_path.rglob("*.npz")) + list(tmp_path.rglob("*.partial"))

    before = {path: tree_of(tmp_path)[path] for path in (*paths[:4], *(tmp_path / "cells").iterdir())}
    assert {path.suffix for path in before} == {".csv", ".md", ".parquet"}
    nchain.run(study, report=shown.append)
    assert len(calls) == 4  # nothing is run again
    assert {path: path.read_bytes() for path in before} == before
