"""Tables of the regret study on made-up curves whose answers are known, and figures that can be drawn."""

import itertools

import numpy as np
import pandas as pd
import pytest

from feelgood.figures.draw import draw
from feelgood.report.kinds import make_chart
from feelgood.studies.regret import tables as regret


def power_law(t=0.5, d=1.5, h=2.0):
    """Regret c·d^· H^· T^· exactly, with a constant that differs by seed."""
    rows = []
    sizes = [(5, 5), (3, 5), (8, 5), (5, 3), (5, 10)]
    for (dimension, horizon), seed in itertools.product(sizes, range(3)):
        episodes = np.array([1, 10, 100, 300, 600 * 5 // horizon])
        value = (1 + seed) * dimension**d * horizon**h * (horizon * episodes) ** t
        rows.append(
            pd.DataFrame(
                {
                    "algorithm": "ase_lmc",
                    "dimension": dimension,
                    "horizon": horizon,
                    "seed": seed,
                    "episode": episodes,
                    "regret": value,
                }
            )
        )
    return pd.concat(rows, ignore_index=True)


def test_exponents_of_a_power_law_are_found():
    fits = regret.exponents(power_law()).set_index("of")
    assert fits.loc["T", "exponent"] == pytest.approx(0.5)
    assert fits.loc["d", "exponent"] == pytest.approx(1.5)
    assert fits.loc["H", "exponent"] == pytest.approx(2.0)
    assert fits["ci"].max() < 1e-6


def curves():
    rows = [
        {
            "mdp": mdp,
            "algorithm": algorithm,
            "constants": constants,
            "seed": seed,
            "episode": k,
            "regret": k * (1.0 + seed),
            "bound": 1234.0,
        }
        for mdp in ("lock", "simplex")
        for algorithm in ("lsvi_ucb", "ase_baoab")
        for constants in ("tuned", "theory")
        for seed in (0, 1)
        for k in (1, 10, 20)
    ]
    return pd.DataFrame(rows)


def test_final_regret_is_that_of_the_last_episode():
    final = regret.final_regret(curves())
    assert len(final) == 8
    np.testing.assert_allclose(final["regret"], 30)
    # Two seeds at 20 and 40: Student's t with one degree of freedom.
    np.testing.assert_allclose(final["ci"], 12.7062 * 10, rtol=1e-4)


def errors():
    rows = [
        {
            "sampler": "lmc",
            "steps": steps,
            "seed": seed,
            "episode": k,
            "later": 0.2 / steps,
            "first_low": 0.05,
            "first_high": 0.1,
            "weight": float(k),
            "regret": 3.0 * k,
            "allowed": 1 / k,
            "origin": 100.0,
            "stages": 5,
        }
        for steps in (1, 2)
        for seed in (0, 1)
        for k in (1, 2, 3)
    ]
    return pd.DataFrame(rows)


def test_curves_with_the_constants_of_theories_are_drawn_only_if_there_are_no_others():
    titles = lambda table: [panel.title for panel in make_chart("curves", {"curves": table}).panels]
    table = curves()
    assert titles(table) == ["lock, tuned", "simplex, tuned"]
    assert titles(table[table["constants"] == "theory"]) == ["lock, theory", "simplex, theory"]


def test_the_cost_of_sampling_is_weighted_and_summed():
    totals = regret.sampling_regret(errors()).set_index("steps")
    assert totals.loc[1, "sampling"] == pytest.approx(6 * 0.3)
    assert totals.loc[2, "sampling"] == pytest.approx(6 * 0.2)
    assert totals.loc[1, "regret"] == 9
    # Stages add up to 0.9 + 0.2 or more, an episode to no more than 1.
    far = errors().assign(later=0.9, first_high=0.2)
    assert regret.sampling_regret(far)["sampling"].tolist() == pytest.approx([6, 6])


def budget():
    rows = [
        {"mdp": "lock", "sampler": name, "budget": b, "seed": s, "regret": 10.0 / b + s, "gradients": float(b)}
        for name in ("lmc", "exact")
        for b in (1, 4)
        for s in (0, 1)
    ]
    return pd.DataFrame(rows)


def complexity():
    rows = [
        {
            "scheme": "lmc",
            "varied": varied,
            "condition": c,
            "dimension": d,
            "error": e,
            "num_gradients": n,
            "exponent": 1.5,
            "low": 1.0,
            "high": 2.0,
            "theorem": 2.0 if varied == "condition" else None,
        }
        for varied, c, d, e, n in [
            ("condition", 10, 4, 0.1, 100),
            ("condition", 100, 4, 0.1, 10_000),
            ("dimension", 10, 4, 0.1, 100),
            ("dimension", 10, 8, 0.1, 200),
            ("error", 10, 4, 0.1, 100),
            ("error", 10, 4, 0.01, 10_000),
        ]
    ]
    return pd.DataFrame(rows)


TABLES = {
    "curves": curves(),
    "exponents": power_law(),
    "budget": budget(),
    "errors": errors(),
    "complexity": complexity(),
}


def test_the_summary_holds_the_numbers_of_the_tables():
    text = regret.as_markdown(TABLES)
    assert "| LSVI-UCB | 30.0 ± 127.1 | 30.0 ± 127.1 |" in text
    # ln regret over ln(d − 2) at d = 3, 5, 8, by hand: 0.81.
    assert "| LSVI-ASE, LMC | 0.5 | 0.50 ± 0.00 | 1 | 1.50 ± 0.00 | 0.81 ± 0.00 | 1.5 | 2.00 ± 0.00 |" in text
    assert "| lmc | condition | 2 | 1.50 [1.00, 2.00] |" in text
    assert "| lmc | 1/error | – | 1.50 [1.00, 2.00] |" in text
    assert "| Theorem 1's bound for LSVI-ASE, exact draws, its own constants | 1.23e+03 | 1.23e+03 |" in text
    assert "| lmc | 1 | 2 | 9 | 100 |" in text


@pytest.mark.parametrize("part", TABLES)
def test_every_part_can_be_drawn(part):
    chart = make_chart(part, TABLES)
    assert sum(len(panel.series) for panel in chart.panels) >= 2
    draw(chart).draw_without_rendering()
