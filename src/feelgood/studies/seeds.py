"""Seeds of a study: reporting seeds from its options, apart from tuning seeds."""

from dataclasses import dataclass
from typing import Any

from feelgood.pairs import read_seeds
from feelgood.studies.engine import EngineOptions

FIRST_TUNING_SEED = 1_000_000
"""Reporting uses seeds below this one; tuning uses this seed and larger ones."""


@dataclass(frozen=True, kw_only=True)
class SeedOptions(EngineOptions):
    """Options of studies with an option `num_seeds`."""

    seeds: tuple[str, ...] = ()
    """Seeds instead of num_seeds, as in 3 7 11 or 0-19; 0 to num_seeds - 1 if not given."""

    def __post_init__(self):
        super().__post_init__()
        if self.seeds:
            object.__setattr__(self, "num_seeds", len(self.seed_list))
            if max(self.seed_list) >= FIRST_TUNING_SEED:
                raise ValueError(f"seeds must be below {FIRST_TUNING_SEED}, got {max(self.seed_list)}")

    @property
    def seed_list(self) -> list[int]:
        """The seeds as numbers."""
        return read_seeds(self.seeds) if self.seeds else list(range(vars(self)["num_seeds"]))


def tuning_range(study: Any) -> range:
    """The first `study.tuning_seeds` tuning seeds; results are never reported on them."""
    return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + study.tuning_seeds)
