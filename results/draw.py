"""Draw exploration.png, DeepSea and the N-chain side by side, and nchain/fair.png, from the tables of results.

python results/draw.py
"""

from pathlib import Path

import pandas as pd

from feelgood.figures.chart import Chart
from feelgood.studies.deepsea import charts as deepsea
from feelgood.studies.deepsea import tables
from feelgood.studies.nchain import charts as nchain
from feelgood.studies.output import write_files

FOLDER = Path(__file__).parent


def main():
    """Draws the figure."""
    runs = pd.read_csv(FOLDER / "deep_sea" / "episodes.csv")
    (sea,) = deepsea.deepsea(tables.summarise(runs[runs["environment"] == "deep_sea"])).panels
    scores = pd.read_csv(FOLDER / "nchain" / "retuned.csv").rename(columns={"error_95": "score_ci"})
    (chain,) = nchain.lengths(scores).panels
    print(*write_files(FOLDER / "nchain", {"fair": nchain.lengths(scores)}), sep="\n")
    ours, *published = sea.series
    sea = sea._replace(title="DeepSea", series=[ours._replace(name=ours.name.partition(":")[0]), *published])
    panels = [sea, chain._replace(title="N-chain")]
    chart = Chart("exploration", "", "", "", panels)
    print(*write_files(FOLDER, {"exploration": chart}), sep="\n")


if __name__ == "__main__":
    main()
