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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count

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
class RegretStudy:
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


def run(study: RegretStudy, report=print) -> list[Path]:
    """Runs the study, or what is left of it, and returns the paths of its tables and figures."""
    from feelgood.results import regret as results
    from feelgood.results import store, style
    from feelgood.results.progress import bar

    with store.recorded(study.output, "regret", study):
        paths: list[Path] = []
        tables: dict[str, Any] = {}
        with bar() as progress:
            for part in study.parts:
                tables[part] = _PARTS[part](study, progress)
                store.write_table(study.output / f"{part}.parquet", tables[part])
                paths.append(study.output / f"{part}.parquet")
                paths += style.save(results.DRAW[part](tables[part]), study.output / part)
        text = results.as_markdown(tables)
        store.write_text(study.output / "summary.md", text)
        report(text)
    return [*paths, study.output / "summary.md"]


def _cell(study: RegretStudy, name: str, facts: Any, make):
    """The table `make()` returns, or the one it returned before for the same facts."""
    from feelgood.results import store

    path = study.output / "cells" / f"{name}-{store.fingerprint(facts)}.parquet"
    if path.exists():
        return store.read_table(path)
    table = make()
    store.write_table(path, table)
    return table


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


def _tuned(study: RegretStudy, mdp_name: str, algorithm: str) -> dict[str, float]:
    """The scales with the least regret on tuning seeds."""
    import pandas as pd

    from feelgood.linear import mdps
    from feelgood.linear.algorithms import ALGORITHMS

    grid = ALGORITHMS[algorithm].grid
    if not grid:
        return {}

    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    seeds = range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + study.tuning_seeds)

    def make() -> pd.DataFrame:
        regret = _regrets(mdps.SUITE[mdp_name](), algorithm, study.num_episodes, points, seeds)
        return pd.DataFrame(points).assign(regret=regret.sum(-1).mean(-1))

    table = _cell(study, f"tune-{mdp_name}-{algorithm}", [points, study.num_episodes, study.tuning_seeds], make)
    best = table.sort_values("regret", kind="stable").iloc[0]
    return {name: float(best[name]) for name in grid}


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


def _curves(study: RegretStudy, progress):
    import pandas as pd

    from feelgood.linear import mdps, theory
    from feelgood.linear.algorithms import ALGORITHMS

    tables = []
    cells = list(itertools.product(study.mdps, study.algorithms))
    with progress.count("curves", len(cells)) as begin:
        for mdp_name, algorithm in cells:
            begin(f"{algorithm} on {mdp_name}")
            choices = {"tuned": _tuned(study, mdp_name, algorithm)}
            if ALGORITHMS[algorithm].grid:
                choices["theory"] = ALGORITHMS[algorithm].theory

            def make(mdp_name=mdp_name, algorithm=algorithm, choices=choices) -> pd.DataFrame:
                seeds = range(study.num_seeds)
                mdp = mdps.SUITE[mdp_name]()
                regret = _regrets(mdp, algorithm, study.num_episodes, list(choices.values()), seeds)
                bound = theory.corollary_bound(mdp.dimension, mdp.horizon, study.num_episodes).origin
                labels = {"mdp": mdp_name, "algorithm": algorithm, "bound": bound}
                return pd.concat(
                    _tidy(values, seeds, **labels, constants=name, **scales)
                    for (name, scales), values in zip(choices.items(), regret, strict=True)
                )

            facts = [choices, study.num_episodes, study.num_seeds]
            tables.append(_cell(study, f"curves-{mdp_name}-{algorithm}", facts, make))
    return pd.concat(tables, ignore_index=True)


def _exponents(study: RegretStudy, progress):
    """Regret on hypercubes of several d and H, scales tuned at the base alone; T = HK is the same at every H."""
    import pandas as pd

    from feelgood.linear import mdps

    settings = [(d, HORIZONS[0]) for d in DIMENSIONS] + [(DIMENSIONS[0], h) for h in HORIZONS[1:]]
    cells = list(itertools.product(study.algorithms, settings))
    tables = []
    with progress.count("exponents", len(cells)) as begin:
        for algorithm, (dimension, horizon) in cells:
            begin(f"{algorithm} at d = {dimension}, H = {horizon}")
            scales = _tuned(study, "hypercube", algorithm)

            def make(algorithm=algorithm, dimension=dimension, horizon=horizon, scales=scales) -> pd.DataFrame:
                num_episodes = study.num_episodes * HORIZONS[0] // horizon
                mdp = mdps.hypercube(dimension, horizon)
                seeds = range(study.num_seeds)
                regret = _regrets(mdp, algorithm, num_episodes, [scales], seeds)[0]
                return _tidy(regret, seeds, algorithm=algorithm, dimension=dimension, horizon=horizon)

            facts = [scales, study.num_episodes, study.num_seeds]
            tables.append(_cell(study, f"exponents-{algorithm}-{dimension}-{horizon}", facts, make))
    return pd.concat(tables, ignore_index=True)


