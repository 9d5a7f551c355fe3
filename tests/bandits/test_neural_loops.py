"""Neural bandits against plain NumPy: own forward and backward pass, own optimisers, own replay, own exploration.

Exact tests give the loop the random numbers of the library. Curves of regret are compared in law, with the loop's own.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood import bandits, noise
from feelgood.bandits import perceptron
from feelgood.bandits.base import Context, Model, choice_probabilities
from marks import fast_only

ARMS, FEATURES, ROUNDS = 3, 2, 7
TRAINING = bandits.Training(
    width=6, depth=2, step_size=0.03, num_steps=2, batch_size=5, capacity=4, prior_precision=0.2
)


class Net:
    """Perceptrons in parallel, (n, …), in float64. `w` alternates weights (n, in, out) and biases (n, out)."""

    def __init__(self, w):
        self.w = [np.asarray(leaf, np.float64) for leaf in w]
        self.m, self.v, self.p = ([np.zeros_like(leaf) for leaf in self.w] for _ in range(3))
        self.count = 0

    @classmethod
    def of(cls, tree):
        """One perceptron with the library's parameters."""
        return cls([np.asarray(leaf)[None] for leaf in jax.tree.leaves(tree)])

    def layers(self, x):
        """Inputs of every layer, (n, b, in) each, and the values (n, b)."""
        inputs = [x]
        for w, b in zip(self.w[:-2:2], self.w[1:-2:2], strict=True):
            inputs.append(np.maximum(inputs[-1] @ w + b[:, None], 0))
        return inputs, (inputs[-1] @ self.w[-2])[..., 0] + self.w[-1]

    def values(self, x):
        return self.layers(x)[1]

    def gradients(self, x, share):
        """Σ_b share_b ∂f(x_b)/∂w for share (n, b)."""
        inputs, _ = self.layers(x)
        slope, found = share[..., None], []
        for i in range(len(inputs) - 1, -1, -1):
            found = [inputs[i].transpose(0, 2, 1) @ slope, slope.sum(1), *found]
            slope = (slope @ self.w[2 * i].transpose(0, 2, 1)) * (inputs[i] > 0)
        return found

    def loss_gradients(self, x, rewards, t, ridge, extra=0.0):
        """The gradient of the mean of (f + extra − r)² + ρ/(2t)·‖w‖²."""
        errors = self.values(x) + extra - rewards
        return [g + ridge / t * w for g, w in zip(self.gradients(x, 2 * errors / x.shape[1]), self.w, strict=True)]

    def adam(self, gradients, step):
        self.count += 1
        for w, m, v, g in zip(self.w, self.m, self.v, gradients, strict=True):
            m[:], v[:] = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            w -= step * m / (1 - 0.9**self.count) / (np.sqrt(v / (1 - 0.999**self.count)) + 1e-8)


def blocks(features):
    """Inputs of all arms, (A, ·): own features unchanged, a common context in the arm's block."""
    if len(features) == ARMS:
        return features.astype(float)
    rows = np.zeros((ARMS, ARMS * FEATURES))
    for a in range(ARMS):
        rows[a, a * FEATURES : (a + 1) * FEATURES] = features[0]
    return rows


