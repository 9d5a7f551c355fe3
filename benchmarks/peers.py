"""feelgood next to the packages that one could use instead: a table, a CSV file and a figure from one command.

    python benchmarks/peers.py [--quick] [--peers blackjax optax] [--output DIR]
        [--environments DIR] [--draw DIR]

Every package runs in a process of its own, `benchmarks/peers_worker.py`: feelgood with this Python, each peer in a
virtual environment that is made on first use, with pinned versions. All have one core: if there are two, CartPole is
measured on one and the other rows on the other at the same time. Repeats are interleaved; a cell is the median with the
range in brackets, and a ratio is the median of the ratios of the repeats, above 1 if feelgood is better. Seconds are
CPU seconds of the process, so other load on the machine counts little. Compilation is excluded and has columns of its
own in the CSV file, which holds every repeat. `--draw` measures nothing: it prints the table and draws the figure of an
earlier run.
"""

import argparse
import csv
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import venv
from pathlib import Path

from peers_tasks.rows import ROWS, Row

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
WORKER = Path(__file__).with_name("peers_worker.py")
COMMAND = "`python benchmarks/peers.py`"
COLUMNS = ("section", "task", "size", "unit", "lower_is_better", "peer", "function", "repeat", "feelgood", "theirs")
COLUMNS += ("own_compile", "their_compile", "hardware", "note")
# Colours of peers in figures; feelgood is red.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#000000", "#CC79A7", "#56B4E9", "#7F7F7F", "#332288", "#999933")
LABELS = {"feelgood": "feelgood", "stable-baselines3": "Stable-Baselines3", "cleanrl": "CleanRL's dqn_jax"}
LABELS |= {
    "purejaxrl": "PureJaxRL's dqn",
    "rejax": "Rejax",
    "numpy": "NumPy loop",
    "optax": "Optax",
    "blackjax": "BlackJAX",
}
GROWING = {"runs": "runs that train together", "chains": "chains that sample together"}
JAX = ("jax==0.10.2", "jaxlib==0.10.2", "numpy==2.4.6")
PEERS = {
    "blackjax": ("blackjax==1.7.1", "optax==0.2.8", *JAX),
    "optax": ("optax==0.2.8", *JAX),
    # On x86-64 Linux, the default wheel of torch brings CUDA, some gigabytes.
    "posteriors": ("posteriors==0.1.3", "torch==2.13.0", "numpy==2.4.6"),
    "stable-baselines3": ("stable-baselines3==2.9.2", "torch==2.13.0", "gymnasium==1.4.0"),
    # The packages that CleanRL's and PureJaxRL's scripts import; the scripts themselves are in none.
    "cleanrl": ("gymnasium==1.4.0", "flax==0.12.8", "optax==0.2.8", *JAX),
    "purejaxrl": ("flashbax==0.1.3", "gymnax==0.0.9", "flax==0.12.8", "optax==0.2.8", "six==1.17.0", *JAX),
    "rejax": ("rejax==0.1.3", "gymnax==0.0.9", "flax==0.12.8", "optax==0.2.8", *JAX),
    # Not its extra `baselines_jax`, which asks for a backport of dataclasses.
    "bsuite": ("bsuite==0.3.6", "dm-haiku==0.0.17", "rlax==0.1.9", "dm-tree==0.1.10", "optax==0.2.8", *JAX),
    "numpy": ("numpy==2.4.6",),
}


class Skipped(Exception):
    """A peer cannot run; the message is one sentence."""


