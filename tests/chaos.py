"""Random kills, corrupted files and hostile folders: prints how many were tried and how many were survived.

Run it with `make chaos`; it should take less than twenty minutes on two idle cores. `--seed 1 --num-kills 9` chooses
other kills and damages, and `--parts hostile` runs one part. Runs on Ray are killed too if Ray is installed: their
leading process, a worker, or the head of their cluster. A trial is survived if the same command then gives the results
of an undisturbed run, or refuses in one sentence; never if it gives other results, a traceback, or leaves its folder.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

NCHAIN = shlex.split("run nchain --lengths 5 --agents dqn --num-steps 20000 --num-seeds 2 --tuning-seeds")
SPLIT = [*NCHAIN, "--seeds-per-task", "1"]  # two tasks
TRAIN = shlex.split(
    "train --env CartPole-v1 --agent dqn --num-steps 6000 --num-envs 4 --hidden 16 --num-seeds 2 "
    "--config capacity=2000 evaluation_period=1000 num_evaluation_episodes=3 max_evaluation_steps=60"
)
PARTS = ("kills", "corruption", "hostile")


class Tally:
    """Counts trials and survivals, and prints the failures."""

    def __init__(self):
        self.tried, self.survived = Counter(), Counter()

    def add(self, kind, problem=""):
        self.tried[kind] += 1
        self.survived[kind] += not problem
        if problem:
            print(f"NOT SURVIVED, {kind}: {problem}", flush=True)

    def show(self):
        width = max(map(len, self.tried))
        for kind, tried in self.tried.items():
            print(f"{kind:{width}s}  {tried:4d} tried  {self.survived[kind]:4d} survived")
        print(f"{'all':{width}s}  {self.tried.total():4d} tried  {self.survived.total():4d} survived")
        return self.tried == self.survived


def start(words, folder):
    command = [sys.executable, "-m", "feelgood", *words, "--output", str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes)


def call(words):
    """A command in this process: its exit code and all that it printed."""
    from feelgood.cli import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            main(list(map(str, words)))
        except SystemExit as end:
            return end.code or 0, said.getvalue()
        except BaseException as error:
            return 1, f"{said.getvalue()}Traceback {error!r}"
    return 0, said.getvalue()


def tables(folder):
    """All tables of a folder, as bytes of their values."""
    import pandas as pd

    from feelgood.runs.store import load_results

    found = {}
    for path in sorted([*folder.glob("*.parquet"), *folder.glob("*.csv")]):
        table = load_results(folder, path.stem).drop(columns="seconds", errors="ignore")
        found[path.name] = pd.util.hash_pandas_object(table, index=False).to_numpy().tobytes()
    return found


def kills(tally, draws, folder, num_kills, words, kind, is_right, seconds=(1, 9), victims=("leading process",)):
    """Kills a command again and again until it has finished; then looks at its results."""
    done = 0
    while done < num_kills:
        shutil.rmtree(folder, ignore_errors=True)
        for _ in range(6):
            process = start(words, folder)
            victim = draws.choice(victims)
            signum = draws.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            try:
                said, _ = process.communicate(timeout=draws.uniform(*seconds))
                break
            except subprocess.TimeoutExpired:
                codes = strike(process, victim, signum)
                said, _ = process.communicate(timeout=300)
            done += 1
            if process.returncode not in [0, *codes] or "Traceback" in said.partition("Exception ignored")[0]:
                problem = f"exit code {process.returncode} after {signum.name} to the {victim}: {said[-600:]}"
                tally.add(f"{kind}, killed", problem)
            else:
                tally.add(f"{kind}, killed")
        process = start(words, folder)
        said, _ = process.communicate(timeout=600)
        problem = said[-600:] if process.returncode or "Traceback" in said else is_right(folder)
        tally.add(f"{kind}, finished after kills", problem)


def strike(process, victim, signum):
    """Kills a command, or a process of its Ray cluster; returns the exit codes that are right then, next to 0."""
    names = {"worker": ("ray::_work",), "head": ("gcs_server",)}.get(victim, ())
    found = [pid for pid, name in descendants(process.pid) if any(each in name for each in names)]
    if not found:  # also if the cluster does not run yet
        os.killpg(process.pid, signum)
        return {signal.SIGKILL: [-9], signal.SIGTERM: [143, -15], signal.SIGINT: [130, -2]}[signum]
    with contextlib.suppress(ProcessLookupError):
        os.kill(found[0], signal.SIGKILL)
    return [2] if victim == "head" else []


def descendants(pid):
    """The processes that a process has started, directly or not: their numbers and command lines."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    found, parents = [], {pid}
    while parents:
        children = [(int(row[0]), row[2]) for row in rows if int(row[1]) in parents]
        found, parents = found + children, {child for child, _ in children}
    return found


