"""`feelgood evaluate`."""

import json
import math
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from feelgood.cli.parsing import parser
from feelgood.cli.work import set_up_jax


def evaluate_parser() -> ArgumentParser:
    """The parser of this command."""
    parse = parser("evaluate")
    parse.add_argument("folder", type=Path, metavar="RUN", help="folder of a `feelgood train` run or of a saved policy")
    parse.add_argument("--num-episodes", type=int, default=20, help="number of episodes (default: 20)")
    parse.add_argument("--seed", type=int, default=0, help="seed of the episodes (default: 0)")
    parse.add_argument("--json", action="store_true", help="print JSON")
    parse.add_argument("--allow-import", action="store_true", help="import the module of an env such as module:Name-v0")
    return parse


def evaluate(arguments: Sequence[str]) -> None:
    """Plays episodes with a saved policy and prints their returns."""
    chosen = evaluate_parser().parse_args(arguments)
    set_up_jax()

    from feelgood.statistics import interval
    from feelgood.training.policy_files import load_policy

    policy = load_policy(chosen.folder, allow_import=chosen.allow_import)
    if not policy.is_finite:
        print(f"the parameters of {chosen.folder} are not finite: its training diverged", file=sys.stderr)
    returns = policy.evaluate(chosen.num_episodes, chosen.seed).tolist()
    mean, half = interval(returns)
    if chosen.json:
        ends = None if math.isnan(half) else [mean - half, mean + half]
        about = {"agent": policy.agent, "env": policy.origin.name, "seed": chosen.seed, "finite": policy.is_finite}
        print(json.dumps({**about, "mean": mean, "interval": ends, "returns": returns}, indent=2))
        return
    band = "" if math.isnan(half) else f", 95% interval [{mean - half:.1f}, {mean + half:.1f}]"
    print(f"{policy.agent} in {policy.origin.name}: mean return {mean:.1f}{band}, {len(returns)} episodes")
    print("returns " + " ".join(f"{value:g}" for value in returns))
