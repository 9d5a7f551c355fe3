"""What training on Atari costs, against the emulators alone and learning alone, interleaved in one run.

python benchmarks/atari.py                        # on a GPU: the paper's protocol, 200 environments, replay of 1M
python benchmarks/atari.py --num-envs 40 --capacity 20000 --seconds 20     # on two cores
"""

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from feelgood import agents
from feelgood.envs.external import atari
from feelgood.replay.frames import Arrival
from feelgood.training.host import train
from feelgood.training.machinery import HostProtocol, machinery


def emulators_alone(env, seconds):
    """Frames a second of random play."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, env.single_action_space.n, (64, env.num_envs))
    began, turns = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        env.step(actions[turns % 64])
        turns += 1
    return 4 * turns * env.num_envs / (time.perf_counter() - began)


def device_alone(task, make, protocol, hyper):
    """A function that tells what a turn's calls take on an idle host, in seconds: act, learn, and to start learn."""
    parts = machinery(task, make, dataclasses.replace(protocol, capacity=20 * protocol.num_envs), hyper)
    hyper = {name: np.float32(value) for name, value in hyper.items()}
    agent, lanes = parts.init(jax.random.key(0), hyper)
    rng, num_lanes, key = np.random.default_rng(0), protocol.num_lanes, jax.random.key(1)
    none, zeros = np.zeros(num_lanes, bool), np.zeros(num_lanes, np.int32)
    turns = 0

    def act():
        nonlocal lanes, turns
        frame = rng.integers(0, 256, (num_lanes, 84, 84), np.uint8)
        arrival = Arrival(frame, none | (turns < protocol.num_groups), zeros, zeros.astype(np.float32), none)
        began = time.perf_counter()
        lanes, actions = parts.act(key, np.uint32(turns), agent, lanes, arrival, hyper, np.float32(0))
        np.asarray(actions)
        turns += 1
        return time.perf_counter() - began

    def learn():
        nonlocal agent
        began = time.perf_counter()
        agent, _, potential = parts.learn(key, np.uint32(turns), agent, lanes, hyper, np.float32(0))
        started = time.perf_counter()
        potential.block_until_ready()
        return time.perf_counter() - began, started - began

    for _ in range(8):
        act()
    learn()

    def measure(seconds):
        times, began = [], time.perf_counter()
        while time.perf_counter() - began < seconds:
            times.append((act(), *learn()))
        return np.median(times, 0)

    return measure


def whole(task, make, protocol, hyper, folder):
    """Frames a second of training in the steady state; where the host's time goes, and that of a group in a step."""
    marks = []
    outcome = train(task, make, protocol, hyper, 0, report=marks.append, folder=folder)
    # The first period has compilation in it.
    seconds = outcome.curve[-1].seconds - outcome.curve[1].seconds
    steps = outcome.curve[-1].step - outcome.curve[1].step
    parts = {name: outcome.seconds[name] for name in ("receive", "act", "learn", "rest")}
    num_turns = outcome.num_steps / protocol.num_envs
    group = {name: outcome.seconds[name] / num_turns for name in ("waiting", "stepping")}
    return 4 * steps / seconds, parts, group


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="venture")
    parser.add_argument("--agent", default="fg_ulmcdqn")
    parser.add_argument("--num-envs", type=int, default=200)
    parser.add_argument("--num-groups", type=int, default=2)
    parser.add_argument("--num-draws", type=int, default=50)
    parser.add_argument("--num-chains", type=int, default=1)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement, about")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--evaluate", action="store_true", help="with the evaluations of a real run beside it")
    parser.add_argument("--checkpoints", action="store_true", help="keep the run on disk while it goes")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    pixel_scale = 1 / 255
    task = atari(options.game, pixel_scale=pixel_scale)
    agent_options = agents.Options(double=True)
    hyper = agents.atari_hyper(options.agent, pixel_scale)
    make = lambda spaces, hyper: agents.make_agent(options.agent, spaces, hyper, agent_options)
    protocol = lambda num_steps, period: HostProtocol(
        num_steps=num_steps,
        num_envs=options.num_envs,
        num_groups=options.num_groups,
        num_draws=options.num_draws,
        num_chains=options.num_chains,
        num_warmup_steps=options.num_envs * 4,
        capacity=options.capacity,
        evaluation_period=period,
        **({} if options.evaluate else {"num_evaluation_episodes": 1, "max_evaluation_steps": 1}),
        num_stagger_turns=1,  # what happens only at the start of a run is left out
    )
    env = task.make(options.num_envs, True)
    env.reset(seed=0)
    emulators_alone(env, 1.0)
    alone = protocol(10**6, 10**6)
    calls_alone = device_alone(task, make, alone, hyper)
    frames_per_stretch = 4 * alone.stretch * alone.steps_per_update / alone.num_updates
    rates, calls = {"emulators": [], "learning": [], "training": []}, []
    guess = emulators_alone(env, options.seconds / 2)
    guess = min(guess, frames_per_stretch / calls_alone(options.seconds / 4)[1])
    period = max(int(guess * options.seconds / 4 / 4 / options.num_envs), 1) * options.num_envs
    period = max(period, 100_000) if options.evaluate else period
    for _ in range(options.repeats):
        rates["emulators"].append(emulators_alone(env, options.seconds / 2))
        calls.append(calls_alone(options.seconds / 4))
        rates["learning"].append(frames_per_stretch / calls[-1][1])
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder, "run") if options.checkpoints else None
            rate, parts, group = whole(task, make, protocol(5 * period, period), hyper, kept)
        rates["training"].append(rate)
        print({name: round(values[-1]) for name, values in rates.items()}, flush=True)
    rates["emulators"].append(emulators_alone(env, options.seconds / 2))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    bound = min(medians["emulators"], medians["learning"])
    total = sum(parts.values())
    stats = jax.devices()[0].memory_stats() or {}
    print(f"{options.game}, {options.agent}, {options.num_envs} environments in {options.num_groups} groups, ", end="")
    print(f"{options.num_chains} chains, {options.num_draws} draws, ", end="")
    print(f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}")
    for name, value in medians.items():
        print(f"  {name:10s} {value:10,.0f} frames/s   (of {min(rates[name]):,.0f} to {max(rates[name]):,.0f})")
    print(f"  training is {medians['training'] / medians['emulators']:.0%} of the emulators alone,", end=" ")
    print(f"{medians['training'] / bound:.0%} of the slower of the two")
    print("  of its time: " + ", ".join(f"{name} {value / total:.0%}" for name, value in parts.items()))
    print("    (receive: waits for the emulators, and for the actions they wait for; act, learn: starts these)")
    print(f"  a group waits {1e3 * group['waiting']:.1f} ms for actions and steps for {1e3 * group['stepping']:.1f} ms")
    act, learn, start = 1e3 * np.median(calls, 0)
    print(f"  alone, ms: acting for {alone.num_lanes} environments {act:.1f};", end=" ")
    print(f"a call of {alone.stretch} gradient steps {learn:.1f}, of which {start:.1f} to start them")
    if "peak_bytes_in_use" in stats:
        print(f"  device memory {stats['peak_bytes_in_use'] / 1e9:.1f} GB")
    if options.json:
        facts = {
            "rates": rates,
            "parts": parts,
            "group": group,
            "peak_bytes": stats.get("peak_bytes_in_use"),
            "options": vars(options),
        }
        options.json.write_text(json.dumps(facts, indent=2, default=str))


if __name__ == "__main__":
    main()
