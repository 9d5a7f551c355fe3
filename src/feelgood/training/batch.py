"""Many runs at a time: `vmap` over runs, spread over the local devices, in chunks with checkpoints between them."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.agents import Agent, Spaces, constant
from feelgood.envs import Environment
from feelgood.parallel import over_devices, padded
from feelgood.signals import Interrupted, stop_on_signal
from feelgood.training import checkpoint, functional
from feelgood.training.config import FunctionalConfig
from feelgood.training.functional import Record, RunState, Tally, Trainer
from feelgood.typing import Array, PRNGKey, Scalar

SECONDS_TO_FIRST_CHECKPOINT = 5.0


class Curves(NamedTuple):
    """The results of a batch of runs.

    Attributes:
      initial: (runs,) evaluation return of the untrained network.
      record: a `Record` of NumPy arrays (runs, chunks).
      agents: the agents' final states, with a leading axis of runs.
      totals: the final totals of the trainer's tally, with a leading axis of runs.
    """

    initial: np.ndarray
    record: Record
    agents: Any = None
    totals: Any = ()


class Progress(NamedTuple):
    """The progress of a batch: finished chunks, and the curves so far, which must be neither kept nor changed."""

    chunk: int
    num_chunks: int
    num_runs: int
    mean_return: float
    curves: Curves


class Varied(NamedTuple):
    """Hyper-parameters of a varied trainer: settings of the environment, and hyper-parameters of the agent."""

    environment: Any
    agent: Any


def varied_trainer(
    environment_of: Callable[[Any], Environment],
    make_agent: Callable[[Spaces, Any], Agent],
    config: FunctionalConfig,
    schedule: Callable[[Any, Scalar], Any] = constant,
    tally: Tally | None = None,
) -> Trainer:
    """A `trainer` whose hyper-parameters are `Varied`, so that every run of a batch has its own environment.

    `environment_of` maps settings, a pytree of traced arrays, to the environment; its spec must not depend on them.
    """
    one = lambda hyper: functional.trainer(environment_of(hyper.environment), make_agent, config, schedule, tally)
    return Trainer(
        init=lambda key, hyper: one(hyper).init(key, hyper.agent),
        evaluate=lambda key, run, hyper: one(hyper).evaluate(key, run, hyper.agent),
        advance=lambda run, hyper, chunk: one(hyper).advance(run, hyper.agent, chunk),
    )


def run_batch(
    trainer: Trainer,
    num_chunks: int,
    seeds: Array | np.ndarray,
    hyper: Any,
    *,
    label: str = "",
    path: Path | None = None,
    checkpoint_seconds: float = 60.0,
    keep_last: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
    until: Callable[[Any], bool] = lambda totals: False,
) -> Curves:
    """Trains one run for each seed and returns their curves.

    Runs are independent: each gives the result that it would give alone, up to rounding. A run that diverges is marked
    in its record and does not change the others.

    Args:
      num_chunks: evaluation periods of a run.
      seeds: (runs,) integers; run i uses `jax.random.key(seeds[i])`.
      hyper: a pytree of arrays with leading axis `runs`.
      label: identifies the batch; the checkpoint of another batch is refused.
      path: file of the checkpoint; None for no checkpoints. An existing checkpoint is continued, on any number of
        devices (with the same bits if the number is the same).
      checkpoint_seconds: least time between two checkpoints; the first one comes after five seconds at most.
      keep_last: whether to write a checkpoint at the end too, so that running the batch again takes no time.
      report: called after every chunk.
      until: called after every chunk with the totals of the trainer's tally, arrays with a leading axis of runs; the
        batch ends once it returns True, and the curves then hold fewer chunks.
    """
    seeds = np.asarray(seeds)
    num_runs = len(seeds)
    numbers = b"".join(
        np.asarray(leaf).tobytes() for leaf in (seeds, *jax.tree.leaves(jax.tree.map(jnp.asarray, hyper)))
    )
    label = f"{label} {num_runs} runs {hashlib.sha256(numbers).hexdigest()[:12]}"
    # Padded once, so that no chunk has to copy its state; the padding is dropped again at the end.
    keys, hyper = jax.vmap(jax.random.key)(padded(seeds)), padded(hyper)

    def begin(key: PRNGKey, hyper: Any) -> tuple[RunState, Array]:
        """The state of a run before its first step, and its evaluation."""
        key_run, key_evaluate = jax.random.split(key)
        state = trainer.init(key_run, hyper)
        return state, trainer.evaluate(key_evaluate, state, hyper)

    start = over_devices(begin)
    advance = over_devices(trainer.advance, num_shared=1, num_donated=1)

    # Checkpoints leave out the padding, because it depends on the number of devices.
    cut = lambda tree: jax.tree.map(lambda x: x[:num_runs], tree)
    allocate = lambda record: jax.tree.map(lambda x: np.zeros((num_runs, num_chunks), x.dtype), record)
    curves: Any = None
    done: Any = 0
    if path is not None and path.exists():
        checkpoint.check_label(path, label)
        shapes = jax.eval_shape(start, keys, hyper)
        curves = allocate(jax.eval_shape(advance, shapes[0], hyper, jnp.int32(0))[1])
        like = (*jax.eval_shape(cut, shapes), curves, np.int64(0))
        state, initial, curves, done = checkpoint.load(path, like, label)
        state, initial, curves = padded(state), padded(initial), jax.tree.map(np.array, curves)
    else:
        state, initial = start(keys, hyper)

    saved, initial = time.monotonic(), np.asarray(initial)
    wait = min(checkpoint_seconds, SECONDS_TO_FIRST_CHECKPOINT)
    chunk, totals_of = int(done), lambda state: jax.tree.map(np.asarray, cut(state.totals))
    with stop_on_signal() as stop:
        while chunk < num_chunks and not (chunk and until(totals_of(state))):
            state, record = advance(state, hyper, jnp.int32(chunk))
            if curves is None:
                curves = allocate(record)  # only now, as its shapes without running cost a second trace
            for curve, values in zip(curves, record, strict=True):
                curve[:, chunk] = np.asarray(values)[:num_runs]
            mean_return = float(np.mean(curves.evaluation[:, chunk]))
            report(Progress(chunk + 1, num_chunks, num_runs, mean_return, Curves(initial[:num_runs], curves)))
            chunk += 1
            due = keep_last if chunk == num_chunks else time.monotonic() - saved > wait
            if path is not None and (due or stop.is_set()):
                tree = cut(state), cut(initial), curves, np.int64(chunk)
                checkpoint.save(path, tree, label, keep_previous=True)
                saved, wait = time.monotonic(), checkpoint_seconds
            if stop.is_set():
                raise Interrupted
    curves = jax.tree.map(lambda curve: curve[:, :chunk], curves)
    return Curves(initial[:num_runs], curves, cut(state.agent), totals_of(state))
