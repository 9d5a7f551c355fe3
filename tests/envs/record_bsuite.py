"""Records bsuite.json from bsuite 0.3.6, for tests that need no bsuite: `python tests/envs/record_bsuite.py`.

bsuite 0.3.5 gives the same file except for `score` in `solutions`: its threshold for a solved deep sea without wind is
0.8, which 0.3.6 corrects to 0.9.

bsuite's own analysis needs an old Matplotlib and an old pandas; two stand-ins below let it run with new ones.
"""

import json
from pathlib import Path

import matplotlib.style
import numpy as np
import pandas as pd

matplotlib.style.use = lambda name: None
pd.Series.append = lambda self, other: pd.concat([self, other])

from bsuite import sweep  # noqa: E402
from bsuite.environments import bandit, cartpole, catch, deep_sea, mountain_car  # noqa: E402
from bsuite.experiments.cartpole_swingup import cartpole_swingup  # noqa: E402
from bsuite.experiments.deep_sea import analysis as sea_analysis  # noqa: E402
from bsuite.experiments.deep_sea_stochastic import analysis as windy_analysis  # noqa: E402
from bsuite.experiments.summary_analysis import BSUITE_INFO  # noqa: E402
from bsuite.utils.wrappers import _logarithmic_logging  # noqa: E402

EXPERIMENTS = ["bandit", "cartpole", "cartpole_swingup", "catch", "deep_sea", "deep_sea_stochastic", "mountain_car"]
draws = np.random.RandomState(0)
plain = lambda values: [float(value) for value in values]


def windy_dives():
    """Episodes with wind: actions, columns after each step, rewards and whether the episode was bad."""
    for size, seed, share_right in ((4, 0, 0.9), (4, 1, 0.5), (6, 2, 0.9), (6, 3, 1.0), (9, 4, 0.95), (9, 5, 1.0)):
        env = deep_sea.DeepSea(size, deterministic=False, seed=seed, mapping_seed=42)
        for _ in range(4):
            env.reset()
            episode = {"size": size, "actions": [], "columns": [], "rewards": []}
            for row in range(size):
                right = env._action_mapping[row, env._column]
                action = int(right if draws.rand() < share_right else 1 - right)
                step = env.step(action)
                episode["actions"].append(action)
                episode["columns"].append(int(env._column))
                episode["rewards"].append(float(step.reward))
            yield {**episode, "bad": bool(env._bad_episode)}


def bandits():
    return [plain(bandit.SimpleBandit(mapping_seed=seed)._rewards) for seed in range(20)]


def catches():
    env = catch.Catch(seed=0)
    for _ in range(8):
        ones = lambda step: np.flatnonzero(step.observation).tolist()
        step = env.reset()
        episode = {"ball": int(env._ball_x), "actions": [], "observations": [ones(step)], "rewards": [], "ends": []}
        while not step.last():
            episode["actions"].append(int(draws.randint(3)))
            step = env.step(episode["actions"][-1])
            episode["observations"].append(ones(step))
            episode["rewards"].append(float(step.reward))
            episode["ends"].append(bool(step.last()))
        yield episode


def cars(policy, count, times):
    """Steps of mountain car at some times: position and velocity before, time after, action and outcome."""
    env = mountain_car.MountainCar(seed=count)
    step, time = env.reset(), 0
    while not step.last():
        before, action = [float(env._position), float(env._velocity)], int(policy(env))
        step, time = env.step(action), time + 1
        if time in times or step.last():
            yield {"before": before, "time": time, "action": action, **seen(step)}


def poles(env, policy, times, turn=0.0):
    """Steps of a cart with a pole: x, its speed, the angle and its speed before, and as in `cars`."""
    step, time = env.reset(), 0
    env._state = env._state._replace(theta=env._state.theta + turn)
    while not step.last():
        before, action = plain(env._state[:4]), int(policy(env))
        step, time = env.step(action), time + 1
        if time in times or step.last():
            yield {"before": before, "time": time, "action": action, **seen(step)}


def seen(step):
    return {"observation": plain(step.observation[0]), "reward": float(step.reward), "end": bool(step.last())}


