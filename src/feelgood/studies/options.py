"""Fields of options: numbers that a preset fills in, groups of the help, and names of agents."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from feelgood.checks import check_names

if TYPE_CHECKING:
    PresetInt: TypeAlias = Any  # a number in every study that has been built
else:
    PresetInt = int | None
"""A whole number; None stands for the preset's until the study is built."""


def grouped(group: str, default: Any) -> Any:
    """A field of a dataclass that `--help` shows in the box "GROUP options", below the everyday options."""
    return field(default=default, metadata={"group": group})


def fill_in(study: Any, preset: Mapping[str, Any]) -> None:
    """Gives options that are None or empty the preset's values, so that a manifest holds every setting."""
    for name, value in preset.items():
        if getattr(study, name) in (None, ()):
            object.__setattr__(study, name, value)


def check_agents(names: Sequence[str]) -> None:
    """Requires different agents of the zoo. It is loaded here, with JAX, as the help of a study needs neither."""
    from feelgood.agents import ZOO

    check_names("agents", names, ZOO)
