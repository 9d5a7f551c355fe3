"""The default agent against DQN on small external tasks that a newcomer might bring.

The default's setting was chosen on tuning seeds of grids, a key and door, functional CartPole and MountainCar, among
other problems. The limit of its action gap was chosen on tuning seeds of Acrobot, and one rule on the four rooms; the
corridor was not used. In tasks such as corridor_100 the rewards are multiplied; the scaling of large losses was chosen
on CliffWalking.

Mean return of the last three evaluations of each seed, for each agent with its defaults. Every task is a plain
Gymnasium environment. The whole suite takes tens of minutes on two cores; name tasks to run fewer.

    python benchmarks/newcomer.py --tasks grid one_hot_grid --num-seeds 3
"""

import argparse
import time

import gymnasium
import numpy as np

import feelgood


class Rooms(gymnasium.Env):
    """A square of cells, start in one corner, reward 1 in the other; with a key, only after the key was fetched.

    Args:
      size: cells in a row.
      one_hot: whether an observation is a one-hot vector of the cell (and key) instead of coordinates.
      has_key: whether the goal counts only with the key, which lies in a third corner.
    """

    moves = ((0, 1), (1, 0), (0, -1), (-1, 0))

    def __init__(self, size: int = 8, one_hot: bool = False, has_key: bool = False):
        self.size, self.one_hot, self.has_key = size, one_hot, has_key
        self.action_space = gymnasium.spaces.Discrete(4)
        shape = (2 * size**2,) if one_hot else (3,)
        high = np.ones(shape) if one_hot else np.array([size - 1, size - 1, 1])
        self.observation_space = gymnasium.spaces.Box(np.zeros(shape, np.float32), high.astype(np.float32))

    def _observation(self):
        row, column = self.cell
        if not self.one_hot:
            return np.array([row, column, self.key], np.float32)
        observation = np.zeros(2 * self.size**2, np.float32)
        observation[self.key * self.size**2 + row * self.size + column] = 1
        return observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.key, self.time = (0, 0), int(not self.has_key), 0
        return self._observation(), {}

    def step(self, action):
        last = self.size - 1
        self.cell = tuple(min(max(x + move, 0), last) for x, move in zip(self.cell, self.moves[action], strict=True))
        self.time += 1
        if self.cell == (0, last):
            self.key = 1
        at_goal = self.cell == (last, last) and bool(self.key)
        return self._observation(), float(at_goal), at_goal, self.time >= 8 * self.size, {}


class FourRooms(gymnasium.Env):
    """Four rooms of 5 × 5 cells with a door in each wall; reward 1 in the corner opposite to the start, 200 steps."""

    doors = ((5, 2), (5, 8), (2, 5), (8, 5))

    def __init__(self):
        self.action_space = gymnasium.spaces.Discrete(4)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.time = (0, 0), 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        row, column = (x + move for x, move in zip(self.cell, Rooms.moves[action], strict=True))
        is_inside = 0 <= row <= 10 and 0 <= column <= 10
        if is_inside and (5 not in (row, column) or (row, column) in self.doors):
            self.cell = row, column
        self.time += 1
        at_goal = self.cell == (10, 10)
        return np.array(self.cell, np.float32) / 10, float(at_goal), at_goal, self.time >= 200, {}


class Corridor(gymnasium.Env):
    """A corridor with 0.01 for staying at its left end and 1 at its right end, `length` steps away."""

    def __init__(self, length: int = 20):
        self.length = length
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(0.0, float(length), (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = 1, 0
        return np.array([self.place], np.float32), {}

    def step(self, action):
        reward = 0.01 * (self.place == 0 and action == 0)
        self.place, self.time = min(max(self.place + (1 if action == 1 else -1), 0), self.length), self.time + 1
        at_goal = self.place == self.length
        return np.array([self.place], np.float32), reward + at_goal, at_goal, self.time >= 3 * self.length, {}


def times(make, factor: float):
    """The environment with its rewards multiplied."""
    return lambda: gymnasium.wrappers.TransformReward(make(), lambda reward: factor * float(reward))


def limited(name: str, num_steps: int, **settings):
    """A registered environment with a limit on the steps of an episode."""
    return lambda: gymnasium.wrappers.TimeLimit(gymnasium.make(name, **settings), num_steps)


TASKS = {
    "grid": (lambda: Rooms(), 30_000),
    "one_hot_grid": (lambda: Rooms(one_hot=True), 30_000),
    "key_door": (lambda: Rooms(6, has_key=True), 30_000),
    "corridor": (lambda: Corridor(), 30_000),
    "four_rooms": (lambda: FourRooms(), 30_000),
    "CartPole-v1": (None, 50_000),
    "MountainCar-v0": (None, 50_000),
    "Acrobot-v1": (None, 50_000),
    "corridor_100": (times(Corridor, 100.0), 30_000),
    "grid_100": (times(Rooms, 100.0), 30_000),
    "key_door_10": (times(lambda: Rooms(6, has_key=True), 10.0), 30_000),
    "four_rooms_100": (times(FourRooms, 100.0), 30_000),
    "four_rooms_twentieth": (times(FourRooms, 0.05), 30_000),
    "corridor_hundredth": (times(Corridor, 0.01), 30_000),
    "CliffWalking": (limited("CliffWalking-v1", 200), 50_000),
    "FrozenLake": (limited("FrozenLake-v1", 100), 50_000),
    "FrozenLake8x8": (limited("FrozenLake8x8-v1", 200, is_slippery=False), 50_000),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--agents", nargs="+", default=["ensemble_dqn", "dqn"])
    parser.add_argument("--num-seeds", type=int, default=3)
    arguments = parser.parse_args()
    print("| task | steps | agent | last three evaluations, by seed | all evaluations | seconds |")
    print("|---|---|---|---|---|---|")
    for task in arguments.tasks:
        make, num_steps = TASKS[task]
        name = task
        if make is not None:
            name = f"Newcomer-{task}-v0"
            gymnasium.register(name, entry_point=make)
        for agent in arguments.agents:
            began = time.time()
            curve = feelgood.train(agent, name, num_steps=num_steps, seeds=range(arguments.num_seeds)).curve
            scores = [rows["return"].iloc[-3:].mean() for _, rows in curve.groupby("seed")]
            words = ", ".join(f"{score:.2f}" for score in scores)
            mean, seconds = curve["return"].mean(), time.time() - began
            print(f"| {task} | {num_steps} | {agent} | {words} | {mean:.2f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
