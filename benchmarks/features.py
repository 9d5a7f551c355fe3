"""How many features survive on frames of Freeway, by λ of the adaptive bias: a regression on rare rewards.

python benchmarks/features.py

Plays Freeway, mostly going up, and fits the reward of the next three steps with the Nature network and the sampler of
FG-ULMCDQN at its Atari defaults on scaled pixels; and with Adam at the same rate, for comparison. About one frame in
thirty has such a reward: a network that tells nothing but its mean has half its variance as loss.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

from feelgood import samplers
from feelgood.agents import atari_hyper
from feelgood.envs.external import atari
from feelgood.networks import nature_cnn, partition, zero_biases

GO_UP, NUM_ENVS, STACK, SPAN = 1, 8, 4, 3


def play(num_steps, seed):
    """Frames (steps, environments, 84, 84) and clipped rewards of play that goes up six times in seven."""
    task = atari("freeway")
    env, rng = task.make(NUM_ENVS, True), np.random.default_rng(seed)
    env.reset(seed=seed)
    frames, rewards = [], []
    for _ in range(num_steps):
        any_action = rng.integers(task.num_actions, size=NUM_ENVS)
        seen, reward, *_ = env.step(np.where(rng.random(NUM_ENVS) < 6 / 7, GO_UP, any_action))
        frames.append(seen.reshape(NUM_ENVS, 84, 84).copy())
        rewards.append(np.sign(reward))
    env.close()
    return np.array(frames), np.array(rewards)


def minibatch(rng, frames, rewards, batch_size):
    """Stacks, and the reward of the steps that follow."""
    time, lane = rng.integers(STACK, len(frames) - SPAN, batch_size), rng.integers(NUM_ENVS, size=batch_size)
    stacks = np.stack([frames[time - back, lane] for back in reversed(range(STACK))], 1)
    return stacks, sum(rewards[time + ahead, lane] for ahead in range(1, SPAN + 1)).astype(np.float32)


def dead(model, pixels):
    """The share of filters of each convolution that are 0 everywhere."""
    x, shares = pixels.transpose(0, 2, 3, 1), []
    for layer in model.trunk.layers:
        x = jax.nn.relu(layer(x))
        shares.append(float(jnp.mean(x.max((0, 1, 2)) == 0)))
    return shares


def fit(sampler, data, options, seed):
    """Loss on a test batch, that of the best constant, and the dead filters, after training."""
    model = nature_cnn(jax.random.key(seed), (STACK, 84, 84), 1)
    params, frozen, apply = partition(zero_biases(model) if options.biases == "zero" else model)
    rng, test = np.random.default_rng(seed), minibatch(np.random.default_rng(99), *data, 512)

    def scaled(stacks):
        return jnp.asarray(stacks, jnp.float32) * options.pixel_scale

    def loss(params, stacks, rewards):
        return jnp.mean((apply(params, frozen, scaled(stacks))[:, 0] - rewards) ** 2) / 2

    @jax.jit
    def step(key, state, stacks, rewards):
        return sampler.step(key, state, lambda params: loss(params, stacks, rewards))[0]

    state, measure = sampler.init(params), jax.jit(loss)
    for i in range(options.num_updates):
        state = step(jax.random.key(i), state, *minibatch(rng, *data, 32))
    return float(measure(state.params, *test)), float(test[1].var() / 2), dead(state.params, scaled(test[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-updates", type=int, default=3000)
    parser.add_argument("--num-steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1e-8, 1.5e-4], help="values of λ")
    parser.add_argument("--inverse-temperature", type=float, default=1e16, help="β of the sampler; next to no noise")
    parser.add_argument("--pixel-scale", type=float, default=1 / 255, help="what pixels are multiplied with")
    parser.add_argument("--biases", choices=("torch", "zero"), default="torch", help="of the fresh network")
    options = parser.parse_args()
    hyper, data = atari_hyper("fg_ulmcdqn", 1 / 255), play(options.num_steps, 0)
    rate = hyper["step_size"] * hyper["bias_factor"] / hyper["friction"]
    underdamped = lambda epsilon: samplers.adaptive_underdamped(
        hyper["step_size"],
        hyper["friction"],
        options.inverse_temperature,
        bias_factor=hyper["bias_factor"],
        second_decay=0.999,
        epsilon=epsilon,
        epsilon_in_root=False,
        noise_in="params",
    )
    rules = {
        **{f"FG-ULMCDQN's, λ = {epsilon:g}": underdamped(epsilon) for epsilon in options.epsilons},
        f"Adam at rate {rate:g}, ε = 1e-8": samplers.from_optax(optax.adam(rate)),
    }
    for name, sampler in rules.items():
        for seed in options.seeds:
            loss, constant, shares = fit(sampler, data, options, seed)
            told = ", ".join(f"{share:.0%}" for share in shares)
            print(f"{name:28s} seed {seed}: loss {loss:.5f} (of a constant {constant:.5f}), dead {told}", flush=True)


if __name__ == "__main__":
    main()
