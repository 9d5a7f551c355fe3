"""Share of dead features, and learning of rare events, by update rule: a regression on a game's frames.

python benchmarks/features.py                     # Freeway: the reward of the next three steps, in one frame of thirty
python benchmarks/features.py --game venture      # whether one of the next three steps enters a room, in one of 1000

Plays, and fits the events with the Nature network and the sampler of FG-ULMCDQN at its Atari defaults on scaled pixels,
by ε of the adaptive bias; with its moving averages corrected; with these and one momentum instead of two, the corrected
form of the agent; and with Adam at the same rate, for comparison. A network that predicts only the mean has half the
variance as loss.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

from feelgood import samplers
from feelgood.agents import atari_hyper
from feelgood.choices import INITS
from feelgood.envs.external import atari
from feelgood.networks import nature_cnn, partition, with_init
from feelgood.pairs import read_numbers

GO_UP, NUM_ENVS, STACK, SPAN = 1, 8, 4, 3
RULES = ("released", "two momenta", "corrected", "adam")
HALL = 13.3  # mean brightness of Venture's pictures: above it the hall, below it a room


def play(game, num_steps, seed):
    """Frames (steps, environments, 84, 84) and the events of each step.

    Freeway: clipped rewards of play that goes up six times in seven. Venture: entries into a room, in play that holds
    each action for up to 24 steps.
    """
    task = atari(game)
    env, rng = task.make(NUM_ENVS, True), np.random.default_rng(seed)
    env.reset(seed=seed)
    frames, rewards, action, left = [], [], np.zeros(NUM_ENVS, int), np.zeros(NUM_ENVS, int)
    for _ in range(num_steps):
        any_action = rng.integers(task.num_actions, size=NUM_ENVS)
        if game == "freeway":
            action = np.where(rng.random(NUM_ENVS) < 6 / 7, GO_UP, any_action)
        else:
            action = np.where(left == 0, any_action, action)
            left = np.where(left == 0, rng.integers(24, size=NUM_ENVS), left - 1)
        seen, reward, *_ = env.step(action)
        frames.append(seen.reshape(NUM_ENVS, 84, 84).copy())
        rewards.append(np.sign(reward))
    env.close()
    frames = np.array(frames)
    if game == "freeway":
        return frames, np.array(rewards)
    in_room = frames.mean((2, 3)) < HALL
    return frames, np.concatenate([np.zeros((1, NUM_ENVS)), in_room[1:] & ~in_room[:-1]])


def examples(time, lane, frames, rewards):
    """Stacks, and the reward of the steps that follow."""
    stacks = jnp.stack([frames[time - back, lane] for back in reversed(range(STACK))], 1)
    return stacks, sum(rewards[time + ahead, lane] for ahead in range(1, SPAN + 1))


def places(rng, num_steps, batch_size):
    """Times and environments of random examples."""
    return rng.integers(STACK, num_steps - SPAN, batch_size), rng.integers(NUM_ENVS, size=batch_size)


def all_events(rng, frames, rewards):
    """Examples of every event and of 512 other frames, and weights that restore their shares in the play."""
    ahead = np.asarray(sum(rewards[STACK + i : len(rewards) - SPAN + i] for i in range(1, SPAN + 1)))
    events, others = np.argwhere(ahead > 0), np.argwhere(ahead == 0)
    time, lane = np.concatenate([events, rng.permutation(others)[:512]]).T
    weights = np.repeat([1, len(others) / 512], [len(events), 512])
    return (*examples(time + STACK, lane, frames, rewards), weights / weights.mean())


def dead(model, pixels):
    """The share of filters of each convolution that are 0 everywhere."""
    x, shares = pixels.transpose(0, 2, 3, 1), []
    for layer in model.trunk.layers:
        x = jax.nn.relu(layer(x))
        shares.append(float(jnp.mean(x.max((0, 1, 2)) == 0)))
    return shares


def fit(sampler, data, options, seed):
    """Trains; returns the test loss, the best constant's loss, the median of √v over weights and the dead filters."""
    model = nature_cnn(jax.random.key(seed), (STACK, 84, 84), 1)
    params, frozen, apply = partition(with_init(model, options.init))
    rng, other = np.random.default_rng(seed), np.random.default_rng(99)
    if options.game == "venture":
        test = all_events(other, *data)
    else:
        test = (*examples(*places(other, len(data[0]), 512), *data), np.ones(512))

    def scaled(stacks):
        return jnp.asarray(stacks, jnp.float32) * options.pixel_scale

    def loss(params, stacks, rewards, weights=1.0):
        return jnp.mean(weights * (apply(params, frozen, scaled(stacks))[:, 0] - rewards) ** 2) / 2

    @jax.jit
    def step(key, state, time, lane, frames, rewards):
        batch = examples(time, lane, frames, rewards)
        return sampler.step(key, state, lambda params: loss(params, *batch))[0]

    state, measure = sampler.init(params), jax.jit(loss)
    for i in range(options.num_updates):
        state = step(jax.random.key(i), state, *places(rng, len(data[0]), 32), *data)
    _, rewards, weights = test
    constant = np.mean(weights * (rewards - np.mean(weights * rewards)) ** 2) / 2
    squares = optax.tree.get(state, "second_moment", optax.tree.get(state, "nu"))
    root = np.median(np.concatenate([np.sqrt(leaf).ravel() for leaf in jax.tree.leaves(squares)]))
    return float(measure(state.params, *test)), constant, root, dead(state.params, scaled(test[0]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", choices=("freeway", "venture"), default="freeway")
    parser.add_argument("--num-updates", type=int, default=3000)
    parser.add_argument("--num-steps", type=int, default=0, help="steps in each environment; 0: 2000, Venture 5000")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--rules", choices=RULES, nargs="+", default=RULES)
    parser.add_argument(
        "--epsilons", type=float, nargs="+", default=[1e-8, 1.5e-4], help="values of ε in the released form"
    )
    parser.add_argument(
        "--corrected-epsilons", type=float, nargs="+", default=[1e-8], help="values of ε in the corrected form"
    )
    parser.add_argument("--inverse-temperature", type=float, default=1e16, help="β of the sampler; next to no noise")
    parser.add_argument(
        "--hyper", nargs="*", default=[], help="other hyper-parameters of the sampler, as in friction=100 bias_factor=1"
    )
    parser.add_argument("--pixel-scale", type=float, default=1 / 255, help="factor of the pixels")
    parser.add_argument("--init", choices=INITS, default="torch", help="weights that networks start with")
    options = parser.parse_args()
    hyper = {**atari_hyper("fg_ulmcdqn", 1 / 255), **read_numbers("hyper", options.hyper)}
    frames, rewards = play(options.game, options.num_steps or {"freeway": 2000, "venture": 5000}[options.game], 0)
    data = jnp.asarray(frames), jnp.asarray(rewards, jnp.float32)
    rate = hyper["step_size"] * hyper["bias_factor"] / hyper["friction"]
    underdamped = lambda epsilon, corrected=True, first_decay=0.9: samplers.adaptive_underdamped(
        hyper["step_size"],
        hyper["friction"],
        options.inverse_temperature,
        bias_factor=hyper["bias_factor"],
        second_decay=0.999,
        epsilon=epsilon,
        epsilon_in_root=False,
        corrected=corrected,
        first_decay=first_decay,
        noise_in="params",
    )
    rules = {}
    if "released" in options.rules:
        rules |= {f"FG-ULMCDQN's, ε = {epsilon:g}": underdamped(epsilon, False) for epsilon in options.epsilons}
    if "two momenta" in options.rules:
        rules["corrected averages, ε = 1e-08"] = underdamped(1e-8)
    if "corrected" in options.rules:
        rules |= {
            f"corrected form, ε = {epsilon:g}": underdamped(epsilon, first_decay=0.0)
            for epsilon in options.corrected_epsilons
        }
    if "adam" in options.rules:
        rules[f"Adam at rate {rate:g}, ε = 1e-08"] = samplers.from_optax(optax.adam(rate))
    for name, sampler in rules.items():
        for seed in options.seeds:
            loss, constant, root, shares = fit(sampler, data, options, seed)
            shown = ", ".join(f"{share:.0%}" for share in shares)
            print(f"{name:28s} seed {seed}: loss {loss:.6f} (of a constant {constant:.6f}), ", end="")
            print(f"√v {root:.1e}, dead {shown}", flush=True)


if __name__ == "__main__":
    main()
