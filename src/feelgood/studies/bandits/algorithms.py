"""The algorithms of the study: how each is made, and the grid it is tuned on. `figures.style.LOOKS` names them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from feelgood import bandits
from feelgood.bandits import Algorithm, Bandit, FeelGood, Model, Training, datasets
from feelgood.studies.bandits import released

Hyper = Mapping[str, Any]


class Entry(NamedTuple):
    """An algorithm of the study, by a function of model, link, number of rounds and hyper-parameters, and its grid.

    The algorithm `base`, if any, is tuned first; its values are used for hyper-parameters that the grid lacks.
    """

    make: Callable[[Model, str, int, Hyper], Algorithm]
    grid: Mapping[str, Sequence[float]]
    base: str = ""


# The loss is ½ Σ (f − r)², so a temperature of σ² = 0.25 is the posterior of linear-20d, and `ridge` its ρ.
HEAT = (0.003, 0.01, 0.03, 0.1, 0.25)
RIDGE = (0.01, 0.05, 0.25, 1.0)
BONUS = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
WEIGHT = (0.003, 0.01, 0.03, 0.1, 0.3)
CAPACITY = 128


def _common(link: str, hyper: Hyper) -> dict[str, Any]:
    return {"prior_precision": hyper["ridge"], "link": link}


def _exact(make: Callable[..., Algorithm], name: str) -> Callable[..., Algorithm]:
    return lambda model, link, num_rounds, hyper: make(model, hyper[name], **_common(link, hyper))


def _chain(make: Callable[..., Algorithm], feel_good: bool = False, **fixed: Any) -> Callable[..., Algorithm]:
    term = lambda hyper: {"feel_good": FeelGood(hyper["weight"], capacity=CAPACITY)} if feel_good else {}
    own = lambda hyper: {**fixed, "temperature": hyper["heat"], **term(hyper)}
    return lambda model, link, num_rounds, hyper: make(model, **_common(link, hyper), **own(hyper))


def _fgts(**settings: Any) -> Callable[..., Algorithm]:
    term = lambda hyper: FeelGood(hyper["weight"], capacity=CAPACITY, **settings)
    own = lambda hyper: {"feel_good": term(hyper), "temperature": hyper["heat"], "num_candidates": 4}
    return lambda model, link, num_rounds, hyper: bandits.fgts(model, **_common(link, hyper), **own(hyper))


_SMALL = Training(width=50, num_steps=2, batch_size=32, capacity=2000)


def _neural(make: Callable[..., Algorithm], name: str, **fixed: Any) -> Callable[..., Algorithm]:
    own = lambda hyper: {name: hyper[name], "training": _SMALL._replace(step_size=hyper["step_size"]), **fixed}
    return lambda model, link, num_rounds, hyper: make(model, **own(hyper))


def _langevin(feel_good: bool) -> Callable[..., Algorithm]:
    term = lambda hyper: FeelGood(hyper["weight"]) if feel_good else None
    make = partial(bandits.neural_langevin, sampler="adam_langevin", training=_SMALL)
    return lambda model, link, num_rounds, hyper: make(model, hyper["step_size"], hyper["heat"], term(hyper))


BASE = {"heat": HEAT, "ridge": RIDGE}
GOOD = {"heat": (0.003, 0.01, 0.03, 0.1), "ridge": (0.25,), "weight": WEIGHT}
ONE_RIDGE = {"heat": HEAT, "ridge": (0.25,)}
STEPS = {"step_size": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)}
SCALES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
NEURAL_HEAT = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)  # of the mean potential
LINEAR = {
    "lin_ucb": Entry(_exact(bandits.lin_ucb, "bonus"), {"bonus": BONUS, "ridge": RIDGE}),
    "lin_ts": Entry(_exact(bandits.lin_ts, "heat"), BASE),
    "lin_ids": Entry(_exact(bandits.lin_ids, "bonus"), {"bonus": BONUS, "ridge": RIDGE}),
    "greedy": Entry(
        lambda model, link, num_rounds, hyper: bandits.lin_ts(model, 0.0, **_common(link, hyper)),
        {"ridge": (0.003, *RIDGE)},
    ),
    "epsilon_greedy": Entry(
        _exact(bandits.epsilon_greedy, "epsilon"), {"epsilon": (0.001, 0.005, 0.02), "ridge": RIDGE}
    ),
    "fgts": Entry(_fgts(), GOOD),
    "fgts_falling": Entry(_fgts(decay=0.5), GOOD | {"weight": (0.03, 0.1, 0.3, 1.0)}),
    "sfgts": Entry(_fgts(smoothness=10.0, bound=2.0), GOOD),
    "lmc_ts": Entry(_chain(bandits.lmc_ts), ONE_RIDGE),
    "fg_lmc_ts": Entry(_chain(bandits.lmc_ts, True, num_steps=10), GOOD),
    "p_lmc_ts": Entry(_chain(bandits.lmc_ts, num_steps=5, preconditioned=True), ONE_RIDGE),
    "ulmc_ts": Entry(_chain(bandits.ulmc_ts), ONE_RIDGE),
    "baoab_ts": Entry(_chain(bandits.baoab_ts), ONE_RIDGE),
    "mala_ts": Entry(_chain(bandits.mala_ts, num_steps=10), ONE_RIDGE),
    "fg_mala_ts": Entry(_chain(bandits.mala_ts, True, num_steps=5), GOOD),
    "hmc_ts": Entry(_chain(bandits.hmc_ts, num_steps=3), ONE_RIDGE),
}
LOGISTIC = {
    "pg_ts": Entry(
        lambda model, link, num_rounds, hyper: bandits.polya_gamma_ts(
            model, prior_precision=hyper["ridge"], temperature=hyper["heat"], window=256
        ),
        {"heat": (0.03, 0.1, 0.3, 1.0), "ridge": (1.0,)},
    )
}
RELEASED = {
    "released_lin_ucb": Entry(released.exact(bandits.lin_ucb), {}),
    "released_lin_ts": Entry(released.exact(bandits.lin_ts), {}),
    "released_lmc_ts": Entry(released.lmc_ts(None), {}),
    "released_fg_lmc_ts": Entry(released.lmc_ts(0.5), {}),
    "released_mala_ts": Entry(released.mala_ts(None, False), {}),
    "released_fg_mala_ts": Entry(released.mala_ts(0.01, False), {}),
    "corrected_mala_ts": Entry(released.mala_ts(None, True), {}),
    "corrected_fg_mala_ts": Entry(released.mala_ts(0.01, True), {}),
}
NEURAL = {
    "neural_greedy": Entry(
        _neural(bandits.neural_greedy, "epsilon"), STEPS | {"epsilon": (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)}
    ),
    "neural_linear": Entry(_neural(bandits.neural_linear, "temperature"), STEPS | {"temperature": SCALES}),
    "neural_ts": Entry(_neural(bandits.neural_ts, "scale"), STEPS | {"scale": SCALES}),
    "neural_ucb": Entry(_neural(bandits.neural_ucb, "scale"), STEPS | {"scale": SCALES}),
    "neural_ensemble": Entry(
        _neural(bandits.neural_ensemble, "prior_scale", num_members=5),
        STEPS | {"prior_scale": (0.01, 0.03, 0.1, 0.3, 1.0)},
    ),
    "neural_lmc": Entry(_langevin(False), STEPS | {"heat": NEURAL_HEAT}),
    "neural_fg_lmc": Entry(
        _langevin(True), {"heat": NEURAL_HEAT, "weight": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)}, base="neural_lmc"
    ),
}
ENTRIES: dict[str, Entry] = {**LINEAR, **LOGISTIC, **RELEASED, **NEURAL}
ON_DATA = ("lin_ucb", "lin_ts", "epsilon_greedy", *NEURAL)


def usual(problem_name: str) -> tuple[str, ...]:
    """The algorithms of a problem if none are named."""
    return ON_DATA if problem_name in datasets.SOURCES else (*LINEAR, *RELEASED, *LOGISTIC)


def suits(algorithm: str, problem_name: str) -> bool:
    """Whether an algorithm can be run on a problem."""
    if algorithm in RELEASED:
        return problem_name.startswith("linear")
    if algorithm in LOGISTIC:
        return problem_name.startswith("logistic")
    plain = ("lin_ucb", "lin_ts", "lin_ids", "greedy", "epsilon_greedy", "fgts", "lmc_ts")
    if problem_name.startswith("logistic"):  # chains on the Laplace quadratic add nothing to exact draws from it
        return algorithm in plain
    if problem_name.startswith("wheel"):
        return algorithm in (*plain, "fg_lmc_ts", *NEURAL)
    return algorithm not in NEURAL or not problem_name.startswith("linear")


def constants(name: str) -> dict[str, float]:
    """Numbers of a problem that may be traced, so that all wheels share one compilation."""
    return {"delta": float(name.removeprefix("wheel-"))} if name.startswith("wheel-") else {}


def problem(name: str, numbers: Hyper | None = None) -> tuple[Bandit, str]:
    """The bandit with this name, and the link of its rewards; `numbers` replace its `constants`."""
    if name == "linear-20d":
        return bandits.linear(), "identity"
    if name == "linear-40d":
        return bandits.linear(num_features=8), "identity"
    if name == "logistic-20d":
        return bandits.logistic(), "logistic"
    if name.startswith("wheel-"):
        return bandits.wheel((numbers or constants(name))["delta"]), "identity"
    return datasets.classification(*datasets.load(name)), "identity"


def grid(algorithm: str, problem_name: str) -> Mapping[str, Sequence[float]]:
    """The grid of an algorithm, in the units of the problem."""
    own = dict(ENTRIES[algorithm].grid)
    if algorithm.startswith("neural") or algorithm == "pg_ts":
        return own
    if problem_name.startswith("logistic"):
        # The likelihood has no free scale here: a temperature of 1 is the posterior, θ* ~ N(0, I).
        own |= {
            "heat": (0.03, 0.1, 0.3, 1.0),
            "ridge": (1.0,),
            "bonus": (0.3, 0.6, 1.0, 2.0, 4.0),
            "weight": (0.01, 0.1),
        }
    if problem_name.startswith("wheel"):
        own |= {
            "heat": (0.1, 1.0, 10.0, 100.0, 1000.0),
            "ridge": (0.05,),
            "bonus": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
            "weight": (0.1, 1.0, 10.0),
            "epsilon": (0.01, 0.05, 0.2, 0.5),
        }
    if problem_name in datasets.SOURCES:
        own |= {
            "heat": (0.0003, 0.001, 0.003, 0.01, 0.03),
            "ridge": (0.05, 0.25, 1.0, 4.0, 16.0),
            "bonus": (0.01, 0.03, 0.1, 0.3, 1.0),
            "epsilon": (0.0003, 0.001, 0.003, 0.01, 0.03),
        }
    return {key: own[key] for key in ENTRIES[algorithm].grid}
