"""Regret in linear MDPs: the paper's Table 1 as something that runs.

Five parts, each a table and a figure:

- curves: cumulative regret of every algorithm on every MDP, with the constants of its theory and with tuned ones;
- exponents: how regret grows with T, d and H, beside what Table 1 claims;
- budget: regret against gradients per stage and episode, for every sampler in Algorithm 1;
- errors: the total variation between what a sampler draws from and the posterior, measured at every stage, and what
  Theorem 1 makes of it;
- complexity: gradients needed for a given total variation, beside Theorem 2.

Tuning seeds and reporting seeds never meet.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count
from feelgood.studies.engine import EngineOptions, Plan, Task, run_plans

__all__ = ["RegretStudy", "run"]

MDPS = ("simplex", "riverswim", "nchain", "lock", "hypercube")
ALGORITHMS = (
    "lsvi_ucb",
    "opt_rlsvi",
    "eleanor",
    "cps",
    "lsvi_phe",
    "lmc_lsvi",
    "ase_lmc",
    "ase_ulmc",
    "ase_baoab",
    "ase_exact",
    "lsvi",
)
PARTS = ("curves", "exponents", "budget", "errors", "complexity")
FIRST_TUNING_SEED = 1_000_000

# Sizes of the hypercube instance at which exponents are measured; the first is the base of both.
DIMENSIONS = (5, 3, 4, 7)
HORIZONS = (5, 3, 8, 12)
BUDGETS = (4, 16, 64)
ERROR_STEPS = (1, 4, 16, 64)


@dataclass(frozen=True)
class RegretStudy(EngineOptions):
    """Regret of every algorithm of Table 1 in linear MDPs, beside its theory."""

    preset: Literal["quick", "default"] = "quick"
    """quick: four algorithms on two MDPs for 300 episodes, a minute or two. default: everything, for
    half an hour to an hour on two cores."""
    parts: tuple[str, ...] = ()
    """Of curves, exponents, budget, errors, complexity; empty for the preset's."""
    mdps: tuple[str, ...] = ()
    """Of simplex, riverswim, nchain, lock, hypercube; empty for the preset's."""
    algorithms: tuple[str, ...] = ()
    """Rows of Table 1 and others; empty for the preset's."""
    num_episodes: int = 0
    """K; 0 for the preset's."""
    num_seeds: int = 0
    """Fresh seeds that results are reported on; 0 for the preset's."""
    tuning_seeds: int = 4
    """Seeds that scales are tuned on."""
    output: Path = Path("runs/regret")
    """Folder for results; one that holds an unfinished run of the same study is continued."""

    def __post_init__(self):
        super().__post_init__()
        check_choice("preset", self.preset, _PRESETS)
        for name, value in _PRESETS[self.preset].items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name, choices in (("parts", PARTS), ("mdps", MDPS), ("algorithms", ALGORITHMS)):
            values = getattr(self, name)
            for value in values:
                check_choice(name, value, choices)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must not repeat, got {values!r}")
        check_count("num_episodes", self.num_episodes, minimum=20)
        check_count("num_seeds", self.num_seeds, minimum=2)
        check_count("tuning_seeds", self.tuning_seeds)


_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "parts": ("curves",),
        "mdps": ("lock", "riverswim"),
        "algorithms": ("lsvi_ucb", "ase_lmc", "ase_baoab", "lsvi"),
        "num_episodes": 300,
        "num_seeds": 20,
    },
    "default": {
        "parts": PARTS,
        "mdps": MDPS,
        "algorithms": ALGORITHMS,
        "num_episodes": 1000,
        "num_seeds": 32,
    },
}


_WHAT = {
    "curves": "cumulative regret at marked episodes, a row per MDP, algorithm, constants, seed and episode",
    "exponents": "cumulative regret at several dimensions and horizons",
    "budget": "regret by sampler and gradients per stage and episode",
    "errors": "total variation between what is sampled and the posterior, a row per sampler, steps, seed and episode",
    "complexity": "gradients needed for a given total variation",
}
FILES = {
    **{f"{part}.parquet": line for part, line in _WHAT.items()},
    **{f"{part}.{ending}": f"figure of {part}" for part in PARTS for ending in ("png", "pdf")},
    "summary.md": "tables for people",
}


