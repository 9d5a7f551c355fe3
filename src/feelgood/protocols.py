"""Protocols for external environments: `config`, `options` and `env_settings` of a run.

`CONTROL` is the protocol of Gymnasium environments, `ATARI` those of Atari games.

`paper` is the paper's protocol with these differences:

- 300 environments step in parallel instead of one, in three groups that take turns, at the same replay ratio: one
  gradient step per 10 environment steps, in blocks of 10.
- 50 draws of the chain act at the same time, each in its share of the environments, for 50 steps per environment (1000
  gradient steps). Then the chain's current parameters replace the oldest acting draw. In the paper's single
  environment, too, the replay holds transitions of many different parameters.
- The step in which an environment resets counts as a step. Each environment is reset once at a random step within its
  first 500, so that environments do not run in lockstep.
- The frame stack of an episode's first observation repeats its first frame.
- Learning starts after 20,000 steps; the paper does not give a number.
- Every agent has double targets over three steps, as the paper's own agents do; the paper's scores of IQN, C51 and
  Prioritized DQN come from other code and another protocol.
- Hyper-parameters are the same for all games (`feelgood.agents.ZOO`), not the best of a sweep for each game.

`prioritized` is the recommended protocol and the default: the paper's with prioritised replay, for every agent, the
bounded form of the samplers, pixels divided by 255, hyper-parameters for this scale, and networks whose biases start at
0. `dopamine` is the same with sticky actions of probability 0.25 and episodes that end with the game instead of a life.
"""

from collections.abc import Mapping
from typing import Any

PAPER: Mapping[str, Any] = {
    "config": {
        "num_envs": 300,
        "num_groups": 3,
        "num_chains": 1,
        "num_draws": 50,
        "draw_steps": 50,
        "learning_starts": 20_000,
        "replay_ratio": 0.1,
        "batch_size": 32,
        "capacity": 1_000_000,
        "n_step": 3,
        "discount": 0.99,
        "recent_share": 0.0,
        "target_update_period": 500,
        "evaluation_period": 100_000,
        "num_evaluation_episodes": 5,
        "max_evaluation_steps": 27_000,
        "num_stagger_turns": 500,
        "priority_exponent": 0.6,
        "importance_exponent": 0.4,
    },
    "options": {"form": "released", "init": "torch", "critic": "mean", "double": True, "prioritized": False},
    "env_settings": {"sticky": 0.0, "life_loss": True, "pixel_scale": 1.0},
}
"""The paper's protocol in parallel environments, with the differences listed above.

`config` holds arguments of `ExternalConfig`, `options` of `feelgood.agents.Options`, and `env_settings` of
`feelgood.envs.external.atari`. The defaults of `ExternalConfig` are this protocol's, as a test checks.
"""


CONTROL: Mapping[str, Any] = {
    "config": {
        "num_steps": 50_000,
        "num_envs": 8,
        "num_groups": 1,
        "num_draws": 1,
        "learning_starts": 1_000,
        "replay_ratio": 1.0,
        "batch_size": 64,
        "capacity": 50_000,
        "n_step": 1,
        "target_update_period": 200,
        "num_evaluation_episodes": 10,
        "max_evaluation_steps": 1_000,
    },
    "options": {"hidden": (64, 64), "v_max": 100.0},
    "env_settings": {},
}
"""The protocol of Gymnasium environments other than Atari games: where it differs from the defaults of `ExternalConfig`
and `Options`. Agents may have their own settings (`feelgood.agents.Recipe.control_config`), and a known time limit
replaces `max_evaluation_steps`. Returns reach into the hundreds, hence `v_max`.
"""

NUM_EVALUATIONS = 25
"""Evaluations in a run outside Atari; the untrained network's is not counted."""


def changed(base: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A protocol or preset with some entries replaced; mappings are merged."""
    merged = {name: {**base[name], **value} for name, value in changes.items() if isinstance(value, dict)}
    return {**base, **changes, **merged}


# Rare rewards are replayed often, and no step is large: a gradient far above its history is cut to the usual size. With
# pixels in [0, 1], initial biases would dominate the actions of untrained networks.
PRIORITIZED = changed(
    PAPER,
    env_settings={"pixel_scale": 1 / 255},
    options={"form": "bounded", "init": "unbiased", "prioritized": True},
)
"""The recommended protocol."""

ATARI: Mapping[str, Mapping[str, Any]] = {
    "paper": PAPER,
    "prioritized": PRIORITIZED,
    # The same learning with Dopamine's emulator settings, after Machado et al. (2018).
    "dopamine": changed(PRIORITIZED, env_settings={"sticky": 0.25, "life_loss": False}),
}
"""The protocols by name."""

DEFAULT_PRESET = "prioritized"
"""The name of the protocol of a run that names none."""
