"""The default agent on a Gymnasium environment of your own; the policy is saved, loaded and used."""

import gymnasium

import feelgood

LENGTH = 4  # a corridor to leave as fast as possible


class Corridor(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(LENGTH + 1), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.place = 0
        return self.place, {}

    def step(self, action):
        self.place = min(max(self.place + (1 if action == 1 else -1), 0), LENGTH)
        return self.place, -1.0, self.place == LENGTH, False, {}


def main(agent: str = "ensemble_dqn", num_steps: int = 1000, folder: str = "runs/corridor"):
    gymnasium.register("Corridor-v0", Corridor, max_episode_steps=12)
    feelgood.train(agent, "Corridor-v0", num_steps=num_steps).save(folder)
    policy = feelgood.load_policy(folder)
    print("it goes", ["left", "right"][int(policy(0))], "and earns", policy.evaluate(5))
    return policy


if __name__ == "__main__":
    main()
