"""Is an ensemble with random priors a sample from a posterior?

Cells are one-hot inputs, as in DeepSea. Cell i was visited n_i times, each time with reward 0 plus noise of standard
deviation σ. If priors of different cells are independent with variance s², the posterior of a cell's value is normal
with variance 1/(1/s² + n_i/σ²). Members of an ensemble learn from all visits, by the objective of the agents; their
standard deviation over members is compared with the posterior's. Five ensembles:

- tables: those of the default agent, Q_m = f_m + s·p_m, with the rates of `visit_rates`. Every member fits the same
  rewards.
- tables, perturbed: the same, and member m adds σ·z to each reward, z standard normal and fixed (`td(perturbation=σ)`).
- networks; networks, perturbed: the same with the default agent's networks.
- plain networks: priors and networks with PyTorch's initial weights, as in Bootstrapped DQN.

    python benchmarks/calibration.py
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

from feelgood import agents, networks, objectives
from feelgood.agents import visit_rates
from feelgood.replay import Batch

VISITS = (0, 1, 4, 16, 64, 256)
CELLS_PER_COUNT = 20


KINDS = ("tables", "tables, perturbed", "networks", "networks, perturbed", "plain networks")


def members(kind: str, num_cells: int, width: int, scale: float, num_members: int) -> networks.Network:
    """An ensemble from one-hot cells to one value."""
    plain = lambda key: networks.mlp(key, num_cells, (width, width), 1)
    model, prior = plain, plain
    if kind.startswith("tables"):
        model = lambda key: networks.table(num_cells, 1)
        prior = lambda key: networks.table(num_cells, 1, key)
    elif kind.startswith("networks"):
        model = lambda key: networks.normalized_mlp(key, num_cells, (width, width), 1)
        prior = lambda key: networks.random_prior(key, num_cells, (width, width), 1)

    def member(key):
        key_model, key_prior = jax.random.split(key)
        return networks.with_prior(model(key_model), prior(key_prior), scale)

    return networks.network(lambda key: networks.ensemble(key, member, num_members))


def spread(kind: str, arguments: argparse.Namespace) -> np.ndarray:
    """Standard deviation over members at every cell, root mean square over cells of the same count."""
    counts = np.repeat(VISITS, CELLS_PER_COUNT)
    cells = jnp.asarray(np.repeat(np.arange(len(counts)), counts))
    key_net, key_data, key_batch = jax.random.split(jax.random.key(arguments.seed), 3)
    net = members(kind, len(counts), arguments.width, arguments.prior_scale, arguments.num_members)
    params, frozen = net.init(key_net)
    rewards = arguments.noise * jax.random.normal(key_data, (len(cells),))
    values = lambda params, cell, key=None: net.apply(params, frozen, networks.OneHot(cell))
    term = objectives.td(
        per="pair" if kind.startswith("tables") else "transition",
        perturbation=arguments.noise if kind.endswith("perturbed") else None,
    )
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, arguments.num_updates))
    if kind.startswith("tables"):
        optimiser = visit_rates(agents.ZOO["ensemble_dqn"].hyper["table_rate"])

    def update(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (arguments.batch_size,), 0, len(cells))
        nothing = jnp.zeros(len(rows), jnp.int32)  # one action; every step ends its episode
        batch = Batch(cells[rows], nothing, rewards[rows], nothing, cells[rows], cells[rows], slot=rows)
        loss = objectives.potential(term, values, lambda cell, key: values(params, cell), batch)
        moves, state = optimiser.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, moves), state), None

    keys = jax.random.split(key_batch, arguments.num_updates)
    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(update, carry, keys))((params, optimiser.init(params)))
    std = values(params, jnp.arange(len(counts)))[..., 0].std(-1, ddof=1)
    return np.sqrt(np.mean(np.asarray(std).reshape(len(VISITS), -1) ** 2, 1))


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-members", type=int, default=40)
    parser.add_argument("--prior-scale", type=float, default=1.0)
    parser.add_argument("--noise", type=float, default=1.0, help="standard deviation of rewards")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--num-updates", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    exact = 1 / np.sqrt(1 / arguments.prior_scale**2 + np.array(VISITS) / arguments.noise**2)
    print("| visits |", " | ".join(str(count) for count in VISITS), "|")
    print("|---|" + "---|" * len(VISITS))
    print("| exact posterior |", " | ".join(f"{value:.3f}" for value in exact), "|")
    for kind in KINDS:
        found = spread(kind, arguments)
        print(f"| {kind} |", " | ".join(f"{value:.3f}" for value in found), "|", flush=True)


if __name__ == "__main__":
    main()
