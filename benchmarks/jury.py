"""The default agent against DQN on held-out tasks: no setting was chosen on them, but some led to rules later.

Both agents have their defaults. Every task is a plain Gymnasium environment, and each asks one question: noise in moves
or observations, costs instead of rewards, distracting rewards, integer or image observations, bounds that are loose or
missing, one action or fifty. The task loose_bounds led to `agents.fitted_bounds`, pendulum to the median loss in
`agents.bounded_rewards`, and sparse_mountain_car to a `feel_good_weight` of 0.

Mean return of the last three evaluations of each seed, and of all evaluations. Rooms of MiniGrid need `minigrid`,
games of MinAtar `minatar`, the lander `gymnasium[box2d]`.

    python benchmarks/jury.py --tasks river_swim_6 windy_grid --seeds 0 1 --output jury.csv
"""

import argparse
import time
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from newcomer import Corridor, FourRooms, Rooms

import feelgood


class RiverSwim(gymnasium.Env):
    """A river with 0.005 for staying at its left end and 1 at its right end, against a current; 20 steps a state."""

    def __init__(self, size: int = 6):
        self.size, self.action_space, self.observation_space = size, Discrete(2), Discrete(size)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return self.place, {}

    def step(self, action):
        place, last = self.place, self.size - 1
        reward = 0.005 * (place == 0 and action == 0) + 1.0 * (place == last and action == 1)
        move = self.np_random.choice([1, 0, -1], p=[0.35, 0.6, 0.05]) if action == 1 else -1
        self.place, self.time = min(max(place + int(move), 0), last), self.time + 1
        return self.place, reward, False, self.time >= 20 * self.size, {}


class DeepSea(gymnasium.Env):
    """DeepSea of bsuite with one-hot cells, as a Gymnasium environment; its action that moves right varies by cell."""

    def __init__(self, size: int = 20):
        self.size, self.action_space = size, Discrete(2)
        self.observation_space = Box(0.0, 1.0, (size**2,))
        self.right = np.random.default_rng(42).integers(2, size=(size, size))

    def _observation(self):
        observation = np.zeros(self.size**2, np.float32)
        if self.row < self.size:
            observation[self.row * self.size + self.column] = 1
        return observation

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row = self.column = 0
        return self._observation(), {}

    def step(self, action):
        goes_right = action == self.right[self.row, self.column]
        at_treasure = goes_right and self.row == self.column == self.size - 1
        reward = float(at_treasure) - 0.01 / self.size * goes_right
        self.column = min(max(self.column + (1 if goes_right else -1), 0), self.size - 1)
        self.row += 1
        return self._observation(), reward, self.row == self.size, False, {}


class Lock(gymnasium.Env):
    """A combination lock: one of four actions opens each of `size` doors, any other ends the episode.

    Every door gives 0.1 for one wrong action and nothing for the others; the last door gives 1.
    """

    def __init__(self, size: int = 10):
        self.size, self.action_space = size, Discrete(4)
        self.observation_space = Box(0.0, 1.0, (size + 1,))
        self.codes = np.stack([np.random.default_rng(i).permutation(4)[:2] for i in range(size)])

    def _observation(self):
        return np.eye(self.size + 1, dtype=np.float32)[self.door]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.door = 0
        return self._observation(), {}

    def step(self, action):
        right, distracting = self.codes[self.door]
        if action != right:
            return self._observation(), 0.1 * float(action == distracting), True, False, {}
        self.door += 1
        is_open = self.door == self.size
        return self._observation(), float(is_open), is_open, False, {}


class Distractors(Corridor):
    """The corridor with a second small reward: 0.1 once on the way, at a quarter of the length, and 1 at the end.

    Taking the small reward needs the third action and ends the episode.
    """

    def __init__(self, length: int = 20):
        super().__init__(length)
        self.action_space = Discrete(3)

    def step(self, action):
        if action < 2:
            return super().step(action)
        self.time += 1
        is_taken = self.place == self.length // 4
        end = self.time >= 3 * self.length
        return np.array([self.place], np.float32), 0.1 * is_taken, is_taken, end, {}


