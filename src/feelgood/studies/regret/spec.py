"""Options, presets and seeds of the regret study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count
from feelgood.studies.engine import EngineOptions
from feelgood.studies.seeds import FIRST_TUNING_SEED

__all__ = ["PARTS", "RegretStudy", "tuning_seeds"]

PARTS = ("curves", "exponents", "budget", "errors", "complexity")


@dataclass(frozen=True)
class RegretStudy(EngineOptions):
    """Regret of every algorithm of Table 1 in linear MDPs, compared with its theory."""

    preset: Literal["quick", "default"] = "quick"
    """quick: four algorithms on two MDPs for 300 episodes, a minute or two. default: everything, for
    half an hour to an hour on two cores."""
    parts: tuple[str, ...] = ()
    """Parts: curves, exponents, budget, errors, complexity; empty for the preset's."""
    mdps: tuple[str, ...] = ()
    """MDPs, see `feelgood list mdps`; empty for the preset's."""
    algorithms: tuple[str, ...] = ()
    """Algorithms, see `feelgood list algorithms`; empty for the preset's."""
    num_episodes: int = 0
    """Number of episodes K; 0 for the preset's."""
    num_seeds: int = 0
    """Number of fresh seeds for the results; 0 for the preset's."""
    tuning_seeds: int = 4
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
        for name, value in {**known, **_PRESETS[self.preset]}.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name, choices in known.items():
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
        "num_episodes": 1000,
        "num_seeds": 32,
    },
}


def tuning_seeds(study: RegretStudy) -> range:
    """Seeds for tuning scales; they are never used for reporting."""
    return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + study.tuning_seeds)