def run(study: RegretStudy, report=print) -> list[Path]:
    """Runs the study, or what is left of it, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.results import regret as results
    from feelgood.results import store, style

    seeds = {"reporting": range(study.num_seeds), "tuning": _tuning_seeds(study)}
    with store.recorded(study.output, "regret", study, seeds=seeds, files=FILES) as facts:
        paths: list[Path] = []
        tables: dict[str, Any] = {}
        for part in study.parts:
            plans = _PARTS[part](study)
            tables[part] = pd.concat(run_plans(study, plans, study.output, facts, title=part), ignore_index=True)
            store.write_table(study.output / f"{part}.parquet", tables[part])
            paths.append(study.output / f"{part}.parquet")
            paths += style.save(results.DRAW[part](tables[part]), study.output / part)
        text = results.as_markdown(tables)
        store.write_text(study.output / "summary.md", text)
        report(text)
    return [*paths, study.output / "summary.md"]


def _table(name: str, facts: Any, make: Callable[..., Any], *arguments: Any) -> Plan:
    """Part of a plan: asks for the table `make(*arguments)`, kept under the name and all that it depends on."""
    from feelgood.results import store

    run = partial(_make, make, *arguments)
    (table,) = yield [Task(name, f"{name}-{store.fingerprint(facts)}.parquet", run)]
    return table


def _make(make: Callable[..., Any], *arguments: Any) -> Any:
    *own, _, _ = arguments  # without a bar and a checkpoint: these are short
    return make(*own)


def _regrets(mdp, algorithm: str, num_episodes: int, scales: Sequence[Mapping[str, float]], seeds: Sequence[int]):
    """Regret of every episode, (len(scales), len(seeds), num_episodes)."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from feelgood.linear import learn
    from feelgood.linear.algorithms import ALGORITHMS
    from feelgood.parallel import over_devices

    def one(seed, scales):
        learner = ALGORITHMS[algorithm].make(mdp.features, mdp.horizon, num_episodes, scales)
        return learn(jax.random.key(seed), mdp, learner, num_episodes).regret

    pairs = list(itertools.product(scales, seeds))
    batch = {name: jnp.asarray([point[name] for point, _ in pairs], jnp.float32) for name in scales[0]}
    regret = over_devices(one)(jnp.asarray([seed for _, seed in pairs]), batch)
    return np.asarray(regret).reshape(len(scales), len(seeds), num_episodes)


def _tuning_seeds(study: RegretStudy) -> range:
    return range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + study.tuning_seeds)


def _tuned(study: RegretStudy, mdp_name: str, algorithm: str) -> Plan:
    """Part of a plan: the scales with the least regret on tuning seeds."""
    from feelgood.linear.algorithms import ALGORITHMS

    grid = ALGORITHMS[algorithm].grid
    if not grid:
        return {}
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    facts = [points, study.num_episodes, study.tuning_seeds]
    table = yield from _table(f"tune-{mdp_name}-{algorithm}", facts, _tuning_table, study, mdp_name, algorithm, points)
    best = table.sort_values("regret", kind="stable").iloc[0]
    return {name: float(best[name]) for name in grid}


def _tuning_table(study: RegretStudy, mdp_name: str, algorithm: str, points: Sequence[Mapping[str, float]]):
    import pandas as pd

    from feelgood.linear import mdps

    regret = _regrets(mdps.SUITE[mdp_name](), algorithm, study.num_episodes, points, _tuning_seeds(study))
    return pd.DataFrame(points).assign(regret=regret.sum(-1).mean(-1))


def _marks(num_episodes: int):
    import numpy as np

    both = [np.geomspace(1, num_episodes, 40), np.linspace(1, num_episodes, 41)]
    return np.unique(np.round(np.concatenate(both)).astype(int))


def _tidy(regret, seeds, **labels):
    """Cumulative regret of (seeds, episodes) at marked episodes, as rows."""
    import numpy as np
    import pandas as pd

    marks = _marks(regret.shape[1])
    cumulative = np.cumsum(regret, axis=1, dtype=np.float64)[:, marks - 1]
    return pd.DataFrame(
        {
            **labels,
            "seed": np.repeat(np.asarray(seeds), len(marks)),
            "episode": np.tile(marks, len(cumulative)),
            "regret": cumulative.ravel(),
        }
    )


def _curves(study: RegretStudy) -> list[Plan]:
    return [_curve(study, *pair) for pair in itertools.product(study.mdps, study.algorithms)]