class Maze(FourRooms):
    """The four rooms with a cost per step and a reward at the goal, by default a cost of 1 there, too."""

    def __init__(self, cost: float = 1.0, goal: float = -1.0):
        super().__init__()
        self.cost, self.goal = cost, goal

    def step(self, action):
        observation, _, at_goal, is_late, info = super().step(action)
        return observation, self.goal if at_goal else -self.cost, at_goal, is_late, info


class VaryingCost(FourRooms):
    """The four rooms with a random cost between 0.5 and 1.5 for every step, and nothing else."""

    def step(self, action):
        observation, _, at_goal, is_late, info = super().step(action)
        return observation, -0.5 - float(self.np_random.random()), at_goal, is_late, info


class Bumps(FourRooms):
    """The four rooms with a reward of 1 at the goal, and a cost of 0.1 for every step against a wall."""

    def step(self, action):
        before = self.cell
        observation, reward, at_goal, is_late, info = super().step(action)
        return observation, reward - 0.1 * (self.cell == before), at_goal, is_late, info


class Pits(gymnasium.Env):
    """A grid with coordinates, a goal with reward 1 and eight pits with −1, which all end the episode.

    Every other step costs 0.04; one move in ten is random.
    """

    def __init__(self, size: int = 8):
        self.size, self.action_space = size, Discrete(4)
        self.observation_space = Box(0.0, size - 1.0, (2,))
        inner = [(row, column) for row, column in np.ndindex(size, size) if 2 < row + column < 2 * size - 4]
        self.pits = {inner[i] for i in np.random.default_rng(3).choice(len(inner), 8, replace=False)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.time = (0, 0), 0
        return np.array(self.cell, np.float32), {}

    def step(self, action):
        action = int(self.np_random.integers(4)) if self.np_random.random() < 0.1 else action
        move, last = Rooms.moves[action], self.size - 1
        self.cell, self.time = tuple(np.clip(np.add(self.cell, move), 0, last).tolist()), self.time + 1
        at_goal, in_pit = self.cell == (last, last), self.cell in self.pits
        reward = 1.0 if at_goal else -1.0 if in_pit else -0.04
        return np.array(self.cell, np.float32), reward, at_goal or in_pit, self.time >= 100, {}


class Puck(gymnasium.Env):
    """A puck that five pushes move over a square: 10 in the far corner, and a cost of 0.01 for every other step."""

    pushes = np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]]) * 0.01

    def __init__(self):
        self.action_space, self.observation_space = Discrete(5), Box(-1.0, 1.0, (4,))

    def _observation(self):
        return np.concatenate([self.place, self.speed]).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.speed, self.time = self.np_random.uniform(-1, -0.5, 2), np.zeros(2), 0
        return self._observation(), {}

    def step(self, action):
        self.speed = np.clip(0.95 * self.speed + self.pushes[action], -0.1, 0.1)
        place = self.place + self.speed
        self.speed = np.where(np.abs(place) > 1, 0, self.speed)
        self.place, self.time = np.clip(place, -1, 1), self.time + 1
        in_corner = bool(np.linalg.norm(self.place - 0.8) < 0.15)
        return self._observation(), 10.0 if in_corner else -0.01, in_corner, self.time >= 200, {}


class Wind(gymnasium.ActionWrapper):
    """One action in five is replaced by a random one."""

    def action(self, action):
        return int(self.np_random.integers(self.action_space.n)) if self.np_random.random() < 0.2 else action


class Observed(gymnasium.ObservationWrapper):
    """Observations changed by a function, and the space that it leads to."""

    def __init__(self, env, function, space):
        super().__init__(env)
        self.function, self.observation_space = function, space

    def observation(self, observation):
        return np.asarray(self.function(observation), np.float32)


