"""Options that studies share: engine and seeds, numbers that a preset fills in, groups of the help, agents."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from feelgood.checks import check_choice, check_count, check_names
from feelgood.pairs import read_seeds, read_values

if TYPE_CHECKING:
    PresetInt: TypeAlias = Any  # a number in every study that has been built
else:
    PresetInt = int | None
"""A whole number. None is replaced by the preset's value when the study is created."""


def grouped(group: str, default: Any) -> Any:
    """A field of a dataclass that `--help` shows in the box "GROUP options", below the everyday options."""
    return field(default=default, metadata={"group": group})


def fill_in(study: Any, preset: Mapping[str, Any]) -> None:
    """Gives options that are None or empty the preset's values, so that a manifest holds every setting."""
    for name, value in preset.items():
        if getattr(study, name) in (None, ()):
            object.__setattr__(study, name, value)


def read_options(words: Sequence[str]) -> dict[str, Any]:
    """Agent options by name; a single width means one hidden layer."""
    found: dict[str, Any] = read_values("options", words)
    if type(found.get("hidden")) is int:
        found["hidden"] = (found["hidden"],)
    return found


def check_options(words: Sequence[str]) -> None:
    """Requires agent options that exist and have allowed values. As in `check_agents`, JAX is loaded here."""
    if words:
        from feelgood.api.agent_spec import options_of

        options_of(read_options(words), {})


def check_agents(names: Sequence[str]) -> None:
    """Requires different agents of the zoo. It is loaded here, with JAX, as the help of a study needs neither."""
    from feelgood.agents import ZOO

    check_names("agents", names, ZOO)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where a study runs; its results do not depend on these options."""

    engine: Literal["local", "ray"] = grouped("engine", "local")
    """local: run on this machine. ray: run independent tasks in parallel on a Ray cluster (needs the extra ray)."""
    ray_address: str = grouped("engine", "")
    """Address of the Ray cluster; empty for the value of RAY_ADDRESS, or a new cluster on this machine."""
    num_processes: int = grouped("engine", 1)
    """Number of tasks that run in parallel with the engine local, each in its own process."""

    def __post_init__(self):
        check_choice("engine", self.engine, ("local", "ray"))
        check_count("num_processes", self.num_processes)
        if self.num_processes > 1 and self.engine != "local":
            raise ValueError(f"num_processes must be 1 with the engine {self.engine!r}, got {self.num_processes}")
        if self.ray_address and self.engine != "ray":
            raise ValueError(f"ray_address must be left out with the engine {self.engine!r}, got {self.ray_address!r}")
        if self.engine == "ray" and importlib.util.find_spec("ray") is None:
            raise ValueError("engine 'ray' needs a package that is not installed: pip install 'feelgood[ray]'")


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
