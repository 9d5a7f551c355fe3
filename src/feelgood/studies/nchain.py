"""The N-chain study, after the paper's Figure 1: which agents explore deeply, and how far.

For each chain length and agent, hyper-parameters are chosen on tuning seeds by halving (all points of the grid on a few
seeds, the best of them on more) and the winner is run on fresh seeds, the same for every agent. Tuning seeds and
reporting seeds never meet.

The work is cut into cells, one batch of runs each, that other studies of the N-chain share; see `run_cell`.
"""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from feelgood.checks import check_choice, check_count

__all__ = ["GRIDS", "OPTIMUM", "NChainStudy", "run", "run_cell"]

# The paper's table `tb:nchain`; for agents it does not list, the learning rate is swept.
_PAPER: dict[str, tuple[float, ...]] = {
    "step_size": (1e-2, 1e-3),
    "bias_factor": (1.0, 0.1, 0.01),
    "inverse_temperature": (1e12, 1e10, 1e8),
    "friction": (1.0, 0.1, 0.01),
    "feel_good_weight": (1.0, 0.1, 0.01),
}
_RATES: dict[str, tuple[float, ...]] = {"step_size": (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)}


def _paper(*names: str) -> dict[str, tuple[float, ...]]:
    return {name: _PAPER[name] for name in ("step_size", "inverse_temperature", *names)}


GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "fg_ulmcdqn": _paper("bias_factor", "friction", "feel_good_weight"),
    "fg_lmcdqn": _paper("bias_factor", "feel_good_weight"),
    "ulmcdqn": _paper("bias_factor", "friction"),
    "adam_lmcdqn": _paper("bias_factor"),
    "lmcdqn": _paper(),
    "langevin_dqn": _paper(),
    "dqn": _RATES,
    "bootstrapped_dqn": _RATES,
    "noisynet_dqn": _RATES,
    "steady_fg_ulmcdqn": {
        "step_size": (1e-2, 3e-3),
        "friction": (1.0, 0.3),
        "feel_good_weight": (0.1, 0.05, 0.03),
    },
}
# Those of the paper and its baselines; the last is ours.
_NINE = tuple(GRIDS)[:-1]

# What each part of the steady agent is replaced by when it is taken away, from its hyper-parameters.
_PARTS: dict[str, Callable[[dict[str, float]], dict[str, float]]] = {
    "no_falling_step": lambda hyper: {"step_size_end": hyper["step_size"]},
    "no_falling_weight": lambda hyper: {"feel_good_weight_end": hyper["feel_good_weight"]},
    "no_average": lambda hyper: {"average": 0.0},
}
_PARTS["no_part"] = lambda hyper: {k: v for name in tuple(_PARTS)[:3] for k, v in _PARTS[name](hyper).items()}

# Of a few points of the grid, the best within 10,000 steps at N = 25 on 32 tuning seeds (1,000,100 and on).
_QUICK = {
    "fg_ulmcdqn": {"step_size": 1e-2, "bias_factor": 1.0, "friction": 1.0, "feel_good_weight": 0.1},
    "ulmcdqn": {"step_size": 1e-2, "bias_factor": 1.0, "friction": 1.0},
}

OPTIMUM = 10.0
FIRST_TUNING_SEED = 1_000_000


