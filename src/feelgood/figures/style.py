"""One look for every figure: colour-blind safe, legible in print, the same colour for the same thing everywhere."""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

__all__ = ["AGENT_COLOURS", "COLOURS", "LOOKS", "STYLE", "colours_of", "save"]

# Okabe and Ito's palette, which readers with any common colour blindness can tell apart.
COLOURS = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "red": "#D55E00",
    "pink": "#CC79A7",
    "grey": "#7F7F7F",
}

AGENT_COLOURS = {
    "fg_ulmcdqn": COLOURS["red"],
    "fg_ulmcdqn_cold": "#F7A889",
    "steady_fg_ulmcdqn": "#7A1F00",
    "fg_lmcdqn": COLOURS["orange"],
    "ulmcdqn": COLOURS["blue"],
    "adam_lmcdqn": COLOURS["sky"],
    "lmcdqn": COLOURS["green"],
    "langevin_dqn": COLOURS["pink"],
    "dqn": COLOURS["black"],
    "bootstrapped_dqn": COLOURS["grey"],
    "noisynet_dqn": "#8C6BB1",
    "prioritized_dqn": "#A6761D",
    "c51": COLOURS["yellow"],
    "iqn": "#004D40",
}

# Name: label, colour, line, and the exponents of d, H and T that Table 1 claims.
LOOKS: dict[str, tuple[str, str, str, tuple[float, float, float] | None]] = {
    "lsvi_ucb": ("LSVI-UCB", COLOURS["black"], "-", (1.5, 1.5, 0.5)),
    "opt_rlsvi": ("OPT-RLSVI", COLOURS["grey"], "-", (2, 2, 0.5)),
    "eleanor": ("ELEANOR", COLOURS["pink"], "-", (1, 1.5, 0.5)),
    "cps": ("CPS", COLOURS["green"], "-", (1, 2, 0.5)),
    "lsvi_phe": ("LSVI-PHE", "#8C6BB1", "-", (1.5, 1.5, 0.5)),
    "lmc_lsvi": ("LMC-LSVI", COLOURS["sky"], "-", (1.5, 1.5, 0.5)),
    "ase_lmc": ("LSVI-ASE, LMC", COLOURS["orange"], "-", (1, 1.5, 0.5)),
    "ase_ulmc": ("LSVI-ASE, ULMC", COLOURS["blue"], "-", (1, 1.5, 0.5)),
    "ase_baoab": ("LSVI-ASE, BAOAB", COLOURS["red"], "-", None),
    "ase_exact": ("LSVI-ASE, exact", COLOURS["red"], ":", None),
    "lsvi": ("LSVI (no exploration)", "0.6", "--", None),
}

# For names without a colour of their own: first the palette of figures, then Tol's muted one.
_CYCLE = [COLOURS[name] for name in ("blue", "red", "green", "orange", "pink", "sky", "black", "grey")]
_CYCLE += ["#332288", "#117733", "#882255", "#44AA99", "#999933", "#AA4499", "#661100", "#6699CC"]


def colours_of(names: Iterable[str], known: Mapping[str, str] = AGENT_COLOURS) -> dict[str, str]:
    """Colours for names: their own where they have one, others in turn those that no one else has."""
    names = list(names)
    own = {name: known[name] for name in names if name in known}
    free = itertools.cycle([colour for colour in _CYCLE if colour not in own.values()] or _CYCLE)
    return {name: own.get(name) or next(free) for name in names}


STYLE: dict[Any, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "savefig.bbox": "tight",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}


def save(figure: Figure, path: Path) -> list[Path]:
    """Writes a figure as PNG and as PDF beside each other and returns both paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    paths = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    with rc_context(STYLE):
        for each in paths:
            figure.savefig(each)
    return paths
