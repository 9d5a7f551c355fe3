"""Defaults of `feelgood.train` by kind of environment."""

from collections.abc import Mapping
from typing import Any

from feelgood.agents import ZOO

# The temperature falls as data grow, as in a posterior. Noise at the start makes draws differ enough to explore; the
# zoo's 1e10 gives too little here. The step size falls to 0, so that the final policy is stable.
_LANGEVIN = {"inverse_temperature": 1e3, "inverse_temperature_end": 1e5, "step_size_end": 0.0}
_UNDERDAMPED = {"step_size": 2e-2, "friction": 10.0, **_LANGEVIN}
_FEEL_GOOD = {"feel_good_weight": 0.1, "feel_good_weight_end": 0.0}
_ADAM = {"step_size": 2e-3, "step_size_end": 0.0}
_EPSILON = {"final_epsilon": 0.05, "epsilon_fraction": 0.2}

CONTROL: dict[str, Mapping[str, float]] = {
    "ensemble_dqn": {"step_size": 1e-3, "step_size_end": 0.0},
    "fg_ulmcdqn": {**_UNDERDAMPED, **_FEEL_GOOD},
    "steady_fg_ulmcdqn": {**_UNDERDAMPED, **_FEEL_GOOD, "average_decay": 0.95},
    "fg_lmcdqn": {"step_size": 2e-3, **_LANGEVIN, **_FEEL_GOOD},
    "ulmcdqn": _UNDERDAMPED,
    "adam_lmcdqn": {"step_size": 2e-3, **_LANGEVIN},
    "dqn": {**_ADAM, "step_size": 4e-3, **_EPSILON},
    "prioritized_dqn": {**_ADAM, **_EPSILON},
    "c51": {**_ADAM, **_EPSILON},
    "iqn": {**_ADAM, **_EPSILON},
    "bootstrapped_dqn": {**_ADAM, **_EPSILON},
    "noisynet_dqn": _ADAM,
}
"""Hyper-parameters on small control environments such as CartPole that differ from the zoo's.

Names in `_end` are final values; see `feelgood.agents.anneal`. The values of fg_ulmcdqn and dqn were chosen on tuning
seeds of CartPole; the others follow them and were not tuned.
"""

CONTROL_CONFIG: Mapping[str, Any] = {
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
}
"""Settings for external environments other than Atari games that differ from `ExternalConfig`'s defaults."""

CONTROL_CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "ensemble_dqn": {**ZOO["ensemble_dqn"].config, "batch_size": 64, "learning_starts": 200}
}
"""Settings of single agents that differ from `CONTROL_CONFIG`. The recommended agent uses the zoo's settings, with
minibatches half as large, since its networks are twice as wide."""

ONE_HOT_CONFIGS: Mapping[str, Mapping[str, Any]] = {"ensemble_dqn": {"batch_size": 128}}
"""Settings of single agents that differ from these where observations are one-hot: tables need larger minibatches."""

CONTROL_OPTIONS: Mapping[str, Any] = {"hidden": (64, 64), "v_max": 100.0}
"""Options for these environments that differ from the zoo's; returns reach into the hundreds."""

NUM_EVALUATIONS = 25
"""Evaluations in a run on an external environment other than an Atari game; the untrained network's is not counted."""

STEPS_WITHOUT_LIMIT = 1_000
"""Steps after which an evaluation episode is cut off if the environment has no known time limit."""
