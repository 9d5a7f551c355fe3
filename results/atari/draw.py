"""Draw curves.png and earlier.png, and print the tables of docs/atari.md and the other runs next to published ones.

python results/atari/draw.py --reference atari_curves.csv     # agent, game, seed, frame, return: a row per evaluation
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from feelgood.figures import style
from feelgood.figures.draw import draw
from feelgood.statistics import interval
from feelgood.studies.atari.tables import (
    curves_and_published,
    human_normalised,
    per_seed,
    place_counts,
    read_reference,
)
from feelgood.studies.output import markdown_table, plus_minus

FOLDER = Path(__file__).parent
SAMPLER = ["form", "bias_factor", "bias_epsilon", "inverse_temperature", "feel_good_weight"]
SETTING = ["game", "agent", *SAMPLER, "init", "pixel_scale", "draw_steps", "prioritized", "seed", "run"]
AGENT = "fg_ulmcdqn"
# curves.png: the runs with the one setting for all games, without those that ended early and were made again.
WHOLE = ["prioritized", "prioritized, second run"]
ALL = [*WHOLE, "prioritized, earlier run"]
TUNING_SEED = 1_000_000
LAST = 5  # evaluations in a score
WINDOW = 4_000_000  # frames over which evaluations are averaged to find when a score is reached
BUDGET = 50_000_000
# earlier.png: the longest run of each of these settings, and the runs of the earlier presets with seed 11.
SCALED = {"form": "released", "bias_epsilon": 1.5e-4, "draw_steps": 50}
SPARSE = {"form": "corrected", "bias_factor": 0.03, "pixel_scale": 0.0625}
NOISY = {"inverse_temperature": 1e8, "init": "unbiased", "prioritized": False}
EARLIER = {
    "sparse, seed 0": {**NOISY, **SPARSE, "feel_good_weight": 1e-4},
    "scaled, seed 0": {**NOISY, **SCALED, "feel_good_weight": 1e-4},
    "scaled, λ = 1e-3, no noise, seed 0": {
        **SCALED,
        "inverse_temperature": 1e16,
        "init": "torch",
        "feel_good_weight": 1e-3,
    },
}
# After 8 million frames with an update per environment step, ten times as many as ours (Li et al., 2024).
HYPERAGENT = {
    "alien": 1902,
    "freeway": 31.7,
    "gravitar": 607,
    "hero": 11742,
    "pitfall": -23,
    "qbert": 10287,
    "solaris": 623,
    "venture": 109,
}
COLUMNS = ["game", "agent", "seed", "frame", "return"]


def longest(curves):
    """Yield the longest run of each earlier setting and game, with the setting's label as `agent`."""
    for label, setting in EARLIER.items():
        setting = pd.Series({"agent": AGENT, **setting})
        same = curves[(curves[setting.index] == setting).all(axis=1)]
        for _, runs in same.groupby("game"):
            one = runs[["seed", "run"]].apply(tuple, axis=1)
            yield runs[one == one[runs["frame"].idxmax()]].assign(agent=label)[COLUMNS]


def plain(line):
    """Draw published curves in grey under one name, and all lines equally strong."""
    if line.dashed:
        line = line._replace(name="published, five seeds: median and range", colour=style.COLOURS["grey"])
    return line._replace(strong=False)


def draw_with_published(ours, published, name):
    """Draw our runs, and the published ones up to the end of ours, once in each panel: with the first label there."""
    ours = ours.sort_values(["game", "agent"], kind="stable")
    reach, first = 1.05 * ours.groupby("game")["frame"].max(), ours.groupby("game")["agent"].first()
    published = published[(published["agent"] == AGENT) & published["game"].isin(reach.index)]
    published = published[published["frame"] <= published["game"].map(reach)]
    chart = curves_and_published(ours, published.assign(agent=published["game"].map(first)))
    panels = [panel._replace(series=[plain(line) for line in panel.series]) for panel in chart.panels]
    style.save(draw(chart._replace(panels=panels)), FOLDER / name)