def noisy_tv(env, num_channels: int = 10):
    """Random numbers next to each observation."""
    space, random = env.observation_space, np.random.default_rng(0)
    low, high = (np.append(side, np.full(num_channels, end)) for side, end in ((space.low, 0.0), (space.high, 1.0)))
    wider = Box(low.astype(np.float32), high.astype(np.float32))
    return Observed(env, lambda observation: np.append(observation, random.random(num_channels)), wider)


class Torques(gymnasium.ActionWrapper):
    """Five torques of Pendulum."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = Discrete(5)

    def action(self, action):
        return np.array([action - 2.0], np.float32)


class Forces(gymnasium.ActionWrapper):
    """Five forces of the continuous MountainCar, whose cost is a tenth of their square; 100 at the goal."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = Discrete(5)

    def action(self, action):
        return np.array([(action - 2) / 2], np.float32)


class Actions(gymnasium.ActionWrapper):
    """A task with another number of actions: action i is i modulo the task's own number, or always action 1."""

    def __init__(self, env, num_actions):
        super().__init__(env)
        self.action_space = Discrete(num_actions)

    def action(self, action):
        return 1 if self.action_space.n == 1 else int(action) % self.env.action_space.n


def picture(env):
    """A cell of a grid as a picture of floats, 10 × 10 × 1, with the goal at half brightness."""

    def draw(observation):
        row, column, _ = observation.astype(int)
        pixels = np.zeros((10, 10, 1))
        pixels[-1, -1] = 0.5
        pixels[row, column] = 1
        return pixels

    return Observed(env, draw, Box(0.0, 1.0, (10, 10, 1)))


class ReachedReward(gymnasium.Wrapper):
    """Reward 1 where the task terminates, 0 before."""

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float(terminated), terminated, truncated, info


def costly_mountain_car():
    """The continuous MountainCar with five forces and 400 steps an episode; standing still is free."""
    return gymnasium.wrappers.TimeLimit(Forces(gymnasium.make("MountainCarContinuous-v0").unwrapped), 400)


def with_bounds(low: float, high: float, scale=1.0, shift: float = 0.0):
    """The grid with coordinates that are scaled and shifted, and declared to be between `low` and `high`."""
    return lambda: Observed(Rooms(), lambda observation: observation * scale + shift, Box(low, high, (3,)))


def normalised(name: str):
    """A registered environment with observations in [−1, 1]."""
    return lambda: gymnasium.wrappers.RescaleObservation(gymnasium.make(name), np.float32(-1), np.float32(1))


def minigrid_room(name: str):
    """A room of MiniGrid with the symbols of the player's view, 7 × 7 × 3, as a vector."""

    def make():
        try:
            from minigrid.wrappers import ImgObsWrapper
        except ImportError:
            raise SystemExit("minigrid is not installed; run: pip install minigrid") from None
        return gymnasium.wrappers.FlattenObservation(ImgObsWrapper(gymnasium.make(f"MiniGrid-{name}-v0")))

    return make


class MinAtar(gymnasium.Env):
    """A game of MinAtar: pictures of 10 × 10 cells with a channel for each kind of object, and six actions."""

    def __init__(self, game: str):
        try:
            import minatar
        except ImportError:
            raise SystemExit("MinAtar is not installed; run: pip install minatar") from None
        self.game = minatar.Environment(game)
        self.action_space = Discrete(self.game.num_actions())
        self.observation_space = Box(0, 1, tuple(self.game.state_shape()), bool)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.game.seed(seed)
        self.game.reset()
        return self.game.state(), {}

    def step(self, action):
        reward, is_over = self.game.act(action)
        return self.game.state(), float(reward), bool(is_over), False, {}


def minatar_game(name: str):
    """A game of MinAtar with at most 1,000 steps."""
    return lambda: gymnasium.wrappers.TimeLimit(MinAtar(name), 1_000)


