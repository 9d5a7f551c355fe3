"""The result of training."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from feelgood.figures import style
from feelgood.figures.curves import learning_curves
from feelgood.figures.draw import draw
from feelgood.runs import store
from feelgood.training.policy import Policy
from feelgood.training.policy_files import save_policy


@dataclass(frozen=True, eq=False)
class Result:
    """The result of training.

    Attributes:
      curve: one row for each seed and evaluation, starting with the untrained network: `agent`, `environment`, `seed`,
        `step`, `return` and more.
      policies: the final policy of each seed.
    """

    curve: pd.DataFrame
    policies: tuple[Policy, ...]

    @property
    def policy(self) -> Policy:
        """The policy of the first seed."""
        return self.policies[0]

    def plot(self) -> Figure:
        """Draws the evaluation return against steps, with a 95% interval if there are several seeds."""
        return draw(learning_curves(self.curve))

    def save(self, folder: str | Path) -> list[Path]:
        """Writes `curves.parquet`, its figure, and `policy/` (with a folder for each of several seeds).

        Returns:
          The files.
        """
        folder = Path(folder)
        store.write_table(folder / "curves.parquet", self.curve)
        paths = [folder / "curves.parquet", *style.save(self.plot(), folder / "curves")]
        seeds = list(dict.fromkeys(self.curve["seed"]))
        for seed, policy in zip(seeds, self.policies, strict=True):
            paths += save_policy(folder / "policy" if len(seeds) == 1 else folder / "policy" / f"seed-{seed}", policy)
        return paths
