"""Presets of the Atari study.

What `paper` stands for, and where it is not what the paper did:

- 300 environments step in parallel instead of one, in three groups that take turns, at the same replay ratio: one
  gradient step for 10 environment steps, done in blocks of 10.
- They do not all follow the newest parameters: 50 positions of the chain act at the same time, each in its share of the
  environments for 50 steps of each, 1000 gradient steps, before the newest takes its place. In the paper's single
  environment too, what is in the replay comes of ever other parameters.
- The step in which an environment resets itself counts as a step, and in its first 500 steps each environment begins
  anew once, at a time of its own, so that they do not all play the same.
- The stack of an episode's first observation is its first frame repeated.
- Learning begins after 20,000 steps; the paper does not say when.
- Every agent has double targets over three steps, as the paper's own have; the scores that it gives for IQN, C51 and
  Prioritized DQN are of other code and another protocol.
- Hyper-parameters are one point for all games (`feelgood.agents.ZOO`), not the best of a sweep for each.

`scaled` is the same on pixels divided by 255, with the hyper-parameters that go with them and networks that start
without biases: what to use, and what was run at length. `sparse` is for games whose rewards are rare, as Venture's are:
the corrected form of the samplers on pixels divided by 16, with draws that act for 500 steps. `dopamine` is `scaled`
with sticky actions of probability 0.25 and episodes that end with the game and not with a life. `eta` and `gamma` are
the paper's Figure 3 on Alien, on pixels divided by 255. `quick` shows that all works, and nothing else.
"""

from typing import Any

from feelgood.studies.atari.paper import AGENTS, GAMES

__all__ = ["DOPAMINE", "PAPER", "PRESETS", "SCALED", "SPARSE"]

PAPER: dict[str, Any] = {
    "games": GAMES,
    "agents": AGENTS,
    "num_frames": 50_000_000,
    "num_seeds": 5,
    "num_envs": 300,
    "num_groups": 3,
    "num_chains": 1,
    "num_draws": 50,
    "draw_steps": 50,
    "pixel_scale": 1.0,
    "sticky": 0.0,
    "episode": "life",
    "learning_starts": 20_000,
    "replay_ratio": 0.1,
    "batch_size": 32,
    "capacity": 1_000_000,
    "n_step": 3,
    "discount": 0.99,
    "target_update_period": 500,
    "evaluation_frames": 400_000,
    "num_evaluation_episodes": 5,
    "max_evaluation_steps": 27_000,
    "num_stagger_turns": 500,
    "priority_exponent": 0.6,
    "importance_exponent": 0.4,
    "form": "released",
    "init": "torch",
}
"""The paper's protocol in parallel environments; see above for what differs."""

SCALED: dict[str, Any] = {**PAPER, "pixel_scale": 1 / 255, "init": "unbiased"}
"""The same on pixels in [0, 1], where biases would decide what fresh networks do."""

SPARSE: dict[str, Any] = {**SCALED, "pixel_scale": 1 / 16, "form": "corrected", "draw_steps": 500}
"""For rewards too rare for the λ that goes with pixels in [0, 1]: features live without it on larger ones."""

DOPAMINE: dict[str, Any] = {**SCALED, "sticky": 0.25, "episode": "game"}
"""The same learning on the emulator as Dopamine sets it, after Machado et al. (2018)."""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": PAPER,
    "scaled": SCALED,
    "sparse": SPARSE,
    "dopamine": DOPAMINE,
    # The paper's sweep.
    "eta": {
        **SCALED,
        "games": ("alien",),
        "agents": ("fg_ulmcdqn",),
        "vary": ("feel_good_weight=1,1e-2,1e-3,1e-4,1e-5",),
    },
    # The paper tells that very high and very low values fail, but not which ones it tried beside 1 and 10.
    "gamma": {**SCALED, "games": ("alien",), "agents": ("ulmcdqn",), "vary": ("friction=100,10,1,0.1,0.01",)},
    "quick": {
        **PAPER,
        "games": ("freeway",),
        "agents": ("fg_ulmcdqn", "dqn"),
        "num_frames": 20_000,
        "num_seeds": 1,
        "num_envs": 20,
        "learning_starts": 1000,
        "capacity": 5000,
        "target_update_period": 50,
        "evaluation_frames": 10_000,
        "num_evaluation_episodes": 1,
        "max_evaluation_steps": 500,
        "num_stagger_turns": 100,
    },
}
