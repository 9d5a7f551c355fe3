"""A small neural testbed: which samplers give useful joint uncertainty, and at what cost?

After Osband et al. (2021), "The Neural Testbed". A problem is a random function, an MLP whose parameters are standard
normal, and a few noisy values of it: y = f(x) + σz with x, z standard normal. Every method is given the network, the
prior and σ, so its target is known exactly: the posterior exp(−Σ (y − f(x))²/2σ² − ‖w‖²/2). Regression is chosen
because the likelihood is then the squared error that the agents of this package minimise (`td`), and because the score
has a closed form for linear models, which a test uses.

A method gives M functions. Its score is the log-likelihood of new data under their equal mixture, at one input
(marginal) and at τ = 10 inputs together (joint). The ten inputs are copies of two random ones ("dyadic" sampling,
Osband et al., 2022), so a method needs its uncertainty at each input and the correlation of its errors at the two.
Scores are nats above the floor: one network with the same prior, trained with Adam. Settings are chosen
by the joint score on problems with seeds from 1,000,000; scores are for fresh problems with seeds from 0. Each method
has the same number of gradients of the full data. Chains give the positions of their second half, ensembles the last
networks.

Networks with a random index z ~ N(0, I) are functions f(x, z), of which any number can be drawn; see `start_indexed`.
A step lowers the mean, over a few fresh indices, of the loss with labels y_i + σ·b_i·z. Each datum keeps its own random
direction b_i, uniform on the unit sphere (Dwaracherla et al., 2020; Li et al., 2022), so the perturbation of a label is
N(0, σ²) over indices. For a linear model the law of f(·, z) at the optimum is the exact posterior, up to the error of a
finite index; a test uses this. Indices that share a network count as one of its gradients, although their own layers
cost time too; the CPU seconds contain it.

    python benchmarks/testbed.py --output results/testbed
"""

import argparse
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm

from feelgood import networks, noise, objectives, samplers
from feelgood.figures.chart import Chart, Panel, Series
from feelgood.figures.style import colours_of
from feelgood.networks.layers import Dense
from feelgood.replay import Batch
from feelgood.statistics import Estimate, bootstrap, mean
from feelgood.studies.output import markdown_table, write_files

NOISE = 0.5  # σ
CELLS = tuple(itertools.product((2, 10), (10, 50)))  # input dimensions, numbers of data
DIM, NUM_DATA = (max(sizes) for sizes in zip(*CELLS, strict=True))  # smaller problems are padded to these
HIDDEN = (20, 20)
NUM_PAIRS, TAU = 200, 10
FRACTIONS = (0.1, 0.3, 1.0)  # of the budget, at which scores are reported
FIRST_TUNING_SEED = 1_000_000
PER_BATCH = 2  # problems of each cell in a batch
INDEX_DIM, INDEX_HIDDEN = 20, (15, 15)  # of networks with a random index; the hidden layers of epinets
MLP = networks.network(lambda key: networks.mlp(key, DIM, HIDDEN, 1))
LIKE, NO_PRIOR = jax.eval_shape(MLP.init, jax.random.key(0))  # the shapes of parameters; nothing is frozen


class Problem(NamedTuple):
    """Data, and test data: pairs of inputs, which of the two each of the TAU labels belongs to, and the labels."""

    dim: Any
    num_data: Any
    x: Any  # (NUM_DATA, DIM), zero beyond `dim`
    y: Any  # (NUM_DATA,), only the first `num_data` count
    pairs: Any  # (NUM_PAIRS, 2, DIM)
    picks: Any  # (NUM_PAIRS, TAU), 0 or 1
    labels: Any  # (NUM_PAIRS, TAU)


