"""Contextual bandits: every algorithm tuned and as released, with exact and approximate draws.

Algorithms are tuned on tuning seeds and measured on fresh ones; those of the released comparison run with its settings.
Each part has a table and a figure.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count, check_names
from feelgood.studies.options import PresetInt, SeedOptions, fill_in, grouped
from feelgood.studies.output import figure_files, part_files, run_parts

WHEELS = ("wheel-0.5", "wheel-0.7", "wheel-0.9", "wheel-0.95", "wheel-0.99")
DATA = ("iris", "wine", "breast_cancer", "digits", "mushroom", "magic", "penbased", "satimage")
DATA_SETS = ("mushroom", "magic", "satimage", "digits")
SYNTHETIC = ("linear-20d", "linear-40d", "logistic-20d", *WHEELS)
PROBLEMS = (*SYNTHETIC, *DATA)
_DESCRIPTIONS = {
    "curves": "cumulative regret at marked rounds, a row per problem, algorithm, seed and round",
    "weights": "regret by feel-good weight, with exact draws and with a chain",
    "errors": "distance between a chain's law and the posterior, and mean regret, a row per sampler, steps and round",
}
PARTS = tuple(_DESCRIPTIONS)


@dataclass(frozen=True)
class BanditsStudy(SeedOptions):
    """Regret of contextual bandit algorithms, tuned and as released, and how it depends on sampling error."""

    preset: Literal["quick", "default", "data"] = "quick"
    """quick: five algorithms on linear-20d for 1,000 rounds, a minute or two. default: the whole study, all linear and
    logistic algorithms, and linear and neural ones on data sets (with the extra data). data: the data sets alone, with
    fewer seeds and rounds."""
    parts: tuple[str, ...] = ()
    """Parts: curves, weights (regret against λ with exact draws), errors (sampling error by round) (default: from the
    preset)."""
    problems: tuple[str, ...] = ()
    """Problems: linear-20d, linear-40d, logistic-20d, wheel-0.5 to wheel-0.99, iris, wine, breast_cancer, digits,
    mushroom, magic, penbased, satimage (default: from the preset)."""
    algorithms: tuple[str, ...] = ()
    """Names of algorithms (default: from the preset). The preset default runs neural algorithms on data sets only, next
    to three linear ones. Algorithms that do not suit a problem are left out for it."""
    num_rounds: PresetInt = None
    """Number of rounds T (default: from the preset)."""
    num_seeds: PresetInt = None
    """Number of fresh seeds for the results (default: from the preset)."""
    tuning_rounds: PresetInt = grouped("tuning", None)
    """Number of rounds of a tuning run (default: from the preset). Neural algorithms take at most 2,000."""
    tuning_seeds: PresetInt = grouped("tuning", None)
    """Number of seeds that settings are tuned on (default: from the preset). Neural algorithms take at most 4."""
    output: Path = Path("runs/bandits")
    """Folder for results; an unfinished run of the same study is continued."""

    def __post_init__(self):
        # Imported here because it loads JAX, which the help does not need.
        from feelgood.bandits.datasets import check_installed
        from feelgood.studies.bandits.algorithms import ENTRIES, ON_DATA, suits, usual

        super().__post_init__()
        check_choice("preset", self.preset, _PRESETS)
        fill_in(self, _PRESETS[self.preset] | ({"algorithms": ON_DATA} if self.preset == "data" else {}))
        fill_in(self, {"problems": tuple(name for name in (*SYNTHETIC, *DATA_SETS) if name not in missing_data())})
        for name, choices in (("parts", PARTS), ("problems", PROBLEMS), ("algorithms", ENTRIES)):
            check_names(name, getattr(self, name), choices)
        if "curves" in self.parts:
            for name in self.problems:
                if name in DATA:
                    check_installed(name)
            if not any(suits(each, name) for name in self.problems for each in self.algorithms or usual(name)):
                raise ValueError(f"algorithms {self.algorithms!r} do not suit any of the problems {self.problems!r}")
        check_count("num_rounds", self.num_rounds, minimum=20)
        check_count("tuning_rounds", self.tuning_rounds, minimum=20)
        check_count("num_seeds", self.num_seeds, minimum=2)
        check_count("tuning_seeds", self.tuning_seeds)


_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "parts": ("curves",),
        "problems": ("linear-20d",),
        "algorithms": ("lin_ucb", "lin_ts", "fgts", "lmc_ts", "released_lmc_ts"),
        "num_rounds": 1000,
        "num_seeds": 20,
        "tuning_rounds": 500,
        "tuning_seeds": 4,
    },
    "default": {"parts": PARTS, "num_rounds": 10_000, "num_seeds": 100, "tuning_rounds": 3000, "tuning_seeds": 16},
    "data": {
        "parts": ("curves",),
        "problems": DATA_SETS,
        "num_rounds": 3000,
        "num_seeds": 10,
        "tuning_rounds": 1000,
        "tuning_seeds": 4,
    },
}


def missing_data() -> dict[str, str]:
    """Data sets of the whole study whose packages are not installed, and the package of each."""
    from feelgood.bandits import datasets

    return {name: datasets.SOURCES[name] for name in DATA_SETS if not datasets.is_installed(name)}


def left_out(study: BanditsStudy) -> str:
    """A sentence about the data sets that the preset default leaves out; empty if there are none."""
    missing = missing_data()
    if study.preset != "default" or not missing or set(study.problems) != {*SYNTHETIC, *DATA_SETS} - set(missing):
        return ""
    packages = " and ".join(dict.fromkeys(missing.values()))
    return f"Left out: {', '.join(missing)}, which need {packages} (pip install 'feelgood[data]')."


FILES = {
    **part_files(_DESCRIPTIONS),
    **figure_files("ranking", "regret by round of the best six, and the last regret of all"),
    "summary.md": "summary tables in Markdown",
}


def run(study: BanditsStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of it, and returns the paths of its tables and figures."""
    from feelgood.studies.bandits.parts import PLANS
    from feelgood.studies.bandits.tables import DRAW, as_markdown

    if missing := left_out(study):
        report(missing)
    return run_parts("bandits", study, PLANS, DRAW, as_markdown, report, FILES, missing)
