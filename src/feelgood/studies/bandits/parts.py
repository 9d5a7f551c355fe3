"""The parts of the bandits study: the tables that each asks for, and how they are made."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from feelgood import bandits
from feelgood.bandits import FeelGood, errors
from feelgood.pairs import grid_points
from feelgood.parallel import over_devices
from feelgood.samplers import diagnostics
from feelgood.studies.bandits.algorithms import ENTRIES, NEURAL, constants, grid, problem, suits, usual
from feelgood.studies.engine import Plan, short_table
from feelgood.studies.options import tuning_range

if TYPE_CHECKING:
    from feelgood.studies.bandits.study import BanditsStudy

WEIGHTS = {  # by the exponent p of λ_t = λ·(1 + t)^−p
    0.0: (0.0, 0.003, 0.01, 0.03, 0.1, 0.3),
    0.5: (0.0, 0.03, 0.1, 0.3, 1.0, 3.0),
    1.0: (0.0, 0.3, 1.0, 3.0, 10.0, 30.0),
}
ERROR_STEPS = (1, 5, 25)
HEAT, RIDGE = 0.25, 0.25  # the true posterior of the linear problems under the loss ½ Σ (f − r)²


def _regrets(make, num_rounds: int, points: Sequence[Mapping[str, float]], seeds: Sequence[int]):
    """Cumulative regret at marked rounds, (len(points), len(seeds), len(marks)); `make` gives bandit and algorithm."""
    marks = jnp.asarray(_marks(num_rounds) - 1)

    def one(seed, hyper):
        bandit, algorithm = make(hyper)
        curve = bandits.simulate(jax.random.key(seed), bandit, algorithm, num_rounds)
        return jnp.cumsum(curve.regret)[marks]

    pairs = list(itertools.product(points, seeds))
    batch = {name: jnp.asarray([point[name] for point, _ in pairs], jnp.float32) for name in points[0]}
    # LAPACK calls of two devices at a time can wait for each other forever, see `feelgood.algebra`.
    program = str(jax.make_jaxpr(one)(seeds[0], dict(points[0])))
    has_lapack = "cholesky" in program or "triangular_solve" in program
    run = jax.jit(jax.vmap(one)) if has_lapack else over_devices(one)
    regret = run(jnp.asarray([seed for _, seed in pairs]), batch)
    return np.asarray(regret, np.float64).reshape(len(points), len(seeds), -1)


def _marks(num_rounds: int):
    both = [np.geomspace(1, num_rounds, 20), np.linspace(1, num_rounds, 26)]
    return np.unique(np.round(np.concatenate(both)).astype(int))


def _measured(algorithm: str, name: str, num_rounds: int, points: Sequence[Mapping[str, float]], seeds: Sequence[int]):
    def make(hyper):
        bandit, link = problem(name, hyper)
        return bandit, ENTRIES[algorithm].make(bandit.model, link, num_rounds, hyper)

    return _regrets(make, num_rounds, [{"none": 0.0, **constants(name), **point} for point in points], seeds)


# Curves.


def _curves(study: "BanditsStudy") -> list[Plan]:
    return [
        _curve(study, name, algorithm)
        for name in study.problems
        for algorithm in study.algorithms or usual(name)
        if suits(algorithm, name)
    ]


def _curve(study: "BanditsStudy", name: str, algorithm: str) -> Plan:
    best, words = yield from _tuned(study, name, algorithm)
    facts = [best, study.num_rounds, study.seed_list, 1]
    table = yield from short_table(f"curve-{name}-{algorithm}", facts, _curve_table, study, name, algorithm, best)
    return table.assign(setting=", ".join(words.values()))


def _tuned(study: "BanditsStudy", name: str, algorithm: str) -> Plan:
    """The settings with the least regret on tuning seeds, and each in words."""
    own, base = grid(algorithm, name), ENTRIES[algorithm].base
    taken, words = {}, {}
    if base:
        theirs, spoken = yield from _tuned(study, name, base)
        taken = {key: value for key, value in theirs.items() if key not in own}
        words = {key: f"{spoken[key]} as {base}" for key in taken}
    points = [{**taken, **point} for point in grid_points(own)]
    best = points[0]
    if len(points) > 1:
        num_rounds, seeds = _tuning_runs(study, algorithm)
        facts = [points, num_rounds, len(seeds), 1]
        table = yield from short_table(f"tune-{name}-{algorithm}", facts, _tuning_table, study, name, algorithm, points)
        row = table.sort_values("regret", kind="stable").iloc[0]
        best = {key: float(row[key]) for key in best}
    return best, words | {key: _tuned_text(key, best[key], own[key]) for key in own}


def _tuned_text(key: str, value: float, choices: Sequence[float]) -> str:
    """A tuned value, marked if it lies at an end of its grid, where a wider grid could have a better one."""
    edge = len(choices) > 1 and value in (min(choices), max(choices))
    return f"{key} {value:g}" + (" (edge)" if edge else "")


def _tuning_runs(study: "BanditsStudy", algorithm: str) -> tuple[int, Sequence[int]]:
    """Rounds and seeds of tuning: at most 2,000 and four for networks, whose grids are large and rounds slow."""
    seeds = tuning_range(study)
    return (min(study.tuning_rounds, 2000), seeds[:4]) if algorithm in NEURAL else (study.tuning_rounds, seeds)


def _tuning_table(study: "BanditsStudy", name: str, algorithm: str, points: Sequence[Mapping[str, float]]):
    num_rounds, seeds = _tuning_runs(study, algorithm)
    regret = _measured(algorithm, name, num_rounds, points, seeds)[:, :, -1]
    return pd.DataFrame(points).assign(regret=np.where(np.isfinite(regret), regret, np.inf).mean(-1))


def _curve_table(study: "BanditsStudy", name: str, algorithm: str, hyper: Mapping[str, float]):
    seeds, marks = study.seed_list, _marks(study.num_rounds)
    regret = _measured(algorithm, name, study.num_rounds, [hyper], seeds)[0]
    times = {"seed": np.repeat(seeds, len(marks)), "round": np.tile(marks, len(seeds))}
    return pd.DataFrame({"problem": name, "algorithm": algorithm, **times, "regret": regret.ravel()})


# Regret against the feel-good weight, with exact draws and with a chain.


def _weights(study: "BanditsStudy") -> list[Plan]:
    heats = (0.25, 0.03)
    cells = [*itertools.product(("exact",), heats, WEIGHTS), *itertools.product(("lmc",), heats, (0.0,))]
    facts = lambda decay: [WEIGHTS[decay], study.num_rounds, study.seed_list, 1]
    return [
        short_table(f"weights-{draws}-{heat}-{decay}", facts(decay), _weight_table, study, draws, heat, decay)
        for draws, heat, decay in cells
    ]


def _weight_table(study: "BanditsStudy", draws: str, heat: float, decay: float):
    bandit, _ = problem("linear-20d")
    num_rounds, seeds = min(study.num_rounds, 2000), study.seed_list[:50]

    def make(hyper):
        # λ is in units of the loss, and the loss has weight β in the exponent.
        term = FeelGood(hyper["weight"], capacity=128, decay=decay)
        if draws == "exact":
            return bandit, bandits.fgts(bandit.model, term, heat, prior_precision=RIDGE, num_candidates=4)
        return bandit, bandits.lmc_ts(bandit.model, 0.5, heat, num_steps=5, feel_good=term, prior_precision=RIDGE)

    points = [{"weight": weight} for weight in WEIGHTS[decay]]
    regret = _regrets(make, num_rounds, points, seeds)[:, :, -1]
    table = pd.DataFrame(itertools.product(WEIGHTS[decay], seeds), columns=["weight", "seed"])
    return table.assign(draws=draws, temperature=heat, decay=decay, rounds=num_rounds, regret=regret.ravel())


# Sampling error, exact, and the regret that goes with it.

# Name: algorithm, kernel of one step in round t.
_SAMPLERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lmc": (
        lambda model, **options: bandits.lmc_ts(model, 0.5, HEAT, **options),
        lambda t, largest: diagnostics.langevin_kernel(0.5 / largest, 1 / HEAT),
    ),
    "lmc, step 0.1/t": (
        lambda model, **options: bandits.lmc_ts(model, 0.1, HEAT, decay=True, **options),
        lambda t, largest: diagnostics.langevin_kernel(0.1 / t, 1 / HEAT),
    ),
    "baoab": (
        lambda model, **options: bandits.baoab_ts(model, 1.0, 0.5, HEAT, **options),
        lambda t, largest: diagnostics.underdamped_splitting_kernel(1 / largest**0.5, 0.5 * largest**0.5, 1 / HEAT),
    ),
    "preconditioned lmc": (
        lambda model, **options: bandits.lmc_ts(model, 0.5, HEAT, preconditioned=True, **options),
        lambda t, largest: diagnostics.langevin_kernel(0.5, 1 / HEAT),
    ),
    "exact": (
        lambda model, num_steps, **options: bandits.lin_ts(model, HEAT, **options),
        lambda t, largest: None,
    ),
}


def _errors(study: "BanditsStudy") -> list[Plan]:
    facts, word = [study.num_rounds, study.seed_list, 1], lambda name: name.replace(", ", "-").replace("/", "")
    return [
        short_table(f"errors-{word(name)}-{steps}", facts, _error_table, study, name, steps)
        for name in _SAMPLERS
        for steps in (ERROR_STEPS if name != "exact" else (0,))
    ]


def _error_table(study: "BanditsStudy", name: str, steps: int):
    """A row for each marked round: the mean sampling error over a few runs, and the mean regret over all seeds."""
    bandit, _ = problem("linear-20d")
    num_rounds, seeds, num_laws = min(study.num_rounds, 2000), study.seed_list[:50], 4
    make, kernel = _SAMPLERS[name]
    algorithm = make(bandit.model, num_steps=steps, prior_precision=RIDGE)
    preconditioned = name == "preconditioned lmc"
    marks = _marks(num_rounds)

    def record(state: Any) -> tuple[Any, Any]:
        statistics = state.statistics if hasattr(state, "statistics") else state
        return statistics.precision, statistics.mean

    def one(seed: Any) -> tuple[Any, Any]:
        curve = bandits.simulate(jax.random.key(seed), bandit, algorithm, num_rounds, record=record)
        return curve.regret, curve.facts

    curves, traced = over_devices(one)(jnp.asarray(seeds))
    regret = np.cumsum(np.asarray(curves, np.float64), 1)[:, marks - 1]
    table = pd.DataFrame({"sampler": name, "steps": steps, "round": marks, "regret": regret.mean(0)})
    table["standard_error"] = regret.std(0, ddof=1) / np.sqrt(len(seeds))
    if name == "exact":
        return table.assign(total_variation=0.0, wasserstein=0.0)
    found = [
        errors.sampling_error(p, m, kernel, steps, HEAT, marks - 1, preconditioned=preconditioned)
        for p, m in zip(*(np.asarray(leaf[:num_laws]) for leaf in traced), strict=True)
    ]
    return table.assign(
        total_variation=np.mean([each.total_variation for each in found], 0),
        wasserstein=np.mean([each.wasserstein for each in found], 0),
    )


PLANS = {"curves": _curves, "weights": _weights, "errors": _errors}
