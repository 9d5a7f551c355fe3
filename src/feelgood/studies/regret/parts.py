"""The parts of the regret study: plans and tables."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from feelgood.linear import complexity, learn, lsvi_ase, mdps, schemes, theory
from feelgood.linear.algorithms import ALGORITHMS, NUM_UPDATES, feel_good_options
from feelgood.linear.errors import feel_good_error, stage_error
from feelgood.pairs import grid_points
from feelgood.parallel import over_devices
from feelgood.studies.engine import Plan, short_table
from feelgood.studies.options import tuning_range

if TYPE_CHECKING:
    from feelgood.studies.regret.study import RegretStudy

# Sizes of the hypercube instance at which exponents are measured; the first is the base of both.
DIMENSIONS = (5, 3, 4, 7)
HORIZONS = (5, 3, 8, 12)
BUDGETS = (4, 16, 64)
ERROR_STEPS = (1, 4, 16, 64)

# Name: scheme, its arguments, gradients of one step, whether momentum is kept.
_SAMPLERS: dict[str, tuple[str, tuple, int, bool]] = {
    "lmc": ("lmc", (0.5,), 1, False),
    "ulmc": ("ulmc", (0.5, 2.0), 1, False),
    "baoab": ("baoab", (1.0, 0.1), 1, False),
    "baoab, momentum kept": ("baoab", (1.0, 0.1), 1, True),
    "mala": ("mala", (1.0,), 2, False),
    "hmc": ("hmc", (0.7, 15), 16, False),
    "proximal": ("proximal", (1.0,), 5, False),
    "exact": ("exact", (), 0, False),
}

# Schemes whose law after n steps has a closed form, with their arguments.
_MEASURED: dict[str, tuple] = {"lmc": (), "ulmc": (), "baoab": (1.0, 0.5)}


def _regrets(mdp, algorithm: str, num_episodes: int, scales: Sequence[Mapping[str, float]], seeds: Sequence[int]):
    """Regret of every episode, (len(scales), len(seeds), num_episodes)."""

    def one(seed, scales):
        learner = ALGORITHMS[algorithm].make(mdp.features, mdp.horizon, num_episodes, scales)
        return learn(jax.random.key(seed), mdp, learner, num_episodes).regret

    pairs = list(itertools.product(scales, seeds))
    batch = {name: jnp.asarray([point[name] for point, _ in pairs], jnp.float32) for name in scales[0]}
    regret = over_devices(one)(jnp.asarray([seed for _, seed in pairs]), batch)
    return np.asarray(regret).reshape(len(scales), len(seeds), num_episodes)


def _tuned(study: "RegretStudy", mdp_name: str, algorithm: str) -> Plan:
    """Part of a plan: the scales with the least regret on tuning seeds."""
    grid = ALGORITHMS[algorithm].grid
    if not grid:
        return {}
    points = grid_points(grid)
    facts = [points, study.num_episodes, study.tuning_seeds, NUM_UPDATES]
    runs = study, mdp_name, algorithm, points
    table = yield from short_table(f"tune-{mdp_name}-{algorithm}", facts, _tuning_table, *runs)
    best = table.sort_values("regret", kind="stable").iloc[0]
    return {name: float(best[name]) for name in grid}


def _tuning_table(study: "RegretStudy", mdp_name: str, algorithm: str, points: Sequence[Mapping[str, float]]):
    regret = _regrets(mdps.SUITE[mdp_name](), algorithm, study.num_episodes, points, tuning_range(study))
    return pd.DataFrame(points).assign(regret=regret.sum(-1).mean(-1))


def _tidy(regret, seeds, **labels):
    """Cumulative regret of (seeds, episodes) at marked episodes, as rows."""
    end = regret.shape[1]
    marks = np.unique(np.round(np.concatenate([np.geomspace(1, end, 40), np.linspace(1, end, 41)])).astype(int))
    cumulative = np.cumsum(regret, axis=1, dtype=np.float64)[:, marks - 1]
    times = {"seed": np.repeat(seeds, len(marks)), "episode": np.tile(marks, len(cumulative))}
    return pd.DataFrame({**labels, **times, "regret": cumulative.ravel()})


def _curves(study: "RegretStudy") -> list[Plan]:
    return [_curve(study, *pair) for pair in itertools.product(study.mdps, study.algorithms)]


def _curve(study: "RegretStudy", mdp_name: str, algorithm: str) -> Plan:
    choices = {"tuned": (yield from _tuned(study, mdp_name, algorithm))}
    if ALGORITHMS[algorithm].grid:
        choices["theory"] = ALGORITHMS[algorithm].theory
    facts = [choices, study.num_episodes, study.seeds or study.num_seeds, NUM_UPDATES]
    runs = study, mdp_name, algorithm, choices
    return (yield from short_table(f"curves-{mdp_name}-{algorithm}", facts, _curve_table, *runs))


def _curve_table(study: "RegretStudy", mdp_name: str, algorithm: str, choices: Mapping[str, Mapping[str, float]]):
    mdp = mdps.SUITE[mdp_name]()
    regret = _regrets(mdp, algorithm, study.num_episodes, list(choices.values()), study.seed_list)
    bound = theory.corollary_bound(mdp.dimension, mdp.horizon, study.num_episodes).origin
    labels = {"mdp": mdp_name, "algorithm": algorithm, "bound": bound}
    return pd.concat(
        _tidy(values, study.seed_list, **labels, constants=name, **scales)
        for (name, scales), values in zip(choices.items(), regret, strict=True)
    )


def _exponents(study: "RegretStudy") -> list[Plan]:
    """Regret on hypercubes of several d and H, with scales tuned at the base size; T = HK is equal for all H."""
    settings = [(d, HORIZONS[0]) for d in DIMENSIONS] + [(DIMENSIONS[0], h) for h in HORIZONS[1:]]
    return [_exponent(study, algorithm, *sizes) for algorithm, sizes in itertools.product(study.algorithms, settings)]


def _exponent(study: "RegretStudy", algorithm: str, dimension: int, horizon: int) -> Plan:
    scales = yield from _tuned(study, "hypercube", algorithm)
    facts = [scales, study.num_episodes, study.seeds or study.num_seeds, NUM_UPDATES]
    name = f"exponents-{algorithm}-{dimension}-{horizon}"
    return (yield from short_table(name, facts, _exponent_table, study, algorithm, dimension, horizon, scales))


def _exponent_table(study: "RegretStudy", algorithm: str, dimension: int, horizon: int, scales: Mapping[str, float]):
    num_episodes = study.num_episodes * HORIZONS[0] // horizon
    regret = _regrets(mdps.hypercube(dimension, horizon), algorithm, num_episodes, [scales], study.seed_list)[0]
    return _tidy(regret, study.seed_list, algorithm=algorithm, dimension=dimension, horizon=horizon)


def _budget(study: "RegretStudy") -> list[Plan]:
    """Regret of Algorithm 1 by sampler and gradients per stage and episode, with weights tuned for exact sampling."""
    return [_spend(study, *pair) for pair in itertools.product(study.mdps, _SAMPLERS)]


def _spend(study: "RegretStudy", mdp_name: str, sampler: str) -> Plan:
    scales = yield from _tuned(study, mdp_name, "ase_exact")
    num_episodes = study.num_episodes // 2
    facts = [_SAMPLERS[sampler], scales, BUDGETS, num_episodes, study.seeds or study.num_seeds]
    runs = study.seed_list, num_episodes, mdp_name, sampler, scales
    return (yield from short_table(f"budget-{mdp_name}-{sampler.split(',')[0]}", facts, _budget_table, *runs))


def _budget_table(seeds: Sequence[int], num_episodes: int, mdp_name: str, sampler: str, scales: Mapping[str, float]):
    mdp = mdps.SUITE[mdp_name]()
    kind, arguments, cost, keep = _SAMPLERS[sampler]
    scheme = getattr(schemes, kind)(*arguments)
    options = feel_good_options(mdp.features, mdp.horizon, num_episodes, scales)

    def one(seed, num_updates):
        learner = lsvi_ase(mdp.features, mdp.horizon, scheme, num_updates=num_updates, keep_momentum=keep, **options)
        curve = learn(jax.random.key(seed), mdp, learner, num_episodes)
        return curve.regret.sum(), curve.facts.num_gradients.mean() / mdp.horizon

    mapped = over_devices(one, num_shared=1)
    rows = []
    for budget in [b for b in BUDGETS if b >= cost] if cost else [0]:
        regret, gradients = mapped(jnp.asarray(seeds), jnp.int32(max(budget // max(cost, 1), 1)))
        columns = {"seed": seeds, "regret": np.asarray(regret), "gradients": np.asarray(gradients)}
        rows.append(pd.DataFrame({"mdp": mdp_name, "sampler": sampler, "budget": budget, **columns}))
    return pd.concat(rows)


def _errors(study: "RegretStudy") -> list[Plan]:
    """δ of every episode by sampler and steps, with the corollary's weights on the random linear MDP."""
    num_episodes, seeds = min(study.num_episodes, 300), study.seed_list[:8]
    facts = [ERROR_STEPS, num_episodes, study.seeds or len(seeds)]
    return [
        short_table(f"errors-{name}", [*facts, arguments], _error_table, name, num_episodes, seeds)
        for name, arguments in _MEASURED.items()
    ]


