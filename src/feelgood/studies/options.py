"""Fields of options: numbers that a preset fills in, groups of the help, and names of agents."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

from feelgood.checks import check_names
from feelgood.pairs import read_values

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
