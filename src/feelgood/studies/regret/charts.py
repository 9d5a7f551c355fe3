"""Charts of the regret study, beside its curves."""

import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, as_hex, colours, label, mean_series, numbers, series
from feelgood.figures.style import LOOKS
from feelgood.studies.regret.tables import SAMPLERS, exponents, sampling_regret

__all__ = ["budget", "complexity", "errors", "regret_exponents"]


def regret_exponents(table: pd.DataFrame) -> Chart:
    """Measured exponents of regret beside the upper bounds of Table 1."""
    fits = exponents(table)
    looks = colours(fits["algorithm"].unique())
    places = {name: float(i) for i, name in enumerate(looks)}
    panels = []
    for of, index in (("T", 2), ("d", 0), ("H", 1)):
        marks = []
        for row in fits[fits["of"] == of].itertuples():
            name, colour, at = label(row.algorithm), looks[row.algorithm], [places[row.algorithm]]
            low, high = numbers([row.exponent - row.ci]), numbers([row.exponent + row.ci])
            marks.append(Series(name, colour, numbers([row.exponent]), at, low, high, points=True))
            claimed = LOOKS[row.algorithm][3]
            if claimed is not None:
                marks.append(Series(name, colour, [float(claimed[index])], at, dashed=True, points=True))
        panels.append(Panel("", f"exponent of {of}", "", marks, y_names=[label(name) for name in looks]))
    note = "Filled: measured, with its 95% interval over seeds; hollow: Table 1's upper bound."
    return Chart("exponents", "Exponents of regret", note, "exponents", panels)


def budget(table: pd.DataFrame) -> Chart:
    """Regret against gradients per stage and episode."""
    panels = []
    for mdp, rows in table.groupby("mdp", sort=False):
        budgets = rows.loc[rows["budget"] > 0, "budget"]
        lines = []
        for name, group in rows.groupby("sampler", sort=False):
            colour, line = SAMPLERS[str(name)]
            if name == "exact":  # has no budget: a level from end to end
                group = pd.concat([group.assign(budget=end) for end in (budgets.min(), budgets.max())])
            lines.append(mean_series(str(name), as_hex(colour), group, "budget", "regret", dashed=line != "-"))
        panels.append(Panel(str(mdp), "gradients a stage and episode", "regret", lines, x_log=True, y_log=True))
    note = f"Mean over {table['seed'].nunique()} seeds with its 95% confidence interval; black, dashed: exact draws."
    return Chart("budget", "Regret by gradient budget", note, "budget", panels)


def errors(table: pd.DataFrame) -> Chart:
    """What sampling error may cost, beside what was lost."""
    totals = sampling_regret(table)
    lines = []
    for name, group in totals.groupby("sampler", sort=False):
        colour = as_hex(SAMPLERS[str(name)][0])
        lines.append(series(f"{name}: bound", colour, group, "steps", "sampling", points=True))
        lines.append(series(f"{name}: regret", colour, group, "steps", "regret", points=True, dashed=True))
    panel = Panel("", "steps J", "regret", lines, x_log=True, y_log=True, guides=(float(totals["origin"].iloc[0]),))
    note = "Σ α_k δ_k by sampler and steps, beside the regret itself; the level is Theorem 1's bound for exact draws."
    return Chart("errors", "What sampling error may cost", note, "errors", [panel])


def complexity(table: pd.DataFrame) -> Chart:
    """Gradients needed for a given total variation."""
    labels = {"condition": "condition number κ", "dimension": "dimension d", "error": "1 / total variation"}
    table = table.assign(_inverse=1 / table["error"])
    panels = []
    for varied, x_label in labels.items():
        x = "_inverse" if varied == "error" else varied
        lines = []
        for name, group in table[table["varied"] == varied].groupby("scheme", sort=False):
            colour, line = SAMPLERS[str(name)]
            group = group.sort_values(x)
            dashed = line != "-"
            lines.append(series(str(name), as_hex(colour), group, x, "num_gradients", dashed=dashed, points=True))
        panels.append(Panel("", x_label, "gradients needed", lines, x_log=True, y_log=True))
    note = "Gradients that bring a Gaussian's sampler within a given total variation, the step tuned for each."
    return Chart("complexity", "Gradients needed", note, "complexity", panels)
