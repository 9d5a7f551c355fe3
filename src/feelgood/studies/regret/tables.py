"""Tables and charts of the regret study."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from feelgood.figures.chart import Chart, Panel, Series, mean_series, numbers, series, unique
from feelgood.figures.curves import learning_curves
from feelgood.figures.style import COLOURS, colours_of, label, shades
from feelgood.statistics import interval
from feelgood.studies.output import markdown_table, plus_minus


def final_regret(curves: pd.DataFrame) -> pd.DataFrame:
    """Cumulative regret at the last episode: mean and 95% confidence interval by mdp, algorithm and constants."""
    last, keys = curves[curves["episode"] == curves["episode"].max()], ["mdp", "algorithm", "constants"]
    rows = [(*names, *interval(group["regret"])) for names, group in last.groupby(keys, sort=False)]
    return pd.DataFrame(rows, columns=[*keys, "regret", "ci"])


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Powers of T, d and H by least squares in the logarithms, one fit per seed; mean and 95% interval over seeds.

    T: cumulative regret over the last seven eighths of a run at the base size. d, H: final regret over sizes, with the
    same number of steps T = HK for all H. d − 2: the same as d, against the number of signs that a hypercube hides.
    """
    table = table.assign(signs=table["dimension"] - 2)
    base_d, base_h = (table[name].iloc[0] for name in ("dimension", "horizon"))
    sizes = ["algorithm", "dimension", "horizon"]
    last = table[table["episode"] == table.groupby(sizes)["episode"].transform("max")]
    rows = []
    for algorithm in table["algorithm"].unique():
        own, ends = table[table["algorithm"] == algorithm], last[last["algorithm"] == algorithm]
        base = own[(own["dimension"] == base_d) & (own["horizon"] == base_h)]
        pieces = {
            "T": (base[base["episode"] >= base["episode"].max() / 8], "episode"),
            "d": (ends[ends["horizon"] == base_h], "dimension"),
            "d − 2": (ends[ends["horizon"] == base_h], "signs"),
            "H": (ends[ends["dimension"] == base_d], "horizon"),
        }
        for name, (piece, x) in pieces.items():
            positive = piece[piece["regret"] > 0]
            if positive[x].nunique() < 2:
                continue
            slopes = [
                np.polyfit(np.log(group[x]), np.log(group["regret"]), 1)[0]
                for _, group in positive.groupby("seed")
                if group[x].nunique() > 1
            ]
            rows.append((algorithm, name, *interval(slopes)))
    return pd.DataFrame(rows, columns=["algorithm", "of", "exponent", "ci"])


def claimed_exponents(algorithm: str) -> dict[str, float]:
    """Exponents of d, H and T that Table 1 claims for an algorithm; empty for those that it does not list."""
    from feelgood.linear.table1 import TABLE1

    if algorithm not in TABLE1:
        return {}
    rate = TABLE1[algorithm].regret
    return {"d": float(rate.dimension), "H": float(rate.horizon), "T": float(rate.num_steps)}


def sampling_regret(errors: pd.DataFrame) -> pd.DataFrame:
    """Σ_k α_k δ_k by sampler and steps, with the regret and Theorem 1's bound for exact draws.

    δ_k is bounded by the sum over stages or by 1, whichever is smaller.
    """
    table = errors.assign(cost=errors["weight"] * (errors["later"] + errors["first_high"]).clip(upper=1))
    runs = table.groupby(["sampler", "steps", "seed"], sort=False)
    each = runs.agg(sampling=("cost", "sum"), regret=("regret", "last"), origin=("origin", "last")).reset_index()
    return each.groupby(["sampler", "steps"], sort=False)[["sampling", "regret", "origin"]].mean().reset_index()


def as_markdown(tables: Mapping[str, pd.DataFrame]) -> str:
    """Summary tables of the study in Markdown."""
    sections = [_MAKE[part](table) for part, table in tables.items()]
    return "\n".join([*sections, "± is a 95% confidence interval over seeds by Student's t.\n"])