def damages(draws, path):
    """Ways to damage a file, each as the bytes that it then has; None for a file that is gone."""
    data = path.read_bytes()
    flipped = bytearray(data)
    if flipped:
        flipped[draws.randrange(len(flipped))] ^= 1 << draws.randrange(8)
    noise = bytes(draws.randrange(256) for _ in range(200))
    return {
        "flipped": bytes(flipped),
        "cut": data[: draws.randrange(len(data) + 1)],
        "empty": b"",
        "noise": noise,
        "missing": None,
    }


def corruption(tally, draws, whole, words, kind, is_right):
    """Damages every file of a folder in every way; the same command must mend it or refuse."""
    for path in sorted(file for file in whole.rglob("*") if file.is_file()):
        for how, data in damages(draws, path).items():
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place, "run")
                shutil.copytree(whole, folder)
                file = folder / path.relative_to(whole)
                file.unlink() if data is None else file.write_bytes(data)
                code, said = call([*words, "--output", folder])
                problem = ""
                if code not in (0, 2) or "Traceback" in said or (code == 2 and said.count("\n") > 9):
                    problem = f"exit code {code}: {said[-600:]}"
                elif code == 0:
                    problem = is_right(folder)
                tally.add(f"{kind}, {how} file", problem and f"{path.relative_to(whole)}: {problem}")


def same_tables(reference):
    def is_right(folder):
        """Empty if the folder's tables are those of the reference, or are refused with a sentence."""
        try:
            found = tables(folder)
        except ValueError as error:
            return "" if "\n" not in str(error) else str(error)
        return "" if found == reference else f"other tables: {sorted(found)}"

    return is_right


def whole_curves(folder):
    """Empty if every seed has its evaluations, and its policy plays."""
    import feelgood

    try:
        curves = feelgood.load_results(folder)
        steps = curves.groupby("seed")["step"].agg(list)
        if list(steps.index) != [0, 1] or any(each != [*range(0, 6001, 1000)] for each in steps):
            return f"evaluations at {steps.to_dict()}"
        if not curves["return"].notna().all():
            return "an evaluation is missing"
        for seed in (0, 1):
            policy = feelgood.load_policy(folder / "policy" / f"seed-{seed}")
            if not policy.is_finite or policy(np.zeros(4)) not in (0, 1):
                return "the policy does not act"
    except ValueError as error:
        return "" if "\n" not in str(error) else str(error)
    return ""


