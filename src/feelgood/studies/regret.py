"""Regret in linear MDPs: the paper's Table 1 as something that runs.

Five parts, each a table and a figure:

- curves: cumulative regret of every algorithm on every MDP, with the constants of its theory and with tuned ones;
- exponents: how regret grows with T, d and H, beside what Table 1 claims;
- budget: regret against gradients per stage and episode, for every sampler in Algorithm 1;
- errors: the total variation between what a sampler draws from and the posterior, measured at every stage, and what
  Theorem 1 makes of it;
- complexity: gradients needed for a given total variation, beside Theorem 2.

Tuning seeds and reporting seeds never meet.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count
from feelgood.studies.engine import EngineOptions, run_plans

__all__ = ["RegretStudy", "run", "tuning_seeds"]

MDPS = ("simplex", "riverswim", "nchain", "lock", "hypercube")
ALGORITHMS = (
    "lsvi_ucb",
    "opt_rlsvi",
    "eleanor",
    "cps",
    "lsvi_phe",
    "lmc_lsvi",
    "ase_lmc",
    "ase_ulmc",
    "ase_baoab",
    "ase_exact",
    "lsvi",
)
PARTS = ("curves", "exponents", "budget", "errors", "complexity")
FIRST_TUNING_SEED = 1_000_000


@dataclass(frozen=True)
class RegretStudy(EngineOptions):
    """Regret of every algorithm of Table 1 in linear MDPs, beside its theory."""

    preset: Literal["quick", "default"] = "quick"
    """quick: four algorithms on two MDPs for 300 episodes, a minute or two. default: everything, for
    half an hour to an hour on two cores."""
    parts: tuple[str, ...] = ()
    """Of curves, exponents, budget, errors, complexity; empty for the preset's."""
    mdps: tuple[str, ...] = ()
    """Of simplex, riverswim, nchain, lock, hypercube; empty for the preset's."""
    algorithms: tuple[str, ...] = ()
    """Rows of Table 1 and others; empty for the preset's."""
    num_episodes: int = 0
    """K; 0 for the preset's."""
    num_seeds: int = 0
    """Fresh seeds that results are reported on; 0 for the preset's."""
    tuning_seeds: int = 4
    """Seeds that scales are tuned on."""
    output: Path = Path("runs/regret")
    """Folder for results; one that holds an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("preset", self.preset, _PRESETS)
        for name, value in _PRESETS[self.preset].items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name, choices in (("parts", PARTS), ("mdps", MDPS), ("algorithms", ALGORITHMS)):
            values = getattr(self, name)
            for value in values:
                check_choice(name, value, choices)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must not repeat, got {values!r}")
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
    "default": {
        "parts": PARTS,
        "mdps": MDPS,
        "algorithms": ALGORITHMS,
        "num_episodes": 1000,
        "num_seeds": 32,
    },
}


_WHAT = {
    "curves": "cumulative regret at marked episodes, a row per MDP, algorithm, constants, seed and episode",
    "exponents": "cumulative regret at several dimensions and horizons",
    "budget": "regret by sampler and gradients per stage and episode",
    "errors": "total variation between what is sampled and the posterior, a row per sampler, steps, seed and episode",
    "complexity": "gradients needed for a given total variation",
}
FILES = {
    **{f"{part}.parquet": line for part, line in _WHAT.items()},
    **{f"{part}.{ending}": f"figure of {part}" for part in PARTS for ending in ("png", "pdf")},
    "summary.md": "tables for people",
}


def run(study: RegretStudy, report=print) -> list[Path]:
    """Runs the study, or what is left of it, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.results import regret as results
    from feelgood.results import store, style
    from feelgood.studies.regret_parts import PLANS

    seeds = {"reporting": range(study.num_seeds), "tuning": tuning_seeds(study)}
    with store.recorded(study.output, "regret", study, seeds=seeds, files=FILES) as facts:
        paths: list[Path] = []
        tables: dict[str, Any] = {}
        for part in study.parts:
            plans = PLANS[part](study)
            tables[part] = pd.concat(run_plans(study, plans, study.output, facts, title=part), ignore_index=True)
            store.write_table(study.output / f"{part}.parquet", tables[part])
            paths.append(study.output / f"{part}.parquet")
            paths += style.save(results.DRAW[part](tables[part]), study.output / part)
        text = results.as_markdown(tables)
        store.write_text(study.output / "summary.md", text)
        report(text)
    return [*paths, study.output / "summary.md"]


def tuning_seeds(study: RegretStudy) -> range:
    """Seeds that scales are tuned on; results are never reported on them."""
    return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + study.tuning_seeds)
