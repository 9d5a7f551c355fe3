"""Contextual bandits: every algorithm tuned and as released, with exact and approximate draws.

Three parts, each a table and a figure:

- curves: cumulative regret of every algorithm on every problem. Each is tuned on its own tuning seeds and measured on
  fresh ones; the settings of the released comparison run as they are;
- weights: regret against the feel-good weight λ, with exact draws and with a short chain;
- errors: the exact total variation and 2-Wasserstein distance between a chain's law and the posterior by round, and the
  regret that goes with it.
"""

from pathlib import Path
from typing import Any

from feelgood.studies.bandits.spec import PARTS, BanditsStudy, left_out
from feelgood.studies.engine import run_plans
from feelgood.studies.output import write_files
from feelgood.studies.seeds import tuning_range

_WHAT = {
    "curves": "cumulative regret at marked rounds, a row per problem, algorithm, seed and round",
    "weights": "regret by feel-good weight, with exact draws and with a chain",
    "errors": "distance between a chain's law and the posterior, and mean regret, a row per sampler, steps and round",
}
FILES = {
    **{f"{part}.parquet": line for part, line in _WHAT.items()},
    **{f"{part}.{ending}": f"figure of {part}" for part in PARTS for ending in ("png", "pdf")},
    "summary.md": "tables for people",
}


def run(study: BanditsStudy, report=print) -> list[Path]:
    """Runs the study, or the rest of it, and returns the paths of its tables and figures."""
    import pandas as pd

    from feelgood.runs import store
    from feelgood.studies.bandits import tables as results
    from feelgood.studies.bandits.figures import DRAW
    from feelgood.studies.bandits.parts import PLANS

    missing = left_out(study)
    if missing:
        report(missing)
    seeds = {"reporting": study.seed_list, "tuning": tuning_range(study)}
    with store.recorded(study.output, "bandits", study, seeds=seeds, files=FILES) as facts:
        paths: list[Path] = []
        tables: dict[str, Any] = {}
        for part in study.parts:
            plans = PLANS[part](study)
            if not plans:
                raise ValueError(f"algorithms {study.algorithms!r} do not suit any of the problems {study.problems!r}")
            tables[part] = pd.concat(run_plans(study, plans, study.output, facts, title=part), ignore_index=True)
            paths += write_files(study.output, {f"{part}.parquet": tables[part], part: DRAW[part](tables[part])})
        text = results.as_markdown(tables)
        report(text)
        return [*paths, *write_files(study.output, {"summary.md": f"{text}\n{missing}\n" if missing else text})]
