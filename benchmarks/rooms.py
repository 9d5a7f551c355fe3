"""The default agent against DQN in the rooms of navix, a JAX form of MiniGrid: a held-out test of its one setting.

No setting of either agent was chosen on these rooms; both have their defaults for functional environments, and navix
has its own: seven actions, 100 steps an episode, reward 1 at the goal, 0 otherwise. So the return is the success rate.
Observations are symbols of cells, (height, width, 3): of the whole room, or, if the name ends in "view", of the 7 × 7
cells in front of the player, as in MiniGrid. Agents have no memory. Needs navix (`pip install navix`).

    python benchmarks/rooms.py --rooms Empty-8x8 DoorKey-5x5 --num-seeds 3
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pandas as pd

import feelgood
from feelgood.envs import Environment
from feelgood.envs.adapters import from_navix

ROOMS = ("DoorKey-5x5", "Empty-8x8", "FourRooms view", "DoorKey-6x6", "KeyCorridorS3R1")


def make(room: str) -> Environment:
    """A room as a functional environment, named after its observation too."""
    try:
        import navix
    except ImportError:
        raise SystemExit("navix is not installed; run: pip install navix") from None
    name, _, view = room.partition(" ")
    settings = {"observation_fn": navix.observations.symbolic_first_person} if view else {}
    adapted = from_navix(navix.make(f"Navix-{name}-v0", **settings))
    return adapted._replace(spec=adapted.spec._replace(name=room))


def random_return(environment: Environment, num_episodes: int = 500) -> float:
    """Mean return of uniformly random actions."""
    spec = environment.spec

    def play(key):
        key_reset, key_steps = jax.random.split(key)

        def step(carry, key):
            state, is_on, total = carry
            key_action, key_step = jax.random.split(key)
            state, now = environment.step(key_step, state, jax.random.randint(key_action, (), 0, spec.num_actions))
            return (state, is_on & ~now.terminated & ~now.truncated, total + is_on * now.reward), None

        start = (environment.reset(key_reset)[0], jnp.asarray(True), jnp.zeros(()))
        (_, _, total), _ = jax.lax.scan(step, start, jax.random.split(key_steps, spec.max_episode_steps))
        return total

    return float(jnp.mean(jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(0), num_episodes))))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--agents", nargs="+", default=["ensemble_dqn", "dqn"])
    parser.add_argument("--num-seeds", type=int, default=3)
    parser.add_argument("--num-steps", type=int, default=10_000)
    parser.add_argument("--output", type=Path, help="a CSV file of all evaluations, written after each room and agent")
    arguments = parser.parse_args()
    curves = []
    print("| room | random actions | agent | last three evaluations, by seed | all evaluations | CPU seconds |")
    print("|---|---|---|---|---|---|")
    for room in arguments.rooms:
        environment = make(room)
        floor = random_return(environment)
        for agent in arguments.agents:
            began = time.process_time()
            seeds, num_steps = range(arguments.num_seeds), arguments.num_steps
            curve = feelgood.train(agent, environment, num_steps=num_steps, seeds=seeds, progress=False).curve
            seconds = time.process_time() - began
            curves.append(curve.assign(random_return=floor, cpu_seconds=round(seconds)))
            scores = [rows["return"].iloc[-3:].mean() for _, rows in curve.groupby("seed")]
            words, mean = ", ".join(f"{score:.2f}" for score in scores), curve["return"].mean()
            print(f"| {room} | {floor:.2f} | {agent} | {words} | {mean:.2f} | {seconds:.0f} |", flush=True)
            if arguments.output:
                arguments.output.parent.mkdir(parents=True, exist_ok=True)
                pd.concat(curves).to_csv(arguments.output, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
