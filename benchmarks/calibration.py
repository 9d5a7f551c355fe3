"""Is an ensemble with random priors a sample from a posterior?

Cells are one-hot inputs, as in DeepSea. Cell i was visited n_i times, each time with reward 0 plus noise of standard
deviation σ. If priors of different cells are independent with variance s², the posterior of a cell's value is normal
with variance 1/(1/s² + n_i/σ²). Members of an ensemble learn from all visits; their standard deviation over members is
compared with the posterior's. Three ensembles:

- priors: the default agent's networks, Q_m = f_m + s·p_m. Every member fits the same rewards.
- perturbed: the same, and member m adds σ·z to each reward, z standard normal and fixed (`td(perturbation=σ)`).
- plain: priors and networks with PyTorch's initial weights, as in Bootstrapped DQN.

    python benchmarks/calibration.py
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

from feelgood import networks

VISITS = (0, 1, 4, 16, 64, 256)
CELLS_PER_COUNT = 20


def members(kind: str, num_cells: int, width: int, scale: float, num_members: int) -> networks.Network:
    """An ensemble from one-hot cells to one value."""
    plain = lambda key: networks.mlp(key, num_cells, (width, width), 1)
    model, prior = plain, plain
    if kind != "plain":
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
    key_net, key_data, key_noise, key_batch = jax.random.split(jax.random.key(arguments.seed), 4)
    net = members(kind, len(counts), arguments.width, arguments.prior_scale, arguments.num_members)
    params, frozen = net.init(key_net)
    rewards = arguments.noise * jax.random.normal(key_data, (len(cells), 1))
    if kind == "perturbed":
        rewards = rewards + arguments.noise * jax.random.normal(key_noise, (len(cells), arguments.num_members))
    values = lambda params, cell: net.apply(params, frozen, networks.OneHot(cell))[..., 0]
    steps = optax.cosine_decay_schedule(1e-2, arguments.num_updates)
    optimiser = optax.adam(steps)

    def update(carry, key):
        params, state = carry
        rows = jax.random.randint(key, (arguments.batch_size,), 0, len(cells))
        loss = lambda params: jnp.mean(jnp.sum((values(params, cells[rows]) - rewards[rows]) ** 2, -1))
        moves, state = optimiser.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, moves), state), None

    keys = jax.random.split(key_batch, arguments.num_updates)
    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(update, carry, keys))((params, optimiser.init(params)))
    std = values(params, jnp.arange(len(counts))).std(-1, ddof=1)
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
    for kind in ("priors", "perturbed", "plain"):
        found = spread(kind, arguments)
        print(f"| {kind} |", " | ".join(f"{value:.3f}" for value in found), "|", flush=True)


if __name__ == "__main__":
    main()