def balance(env):
    """Holds the pole up and the cart in the middle."""
    x, x_dot, theta, theta_dot, _ = env._state
    theta = (theta + np.pi) % (2 * np.pi) - np.pi
    return 2 if 10 * theta + 2 * theta_dot + 0.3 * x + 0.6 * x_dot > 0 else 0


def random(env):
    return draws.randint(3)


def sweeps():
    return {
        name: {"settings": [sweep.SETTINGS[f"{name}/{i}"] for i in range(count)], "episodes": BSUITE_INFO[name].episode}
        for name in EXPERIMENTS
        for count in [sum(key.startswith(f"{name}/") for key in sweep.SWEEP)]
    }


def scores():
    """Random final rows of all ids of an experiment with bsuite's score of them, at the end and earlier."""
    for name in EXPERIMENTS:
        if name.startswith("deep_sea"):
            continue
        ids = [key for key in sweep.SWEEP if key.startswith(f"{name}/")]
        most = {"bandit": 1, "catch": 1, "cartpole": 1000, "cartpole_swingup": 700, "mountain_car": -100}[name]
        least = {"bandit": 0, "catch": -1, "cartpole": 0, "cartpole_swingup": -200, "mountain_car": -1300}[name]
        for episode in (BSUITE_INFO[name].episode, 7):
            returns = episode * draws.uniform(least, most, len(ids))
            best = draws.uniform(0, 1000 if name == "cartpole" else 200, len(ids)).round()
            rows = pd.DataFrame({"bsuite_id": ids, "episode": episode, "best_episode": best})
            rows["raw_return"] = rows["total_return"] = returns
            rows["total_regret"] = episode - returns  # of the bandit and catch
            if name == "cartpole_swingup":
                rows["height_threshold"] = [sweep.SETTINGS[key]["height_threshold"] for key in ids]
            score = float(BSUITE_INFO[name].score(rows))
            yield {"name": name, "episode": episode, "returns": plain(returns), "best": plain(best), "score": score}


def solutions():
    """Numbers of the good episodes of a run, and the episode at which bsuite takes it as solved, None for never.

    The thresholds are those of bsuite 0.3.6: 0.9, and 0.8 with wind from the 100th episode on.
    """
    in_words = lambda found: int(found["episode"]) if found["solved"] else None
    for windy, analysis in ((False, sea_analysis), (True, windy_analysis)):
        for size, first, share in ((10, 30, 0.5), (12, 90, 0.3), (10, 100, 0.12), (8, 250, 0.9), (10, 1000, 0.01)):
            good = [n for n in range(1, 1001) if n >= first and draws.rand() < share]
            logged = [n for n in range(1, 1001) if _logarithmic_logging(n)]
            bad = [n - sum(each <= n for each in good) for n in logged]
            log = pd.DataFrame({"episode": logged, "total_bad_episodes": bad, "size": size, "bsuite_id": "deep_sea/0"})
            solved = in_words(analysis.find_solution(log, **({} if windy else {"thresh": 0.9})).iloc[0])
            yield {"windy": windy, "size": size, "good": good, "solved": solved, "score": float(analysis.score(log))}


record = {
    "sweeps": sweeps(),
    "logged": [n for n in range(1, 10_001) if _logarithmic_logging(n)],
    "scores": list(scores()),
    "solutions": list(solutions()),
    "windy_dives": list(windy_dives()),
    "bandit": bandits(),
    "catch": list(catches()),
    "mountain_car": [
        *cars(lambda env: 2 if env._velocity >= 0 else 0, 0, range(1, 200, 9)),
        *cars(lambda env: 0, 1, range(1, 60, 7)),
    ],
    "cartpole": [
        *poles(cartpole.Cartpole(seed=0), random, range(1, 60, 5)),
        *poles(cartpole.Cartpole(seed=1), balance, range(1, 1000, 90)),
    ],
    "cartpole_swingup": [
        {"id": i, **step}
        for i in (0, 7, 19)
        for policy, turn in ((random, 0.0), (lambda env: 2, 0.0), (balance, np.pi))
        for env in [cartpole_swingup.CartpoleSwingup(seed=i, **sweep.SETTINGS[f"cartpole_swingup/{i}"])]
        for step in poles(env, policy, range(1, 1000, 150), turn)
    ],
}
Path(__file__).with_name("bsuite.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
