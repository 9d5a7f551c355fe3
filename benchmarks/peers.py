"""feelgood next to the packages that one could use instead: one Markdown table.

    python benchmarks/peers.py [--quick] [--peers blackjax optax] [--output FILE] [--environments DIR]

Every package runs in a process of its own, `benchmarks/peers_worker.py`: feelgood with this Python, each peer in a
virtual environment that is made on first use, with pinned versions. All have one core. Repeats are interleaved; a cell
is the median with the range in brackets. Seconds are CPU seconds of the process, so other load on the machine counts
little. Compilation is excluded and has a column of its own. A ratio above 1 means that feelgood is better.
"""

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

WORKER = Path(__file__).with_name("peers_worker.py")
COLUMNS = ("task", "unit", "feelgood", "peer", "peer's result", "ratio", "compile s", "what differs")
# Runs of minutes, which the rows that report them share.
SHARED = ("dqn",)
JAX = ("jax==0.10.2", "jaxlib==0.10.2", "numpy==2.4.6")
PEERS = {
    "blackjax": ("blackjax==1.7.1", "optax==0.2.8", *JAX),
    "optax": ("optax==0.2.8", *JAX),
    # On x86-64 Linux, the default wheel of torch brings CUDA, some gigabytes.
    "stable-baselines3": ("stable-baselines3==2.9.2", "torch==2.13.0", "gymnasium==1.4.0"),
    "rejax": ("rejax==0.1.3", "gymnax==0.0.9", "flax==0.12.8", "optax==0.2.8", *JAX),
    "numpy": ("numpy==2.4.6",),
}


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
      title: the task in words.
      peer: the package.
      task: name of the task in the worker.
      unit: of the value.
      function: the peer's function.
      lower_is_better: whether a smaller value is better.
      note: differences between the two.
      repeats: full and quick; with 0 the row is left out.
      field: name of the value in the worker's answer.
      own_task: feelgood's name of the task if it differs.
    """

    title: str
    peer: str
    task: str
    unit: str
    function: str
    lower_is_better: bool = False
    note: str = ""
    repeats: tuple[int, int] = (9, 3)
    field: str = "value"
    own_task: str = ""


_NS = "ns per parameter and step"
_QUADRATIC = "quadratic, 64 chains of 4,000"
_REGRESSION = "logistic regression, 1,000 × 25"
_ESS = "effective samples per second"
_JITTER = "feelgood without jitter"
_SB3 = "stable-baselines3"
_UNTIL = "seconds until a mean return of 475"
_STEPS = "environment steps per second"
_SETTINGS = "each package's published settings; feelgood's environment is inside XLA"
ROWS = (
    Row(f"`langevin`, {_QUADRATIC}", "blackjax", "langevin", _NS, "sgld", True),
    Row(
        f"`langevin`, {_QUADRATIC}",
        "optax",
        "langevin",
        _NS,
        "noisy_sgd",
        True,
        "noise of noisy_sgd decays with the steps",
    ),
    Row(
        f"`underdamped`, {_QUADRATIC}",
        "blackjax",
        "underdamped",
        _NS,
        "sghmc",
        True,
        "other discretisation, also one gradient and one normal a step",
    ),
    Row(
        f"`mala`, {_QUADRATIC}",
        "blackjax",
        "mala",
        _NS,
        "mala",
        True,
    ),
    Row(f"`hmc`, 3 leapfrog steps, {_QUADRATIC}", "blackjax", "hmc", _NS, "hmc", True, _JITTER),
    Row(
        f"`mala`, {_REGRESSION}",
        "blackjax",
        "mala regression",
        _ESS,
        "mala",
        False,
    ),
    Row(
        f"`hmc`, 3 leapfrog steps, {_REGRESSION}",
        "blackjax",
        "hmc regression",
        _ESS,
        "hmc",
        False,
        _JITTER,
    ),
    Row("`dqn`, CartPole", _SB3, "dqn", _STEPS, "DQN", False, _SETTINGS, (1, 1), "rate"),
    Row("`dqn`, CartPole", _SB3, "dqn", _UNTIL, "DQN", True, _SETTINGS, (1, 0)),
    Row(
        "`ensemble_dqn`, CartPole",
        _SB3,
        "dqn",
        _UNTIL,
        "DQN",
        True,
        f"20 networks against one; {_SETTINGS}",
        (1, 0),
        own_task="ensemble_dqn",
    ),
    Row(
        "`dqn`, CartPole, 20 seeds together, first 10,000 steps of each",
        _SB3,
        "dqn",
        _STEPS,
        "DQN",
        False,
        f"20 seeds against one; {_SETTINGS}",
        (1, 0),
        "rate",
        "dqn, 20 seeds",
    ),
    *(
        Row(
            f"`dqn`, CartPole inside XLA, batch 64, replay of {capacity:,}",
            "rejax",
            f"updates {capacity}",
            "updates per second, one environment step each",
            "DQN",
            False,
            "feelgood's figure includes an evaluation episode",
            (5, 1),
        )
        for capacity in (2_000, 50_000)
    ),
    *(
        Row(
            f"`lsvi_ucb`, {num_episodes:,} episodes, d = 10, H = 10",
            "numpy",
            f"lsvi_ucb {num_episodes}",
            "episodes per second",
            "loop in the benchmark",
            False,
            "the loop regresses on all past transitions; feelgood keeps sums, and also computes the exact regret",
            repeats,
        )
        for num_episodes, repeats in ((100, (5, 3)), (3_000, (3, 1)))
    ),
)


class Skipped(Exception):
    """A peer cannot run; the message is one sentence."""


def environment(name: str, folder: Path) -> Path:
    """Returns the Python of a peer's virtual environment, which is made if it is not there with these versions."""
    home, pins = folder / name, "\n".join(PEERS[name])
    python, stamp = home / "bin" / "python", home / "pins.txt"
    if stamp.exists() and stamp.read_text() == pins and python.exists():
        return python
    print(f"installing {name} into {home}", file=sys.stderr, flush=True)
    venv.create(home, with_pip=True, clear=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *PEERS[name]]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise Skipped(skip_sentence(name, done.stderr))
    stamp.write_text(pins)
    return python