def _curve(study: RegretStudy, mdp_name: str, algorithm: str) -> Plan:
    from feelgood.linear.algorithms import ALGORITHMS

    choices = {"tuned": (yield from _tuned(study, mdp_name, algorithm))}
    if ALGORITHMS[algorithm].grid:
        choices["theory"] = ALGORITHMS[algorithm].theory
    facts = [choices, study.num_episodes, study.num_seeds]
    name = f"curves-{mdp_name}-{algorithm}"
    return (yield from _table(name, facts, _curve_table, study, mdp_name, algorithm, choices))


def _curve_table(study: RegretStudy, mdp_name: str, algorithm: str, choices: Mapping[str, Mapping[str, float]]):
    import pandas as pd

    from feelgood.linear import mdps, theory

    seeds = range(study.num_seeds)
    mdp = mdps.SUITE[mdp_name]()
    regret = _regrets(mdp, algorithm, study.num_episodes, list(choices.values()), seeds)
    bound = theory.corollary_bound(mdp.dimension, mdp.horizon, study.num_episodes).origin
    labels = {"mdp": mdp_name, "algorithm": algorithm, "bound": bound}
    return pd.concat(
        _tidy(values, seeds, **labels, constants=name, **scales)
        for (name, scales), values in zip(choices.items(), regret, strict=True)
    )


def _exponents(study: RegretStudy) -> list[Plan]:
    """Regret on hypercubes of several d and H, scales tuned at the base alone; T = HK is the same at every H."""
    settings = [(d, HORIZONS[0]) for d in DIMENSIONS] + [(DIMENSIONS[0], h) for h in HORIZONS[1:]]
    return [_exponent(study, algorithm, *sizes) for algorithm, sizes in itertools.product(study.algorithms, settings)]


def _exponent(study: RegretStudy, algorithm: str, dimension: int, horizon: int) -> Plan:
    scales = yield from _tuned(study, "hypercube", algorithm)
    facts = [scales, study.num_episodes, study.num_seeds]
    name = f"exponents-{algorithm}-{dimension}-{horizon}"
    return (yield from _table(name, facts, _exponent_table, study, algorithm, dimension, horizon, scales))


def _exponent_table(study: RegretStudy, algorithm: str, dimension: int, horizon: int, scales: Mapping[str, float]):
    from feelgood.linear import mdps

    num_episodes = study.num_episodes * HORIZONS[0] // horizon
    seeds = range(study.num_seeds)
    regret = _regrets(mdps.hypercube(dimension, horizon), algorithm, num_episodes, [scales], seeds)[0]
    return _tidy(regret, seeds, algorithm=algorithm, dimension=dimension, horizon=horizon)


def _budget(study: RegretStudy) -> list[Plan]:
    """Regret of Algorithm 1 by sampler and gradients per stage and episode, weights as exact sampling likes them."""
    return [_spend(study, *pair) for pair in itertools.product(study.mdps, _SAMPLERS)]


def _spend(study: RegretStudy, mdp_name: str, sampler: str) -> Plan:
    scales = yield from _tuned(study, mdp_name, "ase_exact")
    num_episodes = study.num_episodes // 2
    facts = [_SAMPLERS[sampler], scales, BUDGETS, num_episodes, study.num_seeds]
    name = f"budget-{mdp_name}-{sampler.split(',')[0]}"
    return (yield from _table(name, facts, _budget_table, study.num_seeds, num_episodes, mdp_name, sampler, scales))


