"""DeepSea by the tables of the default agent, written a second time with updates that touch the minibatch alone.

Priors, horizons, action gap, dithered episodes, minibatches, target copies and learning rates are those of
`ensemble_dqn`; the rule for a solved size is bsuite's, checked every 25 episodes. The agent itself updates every entry
of its tables, so this script is faster on a CPU: N = 50 takes half a minute on one core, N = 100 a few minutes. The
action gap here is taken from the target table; the agent takes it from the current table.

    python benchmarks/tabular.py --size 100 --seed 1
"""

import argparse

import jax
import jax.numpy as jnp

from feelgood import agents
from feelgood.agents.exploration import one_draw_an_episode
from feelgood.envs.deep_sea import deep_sea_mapping

AGENT = agents.ZOO["ensemble_dqn"]
CONFIG = AGENT.functional_config(is_one_hot=True)
NUM_MEMBERS, NUM_RECENT, DISCOUNT, PERIOD = 20, 1_000, 0.99, 50


def learn(values, target, priors, visits, batch, discounts, rates):
    """Moves the values of a minibatch towards their targets; a pair that occurs twice moves as if it occurred once.

    `rates` is a function from visits of a pair to its learning rate.
    """
    cell, action, reward, next_cell, is_last = batch
    now, then = (target + priors)[:, cell], (target + priors)[:, next_cell].max(-1) * ~is_last
    best, taken = now.max(-1), jnp.take_along_axis(now, action[None, :, None], -1)[..., 0]
    size = jnp.where(best < 0, jnp.minimum(-best, 1.0), best)
    gap = 0.9 * jnp.minimum(best - taken, AGENT.hyper["action_gap"] * size)
    errors = reward + discounts[:, None] * then - gap - (values + priors)[:, cell, action]
    counts = jnp.zeros(values.shape[1:]).at[cell, action].add(1.0)[cell, action]
    visits = visits.at[cell, action].add(1 / counts)
    return values.at[:, cell, action].add(rates(jnp.round(visits[cell, action])) * errors / counts), visits


def make_episode(options):
    """`(state, key) -> (state, whether the treasure was found)`, one episode with an update after each step."""
    n, capacity = options.size, CONFIG["capacity"]
    batch_size, period = CONFIG["batch_size"], CONFIG["target_update_period"]
    right = jnp.asarray(deep_sea_mapping(n, 42))
    exploration = one_draw_an_episode(NUM_MEMBERS, AGENT.hyper["dither"])
    powers = AGENT.hyper["horizon_spread"] ** (1 - jnp.arange(NUM_MEMBERS) / (NUM_MEMBERS - 1))
    newest = jnp.where(jnp.arange(batch_size) < options.recent_share * batch_size, NUM_RECENT, capacity)

    def episode(state, key):
        key_begin, key_steps = jax.random.split(key)
        context = exploration.begin(key_begin)

        def step(carry, key):
            (values, target, priors, visits, ring, count), row, column, is_good = carry
            key_action, key_batch = jax.random.split(key)
            cell = row * n + column
            action = exploration.explore(key_action, context, (values + priors)[:, cell], 0.0)
            goes_right, is_last = action == right[row, column], row == n - 1
            reward = jnp.where(goes_right, -0.01 / n, 0.0) + (goes_right & is_last & (column == n - 1))
            column = jnp.clip(column + jnp.where(goes_right, 1, -1), 0, n - 1)
            new = cell, action, reward, (row + 1) % n * n + column, is_last
            ring = jax.tree.map(lambda table, entry: table.at[count % capacity].set(entry), ring, new)
            count = count + 1
            age = jax.random.randint(key_batch, (batch_size,), 0, jnp.minimum(newest, count))
            batch = jax.tree.map(lambda table: table[(count - 1 - age) % capacity], ring)
            rates = lambda n: jnp.maximum(1 / (n + 1), jnp.minimum(options.rate, count / (PERIOD * n)))
            values, visits = learn(values, target, priors, visits, batch, DISCOUNT**powers, rates)
            target = jax.lax.cond(count % period == 0, lambda: values, lambda: target)
            return ((values, target, priors, visits, ring, count), row + 1, column, is_good & goes_right), None

        start = (state, jnp.int32(0), jnp.int32(0), jnp.asarray(True))
        (state, _, _, is_good), _ = jax.lax.scan(step, start, jax.random.split(key_steps, n))
        return state, is_good

    return episode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=50)
    parser.add_argument("--rate", type=float, default=AGENT.hyper["table_rate"])
    parser.add_argument("--recent-share", type=float, default=0.0, help="of each minibatch, from 1,000 new steps")
    parser.add_argument("--num-episodes", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    key_prior, key = jax.random.split(jax.random.key(options.seed))
    shape, capacity = (NUM_MEMBERS, options.size**2, 2), CONFIG["capacity"]
    integers = jnp.zeros(capacity, jnp.int32)
    ring = integers, integers, jnp.zeros(capacity), integers, jnp.zeros(capacity, bool)
    priors = AGENT.hyper["prior_scale"] * jax.random.normal(key_prior, shape)
    state = jnp.zeros(shape), jnp.zeros(shape), priors, jnp.zeros(shape[1:]), ring, jnp.int32(0)
    episode, num_good = make_episode(options), 0
    advance = jax.jit(lambda state, keys: jax.lax.scan(episode, state, keys))
    for num_episodes in range(25, options.num_episodes + 1, 25):
        key, key_chunk = jax.random.split(key)
        state, is_good = advance(state, jax.random.split(key_chunk, 25))
        num_good += int(is_good.sum())
        if num_good > 0.1 * num_episodes:
            print(f"N = {options.size}: solved after {num_episodes} episodes")
            return
    print(f"N = {options.size}: not solved within {options.num_episodes} episodes")


if __name__ == "__main__":
    main()