def environment(name: str, folder: Path) -> Path:
    """Returns the Python of a peer's virtual environment, which is made if it is not there with these versions."""
    home, pins = folder / name, "\n".join(PEERS[name])
    python, stamp = home / "bin" / "python", home / "pins.txt"
    if stamp.exists() and stamp.read_text() == pins and python.exists():
        return python
    log(f"installing {name} into {home}")
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


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Worker:
    """A process of one package that answers requests."""

    def __init__(self, package: str, python: str | Path, cores: tuple[int, ...]):
        self.package, self.answers = package, {}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (a full pipe would stop the worker)
        self.process = subprocess.Popen(
            [str(python), str(WORKER), package, *map(str, cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def ask(self, task: str, repeat: int, quick: bool) -> dict:
        """Runs a task once, or returns the answer of a run that rows share. Raises Skipped if the process ends."""
        if not task.startswith("CartPole"):  # only these run for minutes
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
            end = self.process.wait()
            reason = lines[-1] if lines else f"exit status {end}"
            raise Skipped(f"{self.package} was skipped in {task} because it failed: {reason}")
        return json.loads(answer)

    def has_ended(self) -> bool:
        """Whether the process has ended, as it does after an error."""
        return self.process.poll() is not None

    def close(self) -> None:
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.errors.close()


def value_of(answer: dict, field: str = "value") -> float:
    """The value of an answer. From draws, it is effective samples per second, the median of all quantities."""
    if "draws" not in answer:
        return math.inf if answer[field] is None else answer[field]
    import numpy as np

    from feelgood.samplers import diagnostics

    path = Path(answer["draws"])
    draws = np.load(path)
    path.unlink()
    return float(np.median(diagnostics.effective_sample_size(draws))) / answer["seconds"]


def measure(row: Row, own: Worker, peer: Worker, quick: bool) -> list[dict]:
    """Interleaves the repeats of feelgood and of a peer; returns a line of the CSV file for each."""
    lines: list[dict] = []
    compiling: dict = {"own_compile": None, "their_compile": None}
    note = row.note
    for repeat in range(row.repeats[quick]):
        mine = own.ask(row.own_task or row.task, min(repeat, row.own_repeats - 1), quick)
        theirs = peer.ask(row.task, repeat, quick)
        for side, answer in (("own_compile", mine), ("their_compile", theirs)):
            compiling[side] = answer.get("compile", compiling[side])
        if "solved" in mine and row.lower_is_better and row.own_repeats == 1:
            note = f"{mine['solved']} seeds reached the goal; {row.note}"
        values = {"feelgood": value_of(mine, row.field), "theirs": row.peer_factor * value_of(theirs, row.field)}
        where = "one core" if row.own_cores == 1 else f"{row.own_cores} cores against one"
        lines.append({"repeat": repeat, **values, **compiling, "hardware": where})
    same = {"section": row.section, "task": row.title, "size": row.size, "unit": row.unit, "note": note}
    same |= {"lower_is_better": int(row.lower_is_better), "peer": row.peer, "function": row.function}
    return [{name: {**same, **line}[name] for name in COLUMNS} for line in lines]


def number(value: float) -> str:
    """Three significant digits, and no exponent."""
    if not math.isfinite(value):
        return "not reached"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def summary(values: list[float]) -> str:
    """The median with the range, or the only value."""
    if len(set(values)) == 1:
        return number(values[0])
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def ratio(lines: list[dict]) -> float:
    """Median factor by which feelgood is better, below 1 if the peer is better; NaN if a goal is not reached."""
    ratios = []
    for line in lines:
        own, theirs = float(line["feelgood"]), float(line["theirs"])
        ratios.append(theirs / own if int(line["lower_is_better"]) else own / theirs)
    if not all(map(math.isfinite, ratios)) or 0 in ratios:
        return math.nan
    return statistics.median(ratios)


def status(ratios: list[float]) -> str:
    """Whether feelgood is ahead of its peers, within 5% of the nearest, or behind one."""
    known = [round(value, 2) for value in ratios if not math.isnan(value)]
    if not known:
        return "–"
    return "ahead" if min(known) > 1.05 else "level" if min(known) >= 0.95 else "**behind**"


def grouped(lines: list[dict], *names: str) -> dict[tuple, list[dict]]:
    """Lines by their values in some columns, in order of first appearance."""
    groups: dict[tuple, list[dict]] = {}
    for line in lines:
        groups.setdefault(tuple(line[name] for name in names), []).append(line)
    return groups


def table(head: tuple[str, ...], body: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ("---",) * len(head), *body))


def comparisons(lines: list[dict]) -> str:
    """One row for each task and unit, with all peers in it."""
    body, command = [], COMMAND
    for (task, unit), same in grouped(lines, "task", "unit").items():
        peers = grouped(same, "peer", "function").items()
        ratios = [ratio(theirs) for _, theirs in peers]
        lower = " (lower is better)" if int(same[0]["lower_is_better"]) else ""
        cells = [f"{peer} `{name}` {summary([float(x['theirs']) for x in theirs])}" for (peer, name), theirs in peers]
        numbers = "; ".join("–" if math.isnan(value) else f"{value:.2f}" for value in ratios)
        mine = summary([float(line["feelgood"]) for line in same])
        what = f"{task}: {unit}{lower}"
        body.append((what, mine, "; ".join(cells), numbers, same[0]["hardware"], command, status(ratios)))
        command = "the same"
    return table(("task", "ours", "peer", "ratio", "hardware", "command", "status"), body)


def growth(lines: list[dict]) -> str:
    """One row for each number of runs or chains, with the cost of one relative to the first row of its kind."""
    body, first = [], {}
    for (section, size, unit), same in grouped(lines, "section", "size", "unit").items():
        own, theirs = ([float(line[side]) for line in same] for side in ("feelgood", "theirs"))
        rates = [statistics.median(values) for values in (own, theirs)]
        base = first.setdefault(section, (int(size), rates))
        mine, peer = (number(int(size) / base[0] * start / now) for start, now in zip(base[1], rates, strict=True))
        name = f"{same[0]['peer']} `{same[0]['function']}` {summary(theirs)}"
        what = f"{same[0]['task']}: {unit}"
        body.append((what, summary(own), name, f"{ratio(same):.2f}", f"{mine}; {peer}"))
    return table(("task", "ours", "peer", "ratio", "cost relative to one: ours; peer"), body)


def report(lines: list[dict], skipped: list[str]) -> str:
    """The tables, and a sentence for each peer that was skipped."""
    growing = [line for line in lines if line["section"] in GROWING]
    others = [line for line in lines if line["section"] not in GROWING]
    parts = [*([comparisons(others)] if others else []), *([growth(growing)] if growing else []), *skipped]
    return "\n\n".join(parts)


def draw(lines: list[dict], path: Path) -> None:
    """Ratios of all comparisons on the left; on the right, how rates grow with runs and chains."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    from feelgood.figures.style import COLOURS, STYLE, save

    ratios = [
        (section, f"{task.replace('`', '')}: {unit.partition(' (')[0]}", f"{peer} {function}".strip(), ratio(same))
        for (section, task, unit, peer, function), same in grouped(
            lines, "section", "task", "unit", "peer", "function"
        ).items()
        if section not in GROWING and peer != "feelgood" and not math.isnan(ratio(same))
    ]
    names = list(dict.fromkeys((section, what) for section, what, _, _ in ratios))
    peers = list(dict.fromkeys(peer.split()[0] for _, _, peer, _ in ratios))
    own = COLOURS["red"]
    palette = dict(zip(peers, itertools.cycle(PALETTE), strict=False)) | {"feelgood": own}
    growing = grouped([line for line in lines if line["section"] in GROWING], "section")
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 0.19 * len(names) + 1.4), layout="constrained")
        grid = figure.add_gridspec(max(len(growing), 1), 2, width_ratios=(1.25, 1))
        axes = figure.add_subplot(grid[:, 0])
        for peer in peers:
            marks = [(value, names.index((s, what))) for s, what, other, value in ratios if other.split()[0] == peer]
            axes.plot(*zip(*marks, strict=True), "o", markersize=4, color=palette[peer], label=LABELS.get(peer, peer))
        axes.axvline(1, color="0.6", linewidth=0.8, zorder=0)
        axes.set(xscale="log", xlabel="how many times better feelgood is than the peer", ylim=(len(names) - 0.5, -0.5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.set_yticks(range(len(names)), [what for _, what in names], fontsize=6.5)
        for i, (section, _) in enumerate(names):
            if i and section != names[i - 1][0]:
                axes.axhline(i - 0.5, color="0.85", linewidth=0.6, zorder=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=9, columnspacing=1.2)
        for i, ((section,), same) in enumerate(growing.items()):
            axes = figure.add_subplot(grid[i, 1])
            sizes = grouped(same, "size")
            for side, name, colour in (
                ("feelgood", "feelgood", own),
                ("theirs", same[0]["peer"], palette.get(same[0]["peer"], COLOURS["grey"])),
            ):
                values = [[float(line[side]) for line in group] for group in sizes.values()]
                places = [int(size) for (size,) in sizes]
                axes.plot(
                    places,
                    [statistics.median(each) for each in values],
                    "o-",
                    ms=3,
                    color=colour,
                    label=LABELS.get(name, name),
                )
                axes.fill_between(places, [min(v) for v in values], [max(v) for v in values], color=colour, alpha=0.15)
            what = ", ".join(same[0]["task"].replace("`", "").split(", ")[:2])
            axes.set(xscale="log", xlabel=GROWING[section], ylabel=same[0]["unit"], title=what)
            axes.set_xticks(places, [f"{place:,}" for place in places])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.legend()
        save(figure, path)


def check_peers(names: list[str]) -> None:
    """Refuses a name that is no peer, in one sentence."""
    for name in names:
        if name not in PEERS:
            raise SystemExit(f"peers must be among {', '.join(PEERS)}, got {name!r}")


def write(lines: list[dict], path: Path) -> None:
    """Writes the CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(lines)


def run(names: list[str], folder: Path, quick: bool, path: Path) -> tuple[list[dict], list[str]]:
    """Measures all rows of the peers; returns the lines of the CSV file and the sentences about skipped peers.

    The file is written after each row, so that a run that is stopped keeps its measurements.
    """
    skipped: list[str] = []
    pythons: dict[str, str | Path] = {"feelgood": sys.executable}
    for name in names:
        try:
            pythons[name] = environment(name, folder)
        except Skipped as reason:
            skipped.append(str(reason))
    rows = [row for row in ROWS if row.peer in pythons and row.repeats[quick]]
    found: dict[Row, list[dict]] = {}
    lock = threading.Lock()

    def lane(part: list[Row], core: int) -> None:
        """Measures rows one after the other, with workers of its own."""
        workers: dict[tuple[str, int], Worker] = {}

        def worker(package: str, num_cores: int) -> Worker:
            if (package, num_cores) not in workers:
                places = (core,) if num_cores == 1 else tuple(CORES[:num_cores])
                workers[package, num_cores] = Worker(package, pythons[package], places)
            return workers[package, num_cores]

        try:
            for row in part:
                try:
                    new = measure(row, worker("feelgood", row.own_cores), worker(row.peer, 1), quick)
                except Skipped as reason:
                    skipped.append(str(reason))
                    for key in [key for key, each in workers.items() if each.has_ended()]:
                        workers.pop(key).close()
                    continue
                with lock:
                    found[row] = new
                    write(ordered(found), path)
                    values = (summary([line[side] for line in new]) for side in ("feelgood", "theirs"))
                    log(f"{len(found)} of {len(rows)}: {row.title}, {row.unit}: {' and '.join(values)} ({row.peer})")
        finally:
            for each in workers.values():
                each.close()

    alone = [row for row in rows if row.own_cores == 1]
    parts = [[row for row in alone if (row.section == "CartPole") == is_cart_pole] for is_cart_pole in (True, False)]
    if len(CORES) == 1:
        parts = [alone]
    threads = [threading.Thread(target=lane, args=each) for each in zip(parts, CORES, strict=False)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if len(CORES) > 1:  # two cores against one need both, so that row comes last
        lane([row for row in rows if row.own_cores > 1], CORES[-1])
    return ordered(found), skipped


def ordered(found: dict[Row, list[dict]]) -> list[dict]:
    """The lines of all rows that were measured, in the order of the rows."""
    return [line for row in ROWS if row in found for line in found[row]]


def main() -> None:
    """Reads the arguments, measures, prints, writes and draws."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", default=[*PEERS], metavar="NAME", help=f"among {', '.join(PEERS)}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller sizes")
    parser.add_argument(
        "--output",
        type=Path,
        help="folder of peers.csv and peers.png: results/peers, or runs/peers if not all is measured",
    )
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "feelgood" / "peers"
    parser.add_argument("--environments", type=Path, default=home, help="folder of the peers' virtual environments")
    parser.add_argument("--draw", type=Path, metavar="DIR", help="folder of an earlier run; nothing is measured")
    arguments = parser.parse_args()
    check_peers(arguments.peers)
    is_whole = not arguments.quick and set(arguments.peers) == set(PEERS)
    folder = arguments.draw or arguments.output or Path("results/peers" if is_whole else "runs/peers")
    skipped: list[str] = []
    path = folder / "peers.csv"
    if arguments.draw:
        if not path.exists():
            raise SystemExit(f"--draw must be a folder with a file peers.csv, got {str(folder)!r}")
        with path.open(newline="") as file:
            lines = list(csv.DictReader(file))
    else:
        lines, skipped = run(arguments.peers, arguments.environments, arguments.quick, path)
    print(report(lines, skipped))
    if lines:
        draw(lines, folder / "peers.png")
        log(f"wrote {path} and {folder / 'peers.png'}")


if __name__ == "__main__":
    main()
