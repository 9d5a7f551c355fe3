"""Presets of the Atari study: the protocols of `feelgood.protocols`, the paper's Figure 3, and a smoke test.

`feel_good_weights` and `frictions` are the paper's Figure 3 on Alien, with the recommended protocol. `quick` is the
smoke test.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from feelgood.protocols import ATARI, DEFAULT_PRESET, changed
from feelgood.studies.atari.paper import AGENTS, GAMES

_PAPER: dict[str, Any] = {"games": GAMES, "agents": AGENTS, "num_frames": 50_000_000, "num_seeds": 5}
_RECOMMENDED = {**_PAPER, **ATARI[DEFAULT_PRESET]}

PRESETS: dict[str, dict[str, Any]] = {
    **{name: {**_PAPER, **protocol} for name, protocol in ATARI.items()},
    # The paper's sweep.
    "feel_good_weights": changed(
        _RECOMMENDED, games=("alien",), agents=("fg_ulmcdqn",), vary=("feel_good_weight=1,1e-2,1e-3,1e-4,1e-5",)
    ),
    # The paper reports that very high and very low values fail, but names only 1 and 10.
    "frictions": changed(_RECOMMENDED, games=("alien",), agents=("ulmcdqn",), vary=("friction=100,10,1,0.1,0.01",)),
    "quick": changed(
        {**_PAPER, **ATARI["paper"]},
        games=("freeway",),
        agents=("fg_ulmcdqn", "dqn"),
        num_frames=20_000,
        num_seeds=1,
        config={
            "num_envs": 20,
            "learning_starts": 1000,
            "capacity": 5000,
            "target_update_period": 50,
            "evaluation_period": 2500,
            "num_evaluation_episodes": 1,
            "max_evaluation_steps": 500,
            "num_stagger_turns": 100,
        },
    ),
}

if TYPE_CHECKING:
    Preset: TypeAlias = str
else:
    Preset = Literal[tuple(PRESETS)]
"""The name of a preset."""
