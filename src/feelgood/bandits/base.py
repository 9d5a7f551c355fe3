"""Contextual bandits as pure functions: rounds, algorithms, and the loop that measures exact regret.

In round t the environment shows a context and the algorithm picks one of A arms. Arm values are linear in features,

    f_θ(x, a) = ⟨θ_{g(a)}, φ_a⟩,

where either every arm has parameters of its own (g(a) = a) or all arms share them (g(a) = 0). θ has shape (G, k) with
G = A or 1; features have shape (A, k), or (1, k) if all arms see the same context.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from feelgood.checks import check_count
from feelgood.typing import Array, PRNGKey


class Model(NamedTuple):
    """The shape of the arms' parameters.

    Attributes:
      num_arms: A.
      num_features: k, of one arm.
      shared: whether all arms share one parameter vector.
    """

    num_arms: int
    num_features: int
    shared: bool

    @property
    def num_groups(self) -> int:
        """G, the number of parameter vectors."""
        return 1 if self.shared else self.num_arms

    @property
    def size(self) -> int:
        """d = G·k, the number of parameters."""
        return self.num_groups * self.num_features

    def check(self) -> "Model":
        """Raises ValueError if a count is not a whole number of at least one."""
        check_count("num_arms", self.num_arms)
        check_count("num_features", self.num_features)
        return self

    def zeros(self) -> Array:
        """Parameters of zero, (G, k)."""
        return jnp.zeros((self.num_groups, self.num_features))

    def mask(self, action: Array) -> Array:
        """One-hot vector of the group of an arm, (G,)."""
        return jnp.ones(1) if self.shared else (jnp.arange(self.num_arms) == action).astype(jnp.float32)


class Context(NamedTuple):
    """The information that an algorithm has when it picks an arm.

    Attributes:
      features: (A, k), or (1, k) if all arms see the same vector.
      available: (A,), true for arms that can be picked; None if all can.
    """

    features: Array
    available: Array | None = None

    def row(self, action: Array) -> Array:
        """φ_a of one arm, (k,)."""
        return self.features[0] if self.features.shape[0] == 1 else self.features[action]


class Round(NamedTuple):
    """One round of an environment: the context, and for every arm its expected and its realised reward, (A,) each."""

    context: Context
    means: Array
    rewards: Array


class Bandit(NamedTuple):
    """An environment as pure functions.

    Attributes:
      init: `key -> instance`, such as the true parameters θ*.
      round: `(key, instance, t) -> Round`, t = 0, 1, ….
      model: the shape of the arms' features.
    """

    init: Callable[[PRNGKey], Any]
    round: Callable[[PRNGKey, Any, Array], Round]
    model: Model


class Algorithm(NamedTuple):
    """A bandit algorithm as pure functions.

    Attributes:
      init: `key -> state`.
      choose: `(key, state, context) -> (action, state)`; a chain moves here, so that the state changes too.
      learn: `(key, state, context, action, reward) -> state`.
    """

    init: Callable[[PRNGKey], Any]
    choose: Callable[[PRNGKey, Any, Context], tuple[Array, Any]]
    learn: Callable[[PRNGKey, Any, Context, Array, Array], Any]


class Curve(NamedTuple):
    """One entry per round: regret max_a μ_a − μ_{a_t} (exact, not accumulated), reward, action and recorded facts."""

    regret: Array
    reward: Array
    action: Array
    facts: Any = ()

    @property
    def cumulative_regret(self) -> Array:
        """The sum of regrets up to each round: the column `regret` of a study's tables."""
        return jnp.cumsum(self.regret, -1)


def best_arm(scores: Array, context: Context) -> Array:
    """The available arm with the largest score.

    Examples:
      >>> import jax.numpy as jnp
      >>> scores, everything = jnp.array([0.1, 0.9, 0.5]), Context(jnp.ones((1, 2)))
      >>> int(best_arm(scores, everything)), int(best_arm(scores, everything._replace(available=scores < 0.6)))
      (1, 2)
    """
    if context.available is not None:
        scores = jnp.where(context.available, scores, -jnp.inf)
    return jnp.argmax(scores)


