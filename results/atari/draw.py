"""Draw curves.png and print how each run compares with published curves.

python results/atari/draw.py --reference atari_curves.csv     # agent, game, seed, frame, return: a row per evaluation
"""

import argparse
from pathlib import Path

import pandas as pd

from feelgood.figures import style
from feelgood.figures.draw import draw
from feelgood.studies.atari.charts import curves_and_published
from feelgood.studies.atari.tables import place_counts, read_reference

FOLDER = Path(__file__).parent
SAMPLER = ["form", "bias_factor", "bias_epsilon", "inverse_temperature", "feel_good_weight"]
SETTING = ["game", "agent", *SAMPLER, "init", "pixel_scale", "draw_steps", "prioritized", "seed", "run"]
# The figure has the longest run of each of these settings, and all other runs of a preset.
AGENT = "fg_ulmcdqn"
SCALED = {"form": "released", "bias_epsilon": 1.5e-4, "draw_steps": 50}
SPARSE = {"form": "corrected", "bias_factor": 0.03, "pixel_scale": 0.0625}
NOISY = {"inverse_temperature": 1e8, "init": "unbiased", "prioritized": False}
DRAWN = {
    "sparse, seed 0": {**NOISY, **SPARSE, "feel_good_weight": 1e-4},
    "scaled, seed 0": {**NOISY, **SCALED, "feel_good_weight": 1e-4},
    "scaled, λ = 1e-3, no noise, seed 0": {
        **SCALED,
        "inverse_temperature": 1e16,
        "init": "torch",
        "feel_good_weight": 1e-3,
    },
}


def drawn(curves, fresh):
    """Yield the runs of the figure, with a label of their setting as `agent`."""
    columns = ["game", "agent", "seed", "frame", "return"]
    for label, setting in DRAWN.items():
        setting = pd.Series({"agent": AGENT, **setting})
        same = curves[(curves[setting.index] == setting).all(axis=1)]
        for _, runs in same.groupby("game"):
            one = runs[["seed", "run"]].apply(tuple, axis=1)
            yield runs[one == one[runs["frame"].idxmax()]].assign(agent=label)[columns]
    fresh = fresh[fresh["preset"].isin(["scaled", "sparse", "prioritized"])]
    yield fresh.assign(agent=fresh["preset"] + ", seed " + fresh["seed"].astype(str))[columns]


def plain(line):
    """Draw published curves in grey under one name, and all lines equally strong."""
    if line.dashed:
        line = line._replace(name="published: median and range of five seeds", colour=style.COLOURS["grey"])
    return line._replace(strong=False)


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
            places = place_counts(run, published[same])
            last = run.sort_values("frame")["return"].tail(5).mean()
            print(*setting, f"{run['frame'].max() / 1e6:.1f}M", *places.values(), f"{last:.1f}")
    ours = pd.concat(drawn(curves, fresh)).sort_values("game", kind="stable")
    # Published curves up to the end of ours, once in each panel: with the first setting there.
    reach, first = 1.05 * ours.groupby("game")["frame"].max(), ours.groupby("game")["agent"].first()
    published = published[(published["agent"] == AGENT) & published["game"].isin(reach.index)]
    published = published[published["frame"] <= published["game"].map(reach)]
    chart = curves_and_published(ours, published.assign(agent=published["game"].map(first)))
    panels = [panel._replace(series=[plain(line) for line in panel.series]) for panel in chart.panels]
    style.save(draw(chart._replace(panels=panels)), FOLDER / "curves")


if __name__ == "__main__":
    main()
