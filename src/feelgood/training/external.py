"""Training on external environments, one run at a time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from feelgood.agents import Agent, Spaces, constant
from feelgood.envs.external import ExternalEnvironment
from feelgood.training.checkpoint import check_label
from feelgood.training.config import ExternalConfig
from feelgood.training.curve import Point
from feelgood.training.external_run import Outcome, Run
from feelgood.training.external_steps import ExternalSteps, external_steps
from feelgood.training.journal import state_of
from feelgood.typing import Scalar


def train(
    environment: ExternalEnvironment,
    make_agent: Callable[[Spaces, Any], Agent],
    config: ExternalConfig,
    hyper: Mapping[str, Scalar],
    seed: int,
    *,
    schedule: Callable[[Any, Scalar], Any] = constant,
    steps: ExternalSteps | None = None,
    folder: Path | None = None,
    label: str = "",
    checkpoint_seconds: float = 60.0,
    num_evaluators: int | None = None,
    report: Callable[[Point], None] = lambda point: None,
    tick: Callable[[int, float], None] = lambda step, speed: None,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Trains one run; for the arguments up to `hyper`, and `schedule`, see `external_steps`.

    The same seed gives the same run on the same device, as long as the environments are deterministic.

    Args:
      seed: seed of initialisation, noise, minibatches and environments.
      steps: the `external_steps` of these arguments, so that several seeds are compiled once; made here if not given.
      folder: folder for checkpoints; None for none. A run in it is continued with its agent, replay, counters and
        curve; the environments begin new episodes.
      label: identifies the run; the checkpoint of another run is refused.
      checkpoint_seconds: time between two checkpoints; the first one comes after five seconds at most, and one is also
        written when the journal's spare rows are used up.
      num_evaluators: evaluations played in parallel during training; None for 4 on an accelerator and 1 on a CPU,
        because an idle slot costs as much as a busy one there.
      report: called with each complete point of the curve, in order.
      tick: called about once a second with the environment steps so far and the steps per second.
      say: called with messages to the user.

    Raises:
      Interrupted: after Ctrl-C, with the outcome so far; the run is in the folder.
    """
    if num_evaluators is None:
        num_evaluators = 1 if jax.default_backend() == "cpu" else 4
    label = f"{label} seed {seed} {config}"
    if folder is not None:
        check_label(state_of(folder), label)
    steps = steps or external_steps(environment, make_agent, config, hyper, schedule)
    run = Run(environment, steps, config, hyper, seed, num_evaluators, report, tick, say)
    try:
        if folder is not None:
            run.keep(folder, label, checkpoint_seconds)
        return run.go()
    finally:
        run.close()
