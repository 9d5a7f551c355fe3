"""The result of training."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from feelgood.figures import style
from feelgood.figures.curves import learning_curves
from feelgood.runs import store
from feelgood.statistics import final_scores
from feelgood.training.policy import Policy
from feelgood.training.policy_files import save_policy

if TYPE_CHECKING:
    import matplotlib.figure


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of training.

    Attributes:
      curve: one row for each run and evaluation, starting with the untrained network: `agent`, `environment`, `seed`,
        `step`, `return`, `random_return` (of random actions: the mean over as many episodes as an evaluation has, and
        over 100 in functional environments) and more.
      policies: the final policy of each run.
      best_policies: for each run the policy with the highest evaluation return, which is biased upwards as the best of
        several noisy estimates; empty for functional environments.
    """

    curve: pd.DataFrame
    policies: tuple[Policy, ...]
    best_policies: tuple[Policy, ...] = ()

    @property
    def policy(self) -> Policy:
        """The final policy of the first run."""
        return self.policies[0]

    @property
    def best_policy(self) -> Policy:
        """The best policy of the first run; the final one for functional environments."""
        return (self.best_policies or self.policies)[0]

    def __repr__(self) -> str:
        return "\n".join(self.summary())

    def summary(self) -> list[str]:
        """One line per environment and agent: return in the last three evaluations, and return of random actions."""
        lines = []
        for (environment, agent), rows in self._groups():
            ends = final_scores(rows, last=3)["score"].dropna()
            end = f"final return {_number(ends.mean())}" if len(ends) else "diverged"
            if len(ends) > 1:
                end += f" ({_number(ends.min())} to {_number(ends.max())} over {len(ends)} seeds)"
            random = f", random actions {_number(rows['random_return'].iloc[0])}" if "random_return" in rows else ""
            lines.append(f"{agent} in {environment}: {end} after {rows['step'].max():,} steps{random}")
        return lines

    def not_above_random(self) -> list[tuple[str, str]]:
        """Environment and a sentence for each agent whose final return is not above that of random actions."""
        if "random_return" not in self.curve:
            return []
        lines = []
        for (environment, agent), rows in self._groups():
            end, random = final_scores(rows, last=3)["score"].mean(), rows["random_return"].iloc[0]
            how = "never changed" if rows["return"].nunique() == 1 else f"ended at {_number(end)}"
            if end <= random:
                why = f"its return {how}, and that of random actions is {_number(random)}"
                lines.append((environment, f"{agent} did not learn in {environment}: {why}"))
        return lines

    def _groups(self):
        return self.curve.groupby(["environment", "agent"], sort=False)

    def plot(self) -> "matplotlib.figure.Figure":
        """Draws the evaluation return against steps, with a 95% interval if there are several seeds."""
        from feelgood.figures.draw import draw

        return draw(learning_curves(self.curve))

    def save(self, folder: str | Path) -> list[Path]:
        """Writes `curves.parquet`, its figure, and the policies to `policy/` and `best_policy/`.

        With several runs, each policy has its own folder such as `policy/seed-3` or `policy/dqn-CartPole-v1/seed-3`.
        Returns the files.
        """
        folder = Path(folder)
        store.write_table(folder / "curves.parquet", self.curve)
        paths = [folder / "curves.parquet", *style.save(self.plot(), folder / "curves")]
        runs = self.curve[["environment", "agent", "seed"]].drop_duplicates()
        if len(runs) == 1:
            return paths + self.save_policies(folder)
        several = len(runs.drop_duplicates(["environment", "agent"])) > 1
        for kind, policies in (("policy", self.policies), ("best_policy", self.best_policies)):
            for run, policy in zip(runs.itertuples(), policies, strict=False):
                place = folder / kind / pair_name(run.agent, run.environment) if several else folder / kind
                paths += save_policy(place / f"seed-{run.seed}", policy)
        return paths

    def save_policies(self, folder: str | Path) -> list[Path]:
        """Writes the policies of the first run to `policy/` and `best_policy/`; returns the files."""
        paths = []
        for kind, policies in (("policy", self.policies), ("best_policy", self.best_policies)):
            paths += save_policy(Path(folder) / kind, policies[0]) if policies else []
        return paths


def merged(results: Sequence[Result]) -> Result:
    """The results of several calls of `train` as one."""
    parts = [[getattr(result, name) for result in results] for name in ("curve", "policies", "best_policies")]
    return Result(pd.concat(parts[0], ignore_index=True), *(tuple(itertools.chain(*part)) for part in parts[1:]))


def pair_name(agent: str, environment: str) -> str:
    """The name of a folder for an agent in an environment."""
    return re.sub(r"[^\w.-]+", "-", f"{agent}-{environment}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
