"""The bsuite study: bsuite's experiments on exploration and its basic ones, with bsuite's ids, budgets and scores.

The experiments are `deep_sea`, `deep_sea_stochastic`, `cartpole_swingup`, `bandit`, `catch`, `mountain_car` and
`cartpole`, as in bsuite 0.3.6. Its other experiments, among them memory and MNIST, are left out. An agent has one
setting, its default, in all of them.

The runs of one agent in one experiment are one batch (for a deep sea, those of one size), which ends when the score can
no longer change: when all runs have had their episodes, or solved their deep sea.
"""

import itertools
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count
from feelgood.studies.bsuite.experiments import EXPERIMENTS, LOGGED, environments, is_sea, read_ids
from feelgood.studies.engine import Plan, run_plans, task_of
from feelgood.studies.episodes import ChosenAgent, EpisodeOptions, run_tallied
from feelgood.studies.options import PresetInt, fill_in
from feelgood.studies.output import figure_files, write_files

_RUNS_PER_SEED = 100  # the run of id i and seed s has the key of 100·s + i
MOST_SEEDS = 10_000
MOST_EPISODES = max(experiment.num_episodes for experiment in EXPERIMENTS.values())


@dataclass(frozen=True)
class BsuiteStudy(EpisodeOptions):
    """Scores on bsuite's experiments on exploration and on its basic ones (without MNIST and memory)."""

    preset: Literal["quick", "default"] = "quick"
    """quick: DQN on the first id of every experiment for 300 or 30 episodes, two minutes on a CPU; its scores mean
    little. default: ensemble_dqn and DQN on all ids with bsuite's budgets; needs a GPU."""
    ids: tuple[str, ...] = ()
    """bsuite's ids, such as catch/0, or names of experiments for all their ids (default: from the preset)."""
    agents: tuple[str, ...] = ()
    """Agents (default: from the preset)."""
    num_episodes: PresetInt = None
    """Episodes per run for experiments with a budget of 10,000 (default: from the preset). Experiments with a budget of
    1,000 use a tenth."""
    num_seeds: int = 1
    """Number of seeds of every id; bsuite has one."""
    output: Path = Path("runs/bsuite")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("preset", self.preset, _PRESETS)
        fill_in(self, _PRESETS[self.preset])
        self.check_agents()
        read_ids(self.ids)
        check_count("num_episodes", self.num_episodes, maximum=MOST_EPISODES)
        check_count("num_seeds", self.num_seeds)
        if max(self.seed_list) >= MOST_SEEDS:
            raise ValueError(f"seeds must be below {MOST_SEEDS}, got {max(self.seed_list)}")


_PRESETS: dict[str, dict[str, Any]] = {
    # With ensemble_dqn, ten episodes or one of each took 260 seconds of CPU time; this takes 116.
    "quick": {"ids": tuple(f"{name}/0" for name in EXPERIMENTS), "agents": ("dqn",), "num_episodes": 300},
    "default": {"ids": tuple(EXPERIMENTS), "agents": ("ensemble_dqn", "dqn"), "num_episodes": MOST_EPISODES},
}

FILES = {
    "runs.csv": "a row per agent, id and seed: episodes, returns, and the episode at which a deep sea was solved",
    "scores.csv": "a row per agent and experiment: bsuite's score, and the ids, seeds and episodes that it rests on",
    "scores.md": "the same as a Markdown table",
    **figure_files("bsuite", "scores of all experiments"),
}


