"""`feelgood evaluate` and `feelgood record`."""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from feelgood.cli.parsing import parser
from feelgood.cli.work import set_up_jax

_OUTPUT = "output file, .gif, or .mp4 with ffmpeg (default: game.gif)"


def _player(name: str, played: str) -> ArgumentParser:
    """The parser of a command that plays with policies, with the options that both commands have."""
    parse = parser(name)
    parse.add_argument("folder", type=Path, metavar="RUN", help="folder of a `feelgood train` run or of a saved policy")
    parse.add_argument("--seed", type=int, default=0, help=f"seed of the {played} (default: 0)")
    parse.add_argument("--best", action="store_true", help="the best policies of the run instead of the final ones")
    parse.add_argument("--allow-import", action="store_true", help="import the module of an env such as module:Name-v0")
    return parse


EVALUATE = _player("evaluate", "episodes")
EVALUATE.add_argument("--num-episodes", type=int, default=20, help="number of episodes (default: 20)")
EVALUATE.add_argument("--json", action="store_true", help="print JSON")

RECORD = _player("record", "episode")
RECORD.add_argument("-o", "--output", type=Path, default=Path("game.gif"), help=_OUTPUT)
RECORD.add_argument("--max-steps", type=int, default=2000, help="largest number of steps (default: 2000)")
RECORD.add_argument("--every", type=int, default=1, help="show each EVERY-th step, for a smaller file (default: 1)")


def evaluate(arguments: Sequence[str]) -> None:
    """Plays episodes with the policies of a run and prints their returns."""
    chosen = EVALUATE.parse_args(arguments)
    set_up_jax()

    from feelgood.statistics import bootstrap, mean
    from feelgood.training.policy_files import find_policies, load_policy

    found = []
    groups: dict[str, list[float]] = {}
    for folder in find_policies(chosen.folder, "best_policy" if chosen.best else "policy"):
        policy = load_policy(folder, allow_import=chosen.allow_import)
        if not policy.is_finite:
            print(f"the parameters of {folder} are not finite: its training diverged", file=sys.stderr)
        played = policy.evaluate(chosen.num_episodes, chosen.seed)
        # A bootstrap interval stays between the smallest and the largest return.
        middle, low, high = map(float, bootstrap(mean, [played]))
        returns, ends = played.tolist(), [low, high] if len(played) > 1 else None
        about = {"agent": policy.agent, "env": policy.origin.name, "seed": chosen.seed, "finite": policy.is_finite}
        found.append({**about, "policy": str(folder), "mean": middle, "interval": ends, "returns": returns})
        which = f"{policy.agent} in {policy.origin.name}"
        groups.setdefault(which, []).append(middle)
        if not chosen.json:
            band = "" if ends is None else f", 95% interval [{_number(low)}, {_number(high)}]"
            which += f", trained with seed {policy.training['seed']}" if "seed" in policy.training else ""
            print(f"{which}: mean return {_number(middle)}{band}, {len(returns)} episodes")
            print(f"returns {' '.join(f'{value:g}' for value in returns)}")
    if chosen.json:
        print(json.dumps(found[0] if len(found) == 1 else found, indent=2))
        return
    for which, means in groups.items():
        if len(means) > 1:
            span = f"({_number(min(means))} to {_number(max(means))})"
            print(f"{which}: {_number(sum(means) / len(means))} over {len(means)} policies {span}")


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def record(arguments: Sequence[str]) -> None:
    """Records an episode of each policy of a run; with several, each file has the name of its policy."""
    chosen = RECORD.parse_args(arguments)
    set_up_jax()

    from feelgood.training.policy_files import find_policies, load_policy

    kind = "best_policy" if chosen.best else "policy"
    folders = find_policies(chosen.folder, kind)
    for folder in folders:
        name = "-".join(folder.parts[len(chosen.folder.parts) :]).removeprefix(f"{kind}-")
        file = chosen.output if len(folders) == 1 else chosen.output.with_stem(f"{chosen.output.stem}-{name}")
        policy = load_policy(folder, allow_import=chosen.allow_import)
        return_ = policy.record(file, chosen.seed, max_steps=chosen.max_steps, every=chosen.every)
        print(f"wrote {file}: an episode with return {return_:g}")