def simulate(
    key: PRNGKey,
    bandit: Bandit,
    algorithm: Algorithm,
    num_rounds: int,
    *,
    batch_size: int = 1,
    delay: int = 0,
    record: Callable[[Any], Any] = lambda state: (),
) -> Curve:
    """Runs an algorithm for T rounds. The whole run is one `scan`; `jax.vmap` over keys makes many runs.

    Args:
      key: key of the instance, the contexts, the rewards and the algorithm.
      bandit: the environment.
      algorithm: any of this package, or yours.
      num_rounds: T, a multiple of `batch_size`.
      batch_size: arms picked with the same state before their rewards are learnt.
      delay: batches that pass before the rewards of a batch arrive.
      record: `state -> facts` to keep for every round, from the state before its reward is learnt.

    Examples:
      >>> import jax
      >>> from feelgood import bandits
      >>> bandit = bandits.linear(num_arms=3, num_features=2)
      >>> curve = simulate(jax.random.key(0), bandit, bandits.lin_ts(bandit.model), 500)
      >>> bool(curve.regret[-100:].mean() < curve.regret[:100].mean())
      True
    """
    num_rounds = check_count("num_rounds", num_rounds)
    batch_size = check_count("batch_size", batch_size)
    delay = check_count("delay", delay, minimum=0)
    if num_rounds % batch_size:
        raise ValueError(f"num_rounds must be a multiple of batch_size {batch_size}, got {num_rounds}")
    key_instance, key_init, key_rounds = jax.random.split(key, 3)
    instance = bandit.init(key_instance)

    def act(key: PRNGKey, state: Any, t: Array):
        key_round, key_choose = jax.random.split(key)
        now = bandit.round(key_round, instance, t)
        _check_round(now, bandit.model)
        chosen = algorithm.choose(key_choose, state, now.context)
        if not isinstance(chosen, tuple) or len(chosen) != 2:
            raise ValueError(f"choose of an algorithm must return (action, state), got {chosen!r}")
        action, state = chosen
        best = now.means if now.context.available is None else jnp.where(now.context.available, now.means, -jnp.inf)
        curve = Curve(jnp.max(best) - now.means[action], now.rewards[action], action, record(state))
        return state, (now.context, curve)

    def learn(state: Any, inputs):
        key, context, curve = inputs
        return algorithm.learn(key, state, context, curve.action, curve.reward), None

    def learn_all(key: PRNGKey, state: Any, due):
        if batch_size == 1:
            return learn(state, (key, *due))[0]
        return jax.lax.scan(learn, state, (jax.random.split(key, batch_size), *due))[0]

    def step(carry, inputs):
        state, waiting = carry
        key, t = inputs
        key_act, key_learn = jax.random.split(key)
        if batch_size == 1:
            state, new = act(key_act, state, t)
        else:
            keys = jax.random.split(key_act, batch_size)
            states, new = jax.vmap(act, in_axes=(0, None, 0))(keys, state, t * batch_size + jnp.arange(batch_size))
            # Chains branch within a batch; the branch of its last round goes on.
            state = jax.tree.map(lambda leaf: leaf[-1], states)
        if delay == 0:
            return (learn_all(key_learn, state, new), waiting), new[1]
        slot = t % delay  # holds the batch that is due, and then the new one
        learnt = learn_all(key_learn, state, jax.tree.map(lambda leaf: leaf[slot], waiting))
        state = jax.tree.map(lambda a, b: jnp.where(t >= delay, a, b), learnt, state)
        return (state, jax.tree.map(lambda leaf, value: leaf.at[slot].set(value), waiting, new)), new[1]

    state = algorithm.init(key_init)
    waiting = None
    if delay:
        shapes = jax.eval_shape(lambda key: act(key, state, jnp.int32(0))[1], key_rounds)
        lead = (delay,) if batch_size == 1 else (delay, batch_size)
        waiting = jax.tree.map(lambda leaf: jnp.zeros((*lead, *leaf.shape), leaf.dtype), shapes)
    num_steps = num_rounds // batch_size
    inputs = jax.random.split(key_rounds, num_steps), jnp.arange(num_steps)
    curve = jax.lax.scan(step, (state, waiting), inputs)[1]
    return curve if batch_size == 1 else jax.tree.map(lambda leaf: leaf.reshape(num_rounds, *leaf.shape[2:]), curve)


def _check_round(found: Any, model: Model) -> None:
    """Requires a round in the shapes of the model; an arm too many would read the last arm's reward."""
    if not isinstance(found, Round):
        raise ValueError(f"round of a bandit must return a Round, got {type(found).__name__}")
    for name in ("means", "rewards"):
        if (shape := jnp.shape(getattr(found, name))) != (model.num_arms,):
            raise ValueError(f"{name} of a Round must have shape ({model.num_arms},), one for each arm, got {shape}")
    shape, k = jnp.shape(found.context.features), model.num_features
    allowed = [(model.num_arms, k)] if model.shared else [(model.num_arms, k), (1, k)]
    if shape not in allowed:  # arms that share their weights would all look alike in one row
        wanted = " or ".join(map(str, allowed))
        raise ValueError(f"features of a Context must have shape {wanted}, got {shape}")


def choice_probabilities(
    key: PRNGKey, algorithm: Algorithm, state: Any, context: Context, num_arms: int, num_draws: int = 1000
) -> Array:
    """The probability of each arm, (A,), as the frequency of choices over `num_draws` keys.

    For a chain these are the probabilities of the next choice given the chain's present state.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from feelgood import bandits
      >>> model, context = bandits.Model(2, 1, shared=False), bandits.Context(jnp.ones((1, 1)))
      >>> algorithm = bandits.epsilon_greedy(model, epsilon=0.4)
      >>> estimate = lambda key: choice_probabilities(key, algorithm, algorithm.init(key), context, num_arms=2)
      >>> [round(p, 1) for p in jax.jit(estimate)(jax.random.key(0)).tolist()]  # the first arm: 1 - 0.4 + 0.4/2
      [0.8, 0.2]
    """
    num_draws = check_count("num_draws", num_draws)
    keys = jax.random.split(key, num_draws)
    actions = jax.vmap(lambda key: algorithm.choose(key, state, context)[0])(keys)
    return jnp.mean(actions[:, None] == jnp.arange(num_arms)[None, :], axis=0)