@dataclass(frozen=True)
class NChainStudy:
    """Deep exploration on the N-chain: every agent at every length, with honest tuning and confidence intervals."""

    preset: Literal["quick", "default", "paper"] = "quick"
    """quick: three agents at N = 25 for 10,000 steps, minutes on a CPU. default: all agents at N = 25 to 100 with their
    default hyper-parameters. paper: the paper's nine, tuned on its grid; for a GPU."""
    lengths: tuple[int, ...] = ()
    """Chain lengths N; empty for the preset's."""
    agents: tuple[str, ...] = ()
    """Agents; empty for the preset's."""
    num_steps: int = 0
    """Environment steps of a run; 0 for the preset's."""
    num_seeds: int = 0
    """Fresh seeds that results are reported on; 0 for the preset's."""
    tuning_seeds: tuple[int, ...] = ()
    """Tuning seeds in each round of halving; empty for the preset's, which is none but for paper."""
    num_kept: int = 8
    """Points of the grid that go on to the second round."""
    cold: tuple[str, ...] = ()
    """Agents whose winner also runs without noise (β = ∞) on the same seeds, reported as NAME_cold."""
    ablate: bool = False
    """Whether steady_fg_ulmcdqn also runs with each of its parts taken away, on the same seeds, reported
    as steady_fg_ulmcdqn_no_PART."""
    form: Literal["released", "paper"] = "released"
    """Form of the adaptive samplers, see `feelgood.agents.Options`."""
    output: Path = Path("runs/nchain")
    """Folder for results; one that holds an unfinished run of the same study is continued."""

    def __post_init__(self):
        check_choice("preset", self.preset, _PRESETS)
        check_choice("form", self.form, ("released", "paper"))
        for name, value in _PRESETS[self.preset].items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for length in self.lengths:
            check_count("lengths", length, minimum=4)
        for agent in self.agents:
            check_choice("agents", agent, GRIDS)
        for agent in self.cold:
            check_choice("cold", agent, [name for name in GRIDS if "inverse_temperature" in GRIDS[name]])
            check_choice("cold", agent, self.agents)
        if self.ablate:
            check_choice("agents, to ablate,", "steady_fg_ulmcdqn", self.agents)
        for name in ("lengths", "agents"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must not repeat, got {values!r}")
        check_count("num_steps", self.num_steps, minimum=1000)
        if self.num_steps % 1000:
            raise ValueError(f"num_steps must be a multiple of 1000, got {self.num_steps}")
        check_count("num_seeds", self.num_seeds)
        if self.num_seeds > FIRST_TUNING_SEED:
            raise ValueError(f"num_seeds must be at most {FIRST_TUNING_SEED}, got {self.num_seeds}")
        check_count("num_kept", self.num_kept)
        for count in self.tuning_seeds:
            check_count("tuning_seeds", count)


_PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "lengths": (25,),
        "agents": ("fg_ulmcdqn", "ulmcdqn", "dqn"),
        "num_steps": 10_000,
        "num_seeds": 20,
    },
    "default": {
        "lengths": (25, 50, 75, 100),
        "agents": tuple(GRIDS),
        "num_steps": 100_000,
        "num_seeds": 20,
    },
    "paper": {
        "lengths": (25, 50, 75, 100),
        "agents": _NINE,
        "num_steps": 100_000,
        "num_seeds": 200,
        "tuning_seeds": (16, 48),
    },
}


def run(study: NChainStudy, report=print) -> list[Path]:
    """Runs the study, or what is left of it, and returns the paths of its tables and figures."""
    from feelgood.results import nchain as results
    from feelgood.results import store, style
    from feelgood.results.progress import bar

    with store.recorded(study.output, "nchain", study):
        curves, sweep = [], []
        with bar() as progress:
            for length, agent in itertools.product(study.lengths, study.agents):
                hyper = _QUICK.get(agent, {}) if study.preset == "quick" else {}
                if study.tuning_seeds:
                    table = _tune(study, length, agent, progress)
                    sweep.append(table)
                    hyper = _best(table, GRIDS[agent])
                seeds = range(study.num_seeds)
                curves.append(_cell(study, length, agent, "report", [hyper], seeds, progress).assign(**hyper))
                if agent in study.cold:
                    cold = {**hyper, "inverse_temperature": 1e30}  # noise far below rounding
                    table = _cell(study, length, agent, "report-cold", [cold], seeds, progress)
                    curves.append(table.assign(agent=f"{agent}_cold", **cold))
                if study.ablate and agent == "steady_fg_ulmcdqn":
                    curves += _ablation(study, length, hyper, seeds, progress)
        import pandas as pd

        table = pd.concat(curves, ignore_index=True)
        summary = results.summarise(table, OPTIMUM)
        store.write_table(study.output / "curves.parquet", table)
        paths = [study.output / "curves.parquet", study.output / "summary.csv", study.output / "summary.md"]
        store.write_text(paths[1], summary.to_csv(index=False))
        store.write_text(paths[2], results.as_markdown(summary))
        if sweep:
            store.write_text(study.output / "sweep.csv", pd.concat(sweep, ignore_index=True).to_csv(index=False))
            paths.append(study.output / "sweep.csv")
        report(results.as_markdown(summary))
        paths += style.save(results.draw_curves(table), study.output / "curves")
        if len(study.lengths) > 1:
            paths += style.save(results.draw_lengths(summary), study.output / "lengths")
    return paths


def _tune(study: NChainStudy, length: int, agent: str, progress):
    """Halving on tuning seeds; returns every point with its mean score and the number of seeds behind it."""
    import pandas as pd

    grid = GRIDS[agent]
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    first = FIRST_TUNING_SEED
    scores = []
    for i, num_seeds in enumerate(study.tuning_seeds):
        seeds = range(first, first + num_seeds)
        first += num_seeds
        table = _cell(study, length, agent, f"tune-{i}", points, seeds, progress)
        trained = table[table["step"] > 0]
        last = trained.groupby(["point", "seed"])["return"].apply(lambda returns: returns.iloc[-10:].mean())
        round_scores = last.groupby("point").agg(["sum", "count"]).reset_index()
        scores.append(round_scores.merge(pd.DataFrame(points).assign(point=range(len(points))), on="point"))
        merged = pd.concat(scores).groupby(list(grid), as_index=False)[["sum", "count"]].sum()
        merged["score"] = merged["sum"] / merged["count"]
        # Points seen on more seeds have survived a round; only they can win.
        best = merged.sort_values(["count", "score"], ascending=False).head(study.num_kept)
        points = best[list(grid)].to_dict("records")
    return merged.drop(columns="sum").assign(length=length, agent=agent)


