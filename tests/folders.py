"""Small folders of every kind of study, made of numbers that anyone can recompute."""

import json

import numpy as np
import pandas as pd
import pytest

HOSTILE = "<script>alert('x')</script>&\"'"


def nchain_curves(agents=("fg_ulmcdqn", "dqn", HOSTILE), lengths=(25, 50), seeds=6, times=14, seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        {
            "length": n,
            "agent": agent,
            "seed": s,
            "step": 1000 * t,
            "return": min(10.0, 3 * k + rng.uniform(0, 2) + 0.1 * t),
        }
        for n in lengths
        for k, agent in enumerate(agents)
        for s in range(seeds)
        for t in range(times)
    ]
    return pd.DataFrame(rows).assign(episodes=1, successes=0, first_success=-1, finite=True)


def write(folder, manifest=None, **tables):
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        if name in ("curves", "exponents", "budget", "errors", "complexity"):
            table.to_parquet(folder / f"{name}.parquet", index=False)
        else:
            table.to_csv(folder / f"{name}.csv", index=False)
    if manifest is not None:
        (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def _nchain(folder):
    from feelgood.studies.nchain.tables import summarise

    curves = nchain_curves()
    summary = summarise(curves)
    grid = [(x, y) for x in (0.1, 1.0) for y in (1e8, 1e10, 1e12)]
    sweep = pd.DataFrame(
        [
            {"step_size": x, "inverse_temperature": y, "count": 4, "score": x + i, "length": n, "agent": "dqn"}
            for n in (25, 50)
            for i, (x, y) in enumerate(grid)
        ]
    )
    sensitivity = pd.concat(
        summary[summary["length"] == 25].assign(parameter=p, value=v)
        for p, values in (("friction", (0.1, 1.0)), ("feel_good_weight", (0.0, 0.1, 1.0)))
        for v in values
    )
    frontier = pd.concat(
        summary.assign(budget=b, num_steps=1000, seeds_at_9=summary.index % 4, held=summary.index % 4 > 2)
        for b in ("fixed", "growing")
    )
    manifest = {
        "study": "nchain",
        "spec": {
            "agents": ["fg_ulmcdqn", HOSTILE],
            "lengths": [25, 50],
            "num_seeds": 6,
            "num_steps": 13_000,
            "ablate": False,
        },
        "finished": False,
        "command": f"feelgood run nchain --agents {HOSTILE}",
        "versions": {"feelgood": "0.1.0", "jax": "0.10.2"},
        "devices": ["cpu", "cpu"],
        "commit": "0123456789abcdef",
        "time": "2026-01-02T03:04:05+00:00",
        "wall_seconds": 90,
        "note": HOSTILE,
    }
    return write(
        folder, manifest, curves=curves, summary=summary, sweep=sweep, sensitivity=sensitivity, frontier=frontier
    )


def _regret(folder):
    rng = np.random.default_rng(1)
    algorithms = ("lsvi_ucb", "ase_ulmc", "ase_exact")
    curves = pd.DataFrame(
        [
            {
                "mdp": mdp,
                "algorithm": a,
                "constants": c,
                "seed": s,
                "episode": e,
                "regret": (k + 1) * e**0.5 + rng.uniform(0, 0.1),
                "bound": 1e3,
            }
            for mdp in ("lock", "simplex")
            for k, a in enumerate(algorithms)
            for c in ("tuned", "theory")
            for s in range(3)
            for e in (1, 5, 10, 20)
        ]
    )
    exponents = pd.DataFrame(
        [
            {
                "algorithm": a,
                "dimension": d,
                "horizon": h,
                "seed": s,
                "episode": e,
                "regret": e**0.5 * d * h**1.5 * (1 + 0.01 * s),
            }
            for a in algorithms
            for d, h in ((5, 5), (7, 5), (5, 8))
            for s in range(3)
            for e in (1, 4, 8, 16)
        ]
    )
    budget = pd.DataFrame(
        [
            {
                "mdp": "lock",
                "sampler": name,
                "budget": b,
                "seed": s,
                "regret": 10.0 / (b + 1) + s,
                "gradients": float(b),
            }
            for name, budgets in (("lmc", (4, 16)), ("exact", (0,)))
            for b in budgets
            for s in range(3)
        ]
    )
    errors = pd.DataFrame(
        [
            {
                "sampler": "lmc",
                "steps": j,
                "seed": s,
                "episode": e,
                "later": 0.1,
                "first_low": 0.1,
                "first_high": 0.2,
                "stages": 5,
                "weight": 2.0,
                "regret": 1.0 * e,
                "allowed": 0.5,
                "origin": 50.0,
            }
            for j in (1, 4)
            for s in range(2)
            for e in (1, 2, 4)
        ]
    )
    complexity = pd.DataFrame(
        [
            {
                "scheme": "lmc",
                "varied": v,
                "condition": 10 * i,
                "dimension": 8 * i,
                "error": 0.1 / i,
                "num_gradients": 50 * i,
                "exponent": 1.0,
                "low": 0.9,
                "high": 1.1,
                "theorem": 2.0,
            }
            for v in ("condition", "dimension", "error")
            for i in (1, 2, 3)
        ]
    )
    manifest = {
        "study": "regret",
        "spec": {"algorithms": list(algorithms), "mdps": ["lock", "simplex"], "num_episodes": 20, "num_seeds": 3},
        "finished": True,
    }
    return write(
        folder, manifest, curves=curves, exponents=exponents, budget=budget, errors=errors, complexity=complexity
    )


def _atari(folder):
    rng = np.random.default_rng(2)
    rows = [
        {"agent": a, "game": g, "seed": s, "frame": 250_000 * t, "return": k * 100 + rng.normal(0, 5) + t}
        for k, a in enumerate(("iqn", "fg_ulmcdqn"))
        for g in ("Alien", "Pong")
        for s in range(3)
        for t in range(5)
    ]
    return write(folder, curves=pd.DataFrame(rows))


def _samplers(folder):
    rows = [
        {"sampler": name, "step": step, "distance": k / step, "floor": 0.01}
        for k, name in enumerate(("langevin", "hmc"), start=1)
        for step in (1, 10, 100)
    ]
    return write(folder, {"study": "samplers", "spec": {"seed": 0}, "finished": True}, distances=pd.DataFrame(rows))


@pytest.fixture(scope="session")
def studies(tmp_path_factory):
    """Folders by name: nchain, regret, samplers, atari (which has no manifest)."""
    home = tmp_path_factory.mktemp("studies")
    makers = {"nchain": _nchain, "regret": _regret, "samplers": _samplers, "atari": _atari}
    return {name: make(home / name) for name, make in makers.items()}
