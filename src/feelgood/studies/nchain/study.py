"""The N-chain study, after the paper's Figure 1: deep exploration against chain length.

For each chain length and agent, hyper-parameters are chosen on tuning seeds by halving (all points of the grid on a few
seeds, the best of them on more), and the winner is run on fresh seeds, the same for every agent. Tuning seeds and
reporting seeds are disjoint. Each pair of a length and an agent is an independent plan.
"""

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count, check_names
from feelgood.pairs import grid_points
from feelgood.studies.cells import Cell, CellOptions, check_budget, one_table, tables_of
from feelgood.studies.engine import Plan, run_plans
from feelgood.studies.options import FIRST_TUNING_SEED, PresetInt, check_options, fill_in, grouped
from feelgood.studies.output import figure_files, write_files

# The paper's table `tb:nchain`, widened if its winner was at an edge. The adaptive agents have one temperature: at all
# three of the paper's the noise is below rounding and the scores are those of β = ∞ (docs/reproduction.md).
_ADAPTIVE = {"step_size": (1e-2, 1e-3), "bias_factor": (3.0, 1.0, 0.1), "inverse_temperature": (1e10,)}
_FRICTION = {"friction": (1.0, 0.1, 0.01)}
_FEEL_GOOD = {"feel_good_weight": (1.0, 0.1, 0.01)}
_NOISY: dict[str, tuple[float, ...]] = {"step_size": (1e-1, 1e-2, 1e-3), "inverse_temperature": (1e10, 1e6, 1e4)}
_RATES: dict[str, tuple[float, ...]] = {"step_size": (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)}

GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "fg_ulmcdqn": _ADAPTIVE | _FRICTION | _FEEL_GOOD,
    "fg_lmcdqn": _ADAPTIVE | _FEEL_GOOD,
    "ulmcdqn": _ADAPTIVE | _FRICTION,
    "adam_lmcdqn": _ADAPTIVE | {"inverse_temperature": (1e8, 1e4)},
    "lmcdqn": _NOISY,
    "langevin_dqn": _NOISY,
    "dqn": _RATES,
    "bootstrapped_dqn": {
        "step_size": (3e-3, 1e-3, 3e-4, 1e-4),
        "prior_scale": (1.0, 3.0, 10.0),
        "initial_epsilon": (1.0, 0.0),
        "final_epsilon": (0.0,),
    },
    "noisynet_dqn": _RATES,
    "steady_fg_ulmcdqn": {"step_size": (1e-2, 3e-3), "friction": (1.0, 0.3), "feel_good_weight": (0.1, 0.05, 0.03)},
    "prioritized_dqn": _RATES,
    "c51": _RATES,
    "iqn": _RATES,
    "ensemble_dqn": {"step_size": (3e-3, 1e-3, 3e-4, 1e-4), "prior_scale": (1.0, 0.3, 0.1, 0.03)},
}
# The paper's agents and its baselines.
_NINE = tuple(GRIDS)[:9]

# The best of a few points of the grid after 10,000 steps at N = 25 on 32 tuning seeds (from 1,000,100).
_QUICK = {
    "fg_ulmcdqn": {"step_size": 1e-2, "bias_factor": 1.0, "friction": 1.0, "feel_good_weight": 0.1},
    "ulmcdqn": {"step_size": 1e-2, "bias_factor": 1.0, "friction": 1.0},
}