def _best(table, grid) -> dict[str, float]:
    row = table.sort_values(["count", "score"], ascending=False).iloc[0]
    return {name: float(row[name]) for name in grid}


def _ablation(study: NChainStudy, length: int, hyper, seeds, progress):
    """The steady agent with each part taken away; a table for each."""
    from feelgood import agents

    name = "steady_fg_ulmcdqn"
    whole = {**agents.ZOO[name].hyper, **hyper}
    points = [{**whole, **take_away(whole)} for take_away in _PARTS.values()]
    table = _cell(study, length, name, "report-parts", points, seeds, progress)
    return [table[table["point"] == i].assign(agent=f"{name}_{part}", **points[i]) for i, part in enumerate(_PARTS)]


def _cell(study: NChainStudy, length: int, agent: str, stage: str, points, seeds, progress):
    """A cell of this study."""
    return run_cell(
        study.output, length, agent, stage, points, seeds, progress, num_steps=study.num_steps, form=study.form
    )


def run_cell(
    output: Path,
    length: int,
    agent: str,
    stage: str,
    points: Sequence[Mapping[str, float]],
    seeds: Sequence[int],
    progress,
    *,
    num_steps: int,
    form: Literal["released", "paper"] = "released",
):
    """Runs points × seeds of one agent at one length, or reads them if they are there already.

    The file's name holds a hash of all that the runs depend on, defaults included, so that a changed default or grid is
    run anew and never mixed with old results.

    Args:
      output: folder of the study; cells lie in `output/cells`.
      length: N.
      agent: a member of the zoo.
      stage: what the cell is for; part of its name.
      points: hyper-parameters, the rest being the recipe's defaults.
      seeds: of the runs of each point.
      progress: a bar with `task(name, total)`.
      num_steps: environment steps of a run.
      form: of the adaptive samplers.

    Returns:
      One row per run and evaluation, with columns `point` (place in `points`), `seed`, `step`, `return` and so on.
    """
    from feelgood import agents
    from feelgood.results import store
    from feelgood.training.ingraph import Protocol

    recipe = agents.ZOO[agent]
    protocol = Protocol(num_steps=num_steps, num_updates=recipe.num_updates, success_return=OPTIMUM - 1e-3)
    options = agents.Options(form=form)
    whole = [{**recipe.hyper, **point} for point in points]
    facts = [whole, list(seeds), dataclasses.asdict(protocol), dataclasses.asdict(options)]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    name = f"nchain-{length}/{agent}/{stage}"
    path = output / "cells" / f"{name.replace('/', '-')}-{digest}.parquet"
    if path.exists():
        return store.read_table(path)
    import jax.numpy as jnp
    import numpy as np

    from feelgood import envs
    from feelgood.training import run_batch, trainer

    make = lambda spaces, hyper: agents.make_agent(agent, spaces, hyper, options)
    one = trainer(envs.nchain(length), make, protocol, agents.anneal)
    pairs = list(itertools.product(range(len(points)), seeds))
    hyper = {key: jnp.asarray([whole[i][key] for i, _ in pairs], jnp.float32) for key in recipe.hyper}
    checkpoint = path.with_suffix(".checkpoint.npz")
    with progress.task(name, protocol.num_chunks) as report:
        curves = run_batch(
            one,
            protocol.num_chunks,
            np.array([seed for _, seed in pairs]),
            hyper,
            label=f"{name} {digest}",
            path=checkpoint,
            report=report,
        )
    table = _tabulate(curves, pairs, protocol).assign(length=length, agent=agent)
    store.write_table(path, table)
    checkpoint.unlink(missing_ok=True)
    return table


def _tabulate(curves, pairs, protocol):
    """One row per run and evaluation, the evaluation of the untrained network first."""
    import numpy as np
    import pandas as pd

    num_chunks = curves.record.evaluation.shape[1]
    record = curves.record
    steps = np.arange(num_chunks + 1) * protocol.evaluation_period
    prepend = lambda first, rest: np.concatenate([np.broadcast_to(first, (len(rest), 1)), rest], axis=1).ravel()
    period = protocol.evaluation_period
    reached = np.where(record.num_successes > 0, record.first_success + np.arange(num_chunks) * period, -1)
    return pd.DataFrame(
        {
            "point": np.repeat(np.array([point for point, _ in pairs], np.int32), num_chunks + 1),
            "seed": np.repeat(np.array([seed for _, seed in pairs], np.int32), num_chunks + 1),
            "step": np.tile(steps.astype(np.int32), len(pairs)),
            "return": prepend(curves.initial[:, None], record.evaluation),
            "episodes": prepend(0, record.num_episodes),
            "successes": prepend(0, record.num_successes),
            "first_success": prepend(-1, reached).astype(np.int32),
            "potential": prepend(np.float32(np.nan), record.potential),
            "finite": prepend(True, record.is_finite),
        }
    )
