"""Learning of rare rewards by temporal differences, and the share of dead features, by setting.

python benchmarks/rare.py form=released form=corrected form=corrected,pixel_scale=0.0625,bias_factor=0.03

Plays Venture, each action held for up to 24 steps, and trains FG-ULMCDQN on these frames without further play: first
without rewards, as at the start of a run, then with 1 for entering a room, which happens in one of 2,000 steps. The
values of the three steps before a reward should come to differ from those of other steps. Until there are rewards,
different states should have different best actions, or nothing explores.

A setting is `name=value` with commas between: hyper-parameters of the agent, or form, init and pixel_scale. All
others are as in the Atari study on such pixels.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from features import HALL, SPAN, STACK, dead

from feelgood import agents
from feelgood.envs.external import atari
from feelgood.replay.frames import frame_replay
from feelgood.training.group import Group

STRETCH, BATCH_SIZE, DISCOUNT, TARGET_PERIOD = 50, 32, 0.99, 500


def play(task, num_steps, num_envs):
    """The arrivals at each time, with a reward of 1 for entering a room."""
    rng, group = np.random.default_rng(0), Group(task, num_envs)
    group.begin(0, np.zeros(num_envs, int))
    action, left = rng.integers(0, task.num_actions, num_envs), rng.integers(0, 24, num_envs)
    in_room, arrivals = np.zeros(num_envs, bool), []
    for _ in range(num_steps + 1):
        arrival = jax.tree.map(np.array, group.receive())
        before, in_room = in_room, arrival.frame.mean((1, 2)) < HALL
        enters = in_room & ~before & ~arrival.is_first
        arrivals.append(arrival._replace(reward=enters.astype(np.float32)))
        any_action = rng.integers(0, task.num_actions, num_envs)
        action = np.where(left == 0, any_action, action)
        left = np.where(left == 0, rng.integers(0, 24, num_envs), left - 1)
        group.send(jnp.asarray(action))
    group.receive()
    group.close()
    return arrivals


def stacks(arrivals):
    """Observations just before a room is entered, and 600 others."""
    frames, rewards = (np.array([getattr(one, field) for one in arrivals]) for field in ("frame", "reward"))
    earned = sum(rewards[ahead : len(rewards) - SPAN + ahead] for ahead in range(1, SPAN + 1))
    before, others = (np.argwhere(where) for where in (earned > 0, earned == 0))
    before, others = before[before[:, 0] > STACK], others[others[:, 0] > STACK]
    others = np.random.default_rng(1).permutation(others)[:600]
    return (
        jnp.stack([frames[time - back, lane] for back in reversed(range(STACK))], 1)
        for time, lane in (before.T, others.T)
    )


def read(setting):
    """The settings in "form=corrected,bias_factor=0.03", with numbers parsed."""
    pairs = (pair.split("=") for pair in setting.split(","))
    return {name: value if name in ("form", "init") else float(value) for name, value in pairs}


def build(setting, task):
    """The agent, and the decoder of stored pixels."""
    setting = {"form": "released", "init": "unbiased", "pixel_scale": 1 / 255, **read(setting)}
    form, init, scale = (setting.pop(name) for name in ("form", "init", "pixel_scale"))
    decode = lambda pixels: pixels.astype(jnp.float32) * scale
    hyper = {**agents.atari_hyper("fg_ulmcdqn", scale, form), **setting}
    spaces = agents.Spaces((task.stack, *task.frame_shape), task.num_actions, decode)
    return agents.make_agent("fg_ulmcdqn", spaces, hyper, agents.Options(double=True, form=form, init=init)), decode


def train(agent, ring, key, state, played):
    """STRETCH updates: the agent, the mean potential, and the target network's values of the successors."""
    batches = ring.sample(key, played, STRETCH * BATCH_SIZE, DISCOUNT)
    batches = jax.tree.map(lambda x: x.reshape(STRETCH, BATCH_SIZE, *x.shape[1:]), batches)
    keys = jax.random.split(key, STRETCH)
    ahead = jax.vmap(agent.look_ahead, (0, None, 0))(keys, state, batches)
    update = lambda state, one: agent.update(one[0], state, one[1], 1.0, one[2])
    state, info = jax.lax.scan(update, state, (keys, batches, ahead))
    return state, jnp.mean(info.potential), ahead


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+")
    parser.add_argument("--num-updates", type=int, nargs=2, default=[10_000, 15_000], help="without and with rewards")
    parser.add_argument("--every", type=int, default=2500, help="updates between two lines")
    parser.add_argument("--num-steps", type=int, default=3000, help="that each environment plays")
    parser.add_argument("--num-envs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the network and its training")
    options = parser.parse_args()
    task = atari("venture")
    arrivals = play(task, options.num_steps, options.num_envs)
    ring = frame_replay(
        len(arrivals),
        options.num_envs,
        task.frame_shape,
        task.frame_dtype,
        num_actions=task.num_actions,
        stack=task.stack,
        n_step=SPAN,
    )
    add, rewarded = jax.jit(ring.add, donate_argnums=0), ring.init()
    for arrival in arrivals:
        rewarded = add(rewarded, arrival)
    bare = rewarded._replace(reward=jnp.zeros_like(rewarded.reward))
    before, others = stacks(arrivals)
    print(f"{int(rewarded.reward.sum())} rooms are entered in {rewarded.reward.size:,} steps", flush=True)
    for setting in options.settings:
        agent, decode = build(setting, task)
        state = agent.init(jax.random.key(options.seed))
        advance = jax.jit(lambda key, state, played, agent=agent: train(agent, ring, key, state, played))
        values = jax.jit(lambda params, seen, decode=decode: params(decode(seen)))
        for i in range(1, sum(options.num_updates) // STRETCH + 1):
            done = i * STRETCH
            played = bare if done <= options.num_updates[0] else rewarded
            state, potential, _ = advance(jax.random.key(i - 1), state, played)
            if done % TARGET_PERIOD == 0:
                state = agent.sync(state)
            if done % options.every == 0:
                params = state.sampler.params
                here, there = values(params, before).max(-1), values(params, others)
                taken = jnp.bincount(there.argmax(-1), length=task.num_actions) / len(there)
                there = there.max(-1)
                shown = ", ".join(f"{share:.0%}" for share in dead(params, decode(others)))
                print(f"{setting}: {done:6d} updates, {'no ' if played is bare else ''}rewards:", end=" ")
                print(f"value before a room {here.mean():.3f},", end=" ")
                print(f"elsewhere {there.mean():.3f} ± {there.std():.3f},", end=" ")
                print(f"{int((taken > 0).sum())} actions are best somewhere, one in {taken.max():.0%},", end=" ")
                print(f"potential {potential:.1e}, dead {shown}", flush=True)


if __name__ == "__main__":
    main()
