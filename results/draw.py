"""Draw exploration.png, nchain/fair.png and the figures of bandits/ from the tables of results.

python results/draw.py
"""

from pathlib import Path

import pandas as pd

from feelgood.figures.chart import Chart
from feelgood.figures.style import save
from feelgood.studies.bandits.tables import ranking
from feelgood.studies.deepsea import tables as deepsea
from feelgood.studies.nchain import tables as nchain
from feelgood.studies.output import write_files

FOLDER = Path(__file__).parent


def exploration():
    """DeepSea and the N-chain side by side, and the N-chain alone."""
    runs = pd.read_csv(FOLDER / "deep_sea" / "episodes.csv")
    runs = runs[(runs["setting"] == "H") & (runs["environment"] == "deep_sea") & (runs["mapping"] == "fixed")]
    lines = {}
    for network, own in runs.groupby("network"):
        (sea,) = deepsea.chart(deepsea.summarise(own)).panels
        lines[network], *published = sea.series
    scores = pd.read_csv(FOLDER / "nchain" / "retuned.csv").rename(columns={"error_95": "score_ci"})
    (chain,) = nchain.lengths(scores).panels
    print(*write_files(FOLDER / "nchain", {"fair": nchain.lengths(scores)}), sep="\n")
    ours = [
        lines["auto"]._replace(name="Ensemble DQN"),
        lines["mlp"]._replace(name="Ensemble DQN with networks", colour="#8CC7A1", strong=False),
    ]
    sea = sea._replace(title="DeepSea", series=[*ours, *published])
    panels = [sea, chain._replace(title="N-chain")]
    chart = Chart("exploration", "", "", "", panels)
    print(*write_files(FOLDER, {"exploration": chart}), sep="\n")


def bandits():
    """Regret on the linear and logistic problems, on the wheels, and on data sets."""
    folder = FOLDER / "bandits"
    curves = pd.read_parquet(folder / "study" / "curves.parquet")
    is_wheel = curves["problem"].str.startswith("wheel")
    parts = {"linear": curves[~is_wheel], "wheel": curves[is_wheel]}
    parts["data"] = pd.read_parquet(folder / "data" / "curves.parquet")
    for name, table in parts.items():
        save(ranking(table), folder / f"{name}.png")


if __name__ == "__main__":
    exploration()
    bandits()
