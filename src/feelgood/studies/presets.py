"""Options of a study that its preset fills in."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    PresetInt: TypeAlias = Any  # a number in every study that has been built
else:
    PresetInt = int | None
"""A whole number; None stands for the preset's until the study is built."""


def fill_in(study: Any, preset: Mapping[str, Any]) -> None:
    """Gives options that are None or empty the preset's values, so that a manifest holds every setting."""
    for name, value in preset.items():
        if getattr(study, name) in (None, ()):
            object.__setattr__(study, name, value)
