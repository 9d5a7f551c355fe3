"""Linear MDPs: their definition, exact planning in them, and a suite of them.

A finite-horizon MDP with stages h = 0 … H−1 is linear in the features φ(s, a) ∈ R^d if

    P_h(s' | s, a) = ⟨φ(s, a), μ_h(s')⟩,    r_h(s, a) = ⟨φ(s, a), θ_h⟩,
    ‖φ(s, a)‖ ≤ 1,    ‖μ_h(S)‖ ≤ √d,    ‖θ_h‖ ≤ √d,    r ∈ [0, 1].

States are finite here, so values of policies, and with them regret, are exact.

Examples:
  >>> from feelgood.linear import mdps
  >>> chain = mdps.nchain(length=4)
  >>> q, v = mdps.optimal_values(chain)
  >>> float(v[0, 1]), mdps.greedy_policy(q)[0].tolist()  # always right, from the second state
  (10.0, [1, 1, 1, 1])
  >>> round(float(mdps.policy_values(chain, 0 * mdps.greedy_policy(q))[0, 1]), 3)  # always left
  0.011
  >>> [mdp.dimension for mdp in (mdps.riverswim(), mdps.combination_lock(), mdps.random_simplex(), mdps.hypercube())]
  [12, 6, 10, 5]
  >>> transitions, rewards = mdps.tables(chain)
  >>> mdps.tabular(transitions, rewards, 1).horizon, mdps.from_tables(chain.features, transitions, rewards, 1).horizon
  (12, 12)
  >>> mdps.linear_mdp(chain.features, chain.measures, 2 * chain.weights, chain.initial)
  Traceback (most recent call last):
  ...
  ValueError: not a linear MDP: rewards must be in [0, 1], got 2 at index (0, 3, 1)
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.checks import check_count, check_positive
from feelgood.typing import Array

_TOLERANCE = 1e-4


class LinearMDP(NamedTuple):
    """A linear MDP by its definition.

    Attributes:
      features: φ, (num_states, num_actions, d).
      measures: μ_h(s'), (horizon, d, num_states).
      weights: θ_h, (horizon, d).
      initial: law of the first state, (num_states,).
    """

    features: Array
    measures: Array
    weights: Array
    initial: Array

    @property
    def horizon(self) -> int:
        """H, stages of an episode."""
        return self.measures.shape[0]

    @property
    def num_states(self) -> int:
        """Number of states, the same in every stage."""
        return self.features.shape[0]

    @property
    def num_actions(self) -> int:
        """Number of actions, the same in every state."""
        return self.features.shape[1]

    @property
    def dimension(self) -> int:
        """d, number of features."""
        return self.features.shape[2]


class Tables(NamedTuple):
    """An MDP written out: `transitions[h, s, a, s']` and `rewards[h, s, a]`."""

    transitions: Array
    rewards: Array


def tables(mdp: LinearMDP) -> Tables:
    """Writes transitions and rewards out."""
    return Tables(
        jnp.einsum("sad,hdt->hsat", mdp.features, mdp.measures, precision="highest"),
        jnp.einsum("sad,hd->hsa", mdp.features, mdp.weights, precision="highest"),
    )


def linear_mdp(features, measures, weights, initial) -> LinearMDP:
    """Builds a linear MDP and checks that it is one.

    Args:
      features: φ, (num_states, num_actions, d).
      measures: μ, (horizon, d, num_states).
      weights: θ, (horizon, d).
      initial: law of the first state, (num_states,), or the number of a state.

    Raises:
      ValueError: names the first condition of the definition that fails, where, and by how much.
    """
    features, measures, weights = (np.asarray(x, np.float64) for x in (features, measures, weights))
    if features.ndim != 3:
        raise ValueError(f"features must have shape (num_states, num_actions, d), got {features.shape}")
    num_states, _, d = features.shape
    if measures.ndim != 3 or measures.shape[1:] != (d, num_states):
        raise ValueError(f"measures must have shape (horizon, {d}, {num_states}), got {measures.shape}")
    horizon = measures.shape[0]
    if horizon < 1:
        raise ValueError("horizon must be a whole number of at least 1, got 0")
    if weights.shape != (horizon, d):
        raise ValueError(f"weights must have shape ({horizon}, {d}), got {weights.shape}")
    law = np.asarray(initial, np.float64)
    if law.ndim == 0:
        law = (np.arange(num_states) == law).astype(np.float64)
    if law.shape != (num_states,) or not (law >= 0).all() or not abs(law.sum() - 1) <= _TOLERANCE:
        raise ValueError(f"initial must be a law over {num_states} states or the number of one, got {initial!r}")
    transitions = np.einsum("sad,hdt->hsat", features, measures)
    rewards = np.einsum("sad,hd->hsa", features, weights)
    _require("transition probabilities", transitions, transitions >= -_TOLERANCE, "at least 0")
    sums = transitions.sum(-1)
    _require("sums of transition probabilities", sums, np.abs(sums - 1) <= _TOLERANCE, "1")
    _require("rewards", rewards, (rewards >= -_TOLERANCE) & (rewards <= 1 + _TOLERANCE), "in [0, 1]")
    norms = np.linalg.norm(features, axis=-1)
    _require("norms of features", norms, norms <= 1 + _TOLERANCE, "at most 1")
    for name, vectors in (("measures of all states", measures.sum(-1)), ("weights", weights)):
        norms = np.linalg.norm(vectors, axis=-1)
        _require(f"norms of {name}", norms, norms <= np.sqrt(d) + _TOLERANCE, f"at most √d = {np.sqrt(d):.4g}")
    return LinearMDP(*(jnp.asarray(x, jnp.float32) for x in (features, measures, weights, law)))


def _require(name: str, values: np.ndarray, good: np.ndarray, allowed: str) -> None:
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        raise ValueError(f"not a linear MDP: {name} must be {allowed}, got {values[where]:.6g} at index {where}")


def from_tables(features, transitions, rewards, initial) -> LinearMDP:
    """Finds measures and weights that make the tables linear in the features, or raises an error if there are none.

    Args:
      features: φ, (num_states, num_actions, d).
      transitions: P, (horizon, num_states, num_actions, num_states).
      rewards: r, (horizon, num_states, num_actions).
      initial: law of the first state, or the number of a state.
    """
    features, transitions, rewards = (np.asarray(x, np.float64) for x in (features, transitions, rewards))
    if features.ndim != 3:
        raise ValueError(f"features must have shape (num_states, num_actions, d), got {features.shape}")
    num_states, num_actions, d = features.shape
    if transitions.ndim != 4 or transitions.shape[1:] != (num_states, num_actions, num_states):
        raise ValueError(
            f"transitions must have shape (horizon, {num_states}, {num_actions}, {num_states}), got {transitions.shape}"
        )
    if rewards.shape != transitions.shape[:3]:
        raise ValueError(f"rewards must have shape {transitions.shape[:3]}, got {rewards.shape}")
    if not len(transitions):
        raise ValueError("horizon must be a whole number of at least 1, got 0")
    inverse = np.linalg.pinv(features.reshape(-1, d))
    solve = lambda table: np.einsum("dn,hnx->hdx", inverse, table.reshape(len(table), num_states * num_actions, -1))
    measures, weights = solve(transitions), solve(rewards)[..., 0]
    for name, table, fit in (
        ("transitions", transitions, np.einsum("sad,hdt->hsat", features, measures)),
        ("rewards", rewards, np.einsum("sad,hd->hsa", features, weights)),
    ):
        error = np.abs(table - fit)
        if error.max() > _TOLERANCE:
            stage = int(np.unravel_index(error.argmax(), error.shape)[0])
            raise ValueError(
                f"features do not make this a linear MDP: the best linear fit misses the {name} of stage {stage} "
                f"by {error.max():.3g}"
            )
    return linear_mdp(features, measures, weights, initial)


def optimal_values(mdp: LinearMDP | Tables) -> tuple[Array, Array]:
    """Q* of shape (H, S, A) and V* of shape (H + 1, S), by backward induction."""
    transitions, rewards = mdp if isinstance(mdp, Tables) else tables(mdp)

    def back(value: Array, stage: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        q = stage[1] + jnp.einsum("sat,t->sa", stage[0], value, precision="highest")
        return q.max(-1), (q, q.max(-1))

    end = jnp.zeros(rewards.shape[1], rewards.dtype)
    _, (q, v) = jax.lax.scan(back, end, (transitions, rewards), reverse=True)
    return q, jnp.concatenate([v, end[None]])


def policy_values(mdp: LinearMDP | Tables, policy: Array) -> Array:
    """V^π of shape (H + 1, S) for a policy of shape (H, S) that holds actions."""
    transitions, rewards = mdp if isinstance(mdp, Tables) else tables(mdp)
    states = jnp.arange(rewards.shape[1])

    def back(value: Array, stage: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        matrix, reward, action = stage
        value = reward[states, action] + jnp.einsum("st,t->s", matrix[states, action], value, precision="highest")
        return value, value

    end = jnp.zeros(rewards.shape[1], rewards.dtype)
    _, values = jax.lax.scan(back, end, (transitions, rewards, policy), reverse=True)
    return jnp.concatenate([values, end[None]])


def greedy_policy(q_values: Array) -> Array:
    """The policy (H, S) that is greedy in Q (H, S, A); the first of equal actions."""
    return jnp.argmax(q_values, -1).astype(jnp.int32)


def tabular(transitions, rewards, initial) -> LinearMDP:
    """Any finite MDP as a linear one, d = num_states · num_actions, φ(s, a) a unit vector.

    Args:
      transitions: P_h(s' | s, a), (H, S, A, S).
      rewards: r_h(s, a), (H, S, A).
      initial: see `linear_mdp`.
    """
    transitions, rewards = np.asarray(transitions, np.float64), np.asarray(rewards, np.float64)
    if transitions.ndim != 4 or transitions.shape[1] != transitions.shape[3]:
        raise ValueError(f"transitions must have shape (H, S, A, S), a table for each stage, got {transitions.shape}")
    if rewards.shape != transitions.shape[:3]:
        raise ValueError(f"rewards must have shape (H, S, A) = {transitions.shape[:3]}, got {rewards.shape}")
    num_states, num_actions = transitions.shape[1:3]
    d = num_states * num_actions
    features = np.eye(d).reshape(num_states, num_actions, d)
    measures = transitions.reshape(-1, d, num_states)
    return linear_mdp(features, measures, rewards.reshape(-1, d), initial)


def random_simplex(
    seed: int = 0, *, dimension: int = 10, num_states: int = 20, num_actions: int = 4, horizon: int = 10
) -> LinearMDP:
    """A random linear MDP whose features are points of the simplex, so that every state mixes d latent ones.

    Features are Dirichlet(1/d), most of them near a corner; each μ_h^{(i)} is a Dirichlet(1/2) law over states; each
    θ_h^{(i)} is the square of a uniform number. The first state is uniform.
    """
    dimension = check_count("dimension", dimension)
    num_states = check_count("num_states", num_states)
    num_actions = check_count("num_actions", num_actions)
    horizon = check_count("horizon", horizon)
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.full(dimension, 1 / dimension), (num_states, num_actions))
    measures = rng.dirichlet(np.full(num_states, 0.5), (horizon, dimension))
    weights = rng.uniform(size=(horizon, dimension)) ** 2
    return linear_mdp(features, measures, weights, np.full(num_states, 1 / num_states))


def riverswim(num_states: int = 6, horizon: int = 20) -> LinearMDP:
    """RiverSwim: swimming right against the current pays 1 at the far end, drifting left 0.005 at the near one.

    References:
      Strehl and Littman (2008), "An analysis of model-based interval estimation for Markov decision processes".
    """
    num_states = check_count("num_states", num_states, minimum=2)
    horizon = check_count("horizon", horizon)
    left, right = 0, 1
    last = num_states - 1
    matrix = np.zeros((num_states, 2, num_states))
    for s in range(num_states):
        matrix[s, left, max(s - 1, 0)] = 1
        if s == 0:
            matrix[s, right, [0, 1]] = 0.4, 0.6
        elif s == last:
            matrix[s, right, [s - 1, s]] = 0.4, 0.6
        else:
            matrix[s, right, [s - 1, s, s + 1]] = 0.05, 0.6, 0.35
    rewards = np.zeros((num_states, 2))
    rewards[0, left], rewards[last, right] = 0.005, 1
    return tabular(np.tile(matrix, (horizon, 1, 1, 1)), np.tile(rewards, (horizon, 1, 1)), 0)


def nchain(length: int = 6) -> LinearMDP:
    """The N-chain of the deep experiments as a table: N states, N + 8 stages, start at index 1, optimum 10."""
    length = check_count("length", length, minimum=4)
    left, right = 0, 1
    matrix = np.zeros((length, 2, length))
    states = np.arange(length)
    matrix[states, left, np.maximum(states - 1, 0)] = 1
    matrix[states, right, np.minimum(states + 1, length - 1)] = 1
    rewards = np.zeros((length, 2))
    rewards[0, left], rewards[-1, right] = 0.001, 1
    return tabular(np.tile(matrix, (length + 8, 1, 1, 1)), np.tile(rewards, (length + 8, 1, 1)), 1)


def combination_lock(horizon: int = 6, num_actions: int = 3, seed: int = 0) -> LinearMDP:
    """A lock: at each stage one action keeps it open, any other shuts it for good; only the last stage pays."""
    horizon = check_count("horizon", horizon)
    num_actions = check_count("num_actions", num_actions, minimum=2)
    opened, shut = 0, 1
    code = np.random.default_rng(seed).integers(num_actions, size=horizon)
    transitions = np.zeros((horizon, 2, num_actions, 2))
    transitions[..., shut] = 1
    transitions[np.arange(horizon), opened, code] = 1, 0
    rewards = np.zeros((horizon, 2, num_actions))
    rewards[-1, opened, code[-1]] = 1
    return tabular(transitions, rewards, opened)


def hypercube(dimension: int = 5, horizon: int = 5, gap: float = 0.8, seed: int = 0) -> LinearMDP:
    """The instance of the lower-bound literature: actions are corners of a cube, and one corner is a little better.

    In state "waiting" an action a ∈ {−1, 1}^(d−2) wins with probability (1 + gap·⟨σ_h, a⟩/(d−2))/(2H), σ_h a hidden
    corner; a won episode pays 1 at every later stage. To find σ_h one must learn d − 2 signs per stage, each of which
    adds only 1/(d−2) of the gap.

    Args:
      dimension: d, at least 3 (2^(d−2) actions).
      horizon: H.
      gap: the advantage of σ_h, in (0, 1].
      seed: seed of the hidden corners.

    References:
      Zhou, Gu and Szepesvári (2021), "Nearly minimax optimal reinforcement learning for linear mixture MDPs".
    """
    dimension = check_count("dimension", dimension, minimum=3)
    horizon = check_count("horizon", horizon)
    check_positive("gap", gap)
    if gap > 1:
        raise ValueError(f"gap must be in (0, 1], got {gap}")
    num_signs = dimension - 2
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=num_signs)))
    hidden = np.random.default_rng(seed).choice((-1.0, 1.0), size=(horizon, num_signs))
    base = 1 / (2 * horizon)
    tilt = base * gap / num_signs  # of the winning probability, per sign
    # φ(waiting, a) = (α, βa, 0) with α² + β²(d−2) = 1; β² ∝ the tilt keeps all norms in bounds.
    share = num_signs * tilt
    alpha, beta = np.sqrt(1 / (1 + share)), np.sqrt(tilt / (1 + share))
    features = np.zeros((2, len(corners), dimension))
    features[0, :, 0], features[0, :, 1:-1] = alpha, beta * corners
    features[1, :, -1] = 1
    measures = np.zeros((horizon, dimension, 2))
    measures[:, 0, 0], measures[:, 0, 1] = (1 - base) / alpha, base / alpha
    measures[:, 1:-1, 0], measures[:, 1:-1, 1] = -tilt * hidden / beta, tilt * hidden / beta
    measures[:, -1, 1] = 1
    weights = np.zeros((horizon, dimension))
    weights[:, -1] = 1
    return linear_mdp(features, measures, weights, 0)


SUITE: dict[str, Callable[[], LinearMDP]] = {
    "simplex": lambda: random_simplex(dimension=5, num_states=10, num_actions=4, horizon=5),
    "riverswim": lambda: riverswim(num_states=4, horizon=10),
    "nchain": lambda: nchain(length=4),
    "lock": lambda: combination_lock(horizon=5, num_actions=3),
    "hypercube": lambda: hypercube(dimension=5, horizon=5),
}
