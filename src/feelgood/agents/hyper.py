"""Hyper-parameters: their allowed values, and schedules over a run."""

from collections.abc import Callable
from functools import partial
from typing import Any

from feelgood.agents.options import Hyper
from feelgood.checks import check_fraction, check_non_negative, check_positive, check_probability
from feelgood.typing import Scalar


def constant(hyper: Any, progress: Scalar) -> Any:
    """The schedule that leaves hyper-parameters unchanged.

    Examples:
      >>> constant({"step_size": 0.1}, 0.5)
      {'step_size': 0.1}
    """
    del progress
    return hyper


def anneal(hyper: Hyper, progress: Scalar) -> dict[str, Scalar]:
    """Hyper-parameters at `progress` in [0, 1]: each `x` that has an `x_end` moves to it linearly.

    Examples:
      >>> anneal({"step_size": 0.1, "step_size_end": 0.0, "friction": 1.0}, 0.5)["step_size"]
      0.05
    """
    at = dict(hyper)
    for name in [name for name in hyper if name.endswith("_end")]:
        start = hyper[name.removesuffix("_end")]
        at[name.removesuffix("_end")] = start + (hyper[name] - start) * progress
    return at


# Allowed values; the end of a schedule has its own entry if more is allowed there.
_ALLOWED: dict[str, Callable[[str, Any], None]] = {
    "step_size": check_positive,
    "step_size_end": check_non_negative,
    "inverse_temperature": partial(check_positive, infinite=True),
    "friction": check_positive,
    "bias_factor": check_non_negative,
    "bias_epsilon": check_positive,
    "feel_good_weight": check_non_negative,
    "average_decay": check_fraction,
    "adam_epsilon": check_positive,
    "initial_epsilon": check_probability,
    "final_epsilon": check_probability,
    "epsilon_fraction": check_probability,
    "prior_scale": check_non_negative,
    "table_rate": check_probability,
    "one_hot_scale": check_positive,
    "horizon_spread": check_positive,
    "action_gap": check_non_negative,
    "dither": check_probability,
    "perturbation": check_non_negative,
    "reward_floor": check_non_negative,
}


def check_hyper(hyper: Hyper) -> None:
    """Requires allowed values of the hyper-parameters, including the ends of their schedules.

    Examples:
      >>> check_hyper({"step_size": 0.1, "friction": -1.0})
      Traceback (most recent call last):
      ...
      ValueError: friction must be positive and finite, got -1.0
    """
    for name, value in hyper.items():
        check = _ALLOWED[name if name in _ALLOWED else name.removesuffix("_end")]
        check(name, value)
