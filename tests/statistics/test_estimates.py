"""Statistics against closed forms, brute force and rliable."""

import importlib.util
import sys
import types

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from feelgood import statistics
from feelgood.statistics import Layout, bootstrap, final_scores, layout
from feelgood.studies.nchain import tables as nchain

RNG = np.random.default_rng(0)
SCORES = {"a": RNG.integers(0, 6, (12, 3)).astype(float), "b": RNG.integers(1, 7, (12, 3)).astype(float)}


def runs(matrix):
    """Scores as rliable has them, (runs, tasks), as we have them: an array for each task."""
    return list(np.asarray(matrix).T)


def tidy(scores, **columns):
    """A table of final scores from (runs, tasks) for each agent."""
    rows = [
        {"agent": agent, "task": f"t{task}", "seed": seed, "score": value}
        for agent, matrix in scores.items()
        for (seed, task), value in np.ndenumerate(np.asarray(matrix, float))
    ]
    return pd.DataFrame(rows).assign(**columns)


@pytest.fixture(scope="module")
def rliable():
    """rliable's library. It needs the bootstrap of arch, which cannot be imported with pandas 3."""
    found = importlib.util.find_spec("rliable") and importlib.util.find_spec("arch")
    if not found:
        pytest.skip("rliable is not installed")
    door = types.ModuleType("arch")
    door.__path__ = list(found.submodule_search_locations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "arch", door)
        from rliable import library

        yield library


def test_point_estimates_are_those_of_rliable():
    metrics = pytest.importorskip("rliable.metrics")
    a, b = SCORES["a"], SCORES["b"]
    assert statistics.mean(runs(a)) == pytest.approx(metrics.aggregate_mean(a))
    assert statistics.interquartile_mean(runs(a)) == pytest.approx(metrics.aggregate_iqm(a))
    assert statistics.improvement(runs(a), runs(b)) == pytest.approx(metrics.probability_of_improvement(a, b))


@pytest.mark.filterwarnings("ignore:random_state")
def test_intervals_and_profiles_agree_with_rliable(rliable):
    metrics = pytest.importorskip("rliable.metrics")
    for ours, theirs in (("iqm", metrics.aggregate_iqm), ("mean", metrics.aggregate_mean)):
        _, intervals = rliable.get_interval_estimates(
            SCORES, lambda x, theirs=theirs: np.array([theirs(x)]), reps=1000, random_state=np.random.RandomState(0)
        )
        table = statistics.aggregate(tidy(SCORES), ours, num_draws=4000).set_index("agent")
        for agent in SCORES:
            # The standard error of a 2.5% quantile of 1000 draws with standard deviation s is about s·0.085.
            width = np.ptp(intervals[agent][:, 0])
            assert table.loc[agent, ["low", "high"]].to_numpy(float) == pytest.approx(
                intervals[agent][:, 0], abs=0.1 * width
            )
    thresholds = np.array([0.5, 2.0, 3.5])
    shares, _ = rliable.create_performance_profile(SCORES, thresholds, reps=10)
    profile = statistics.performance_profile(tidy(SCORES), thresholds).pivot(
        index="agent", columns="threshold", values="share"
    )
    for agent in SCORES:
        np.testing.assert_allclose(profile.loc[agent], shares[agent])


def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end():
    assert statistics.interquartile_mean([np.array([7.0, 0, 6, 1]), np.array([5.0, 2, 4, 3])]) == 3.5
    assert statistics.interquartile_mean([np.array([0.0, 1, 1, 100])]) == 1


def test_the_mean_weighs_tasks_equally_for_any_number_of_runs():
    assert statistics.mean([np.array([1.0]), np.array([4.0, 4, 4])]) == 2.5


@pytest.mark.parametrize(
    ("x", "y", "expected"), [([3, 4], [1, 2], 1), ([1, 2], [3], 0), ([5, 5], [5], 0.5), ([1, 3], [2, 3], 0.375)]
)
def test_improvement_counts_the_pairs_that_are_won_and_half_of_those_that_are_drawn(x, y, expected):
    pairs = np.mean([(a > b) + 0.5 * (a == b) for a in x for b in y])
    assert statistics.improvement([np.array(x, float)], [np.array(y, float)]) == pytest.approx(expected) == pairs


def test_improvement_is_reversed_if_lower_is_better():
    x, y = {"t": np.array([1.0, 3])}, {"t": np.array([2.0, 3]), "u": np.zeros(2)}
    up = statistics.probability_of_improvement(x, y)
    down = statistics.probability_of_improvement(x, y, lower_is_better=True)
    assert (up.value, down.value) == (0.375, 0.625)
    assert down.low == pytest.approx(1 - up.high, abs=0.26)  # other draws, of few values
    with pytest.raises(ValueError, match="must share a task, got t and none"):
        statistics.probability_of_improvement(x, {})


