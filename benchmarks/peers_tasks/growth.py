"""How cost grows: runs of DQN that train together, chains that sample together, and two cores against one."""

import time

from peers_tasks import task
from peers_tasks.exploration import feelgood_agent, purejaxrl_dqn
from peers_tasks.samplers import blackjax_draws, feelgood_draws, on_posterior

RUNS, CHAINS = (1, 10, 100, 1_000), (1, 4, 16, 64)
# A thousand replays of more transitions would not fit into the memory of small machines.
CAPACITY = 1_000


def steps_only(prepare):
    """A task of `on_posterior` that reports draws of all chains per second."""

    def prepare_rate(quick):
        import os

        import numpy as np

        seconds, measure = prepare(quick)

        def rate(repeat):
            answer = measure(repeat)
            num_chains, num_draws, _ = np.load(answer["draws"], mmap_mode="r").shape
            os.unlink(answer["draws"])
            return {"value": num_chains * num_draws / answer["seconds"]}

        return seconds, rate

    return prepare_rate


for each in RUNS:
    task("feelgood", f"dqn {each} runs")(feelgood_agent("dqn", "nchain", each, CAPACITY))
    task("purejaxrl", f"dqn {each} runs")(purejaxrl_dqn("nchain", each, CAPACITY))
for each in CHAINS:
    task("feelgood", f"hmc {each} chains")(steps_only(on_posterior("regression", "hmc", feelgood_draws, each)))
    task("blackjax", f"hmc {each} chains")(steps_only(on_posterior("regression", "hmc", blackjax_draws, each)))


@task("feelgood", "cores")
def feelgood_cores(quick):
    """FG-ULMCDQN on the N-chain, 20 runs spread over the cores of the process: updates per wall second."""
    import jax
    import jax.numpy as jnp

    from feelgood import agents, envs
    from feelgood.parallel import over_devices
    from feelgood.training import FunctionalConfig, trainer

    num_runs, num_steps = 20, 500 if quick else 1_000
    config = FunctionalConfig(num_steps=2 * num_steps, evaluation_period=num_steps, replay_ratio=4.0)
    make = lambda spaces, hyper: agents.make_agent("fg_ulmcdqn", spaces, hyper)
    one = trainer(envs.nchain(25), make, config)
    hyper = {name: jnp.full(num_runs, value, jnp.float32) for name, value in agents.ZOO["fg_ulmcdqn"].hyper.items()}
    began = time.perf_counter()
    state = over_devices(one.init)(jax.random.split(jax.random.key(0), num_runs), hyper)
    advance = over_devices(one.advance, num_shared=1, num_donated=1)
    holder = [jax.block_until_ready(advance(state, hyper, jnp.int32(0)))[0]]
    compiling = time.perf_counter() - began

    def measure(repeat):
        began = time.perf_counter()
        holder[0], _ = jax.block_until_ready(advance(holder[0], hyper, jnp.int32(1)))
        return {"value": num_runs * num_steps * 4 / (time.perf_counter() - began)}

    return compiling, measure
