"""Speed of training on Atari against the emulators alone and learning alone, interleaved in one run.

python benchmarks/atari.py                        # on a GPU: the paper's protocol, 300 environments, replay of 1M
python benchmarks/atari.py --num-lanes 20 --num-groups 2 --capacity 20000 --seconds 20     # on two cores
"""

import argparse
import dataclasses
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np

from feelgood import agents
from feelgood.envs.external import atari
from feelgood.replay.frames import Arrival
from feelgood.training.acting import acting_part
from feelgood.training.config import ExternalConfig
from feelgood.training.external import train
from feelgood.training.external_steps import external_steps


class Kept:
    """Emulators that are made once and reused: a hundred take some 12 seconds to make."""

    def __init__(self, env, pool):
        self.env, self.pool = env, pool
        self.num_envs, self.single_action_space = env.num_envs, env.single_action_space
        env.reset(seed=len(pool))
        pool.append(self)

    def reset(self, *, seed=None, options=None):
        return self.env.reset(options=options)  # a seed would load the game again

    def step(self, actions):
        return self.env.step(actions)

    def close(self, **settings):
        self.pool.append(self)


def emulators_alone(pool, seconds):
    """Frames a second of random play, all groups at the same time, each at its own pace."""

    def play(env):
        actions = np.random.default_rng(0).integers(0, env.single_action_space.n, (64, env.num_envs))
        began, turns = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            env.step(actions[turns % 64])
            turns += 1
        return 4 * turns * env.num_envs / (time.perf_counter() - began)

    with ThreadPoolExecutor(len(pool)) as threads:
        return sum(threads.map(play, pool))


def device_alone(environment, make, config, hyper):
    """A function that measures a turn's calls on an idle host, in seconds: act, learn, and the start of learn."""
    steps = external_steps(environment, make, dataclasses.replace(config, capacity=20 * config.num_envs), hyper)
    hyper = {name: np.float32(value) for name, value in hyper.items()}
    agent, lanes = steps.init(jax.random.key(0), hyper)
    rng, num_lanes, key = np.random.default_rng(0), config.num_lanes, jax.random.key(1)
    none, zeros = np.zeros(num_lanes, bool), np.zeros(num_lanes, np.int32)
    turns = 0

    def act():
        nonlocal lanes, turns
        frame = rng.integers(0, 256, (num_lanes, 84, 84), np.uint8)
        arrival = Arrival(frame, none | (turns < config.num_groups), zeros, zeros.astype(np.float32), none)
        began = time.perf_counter()
        lanes, actions = steps.act(key, np.uint32(turns), acting_part(agent), lanes, arrival, hyper, np.float32(0))
        np.asarray(actions)
        turns += 1
        return time.perf_counter() - began

    def learn():
        nonlocal agent
        began = time.perf_counter()
        agent, _, potential = steps.learn(key, np.uint32(0), agent, lanes, hyper, np.float32(0))
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


