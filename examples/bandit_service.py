"""A bandit in a web service: pick an arm, log its probability, learn the reward when it comes.

    python examples/bandit_service.py

The loop below stands for requests. Arm 2 is added to the shop half-way. At the end the log answers a question about
another policy: how much would always showing arm 0 have earned?
"""

import numpy as np

from feelgood import bandits


def main(num_requests: int = 300, path: str = "policy.npz") -> dict[str, float]:
    rng = np.random.default_rng(0)
    taste = np.array([[1.0, 0.0], [-1.0, 0.5], [0.5, 2.0]])  # unknown to the policy

    # The online loop: ten lines. Estimates from the log need probabilities that stay away from zero, hence ε = 0.2.
    policy = bandits.Policy("epsilon_greedy", num_arms=3, num_features=2, settings={"epsilon": 0.2}, num_draws=500)
    waiting, log = [], []
    for i in range(num_requests):
        visitor = rng.normal(size=2)
        arm, probabilities = policy.act(visitor, available=[True, True, i >= num_requests // 2])
        waiting.append((visitor, arm, probabilities[arm]))
        if len(waiting) > 5:  # rewards come five requests late
            seen, played, chance = waiting.pop(0)
            reward = float(taste[played] @ seen + 0.1 * rng.normal())
            policy.learn(seen, played, reward)
            log.append((reward, played, chance))
    policy.save(path)  # and bandits.Policy.load(path) goes on

    rewards, arms, chances = map(np.array, zip(*log, strict=True))
    always_first = np.tile([1.0, 0.0, 0.0], (len(rewards), 1))
    estimate = bandits.snips(rewards, arms, chances, always_first)
    return {"earned": float(rewards[-100:].mean()), "always arm 0": estimate.value, "±": estimate.standard_error}


if __name__ == "__main__":
    print(main())
