"""Draw curves.png and earlier.png and print how each run compares with published curves.

python results/atari/draw.py --reference atari_curves.csv     # agent, game, seed, frame, return: a row per evaluation
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from feelgood.figures import style
from feelgood.figures.draw import draw
from feelgood.studies.atari.charts import curves_and_published
from feelgood.studies.atari.tables import human_normalised, place_counts, read_reference

FOLDER = Path(__file__).parent
SAMPLER = ["form", "bias_factor", "bias_epsilon", "inverse_temperature", "feel_good_weight"]
SETTING = ["game", "agent", *SAMPLER, "init", "pixel_scale", "draw_steps", "prioritized", "seed", "run"]
AGENT = "fg_ulmcdqn"
# curves.png: the runs with the one setting for all games.
ONE = {AGENT: "FG-ULMCDQN", "ulmcdqn": "ULMCDQN", "dqn": "DQN"}
WHOLE = ["prioritized", "prioritized, second run"]
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


def with_labels(fresh, presets, names):
    """Return the runs of some presets, with name and seed as `agent`."""
    fresh = fresh[fresh["preset"].isin(presets)]
    return fresh.assign(agent=names(fresh) + ", seed " + fresh["seed"].astype(str))[COLUMNS]


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


def print_early_scores(fresh, published, num_frames=8_000_000):
    """Print the mean of the last five evaluations up to `num_frames` with seed 11, human-normalised, and others'.

    Where a run was made a second time, the score is the mean of both.
    """
    one = fresh[fresh["preset"].isin(WHOLE) & (fresh["agent"] == AGENT) & (fresh["seed"] == 11)]
    print("| game | frames | ours | published | HyperAgent |\n|---|---|---|---|---|")
    shares = {"ours": [], "published": [], "HyperAgent": []}
    for game, run in one[one["frame"] <= num_frames].groupby("game"):
        last = run.sort_values("frame").groupby("preset").tail(5)
        theirs = published[(published["game"] == game) & (published["agent"] == AGENT)]
        theirs = theirs[theirs["frame"].isin(last["frame"])]["return"].mean()
        scores = dict(zip(shares, (last["return"].mean(), theirs, HYPERAGENT[game]), strict=True))
        for name, score in scores.items():
            shares[name].append(human_normalised(game, score))
        cells = [f"{score:,.1f} ({human_normalised(game, score):.0%})" for score in scores.values()]
        print("|", " | ".join([game, f"{last['frame'].max() / 1e6:.1f}M", *cells]), "|")
    for kind in ("mean", "median"):
        print("|", " | ".join([kind, "", *(f"{getattr(pd.Series(x), kind)():.1%}" for x in shares.values())]), "|")
    scores = pd.DataFrame(shares)
    for other in ("published", "HyperAgent"):
        low, high = over_games(scores["ours"] - scores[other])
        print(f"ours minus {other}, mean: {low:.1%} to {high:.1%}, 95%, bootstrap over games")


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
    fresh = pd.concat(pd.read_csv(FOLDER / f"{name}.csv") for name in ("seed11", "bounded", "prioritized"))
    published = read_reference([options.reference])
    for table, setting_columns in ((curves, SETTING), (fresh, ["game", "agent", "preset", "seed"])):
        for setting, run in table.groupby(setting_columns):
            same = (published["game"] == setting[0]) & (published["agent"] == setting[1])
            places = place_counts(run, published[same]) if same.any() else {}
            last = run.sort_values("frame")["return"].tail(5).mean()
            print(*setting, f"{run['frame'].max() / 1e6:.1f}M", *places.values(), f"{last:.1f}")
    print_early_scores(fresh, published)
    again = lambda runs: runs["preset"].map({WHOLE[1]: " again"}).fillna("")
    one = with_labels(fresh, WHOLE, lambda runs: runs["agent"].map(ONE) + again(runs))
    draw_with_published(one, published, "curves")
    fresh = with_labels(fresh, ["scaled", "sparse"], lambda runs: runs["preset"])
    draw_with_published(pd.concat([*longest(curves), fresh]), published, "earlier")


if __name__ == "__main__":
    main()
