"""Sensitivity on the N-chain, after the paper's Figure 3: score against feel-good weight and against friction.

One hyper-parameter at a time moves away from its default; all points of an agent run as one batch, on the same seeds.
"""

from dataclasses import dataclass
from pathlib import Path

from feelgood.checks import check_choice, check_count
from feelgood.studies.nchain import OPTIMUM, run_cell

__all__ = ["VALUES", "SensitivityStudy", "run"]

VALUES: dict[str, tuple[float, ...]] = {
    "feel_good_weight": (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "friction": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
}
AGENTS = ("fg_ulmcdqn", "steady_fg_ulmcdqn")


@dataclass(frozen=True)
class SensitivityStudy:
    """Score on the N-chain against feel-good weight and friction, all else at its default."""

    agents: tuple[str, ...] = AGENTS
    """Agents, of those that have both hyper-parameters."""
    length: int = 25
    """Chain length N."""
    num_steps: int = 10_000
    """Environment steps of a run."""
    num_seeds: int = 10
    """Seeds of every point."""
    output: Path = Path("runs/sensitivity")
    """Folder for results; one that holds an unfinished run of the same study is continued."""

    def __post_init__(self):
        for agent in self.agents:
            check_choice("agents", agent, AGENTS)
        check_count("length", self.length, minimum=4)
        check_count("num_steps", self.num_steps, minimum=1000)
        if self.num_steps % 1000:
            raise ValueError(f"num_steps must be a multiple of 1000, got {self.num_steps}")
        check_count("num_seeds", self.num_seeds)


def points() -> list[tuple[str, float]]:
    """Every hyper-parameter with every value it takes."""
    return [(name, value) for name, values in VALUES.items() for value in values]


def run(study: SensitivityStudy, report=print) -> list[Path]:
    """Runs the study, or what is left of it, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.results import nchain as results
    from feelgood.results import store, style
    from feelgood.results.progress import bar

    with store.recorded(study.output, "sensitivity", study):
        tables = []
        with bar() as progress:
            for agent in study.agents:
                cell = run_cell(
                    study.output,
                    study.length,
                    agent,
                    "sensitivity",
                    [{name: value} for name, value in points()],
                    range(study.num_seeds),
                    progress,
                    num_steps=study.num_steps,
                )
                for i, (name, value) in enumerate(points()):
                    summary = results.summarise(cell[cell["point"] == i], OPTIMUM)
                    tables.append(summary.assign(parameter=name, value=value))
        table = pd.concat(tables, ignore_index=True)
        paths = [study.output / "sensitivity.csv"]
        store.write_text(paths[0], table.to_csv(index=False))
        report(results.sensitivity_as_markdown(table))
        paths += style.save(results.draw_sensitivity(table), study.output / "sensitivity")
    return paths