def _budget_table(num_seeds: int, num_episodes: int, mdp_name: str, sampler: str, scales: Mapping[str, float]):
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pandas as pd

    from feelgood.linear import learn, lsvi_ase, mdps, schemes
    from feelgood.linear.algorithms import feel_good_options
    from feelgood.parallel import over_devices

    mdp = mdps.SUITE[mdp_name]()
    kind, arguments, cost, keep = _SAMPLERS[sampler]
    scheme = getattr(schemes, kind)(*arguments)
    options = feel_good_options(mdp.features, mdp.horizon, num_episodes, scales)

    def one(seed, num_updates):
        learner = lsvi_ase(mdp.features, mdp.horizon, scheme, num_updates=num_updates, keep_momentum=keep, **options)
        curve = learn(jax.random.key(seed), mdp, learner, num_episodes)
        return curve.regret.sum(), curve.facts.num_gradients.mean() / mdp.horizon

    seeds = np.arange(num_seeds)
    mapped = over_devices(one, num_shared=1)
    rows = []
    for budget in [b for b in BUDGETS if b >= cost] if cost else [0]:
        regret, gradients = mapped(jnp.asarray(seeds), jnp.int32(max(budget // max(cost, 1), 1)))
        columns = {"seed": seeds, "regret": np.asarray(regret), "gradients": np.asarray(gradients)}
        rows.append(pd.DataFrame({"mdp": mdp_name, "sampler": sampler, "budget": budget, **columns}))
    return pd.concat(rows)


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


# Schemes whose law after any number of steps is known, with their arguments.
_MEASURED: dict[str, tuple] = {"lmc": (), "ulmc": (), "baoab": (1.0, 0.5)}


def _errors(study: RegretStudy) -> list[Plan]:
    """δ of every episode by sampler and steps, with the corollary's weights on the random linear MDP."""
    num_episodes, num_seeds = min(study.num_episodes, 300), min(study.num_seeds, 8)
    facts = [ERROR_STEPS, num_episodes, study.num_seeds]
    return [_table(f"errors-{name}", facts, _error_table, name, num_episodes, num_seeds) for name in _MEASURED]


def _error_table(name: str, num_episodes: int, num_seeds: int):
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pandas as pd

    from feelgood.linear import learn, lsvi_ase, mdps, schemes, theory
    from feelgood.linear.errors import feel_good_error, stage_error

    mdp = mdps.SUITE["simplex"]()
    d, horizon = mdp.dimension, mdp.horizon
    loss_weight, feel_good_weight = theory.corollary_weights(d, horizon, num_episodes)
    scheme = getattr(schemes, name)(*_MEASURED[name])

    def measure(stage, start, num_updates):
        kernel = scheme.kernel(stage.largest)
        where = (kernel, stage.precision, stage.mean, start, num_updates)
        if stage.feel_good_weight is None:
            error = stage_error(*where)
            return error, error
        bounds = feel_good_error(*where, stage.features, stage.feel_good_weight)
        return bounds.lower, bounds.upper

    @jax.jit
    def runs(seeds, num_updates):
        learner = lsvi_ase(
            mdp.features,
            horizon,
            scheme,
            num_updates=num_updates,
            loss_weight=loss_weight,
            feel_good_weight=feel_good_weight,
            measure=measure,
        )
        return jax.vmap(lambda seed: learn(jax.random.key(seed), mdp, learner, num_episodes))(seeds)

    seeds = np.arange(num_seeds)
    episodes = np.arange(1, num_episodes + 1)
    weights = theory.sampling_weights(
        episodes, loss_weight=loss_weight, feel_good_weight=feel_good_weight, bound=horizon, horizon=horizon
    )
    allowed = theory.allowed_error(episodes, d, horizon, num_episodes)
    rows = []
    for num_updates in ERROR_STEPS:
        curve = runs(jnp.asarray(seeds), jnp.int32(num_updates))
        lower, upper = (np.asarray(x, np.float64) for x in curve.facts.measured)
        lower, upper = np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0)
        rows.append(
            pd.DataFrame(
                {
                    "sampler": name,
                    "steps": num_updates,
                    "seed": np.repeat(seeds, num_episodes),
                    "episode": np.tile(episodes, num_seeds),
                    "later": upper[..., 1:].sum(-1).ravel(),
                    "first_low": lower[..., 0].ravel(),
                    "first_high": upper[..., 0].ravel(),
                    "stages": horizon,
                    "weight": np.tile(weights, num_seeds),
                    "regret": np.cumsum(curve.regret, axis=1).ravel(),
                    "allowed": np.tile(allowed, num_seeds),
                    "origin": theory.corollary_bound(d, horizon, num_episodes).origin,
                }
            )
        )
    return pd.concat(rows)


def _complexity(study: RegretStudy) -> list[Plan]:
    from feelgood.linear import complexity

    return [_table(f"complexity-{name}", [], _complexity_table, name) for name in complexity.SCHEMES]


def _complexity_table(name: str):
    import pandas as pd

    from feelgood.linear import complexity

    rows = complexity.sweep([name])
    return pd.DataFrame(rows).merge(pd.DataFrame(complexity.exponents(rows)), on=["scheme", "varied"])


_PARTS = {
    "curves": _curves,
    "exponents": _exponents,
    "budget": _budget,
    "errors": _errors,
    "complexity": _complexity,
}
