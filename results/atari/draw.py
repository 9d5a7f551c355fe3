"""Draws curves.png and prints how each run compares with published curves.

python results/atari/draw.py --reference atari_curves.csv     # agent, game, seed, frame, return: a row per evaluation
"""

import argparse
from pathlib import Path

import pandas as pd

from feelgood.figures import style
from feelgood.figures.draw import draw
from feelgood.studies.atari.charts import curves_and_published
from feelgood.studies.atari.tables import beside, read_reference

FOLDER = Path(__file__).parent
SAMPLER = ["form", "bias_factor", "bias_epsilon", "inverse_temperature", "feel_good_weight"]
SETTING = ["game", "agent", *SAMPLER, "init", "pixel_scale", "draw_steps", "prioritized", "seed", "run"]
# Of each setting the longest run is drawn.
AGENT = "fg_ulmcdqn"
SCALED = {"form": "released", "bias_epsilon": 1.5e-4, "draw_steps": 50}
NOISY = {"inverse_temperature": 1e8, "init": "unbiased", "prioritized": False}
DRAWN = {
    "sparse": {**NOISY, "form": "corrected", "bias_factor": 0.03, "pixel_scale": 0.0625, "feel_good_weight": 1e-4},
    "scaled": {**NOISY, **SCALED, "feel_good_weight": 1e-4},
    "scaled, η = 1e-3, no noise": {**SCALED, "inverse_temperature": 1e16, "init": "torch", "feel_good_weight": 1e-3},
}


def drawn(curves):
    """What goes into the figure, `agent` telling the settings apart."""
    for label, setting in DRAWN.items():
        setting = pd.Series({"agent": AGENT, **setting})
        same = curves[(curves[setting.index] == setting).all(axis=1)]
        for _, runs in same.groupby("game"):
            one = runs[["seed", "run"]].apply(tuple, axis=1)
            yield runs[one == one[runs["frame"].idxmax()]].assign(agent=label)


def main():
    """Prints the comparison, then draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", type=Path, required=True)
    options = parser.parse_args()
    curves = pd.read_csv(FOLDER / "curves.csv")
    published = read_reference([options.reference])
    for setting, run in curves.groupby(SETTING):
        same = (published["game"] == setting[0]) & (published["agent"] == setting[1])
        places = beside(run, published[same])
        last = run.sort_values("frame")["return"].tail(5).mean()
        print(*setting, f"{run['frame'].max() / 1e6:.1f}M", *places.values(), f"{last:.1f}")
    ours = pd.concat(drawn(curves)).sort_values("game", kind="stable")
    # Others' curves as far as ours go, once in each panel: with the first setting there.
    reach, first = 1.05 * ours.groupby("game")["frame"].max(), ours.groupby("game")["agent"].first()
    published = published[(published["agent"] == AGENT) & published["game"].isin(reach.index)]
    published = published[published["frame"] <= published["game"].map(reach)]
    style.save(
        draw(curves_and_published(ours, published.assign(agent=published["game"].map(first)))), FOLDER / "curves"
    )


if __name__ == "__main__":
    main()