def _error_table(name: str, num_episodes: int, seeds: Sequence[int]):
    mdp = mdps.SUITE["simplex"]()
    d, horizon = mdp.dimension, mdp.horizon
    loss_weight, feel_good_weight = theory.corollary_weights(d, horizon, num_episodes)
    options: dict[str, Any] = {"loss_weight": loss_weight, "feel_good_weight": feel_good_weight}
    scheme = getattr(schemes, name)(*_MEASURED[name])

    def measure(stage, start, num_updates):
        where = (scheme.kernel(stage.largest), stage.precision, stage.mean, start, num_updates)
        if stage.feel_good_weight is None:
            return (stage_error(*where),) * 2
        bounds = feel_good_error(*where, stage.features, stage.feel_good_weight)
        return bounds.lower, bounds.upper

    @jax.jit
    def runs(seeds, num_updates):
        learner = lsvi_ase(mdp.features, horizon, scheme, num_updates=num_updates, **options, measure=measure)
        return jax.vmap(lambda seed: learn(jax.random.key(seed), mdp, learner, num_episodes))(seeds)

    episodes = np.arange(1, num_episodes + 1)
    weights = theory.sampling_weights(episodes, **options, bound=horizon, horizon=horizon)
    allowed = theory.allowed_error(episodes, d, horizon, num_episodes)
    rows = []
    for num_updates in ERROR_STEPS:
        curve = runs(jnp.asarray(seeds), jnp.int32(num_updates))
        lower, upper = (np.asarray(x, np.float64) for x in curve.facts.measured)
        lower, upper = np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0)
        columns = {
            "sampler": name,
            "steps": num_updates,
            "seed": np.repeat(seeds, num_episodes),
            "episode": np.tile(episodes, len(seeds)),
            "later": upper[..., 1:].sum(-1).ravel(),
            "first_low": lower[..., 0].ravel(),
            "first_high": upper[..., 0].ravel(),
            "stages": horizon,
            "weight": np.tile(weights, len(seeds)),
            "regret": np.cumsum(curve.regret, axis=1).ravel(),
            "allowed": np.tile(allowed, len(seeds)),
            "origin": theory.corollary_bound(d, horizon, num_episodes).origin,
        }
        rows.append(pd.DataFrame(columns))
    return pd.concat(rows)


def _complexity(study: "RegretStudy") -> list[Plan]:
    return [short_table(f"complexity-{name}", [], _complexity_table, name) for name in complexity.SCHEMES]


def _complexity_table(name: str):
    rows = complexity.sweep([name])
    return pd.DataFrame(rows).merge(pd.DataFrame(complexity.exponents(rows)), on=["scheme", "varied"])


PLANS = {"curves": _curves, "exponents": _exponents, "budget": _budget, "errors": _errors, "complexity": _complexity}