def test_the_interval_of_a_mean_has_the_width_that_its_variance_gives():
    rng = np.random.default_rng(3)
    tasks = [rng.normal(0, 2, 60), rng.normal(10, 0.5, 40)]
    estimate = bootstrap(statistics.mean, tasks, num_draws=20_000)
    assert estimate.value == pytest.approx(np.mean([tasks[0].mean(), tasks[1].mean()]))
    # Var = Σ_t var_t / n_t / T²: strata are resampled apart, so that the 10 between the tasks adds nothing.
    half = 1.96 * np.sqrt(sum(task.var() / len(task) for task in tasks)) / 2
    assert estimate.high - estimate.value == pytest.approx(half, rel=0.05)
    assert estimate.value - estimate.low == pytest.approx(half, rel=0.05)
    assert bootstrap(statistics.mean, tasks) == bootstrap(statistics.mean, tasks)


def test_the_interval_of_a_profile_is_that_of_resampled_runs():
    table = tidy({"a": SCORES["a"]})
    low, high = statistics.performance_profile(table, [2.5], num_draws=20_000)[["low", "high"]].iloc[0]
    brute = bootstrap(
        lambda tasks: np.mean([(task > 2.5).mean(-1) for task in tasks], 0), runs(SCORES["a"]), num_draws=20_000
    )
    assert (low, high) == pytest.approx((brute.low, brute.high), abs=1 / 36 + 1e-9)  # one run of 36 more or less
    assert low < brute.value < high


def test_profiles_fall_from_the_smallest_to_the_largest_score():
    profile = statistics.performance_profile(tidy(SCORES))
    for _, group in profile.groupby("agent"):
        assert len(group) == 51
        assert (group["share"].diff().dropna() <= 0).all()
    assert profile["threshold"].agg(["min", "max"]).tolist() == [0, 6]
    assert (profile.loc[profile["threshold"] == 6, "share"] == 0).all()


def curves(returns, **columns):
    """A table of curves from returns of shape (seeds, times); times are 0, 1000, …"""
    rows = [
        {"seed": seed, "step": 1000 * i, "return": value}
        for (seed, i), value in np.ndenumerate(np.asarray(returns, float))
    ]
    return pd.DataFrame(rows).assign(**{"agent": "a", **columns})


def test_the_final_score_is_the_mean_of_the_last_ten_evaluations_after_training_began():
    returns = np.arange(2 * 13.0).reshape(2, 13) ** 2
    shuffled = curves(returns).sample(frac=1, random_state=1)
    scores = final_scores(shuffled)
    np.testing.assert_allclose(scores["score"], returns[:, -10:].mean(1))
    np.testing.assert_allclose(final_scores(shuffled, last=1)["score"], returns[:, -1])
    short = final_scores(curves([[100.0, 1, 2]]))
    assert short["score"].tolist() == [1.5]  # not the evaluation before training
    assert final_scores(curves([[100.0]]))["score"].tolist() == [100]  # unless there is no other


def test_final_scores_of_a_chain_are_those_of_its_study():
    table = pd.concat(
        curves(RNG.uniform(0, 10, (3, 14)), length=length, agent=agent) for length in (50, 25) for agent in ("b", "a")
    ).assign(first_success=-1, successes=0, episodes=1, finite=True)
    theirs = nchain.per_seed(table).set_index(["agent", "length", "seed"])["score"]
    ours = final_scores(table.reset_index(drop=True))
    for row in ours.itertuples():
        assert row.score == pytest.approx(theirs[row.agent, int(row.task.removeprefix("N = ")), row.seed])
    assert list(dict.fromkeys(ours["task"])) == ["N = 25", "N = 50"]  # lengths rise
    assert list(dict.fromkeys(ours["agent"])) == ["b", "a"]  # agents as they come


def test_regret_counts_at_the_last_episode_and_constants_are_tasks():
    rows = [
        {"algorithm": "x", "mdp": "m", "constants": c, "seed": 0, "episode": e, "regret": e * k, "step": 0.1}
        for c, k in (("tuned", 1.0), ("theory", 3.0))
        for e in (1, 2, 5)
    ]
    scores = final_scores(pd.DataFrame(rows))
    assert scores[["task", "score"]].to_numpy().tolist() == [["m, tuned", 5], ["m, theory", 15]]


def test_runs_without_a_finite_score_are_nan_and_are_left_out():
    # Before it diverged, the second run had the best evaluations of all.
    table = curves([[1.0, np.nan, np.inf], [1.0, 80.0, np.nan], [1.0, 4.0, 6.0]])
    scores = final_scores(table)
    assert scores["score"].isna().tolist() == [True, True, False]
    assert statistics.scores_of(scores)["a"]["all"].tolist() == [5]
    assert statistics.diverged(table) == "2 of 3 of a"
    assert statistics.diverged(curves([[1.0, 4.0, 6.0]])) == ""


