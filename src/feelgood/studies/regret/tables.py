"""Tables and figures of the regret study."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from feelgood.figures.style import COLOURS, LOOKS, STYLE
from feelgood.statistics import interval

__all__ = ["DRAW", "SAMPLERS", "as_markdown", "exponents", "final_regret", "sampling_regret"]

SAMPLERS = {
    "lmc": (COLOURS["orange"], "-"),
    "ulmc": (COLOURS["blue"], "-"),
    "ulmc_euler": (COLOURS["sky"], "-"),
    "baoab": (COLOURS["red"], "-"),
    "baoab, momentum kept": (COLOURS["red"], "--"),
    "mala": (COLOURS["green"], "-"),
    "hmc": (COLOURS["pink"], "-"),
    "proximal": (COLOURS["grey"], "-"),
    "exact": (COLOURS["black"], ":"),
}


def final_regret(curves: pd.DataFrame) -> pd.DataFrame:
    """Cumulative regret at the last episode: mean and 95% confidence interval by mdp, algorithm and constants."""
    last = curves[curves["episode"] == curves["episode"].max()]
    rows = []
    for keys, group in last.groupby(["mdp", "algorithm", "constants"], sort=False):
        mean, error = interval(group["regret"])
        rows.append(dict(zip(("mdp", "algorithm", "constants"), keys, strict=True), regret=mean, ci=error))
    return pd.DataFrame(rows)


def exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Powers of T, d and H by least squares in the logarithms, one fit per seed; mean and 95% interval over seeds.

    T: cumulative regret over the last seven eighths of a run at the base size. d, H: final regret over sizes, at H the
    same number of steps T = HK for all. d − 2: the same as d against the number of signs that a hypercube hides.
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
            mean, error = interval(slopes)
            rows.append({"algorithm": algorithm, "of": name, "exponent": mean, "ci": error})
    return pd.DataFrame(rows)


def sampling_regret(errors: pd.DataFrame) -> pd.DataFrame:
    """Σ_k α_k δ_k by sampler and steps, beside the regret itself and Theorem 1's bound without it.

    δ_k is bounded from above, by the sum over stages, or by 1 where that is more.
    """
    table = errors.assign(cost=errors["weight"] * (errors["later"] + errors["first_high"]).clip(upper=1))
    runs = table.groupby(["sampler", "steps", "seed"], sort=False)
    each = runs.agg(sampling=("cost", "sum"), regret=("regret", "last"), origin=("origin", "last")).reset_index()
    return each.groupby(["sampler", "steps"], sort=False)[["sampling", "regret", "origin"]].mean().reset_index()


def _mean_line(panel, group: pd.DataFrame, x: str, y: str, **look) -> None:
    wide = group.pivot_table(index=x, columns="seed", values=y)
    means, errors = np.array([interval(row[~np.isnan(row)]) for row in wide.to_numpy()]).T
    panel.plot(wide.index, means, **look)
    low = np.maximum(means - errors, means * 0.05)
    panel.fill_between(wide.index, low, means + errors, color=look["color"], alpha=0.15, lw=0)


def _draw_curves(table: pd.DataFrame) -> Figure:
    mdps, rows = list(table["mdp"].unique()), [c for c in ("tuned", "theory") if c in set(table["constants"])]
    with rc_context(STYLE):
        figure = Figure(figsize=(2.3 * len(mdps) + 1.9, 2.3 * len(rows) + 0.3), layout="constrained")
        panels = figure.subplots(len(rows), len(mdps), squeeze=False, sharex=True)
        for i, constants in enumerate(rows):
            for panel, mdp in zip(panels[i], mdps, strict=True):
                chosen = table[(table["mdp"] == mdp) & (table["constants"] == constants)]
                for algorithm, group in chosen.groupby("algorithm", sort=False):
                    label, colour, line, _ = LOOKS[str(algorithm)]
                    _mean_line(panel, group, "episode", "regret", color=colour, linestyle=line, label=label)
                panel.set_yscale("log")
                panel.set_ylim(bottom=max(0.5, chosen.loc[chosen["episode"] >= 5, "regret"].min()))
                if i == 0:
                    panel.set_title(mdp)
                if i == len(rows) - 1:
                    panel.set_xlabel("episode")
            panels[i, 0].set_ylabel(f"cumulative regret\n({constants} constants)")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
        return figure


def _draw_exponents(table: pd.DataFrame) -> Figure:
    fits = exponents(table)
    names = list(fits["algorithm"].unique())
    with rc_context(STYLE):
        figure = Figure(figsize=(8.2, 0.28 * len(names) + 1.1), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for panel, (of, index) in zip(panels, (("T", 2), ("d", 0), ("H", 1)), strict=True):
            for y, name in enumerate(names):
                _, colour, _, claimed = LOOKS[name]
                row = fits[(fits["algorithm"] == name) & (fits["of"] == of)]
                if len(row):
                    panel.errorbar(row["exponent"], [y], xerr=row["ci"], fmt="o", color=colour, markersize=4)
                if claimed is not None:
                    panel.plot(claimed[index], y, "|", color=colour, markersize=13, markeredgewidth=2)
            panel.set_xlabel(f"exponent of {of}")
            panel.axvline(0, color="0.85", linewidth=0.8, zorder=0)
        panels[0].set_yticks(range(len(names)), [LOOKS[name][0] for name in names])
        panels[0].invert_yaxis()
        figure.suptitle("dot: measured, 95% interval over seeds; bar: Table 1's upper bound", fontsize=8, color="0.3")
        return figure


def _draw_budget(table: pd.DataFrame) -> Figure:
    mdps = list(table["mdp"].unique())
    with rc_context(STYLE):
        figure = Figure(figsize=(2.3 * len(mdps) + 1.9, 2.6), layout="constrained")
        panels = figure.subplots(1, len(mdps), squeeze=False)[0]
        for panel, mdp in zip(panels, mdps, strict=True):
            chosen = table[table["mdp"] == mdp]
            for name, group in chosen.groupby("sampler", sort=False):
                colour, line = SAMPLERS[str(name)]
                if name == "exact":
                    mean, error = interval(group["regret"])
                    panel.axhline(mean, color=colour, linestyle=line, label="exact")
                    panel.axhspan(mean - error, mean + error, color=colour, alpha=0.12, lw=0)
                else:
                    _mean_line(panel, group, "budget", "regret", color=colour, linestyle=line, label=name, marker=".")
            panel.set_xscale("log")
            budgets = sorted(set(chosen["budget"]) - {0})
            panel.set_xticks(budgets, [str(budget) for budget in budgets])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_yscale("log")
            panel.set_title(mdp)
            panel.set_xlabel("gradients a stage and episode")
        panels[0].set_ylabel("regret")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
        return figure


def _draw_errors(table: pd.DataFrame) -> Figure:
    samplers = list(table["sampler"].unique())
    steps = sorted(table["steps"].unique())
    shades = ["#C6DBEF", "#9ECAE1", "#6BAED6", "#3182BD", "#08519C", "#08306B"]
    with rc_context(STYLE):
        figure = Figure(figsize=(3.0 * (len(samplers) + 1), 2.8), layout="constrained")
        panels = figure.subplots(1, len(samplers) + 1)
        for panel, name in zip(panels, samplers, strict=False):
            for shade, count in zip(shades, steps, strict=False):
                chosen = table[(table["sampler"] == name) & (table["steps"] == count)]
                mean = chosen.groupby("episode")[["later", "first_low", "first_high"]].mean()
                panel.plot(mean.index, mean["later"] + mean["first_high"], color=shade, label=f"J = {count}")
                panel.plot(mean.index, mean["later"] + mean["first_low"], color=shade, linestyle=":")
            allowed = chosen.groupby("episode")["allowed"].first()
            stages = chosen["stages"].iloc[0]
            panel.plot(
                allowed.index, np.minimum(allowed, 1) * stages, color=COLOURS["red"], linewidth=1, label="Theorem 2"
            )
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_ylim(1e-4, 8)
            panel.set_title(name)
            panel.set_xlabel("episode")
        panels[0].set_ylabel("sampling error, summed over stages")
        panels[0].legend(fontsize=7)
        totals = sampling_regret(table)
        for name, group in totals.groupby("sampler", sort=False):
            colour, line = SAMPLERS[str(name)]
            panels[-1].loglog(group["steps"], group["sampling"], line, color=colour, marker=".", label=f"{name}: bound")
            panels[-1].loglog(group["steps"], group["regret"], ":", color=colour, label=f"{name}: regret")
        panels[-1].axhline(totals["origin"].iloc[0], color=COLOURS["black"], linewidth=0.8, label="bound, exact draws")
        panels[-1].set_xlabel("steps J")
        panels[-1].set_title("what sampling error may cost")
        panels[-1].legend(fontsize=6.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return figure


def _draw_complexity(table: pd.DataFrame) -> Figure:
    axes = {"condition": "condition number κ", "dimension": "dimension d", "error": "1 / total variation"}
    with rc_context(STYLE):
        figure = Figure(figsize=(8.6, 2.8), layout="constrained")
        panels = figure.subplots(1, 3, sharey=True)
        for panel, (varied, label) in zip(panels, axes.items(), strict=True):
            for name, group in table[table["varied"] == varied].groupby("scheme", sort=False):
                x = 1 / group[varied] if varied == "error" else group[varied]
                colour, line = SAMPLERS[str(name)]
                exponent = f"{name}: {group['exponent'].iloc[0]:.2f}"
                panel.loglog(x, group["num_gradients"], line, color=colour, marker=".", label=exponent)
            panel.set_xticks(list(x), [f"{value:g}" for value in x])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.set_xlabel(label)
            panel.legend(fontsize=7, title="exponent", title_fontsize=7)
        panels[0].set_ylabel("gradients needed")
        return figure


DRAW: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "curves": _draw_curves,
    "exponents": _draw_exponents,
    "budget": _draw_budget,
    "errors": _draw_errors,
    "complexity": _draw_complexity,
}


def _rows(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def as_markdown(tables: Mapping[str, pd.DataFrame]) -> str:
    """What the study found, as tables for people."""
    pieces = []
    if "curves" in tables:
        curves = tables["curves"]
        final = final_regret(curves)
        mdps = list(final["mdp"].unique())
        episodes, seeds = curves["episode"].max(), curves["seed"].nunique()
        for constants, group in final.groupby("constants", sort=False):
            body = []
            for name, own in group.groupby("algorithm", sort=False):
                cells = {row.mdp: f"{row.regret:.1f} ± {row.ci:.1f}" for row in own.itertuples()}
                body.append([LOOKS[str(name)][0], *(cells.get(mdp, "–") for mdp in mdps)])
            bounds = curves.groupby("mdp")["bound"].first()
            label = "Theorem 1's bound for LSVI-ASE, exact draws, its own constants"
            body.append([label, *(f"{bounds[mdp]:.3g}" for mdp in mdps)])
            title = f"Regret after {episodes:,} episodes, {constants} constants, {seeds} seeds"
            pieces.append(f"## {title}\n\n" + _rows(["algorithm", *mdps], body))
    if "exponents" in tables:
        fits = exponents(tables["exponents"]).set_index(["algorithm", "of"])
        body = []
        for name in fits.index.get_level_values(0).unique():
            claimed = LOOKS[name][3]
            row = [LOOKS[name][0]]
            for of, index in (("T", 2), ("d", 0), ("d − 2", None), ("H", 1)):
                found = fits.loc[(name, of)] if (name, of) in fits.index else None
                if index is not None:
                    row.append("–" if claimed is None else f"{claimed[index]:g}")
                row.append("–" if found is None else f"{found['exponent']:.2f} ± {found['ci']:.2f}")
            body.append(row)
        head = [
            "algorithm",
            "T, claimed",
            "measured",
            "d, claimed",
            "measured",
            "d − 2, measured",
            "H, claimed",
            "measured",
        ]
        pieces.append("## Exponents of regret (hypercube)\n\n" + _rows(head, body))
    if "budget" in tables:
        table = tables["budget"]
        body = []
        for (mdp, name), own in table.groupby(["mdp", "sampler"], sort=False):
            for budget, group in own.groupby("budget"):
                mean, error = interval(group["regret"])
                body.append(
                    [str(mdp), str(name), f"{budget}", f"{group['gradients'].mean():.1f}", f"{mean:.1f} ± {error:.1f}"]
                )
        pieces.append(
            "## Regret by gradient budget\n\n" + _rows(["MDP", "sampler", "budget", "gradients", "regret"], body)
        )
    if "errors" in tables:
        body = [
            [row.sampler, f"{row.steps}", f"{row.sampling:.0f}", f"{row.regret:.0f}", f"{row.origin:.0f}"]
            for row in sampling_regret(tables["errors"]).itertuples()
        ]
        head = ["sampler", "J", "Σ α_k δ_k", "regret", "bound for exact draws"]
        pieces.append("## What sampling error may cost, and what was lost\n\n" + _rows(head, body))
    if "complexity" in tables:
        body = []
        for (name, varied), own in tables["complexity"].groupby(["scheme", "varied"], sort=False):
            fit = own.iloc[0]
            theorem = "–" if pd.isna(fit["theorem"]) else f"{fit['theorem']:g}"
            measured = f"{fit['exponent']:.2f} [{fit['low']:.2f}, {fit['high']:.2f}]"
            body.append([str(name), {"error": "1/error"}.get(str(varied), str(varied)), theorem, measured])
        head = ["scheme", "of", "theory", "measured"]
        pieces.append("## Exponents of the gradients needed for a given total variation\n\n" + _rows(head, body))
    return "\n".join(pieces)