def score(run):
    """Return the mean of a run's last evaluations."""
    return run.sort_values("frame")["return"].tail(LAST).mean()


def published_scores(run, published):
    """Return the published mean of each seed at the frames of a run's last evaluations."""
    frames = run.sort_values("frame")["frame"].tail(LAST)
    return published[published["frame"].isin(frames)].groupby("seed")["return"].mean()


def first_reach(run, value):
    """Return the first frame at which the evaluations of the `WINDOW` before it average `value`, or None."""
    for frame in run["frame"].sort_values():
        inside = (run["frame"] > frame - WINDOW) & (run["frame"] <= frame)
        if frame >= WINDOW and run[inside]["return"].mean() >= value:
            return frame
    return None


def number(game, value, error=float("nan")):
    """Return a score, with its interval if there is one: one decimal in Freeway, none in other games."""
    return plus_minus(value, error, ",.1f" if game == "freeway" else ",.0f").replace("-", "−")


def millions(frame):
    """Return a number of frames as text."""
    return f"{frame / 1e6:.1f}M"


def places(run, published):
    """Return the numbers of evaluations below, inside and above the published range as text."""
    return "/".join(map(str, place_counts(run, published).values()))


def games_table(ours, published):
    """Return one row per game: the longest run of each fresh seed, next to published scores.

    If two runs of a seed are equally long, the first one counts. Published scores are averaged over the frames of our
    runs before the interval over published seeds is formed.
    """
    head = ["game", "fresh seeds, runs", "frames of each seed", "our score", "published, same frames"]
    head += ["published, 50M frames", "our runs reach that at", "status"]
    rows = []
    for game, runs in ours[ours["seed"] != TUNING_SEED].groupby("game"):
        theirs = published[published["game"] == game]
        by_seed = {
            seed: max((run for _, run in same.groupby("preset")), key=lambda run: run["frame"].max())
            for seed, same in runs.groupby("seed")
        }
        longest = list(by_seed.values())
        mean, half = interval([score(run) for run in longest])
        there, there_half = interval(pd.concat([published_scores(run, theirs) for run in longest], axis=1).mean(axis=1))
        final, final_half = interval(per_seed(theirs)["last_5"])
        reached = {seed: first_reach(run, final) for seed, run in by_seed.items()}
        reached = [f"{millions(frame)} (seed {seed})" for seed, frame in reached.items() if frame is not None]
        # Our own interval exists from three seeds on; it must not contain the published mean either.
        margin = max(there_half, half) if len(longest) >= 3 else there_half
        place = "above" if mean > there + margin else "below" if mean < there - margin else "within"
        done = "done" if min(run["frame"].max() for run in longest) >= BUDGET else "partial"
        rows.append(
            [
                game.capitalize(),
                f"{len(longest)}, {runs.groupby(['seed', 'preset']).ngroups}",
                ", ".join(millions(run["frame"].max()) for run in longest),
                number(game, mean, half if len(longest) >= 3 else float("nan")),
                number(game, there, there_half),
                number(game, final, final_half),
                ", ".join(reached) or "not reached",
                f"{place}, {done}",
            ]
        )
    return markdown_table(head, rows)


def published_reach(ours, published):
    """Return at which frame each published run reaches the published score at 50 million frames, a line per game."""
    lines = []
    for game, runs in published[published["game"].isin(ours["game"])].groupby("game"):
        final = per_seed(runs)["last_5"].mean()
        reached = [first_reach(run, final) for _, run in runs.groupby("seed")]
        found = ", ".join(millions(frame) for frame in sorted(frame for frame in reached if frame is not None))
        lines.append(f"{game}, published runs reach {number(game, final)} at: {found}; never: {reached.count(None)}")
    return "\n".join([*lines, ""])