@dataclass(frozen=True)
class NChainStudy(CellOptions):
    """Deep exploration on the N-chain: scores of every agent at every length, with confidence intervals."""

    preset: Literal["quick", "default", "paper"] = "quick"
    """quick: three agents at N = 25 for 10,000 steps, minutes on a CPU. default: all agents at N = 25 to 100 with their
    default hyper-parameters. paper: the paper's nine agents, tuned on its grid; needs a GPU."""
    lengths: tuple[int, ...] = ()
    """Chain lengths N (default: from the preset)."""
    agents: tuple[str, ...] = ()
    """Agents (default: from the preset)."""
    num_steps: PresetInt = None
    """Environment steps of a run (default: from the preset)."""
    num_seeds: PresetInt = None
    """Number of fresh seeds for the results (default: from the preset)."""
    tuning_seeds: tuple[int, ...] = grouped("tuning", ())
    """Number of tuning seeds in each round of halving (default: from the preset; only paper tunes)."""
    num_kept: int = grouped("tuning", 4)
    """Smallest number of points that advance to the next round; ties and near ties advance too."""
    cold: tuple[str, ...] = grouped("agent", ())
    """Agents that also run without noise (β = ∞) on the same seeds, reported as NAME_cold."""
    ablate: bool = grouped("agent", False)
    """Whether to ablate each part of steady_fg_ulmcdqn on the same seeds, reported as steady_fg_ulmcdqn_no_PART."""
    options: tuple[str, ...] = grouped("agent", ())
    """Agent options, as in form=paper double=true; the names are those of `feelgood.agents.Options`."""
    output: Path = Path("runs/nchain")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("preset", self.preset, _PRESETS)
        check_options(self.options)
        fill_in(self, _PRESETS[self.preset])
        for length in self.lengths:
            check_count("lengths", length, minimum=4)
        check_names("agents", self.agents, GRIDS)
        check_names("cold", self.cold, [name for name in GRIDS if "inverse_temperature" in GRIDS[name]])
        check_names("cold", self.cold, self.agents)
        if self.ablate and "steady_fg_ulmcdqn" not in self.agents:
            raise ValueError(f"ablate needs steady_fg_ulmcdqn among the agents, got {', '.join(self.agents)}")
        if len(set(self.lengths)) < len(self.lengths):
            raise ValueError(f"lengths must not repeat, got {self.lengths!r}")
        check_budget(self.num_steps, self.num_seeds)
        check_count("num_kept", self.num_kept)
        for count in self.tuning_seeds:
            check_count("tuning_seeds", count)


_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"lengths": (25,), "agents": ("fg_ulmcdqn", "ulmcdqn", "dqn"), "num_steps": 10_000, "num_seeds": 20},
    "default": {"lengths": (25, 50, 75, 100), "agents": tuple(GRIDS), "num_steps": 100_000, "num_seeds": 20},
    "paper": {
        "lengths": (25, 50, 75, 100),
        "agents": _NINE,
        "num_steps": 100_000,
        "num_seeds": 100,
        "tuning_seeds": (16, 48),
    },
}


FILES = {
    "curves.parquet": "a row per run and evaluation, with the hyper-parameters of the run",
    "summary.csv": "a row per length and agent: scores with 95% confidence intervals over seeds",
    "summary.md": "the same as a Markdown table",
    "sweep.csv": "every point of the grids with its score on tuning seeds",
    **figure_files("curves", "learning curves"),
    **figure_files("lengths", "score against length"),
}


