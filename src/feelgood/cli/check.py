"""`feelgood check`."""

import sys
from collections.abc import Sequence
from typing import Any

from feelgood.cli.parsing import parser
from feelgood.pairs import read_values

PARSER = parser("check")
PARSER.add_argument("env", help="a Gymnasium name such as CartPole-v1, or module:Name-v0")
PARSER.add_argument("--env-settings", nargs="+", default=[], help="settings of the environment, as in map_name=8x8")
PARSER.add_argument("--num-steps", type=int, default=2_000, help="random steps to play (default: 2000)")


def check(arguments: Sequence[str]) -> None:
    """Checks the rules of an environment; exits with code 1 if one is broken."""
    chosen = PARSER.parse_args(arguments)
    if chosen.env.startswith("atari:"):
        raise ValueError(f"env must be a Gymnasium name, got {chosen.env!r}; Atari games keep all rules")
    settings: dict[str, Any] = read_values("env_settings", chosen.env_settings)

    import gymnasium

    from feelgood.checks import check_count
    from feelgood.envs.rules import check_rules

    check_count("num_steps", chosen.num_steps)
    # Gymnasium's own checker would stop at other rules, with its own errors.
    make = lambda: gymnasium.make(chosen.env, disable_env_checker=True, **settings)
    findings = check_rules(make, chosen.num_steps)
    for finding in findings:
        print(f"broken: {finding.rule}: {finding.problem}" if finding.problem else f"ok: {finding.rule}")
    if findings[-1].problem:
        sys.exit(1)
    print(f"{chosen.env} keeps all rules; next: feelgood train --env {chosen.env}")