def _curves(curves: pd.DataFrame) -> str:
    final = final_regret(curves)
    mdps, bounds = list(final["mdp"].unique()), curves.groupby("mdp")["bound"].first()
    episodes, seeds = curves["episode"].max(), curves["seed"].nunique()
    pieces = []
    for constants, group in final.groupby("constants", sort=False):
        # Best mean rank over MDPs first, as each MDP has its own scale.
        ranks = group.groupby("mdp")["regret"].rank().groupby(group["algorithm"]).mean()
        rows = []
        for name in ranks.sort_values(kind="stable").index:
            own = group[group["algorithm"] == name]
            cells = {row.mdp: plus_minus(row.regret, row.ci, ".1f") for row in own.itertuples()}
            rows.append([label(str(name)), *(cells.get(mdp, "–") for mdp in mdps)])
        bound = "Theorem 1's bound for LSVI-ASE, exact draws, its own constants"
        rows.append([bound, *(f"{bounds[mdp]:.3g}" for mdp in mdps)])
        title = f"Regret after {episodes:,} episodes, {constants} constants, {seeds} seeds"
        pieces.append(_section(title, ["algorithm", *mdps], rows))
    return "\n".join(pieces)


def _exponents(table: pd.DataFrame) -> str:
    fits = exponents(table).set_index(["algorithm", "of"])
    rows = []
    for name in fits.index.get_level_values(0).unique():
        claimed = claimed_exponents(name)
        row = [label(name)]
        for of in ("T", "d", "d − 2", "H"):
            if of != "d − 2":
                row.append(f"{claimed[of]:g}" if claimed else "–")
            row.append(plus_minus(*fits.loc[(name, of)]) if (name, of) in fits.index else "–")
        rows.append(row)
    head = ["algorithm", "T, claimed", "measured", "d, claimed", "measured", "d − 2, measured"]
    head += ["H, claimed", "measured"]
    return _section("Exponents of regret (hypercube)", head, rows)


def _budget(table: pd.DataFrame) -> str:
    rows = []
    for (mdp, name, budget), own in table.groupby(["mdp", "sampler", "budget"], sort=False):
        mean, error = interval(own["regret"])
        gradients, regret = f"{own['gradients'].mean():.1f}", plus_minus(mean, error, ".1f")
        rows.append([str(mdp), str(name), f"{budget}", gradients, regret])
    return _section("Regret by gradient budget", ["MDP", "sampler", "budget", "gradients", "regret"], rows)


def _errors(table: pd.DataFrame) -> str:
    rows = [
        [row.sampler, f"{row.steps}", f"{row.sampling:.0f}", f"{row.regret:.0f}", f"{row.origin:.0f}"]
        for row in sampling_regret(table).itertuples()
    ]
    head = ["sampler", "J", "Σ α_k δ_k", "regret", "bound for exact draws"]
    return _section("Bound on the cost of sampling error, and measured regret", head, rows)


def _complexity(table: pd.DataFrame) -> str:
    rows = []
    for (name, varied), own in table.groupby(["scheme", "varied"], sort=False):
        fit = own.iloc[0]
        theorem = "–" if pd.isna(fit["theorem"]) else f"{fit['theorem']:g}"
        measured = f"{fit['exponent']:.2f} [{fit['low']:.2f}, {fit['high']:.2f}]"
        rows.append([str(name), {"error": "1/error"}.get(str(varied), str(varied)), theorem, measured])
    title = "Exponents of the gradients needed for a given total variation"
    return _section(title, ["scheme", "of", "theory", "measured"], rows)


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"## {title}\n\n{markdown_table(head, rows)}"


_MAKE = {"curves": _curves, "exponents": _exponents, "budget": _budget, "errors": _errors, "complexity": _complexity}


# Charts.


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


_DRAW = {"exponents": regret_exponents, "budget": budget, "errors": errors, "complexity": complexity}
DRAW = {part: {part: make} for part, make in {"curves": learning_curves, **_DRAW}.items()}
"""Charts of each part by name: functions of its table."""
