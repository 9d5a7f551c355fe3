"""Posteriors that the samplers draw from, in JAX; `samplers_torch` has the same in PyTorch.

Each target is `(potential, observe, size)`: the potential of a flat vector with `size` entries, and the quantities
whose effective sample size counts: all parameters of the regression, and 20 predictions of the network.
"""

from dataclasses import dataclass

NUM_DATA, INPUTS, HIDDEN, NUM_PROBES, NOISE = 64, 20, (96, 80), 20, 1.0
SIZES = [(INPUTS, HIDDEN[0]), (HIDDEN[0], HIDDEN[1]), (HIDDEN[1], 1)]


@dataclass(frozen=True)
class Run:
    """How a target is sampled.

    Step sizes give acceptance rates of 0.7 to 0.95. Trajectories of hmc do not resonate: on the regression, with 8
    leapfrog steps of 0.07, some parameters return to their start.

    Attributes:
      num_chains: chains that sample together, each from a standard normal start.
      num_warm_up: draws that are thrown away.
      num_draws: draws that are kept, full and quick.
      thin: steps from one draw to the next; hmc has one.
      langevin: step size.
      underdamped: step size and friction.
      mala: step size.
      hmc: step size and leapfrog steps.
    """

    num_chains: int
    num_warm_up: int
    num_draws: tuple[int, int]
    thin: int
    langevin: float
    underdamped: tuple[float, float]
    mala: float
    hmc: tuple[float, int]


RUNS = {
    "regression": Run(4, 100, (1_000, 300), 10, 3e-3, (0.03, 10.0), 4e-3, (0.05, 3)),
    "network": Run(2, 50, (250, 50), 20, 1e-2, (0.05, 7.0), 1e-2, (0.08, 10)),
}


def regression_data():
    """1,000 labels given 25 features."""
    import numpy as np

    random = np.random.default_rng(0)
    features = random.standard_normal((1_000, 25)).astype(np.float32)
    weights = random.standard_normal(25).astype(np.float32)
    labels = (random.random(1_000) < 1 / (1 + np.exp(-features @ weights))).astype(np.float32)
    return features, labels


def network_data():
    """Inputs and noisy values of a smooth function, and the inputs at which predictions are observed."""
    import numpy as np

    random = np.random.default_rng(0)
    x, probes = (random.standard_normal((n, INPUTS)).astype(np.float32) for n in (NUM_DATA, NUM_PROBES))
    values = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 2 + NOISE * random.standard_normal(NUM_DATA)
    return x, values.astype(np.float32), probes


def slices():
    """The positions of the weights and biases of each layer in the flat vector, and its size (9,857)."""
    places, end = [], 0
    for inputs, outputs in SIZES:
        begin, middle, end = end, end + inputs * outputs, end + inputs * outputs + outputs
        places.append((begin, middle, end))
    return places, end


def regression():
    """Bayesian logistic regression with prior N(0, I)."""
    import jax
    import jax.numpy as jnp

    x, y = map(jnp.asarray, regression_data())

    def potential(w):
        logits = x @ w
        return jnp.sum(jax.nn.softplus(logits) - y * logits) + jnp.sum(w * w) / 2

    return potential, lambda w: w, x.shape[1]


def network():
    """Bayesian regression with a network of 9,857 parameters, each N(0, 1) before the data.

    Weights are divided by the root of the number of inputs of their layer, so that all parameters have one scale.
    """
    import jax.numpy as jnp

    x, y, probes = map(jnp.asarray, network_data())
    places, size = slices()

    def predict(w, x):
        for (inputs, outputs), (begin, middle, end) in zip(SIZES, places, strict=True):
            x = x @ w[begin:middle].reshape(inputs, outputs) / inputs**0.5 + w[middle:end]
            x = jnp.tanh(x) if outputs > 1 else x
        return x[:, 0]

    def potential(w):
        return jnp.sum((predict(w, x) - y) ** 2) / (2 * NOISE**2) + jnp.sum(w * w) / 2

    return potential, lambda w: predict(w, probes), size


TARGETS = {"regression": regression, "network": network}
