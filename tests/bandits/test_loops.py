"""Whole regret curves against plain loops in NumPy that keep all data and start from the definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits

ARMS, FEATURES, ROUNDS, ETA, RHO, HEAT, LAMBDA = 3, 2, 80, 1.0, 0.1, 0.3, 0.05
NUM_LOOPS, NUM_SEEDS = 40, 400


class Loop:
    """One run; θ has a block for each arm, and every quantity is computed again from all past rounds."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.theta = self.rng.normal(size=(ARMS, FEATURES))
        self.x, self.a, self.r = [], [], []
        self.chain = self.rng.normal(size=ARMS * FEATURES)

    def row(self, x, a):
        return np.concatenate([x if b == a else np.zeros(FEATURES) for b in range(ARMS)])

    def posterior(self):
        rows = np.array([self.row(x, a) for x, a in zip(self.x, self.a, strict=True)]).reshape(-1, ARMS * FEATURES)
        precision = 2 * ETA * rows.T @ rows + RHO * np.eye(ARMS * FEATURES)
        return np.linalg.solve(precision, 2 * ETA * rows.T @ np.array(self.r)), precision

    def gradient(self, theta, weight, mean, precision):
        force = precision @ (theta - mean)
        if self.x:
            past = np.array(self.x)
            leads = np.eye(ARMS)[np.argmax(past @ theta.reshape(ARMS, -1).T, axis=1)]
            force = force - weight * (leads.T @ past).ravel()
        return force

    def run(self, draw):
        regret = []
        for _ in range(ROUNDS):
            x = self.rng.normal(size=FEATURES)
            a = int(np.argmax(draw(self, x)))
            means = self.theta @ x
            regret.append(means.max() - means[a])
            self.x.append(x)
            self.a.append(a)
            self.r.append(means[a] + 0.5 * self.rng.normal())
        return np.cumsum(regret)


def ucb(loop, x):
    mean, precision = loop.posterior()
    rows = np.array([loop.row(x, a) for a in range(ARMS)])
    return rows @ mean + np.sqrt(np.einsum("ai,ij,aj->a", rows, np.linalg.inv(precision), rows))


def thompson(loop, x):
    mean, precision = loop.posterior()
    theta = loop.rng.multivariate_normal(mean, HEAT * np.linalg.inv(precision))
    return theta.reshape(ARMS, -1) @ x


def feel_good_by_resampling(loop, x):
    """Self-normalised importance sampling from the Gaussian part, with a thousand draws."""
    mean, precision = loop.posterior()
    theta = loop.rng.multivariate_normal(mean, HEAT * np.linalg.inv(precision), size=1000).reshape(-1, ARMS, FEATURES)
    total = np.einsum("nak,sk->nsa", theta, np.array(loop.x).reshape(-1, FEATURES)).max(-1).sum(-1)
    weights = np.exp(LAMBDA * (total - total.max()) / HEAT)
    return theta[loop.rng.choice(1000, p=weights / weights.sum())] @ x


def langevin(weight):
    def draw(loop, x):
        step, posterior = 0.1 / max(len(loop.x), 1), loop.posterior()
        for _ in range(10):
            noise = loop.rng.normal(size=ARMS * FEATURES)
            loop.chain = (
                loop.chain - step * loop.gradient(loop.chain, weight, *posterior) + np.sqrt(2 * step * HEAT) * noise
            )
        return loop.chain.reshape(ARMS, -1) @ x

    return draw


MODEL = bandits.Model(ARMS, FEATURES, False)
COMMON = {"loss_weight": ETA, "prior_precision": RHO}
GOOD = bandits.FeelGood(LAMBDA, capacity=ROUNDS)
PAIRS = {
    "lin_ucb": (ucb, bandits.lin_ucb(MODEL, 1.0, **COMMON)),
    "lin_ts": (thompson, bandits.lin_ts(MODEL, HEAT, **COMMON)),
    "fgts": (feel_good_by_resampling, bandits.fgts(MODEL, GOOD, HEAT, **COMMON)),
    "lmc_ts": (langevin(0.0), bandits.lmc_ts(MODEL, 0.1, HEAT, num_steps=10, decay=True, **COMMON)),
    "fg_lmc_ts": (
        langevin(LAMBDA),
        bandits.lmc_ts(MODEL, 0.1, HEAT, num_steps=10, decay=True, feel_good=GOOD, **COMMON),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_regret_curve_is_that_of_a_plain_loop(name, optimised_jit):
    draw, algorithm = PAIRS[name]
    plain = np.array([Loop(seed).run(draw) for seed in range(NUM_LOOPS)])
    bandit = bandits.linear(ARMS, FEATURES, 0.5)
    run = optimised_jit(jax.vmap(lambda key: jnp.cumsum(bandits.simulate(key, bandit, algorithm, ROUNDS).regret)))
    ours = np.asarray(run(jax.random.split(jax.random.key(0), NUM_SEEDS)))
    for t in (10, 40, 79):
        error = np.sqrt(plain[:, t].var() / NUM_LOOPS + ours[:, t].var() / NUM_SEEDS)
        assert abs(plain[:, t].mean() - ours[:, t].mean()) < 4 * error
