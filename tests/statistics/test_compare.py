"""Comparisons: differences by hand, honest words, and refusals in a sentence."""

import numpy as np
import pandas as pd
import pytest

from feelgood.statistics.compare import compare, read_side, sentence


def side(folder, name, **scores):
    """A folder whose agents have the given final scores by seed, on one task or (as dicts) on several."""
    rows = [
        {"agent": agent, "task": task, "seed": seed, "step": 1000, "return": value}
        for agent, tasks in scores.items()
        for task, values in (tasks.items() if isinstance(tasks, dict) else [("t", tasks)])
        for seed, value in enumerate(values)
    ]
    (folder / name).mkdir()
    pd.DataFrame(rows).to_parquet(folder / name / "curves.parquet")
    return str(folder / name)


def test_differences_and_wins_are_those_computed_by_hand(tmp_path):
    place = side(tmp_path, "run", a=[1.0, 2, 3, 4, 5, 6], b=[0.0, 1, 2, 3, 4, 5])
    found = compare(read_side(f"{place}:a"), read_side(f"{place}:b"))
    (row,) = found.rows.to_dict("records")
    assert (row["agent"], row["task"], row["runs_a"], row["runs_b"]) == ("a − b", "t", 6, 6)
    assert (row["a"], row["b"], row["difference"]) == (3.5, 2.5, 1.0)
    wins = np.mean([(x > y) + 0.5 * (x == y) for x in range(1, 7) for y in range(6)])
    assert row["p_better"] == pytest.approx(wins)
    # Both means have variance 35/12/6; the interval of the difference is about ±1.96·√2 of it.
    assert row["high"] - 1 == pytest.approx(1.96 * np.sqrt(2 * 35 / 12 / 6), rel=0.08)
    assert sentence(found) == "These runs do not separate a and b (95% interval of the difference in return)."
    assert found.notes == ["with 6 runs a task an interval is narrower than it should be"]
    enough = side(tmp_path, "more", a=list(np.arange(10.0)), b=list(np.arange(10.0)))
    assert compare(read_side(f"{enough}:a"), read_side(f"{enough}:b")).notes == []


def test_sides_of_one_name_are_named_by_their_places(tmp_path):
    first = side(tmp_path, "first", dqn=[1.0, 2, 3, 4], iqn=[0.0] * 4)
    second = side(tmp_path, "second", dqn=[1.0, 2, 3, 5], iqn=[0.0] * 4)
    found = compare(read_side(f"{first}:dqn"), read_side(f"{second}:dqn"))
    assert sentence(found).startswith(f"These runs do not separate {first}:dqn and {second}:dqn (")


def test_one_run_a_side_has_no_interval_and_wins_nothing(tmp_path):
    place = side(tmp_path, "run", a={"x": [9.0], "y": [9.0, 9.1]}, b={"x": [1.0, 1.1], "y": [1.0, 1.1]})
    found = compare(read_side(f"{place}:a"), read_side(f"{place}:b"))
    lows = found.rows.set_index("task")[["low", "p_low"]]
    assert lows.loc["x"].isna().all()
    assert (lows.loc["y"] > [0, 0.99]).all()
    assert lows.loc["all tasks"].isna().all()
    assert "a is better on 1; the data do not separate them on 1" in sentence(found)
    assert found.notes == ["with 1 run a task there is no interval, so nothing can be concluded"]


def test_every_task_counts_once_and_the_last_row_is_over_all(tmp_path):
    good, bad, noise = [9.0, 9.1, 9.2, 9.3, 9.4], [1.0, 1.1, 1.2, 1.3, 1.4], [0.0, 3.0, 6.0, 2.0, 5.0]
    place = side(
        tmp_path, "run", a={"x": good, "y": bad, "z": noise}, b={"x": bad, "y": good, "z": noise[::-1], "w": good}
    )
    found = compare(read_side(f"{place}:a"), read_side(f"{place}:b"))
    assert list(found.rows["task"]) == ["x", "y", "z", "all tasks"]
    assert found.rows["p_better"].iloc[-1] == pytest.approx(0.5)
    assert np.isnan(found.rows["difference"].iloc[-1])  # tasks may have different units
    assert found.notes[0] == "left out, as only one side has them: w"
    assert sentence(found) == (
        "Of 3 tasks, a is better on 1; b is better on 1; the data do not separate them on 1 "
        "(higher return is better; each at 95%, not corrected for their number)."
    )