def skip_sentence(name: str, error: str) -> str:
    """One sentence that names the package and the last line of its error."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return f"{name} was skipped because it did not install: {lines[-1] if lines else 'no message'}"


class Worker:
    """A process of one package that answers requests."""

    def __init__(self, package: str, python: str | Path):
        self.package, self.answers = package, {}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (a full pipe would stop the worker)
        self.process = subprocess.Popen(
            [str(python), str(WORKER), package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def ask(self, task: str, repeat: int, quick: bool) -> dict:
        """Runs a task once, or returns the answer of a run that rows share. Raises Skipped if the process ends."""
        if task not in SHARED:
            return self._run(task, repeat, quick)
        if (task, repeat) not in self.answers:
            self.answers[task, repeat] = self._run(task, repeat, quick)
        return self.answers[task, repeat]

    def _run(self, task: str, repeat: int, quick: bool) -> dict:
        request = json.dumps({"task": task, "repeat": repeat, "quick": quick})
        try:
            self.process.stdin.write(request + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines()
            reason = lines[-1] if lines else f"exit status {self.process.wait()}"
            raise Skipped(f"{self.package} was skipped in {task} because it failed: {reason}")
        return json.loads(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.errors.close()


def value_of(answer: dict, field: str = "value") -> float:
    """The value of an answer. From draws, it is the least effective sample size of all parameters per second."""
    if "draws" not in answer:
        return math.inf if answer[field] is None else answer[field]
    import numpy as np

    from feelgood.samplers import diagnostics

    path = Path(answer["draws"])
    draws = np.load(path)
    path.unlink()
    return float(np.min(diagnostics.effective_sample_size(draws))) / answer["seconds"]


def measure(row: Row, own: Worker, peer: Worker, quick: bool) -> dict:
    """Interleaves the repeats of feelgood and of a peer; returns the values and seconds of compilation of both."""
    result: dict = {"own": [], "theirs": [], "own_compile": None, "their_compile": None}
    for repeat in range(row.repeats[quick]):
        for side, compiling, worker, task in (
            ("own", "own_compile", own, row.own_task or row.task),
            ("theirs", "their_compile", peer, row.task),
        ):
            answer = worker.ask(task, repeat, quick)
            result[compiling] = answer.get("compile", result[compiling])
            result[side].append(value_of(answer, row.field))
    return result


def number(value: float) -> str:
    """Three digits that count, and no exponent."""
    if not math.isfinite(value):
        return "not reached"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def summary(values: list[float]) -> str:
    """The median with the range, or the only value."""
    if len(values) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def ratio(row: Row, result: dict) -> str:
    """How many times better feelgood's median is; below 1 the peer is better."""
    own, theirs = (statistics.median(result[side]) for side in ("own", "theirs"))
    if not (math.isfinite(own) and math.isfinite(theirs)):
        return "–"
    return f"{theirs / own if row.lower_is_better else own / theirs:.2f}"