def whole(environment, make, config, hyper, folder):
    """Frames a second of training in the steady state; the seconds of each part of a turn, and of a group's step."""
    marks = []
    outcome = train(environment, make, config, hyper, 0, report=marks.append, folder=folder)
    # The first period has compilation in it.
    seconds = outcome.curve[-1].seconds - outcome.curve[1].seconds
    steps = outcome.curve[-1].step - outcome.curve[1].step
    num_turns = outcome.num_steps / config.num_lanes
    parts = {name: outcome.seconds[name] / num_turns for name in ("receive", "act", "learn", "rest")}
    group = {name: outcome.seconds[name] / num_turns * config.num_groups for name in ("waiting", "stepping")}
    return 4 * steps / seconds, parts, group


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="venture")
    parser.add_argument("--agent", default="fg_ulmcdqn")
    parser.add_argument("--num-lanes", type=int, default=100, help="environments in a group")
    parser.add_argument("--num-groups", type=int, nargs="+", default=[3], help="each is measured")
    parser.add_argument("--num-draws", type=int, default=50)
    parser.add_argument("--num-chains", type=int, default=1)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=8.0, help="approximate seconds of each measurement")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--evaluate", action="store_true", help="with the evaluations of a real run")
    parser.add_argument("--checkpoints", action="store_true", help="write the run to disk while it trains")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    pixel_scale = 1 / 255
    environment = atari(options.game, pixel_scale=pixel_scale)
    pool, fresh = [], environment.make
    for _ in range(max(options.num_groups)):
        Kept(fresh(options.num_lanes, True), pool)
    environment = environment._replace(
        make=lambda num_envs, training: pool.pop(0) if training else fresh(num_envs, False)
    )
    agent_options = agents.Options(double=True, init="unbiased")
    hyper = agents.atari_hyper(options.agent, pixel_scale)
    make = lambda spaces, hyper: agents.make_agent(options.agent, spaces, hyper, agent_options)
    config = lambda num_groups, num_steps, period: ExternalConfig(
        num_steps=num_steps,
        num_envs=options.num_lanes * num_groups,
        num_groups=num_groups,
        num_draws=options.num_draws,
        num_chains=options.num_chains,
        learning_starts=options.num_lanes * num_groups * 4,
        capacity=options.capacity,
        evaluation_period=period,
        **({} if options.evaluate else {"num_evaluation_episodes": 1, "max_evaluation_steps": 1}),
        num_stagger_turns=1,  # without the effects of the start of a run
    )
    emulators_alone(pool, 1.0)
    alone = config(1, 10**6, 10**6)
    calls_alone = device_alone(environment, make, alone, hyper)
    frames_per_block = 4 * alone.train_frequency
    trainings = {f"{n} groups": n for n in options.num_groups}
    rates, calls, details = {name: [] for name in ("emulators", "learning", *trainings)}, [], {}
    guess = emulators_alone(pool, options.seconds / 2)
    guess = min(guess, frames_per_block / calls_alone(options.seconds / 4)[1])
    for _ in range(options.repeats):
        calls.append(calls_alone(options.seconds / 4))
        rates["learning"].append(frames_per_block / calls[-1][1])
        for name, num_groups in trainings.items():
            rates["emulators"].append(emulators_alone(pool, options.seconds / 2))
            num_envs = options.num_lanes * num_groups
            period = max(int(guess * options.seconds / 4 / 4 / num_envs), 1) * num_envs
            period = max(period, 100_000) if options.evaluate else period
            with tempfile.TemporaryDirectory() as folder:
                kept = Path(folder, "run") if options.checkpoints else None
                rate, *details[name] = whole(environment, make, config(num_groups, 5 * period, period), hyper, kept)
            rates[name].append(rate)
            print(f"emulators alone {rates['emulators'][-1]:,.0f}, training in {name} {rate:,.0f}", flush=True)
    rates["emulators"].append(emulators_alone(pool, options.seconds / 2))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    bound = min(medians["emulators"], medians["learning"])
    stats = jax.devices()[0].memory_stats() or {}
    print(f"{options.game}, {options.agent}, groups of {options.num_lanes} environments, emulators alone in ", end="")
    print(f"{max(options.num_groups)} groups, ", end="")
    print(f"{options.num_chains} chains, {options.num_draws} draws, ", end="")
    print(f"{os.cpu_count()} cores, {jax.devices()[0].device_kind}")
    for name, value in medians.items():
        print(f"  {name:10s} {value:10,.0f} frames/s   (of {min(rates[name]):,.0f} to {max(rates[name]):,.0f})", end="")
        shares = (
            f"   {value / medians['emulators']:.0%} of the emulators alone, {value / bound:.0%} of the slower of both"
        )
        print(shares if name in trainings else "")
    print(
        "time of the parts of a turn in the last repeat, in ms (receive: waits for emulators, and for the actions that"
    )
    print("these wait for; act, learn: starts these); the work of a group during one of its steps")
    for name, (parts, group) in details.items():
        print(f"  {name:10s} " + ", ".join(f"{part} {1e3 * value:.2f}" for part, value in parts.items()), end="; ")
        print(f"waits {1e3 * group['waiting']:.1f} for actions and steps for {1e3 * group['stepping']:.1f}")
    act, learn, start = 1e3 * np.median(calls, 0)
    print(f"  alone      acting for {alone.num_lanes} environments {act:.1f};", end=" ")
    print(f"a call of {alone.stretch} gradient steps {learn:.1f}, including {start:.1f} to start them")
    if "peak_bytes_in_use" in stats:
        print(f"device memory {stats['peak_bytes_in_use'] / 1e9:.1f} GB")
    if options.json:
        facts = {
            "rates": rates,
            "details": details,
            "peak_bytes": stats.get("peak_bytes_in_use"),
            "options": vars(options),
        }
        options.json.write_text(json.dumps(facts, indent=2, default=str))


if __name__ == "__main__":
    main()