def run(study: BsuiteStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.runs import store
    from feelgood.studies.bsuite import scores

    with store.recorded(study.output, "bsuite", study, seeds={"all": study.seed_list}, files=FILES) as facts:
        plans = itertools.starmap(plan, itertools.product(map(study.chosen, study.agents), batches(study)))
        runs = pd.concat(run_plans(study, list(plans), study.output, facts), ignore_index=True)
        summary = scores.summarise(runs)
        text = scores.as_markdown(summary)
        by_name = runs.groupby("experiment", sort=False)["steps_per_second"].max()
        speeds = ", ".join(f"{name} {speed:,.0f}" for name, speed in by_name.items() if speed > 0) or "not measured"
        report(f"{text}\nEnvironment steps per second, all runs of a batch together: {speeds}.")
        tables = {"runs.csv": runs.astype({"solved_episode": "Int64"}), "scores.csv": summary, "scores.md": text}
        return write_files(study.output, {**tables, "bsuite": scores.chart(summary)})


@dataclass(frozen=True)
class Batch:
    """Runs of some ids of one experiment; for a deep sea, ids of one size."""

    experiment: str
    numbers: tuple[int, ...]
    seeds: tuple[int, ...]
    num_episodes: int

    @property
    def name(self) -> str:
        """Name for progress and logs."""
        return f"{self.experiment}/{self.numbers[0]}" if len(self.numbers) == 1 else self.experiment

    @property
    def max_steps(self) -> int:
        """Most steps of an episode."""
        known = EXPERIMENTS[self.experiment]
        return known.max_steps or int(known.settings[self.numbers[0]]["size"])

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Number of the id and seed of each run."""
        return list(itertools.product(self.numbers, self.seeds))


def batches(study: BsuiteStudy) -> list[Batch]:
    """The batches of a study, in the order of its ids."""
    found = []
    for name, numbers in read_ids(study.ids).items():
        num_episodes = -(-study.num_episodes * EXPERIMENTS[name].num_episodes // MOST_EPISODES)
        groups = [(number,) for number in numbers] if is_sea(name) else [tuple(numbers)]
        found += [Batch(name, group, tuple(study.seed_list), num_episodes) for group in groups]
    return found


def plan(agent: ChosenAgent, batch: Batch) -> Plan:
    """Runs one agent on one batch; returns a table with one row per run."""
    # Whole blocks of ten steps; at most 200 chunks, each no shorter than the episode that evaluates the agent after it.
    most_steps = batch.num_episodes * batch.max_steps
    period = 10 * -(-min(most_steps, max(100, batch.max_steps, most_steps // 200)) // 10)
    config = agent.training(most_steps, period, is_one_hot=is_sea(batch.experiment))
    settings = [EXPERIMENTS[batch.experiment].settings[number] for number in batch.numbers]
    digest = agent.digest(config, asdict(batch), settings)
    (table,) = yield [task_of(f"{batch.name}/{agent.name}", digest, partial(_run, agent, batch, config, digest))]
    return table


def _run(agent: ChosenAgent, batch: Batch, config: Any, digest: str, progress: Any, checkpoint: Path | None):
    """Trains all runs of a batch until their score is known."""
    import numpy as np
    import pandas as pd

    from feelgood.studies.tallies import all_solved, dives, episodes, have_ended

    sea = is_sea(batch.experiment)
    if sea:
        checks = [check for check in LOGGED if check <= batch.num_episodes]
        tally, until = dives(checks, windy=batch.experiment == "deep_sea_stochastic"), all_solved
    else:
        tally, until = episodes(batch.num_episodes), partial(have_ended, batch.num_episodes)
    name, rest = f"{batch.name}/{agent.name}", (progress, checkpoint)
    variants = environments(batch.experiment, [number for number, _ in batch.pairs])
    keys = [_RUNS_PER_SEED * seed + number for number, seed in batch.pairs]
    totals, speed = run_tallied(name, digest, agent.spec(), variants, keys, config, tally, until, *rest)
    columns = {
        "bsuite_id": [f"{batch.experiment}/{number}" for number, _ in batch.pairs],
        "experiment": batch.experiment,
        "agent": agent.name,
        "seed": np.array([seed for _, seed in batch.pairs], np.int32),
        "budget_episodes": batch.num_episodes,
        "episodes": np.minimum(totals.episodes, batch.num_episodes),
        "size": batch.max_steps if sea else np.nan,
        "solved_episode": np.where(totals.solved > 0, totals.solved, np.nan) if sea else np.nan,
        "bad_episodes": totals.bad if sea else np.nan,
        "total_return": np.nan if sea else totals.total,
        "best_episode": np.nan if sea else totals.best,
        "steps_per_second": speed,
    }
    return pd.DataFrame(columns)
