"""Tables and charts of the Atari study."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from feelgood import statistics
from feelgood.figures.chart import Chart, Panel, Series, mean_series, numbers, unique
from feelgood.figures.curves import learning_curves
from feelgood.figures.style import COLOURS, SYMBOLS, colours_of, label, shades
from feelgood.statistics import interval
from feelgood.studies.atari.paper import HUMAN, PAPER_SCORES, RANDOM
from feelgood.studies.output import markdown_table, plus_minus


def human_normalised(game: str, score: float | int) -> float:
    """(score − random)/(human − random): 0 for random play, 1 for a human; NaN for games outside the paper."""
    if game not in HUMAN:
        return float("nan")
    return (score - RANDOM[game]) / (HUMAN[game] - RANDOM[game])


_COLUMNS = ("agent", "game", "seed", "frame", "return")


def read_reference(paths: Sequence[Path]) -> pd.DataFrame:
    """Reads published curves from CSV files with columns agent, game, seed, frame, return.

    If a run has a frame twice, as restarted runs do, the mean is used.

    Raises:
      ValueError: if a file cannot be read, lacks a column, or has text in a numeric column.
    """
    tables = []
    for path in paths:
        try:
            table = pd.read_csv(path)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise ValueError(f"reference {path} cannot be read ({reason})") from error
        if not set(_COLUMNS).issubset(table):
            found = ", ".join(map(repr, table.columns))
            raise ValueError(f"reference {path} must have columns {', '.join(_COLUMNS)}, got {found}")
        for name in ("frame", "return"):
            if not pd.api.types.is_numeric_dtype(table[name]):
                raise ValueError(f"reference {path} must hold numbers as {name!r}, got {table[name].iloc[0]!r}")
        tables.append(table[list(_COLUMNS)])
    keys = ["agent", "game", "seed", "frame"]
    return pd.concat(tables, ignore_index=True).groupby(keys, sort=False, as_index=False)["return"].mean()


def per_seed(curves: pd.DataFrame) -> pd.DataFrame:
    """One row per run: game, agent, seed, max, last_5, last_10, diverged.

    `max` is the best evaluation after the start of training, `last_k` the mean of the last k. A diverged run has no
    `last_k`, because evaluation stops.
    """
    rows = []
    for (game, agent, seed), run in curves.groupby(["game", "agent", "seed"], sort=False):
        returns = run.sort_values("frame").loc[lambda rows: rows["frame"] > 0, "return"].to_numpy(float)
        finite = returns[np.isfinite(returns)]
        diverged = len(finite) < len(returns)
        last = {f"last_{k}": np.nan if diverged or not len(returns) else returns[-k:].mean() for k in (5, 10)}
        best = finite.max() if len(finite) else np.nan
        rows.append({"game": game, "agent": agent, "seed": seed, "max": best, **last, "diverged": diverged})
    return pd.DataFrame(rows)


_PLACES = ("below", "inside", "above")


def place_counts(curves: pd.DataFrame, published: pd.DataFrame) -> dict[str, int]:
    """Counts evaluations below, inside and above the range of published seeds at the same frame.

    Both tables have one game and agent. A seed's published curve is interpolated linearly and not extrapolated. Numbers
    are compared in single precision, because published ones may have been stored so.
    """
    ours = curves[np.isfinite(curves["return"])]
    theirs = [
        np.interp(ours["frame"], run["frame"], run["return"], left=np.nan, right=np.nan)
        for _, run in published.sort_values("frame").groupby("seed")
    ]
    values = ours["return"].to_numpy(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # frames beyond all published curves
        low, high = (end(theirs, axis=0).astype(np.float32) for end in (np.nanmin, np.nanmax))
    below, inside, above = values < low, (low <= values) & (values <= high), values > high
    return {name: int(where.sum()) for name, where in zip(_PLACES, (below, inside, above), strict=True)}


def summarise(curves: pd.DataFrame, published: pd.DataFrame | None = None) -> pd.DataFrame:
    """One row per game and agent: scores with 95% confidence intervals (Student's t) over seeds, and the paper's.

    Curves that were `published` give `published_last_10` at the same number of frames, and counts of `place_counts`.

    Returns:
      Columns game, agent, seeds, frames; max, last_5 and last_10, each with its `_ci`, over the runs that did not
      diverge; normalised, human_normalised(last_10); paper and paper_ci, after 50M frames; published_last_10, below,
      inside, above; diverged.
    """
    runs = per_seed(curves)
    frames = curves.groupby(["game", "agent"], sort=False)["frame"].max()
    rows = []
    for (game, agent), group in runs.groupby(["game", "agent"], sort=False):
        row: dict[str, Any] = {"game": game, "agent": agent, "seeds": len(group), "frames": frames[(game, agent)]}
        for name in ("max", "last_5", "last_10"):
            row[name], row[f"{name}_ci"] = interval(group[name].dropna())
        row["normalised"] = human_normalised(str(game), row["last_10"])
        row["paper"], row["paper_ci"] = PAPER_SCORES.get(str(agent), {}).get(str(game), (np.nan, np.nan))
        row |= dict.fromkeys(("published_last_10", *_PLACES), np.nan)
        if published is not None:
            same = published[(published["game"] == game) & (published["agent"] == agent)]
            until = same[same["frame"] <= row["frames"]]
            if len(until):
                row["published_last_10"] = per_seed(until)["last_10"].mean()
                row |= place_counts(curves[(curves["game"] == game) & (curves["agent"] == agent)], same)
        row["diverged"] = int(group["diverged"].sum())
        rows.append(row)
    return pd.DataFrame(rows)


def overall(curves: pd.DataFrame) -> pd.DataFrame:
    """One row per agent that has all games: human-normalised `last_10` over all games and seeds.

    Games without a human score in the paper and diverged runs are left out.

    Returns:
      Columns agent, games, runs; iqm (interquartile mean) and mean with `_low` and `_high`, 95% intervals of the
      stratified bootstrap (none where a game has one run); paper_mean, the same mean of the paper's table.
    """
    runs = per_seed(curves)
    score = [human_normalised(game, last) for game, last in zip(runs["game"], runs["last_10"], strict=True)]
    scores = runs.assign(task=runs["game"], score=score)[["agent", "task", "seed", "score"]].dropna(subset="score")
    games = list(scores["task"].unique())
    have_all = scores.groupby("agent", sort=False)["task"].nunique() == len(games)
    scores = scores[scores["agent"].map(have_all).astype(bool)]
    tables = {name: statistics.aggregate(scores, name) for name in ("iqm", "mean")}
    table = tables["iqm"][["agent", "tasks", "runs"]].rename(columns={"tasks": "games"})
    # With one run per game the bootstrap gives no interval.
    fewest = scores.groupby(["agent", "task"]).size().groupby("agent").min()
    sure = table["agent"].map(fewest) > 1
    for name, estimates in tables.items():
        ends = {f"{name}_{end}": estimates[end].where(sure) for end in ("low", "high")}
        table = table.assign(**{name: estimates["value"]}, **ends)
    papers = lambda agent: [human_normalised(game, PAPER_SCORES[agent][game][0]) for game in games]
    means = [float(np.mean(papers(agent))) if agent in PAPER_SCORES else np.nan for agent in table["agent"]]
    return table.assign(paper_mean=means)


def _number(value: Any, error: Any = float("nan")) -> str:
    return plus_minus(float(value), float(error), ",.0f" if abs(value) >= 100 else ",.1f")


def _share(value: float, low: float = float("nan"), high: float = float("nan")) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:.1%}" if np.isnan(low) else f"{value:.1%} [{low:.1%}, {high:.1%}]"


def as_markdown(summary: pd.DataFrame, overall: pd.DataFrame) -> str:
    """Both tables as Markdown, best agent first."""
    text = f"{_games(summary)}\n{_notes(summary)}\n"
    if len(overall):
        title = "Human-normalised scores over all games, with 95% intervals by the stratified bootstrap:"
        text += f"\n{title}\n\n{_over_games(overall)}"
    return text


def _games(summary: pd.DataFrame) -> str:
    head = ["game", "agent", "seeds", "frames", "maximum", "last 5", "last 10", "human-normalised", "paper, 50M frames"]
    has_published = bool(summary["published_last_10"].notna().any())
    head += ["published, last 10, same frames", "below, inside, above their range"] if has_published else []
    rows = []
    order = summary.groupby("game", sort=False).ngroup()
    ranked = summary.assign(_order=order).sort_values(["_order", "last_10"], ascending=[True, False], kind="stable")
    for row in ranked.to_dict("records"):
        cells = [str(row["game"]), label(str(row["agent"])), str(row["seeds"]), f"{row['frames'] / 1e6:g}M"]
        cells += [_number(row[name], row[f"{name}_ci"]) for name in ("max", "last_5", "last_10")]
        cells += [_share(row["normalised"]), _number(row["paper"], row["paper_ci"])]
        if has_published:
            places = [row[name] for name in _PLACES]
            text = "–" if np.isnan(places[0]) else ", ".join(f"{place:.0f}" for place in places)
            cells += [_number(row["published_last_10"]), text]
        rows.append(cells)
    return markdown_table(head, rows)


def _notes(summary: pd.DataFrame) -> str:
    text = (
        "Maximum: the best evaluation of each seed, averaged over seeds. Last 5 and last 10: the mean of the last 5 or "
        "10 evaluations. ± is a 95% confidence interval over seeds by Student's t. Human-normalised: (last 10 − "
        "random)/(human − random). The paper calls its scores maxima, but they agree with the last 5 evaluations of "
        "its released curves."
    )
    if summary["published_last_10"].notna().any():
        text += " Below, inside, above: evaluations relative to the range of published seeds at the same frame."
    if lost := [row for row in summary.to_dict("records") if row["diverged"]]:
        which = ", ".join(f"{row['diverged']} of {label(str(row['agent']))} on {row['game']}" for row in lost)
        text += f"\n\nRuns that diverged have no last evaluations and are left out of those means: {which}."
    return text


def _over_games(overall: pd.DataFrame) -> str:
    rows = []
    for row in overall.sort_values("iqm", ascending=False, kind="stable").to_dict("records"):
        means = [_share(row[name], row[f"{name}_low"], row[f"{name}_high"]) for name in ("iqm", "mean")]
        counts = [str(row["games"]), str(row["runs"])]
        rows.append([label(str(row["agent"])), *counts, *means, _share(row["paper_mean"])])
    return markdown_table(["agent", "games", "runs", "interquartile mean", "mean", "mean, paper"], rows)


def sensitivity(curves: pd.DataFrame) -> pd.DataFrame:
    """One row per game, agent, parameter and value, with the scores of `summarise`."""
    keys = ["game", "agent", "parameter", "value"]
    scores = ["seeds", "frames", "max", "max_ci", "last_5", "last_5_ci", "last_10", "last_10_ci", "diverged"]
    table = curves[keys].drop_duplicates(keys[:2]).merge(summarise(curves), on=keys[:2])[[*keys, *scores]]
    names = [varied_agent(str(agent)) for agent in table["agent"]]
    return table.assign(agent=names).sort_values(keys, ignore_index=True)


def varied_agent(name: str) -> str:
    """The agent of a name that has a setting, and the folder that may follow.

    Examples:
      >>> varied_agent("dqn step_size=0.1"), varied_agent("dqn step_size=0.1 in first")
      ('dqn', 'dqn in first')
    """
    whole, word, folder = name.partition(" in ")
    return whole.partition(" ")[0] + word + folder


def sensitivity_as_markdown(table: pd.DataFrame) -> str:
    """Scores at every value."""
    head = ["game", "agent", "hyper-parameter", "value", "seeds", "frames", "maximum", "last 5", "last 10", "diverged"]
    rows = []
    for row in table.to_dict("records"):
        cells = [row["game"], label(row["agent"]), SYMBOLS.get(row["parameter"], row["parameter"]), f"{row['value']:g}"]
        cells += [str(row["seeds"]), f"{row['frames'] / 1e6:g}M"]
        cells += [_number(row[name], row[f"{name}_ci"]) for name in ("max", "last_5", "last_10")]
        rows.append([*cells, str(row["diverged"])])
    return markdown_table(head, rows)


# Charts.


def curves_and_published(curves: pd.DataFrame, published: pd.DataFrame | None = None) -> Chart:
    """Learning curves, a panel for each game.

    Of agents that have `published` curves on the same game, the median over published seeds is drawn dashed, with their
    range as its band.
    """
    chart = learning_curves(curves)
    if published is None:
        return chart
    colours = colours_of(unique(curves["agent"]))
    panels = []
    for panel, (game, own) in zip(chart.panels, curves.groupby("game", sort=False), strict=True):
        lines = []
        for agent in unique(own["agent"]):
            theirs = published[(published["game"] == game) & (published["agent"] == agent)]
            if theirs.empty:
                continue
            wide = theirs.pivot_table(index="frame", columns="seed", values="return").sort_index()
            values, name = wide.to_numpy(float), f"{label(agent)}, published"
            middle, low, high = (numbers(end(values, axis=-1)) for end in (np.nanmedian, np.nanmin, np.nanmax))
            lines.append(Series(name, colours[agent], numbers(wide.index), middle, low, high, dashed=True))
        panels.append(panel._replace(series=[*lines, *panel.series]))
    note = f"{chart.note} Dashed: the median of published seeds, with their range."
    return chart._replace(note=note, panels=panels)


def sensitivity_curves(curves: pd.DataFrame) -> Chart:
    """For each game, agent and parameter: learning curves of every value, then the score against the value.

    Curves and scores are means over seeds, as in the paper's Figure 3, with 95% intervals: bootstrap for curves,
    Student's t for scores.
    """
    scores = sensitivity(curves)
    table = curves.assign(agent=[varied_agent(str(agent)) for agent in curves["agent"]])
    keys = ["game", "agent", "parameter"]
    panels = []
    for (game, agent, parameter), group in table.groupby(keys, sort=False):
        values = sorted(group["value"].unique())
        symbol = SYMBOLS.get(str(parameter), str(parameter))
        lines = [
            mean_series(f"{symbol} = {value:g}", colour, group[group["value"] == value], "frame", "return")
            for value, colour in zip(values, shades(len(values)), strict=True)
        ]
        title = f"{label(str(agent))}, {game}"
        panels.append(Panel(title, "frames", "evaluation return", lines))
        own = scores[(scores[keys] == [game, agent, parameter]).all(axis=1)].sort_values("value")
        means, halves = own["last_10"].to_numpy(float), np.nan_to_num(own["last_10_ci"].to_numpy(float))
        band = numbers(means - halves), numbers(means + halves)
        line = Series("score", COLOURS["grey"], numbers(values), numbers(means), *band, points=True)
        panels.append(Panel(title, symbol, "mean of the last 10 evaluations", [line], x_log=bool(min(values) > 0)))
    seeds = curves["seed"].nunique()
    note = f"Means over {seeds} seed{'s' if seeds > 1 else ''} with 95% intervals."
    return Chart("values", "Sensitivity", note, "curves", panels)
