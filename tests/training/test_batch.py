"""Batches of runs: stopped and continued, killed and continued, padded, spread over devices: always the same bits."""

import inspect
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compiled import compiled_once
from feelgood import envs
from feelgood.agents import Options, make_agent
from feelgood.training import (
    Curves,
    FunctionalConfig,
    Interrupted,
    Record,
    Tally,
    Varied,
    run_batch,
    varied_trainer,
)


def build():
    """Three short runs that learn, with visible noise; other processes run them from this source."""
    import numpy as np

    from feelgood import envs
    from feelgood.agents import Options, make_agent
    from feelgood.training import FunctionalConfig, trainer

    config = FunctionalConfig(
        num_steps=800,
        learning_starts=8,
        train_frequency=5,
        replay_ratio=1.0,
        batch_size=4,
        capacity=50,
        target_update_period=7,
        evaluation_period=100,
        success_return=9.5,
    )
    make = lambda spaces, hyper: make_agent("fg_ulmcdqn", spaces, hyper, Options(hidden=()))
    seeds = np.array([3, 1, 4])
    hyper = {
        "step_size": np.array([0.1, 0.05, 0.02], np.float32),
        "inverse_temperature": np.array([1e3, 1e4, 1e5], np.float32),
    }
    return trainer(envs.nchain(5), make, config), config.num_chunks, seeds, hyper


# Prints a line after every chunk, and writes the curves at the end.
SCRIPT = f"""
import sys
from pathlib import Path
import numpy as np
from feelgood.training import run_batch

{inspect.getsource(build)}

checkpoint, output = sys.argv[1:]
curves = run_batch(
    *build(), label="batch", checkpoint_seconds=0.0, path=Path(checkpoint) if checkpoint else None,
    report=lambda progress: print(progress.chunk, flush=True),
)
np.savez(output, initial=curves.initial, **curves.record._asdict())
"""
ARGUMENTS = build()
NUM_CHUNKS = ARGUMENTS[1]


COMPILED = {}


def run(**settings):
    with compiled_once(COMPILED):
        return run_batch(*ARGUMENTS, label="batch", **settings)