def function(params, x, dim):
    """An MLP of standard normal parameters; scaled so that its values have a variance of about 1, for inputs too."""
    fans = (jnp.asarray(dim, jnp.float32), *map(float, HIDDEN))
    scales = [jnp.sqrt((2.0 if i < len(HIDDEN) else 1.0) / (fan + 1)) for i, fan in enumerate(fans)]
    leaves, tree = jax.tree.flatten(params)  # weight and bias of each layer
    return MLP.apply(tree.unflatten([scales[i // 2] * leaf for i, leaf in enumerate(leaves)]), NO_PRIOR, x)


def prior_draw(key):
    """Standard normal parameters."""
    return noise.normal_like(key, LIKE)


def make_problem(seed, dim, num_data) -> Problem:
    """Draws a problem."""
    key_f, key_x, key_y, key_pairs, key_picks, key_labels = jax.random.split(jax.random.key(seed), 6)
    truth = lambda x: function(prior_draw(key_f), x, dim)[..., 0]
    noisy = lambda key, values: values + NOISE * jax.random.normal(key, values.shape)
    inputs = lambda key, *shape: jnp.where(jnp.arange(DIM) < dim, jax.random.normal(key, (*shape, DIM)), 0.0)
    x, pairs = inputs(key_x, NUM_DATA), inputs(key_pairs, NUM_PAIRS, 2)
    picks = jax.random.randint(key_picks, (NUM_PAIRS, TAU), 0, 2)
    labels = noisy(key_labels, jnp.take_along_axis(truth(pairs), picks, -1))
    return Problem(dim, num_data, x, noisy(key_y, truth(x)), pairs, picks, labels)


@jax.jit
def make_problems(seeds) -> Problem:
    """A problem for each seed, as many of each cell as of any other."""
    cells = jnp.repeat(jnp.array(CELLS), len(seeds) // len(CELLS), 0)
    return jax.vmap(make_problem)(seeds, *cells.T)


def log_likelihoods(values, picks, labels, scale=NOISE):
    """Mean log-likelihood of labels under an equal mixture of functions: at one input and at all TAU together.

    Args:
      values: (M, P, 2), the functions at pairs of inputs.
      picks: (P, TAU), the input of each label.
      labels: (P, TAU).
      scale: σ.
    """
    means = jnp.take_along_axis(values, jnp.broadcast_to(picks, (len(values), *picks.shape)), -1)
    each = norm.logpdf(labels[None], means, scale)
    mixture = lambda logs: jnp.mean(logsumexp(logs, 0) - jnp.log(len(values)))
    scores = jnp.stack([mixture(each), mixture(each.sum(-1))])
    return jnp.where(jnp.all(jnp.isfinite(values)), scores, -jnp.inf)


class Method(NamedTuple):
    """A sampler or optimiser with a model.

    Attributes:
      sampler: `(hyper, inverse temperature) -> Sampler`.
      grid: values of hyper-parameters; all combinations are tried.
      num_chains: chains, or members of an ensemble, which share the gradients; each starts at a draw of the prior.
      model: "mlp" with parameters of a standard normal prior; "anchored", the same with a random anchor as the prior's
        mean; "prior", a normalised MLP plus a random prior, the networks of `ensemble_dqn`.
        "hypermodel", "last layer", "epinet" and "heads" have an index; see `start_indexed`.
      perturbed: whether each chain or index has its own noise on the labels.
      ensemble: whether only the last position of each chain counts; otherwise its second half counts.
      num_leapfrog: gradients of a step.
      budget: gradients as a multiple of the other methods' number.
      num_indices: indices in a step of a network with a random index; 0 for methods without.
      num_draws: draws of a random index that are scored; heads have INDEX_DIM.
    """

    sampler: Callable[[Mapping[str, Any], Any], samplers.Sampler]
    grid: Mapping[str, Sequence[float]]
    num_chains: int = 10
    model: str = "mlp"
    perturbed: bool = False
    ensemble: bool = False
    num_leapfrog: int = 1
    budget: float = 1.0
    num_indices: int = 0
    num_draws: int = 100


def start(model: str, key, scale, dim):
    """Initial parameters, the function of parameters and inputs, and the prior as an objective, if any."""
    scale_of_prior = 1 / np.sqrt(2 * NOISE**2)  # the temperature has the factor 1/2σ² of the likelihood; this undoes it
    if model == "prior":
        key_model, key_prior = jax.random.split(key)
        plain, prior = (
            make(k, DIM, HIDDEN, 1)
            for make, k in ((networks.normalized_mlp, key_model), (networks.random_prior, key_prior))
        )
        params, frozen, apply = networks.partition(networks.with_prior(plain, prior, scale))
        return params, lambda params, x: apply(params, frozen, x), objectives.Objective()
    params = prior_draw(key)
    anchor = objectives.anchored_prior(params if model == "anchored" else None, scale_of_prior)
    return params, lambda params, x: function(params, x, dim), anchor


def potential_of(problem: Problem, apply, prior: objectives.Objective, perturbed_by: int | None = None):
    """U of a problem, with posterior exp(−βU) at β = n/2σ²; a chain with a number perturbs the labels by its noise."""
    rows, none = jnp.arange(NUM_DATA), jnp.zeros(NUM_DATA)
    weight = (rows < problem.num_data) * (NUM_DATA / problem.num_data)
    slot = rows if perturbed_by is None else perturbed_by * NUM_DATA + rows
    batch = Batch(problem.x, none.astype(int), problem.y, none, problem.x, problem.x, slot, weight)
    q, target = lambda params, x, _: apply(params, x), lambda x, _: jnp.zeros((NUM_DATA, 1))
    objective = objectives.td(perturbation=None if perturbed_by is None else NOISE) + prior
    return objectives.potential(objective, q, target, batch, num_data=problem.num_data)


class Indexed(NamedTuple):
    """A network with a random index.

    Attributes:
      params: initial parameters.
      member: `(params, index) -> member`, the parameters of the network that an index selects.
      apply: `(member, x) -> values`.
      prior: `index -> Objective`, the prior of a member.
    """

    params: Any
    member: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]
    prior: Callable[[Any], objectives.Objective]


def contract(array, index):
    """a₀ + Σ_j a_j·z_j over the last axis."""
    return array[..., 0] + array[..., 1:] @ index


def last_features(net, x):
    """The last hidden layer of a network."""
    width = net.layers[-1].weight.shape[0]
    return dataclasses.replace(net, layers=(*net.layers[:-1], Dense(jnp.eye(width), jnp.zeros(width))))(x)


def start_indexed(model: str, key, scale, dim) -> Indexed:
    """A network with a random index z of D = INDEX_DIM numbers.

    "hypermodel" (Dwaracherla et al., 2020): all weights are μ + Bz. Its anchor is B₀z with B₀ of N(0, 1/D), so that
    anchors are draws of the prior; B starts at B₀. The others are normalised MLPs plus a fixed random prior, as in the
    model "prior". Their prior is scale·p(x)·z/√D with a random network p of D outputs. "last layer" (Li et al., 2022):
    only the weights of the last layer are μ + Bz. "heads" is the same with the D indices √D·e_m instead of normal ones,
    and so an ensemble of D last layers. "epinet" (Osband et al., 2021): m(x) + h(φ(x), x, z)·z with a network m, its
    last hidden layer φ, through which no gradient flows back from h, and a small network h.
    """
    if model == "hypermodel":
        like = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape, INDEX_DIM)), LIKE)
        draw = jax.tree.map(lambda leaf: leaf / np.sqrt(INDEX_DIM), noise.normal_like(key, like))
        params = jax.tree.map(lambda leaf: jnp.concatenate([jnp.zeros((*leaf.shape[:-1], 1)), leaf], -1), draw)
        member = lambda params, index: jax.tree.map(lambda leaf: contract(leaf, index), params)
        anchor = lambda index: objectives.anchored_prior(member(params, index), 1 / np.sqrt(2 * NOISE**2))
        return Indexed(params, member, lambda params, x: function(params, x, dim), anchor)
    key_net, key_head, key_prior = jax.random.split(key, 3)
    prior = networks.random_prior(key_prior, DIM, HIDDEN, INDEX_DIM)
    if model == "epinet":
        net = networks.normalized_mlp(key_net, DIM, HIDDEN, 1)
        head = networks.normalized_mlp(key_head, HIDDEN[-1] + DIM + INDEX_DIM, INDEX_HIDDEN, INDEX_DIM)
        params = (net, head)
    else:
        params = networks.normalized_mlp(key_net, DIM, HIDDEN, 1 + INDEX_DIM)

    def apply(member, x):
        params, index = member
        fixed = jax.lax.stop_gradient(scale * prior(x) @ index / np.sqrt(INDEX_DIM))
        if model != "epinet":
            return (contract(params(x), index) + fixed)[..., None]
        net, head = params
        features = last_features(net, x)
        inputs = [jax.lax.stop_gradient(features), x, jnp.broadcast_to(index, (*x.shape[:-1], INDEX_DIM))]
        return net.layers[-1](features) + (head(jnp.concatenate(inputs, -1)) @ index + fixed)[..., None]

    return Indexed(params, lambda params, index: (params, index), apply, lambda index: objectives.Objective())


def indices_of(model: str, key, shape: tuple[int, ...]):
    """Indices with E[zzᵀ] = I, (*shape, INDEX_DIM); for heads the last axis of `shape` becomes all √D·e_m."""
    if model == "heads":
        return jnp.broadcast_to(np.sqrt(INDEX_DIM) * jnp.eye(INDEX_DIM), (*shape[:-1], INDEX_DIM, INDEX_DIM))
    return noise.normal(key, (*shape, INDEX_DIM))


def directions(key):
    """The directions b_i of the data, uniform on the unit sphere, (NUM_DATA, INDEX_DIM)."""
    draw = jax.random.normal(key, (NUM_DATA, INDEX_DIM))
    return draw / jnp.linalg.norm(draw, axis=-1, keepdims=True)


def indexed_potential(problem: Problem, model: Indexed, indices, towards):
    """The mean over indices z of the potential of their members, with labels y_i + σ·b_i·z for b = `towards`."""

    def at(params, index):
        perturbed = problem._replace(y=problem.y + NOISE * towards @ index)
        return potential_of(perturbed, model.apply, model.prior(index))(model.member(params, index))

    return lambda params: jnp.mean(jax.vmap(at, (None, 0))(params, indices))


def indexed_values(method: Method, num_gradients: int, problem: Problem, key, hyper):
    """The functions of draws of the index at the test inputs, (draws, FRACTIONS, NUM_PAIRS, 2)."""
    key_start, key_data, key_draws, key_indices, key_steps = jax.random.split(key, 5)
    num_steps = 10 * max(1, num_gradients // method.num_leapfrog // 10)
    sampler = method.sampler(hyper, problem.num_data / (2 * NOISE**2))
    model = start_indexed(method.model, key_start, hyper.get("prior_scale", 1.0), problem.dim)
    towards = directions(key_data) * method.perturbed
    indices = indices_of(method.model, key_indices, (num_steps, method.num_indices))

    def step(state, inputs):
        key, indices = inputs
        return sampler.step(key, state, indexed_potential(problem, model, indices, towards))[0], None

    def tenth(state, inputs):
        state, _ = jax.lax.scan(step, state, inputs)
        return state, state.params

    in_tenths = lambda array: array.reshape(10, num_steps // 10, *array.shape[1:])
    inputs = jax.tree.map(in_tenths, (jax.random.split(key_steps, num_steps), indices))
    _, positions = jax.lax.scan(tenth, sampler.init(model.params), inputs)
    ends = np.array([round(10 * fraction) - 1 for fraction in FRACTIONS])
    values = lambda index, params: model.apply(model.member(params, index), problem.pairs)[..., 0]
    draws = indices_of(method.model, key_draws, (method.num_draws,))
    at_ends = jax.tree.map(lambda leaf: leaf[ends], positions)
    return jax.vmap(jax.vmap(values, (None, 0)), (0, None))(draws, at_ends)


def values_of(method: Method, num_gradients: int, problem: Problem, key, hyper):
    """The functions of a method at the test inputs, (chains, positions kept, NUM_PAIRS, 2)."""
    if method.num_indices:
        return indexed_values(method, num_gradients, problem, key, hyper)
    num_chains = method.num_chains
    num_steps = num_gradients // num_chains // method.num_leapfrog
    thin = num_steps if method.ensemble else max(1, num_steps * num_chains // 200)
    sampler = method.sampler(hyper, problem.num_data / (2 * NOISE**2))

    def chain(key, index):
        key_start, key_chain = jax.random.split(key)
        params, apply, prior = start(method.model, key_start, hyper.get("prior_scale", 1.0), problem.dim)
        potential = potential_of(problem, apply, prior, index if method.perturbed else None)
        draws, _ = samplers.sample(key_chain, sampler, potential, params, num_steps, thin=thin)
        return jax.vmap(lambda params: apply(params, problem.pairs)[..., 0])(draws)

    return jax.vmap(chain)(jax.random.split(key, num_chains), jnp.arange(num_chains))


def kept(method: Method, values, fraction: float):
    """The functions that a method has after a fraction of its budget, (M, NUM_PAIRS, 2); none if it has none yet."""
    if method.num_indices:
        values = values[:, FRACTIONS.index(fraction)]
    elif method.ensemble:
        values = values[: int(values.shape[0] * fraction)]
    else:
        last = int(values.shape[1] * fraction)
        values = values[:, last // 2 : last]
    return values.reshape(-1, *values.shape[-2:])


def runner(method: Method, num_gradients: int):
    """The compiled `(problems, seeds, hyper) -> (problems, fractions, 2)` scores of a method."""

    def one(problem, seed, hyper):
        key = jax.random.fold_in(jax.random.key(seed), 1)
        values = values_of(method, num_gradients, problem, key, hyper)
        parts = [kept(method, values, fraction) for fraction in FRACTIONS]
        score = lambda part: log_likelihoods(part, problem.picks, problem.labels) if len(part) else jnp.full(2, jnp.nan)
        return jnp.stack([score(part) for part in parts])

    return jax.jit(jax.vmap(one, (0, 0, None)))


def points(grid: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """All combinations of a grid."""
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def adam(hyper, _):
    """Adam, which adds no noise."""
    return samplers.from_optax(optax.adam(hyper["step_size"]))


def biased(make, **settings):
    """A sampler with the adaptive bias."""
    return lambda hyper, beta: make(
        hyper["step_size"], inverse_temperature=beta, bias_factor=hyper["bias_factor"], **settings
    )


def underdamped(make, **settings):
    """A sampler with friction."""
    return lambda hyper, beta: make(hyper["step_size"], hyper["friction"], beta, **settings)


STEPS, FRICTIONS, BIASES = (0.03, 0.1, 0.3, 1.0), (0.1, 0.3, 1.0), (0.03, 0.1, 1.0)
MATCHED_STEPS = (0.003, 0.01, *STEPS)
RATES, SCALES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3), (0.1, 0.3, 1.0, 2.0)
ENSEMBLE = Method(adam, {"step_size": RATES}, 20, ensemble=True)
PRIORS = {"step_size": RATES, "prior_scale": SCALES}
INDEX = Method(adam, PRIORS, model="last layer", perturbed=True, num_indices=20)
FLOOR, REFERENCE = "one network", "hmc"
METHODS = {
    FLOOR: ENSEMBLE._replace(num_chains=1, budget=0.05),
    "ensemble": ENSEMBLE,
    "ensemble, anchored": ENSEMBLE._replace(model="anchored", perturbed=True),
    "ensemble, random priors": ENSEMBLE._replace(model="prior", grid=PRIORS),
    "ensemble, random priors, perturbed": ENSEMBLE._replace(model="prior", perturbed=True, grid=PRIORS),
    "ensemble of last layers": INDEX._replace(model="heads", perturbed=False),
    "ensemble of last layers, perturbed": INDEX._replace(model="heads"),
    "hypermodel, anchored": INDEX._replace(model="hypermodel", grid={"step_size": RATES}, num_leapfrog=20),
    "hypermodel of the last layer, perturbed": INDEX,
    "epinet, perturbed": INDEX._replace(model="epinet", num_indices=4),
    "langevin": Method(lambda hyper, beta: samplers.langevin(hyper["step_size"], beta), {"step_size": STEPS}),
    REFERENCE: Method(
        lambda hyper, beta: samplers.hmc(hyper["step_size"], 10, beta),
        {"step_size": (0.1, 0.2, 0.4, 0.8)},
        num_leapfrog=10,
    ),
    "underdamped_splitting": Method(
        underdamped(samplers.underdamped_splitting), {"step_size": (0.2, 0.4, 0.8), "friction": FRICTIONS}
    ),
    "underdamped": Method(underdamped(samplers.underdamped), {"step_size": STEPS, "friction": FRICTIONS}),
    "mala": Method(lambda hyper, beta: samplers.mala(hyper["step_size"], beta), {"step_size": STEPS}),
    "adam_langevin": Method(biased(samplers.adam_langevin), {"step_size": STEPS, "bias_factor": BIASES}),
    "adaptive_underdamped": Method(
        biased(samplers.adaptive_underdamped, friction=1.0), {"step_size": STEPS, "bias_factor": BIASES}
    ),
    "adam_langevin, matched noise": Method(
        biased(samplers.adam_langevin, matched_noise=True), {"step_size": MATCHED_STEPS, "bias_factor": BIASES}
    ),
    "adaptive_underdamped, matched noise": Method(
        biased(samplers.adaptive_underdamped, friction=1.0, matched_noise=True),
        {"step_size": MATCHED_STEPS, "bias_factor": BIASES},
    ),
    "preconditioned_langevin": Method(
        lambda hyper, beta: samplers.preconditioned_langevin(hyper["step_size"], beta, epsilon=hyper["epsilon"]),
        {"step_size": (0.003, 0.01, 0.03, 0.1), "epsilon": (0.03, 0.3)},
    ),
    "preconditioned_adam_langevin": Method(
        lambda hyper, beta: samplers.preconditioned_adam_langevin(hyper["step_size"], beta, epsilon=hyper["epsilon"]),
        {"step_size": (0.001, 0.003, 0.01, 0.03), "epsilon": (1e-8, 0.03, 0.3)},
    ),
}


def batches(first_seed: int, num_problems: int) -> Iterator[tuple[Problem, Any]]:
    """Problems of each size with their seeds, in batches of one shape, so that a method is compiled once."""
    for i in range(num_problems // PER_BATCH):
        seeds = first_seed + PER_BATCH * len(CELLS) * i + jnp.arange(PER_BATCH * len(CELLS))
        yield make_problems(seeds), seeds


def tune(run, grid, num_problems: int) -> list[tuple[float, dict[str, float]]]:
    """Every setting with its mean joint score on tuning problems, the best first."""
    joint = lambda hyper: [run(*batch, hyper)[:, -1, 1] for batch in batches(FIRST_TUNING_SEED, num_problems)]
    return sorted(((float(np.mean(joint(hyper))), hyper) for hyper in points(grid)), key=lambda row: -row[0])


def measure(run, hyper: dict[str, float], num_problems: int, num_gradients: int) -> pd.DataFrame:
    """Scores on fresh problems, a row for each problem and fraction of the budget at which there are functions."""
    tables, used = [], 0.0
    for problems, seeds in batches(0, num_problems):
        began = time.process_time()
        scores = np.asarray(run(problems, seeds, hyper))
        used += time.process_time() - began
        for i, fraction in enumerate(FRACTIONS):
            rows = {"dim": problems.dim, "num_data": problems.num_data, "seed": seeds, "fraction": fraction}
            tables.append(pd.DataFrame({**rows, "marginal": scores[:, i, 0], "joint": scores[:, i, 1]}).dropna())
    table = pd.concat(tables, ignore_index=True)
    seconds = used / (num_problems * len(CELLS))
    cost = {
        "gradients": (table["fraction"] * num_gradients).round().astype(int),
        "cpu_seconds": table["fraction"] * seconds,
    }
    return table.drop(columns="fraction").assign(**cost)


def gain(rows: pd.DataFrame, base: pd.DataFrame, score: str) -> Estimate:
    """A score above another method's on the same problems, with a 95% interval; cells are resampled one by one."""
    above = rows[score] - base.set_index("seed").loc[rows["seed"], score].to_numpy()
    return bootstrap(mean, [cell.to_numpy() for _, cell in above.groupby([rows["dim"], rows["num_data"]])])


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """For each method and budget: scores above the floor's, and the joint one above the reference's, if it was run."""
    last = table[table["gradients"] == table.groupby("method")["gradients"].transform("max")]
    bases = {name: last[last["method"] == name] for name in (FLOOR, REFERENCE)}
    out = []
    for (method, gradients), rows in table.groupby(["method", "gradients"], sort=False):
        found = {"marginal": gain(rows, bases[FLOOR], "marginal"), "joint": gain(rows, bases[FLOOR], "joint")}
        if len(bases[REFERENCE]):
            found["reference"] = gain(rows, bases[REFERENCE], "joint")
        out.append({"method": method, "setting": rows["setting"].iloc[0], "gradients": gradients})
        out[-1]["cpu_seconds"] = rows["cpu_seconds"].iloc[0]
        for name, estimate in found.items():
            out[-1] |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return pd.DataFrame(out)


def chart(summary: pd.DataFrame) -> Chart:
    """Joint log-likelihood above the floor against gradients: samplers, ensembles, and networks with an index."""
    names = [name for name in dict.fromkeys(summary["method"]) if name != FLOOR]
    colours, panels = colours_of(names), []
    ends = float(np.floor(summary["joint"].min())), float(np.ceil(summary["joint"].max()))
    kinds = {
        "samplers, ten chains": (False, False),
        "ensembles": (True, False),
        "last layers, or a random index": (False, True),
    }
    for title, kind in kinds.items():
        series = []
        for name in (name for name in names if (METHODS[name].ensemble, METHODS[name].num_indices > 0) == kind):
            rows = summary[summary["method"] == name].sort_values("gradients")
            x, y = list(rows["gradients"]), list(rows["joint"])
            series.append(Series(name, colours[name], x, y, dashed=any(kind), points=True))
        label = "joint log-likelihood above one network"
        if series:
            panels.append(Panel(title, "gradients", label, series, True, y_range=ends, guides=(0,)))
    return Chart("testbed", "", "", "testbed.csv", panels)


def report(table: pd.DataFrame, tried: pd.DataFrame, folder: Path | None) -> str:
    """The table of all methods at their whole budgets in Markdown; tables and figure are written to a folder."""
    summary = summarise(table)
    if folder:
        files = {"problems.csv": table, "tuning.csv": tried, "testbed.csv": summary}
        figure = {"joint": chart(summary)} if summary["method"].nunique() > 1 else {}
        write_files(folder, {name: content.round(5) for name, content in files.items()} | figure)
    names = {"marginal": "marginal", "joint": f"joint, τ = {TAU}", "reference": f"joint above {REFERENCE}"}
    shown = {name: title for name, title in names.items() if name in summary}
    words = lambda row, name: f"{row[name]:.2f} ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"
    whole = summary.loc[summary.groupby("method", sort=False)["gradients"].idxmax()].sort_values(
        "joint", ascending=False
    )
    lines = [
        [
            row["method"],
            row["setting"],
            *(words(row, name) for name in shown),
            f"{row['gradients']}",
            f"{row['cpu_seconds']:.3f}",
        ]
        for _, row in whole.iterrows()
    ]
    return markdown_table(["method", "setting", *shown.values(), "gradients", "CPU seconds"], lines)


def main():
    """Prints the table; writes it and the figure to a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--num-gradients", type=int, default=2_000, help="gradients of the full data for each problem")
    parser.add_argument("--num-tuning", type=int, default=2, help="tuning problems of each size, an even number")
    parser.add_argument("--num-problems", type=int, default=12, help="fresh problems of each size, an even number")
    parser.add_argument("--num-draws", type=int, default=100, help="draws of a random index that are scored")
    parser.add_argument("--output", type=Path, help="a folder for tables and figure, written after each method")
    arguments = parser.parse_args()
    for name in ("num_tuning", "num_problems"):
        if getattr(arguments, name) < PER_BATCH or getattr(arguments, name) % PER_BATCH:
            parser.error(f"{name} must be a positive multiple of {PER_BATCH}, got {getattr(arguments, name)}")
    tables, tried = [], []
    for name in dict.fromkeys([FLOOR, *arguments.methods]):
        method, began = METHODS[name]._replace(num_draws=arguments.num_draws), time.time()
        num_gradients = round(method.budget * arguments.num_gradients)
        run = runner(method, num_gradients)
        found = tune(run, method.grid, arguments.num_tuning)
        words = lambda hyper: ", ".join(f"{key}={value:g}" for key, value in hyper.items())
        tried += [{"method": name, "setting": words(hyper), "joint": score} for score, hyper in found]
        rows = measure(run, found[0][1], arguments.num_problems, num_gradients)
        tables.append(rows.assign(method=name, setting=words(found[0][1])))
        print(f"{name}: {words(found[0][1])}, {time.time() - began:.0f} s", flush=True)
        text = report(pd.concat(tables, ignore_index=True), pd.DataFrame(tried), arguments.output)
    print(text)


if __name__ == "__main__":
    main()
