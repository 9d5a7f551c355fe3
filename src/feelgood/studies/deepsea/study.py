"""The DeepSea study: episodes that an agent needs to solve the deep sea, against its size N.

A run solves its size at the first check at which less than 9 in 10 of its episodes so far were bad: the rule of bsuite
0.3.6 (which corrects 8 in 10). Checks come every five episodes. With wind the rule is 8 in 10, from the 100th
episode on. Without wind, the bad episodes are those that miss the treasure (`feelgood.envs.DeepSeaState`).

The runs of one agent at one size are one batch, which ends when all of them have solved the size, or after the budget.
"""

import itertools
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count
from feelgood.studies.engine import Plan, run_plans, task_of
from feelgood.studies.episodes import ChosenAgent, EpisodeOptions, run_tallied
from feelgood.studies.options import FIRST_TUNING_SEED, PresetInt, fill_in
from feelgood.studies.output import figure_files, write_files

BSUITE_SIZES = tuple(range(10, 51, 2))
BSUITE_MAPPING = 42
CHECK_PERIOD = 5
"""Episodes between two checks of the rule."""
_CHUNK = 50  # episodes; a multiple of ten gives whole blocks of ten steps at every size


@dataclass(frozen=True)
class DeepSeaStudy(EpisodeOptions):
    """Episodes to solve bsuite's DeepSea, a grid of N x N cells, against N."""

    preset: Literal["quick", "default"] = "quick"
    """quick: N = 10 with four seeds, a minute on a CPU. default: bsuite's 21 sizes, 10 to 50, with 20 seeds and
    up to 10,000 episodes; needs a GPU."""
    sizes: tuple[int, ...] = ()
    """Sizes N (default: from the preset)."""
    agents: tuple[str, ...] = ("ensemble_dqn",)
    """Agents. ensemble_dqn has tables, as cells are one-hot; with --options network=mlp it has networks."""
    windy: bool = False
    """Whether the sea is stochastic: a move to the right fails with probability 1/N, and rewards at both ends of the
    last row are noisy."""
    mapping: Literal["fixed", "per-run"] = "fixed"
    """Which action moves right in each cell. fixed: bsuite's mapping, of seed 42, in all runs. per-run: the mapping of
    the run's own seed, as in HyperAgent's experiments."""
    num_episodes: PresetInt = None
    """Most episodes of a run (default: from the preset). A batch ends early once all its runs have solved the size."""
    num_seeds: PresetInt = None
    """Number of seeds of every agent and size (default: from the preset)."""
    output: Path = Path("runs/deepsea")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("preset", self.preset, _PRESETS)
        check_choice("mapping", self.mapping, ("fixed", "per-run"))
        fill_in(self, _PRESETS[self.preset])
        self.check_agents()
        for size in self.sizes:
            check_count("sizes", size, minimum=2)
        if sorted(set(self.sizes)) != list(self.sizes):
            raise ValueError(f"sizes must increase, got {self.sizes!r}")
        check_count("num_episodes", self.num_episodes)
        check_count("num_seeds", self.num_seeds, maximum=FIRST_TUNING_SEED)


_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"sizes": (10,), "num_episodes": 400, "num_seeds": 4},
    "default": {"sizes": BSUITE_SIZES, "num_episodes": 10_000, "num_seeds": 20},
}

FILES = {
    "episodes.csv": "a row per run: episodes until it solved its size, empty if it did not within its budget",
    "summary.csv": "a row per agent and size: runs that solved it, and quartiles of the episodes until then",
    "summary.md": "the same as a Markdown table, with the fitted exponents",
    **figure_files("deepsea", "median episodes to solve against N, next to published results"),
}


def run(study: DeepSeaStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables and figures."""
    import numpy as np
    import pandas as pd

    from feelgood.runs import store
    from feelgood.studies.deepsea import tables

    with store.recorded(study.output, "deepsea", study, seeds={"all": study.seed_list}, files=FILES) as facts:
        plans = [plan(study, *pair) for pair in itertools.product(study.sizes, study.agents)]
        runs = pd.concat(run_plans(study, plans, study.output, facts), ignore_index=True)
        summary = tables.summarise(runs)
        text = tables.as_markdown(summary)
        report(text)
        episodes = runs.astype({"episodes_to_solve": "Int64"})
        files = {"episodes.csv": episodes, "summary.csv": summary, "summary.md": text}
        if not study.windy or np.isfinite(summary["median"]).any():  # published results are without wind
            files["deepsea"] = tables.chart(summary)
        return write_files(study.output, files)


def plan(study: DeepSeaStudy, size: int, agent: str) -> Plan:
    """Runs one agent at one size; returns a table with one row per run."""
    settings = study.windy, study.mapping, study.num_episodes, tuple(study.seed_list)
    batch = Batch(study.chosen(agent), size, *settings)
    config = batch.agent.training(batch.num_episodes * size, _CHUNK * size, is_one_hot=True)
    digest = batch.agent.digest(config, asdict(batch), CHECK_PERIOD)
    (table,) = yield [task_of(batch.name, digest, partial(_run, batch, config, digest))]
    return table


@dataclass(frozen=True)
class Batch:
    """Runs of one agent at one size; see `DeepSeaStudy`."""

    agent: ChosenAgent
    size: int
    windy: bool
    mapping: str
    num_episodes: int
    seeds: tuple[int, ...]

    @property
    def environment(self) -> str:
        """bsuite's name of the experiment."""
        return "deep_sea_stochastic" if self.windy else "deep_sea"

    @property
    def name(self) -> str:
        """Name for progress and logs."""
        return f"{self.environment}-{self.size}/{self.agent.name}"


def _run(batch: Batch, config: Any, digest: str, progress: Any, checkpoint: Path | None):
    """Trains all runs of a batch until all have solved their size."""
    import numpy as np
    import pandas as pd

    from feelgood import envs
    from feelgood.studies.tallies import all_solved, dives

    maps = [seed if batch.mapping == "per-run" else BSUITE_MAPPING for seed in batch.seeds]
    mappings = np.stack([envs.deep_sea_mapping(batch.size, seed) for seed in maps]).astype(np.int32)
    variants = (lambda mapping: envs.deep_sea(batch.size, windy=batch.windy, mapping=mapping), mappings)
    tally = dives(range(CHECK_PERIOD, batch.num_episodes + 1, CHECK_PERIOD), windy=batch.windy)
    spec, rest = batch.agent.spec(), (progress, checkpoint)
    totals, _ = run_tallied(batch.name, digest, spec, variants, batch.seeds, config, tally, all_solved, *rest)
    columns = {
        "environment": batch.environment,
        "agent": spec.name,
        "size": batch.size,
        "network": spec.options.network,
        "mapping": batch.mapping,
        "seed": np.array(batch.seeds, np.int32),
        "episodes_to_solve": np.where(totals.solved > 0, totals.solved, np.nan),
        "budget_episodes": batch.num_episodes,
    }
    return pd.DataFrame(columns)