def hostile(tally, folder):
    """Folders made to run code, to write elsewhere or to fill the memory."""
    from feelgood.training.policy_files import load_policy

    mine = folder / "mine.txt"

    def linked(name, words):
        place = folder / f"linked-{Path(name).name}"
        (place / name).parent.mkdir(parents=True)
        mine.write_text("mine")
        (place / name).symlink_to(mine)
        code, said = call([*words, "--output", place])
        problem = "" if mine.read_text() == "mine" and "Traceback" not in said else f"exit code {code}: {said[-300:]}"
        tally.add("hostile folder, symbolic link", problem)

    tiny = [*TRAIN, "--num-steps", "200", "--num-seeds", "1"]
    linked(".lock", tiny)
    linked("checkpoint/seed-0/frames.bin", tiny)
    linked("logs/seed-0.csv", tiny)
    linked("manifest.json", tiny)

    kept = folder / "policy"
    code, said = call([*tiny, "--output", kept])
    assert code == 0, said
    about = json.loads((kept / "policy" / "policy.json").read_text())
    (folder / "payload.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    sys.path.insert(0, str(folder))

    def changed(kind, arrays=None, **changes):
        place = folder / f"changed-{len(list(folder.glob('changed-*')))}"
        shutil.copytree(kept / "policy", place)
        if arrays is not None:
            (place / "policy.npz").write_bytes(arrays)
            changes["arrays"] = hashlib.sha256(arrays).hexdigest()
        (place / "policy.json").write_text(json.dumps({**about, **changes}))
        problem = ""
        try:
            load_policy(place).evaluate(1)
            problem = "it was played"
        except ValueError as error:
            problem = "" if "\n" not in str(error) else f"several lines: {error}"
        except BaseException as error:
            problem = repr(error)
        tally.add(f"hostile policy, {kind}", problem or ("code was run" if (folder / "ran").exists() else ""))

    elsewhere = {"kind": "gym", "name": "payload:X-v0", "settings": {}}
    changed("import", environment=elsewhere)
    bomb = io.BytesIO()
    np.savez_compressed(bomb, **{"sampler/params/layers/0/weight": np.zeros(2**26, np.float32)})
    changed("archive that inflates", arrays=bomb.getvalue())
    changed("archive that inflates", arrays=bomb.getvalue(), environment=elsewhere,
            frames={"shape": [10**9], "dtype": "float32", "num_actions": 2})  # fmt: skip
    objects = io.BytesIO()
    np.savez(objects, **{"sampler/params/layers/0/weight": np.array([print], object)}, allow_pickle=True)
    changed("pickle", arrays=objects.getvalue())
    for name, value in (("hyper", {"step_size": 1e400}), ("options", {}), ("num_chains", 10**12), ("format", [])):
        changed("strange description", **{name: value})

    for text in (
        "[]",
        "{",
        '{"study": 3}',
        '{"study": "../../x", "spec": {}, "finished": false}',
        "\x00",
        "[" * 100_000,
    ):
        place = folder / "manifest"
        place.mkdir(exist_ok=True)
        (place / "manifest.json").write_text(text)
        for command in (["resume", place], ["plot", place], ["report", place, "-o", folder / "x.html"]):
            code, said = call(command)
            tally.add("hostile manifest", "" if code == 2 and said.count("\n") == 1 else f"{code}: {said[-300:]}")
    sys.path.remove(str(folder))


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--seed", type=int, default=0)
    parse.add_argument("--num-kills", type=int, default=50, help="of runs of all kinds together")
    parse.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    chosen = parse.parse_args()
    from feelgood.cli.work import set_up_jax

    set_up_jax()  # before anything here computes
    os.environ.setdefault("RAY_worker_niceness", "0")  # at Ray's 15, tasks starve next to other work
    draws, tally, began = random.Random(chosen.seed), Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if {"kills", "corruption"} & {*chosen.parts}:
            undisturbed(NCHAIN, folder / "nchain")
            right = same_tables(tables(folder / "nchain"))
        if "kills" in chosen.parts:
            has_ray = importlib.util.find_spec("ray") is not None
            share = chosen.num_kills // (3 if has_ray else 2)
            kills(tally, draws, folder / "killed", share, NCHAIN, "N-chain", right)
            if has_ray:
                undisturbed(SPLIT, folder / "split")
                alike, victims = same_tables(tables(folder / "split")), ("leading process", "worker", "head")
                words = [*SPLIT, "--engine", "ray"]
                kills(tally, draws, folder / "killed", share, words, "N-chain on Ray", alike, (3, 20), victims)
            else:
                print("runs on Ray are left out: it is not installed (pip install 'feelgood[ray]')", flush=True)
            left = chosen.num_kills - share * (2 if has_ray else 1)
            kills(tally, draws, folder / "killed", left, TRAIN, "training", whole_curves)
        if "corruption" in chosen.parts:
            undisturbed(TRAIN, folder / "train")
            stop_training(folder / "stopped training")
            stop_nchain(folder / "stopped nchain")
            corruption(tally, draws, folder / "nchain", NCHAIN, "nchain", right)
            corruption(tally, draws, folder / "stopped nchain", NCHAIN, "stopped nchain", right)
            corruption(tally, draws, folder / "train", TRAIN, "train", whole_curves)
            corruption(tally, draws, folder / "stopped training", TRAIN, "stopped training", whole_curves)
        if "hostile" in chosen.parts:
            (folder / "hostile").mkdir()
            hostile(tally, folder / "hostile")
    is_whole = tally.show()
    print(f"{time.monotonic() - began:.0f} s, seed {chosen.seed}")
    sys.exit(0 if is_whole else 1)


def undisturbed(words, folder):
    """Runs a command to its end."""
    process = start(words, folder)
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 0, said


def stop_training(folder):
    """Stops a training run while its second seed trains."""
    process = start(TRAIN, folder)
    while not list(folder.glob("checkpoint/seed-1/evaluating-[1-4]000.npz")) and process.poll() is None:
        time.sleep(0.02)
    process.terminate()
    process.communicate(timeout=600)


def stop_nchain(folder):
    """Stops a run on the N-chain while it trains, found by bisection; a copy is the checkpoint before the last."""
    early, late = 1.0, 30.0
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        process = start(NCHAIN, folder)
        began, delay = time.monotonic(), (early + late) / 2
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=delay)
            late = time.monotonic() - began  # it has finished
            continue
        process.terminate()
        process.communicate(timeout=600)
        for path in folder.glob("cells/*.checkpoint.npz"):
            shutil.copy(path, path.with_name(f"{path.name}.previous"))
            return
        early = delay
    raise RuntimeError("no run on the N-chain was stopped while it trained")


if __name__ == "__main__":
    main()