def lunar_lander():
    """A lander with shaped rewards, and −100 for a crash."""
    try:
        return gymnasium.make("LunarLander-v3")
    except gymnasium.error.DependencyNotInstalled:
        raise SystemExit("Box2D is not installed; run: pip install 'gymnasium[box2d]'") from None


TASKS = {
    "loose_bounds": (with_bounds(-1000.0, 1000.0, scale=1 / 7), 20_000),
    "shifted_grid": (with_bounds(100.0, 107.0, shift=100.0), 20_000),
    "unbounded": (with_bounds(-np.inf, np.inf), 20_000),
    "wild_scales": (with_bounds(-np.inf, np.inf, scale=np.array([1000, 1, 1])), 20_000),
    "river_swim_6": (lambda: RiverSwim(6), 20_000),
    "river_swim_12": (lambda: RiverSwim(12), 20_000),
    "windy_grid": (lambda: Wind(Rooms()), 20_000),
    "noisy_tv": (lambda: noisy_tv(Rooms()), 20_000),
    "picture": (lambda: picture(Rooms(10)), 20_000),
    "maze_cost": (Maze, 20_000),
    "maze_cost_and_goal": (lambda: Maze(1.0, 10.0), 20_000),
    "maze_small_cost": (lambda: Maze(0.01, 1.0), 20_000),
    "maze_varying_cost": (VaryingCost, 20_000),
    "bumps": (Bumps, 20_000),
    "costly_mountain_car": (costly_mountain_car, 20_000),
    "pits": (Pits, 20_000),
    "puck": (Puck, 20_000),
    "lock": (Lock, 20_000),
    "distractors": (Distractors, 20_000),
    "deep_sea": (DeepSea, 20_000),
    "one_action": (lambda: Actions(gymnasium.make("CartPole-v1"), 1), 2_000),
    "fifty_actions": (lambda: Actions(Rooms(), 50), 20_000),
    "pendulum": (lambda: Torques(gymnasium.make("Pendulum-v1")), 20_000),
    "sparse_mountain_car": (lambda: ReachedReward(gymnasium.make("MountainCar-v0")), 20_000),
    "normalised_mountain_car": (normalised("MountainCar-v0"), 20_000),
    "FrozenLake-v1": (None, 20_000),
    "FrozenLake8x8-v1": (None, 30_000),
    "Taxi-v4": (None, 30_000),
    "Blackjack-v1": (None, 20_000),
    "DoorKey-5x5": (minigrid_room("DoorKey-5x5"), 30_000),
    "MultiRoom-N2-S4": (minigrid_room("MultiRoom-N2-S4"), 30_000),
    "FourRooms": (minigrid_room("FourRooms"), 30_000),
    "breakout": (minatar_game("breakout"), 20_000),
    "freeway": (minatar_game("freeway"), 20_000),
    "lunar_lander": (lunar_lander, 50_000),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--agents", nargs="+", default=["ensemble_dqn", "dqn"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--num-steps", type=int, help="steps of every task; each task's own if not given")
    parser.add_argument("--output", type=Path, help="a CSV file to which the evaluations of each run are added")
    arguments = parser.parse_args()
    print("| task | steps | agent | seed | last three evaluations | all evaluations | seconds |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for seed in arguments.seeds:
        for task in arguments.tasks:
            make, num_steps = TASKS[task]
            num_steps = arguments.num_steps or num_steps
            for agent in arguments.agents:
                began = time.time()
                curve = feelgood.train(agent, make or task, num_steps=num_steps, seeds=[seed], progress=False).curve
                last, mean, seconds = curve["return"].iloc[-3:].mean(), curve["return"].mean(), time.time() - began
                words = f"{last:.2f} | {mean:.2f} | {seconds:.0f}"
                print(f"| {task} | {num_steps} | {agent} | {seed} | {words} |", flush=True)
                if arguments.output:
                    is_new = not arguments.output.exists()
                    rows = curve.assign(environment=task)[["environment", "agent", "seed", "step", "return"]]
                    rows.to_csv(arguments.output, mode="a", header=is_new, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
