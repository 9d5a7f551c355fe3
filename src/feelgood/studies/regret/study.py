"""Regret in linear MDPs, for the paper's Table 1 and theorems; each part has a table and a figure.

Tuning seeds and reporting seeds are disjoint.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count, check_names
from feelgood.studies.options import PresetInt, SeedOptions, fill_in, grouped
from feelgood.studies.output import part_files, run_parts

_DESCRIPTIONS = {
    "curves": "cumulative regret at marked episodes, a row per MDP, algorithm, constants, seed and episode",
    "exponents": "cumulative regret at several dimensions and horizons",
    "budget": "regret by sampler and gradients per stage and episode",
    "errors": "total variation between samples and posterior, a row per sampler, steps, seed and episode",
    "complexity": "gradients needed for a given total variation",
}
PARTS = tuple(_DESCRIPTIONS)


@dataclass(frozen=True)
class RegretStudy(SeedOptions):
    """Regret of every algorithm of Table 1 in linear MDPs, compared with its theory."""

    preset: Literal["quick", "default"] = "quick"
    """quick: four algorithms on two MDPs for 300 episodes, a minute or two. default: everything, for
    half an hour to an hour on two cores."""
    parts: tuple[str, ...] = ()
    """Parts: curves, exponents, budget, errors, complexity (default: from the preset)."""
    mdps: tuple[str, ...] = ()
    """MDPs, see `feelgood list mdps` (default: from the preset)."""
    algorithms: tuple[str, ...] = ()
    """Algorithms, see `feelgood list algorithms` (default: from the preset)."""
    num_episodes: PresetInt = None
    """Number of episodes K (default: from the preset)."""
    num_seeds: PresetInt = None
    """Number of fresh seeds for the results (default: from the preset)."""
    tuning_seeds: int = grouped("tuning", 4)
    """Number of seeds that scales are tuned on."""
    output: Path = Path("runs/regret")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        # Imported here because these modules load JAX, which the help does not need.
        from feelgood.linear.algorithms import ALGORITHMS
        from feelgood.linear.mdps import SUITE

        super().__post_init__()
        check_choice("preset", self.preset, _PRESETS)
        known: dict[str, tuple[str, ...]] = {"parts": PARTS, "mdps": tuple(SUITE), "algorithms": tuple(ALGORITHMS)}
        fill_in(self, known | _PRESETS[self.preset])
        for name, choices in known.items():
            check_names(name, getattr(self, name), choices)
        check_count("num_episodes", self.num_episodes, minimum=20)
        check_count("num_seeds", self.num_seeds, minimum=2)
        check_count("tuning_seeds", self.tuning_seeds)


_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "parts": ("curves",),
        "mdps": ("lock", "riverswim"),
        "algorithms": ("lsvi_ucb", "ase_lmc", "ase_baoab", "lsvi"),
        "num_episodes": 300,
        "num_seeds": 20,
    },
    "default": {"num_episodes": 1000, "num_seeds": 32},
}


FILES = part_files(_DESCRIPTIONS) | {"summary.md": "summary tables in Markdown"}


def run(study: RegretStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of a stopped one, and returns the paths of its tables and figures."""
    from feelgood.studies.regret.parts import PLANS
    from feelgood.studies.regret.tables import DRAW, as_markdown

    return run_parts("regret", study, PLANS, DRAW, as_markdown, report, FILES)
