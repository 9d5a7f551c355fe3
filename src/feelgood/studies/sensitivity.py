"""Sensitivity on the N-chain, after the paper's Figure 3: score against feel-good weight and against friction.

One hyper-parameter is varied at a time; all points of an agent run as one batch, on the same seeds.
"""

from dataclasses import dataclass
from pathlib import Path

from feelgood.checks import check_count, check_names
from feelgood.studies.cells import Cell, CellOptions, check_budget, one_table
from feelgood.studies.engine import Plan, run_plans
from feelgood.studies.output import figure_files, write_files

VALUES: dict[str, tuple[float, ...]] = {
    "feel_good_weight": (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "friction": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
}
POINTS = [(name, value) for name, values in VALUES.items() for value in values]
AGENTS = ("fg_ulmcdqn", "steady_fg_ulmcdqn")


@dataclass(frozen=True)
class SensitivityStudy(CellOptions):
    """Score on the N-chain against feel-good weight and friction, with defaults otherwise."""

    agents: tuple[str, ...] = AGENTS
    """Agents; they need both hyper-parameters."""
    length: int = 25
    """Chain length N."""
    num_steps: int = 10_000
    """Environment steps of a run."""
    num_seeds: int = 10
    """Number of seeds of every point."""
    output: Path = Path("runs/sensitivity")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_names("agents", self.agents, AGENTS)
        check_count("length", self.length, minimum=4)
        check_budget(self.num_steps, self.num_seeds)


FILES = {
    "sensitivity.csv": "a row per agent, hyper-parameter and value: scores with 95% confidence intervals over seeds",
    **figure_files("sensitivity", "score against each hyper-parameter"),
}


def plan(study: SensitivityStudy, agent: str) -> Plan:
    """Runs one agent at all points; returns a summary of each point."""
    from feelgood.studies.nchain import tables as results

    values = [{name: value} for name, value in POINTS]
    cell = Cell(f"nchain-{study.length}", agent, "sensitivity", values, study.seed_list, study.num_steps)
    table = yield from one_table(cell, study.seeds_per_task)
    summary = lambda i: results.summarise(table[table["point"] == i])
    return [summary(i).assign(parameter=name, value=value) for i, (name, value) in enumerate(POINTS)]


def run(study: SensitivityStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.runs import store
    from feelgood.studies.nchain import tables as results

    seeds = {"all": study.seed_list}
    with store.recorded(study.output, "sensitivity", study, seeds=seeds, files=FILES) as facts:
        done = run_plans(study, [plan(study, agent) for agent in study.agents], study.output, facts)
        table = pd.concat([summary for summaries in done for summary in summaries], ignore_index=True)
        report(results.sensitivity_as_markdown(table))
        return write_files(study.output, {"sensitivity.csv": table, "sensitivity": results.sensitivity(table)})
