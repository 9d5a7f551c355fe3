"""The default agent on an environment of your own, written as pure functions: all seeds train at once."""

import jax
import jax.numpy as jnp
import numpy as np

import feelgood
from feelgood.envs import Environment, Spec, Step

LENGTH, LIMIT = 4, 12  # a corridor to leave as fast as possible, and the most steps of an episode


def reset(key):
    return (jnp.int32(0), jnp.int32(0)), jax.nn.one_hot(0, LENGTH + 1)


def step(key, state, action):
    place, time = state
    place, time = jnp.clip(place + jnp.where(action == 1, 1, -1), 0, LENGTH), time + 1
    out = place == LENGTH
    return (place, time), Step(jax.nn.one_hot(place, LENGTH + 1), jnp.float32(-1), out, ~out & (time == LIMIT))


def main(agent: str = "ensemble_dqn", num_steps: int = 400, seeds=(0, 1)):
    corridor = Environment(reset, step, Spec((LENGTH + 1,), np.dtype(np.float32), 2, LIMIT, name="corridor"))
    result = feelgood.train(agent, corridor, num_steps=num_steps, seeds=seeds, evaluation_period=100)
    print(result.curve[["seed", "step", "return"]].to_string(index=False))
    return result


if __name__ == "__main__":
    main()