def test_two_rows_for_one_run_and_time_are_refused():
    with pytest.raises(ValueError, match="got two of a on N = 5, seed 0, at step 1000"):
        final_scores(pd.concat([curves([[1.0, 2.0]], length=5), curves([[1.0, 2.0]], length=5)[1:]], ignore_index=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="agent"), "'agent' or 'algorithm' or 'sampler' for the agent"),
        (lambda t: t.drop(columns="seed"), "'seed' for the seed, got the columns 'step'"),
        (lambda t: t.drop(columns="step"), "for the time"),
        (lambda t: t.drop(columns="return"), "for the score"),
        (lambda t: t.iloc[:0], "must have rows, got none"),
        (
            lambda t: t.assign(**{"return": "high"}),
            "column 'return' of a table of curves must hold numbers, got 'high'",
        ),
    ],
)
def test_a_table_that_is_not_one_of_curves_is_refused_in_a_sentence(change, message):
    with pytest.raises(ValueError, match=message):
        layout(change(curves([[1.0, 2.0]])))


def test_columns_are_found_by_their_names():
    assert layout(curves([[1.0]], length=3)) == Layout("agent", ("length",), "step", "return")
    atari = curves([[1.0]], game="Pong").rename(columns={"step": "frame"})
    assert layout(atari) == Layout("agent", ("game",), "frame", "return")
    assert not layout(atari).one_scale
    assert layout(curves([[1.0]], length=3)).one_scale


def test_sample_efficiency_is_the_statistic_at_every_time_that_all_runs_have():
    returns = RNG.uniform(0, 10, (6, 4))
    table = pd.concat([curves(returns[:3], length=4), curves(returns[3:], length=5)], ignore_index=True)
    found = statistics.sample_efficiency(table[~((table["seed"] == 1) & (table["step"] == 3000))], "mean")
    np.testing.assert_allclose(found["value"], returns[:, :3].mean(0))
    one = bootstrap(statistics.mean, [returns[:3, 1], returns[3:, 1]], num_draws=200)
    assert found.loc[1, ["value", "low", "high"]].tolist() == pytest.approx(list(one))


@pytest.mark.parametrize("call", [statistics.aggregate, statistics.sample_efficiency])
def test_an_unknown_statistic_is_refused(call):
    with pytest.raises(ValueError, match="statistic must be one of 'mean', 'iqm', got 'iqn'; did you mean 'iqm'"):
        call(tidy(SCORES), "iqn")


def test_a_run_with_infinite_parameters_counts_as_diverged():
    table = curves([[1.0, 2, 3], [1.0, 9, 9]]).assign(finite=[True, True, True, True, True, False])
    assert statistics.diverged(table) == "1 of 2 of a"
    assert final_scores(table, last=1)["score"].tolist() == pytest.approx([3, np.nan], nan_ok=True)


@pytest.mark.parametrize("num_runs", [1, 2, 3, 5, 8])
def test_the_interquartile_mean_is_the_trimmed_mean_of_scipy(num_runs):
    runs = [np.random.default_rng(i).normal(size=(4, num_runs)) for i in range(2)]
    expected = stats.trim_mean(np.concatenate(runs, axis=-1), 0.25, axis=-1)
    np.testing.assert_array_equal(statistics.interquartile_mean(runs), expected)


def test_sample_efficiency_is_the_bootstrap_at_each_time_alone():
    rng = np.random.default_rng(0)
    table = pd.concat([curves(rng.normal(size=(n, 6))).assign(length=length) for length, n in ((50, 3), (25, 4))])
    table["finite"] = (table["seed"] != 2) | (table["step"] <= 4000) | (table["length"] != 25)
    found = statistics.sample_efficiency(table).set_index("step")
    assert list(found.index) == sorted(table["step"].unique())
    for step, rows in table[table["finite"]].groupby("step"):
        runs = [task["return"].to_numpy() for _, task in rows.groupby("length", sort=False)]
        expected = statistics.bootstrap(statistics.interquartile_mean, runs, num_draws=200)
        assert tuple(found.loc[step, ["value", "low", "high"]]) == pytest.approx(expected, rel=1e-12)


def test_in_sample_efficiency_runs_that_diverge_count_until_then():
    returns = np.array([[1.0, 2, 3], [3.0, 4, np.nan]])
    found = statistics.sample_efficiency(curves(returns), "mean")
    assert found["value"].tolist() == [2, 3, 3]
    gone = statistics.sample_efficiency(pd.concat([curves(returns[:1]), curves(returns[1:], agent="b")]), "mean")
    assert gone.groupby("agent")["step"].max().to_dict() == {"a": 2000, "b": 1000}
