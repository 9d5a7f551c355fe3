"""Increase of values by the feel-good term without rewards, by its weight λ.

python benchmarks/optimism.py

Plays Venture as draws from the prior do: each environment repeats mostly one action. FG-ULMCDQN is then trained on
these frames, at half the resolution, without further play. There are no rewards, so all values should be 0; the term
λ·max_a Q(s₁, a) lifts them. If states look alike, an action that is taken with probability p is lifted until the
temporal differences balance the term: p·(1 − discountⁿ)·Q = λ. Actions that were rarely tried are lifted most. This is
how the term explores. Smaller rewards have no effect until the action has been tried.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from rare import DISCOUNT, STRETCH, train

from feelgood import agents
from feelgood.envs.external import atari
from feelgood.replay.frames import frame_replay
from feelgood.training.group import Group

NUM_ENVS, N_STEP = 20, 3


def play(task, num_steps, own_action, seed):
    """A replay of play in which an environment takes its own action with that probability, any other otherwise."""
    height, width = task.frame_shape
    ring = frame_replay(
        num_steps + 1,
        NUM_ENVS,
        (height // 2, width // 2),
        task.frame_dtype,
        num_actions=task.num_actions,
        stack=task.stack,
        n_step=N_STEP,
    )
    add, state = jax.jit(ring.add, donate_argnums=0), ring.init()
    rng, group = np.random.default_rng(seed), Group(task, NUM_ENVS)
    own = rng.integers(0, task.num_actions, NUM_ENVS)
    group.begin(seed, np.zeros(NUM_ENVS, int))
    earned, taken = 0.0, np.zeros(task.num_actions)
    for i in range(num_steps + 1):
        arrival = group.receive()
        earned += np.abs(arrival.reward).sum() if i else 0
        state = add(state, arrival._replace(frame=arrival.frame[:, ::2, ::2]))
        any_action = rng.integers(0, task.num_actions, NUM_ENVS)
        actions = np.where(rng.random(NUM_ENVS) < own_action, own, any_action)
        np.add.at(taken, actions, 1)
        group.send(jnp.asarray(actions))
    group.receive()
    group.close()
    return ring, state, taken / taken.sum(), earned


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="venture")
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 3e-4, 1e-3], help="values of λ")
    parser.add_argument("--num-updates", type=int, default=10_000)
    parser.add_argument("--num-steps", type=int, default=3000, help="that each environment plays")
    parser.add_argument("--own-action", type=float, default=0.7, help="how often an environment takes its own action")
    parser.add_argument("--inverse-temperature", type=float, default=1e16, help="β of the sampler; next to no noise")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    task = atari(options.game, pixel_scale=1 / 255)
    ring, played, taken, earned = play(task, options.num_steps, options.own_action, options.seed)
    print(f"{options.game}: {earned:.0f} earned; actions are taken with probabilities", np.round(taken, 3), flush=True)
    spaces = agents.Spaces((task.stack, *played.frame.shape[2:]), task.num_actions, task.decode)
    hyper = agents.atari_hyper("fg_ulmcdqn", 1 / 255)
    for weight in options.weights:
        weighted = {**hyper, "feel_good_weight": weight, "inverse_temperature": options.inverse_temperature}
        agent = agents.make_agent("fg_ulmcdqn", spaces, weighted, agents.Options(double=True))
        advance = jax.jit(lambda key, state, played, agent=agent: train(agent, ring, key, state, played))
        state = agent.init(jax.random.key(options.seed))
        for i in range(options.num_updates // STRETCH):
            state, potential, ahead = advance(jax.random.key(i), state, played)
            if (i + 1) * STRETCH % 500 == 0:
                state = agent.sync(state)
            if (i + 1) * STRETCH % 2500 == 0:
                action = int(ahead[0, 0].argmax())
                bound = weight / taken[action] / (1 - DISCOUNT**N_STEP)
                print(f"λ = {weight:g}, {(i + 1) * STRETCH:6d} updates:", end=" ")
                print(f"best value {ahead.max(-1).mean():.3f}, mean {ahead.mean():.3f},", end=" ")
                print(f"potential {potential:.1e};", end=" ")
                print(f"action {action} is lifted towards {bound:.2f}", flush=True)


if __name__ == "__main__":
    main()
