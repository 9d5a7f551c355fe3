"""Charts of the regret study."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, mean_series, numbers, series, unique
from feelgood.figures.curves import learning_curves
from feelgood.figures.style import COLOURS, colours_of, label, shades
from feelgood.studies.regret.tables import claimed_exponents, exponents, sampling_regret

SAMPLERS = {
    "lmc": (COLOURS["orange"], False),
    "ulmc": (COLOURS["blue"], False),
    "ulmc_euler": (COLOURS["sky"], False),
    "baoab": (COLOURS["red"], False),
    "baoab, momentum kept": (COLOURS["red"], True),
    "mala": (COLOURS["green"], False),
    "hmc": (COLOURS["pink"], False),
    "proximal": (COLOURS["grey"], False),
    "exact": (COLOURS["black"], True),
}
"""Colour of each sampler, and whether its line is dashed."""


def _without_folder(name: str) -> str:
    """The name of an algorithm or a sampler whose folder may follow, as in "lmc in first"."""
    return name.partition(" in ")[0]


def _looks(names: Sequence[str]) -> dict[str, tuple[str, bool]]:
    """The entries of `SAMPLERS` for some names; samplers of several folders take free colours."""
    free = colours_of(names)
    own = {name: SAMPLERS[_without_folder(name)] for name in names}
    return {name: (colour if name in SAMPLERS else free[name], dashed) for name, (colour, dashed) in own.items()}


def regret_exponents(table: pd.DataFrame) -> Chart:
    """Measured exponents of regret and the upper bounds of Table 1."""
    fits = exponents(table)
    looks = colours_of(fits["algorithm"].unique())
    places = {name: float(i) for i, name in enumerate(looks)}
    panels = []
    for of in ("T", "d", "H"):
        marks = []
        for row in fits[fits["of"] == of].itertuples():
            name, colour, at = label(row.algorithm), looks[row.algorithm], [places[row.algorithm]]
            low, high = numbers([row.exponent - row.ci]), numbers([row.exponent + row.ci])
            marks.append(Series(name, colour, numbers([row.exponent]), at, low, high, points=True))
            claimed = claimed_exponents(_without_folder(row.algorithm))
            if claimed:
                marks.append(Series(name, colour, [float(claimed[of])], at, dashed=True, points=True))
        panels.append(Panel("", f"exponent of {of}", "", marks, y_names=[label(name) for name in looks]))
    note = "Filled: measured, with its 95% interval over seeds; hollow: Table 1's upper bound."
    return Chart("exponents", "Exponents of regret (hollow: Table 1's upper bound)", note, "exponents", panels)


def budget(table: pd.DataFrame) -> Chart:
    """Regret against gradients per stage and episode."""
    looks = _looks(unique(table["sampler"]))
    panels = []
    for mdp, rows in table.groupby("mdp", sort=False):
        budgets = rows.loc[rows["budget"] > 0, "budget"]
        lines = []
        for name, group in rows.groupby("sampler", sort=False):
            colour, dashed = looks[str(name)]
            if _without_folder(str(name)) == "exact":  # has no budget: a level from end to end
                group = pd.concat([group.assign(budget=end) for end in (budgets.min(), budgets.max())])
            lines.append(mean_series(str(name), colour, group, "budget", "regret", dashed=dashed, points=True))
        panels.append(Panel(str(mdp), "gradients", "regret", lines, x_log=True, y_log=True))
    note = (
        f"Mean over {table['seed'].nunique()} seeds with its 95% confidence interval, against the gradients of a stage "
        "in an episode. Black, dashed: exact draws."
    )
    return Chart("budget", "Regret by gradient budget", note, "budget", panels)


def errors(table: pd.DataFrame) -> Chart:
    """Sampling error of every episode by number of steps, then its cost in regret."""
    panels = []
    for name, rows in table.groupby("sampler", sort=False):
        steps = sorted(rows["steps"].unique())
        lines = []
        for colour, count in zip(shades(len(steps)), steps, strict=True):
            mean = rows[rows["steps"] == count].groupby("episode")[["later", "first_low", "first_high"]].mean()
            upper, lower = mean["later"] + mean["first_high"], mean["later"] + mean["first_low"]
            band = numbers(lower), numbers(upper)
            lines.append(Series(f"J = {count}", colour, numbers(mean.index), band[1], *band))
        first = rows.groupby("episode")[["allowed", "stages"]].first()
        allowed = np.minimum(first["allowed"], 1) * first["stages"]
        lines.append(Series("Theorem 2", COLOURS["black"], numbers(first.index), numbers(allowed), dashed=True))
        panel = Panel(str(name), "episode", "sampling error", lines, x_log=True, y_log=True, y_range=(1e-4, 8))
        panels.append(panel)
    totals = sampling_regret(table)
    lines, looks = [], _looks(unique(totals["sampler"]))
    for name, group in totals.groupby("sampler", sort=False):
        colour, _ = looks[str(name)]
        lines.append(series(f"{name}: bound", colour, group, "steps", "sampling", points=True))
        lines.append(series(f"{name}: regret", colour, group, "steps", "regret", points=True, dashed=True))
    guides = (float(totals["origin"].iloc[0]),)
    panels.append(Panel("cost", "steps J", "regret", lines, x_log=True, y_log=True, guides=guides))
    note = (
        "Sampling error summed over stages, between its lower and its upper bound, for J steps an episode, with the "
        "error that Theorem 2 allows. Last panel: Σ α_k δ_k, an upper bound on its cost, and the regret itself; the "
        "level is Theorem 1's bound for exact draws."
    )
    return Chart("errors", "Sampling error and its cost", note, "errors", panels)


def complexity(table: pd.DataFrame) -> Chart:
    """Gradients needed for a given total variation."""
    labels = {"condition": "condition number κ", "dimension": "dimension d", "error": "1 / total variation"}
    looks = _looks(unique(table["scheme"]))
    table = table.assign(scheme=table["scheme"].astype(str), error=1 / table["error"])
    panels = []
    for x, x_label in labels.items():
        lines = []
        for name, own in table[table["varied"] == x].sort_values(x, kind="stable").groupby("scheme", sort=False):
            colour, dashed = looks[name]
            lines.append(series(name, colour, own, x, "num_gradients", dashed=dashed, points=True))
        panels.append(Panel("", x_label, "gradients needed", lines, x_log=True, y_log=True))
    note = "Gradients that bring a Gaussian's sampler within a given total variation, the step tuned for each."
    return Chart("complexity", "Gradients needed", note, "complexity", panels)


DRAW: dict[str, dict[str, Callable[[pd.DataFrame], Chart]]] = {
    "curves": {"curves": learning_curves},
    "exponents": {"exponents": regret_exponents},
    "budget": {"budget": budget},
    "errors": {"errors": errors},
    "complexity": {"complexity": complexity},
}
"""Charts of each part by name: functions of its table."""
