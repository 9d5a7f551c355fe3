"""bsuite's experiments: their ids with settings, budgets and environments (bsuite 0.3.6)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feelgood.checks import check_choice
from feelgood.studies.deepsea.study import BSUITE_MAPPING, BSUITE_SIZES

_RATIOS = (1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
LOGGED = sorted({round(r * 10**power) for power in range(5) for r in _RATIOS if r * 10**power in range(1, 10_001)})
"""Numbers of episodes after which bsuite logs a run, and so checks whether it has solved its deep sea."""


@dataclass(frozen=True)
class Experiment:
    """An experiment: bsuite's first tag of it, budget of a run, most steps of an episode, and settings of each id.

    In place of `max_steps`, None stands for the size of the deep sea.
    """

    kind: str
    num_episodes: int
    max_steps: int | None
    settings: Sequence[Mapping[str, int | float]]


_SEAS = tuple({"size": size, "mapping_seed": BSUITE_MAPPING} for size in BSUITE_SIZES)
EXPERIMENTS = {
    "deep_sea": Experiment("exploration", 10_000, None, _SEAS),
    "deep_sea_stochastic": Experiment("exploration", 10_000, None, _SEAS),
    "cartpole_swingup": Experiment(
        "exploration",
        1_000,
        1001,
        tuple({"height_threshold": n / 20, "x_reward_threshold": 1 - n / 20} for n in range(20)),
    ),
    "bandit": Experiment("basic", 10_000, 1, tuple({"mapping_seed": n} for n in range(20))),
    "catch": Experiment("basic", 10_000, 9, ({},) * 20),
    "mountain_car": Experiment("basic", 1_000, 1000, ({},) * 20),
    "cartpole": Experiment("basic", 1_000, 1001, ({},) * 20),
}
"""The experiments of this study. bsuite's others need a memory or MNIST, add noise to or scale these, or test credit
assignment."""


def is_sea(name: str) -> bool:
    """Whether an experiment is a deep sea."""
    return name.startswith("deep_sea")


def read_ids(ids: Sequence[str]) -> dict[str, list[int]]:
    """The numbers of the ids by experiment; an experiment's name alone stands for all its ids.

    Examples:
      >>> read_ids(["catch/0", "catch/3", "bandit/7"])
      {'catch': [0, 3], 'bandit': [7]}
    """
    found: dict[str, list[int]] = {}
    for each in ids:
        name, slash, number = each.partition("/")
        check_choice("ids", name, EXPERIMENTS)
        count = len(EXPERIMENTS[name].settings)
        if slash and not (number.isdecimal() and int(number) < count):
            raise ValueError(f"ids of {name} must be {name}/0 to {name}/{count - 1}, got {each!r}")
        found.setdefault(name, []).extend([int(number)] if slash else range(count))
        if len(set(found[name])) < len(found[name]):
            raise ValueError(f"ids must not repeat, got {tuple(ids)!r}")
    return found


def environments(name: str, numbers: Sequence[int]) -> tuple[Callable[[Any], Any], Any]:
    """The environment of an experiment as a function of settings, and the settings of ids, stacked along an axis.

    The ids of a deep sea must have one size.
    """
    import numpy as np

    from feelgood import envs
    from feelgood.envs import bsuite

    settings = [EXPERIMENTS[name].settings[number] for number in numbers]
    if is_sea(name):
        (size,) = {int(each["size"]) for each in settings}
        maps = [envs.deep_sea_mapping(size, int(each["mapping_seed"])) for each in settings]
        windy = name == "deep_sea_stochastic"
        return lambda mapping: envs.deep_sea(size, windy=windy, mapping=mapping), np.stack(maps).astype(np.int32)
    if name == "bandit":
        rewards = [bsuite.bandit_rewards(int(each["mapping_seed"])) for each in settings]
        return bsuite.bandit, np.stack(rewards).astype(np.float32)
    if name == "cartpole_swingup":
        thresholds = {key: np.array([each[key] for each in settings], np.float32) for key in settings[0]}
        return lambda own: bsuite.cartpole_swingup(**own), thresholds
    plain = {"catch": bsuite.catch(), "mountain_car": bsuite.mountain_car(), "cartpole": bsuite.cartpole()}
    return lambda _: plain[name], np.zeros(len(settings), np.float32)
