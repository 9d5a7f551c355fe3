"""The frontier on the N-chain: the longest chain that each agent solves.

An agent solves a length if at least 80% of its seeds score at least 9 (16 of 20). Lengths are tried in increasing order
with default hyper-parameters, and an agent stops after two failures in a row. There are two budgets: one for all
lengths, and one that grows with N.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from feelgood.checks import check_count, check_names
from feelgood.studies.cells import Cell, CellOptions, check_budget, one_table
from feelgood.studies.engine import Plan, run_plans
from feelgood.studies.options import check_agents
from feelgood.studies.output import figure_files, write_files

LENGTHS = (25, 50, 100, 150, 200, 300, 500)
GOOD_SCORE, GOOD_SHARE = 9.0, 0.8
MOST_FAILURES = 2


@dataclass(frozen=True)
class FrontierStudy(CellOptions):
    """The longest N-chain that each agent solves, at a fixed budget and at one that grows with N."""

    agents: tuple[str, ...] = ("steady_fg_ulmcdqn", "fg_ulmcdqn", "ulmcdqn", "dqn")
    """Agents."""
    lengths: tuple[int, ...] = LENGTHS
    """Chain lengths N, in increasing order."""
    budgets: tuple[Literal["fixed", "growing"], ...] = ("fixed", "growing")
    """fixed: `num_steps` at every length. growing: `num_steps` up to N = 100, and in proportion to N beyond."""
    num_steps: int = 100_000
    """Environment steps of a run at N = 100."""
    num_seeds: int = 20
    """Number of seeds of every agent, length and budget."""
    output: Path = Path("runs/frontier")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_agents(self.agents)
        check_names("budgets", self.budgets, ("fixed", "growing"))
        for length in self.lengths:
            check_count("lengths", length, minimum=4)
        if sorted(set(self.lengths)) != list(self.lengths):
            raise ValueError(f"lengths must increase, got {self.lengths!r}")
        check_budget(self.num_steps, self.num_seeds)

    def steps(self, budget: str, length: int) -> int:
        """Environment steps of a run, in whole thousands."""
        grows = budget == "growing" and length > 100
        return round(self.num_steps * length / 100_000) * 1000 if grows else self.num_steps


FILES = {
    "frontier.csv": "a row per agent, budget and length that was tried, and whether the agent solved it",
    **figure_files("frontier", "share of good seeds against length"),
}


def plan(study: FrontierStudy, agent: str, budget: str) -> Plan:
    """Tries one agent at increasing lengths; returns summaries with the number of seeds that score at least 9."""
    from feelgood.studies.nchain import tables as results

    rows, failures = [], 0
    for length in study.lengths:
        num_steps = study.steps(budget, length)
        cell = Cell(f"nchain-{length}", agent, "frontier", [{}], study.seed_list, num_steps)
        table = yield from one_table(cell, study.seeds_per_task)
        num_good = int((results.per_seed(table)["score"] >= GOOD_SCORE).sum())
        held = num_good >= GOOD_SHARE * study.num_seeds
        facts = {"budget": budget, "num_steps": num_steps, "seeds_at_9": num_good, "held": held}
        rows.append(results.summarise(table).assign(**facts))
        failures = 0 if held else failures + 1
        if failures == MOST_FAILURES:
            break
    return rows


def run(study: FrontierStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.runs import store
    from feelgood.studies.nchain import tables as results

    seeds = {"all": study.seed_list}
    with store.recorded(study.output, "frontier", study, seeds=seeds, files=FILES) as facts:
        plans = [plan(study, agent, budget) for budget, agent in itertools.product(study.budgets, study.agents)]
        done = run_plans(study, plans, study.output, facts)
        table = pd.concat([row for rows in done for row in rows], ignore_index=True)
        report(results.frontier_as_markdown(table))
        return write_files(study.output, {"frontier.csv": table, "frontier": results.frontier(table)})