def _budget(study: RegretStudy, progress):
    """Regret of Algorithm 1 by sampler and gradients per stage and episode, weights as exact sampling likes them."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pandas as pd

    from feelgood.linear import learn, lsvi_ase, mdps, schemes
    from feelgood.linear.algorithms import feel_good_options
    from feelgood.parallel import over_devices

    num_episodes = study.num_episodes // 2
    cells = list(itertools.product(study.mdps, _SAMPLERS))
    tables = []
    with progress.count("budget", len(cells)) as begin:
        for mdp_name, name in cells:
            begin(f"{name} on {mdp_name}")
            scales = _tuned(study, mdp_name, "ase_exact")

            def make(mdp_name=mdp_name, name=name, scales=scales) -> pd.DataFrame:
                mdp = mdps.SUITE[mdp_name]()
                kind, arguments, cost, keep = _SAMPLERS[name]
                scheme = getattr(schemes, kind)(*arguments)
                options = feel_good_options(mdp.features, mdp.horizon, num_episodes, scales)

                def one(seed, num_updates):
                    learner = lsvi_ase(
                        mdp.features, mdp.horizon, scheme, num_updates=num_updates, keep_momentum=keep, **options
                    )
                    curve = learn(jax.random.key(seed), mdp, learner, num_episodes)
                    return curve.regret.sum(), curve.facts.num_gradients.mean() / mdp.horizon

                seeds = np.arange(study.num_seeds)
                mapped = over_devices(one, num_shared=1)
                rows = []
                for budget in [b for b in BUDGETS if b >= cost] if cost else [0]:
                    regret, gradients = mapped(jnp.asarray(seeds), jnp.int32(max(budget // max(cost, 1), 1)))
                    rows.append(
                        pd.DataFrame(
                            {
                                "mdp": mdp_name,
                                "sampler": name,
                                "budget": budget,
                                "seed": seeds,
                                "regret": np.asarray(regret),
                                "gradients": np.asarray(gradients),
                            }
                        )
                    )
                return pd.concat(rows)

            facts = [_SAMPLERS[name], scales, BUDGETS, num_episodes, study.num_seeds]
            tables.append(_cell(study, f"budget-{mdp_name}-{name.split(',')[0]}", facts, make))
    return pd.concat(tables, ignore_index=True)


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


def _errors(study: RegretStudy, progress):
    """δ of every episode by sampler and steps, with the corollary's weights on the random linear MDP."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import pandas as pd

    from feelgood.linear import learn, lsvi_ase, mdps, schemes, theory
    from feelgood.linear.errors import feel_good_error, stage_error

    mdp = mdps.SUITE["simplex"]()
    d, horizon, num_episodes = mdp.dimension, mdp.horizon, min(study.num_episodes, 300)
    loss_weight, feel_good_weight = theory.corollary_weights(d, horizon, num_episodes)
    samplers = {
        "lmc": schemes.lmc(),
        "ulmc": schemes.ulmc(),
        "baoab": schemes.baoab(1.0, 0.5),
    }
    tables = []
    with progress.count("errors", len(samplers)) as begin:
        for name, scheme in samplers.items():
            begin(name)

            def measure(stage, start, num_updates, scheme=scheme):
                kernel = scheme.kernel(stage.largest)
                where = (kernel, stage.precision, stage.mean, start, num_updates)
                if stage.feel_good_weight is None:
                    error = stage_error(*where)
                    return error, error
                bounds = feel_good_error(*where, stage.features, stage.feel_good_weight)
                return bounds.lower, bounds.upper

            def make(name=name, scheme=scheme, measure=measure) -> pd.DataFrame:
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

                rows = []
                seeds = np.arange(min(study.num_seeds, 8))
                episodes = np.arange(1, num_episodes + 1)
                weights = theory.sampling_weights(
                    episodes,
                    loss_weight=loss_weight,
                    feel_good_weight=feel_good_weight,
                    bound=horizon,
                    horizon=horizon,
                )
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
                                "episode": np.tile(episodes, len(seeds)),
                                "later": upper[..., 1:].sum(-1).ravel(),
                                "first_low": lower[..., 0].ravel(),
                                "first_high": upper[..., 0].ravel(),
                                "stages": horizon,
                                "weight": np.tile(weights, len(seeds)),
                                "regret": np.cumsum(curve.regret, axis=1).ravel(),
                                "allowed": np.tile(
                                    theory.allowed_error(episodes, d, horizon, num_episodes), len(seeds)
                                ),
                                "origin": theory.corollary_bound(d, horizon, num_episodes).origin,
                            }
                        )
                    )
                return pd.concat(rows)

            facts = [ERROR_STEPS, num_episodes, study.num_seeds]
            tables.append(_cell(study, f"errors-{name}", facts, make))
    return pd.concat(tables, ignore_index=True)


def _complexity(study: RegretStudy, progress):
    import pandas as pd

    from feelgood.linear import complexity

    tables = []
    with progress.count("complexity", len(complexity.SCHEMES)) as begin:
        for name in complexity.SCHEMES:
            begin(name)

            def make(name=name) -> pd.DataFrame:
                rows = complexity.sweep([name])
                return pd.DataFrame(rows).merge(pd.DataFrame(complexity.exponents(rows)), on=["scheme", "varied"])

            tables.append(_cell(study, f"complexity-{name}", [], make))
    return pd.concat(tables, ignore_index=True)


_PARTS = {
    "curves": _curves,
    "exponents": _exponents,
    "budget": _budget,
    "errors": _errors,
    "complexity": _complexity,
}