def test_chains_of_different_lengths_have_one_scale(studies):
    found = compare(read_side(f"{studies['nchain']}:fg_ulmcdqn"), read_side(f"{studies['nchain']}:dqn"))
    assert list(found.rows["task"]) == ["N = 25", "N = 50", "all tasks"]
    assert found.rows["difference"].iloc[2] == pytest.approx(found.rows["difference"].iloc[:2].mean())
    assert "dqn is better on 2" in sentence(found)


def test_less_regret_is_better(studies):
    found = compare(read_side(f"{studies['regret']}:lsvi_ucb"), read_side(f"{studies['regret']}:ase_exact"))
    assert found.lower_is_better
    assert (found.rows["p_better"] == 1).all()
    assert "lsvi_ucb is better on 4 (lower regret is better" in sentence(found)
    one = found._replace(rows=found.rows[:1])
    assert sentence(one) == "lsvi_ucb has a lower regret than ase_exact (lower is better; 95% interval)."


def test_two_folders_are_compared_agent_by_agent(tmp_path):
    first = side(tmp_path, "first", a=[1.0, 1, 1, 1, 1], b=[2.0, 2, 2, 2, 2], c=[0.0] * 5)
    second = side(tmp_path, "second", b=[3.0] * 5, a=[0.0] * 5, d=[0.0] * 5)
    found = compare(read_side(first), read_side(second))
    assert found.rows[["agent", "difference"]].to_numpy().tolist() == [["a", 1], ["b", -1]]
    assert "Of 2 comparisons" in sentence(found)


def test_single_agents_of_any_name_are_compared(tmp_path):
    found = compare(read_side(side(tmp_path, "x", p=[2.0] * 5)), read_side(side(tmp_path, "y", q=[1.0] * 5)))
    assert found.rows["agent"].tolist() == ["p − q"]


def test_a_side_whose_runs_all_diverged_is_named(tmp_path):
    x, y = side(tmp_path, "x", a=[np.nan, np.nan]), side(tmp_path, "y", a=[1.0, 2.0])
    with pytest.raises(ValueError, match=f"there is nothing to compare: all runs of {x} diverged"):
        compare(read_side(x), read_side(y))


def test_weaknesses_of_a_comparison_are_reported(tmp_path):
    rows = pd.DataFrame({"agent": "a", "seed": [0, 1, 2, 0, 1, 2], "step": [0, 0, 0, 1000, 1000, 1000]})
    for name, end, returns in (("x", 1000, [1.0, 1, 1, 2, 3, np.nan]), ("y", 500, [1.0, 1, 1, 2, 2, 2])):
        (tmp_path / name).mkdir()
        table = rows.assign(**{"return": returns, "step": rows["step"].clip(upper=end)})
        table.to_csv(tmp_path / name / "curves.csv", index=False)
    x, y = str(tmp_path / "x"), str(tmp_path / "y")
    notes = compare(read_side(x), read_side(y)).notes
    assert notes == [
        f"budgets differ: runs end at step 1,000 in {x} and step 500 in {y}",
        f"1 of 3 runs of {x} diverged and are left out",
        "with 2 runs a task an interval is narrower than it should be",
    ]


def test_a_folder_whose_name_has_a_colon_is_a_folder(tmp_path):
    assert read_side(side(tmp_path, "with:colon", a=[1.0])).agents == ["a"]


