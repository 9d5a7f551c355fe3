"""Dependence of the actions of draws from the prior on the observation, by the scale of the pixels.

python benchmarks/prior.py --game gravitar
python benchmarks/prior.py --game gravitar --inverse-temperatures 1e6 1e8 1e10     # the effect of noise

Each environment acts greedily on its own untrained Nature network. If pixels are small, the biases of the network
decide and a draw always takes the same action; with `--init unbiased` the scale makes no difference.

With inverse temperatures, nothing is played. The script prints the share of frames of random play on which an untrained
network changes its action after the noise of a thousand updates, without gradients.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.choices import INITS
from feelgood.envs.external import atari
from feelgood.networks import nature_cnn, partition, with_init
from feelgood.training.evaluation import stacked


def networks(num_envs, task, scale, init, seed):
    """A network for each environment, as a function of all their observations that gives greedy actions."""

    def draw(key):
        model = nature_cnn(key, task.observation_shape, task.num_actions)
        return partition(with_init(model, init))

    _, frozen, apply = draw(jax.random.key(0))
    params = jax.lax.map(lambda key: draw(key)[0], jax.random.split(jax.random.key(seed), num_envs))
    one = lambda params, seen: jnp.argmax(apply(params, frozen, seen[None].astype(jnp.float32) * scale)[0])
    return jax.jit(lambda stacks: jax.vmap(one)(params, stacks))


def play(task, policy, num_envs, num_steps, seed):
    """Actions (steps, environments), and the sum of positive rewards of each environment."""
    env = task.make(num_envs, True)
    stacks, is_first = None, np.ones(num_envs, bool)
    frames, actions, rewards = env.reset(seed=seed)[0], [], np.zeros(num_envs)
    for _ in range(num_steps):
        stacks = stacked(stacks, frames.reshape(num_envs, *task.frame_shape), is_first, task.stack)
        actions.append(np.asarray(policy(stacks), np.int64))
        frames, reward, terminated, truncated, _ = env.step(actions[-1])
        rewards += np.maximum(reward, 0)
        is_first = terminated | truncated
    env.close()
    return np.array(actions), rewards


def moved_by_noise(task, stacks, scale, init, spread, num_networks, seed):
    """Share of observations on which a fresh network prefers another action after normals of such a spread."""

    def share(key):
        key_model, key_noise = jax.random.split(key)
        model = nature_cnn(key_model, task.observation_shape, task.num_actions)
        params, frozen, apply = partition(with_init(model, init))
        leaves, structure = jax.tree.flatten(params)
        keys = jax.random.split(key_noise, len(leaves))
        moved = [leaf + spread * jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        best = lambda params: jnp.argmax(apply(params, frozen, stacks.astype(jnp.float32) * scale), -1)
        return jnp.mean(best(params) != best(jax.tree.unflatten(structure, moved)))

    return float(jnp.mean(jax.lax.map(share, jax.random.split(jax.random.key(seed), num_networks))))


def seen_in_random_play(task, num_steps, seed, num_envs=8, every=10):
    """Observations of random play, thinned in each environment."""
    rng, kept = np.random.default_rng(seed), []

    def watch(stacks):
        kept.append(stacks)
        return rng.integers(0, task.num_actions, num_envs)

    play(task, watch, num_envs, num_steps, seed)
    return np.concatenate(kept[every - 1 :: every])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="gravitar")
    parser.add_argument("--num-envs", type=int, default=100)
    parser.add_argument("--num-steps", type=int, default=250)
    parser.add_argument("--scales", type=float, nargs="+", default=[1 / 255, 1 / 64, 1 / 16, 1 / 4, 1.0])
    parser.add_argument("--init", choices=INITS, default="torch")
    parser.add_argument("--inverse-temperatures", type=float, nargs="+", default=[])
    parser.add_argument("--step-size", type=float, default=1e-2)
    parser.add_argument("--friction", type=float, default=10.0)
    parser.add_argument("--num-networks", type=int, default=20, help="that noise is added to")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    task, rng = atari(options.game), np.random.default_rng(options.seed)
    if options.inverse_temperatures:
        stacks = seen_in_random_play(task, options.num_steps, options.seed)
        for scale in options.scales:
            shares = {}
            for beta in options.inverse_temperatures:
                spread = np.sqrt(1000 * 2 * options.friction * options.step_size / beta)
                facts = (scale, options.init, spread, options.num_networks, options.seed)
                shares[beta] = moved_by_noise(task, stacks, *facts)
            shown = ", ".join(f"{share:.1%} at {beta:.0e}" for beta, share in shares.items())
            print(f"{options.game}, pixels × {scale:.4g}: another action after noise on {shown}", flush=True)
        return
    policies = {"random play": lambda stacks: rng.integers(0, task.num_actions, len(stacks))}
    for scale in options.scales:
        policies[f"pixels × {scale:.4g}"] = networks(options.num_envs, task, scale, options.init, options.seed)
    for name, policy in policies.items():
        actions, rewards = play(task, policy, options.num_envs, options.num_steps, options.seed)
        used = np.mean([len(set(lane)) for lane in actions.T])
        other = np.mean(actions[1:] != actions[:-1])
        print(f"{options.game}, {name:16s}: {used:4.1f} of {task.num_actions} actions used,", end=" ")
        print(
            f"another than before in {other:.1%} of steps, rewards in {np.mean(rewards > 0):.0%} of environments,",
            end=" ",
        )
        print(f"{rewards.sum():,.0f} in all", flush=True)


if __name__ == "__main__":
    main()