class Past:
    """All rounds so far; the replay holds the last `capacity` of them, the oldest first to go."""

    def __init__(self, common):
        self.rng, self.shape, self.rounds = np.random.default_rng(1), (1 if common else ARMS, FEATURES), []

    def add(self):
        """A new round: its context, arm and reward as the library takes them."""
        features, a, r = self.rng.normal(size=self.shape), int(self.rng.integers(ARMS)), float(self.rng.normal())
        self.rounds.append((blocks(features.astype(np.float32)), a, r))
        return Context(jnp.asarray(features, jnp.float32)), jnp.int32(a), jnp.float32(r)

    @property
    def slots(self):
        """The round in each slot of the ring."""
        n, size = len(self.rounds), TRAINING.capacity
        return [i + (n - 1 - i) // size * size for i in range(min(n, size))]

    def batch(self, key, num_rows):
        """The library's draw: inputs of all arms (B, A, ·), arms, rewards and slots."""
        slots = np.asarray(jax.random.randint(key, (num_rows,), 0, min(len(self.rounds), TRAINING.capacity)))
        drawn = [self.rounds[self.slots[i]] for i in slots]
        x, a, r = (np.array(each) for each in zip(*drawn, strict=True))
        return x, a, r, slots


def played(x, a):
    return x[np.arange(len(a)), a][None]


def assert_same(tree, net, member=0):
    for ours, plain in zip(jax.tree.leaves(tree), net.w, strict=True):
        np.testing.assert_allclose(ours if ours.ndim < plain.ndim else ours[member], plain[0], rtol=2e-4, atol=2e-5)


def learnt(algorithm, common):
    """The past, the key of learning and the library's new state in each of a few rounds, from `init(key(0))` on."""
    past, learn = Past(common), jax.jit(algorithm.learn)
    state = algorithm.init(jax.random.key(0))
    for t in range(ROUNDS):
        key = jax.random.fold_in(jax.random.key(1), t)
        state = learn(key, state, *past.add())
        yield past, key, state


@pytest.mark.parametrize("common", [True, False])
def test_training_and_the_diagonal_are_those_of_a_plain_loop(common):
    """ε-greedy, NeuralUCB, NeuralTS and neural-linear TS share this training; U += g²/m is that of the first two."""
    model = Model(ARMS, FEATURES, not common)
    algorithm = bandits.neural_ucb(model, 0.7, 2.0, training=TRAINING)
    choose = jax.jit(algorithm.choose)
    net = Net.of(algorithm.init(jax.random.key(0)).net)
    diagonal = [np.full_like(w, 2.0) for w in net.w]
    for past, key, state in learnt(algorithm, common):
        x, a, _ = past.rounds[-1]
        diagonal = [u + g**2 / 6 for u, g in zip(diagonal, net.gradients(x[None, [a]], np.ones((1, 1))), strict=True)]
        for step_key in jax.random.split(key, 2):
            x, a, r, _ = past.batch(step_key, 5)
            net.adam(net.loss_gradients(played(x, a), r[None], len(past.rounds), 0.2), 0.03)
        assert_same(state.net, net)
        assert_same(state.extra, Net(diagonal))
        features = past.rng.normal(size=past.shape).astype(np.float32)
        each = [net.gradients(row[None, None], np.ones((1, 1))) for row in blocks(features)]
        norms = [sum(np.sum(g**2 / u) for g, u in zip(own, diagonal, strict=True)) for own in each]
        values = net.values(blocks(features)[None])[0]
        ours = perceptron.values_and_norms(model, state.net, state.extra, jnp.asarray(features))
        np.testing.assert_allclose(ours, [values, norms], rtol=1e-3, atol=1e-4)
        scores = values + 0.7 * np.sqrt(2.0 * np.array(norms) / 6)
        assert int(choose(key, state, Context(jnp.asarray(features)))[0]) == np.argmax(scores)


def state_and_choices(algorithm, num_rewards, num_draws=20_000):
    """The context, the state after the same reward a number of times, and the arms then chosen with many keys."""
    context = Context(jnp.array([[0.5, -1.0]]))
    learn, state = jax.jit(algorithm.learn), algorithm.init(jax.random.key(3))
    for t in range(num_rewards):
        state = learn(jax.random.key(t), state, context, jnp.int32(1), jnp.float32(2.0))
    keys = jax.random.split(jax.random.key(4), num_draws)
    actions = jax.jit(jax.vmap(lambda key: algorithm.choose(key, state, context)[0]))(keys)
    return np.asarray(context.features), state, np.asarray(actions)


def assert_share(hits, expected):
    """The share of hits is the expected one within four standard errors."""
    assert 0.02 < expected < 0.98  # else the test could not fail
    assert abs(np.mean(hits) - expected) < 4 * np.sqrt(expected * (1 - expected) / len(hits))


def normal_cdf(z):
    return (1 + math.erf(z / math.sqrt(2))) / 2


ONE = bandits.Training(width=16, step_size=0.05, capacity=8)


def pair(context, a):
    return np.concatenate([context if i == a else np.zeros_like(context) for i in range(2)], 1)


def test_epsilon_greedy_explores_with_its_probability():
    algorithm = bandits.neural_greedy(Model(2, 2, False), 0.3, training=ONE)
    context, state, actions = state_and_choices(algorithm, 1)
    values = [Net.of(state.net).values(pair(context, a)[None])[0, 0] for a in range(2)]
    assert_share(actions == np.argmax(values), 1 - 0.3 / 2)


def test_neural_ts_chooses_with_the_probability_of_two_normals():
    algorithm = bandits.neural_ts(Model(2, 2, False), 0.9, 1.5, training=ONE)
    context, state, actions = state_and_choices(algorithm, 2)
    net, diagonal = Net.of(state.net), [np.asarray(u)[None] for u in jax.tree.leaves(state.extra)]
    inputs = [pair(context, a)[None] for a in range(2)]
    means = [net.values(x)[0, 0] for x in inputs]
    squares = [
        1.5 / 16 * sum(np.sum(g**2 / u) for g, u in zip(net.gradients(x, np.ones((1, 1))), diagonal, strict=True))
        for x in inputs
    ]
    assert_share(actions == 0, normal_cdf((means[0] - means[1]) / (0.9 * np.sqrt(sum(squares)))))


def test_neural_linear_draws_the_regression_of_the_last_layer():
    """Equal rewards make every minibatch the same, so the posterior is known: N(P⁻¹b, T·P⁻¹)."""
    options = {"loss_weight": 0.1, "prior_precision": 0.7, "num_rows": 3, "training": ONE}
    algorithm = bandits.neural_linear(Model(2, 2, False), 0.4, **options)
    context, state, actions = state_and_choices(algorithm, 5)
    net = Net.of(state.net)
    last = lambda x: np.append(net.layers(x[None])[0][-1][0, 0], 1.0)
    phi = last(pair(context, 1))
    precision = 5 * 2 * 0.1 * np.outer(phi, phi) + 0.7 * np.eye(17)
    gap = last(pair(context, 0)) - phi
    mean = gap @ np.linalg.solve(precision, 5 * 2 * 0.1 * phi * 2.0)
    assert_share(actions == 0, normal_cdf(mean / np.sqrt(0.4 * gap @ np.linalg.solve(precision, gap))))


def test_members_of_the_ensemble_fit_their_own_noisy_rewards_plus_their_priors():
    options = {"num_members": 2, "prior_scale": 0.6, "noise_std": 0.5, "training": TRAINING}
    algorithm = bandits.neural_ensemble(Model(ARMS, FEATURES, False), **options)
    members = lambda tree: [Net([np.asarray(leaf[i : i + 1]) for leaf in jax.tree.leaves(tree)]) for i in range(2)]
    start = algorithm.init(jax.random.key(0))
    nets, priors, perturbed = members(start.net), members(start.extra[0]), np.zeros((2, TRAINING.capacity))
    for past, key, state in learnt(algorithm, True):
        key_noise, key_fit = jax.random.split(key)
        perturbed[:, (len(past.rounds) - 1) % 4] = 0.5 * np.asarray(noise.normal(key_noise, (2,)))
        for i, member_key in enumerate(jax.random.split(key_fit, 2)):
            for step_key in jax.random.split(member_key, 2):
                x, a, r, slots = past.batch(step_key, 5)
                x, target = played(x, a), (r + perturbed[i, slots])[None]
                extra = 0.6 * priors[i].values(x)
                nets[i].adam(nets[i].loss_gradients(x, target, len(past.rounds), 0.2, extra), 0.03)
            assert_same(state.net, nets[i], i)
    contexts = past.rng.normal(size=(20, 1, FEATURES)).astype(np.float32)
    share = lambda x: choice_probabilities(jax.random.key(5), algorithm, state, Context(x), ARMS, 400)
    for x, shares in zip(contexts, jax.jit(jax.vmap(share))(contexts), strict=True):
        both = zip(nets, priors, strict=True)
        best = [np.argmax(net.values(blocks(x)[None]) + 0.6 * prior.values(blocks(x)[None])) for net, prior in both]
        np.testing.assert_allclose(shares, np.bincount(best, minlength=ARMS) / 2, atol=4 * 0.5 / 20)


CHAINS = {
    "langevin": None,
    "adam_langevin": bandits.FeelGood(0.3, bound=0.4, decay=0.5),
    "underdamped": bandits.FeelGood(0.3, bound=0.4, smoothness=3.0),
}


@pytest.mark.parametrize("sampler", CHAINS)
def test_langevin_steps_are_those_of_a_plain_loop_with_the_same_noise(sampler):
    good, tau, heat = CHAINS[sampler], 0.02, 0.05
    algorithm = bandits.neural_langevin(
        Model(ARMS, FEATURES, False), tau, heat, good, sampler=sampler, training=TRAINING
    )
    past, choose, learn = Past(True), jax.jit(algorithm.choose), jax.jit(algorithm.learn)
    state = algorithm.init(jax.random.key(0))
    net = Net.of(state[0].params)
    for t in range(1, ROUNDS):
        context, a, r = past.add()
        state = learn(key := jax.random.key(t), state, context, a, r)
        for step_key in jax.random.split(key, 2):
            key_batch, key_noise = jax.random.split(step_key)
            xi = [np.asarray(leaf)[None] for leaf in jax.tree.leaves(noise.normal_like(key_noise, state[0].params))]
            x, a, r, _ = past.batch(key_batch, 5)
            gradients = net.loss_gradients(played(x, a), r[None], t, 0.2)
            if good is not None:
                values = np.stack([net.values(x[None, :, i])[0] for i in range(ARMS)], -1)
                best, lead = values.max(-1), values.argmax(-1)
                slope = best < 0.4 if good.smoothness is None else 1 / (1 + np.exp(3 * (best - 0.4)))
                share = -0.3 * (1 + t) ** -good.decay * slope / 5
                gradients = [g + h for g, h in zip(gradients, net.gradients(played(x, lead), share[None]), strict=True)]
            move(net, sampler, gradients, xi, tau, heat)
        features = past.rng.normal(size=(1, FEATURES)).astype(np.float32)
        arm, state = choose(key, state, Context(jnp.asarray(features)))
        assert_same(state[0].params, net)
        assert int(arm) == np.argmax(net.values(blocks(features)[None])[0])


def move(net, sampler, gradients, noises, tau, heat):
    for i, (g, xi) in enumerate(zip(gradients, noises, strict=True)):
        if sampler == "underdamped":  # BAOAB with γτ = 0.1
            p = net.p[i] - tau * g
            net.p[i] = math.exp(-0.1) * p + np.sqrt((1 - math.exp(-0.2)) * heat) * xi
            net.w[i] = net.w[i] + tau / 2 * (p + net.p[i])
            continue
        net.m[i], net.v[i] = 0.9 * net.m[i] + 0.1 * g, 0.99 * net.v[i] + 0.01 * g**2
        drift = g + net.m[i] / np.sqrt(net.v[i] + 1e-8) if sampler == "adam_langevin" else g
        net.w[i] = net.w[i] - tau * drift + np.sqrt(2 * tau * heat) * xi


# Whole regret curves.

LONG, NUM_LOOPS, NUM_SEEDS = 60, 200, 200
SMALL = bandits.Training(width=8, step_size=0.03, num_steps=2, batch_size=8, capacity=30, prior_precision=0.1)
PROBLEM = bandits.quadratic(ARMS, FEATURES, 0.1)


class Curves:
    """Many runs in parallel with their own random numbers."""

    def __init__(self):
        self.rng = np.random.default_rng(2)
        self.x, self.a, self.r = [], [], []

    def perceptrons(self, copies=1):
        """Fresh ones, a list of `copies`."""
        shapes = [(FEATURES, 8), (8,), (8, 1), (1,)]
        spread = lambda shape: np.sqrt(2 / shape[0]) if len(shape) == 2 else 0.0
        draw = lambda shape: spread(shape) * self.rng.normal(size=(NUM_LOOPS, *shape))
        return [Net([draw(shape) for shape in shapes]) for _ in range(copies)]

    def batch(self):
        """Inputs of all arms (n, B, A, k), arms, rewards and rounds of a minibatch of the last 30 rounds."""
        t = len(self.x)
        rows = self.rng.integers(max(t - 30, 0), t, size=(NUM_LOOPS, 8))
        x, a, r = (np.stack(each, 1)[np.arange(NUM_LOOPS)[:, None], rows] for each in (self.x, self.a, self.r))
        return x, a, r, rows

    def run(self, choose, learn):
        unit = lambda v: v / np.linalg.norm(v, axis=-1, keepdims=True)
        theta, each, regret = unit(self.rng.normal(size=(NUM_LOOPS, FEATURES))), np.arange(NUM_LOOPS), []
        for _ in range(LONG):
            x = unit(self.rng.normal(size=(NUM_LOOPS, ARMS, FEATURES)))
            a = np.argmax(choose(x), 1)
            means = 10 * (x @ theta[..., None])[..., 0] ** 2
            regret.append(means.max(1) - means[each, a])
            self.x, self.a = [*self.x, x], [*self.a, a]
            self.r = [*self.r, means[each, a] + 0.1 * self.rng.normal(size=NUM_LOOPS)]
            learn()
        return np.cumsum(regret, 0).T


def arm_inputs(x, a):
    return np.take_along_axis(x, a[..., None, None], 2)[:, :, 0]


def neural_ts(curves):
    (net,) = curves.perceptrons()
    diagonal = [np.full_like(w, 0.5) for w in net.w]
    squares = lambda x: [g**2 / 8 for g in net.gradients(x[:, None], np.ones((NUM_LOOPS, 1)))]

    def choose(x):
        variance = np.zeros((NUM_LOOPS, ARMS))
        for arm in range(ARMS):
            for g2, u in zip(squares(x[:, arm]), diagonal, strict=True):
                variance[:, arm] += 0.5 * np.sum((g2 / u).reshape(NUM_LOOPS, -1), 1)
        return net.values(x) + 8.0 * np.sqrt(variance) * curves.rng.normal(size=variance.shape)

    def learn():
        x = curves.x[-1][np.arange(NUM_LOOPS), curves.a[-1]]
        for u, g2 in zip(diagonal, squares(x), strict=True):
            u += g2
        for _ in range(2):
            x, a, r, _ = curves.batch()
            net.adam(net.loss_gradients(arm_inputs(x, a), r, len(curves.x), 0.1), 0.03)

    return choose, learn


def ensemble(curves):
    nets, priors, noises = curves.perceptrons(2), curves.perceptrons(2), []

    def choose(x):
        scores = [net.values(x) + 15.0 * prior.values(x) for net, prior in zip(nets, priors, strict=True)]
        return np.where(curves.rng.uniform(size=(NUM_LOOPS, 1)) < 0.5, *scores)

    def learn():
        noises.append(6.0 * curves.rng.normal(size=(NUM_LOOPS, 2)))
        for i, (net, prior) in enumerate(zip(nets, priors, strict=True)):
            for _ in range(2):
                x, a, r, rows = curves.batch()
                x, own = arm_inputs(x, a), np.stack(noises, 1)[np.arange(NUM_LOOPS)[:, None], rows, i]
                net.adam(net.loss_gradients(x, r + own, len(curves.x), 0.1, 15.0 * prior.values(x)), 0.03)

    return choose, learn


def feel_good_langevin(curves):
    (net,) = curves.perceptrons()

    def choose(x):
        for _ in range(2 if curves.x else 0):
            past, a, r, _ = curves.batch()
            gradients = net.loss_gradients(arm_inputs(past, a), r, len(curves.x), 0.1)
            values = np.stack([net.values(past[:, :, i]) for i in range(ARMS)], -1)
            share = np.full((NUM_LOOPS, 8), -8.0 / 8)
            leads = net.gradients(arm_inputs(past, values.argmax(-1)), share)
            xi = [curves.rng.normal(size=w.shape) for w in net.w]
            move(net, "adam_langevin", [g + h for g, h in zip(gradients, leads, strict=True)], xi, 0.01, 1.0)
        return net.values(x)

    return choose, lambda: None


# Exploration is strong, so that the curves depend on it.
GOOD = bandits.FeelGood(8.0)
PAIRS = {
    "neural_ts": (neural_ts, lambda model: bandits.neural_ts(model, 8.0, 0.5, training=SMALL)),
    "neural_ensemble": (ensemble, lambda model: bandits.neural_ensemble(model, 2, 15.0, 6.0, training=SMALL)),
    "neural_langevin": (
        feel_good_langevin,
        lambda model: bandits.neural_langevin(model, 0.01, 1.0, GOOD, sampler="adam_langevin", training=SMALL),
    ),
}


# The updates and choices of the other two are compared number by number above.
@pytest.mark.parametrize("name", fast_only(("neural_ts",), PAIRS))
def test_the_regret_curve_is_that_of_a_plain_neural_loop(name):
    make_loop, make = PAIRS[name]
    plain = (curves := Curves()).run(*make_loop(curves))
    one = lambda key: jnp.cumsum(bandits.simulate(key, PROBLEM, make(PROBLEM.model), LONG).regret)
    ours = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), NUM_SEEDS)))
    for t in (10, 30, LONG - 1):
        error = np.sqrt(plain[:, t].var() / NUM_LOOPS + ours[:, t].var() / NUM_SEEDS)
        assert abs(plain[:, t].mean() - ours[:, t].mean()) < 4 * error