def cells(row: Row, result: dict) -> dict[str, str]:
    """One line of the table."""
    compiling = [result["own_compile"], result["their_compile"]]
    return dict(
        zip(
            COLUMNS,
            (
                row.title,
                row.unit + (" (lower is better)" if row.lower_is_better else ""),
                summary(result["own"]),
                f"{row.peer} `{row.function}`",
                summary(result["theirs"]),
                ratio(row, result),
                ", ".join("–" if seconds is None else f"{seconds:.1f}" for seconds in compiling),
                row.note or "nothing",
            ),
            strict=True,
        )
    )


def markdown(lines: list[dict[str, str]], skipped: list[str]) -> str:
    """The table, and a sentence for each peer that was skipped."""
    table = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    table += [f"| {' | '.join(line.values())} |" for line in lines]
    return "\n".join([*table, *(f"\n{sentence}" for sentence in skipped)])


def check_peers(names: list[str]) -> None:
    """Refuses a name that is no peer, in one sentence."""
    for name in names:
        if name not in PEERS:
            raise SystemExit(f"peers must be among {', '.join(PEERS)}, got {name!r}")


def run(names: list[str], folder: Path, quick: bool) -> tuple[list[dict[str, str]], list[str]]:
    """Measures all rows of the peers; returns the lines of the table and the sentences about skipped peers."""
    lines, skipped, pythons = [], [], {}
    for name in names:
        try:
            pythons[name] = environment(name, folder)
        except Skipped as reason:
            skipped.append(str(reason))
    own = Worker("feelgood", sys.executable)
    peers = {name: Worker(name, python) for name, python in pythons.items()}
    try:
        for row in ROWS:
            if row.peer not in peers or not row.repeats[quick]:
                continue
            print(f"{row.title}: feelgood and {row.peer}", file=sys.stderr, flush=True)
            try:
                line = cells(row, measure(row, own, peers[row.peer], quick))
                lines.append(line)
                print(f"    {line['feelgood']} and {line[COLUMNS[4]]} {row.unit}", file=sys.stderr, flush=True)
            except Skipped as reason:
                skipped.append(str(reason))
    finally:
        for worker in (own, *peers.values()):
            worker.close()
    return lines, skipped


def main() -> None:
    """Reads the arguments, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", default=[*PEERS], metavar="NAME", help=f"among {', '.join(PEERS)}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller sizes")
    parser.add_argument("--output", type=Path, help="a CSV file for the table")
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "feelgood" / "peers"
    parser.add_argument("--environments", type=Path, default=home, help="folder of the peers' virtual environments")
    arguments = parser.parse_args()
    check_peers(arguments.peers)
    lines, skipped = run(arguments.peers, arguments.environments, arguments.quick)
    print(markdown(lines, skipped))
    if arguments.output:
        with arguments.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(lines)


if __name__ == "__main__":
    main()