def runs_table(ours, published):
    """Return one row per run."""
    head = ["game", "seed", "frames", "our score", "published there", "below/inside/above"]
    rows = []
    for (game, seed, _), run in ours.groupby(["game", "seed", "preset"]):
        theirs = published[published["game"] == game]
        scores = number(game, score(run)), number(game, published_scores(run, theirs).mean())
        rows.append([game.capitalize(), str(seed), millions(run["frame"].max()), *scores, places(run, theirs)])
    return markdown_table(head, rows)


def early_table(ours, published, num_frames=8_000_000):
    """Return scores at `num_frames` with seed 11, human-normalised, and others'; and intervals over games.

    Where a run was made a second time, the score is the mean of both.
    """
    one = ours[ours["preset"].isin(WHOLE) & (ours["seed"] == 11) & (ours["frame"] <= num_frames)]
    rows, shares = [], []
    for game, run in one.groupby("game"):
        last = run.sort_values("frame").groupby("preset").tail(LAST)
        theirs = published[(published["game"] == game) & published["frame"].isin(last["frame"])]["return"].mean()
        scores = [last["return"].mean(), theirs, HYPERAGENT[game]]
        shares.append([human_normalised(game, value) for value in scores])
        cells = [f"{number(game, x)} ({x_share:.0%})" for x, x_share in zip(scores, shares[-1], strict=True)]
        rows.append([game.capitalize(), *(cell.replace("-", "−") for cell in cells)])
    shares = np.array(shares)
    both = zip(shares.mean(axis=0), np.median(shares, axis=0), strict=True)
    rows.append(["mean, median", *(f"{mean:.0%}, {median:.0%}" for mean, median in both)])
    text = markdown_table(["game", "ours", "published FG-ULMCDQN", "HyperAgent"], rows)
    for i, other in ((1, "published"), (2, "HyperAgent")):
        low, high = over_games(shares[:, 0] - shares[:, i])
        text += f"ours minus {other}, mean: {low:.1%} to {high:.1%}, 95%, bootstrap over games\n"
    return text


def print_runs(table, setting_columns, published):
    """Print each run: setting, frames, score, published score at the same frames, evaluations below/inside/above."""
    for setting, run in table.groupby(setting_columns):
        game, agent = setting[:2]
        theirs = published[(published["game"] == game) & (published["agent"] == agent)]
        cells = [millions(run["frame"].max()), number(game, score(run))]
        if len(theirs):
            cells += [number(game, *interval(published_scores(run, theirs))), places(run, theirs)]
        print(*setting, *cells)


def over_games(values, num_draws=10_000):
    """Return the 95% interval of the mean by a bootstrap over games."""
    draws = np.random.default_rng(0).choice(values, (num_draws, len(values)))
    return np.quantile(draws.mean(axis=1), (0.025, 0.975))


def main():
    """Print the comparison, then draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True)
    options = parser.parse_args()
    curves = pd.read_csv(FOLDER / "curves.csv")
    names = ("seed11", "bounded", "prioritized")
    fresh = pd.concat([pd.read_csv(FOLDER / f"{name}.csv") for name in names], ignore_index=True)
    published = read_reference([options.reference])
    ours = fresh[fresh["preset"].isin(ALL) & (fresh["agent"] == AGENT)]
    theirs = published[published["agent"] == AGENT]
    for table in (games_table, published_reach, early_table, runs_table):
        print(table(ours, theirs).replace(" --- ", "---"))  # as on the pages
    print_runs(curves, SETTING, published)
    print_runs(fresh.drop(ours.index), ["game", "agent", "preset", "seed"], published)
    again = ours["preset"].map({WHOLE[1]: ", second run"}).fillna("")
    one = ours.assign(agent="seed " + ours["seed"].astype(str) + again)[ours["preset"].isin(WHOLE)]
    draw_with_published(one[COLUMNS], published, "curves")
    fresh = fresh[fresh["preset"].isin(["scaled", "sparse"])]
    fresh = fresh.assign(agent=fresh["preset"] + ", seed " + fresh["seed"].astype(str))[COLUMNS]
    draw_with_published(pd.concat([*longest(curves), fresh]), published, "earlier")


if __name__ == "__main__":
    main()
