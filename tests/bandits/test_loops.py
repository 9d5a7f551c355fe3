"""Whole regret curves against plain loops in NumPy that keep all data and start from the definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits
from marks import fast_only

ARMS, FEATURES, ROUNDS, ETA, RHO, HEAT, LAMBDA = 3, 2, 60, 1.0, 0.1, 0.3, 0.05
NUM_LOOPS, NUM_SEEDS = 100, 200


class Loops:
    """Many runs in parallel, (n, …); every quantity is computed again from all past rounds."""

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.theta = self.normal(ARMS, FEATURES)
        self.x, self.a, self.r = np.zeros((NUM_LOOPS, 0, FEATURES)), *np.zeros((2, NUM_LOOPS, 0))
        self.chain, self.momentum = self.normal(ARMS, FEATURES), np.zeros((NUM_LOOPS, ARMS, FEATURES))

    def normal(self, *shape):
        return self.rng.normal(size=(NUM_LOOPS, *shape))

    def posterior(self):
        played = (self.a[:, :, None] == np.arange(ARMS)).astype(float)
        precision = 2 * ETA * np.einsum("nta,nti,ntj->naij", played, self.x, self.x) + RHO * np.eye(FEATURES)
        right = 2 * ETA * np.einsum("nta,nti,nt->nai", played, self.x, self.r)
        return np.linalg.solve(precision, right[..., None])[..., 0], precision

    def potential(self, weight=0.0):
        """U and its gradient at θ of shape (n, A, k)."""
        mean, precision = self.posterior()
        force = lambda theta: np.einsum("naij,naj->nai", precision, theta - mean)
        best = lambda theta: np.einsum("nti,nai->nta", self.x, theta)

        def value(theta):
            square = np.sum((theta - mean) * force(theta), (1, 2)) / 2
            return square - (weight * best(theta).max(-1).sum(-1) if self.x.size else 0.0)

        def gradient(theta):
            leads = np.eye(ARMS)[best(theta).argmax(-1)]
            return force(theta) - weight * np.einsum("nta,nti->nai", leads, self.x)

        return value, gradient

    def curvature(self):
        """‖P⁸‖^(1/8) in the Frobenius norm, the largest over arms."""
        eighth = np.linalg.matrix_power(self.posterior()[1], 8)
        return np.linalg.norm(eighth, axis=(2, 3)).max(1)[:, None, None] ** (1 / 8)

    def run(self, scores):
        regret = []
        for _ in range(ROUNDS):
            x = self.normal(FEATURES)
            a = np.argmax(scores(self, x), 1)
            means = np.einsum("nai,ni->na", self.theta, x)
            mine = means[np.arange(NUM_LOOPS), a]
            regret.append(means.max(1) - mine)
            self.x, self.a = np.append(self.x, x[:, None], 1), np.append(self.a, a[:, None], 1)
            self.r = np.append(self.r, (mine + 0.5 * self.normal())[:, None], 1)
        return np.cumsum(regret, 0).T


def of(theta, x):
    return np.einsum("...nai,ni->...na", theta, x)


def mean_and_width(loops, x):
    mean, precision = loops.posterior()
    return of(mean, x), np.sqrt(np.einsum("ni,naij,nj->na", x, np.linalg.inv(precision), x))


def ucb(loops, x):
    mean, width = mean_and_width(loops, x)
    return mean + width


def epsilon_greedy(loops, x):
    random = loops.rng.uniform(size=(NUM_LOOPS, 1)) < 0.1
    return np.where(random, loops.rng.uniform(size=(NUM_LOOPS, ARMS)), mean_and_width(loops, x)[0])


def information_directed(loops, x):
    """The best mixture of two arms on a grid of shares."""
    mean, width = mean_and_width(loops, x)
    gap = np.max(mean + width, 1, keepdims=True) - (mean - width)
    information = np.log1p(2 * ETA * width**2) / 2
    share = np.linspace(0, 1, 201)
    mix = lambda u: share * u[:, :, None, None] + (1 - share) * u[:, None, :, None]
    ratio = mix(gap) ** 2 / mix(information)
    ratio += 1e-9 * loops.rng.uniform(size=(NUM_LOOPS, ARMS, ARMS, 1))  # ties are broken at random
    first, second, k = np.unravel_index(ratio.reshape(NUM_LOOPS, -1).argmin(1), ratio.shape[1:])
    return np.eye(ARMS)[np.where(loops.rng.uniform(size=NUM_LOOPS) < share[k], first, second)]


def gaussian(loops, *shape):
    mean, precision = loops.posterior()
    root = np.linalg.cholesky(HEAT * np.linalg.inv(precision))
    return mean + np.einsum("naij,...naj->...nai", root, loops.rng.normal(size=(*shape, *mean.shape)))


def thompson(loops, x):
    return of(gaussian(loops), x)


def feel_good_by_resampling(loops, x):
    """Self-normalised importance sampling from the Gaussian part, with 300 draws."""
    theta = gaussian(loops, 300)
    total = (theta.transpose(1, 0, 2, 3)[:, :, :, None] @ loops.x[:, None, None].swapaxes(-1, -2))[..., 0, :]
    weights = LAMBDA / HEAT * total.max(2).sum(-1)  # (n, draws)
    gumbel = loops.rng.gumbel(size=weights.shape)
    return of(theta[np.argmax(weights + gumbel, 1), np.arange(NUM_LOOPS)], x)


def chain(steps, step):
    """Moves the chain by `steps` calls of `step(loops, value, gradient, t, M)` in every round."""

    def scores(loops, x):
        potential, t, largest = loops.potential(step.weight), max(loops.x.shape[1], 1), loops.curvature()
        for _ in range(steps):
            step(loops, *potential, t, largest)
        return of(loops.chain, x)

    return scores


def weighted(weight=0.0):
    def decorate(step):
        step.weight = weight
        return step

    return decorate


def langevin(weight):
    @weighted(weight)
    def step(loops, value, gradient, t, largest):
        xi = loops.normal(ARMS, FEATURES)
        loops.chain = loops.chain - 0.1 / t * gradient(loops.chain) + np.sqrt(0.2 / t * HEAT) * xi

    return step


@weighted()
def preconditioned(loops, value, gradient, t, largest):
    precision = loops.posterior()[1]
    root = np.linalg.cholesky(np.linalg.inv(precision))
    drift = np.linalg.solve(precision, gradient(loops.chain)[..., None])[..., 0]
    xi = np.einsum("naij,naj->nai", root, loops.normal(ARMS, FEATURES))
    loops.chain = loops.chain - 0.2 * drift + np.sqrt(0.4 * HEAT) * xi


def accept(loops, new, log_ratio):
    take = np.log(loops.rng.uniform(size=NUM_LOOPS)) < log_ratio
    loops.chain = np.where(take[:, None, None], new, loops.chain)


@weighted()
def mala(loops, value, gradient, t, largest):
    w, tau = loops.chain, 0.5 / largest
    y = w - tau * gradient(w) + np.sqrt(2 * tau * HEAT) * loops.normal(ARMS, FEATURES)
    log_q = lambda a, b: -np.sum((a - b + tau * gradient(b)) ** 2 / (4 * tau * HEAT), (1, 2))  # of a, from b
    accept(loops, y, (value(w) - value(y)) / HEAT + log_q(w, y) - log_q(y, w))


@weighted()
def hmc(loops, value, gradient, t, largest):
    w, p = loops.chain, np.sqrt(HEAT) * loops.normal(ARMS, FEATURES)
    h = 0.5 / np.sqrt(largest) * (1 - 0.5 * loops.rng.uniform(size=(NUM_LOOPS, 1, 1)))
    energy = lambda w, p: value(w) + np.sum(p**2, (1, 2)) / 2
    y, q = w, p
    for _ in range(5):
        q = q - h / 2 * gradient(y)
        y = y + h * q
        q = q - h / 2 * gradient(y)
    accept(loops, y, (energy(w, p) - energy(y, q)) / HEAT)


@weighted()
def baoab(loops, value, gradient, t, largest):
    tau, decay = 1 / np.sqrt(largest), np.exp(-0.5)
    p = loops.momentum - tau * gradient(loops.chain)
    loops.momentum = decay * p + np.sqrt((1 - decay**2) * HEAT) * loops.normal(ARMS, FEATURES)
    loops.chain = loops.chain + tau / 2 * (p + loops.momentum)


@weighted()
def underdamped(loops, value, gradient, t, largest):
    """The closed form over one step at γτ = 1: the covariance of (w, P) by Cheng et al. (2018)."""
    tau, e = 0.5 / np.sqrt(largest), np.exp(-1.0)
    gamma = 1 / tau
    g, p = gradient(loops.chain), loops.momentum
    shared = loops.normal(ARMS, FEATURES)
    var_p, cov, var_w = 1 - e**2, (1 - e) ** 2 / gamma, (2 * tau - (3 - 4 * e + e**2) / gamma) / gamma
    own = np.sqrt(var_w - cov**2 / var_p) * loops.normal(ARMS, FEATURES)
    noise_w = np.sqrt(HEAT) * (cov / np.sqrt(var_p) * shared + own)
    loops.chain = loops.chain + (1 - e) / gamma * p - (tau - (1 - e) / gamma) / gamma * g + noise_w
    loops.momentum = e * p - (1 - e) / gamma * g + np.sqrt(HEAT * var_p) * shared


MODEL = bandits.Model(ARMS, FEATURES, False)
COMMON = {"loss_weight": ETA, "prior_precision": RHO}
GOOD = bandits.FeelGood(LAMBDA, capacity=ROUNDS)
CHAIN = {"temperature": HEAT, **COMMON}
PAIRS = {
    "lin_ucb": (ucb, bandits.lin_ucb(MODEL, 1.0, **COMMON)),
    "lin_ts": (thompson, bandits.lin_ts(MODEL, HEAT, **COMMON)),
    "lin_ids": (information_directed, bandits.lin_ids(MODEL, 1.0, **COMMON)),
    "epsilon_greedy": (epsilon_greedy, bandits.epsilon_greedy(MODEL, 0.1, **COMMON)),
    "fgts": (feel_good_by_resampling, bandits.fgts(MODEL, GOOD, HEAT, num_candidates=4, **COMMON)),
    "lmc_ts": (chain(5, langevin(0.0)), bandits.lmc_ts(MODEL, 0.1, num_steps=5, decay=True, **CHAIN)),
    "fg_lmc_ts": (
        chain(5, langevin(LAMBDA)),
        bandits.lmc_ts(MODEL, 0.1, num_steps=5, decay=True, feel_good=GOOD, **CHAIN),
    ),
    "p_lmc_ts": (chain(3, preconditioned), bandits.lmc_ts(MODEL, 0.2, num_steps=3, preconditioned=True, **CHAIN)),
    "mala_ts": (chain(3, mala), bandits.mala_ts(MODEL, 0.5, num_steps=3, **CHAIN)),
    "hmc_ts": (chain(2, hmc), bandits.hmc_ts(MODEL, 0.5, 5, num_steps=2, **CHAIN)),
    "baoab_ts": (chain(3, baoab), bandits.baoab_ts(MODEL, 1.0, 0.5, num_steps=3, **CHAIN)),
    "ulmc_ts": (chain(3, underdamped), bandits.ulmc_ts(MODEL, 0.5, 2.0, num_steps=3, **CHAIN)),
}


# The slow ones share their rounds with `p_lmc_ts` and `baoab_ts`; `test_chains` holds each of their steps against the
# feel-good posterior. `fg_lmc_ts` is `lmc_ts` with one more term.
SLOW = ("lmc_ts", "mala_ts", "hmc_ts", "ulmc_ts")


@pytest.mark.parametrize("name", fast_only(set(PAIRS) - set(SLOW), PAIRS))
def test_the_regret_curve_is_that_of_a_plain_loop(name):
    scores, algorithm = PAIRS[name]
    plain = Loops().run(scores)
    bandit = bandits.linear(ARMS, FEATURES, 0.5)
    run = jax.jit(jax.vmap(lambda key: jnp.cumsum(bandits.simulate(key, bandit, algorithm, ROUNDS).regret)))
    ours = np.asarray(run(jax.random.split(jax.random.key(0), NUM_SEEDS)))
    for t in (10, 30, ROUNDS - 1):
        error = np.sqrt(plain[:, t].var() / NUM_LOOPS + ours[:, t].var() / NUM_SEEDS)
        assert abs(plain[:, t].mean() - ours[:, t].mean()) < 4 * error
