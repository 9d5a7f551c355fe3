"""`feelgood record`."""

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from feelgood.cli.parsing import parser
from feelgood.cli.work import set_up_jax


def record_parser() -> ArgumentParser:
    """The parser of this command."""
    parse = parser("record")
    parse.add_argument("folder", type=Path, metavar="RUN", help="folder of a `feelgood train` run or of a saved policy")
    parse.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("game.gif"),
        help="output file, .gif, or .mp4 with ffmpeg (default: game.gif)",
    )
    parse.add_argument("--seed", type=int, default=0, help="seed of the episode (default: 0)")
    parse.add_argument("--max-steps", type=int, default=2000, help="largest number of steps (default: 2000)")
    parse.add_argument("--every", type=int, default=1, help="show each EVERY-th step, for a smaller file (default: 1)")
    parse.add_argument("--best", action="store_true", help="the best policies of the run instead of the final ones")
    parse.add_argument("--allow-import", action="store_true", help="import the module of an env such as module:Name-v0")
    return parse


def record(arguments: Sequence[str]) -> None:
    """Records an episode of each policy of a run; with several, each file has the name of its policy."""
    chosen = record_parser().parse_args(arguments)
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