def evaluations(file, times, seeds, value):
    """A file of curves whose returns are `value(time, seed)`."""
    rows = [("a", "hero", seed, time) for seed in seeds for time in times]
    table = pd.DataFrame(rows, columns=["agent", "game", "seed", "frame"])
    table["return"] = [value(row.frame, row.seed) for row in table.itertuples()]
    table.to_csv(file, index=False)
    return str(file)


def test_files_are_compared_at_the_times_that_all_runs_have(tmp_path):
    ours = evaluations(tmp_path / "ours.csv", range(0, 1001, 200), (0, 1), lambda time, seed: time + seed)
    theirs = evaluations(tmp_path / "theirs.csv", range(0, 5001, 100), (0, 1, 2), lambda time, seed: time / 2)
    at_the_end = compare(read_side(ours), read_side(f"{theirs}:a"))
    assert at_the_end.notes[0] == f"budgets differ: runs end at frame 1,000 in {ours} and frame 5,000 in a"
    found = compare(read_side(ours), read_side(f"{theirs}:a"), same_times=True)
    (row,) = found.rows.to_dict("records")
    # Both at frames 200, 400, …, 1000, of mean 600.
    assert (row["a"], row["b"], row["runs_a"], row["runs_b"]) == (600.5, 300.0, 2, 3)
    assert not any("budgets" in note for note in found.notes)


def test_evaluations_that_occur_twice_are_averaged_unless_a_column_distinguishes_them(tmp_path):
    one = evaluations(tmp_path / "one.csv", (0, 200), (0, 1), lambda time, seed: time)
    twice, mixed = tmp_path / "twice.csv", tmp_path / "mixed.csv"
    rows = pd.read_csv(one)
    pd.concat([rows, rows[-1:].assign(**{"return": 300.0})]).to_csv(twice, index=False)
    found = compare(read_side(str(twice)), read_side(one))
    assert found.rows["a"].tolist() == [225.0]  # of 200 and (200 + 300)/2
    assert found.notes[0] == f"repeated evaluations of {twice}, 1 in all, are averaged"
    pd.concat([rows.assign(preset="x"), rows.assign(preset="y")]).to_csv(mixed, index=False)
    with pytest.raises(ValueError, match="must have one row per run and time, got two of a on hero, seed 0"):
        compare(read_side(str(mixed)), read_side(one))


def test_sides_without_a_common_time_are_refused_in_a_sentence(tmp_path):
    ours = evaluations(tmp_path / "ours.csv", (0, 200), (0, 1), lambda time, seed: time)
    late = evaluations(tmp_path / "late.csv", (0, 300), (0, 1), lambda time, seed: time)
    steps = tmp_path / "steps.csv"
    pd.read_csv(ours).rename(columns={"frame": "step"}).to_csv(steps, index=False)
    with pytest.raises(ValueError, match=f"all runs of {ours} and {late} must share a time after the start, got none"):
        compare(read_side(ours), read_side(late), same_times=True)
    with pytest.raises(ValueError, match=f"times must be of one kind, got frame in {ours} and step in {steps}"):
        compare(read_side(ours), read_side(str(steps)), same_times=True)
    (tmp_path / "curves.txt").write_text("agent")
    with pytest.raises(ValueError, match=r"a table must be a CSV or Parquet file, got '.*curves.txt'"):
        read_side(str(tmp_path / "curves.txt"))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ("nchain:dnq", "nchain:dqn", "did you mean 'dqn'"),
        ("nchain:dqn", "nchain", "name one of each as FOLDER:AGENT"),
        ("nchain", "atari:iqn", "the agents to compare are ambiguous"),
        ("nchain:dqn", "regret:lsvi_ucb", "scores must be of one kind, got return in dqn and regret in lsvi_ucb"),
        ("nchain:dqn", "atari:iqn", "dqn and iqn have no task in common"),
        ("nowhere", "nchain", "there is no such folder"),
    ],
)
def test_sides_that_cannot_be_compared_are_refused_in_a_sentence(studies, a, b, message):
    places = [str(studies["nchain"].parent / place) for place in (a, b)]
    with pytest.raises(ValueError, match=message):
        compare(*map(read_side, places))
