"""One look for every figure: colour-blind safe, legible in print, the same colour for the same thing everywhere."""

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import matplotlib.figure  # takes a second, so it is imported only where a figure is drawn

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


class Look(NamedTuple):
    """The published name of an agent or algorithm, its colour, and whether its line is dashed."""

    label: str
    colour: str
    dashed: bool = False


LOOKS = {
    "ensemble_dqn": Look("Ensemble DQN", "#1B7837"),
    "fg_ulmcdqn": Look("FG-ULMCDQN", COLOURS["red"]),
    "steady_fg_ulmcdqn": Look("Steady FG-ULMCDQN", "#7A1F00"),
    "fg_lmcdqn": Look("FG-LMCDQN", COLOURS["orange"]),
    "ulmcdqn": Look("ULMCDQN", COLOURS["blue"]),
    "adam_lmcdqn": Look("Adam-LMCDQN", COLOURS["sky"]),
    "lmcdqn": Look("LMCDQN", COLOURS["green"]),
    "langevin_dqn": Look("Langevin DQN", COLOURS["pink"]),
    "dqn": Look("DQN", COLOURS["black"]),
    "bootstrapped_dqn": Look("Bootstrapped DQN", COLOURS["grey"]),
    "noisynet_dqn": Look("NoisyNet DQN", "#8C6BB1"),
    "prioritized_dqn": Look("Prioritized DQN", "#A6761D"),
    "c51": Look("C51", COLOURS["yellow"]),
    "iqn": Look("IQN", "#004D40"),
    "fg_ulmcdqn_cold": Look("FG-ULMCDQN, no noise", "#F7A889", True),
    "lsvi_ucb": Look("LSVI-UCB", COLOURS["black"]),
    "opt_rlsvi": Look("OPT-RLSVI", COLOURS["grey"]),
    "eleanor": Look("ELEANOR", COLOURS["pink"]),
    "cps": Look("CPS", COLOURS["green"]),
    "lsvi_phe": Look("LSVI-PHE", "#8C6BB1"),
    "lmc_lsvi": Look("LMC-LSVI", COLOURS["sky"]),
    "ase_lmc": Look("LSVI-ASE, LMC", COLOURS["orange"]),
    "ase_ulmc": Look("LSVI-ASE, ULMC", COLOURS["blue"]),
    "ase_baoab": Look("LSVI-ASE, BAOAB", COLOURS["red"]),
    "ase_exact": Look("LSVI-ASE, exact", COLOURS["red"], True),
    "lsvi": Look("LSVI (no exploration)", "#999999", True),
    "lin_ucb": Look("LinUCB", COLOURS["blue"]),
    "lin_ts": Look("LinTS", COLOURS["green"]),
    "lin_ids": Look("IDS", COLOURS["orange"]),
    "greedy": Look("greedy", "#004D40"),
    "epsilon_greedy": Look("ε-greedy", "#7A1F00"),
    "fgts": Look("FGTS, exact", COLOURS["red"]),
    "fgts_falling": Look("FGTS, exact, λ ∝ t^−½", COLOURS["black"]),
    "sfgts": Look("SFGTS, exact, b = 2", "#8C6BB1"),
    "lmc_ts": Look("LMC-TS", COLOURS["sky"]),
    "fg_lmc_ts": Look("FG-LMC-TS", COLOURS["pink"]),
    "p_lmc_ts": Look("LMC-TS, preconditioned", "#A6761D"),
    "ulmc_ts": Look("ULMC-TS", "#332288"),
    "baoab_ts": Look("BAOAB-TS", "#882255"),
    "mala_ts": Look("MALA-TS", "#44AA99"),
    "fg_mala_ts": Look("FG-MALA-TS", "#999933"),
    "hmc_ts": Look("HMC-TS", "#6699CC"),
    "pg_ts": Look("Pólya–Gamma TS", "#AA4499"),
    "released_lin_ucb": Look("LinUCB, as released", COLOURS["blue"], True),
    "released_lin_ts": Look("LinTS, as released", COLOURS["green"], True),
    "released_lmc_ts": Look("LMC-TS, as released", COLOURS["sky"], True),
    "released_fg_lmc_ts": Look("FG-LMC-TS, as released", COLOURS["pink"], True),
    "released_mala_ts": Look("MALA-TS, as released", "#44AA99", True),
    "released_fg_mala_ts": Look("FG-MALA-TS, as released", "#999933", True),
    "corrected_mala_ts": Look("MALA-TS, test corrected", "#117733", True),
    "corrected_fg_mala_ts": Look("FG-MALA-TS, test corrected", "#661100", True),
    "neural_greedy": Look("neural ε-greedy", COLOURS["black"]),
    "neural_linear": Look("neural-linear TS", COLOURS["sky"]),
    "neural_ts": Look("NeuralTS", COLOURS["orange"]),
    "neural_ucb": Look("NeuralUCB", "#8C6BB1"),
    "neural_ensemble": Look("ensemble with priors", "#A6761D"),
    "neural_lmc": Look("neural LMC-TS", COLOURS["pink"]),
    "neural_fg_lmc": Look("neural FG-LMC-TS", COLOURS["red"]),
}
"""Published names and colours; any other name is its own label and takes a free colour."""

SYMBOLS = {"feel_good_weight": "feel-good weight λ", "friction": "friction γ"}
"""Names of the hyper-parameters that studies vary."""

# For names without a colour of their own: first the palette of figures, then Tol's muted one.
_CYCLE = [COLOURS[name] for name in ("blue", "red", "green", "orange", "pink", "sky", "black", "grey")]
_CYCLE += ["#332288", "#117733", "#882255", "#44AA99", "#999933", "#AA4499", "#661100", "#6699CC"]


def label(name: str) -> str:
    """The published name of an agent or algorithm; an ablation is named by the part that it lacks.

    Examples:
      >>> label("ulmcdqn"), label("steady_fg_ulmcdqn_no_falling_step"), label("mine")
      ('ULMCDQN', 'Steady FG-ULMCDQN, no falling step', 'mine')
    """
    if name in LOOKS:
        return LOOKS[name].label
    agent, _, setting = name.partition(" ")  # a studied setting follows the name of its agent
    if setting and agent in LOOKS:
        return f"{LOOKS[agent].label}, {setting}"
    agent, _, part = name.partition("_no_")
    return f"{LOOKS[agent].label}, no {part.replace('_', ' ')}" if part and agent in LOOKS else name


def is_ablation(name: str) -> bool:
    """Whether a name stands for an agent without one of its parts."""
    return name.endswith("_cold") or "_no_" in name


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Each name's own colour if it has one, otherwise the next colour that no other name has."""
    names = list(names)
    own = {name: LOOKS[name].colour for name in names if name in LOOKS}
    free = itertools.cycle([colour for colour in _CYCLE if colour not in own.values()] or _CYCLE)
    return {name: own.get(name) or next(free) for name in names}


def shades(count: int) -> list[str]:
    """Colours from dark to light for values in rising order."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](0.88 * i / max(count - 1, 1))) for i in range(count)]


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


def save(figure: "matplotlib.figure.Figure", path: Path) -> list[Path]:
    """Writes a figure in the format of the path's ending, as PNG and PDF if it has none, and returns the paths."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    paths = [path] if path.suffix else [path.with_suffix(".png"), path.with_suffix(".pdf")]
    with rc_context(STYLE):
        for each in paths:
            figure.savefig(each)
    return paths