class Stop(Exception):
    pass


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    seen, path = [], tmp_path_factory.mktemp("undisturbed") / "state.npz"
    curves = run(path=path, report=seen.append)
    # The comparison is not trivial: runs change, differ, and some episodes succeed.
    assert len(np.unique(curves.record.potential)) == 3 * NUM_CHUNKS
    assert curves.record.num_successes.any()
    assert [progress[:3] for progress in seen] == [(chunk + 1, NUM_CHUNKS, 3) for chunk in range(NUM_CHUNKS)]
    np.testing.assert_allclose([progress.mean_return for progress in seen], curves.record.evaluation.mean(0), rtol=1e-6)
    return curves


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A checkpoint left by an error in the third chunk."""
    path = tmp_path_factory.mktemp("stopped") / "state.npz"

    def fail(progress):
        if progress.chunk == 3:
            raise Stop

    with pytest.raises(Stop):
        run(path=path, checkpoint_seconds=0.0, report=fail)
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.npz", "state.npz.previous"]
    return path.read_bytes()


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "batch.py"
    path.write_text(SCRIPT)

    def start(checkpoint="", output="curves.npz", flags=""):
        environment = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
        words = [sys.executable, "-u", str(path), str(checkpoint), str(tmp_path / output)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    return start


def curves_in(path):
    with np.load(path) as file:
        return Curves(file["initial"], Record(**{name: file[name] for name in Record._fields}))


def assert_same_bits(a, b):
    if a.agents is None or b.agents is None:  # from a file
        a, b = a[:2], b[:2]
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def test_a_batch_stopped_by_an_error_and_then_by_a_signal_ends_with_the_bits_of_an_undisturbed_one(
    tmp_path, stopped, undisturbed
):
    path = tmp_path / "state.npz"
    path.write_bytes(stopped)
    seen = []

    def interrupt(progress):
        seen.append(progress.chunk)
        if progress.chunk == 5:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted):
        run(path=path, report=interrupt)  # no checkpoint would be due for a minute
    assert signal.getsignal(signal.SIGINT) is before

    curves = run(path=path, report=lambda progress: seen.append(progress.chunk))
    # Continued, not begun again: the third chunk was lost with the error, nothing was lost with the signal.
    assert seen == [3, 4, 5, 6, 7, 8]
    assert_same_bits(curves, undisturbed)
    assert jax.tree.leaves(curves.agents.sampler.params)[0].shape[0] == 3


def test_the_last_checkpoint_is_written_if_requested(tmp_path, undisturbed):
    path = tmp_path / "state.npz"
    run(path=path, keep_last=True)
    seen = []
    assert_same_bits(run(path=path, report=seen.append), undisturbed)
    assert seen == []


@pytest.mark.slow
def test_a_batch_killed_twice_at_any_moment_ends_with_the_bits_of_an_undisturbed_one(tmp_path, script, undisturbed):
    path = tmp_path / "state.npz"
    rng = np.random.default_rng(0)
    begun = []
    for _ in range(2):
        process = script(path)
        begun.append(int(process.stdout.readline()))
        for _ in range(rng.integers(1, 3)):
            process.stdout.readline()
        time.sleep(rng.uniform(0, 0.01))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    process = script(path)
    lines, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    begun.append(int(lines.split()[0]))
    assert begun[0] == 1 < begun[1] < begun[2]
    assert_same_bits(curves_in(tmp_path / "curves.npz"), undisturbed)


@pytest.mark.parametrize("begun_on_one", [pytest.param(False, marks=pytest.mark.slow), True])
def test_two_devices_with_an_odd_number_of_runs_give_the_curves_of_one(
    tmp_path, script, stopped, undisturbed, begun_on_one
):
    path = tmp_path / "state.npz"
    if begun_on_one:
        path.write_bytes(stopped)
    process = script(path if begun_on_one else "", flags="--xla_force_host_platform_device_count=2")
    lines, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert lines.split()[0] == ("3" if begun_on_one else "1")
    curves = curves_in(tmp_path / "curves.npz")
    assert curves.initial.shape == (3,)
    assert curves.record.evaluation.shape == (3, NUM_CHUNKS)
    # Two lanes instead of three on each device: the same program but for the number of lanes.
    np.testing.assert_allclose(curves.record.potential, undisturbed.record.potential, rtol=1e-4, atol=1e-5)
    assert_same_bits(curves._replace(record=curves.record[:4]), undisturbed._replace(record=undisturbed.record[:4]))


def test_runs_come_back_in_the_order_of_their_seeds_and_one_trace_serves_all_chunks_and_numbers(undisturbed):
    traces = []
    one, num_chunks, seeds, hyper = ARGUMENTS

    def advance(state, hyper, chunk):
        traces.append(chunk)
        return one.advance(state, hyper, chunk)

    order = np.array([2, 0, 1])
    permuted = {name: values[order] for name, values in hyper.items()}
    curves = run_batch(one._replace(advance=advance), num_chunks, seeds[order], permuted)
    assert len(traces) <= 2  # once for shapes, once to compile
    assert_same_bits(curves, jax.tree.map(lambda leaf: leaf[order], undisturbed))


def test_a_checkpoint_of_another_batch_or_half_of_one_is_refused_and_kept(tmp_path, stopped):
    path = tmp_path / "state.npz"
    path.write_bytes(stopped)
    one, num_chunks, seeds, hyper = ARGUMENTS
    others = (
        (seeds + 1, hyper, "batch"),
        (seeds[:2], {name: values[:2] for name, values in hyper.items()}, "batch"),
        (seeds, {**hyper, "step_size": hyper["step_size"] * 2}, "batch"),
        (seeds, hyper, "another"),
    )
    untraced = lambda *arguments: pytest.fail("traced before it was refused")
    for other_seeds, other_hyper, label in others:
        with pytest.raises(ValueError, match="belongs to another run"):
            run_batch(one._replace(init=untraced), num_chunks, other_seeds, other_hyper, label=label, path=path)
    assert path.read_bytes() == stopped
    path.write_bytes(stopped[: len(stopped) // 2])
    with pytest.raises(ValueError, match=r"cannot be read .* delete it to start this part again"):
        run(path=path)
    assert path.read_bytes() == stopped[: len(stopped) // 2]


def counted():
    """Three short runs that count their steps in all and their episodes."""
    config = FunctionalConfig(num_steps=400, evaluation_period=50, train_frequency=10, replay_ratio=0.1, batch_size=4)
    make = lambda spaces, hyper: make_agent("dqn", spaces, hyper, Options(hidden=()))
    add = lambda totals, ended, returns, states: totals + jnp.stack([jnp.size(ended), jnp.sum(ended)])
    environment_of = lambda cost: envs.deep_sea(4, move_cost=cost)
    tally = Tally(jnp.zeros(2, jnp.int32), add)
    hyper = Varied(np.array([0.1, 0.2, 0.4], np.float32), {"step_size": np.zeros(3, np.float32) + 1e-12})
    return varied_trainer(environment_of, make, config, tally=tally), config.num_chunks, np.array([5, 5, 5]), hyper


COMPILED_COUNTED = {}


def run_counted(**settings):
    with compiled_once(COMPILED_COUNTED):
        return run_batch(*counted(), **settings)


def test_a_batch_ends_once_its_totals_suffice_also_if_that_was_so_when_it_stopped(tmp_path):
    path, seen = tmp_path / "state.npz", []

    def until(totals):
        seen.append(totals[:, 0].tolist())
        return bool((totals[:, 0] >= 150).all())

    curves = run_counted(until=until)
    assert seen == [[50] * 3, [100] * 3, [150] * 3]
    assert curves.record.evaluation.shape == (3, 3)
    assert curves.totals.tolist() == [[150, 37]] * 3  # episodes of four steps

    def stop(progress):
        if progress.chunk == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run_counted(until=until, path=path, report=stop)
    again = run_counted(until=until, path=path, report=lambda progress: pytest.fail("it trained on"))
    assert_same_bits(Curves(again.initial, again.record), Curves(curves.initial, curves.record))
    assert again.totals.tolist() == curves.totals.tolist()


def test_runs_of_a_varied_trainer_have_an_environment_each():
    curves = run_counted()
    # The same actions, as nothing is learnt: the returns fall in proportion to the cost of a move.
    cheap, dearer, dearest = curves.record.training_return.sum(1)
    assert dearer - cheap < -1
    assert dearest - cheap == pytest.approx(3 * (dearer - cheap), rel=1e-4)