def run(study: NChainStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.figures.curves import learning_curves
    from feelgood.runs import store
    from feelgood.studies.nchain import tables as results

    seeds = {"reporting": study.seed_list, **tuning_seeds(study.tuning_seeds)}
    with store.recorded(study.output, "nchain", study, seeds=seeds, files=FILES) as facts:
        plans = [plan(study, *pair) for pair in itertools.product(study.lengths, study.agents)]
        done = run_plans(study, plans, study.output, facts)
        table = pd.concat([curves for of_pair, _ in done for curves in of_pair], ignore_index=True)
        sweep = [tuned for _, tuned in done if tuned is not None]
        summary = results.summarise(table)
        report(text := results.as_markdown(summary))
        files = {"curves.parquet": table, "summary.csv": summary, "summary.md": text}
        if sweep:
            files["sweep.csv"] = pd.concat(sweep, ignore_index=True)
        files["curves"] = learning_curves(table)
        if len(study.lengths) > 1:
            files["lengths"] = results.lengths(summary)
        return write_files(study.output, files)


def plan(study: NChainStudy, length: int, agent: str) -> Plan:
    """Tunes one agent at one length and runs it on fresh seeds; returns curves and the tuning table, if any."""

    settings = study.num_steps, study.options
    cell = lambda stage, points, seeds: Cell(f"nchain-{length}", agent, stage, points, seeds, *settings)
    hyper: dict[str, float] = _QUICK.get(agent, {}) if study.preset == "quick" else {}
    tuned = None
    if study.tuning_seeds:
        table_of = lambda *runs: one_table(cell(*runs), study.seeds_per_task)
        tuned = yield from tune(table_of, GRIDS[agent], study.tuning_seeds, study.num_kept)
        hyper = best(tuned, GRIDS[agent])
        tuned = tuned.assign(length=length, agent=agent)
    reports = {"report": {agent: hyper}}
    if agent in study.cold:
        # The noise is far below rounding.
        reports["report-cold"] = {f"{agent}_cold": {**hyper, "inverse_temperature": 1e30}}
    if study.ablate and agent == "steady_fg_ulmcdqn":
        reports["report-parts"] = {f"{agent}_{part}": point for part, point in ablations(hyper).items()}
    cells = [cell(stage, list(points.values()), study.seed_list) for stage, points in reports.items()]
    tables = yield from tables_of(cells, study.seeds_per_task)
    from feelgood import agents

    curves = [
        table[table["point"] == i].assign(agent=name, **{**agents.ZOO[agent].hyper, **point})
        for points, table in zip(reports.values(), tables, strict=True)
        for i, (name, point) in enumerate(points.items())
    ]
    return curves, tuned


def ablations(hyper: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Hyper-parameters of the steady agent without each of its parts, by name of the part."""
    from feelgood import agents

    whole = {**agents.ZOO["steady_fg_ulmcdqn"].hyper, **hyper}
    disabled = {
        "no_falling_step": {"step_size_end": whole["step_size"]},
        "no_falling_weight": {"feel_good_weight_end": whole["feel_good_weight"]},
        "no_average": {"average_decay": 0.0},
    }
    disabled["no_part"] = {name: value for part in disabled.values() for name, value in part.items()}
    return {part: {**whole, **without} for part, without in disabled.items()}


def tuning_seeds(counts: Sequence[int]) -> dict[str, range]:
    """The seeds of each round of tuning."""
    ends = list(itertools.accumulate(counts, initial=FIRST_TUNING_SEED))
    return {f"tuning, round {i + 1}": range(*ends[i : i + 2]) for i in range(len(counts))}


def tune(
    table_of: Callable[..., Any], grid: Mapping[str, Sequence[float]], counts: Sequence[int], num_kept: int
) -> Generator[Any, Any, Any]:
    """Part of a plan: chooses among the points of a grid by halving, on `counts` fresh tuning seeds in each round.

    The `num_kept` best points advance to the next round, with every point within one standard error of the last of
    these. So the order of the grid never decides between tied points. `table_of(stage, points, seeds)` is a part of a
    plan that returns the table of these runs, see `one_table`.

    Returns:
      Every point with its mean score, the number of seeds behind it (`count`), its mean return over all evaluations
      (`area`), which decides between points of equal score, and the standard error of the score (`error`).
    """
    import numpy as np
    import pandas as pd

    points = grid_points(grid)
    scores = []
    mean = lambda runs: runs.mean(skipna=False)
    for i, seeds in enumerate(tuning_seeds(counts).values()):
        table = yield from table_of(f"tune-{i}", points, seeds)
        trained = table[table["step"] > 0]
        # A diverged run has no score, so a point with such a run loses against every point without.
        returns = trained["return"].where(trained["finite"].astype(bool)).groupby([trained["point"], trained["seed"]])
        runs = returns.agg(score=lambda values: mean(values.iloc[-10:]), area=mean).astype(float).reset_index()
        scores.append(runs.merge(pd.DataFrame(points).assign(point=range(len(points))), on="point"))
        by_point = pd.concat(scores).groupby(list(grid), as_index=False)
        merged = by_point.agg(count=("score", "size"), score=("score", mean), area=("area", mean), std=("score", "std"))
        merged["error"] = merged.pop("std") / np.sqrt(merged["count"])
        survivors = _ranked(merged[merged["count"] == merged["count"].max()])
        last = survivors.head(num_kept).iloc[-1]
        error = last["error"] if last["error"] > 0 else 0.0  # NaN with one seed
        count = max(num_kept, int((survivors["score"] >= last["score"] - error).sum()))
        points = survivors.head(count)[list(grid)].to_dict("records")
    return merged


def _ranked(table):
    """Best first. Only points with the most seeds, which passed all rounds, can win."""
    return table.sort_values(["count", "score", "area"], ascending=False, kind="stable")


def best(table, grid: Mapping[str, Any]) -> dict[str, float]:
    """The winner of `tune`: the point with the highest score among those that passed all rounds."""
    row = _ranked(table).iloc[0]
    return {name: float(row[name]) for name in grid}
