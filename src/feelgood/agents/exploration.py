"""Exploration rules: how actions are chosen from action values."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from feelgood.typing import Array, PRNGKey, Scalar


class Exploration(NamedTuple):
    """An exploration rule: how actions are chosen from action values.

    Attributes:
      begin: `key -> context`, called once per episode.
      explore: `(key, context, values, progress) -> action`.
      exploit: `(key, context, values) -> action`.
    """

    begin: Callable[[PRNGKey], Array]
    explore: Callable[[PRNGKey, Array, Array, Scalar], Array]
    exploit: Callable[[PRNGKey, Array, Array], Array]


def _no_context(key: PRNGKey) -> Array:
    del key
    return jnp.zeros((), jnp.int32)


def _best(values: Array) -> Array:
    return jnp.argmax(values, -1).astype(jnp.int32)


def greedy() -> Exploration:
    """Takes the greedy action; exploration comes from the randomness of the sampled parameters.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> int(greedy().exploit(jax.random.key(0), jnp.array(0), jnp.array([0.1, 0.7, 0.2])))
      1
    """
    return Exploration(
        _no_context, lambda key, context, values, progress: _best(values), lambda key, context, values: _best(values)
    )


def _perturbed(key: PRNGKey, action: Array, num_actions: int, epsilon: Scalar) -> Array:
    key_coin, key_action = jax.random.split(key)
    other = jax.random.randint(key_action, action.shape, 0, num_actions, jnp.int32)
    return jnp.where(jax.random.uniform(key_coin, action.shape) < epsilon, other, action)


def _linear(start: Scalar, end: Scalar, fraction: Scalar, progress: Scalar) -> Array:
    share = progress / jnp.where(jnp.asarray(fraction) > 0, fraction, 1.0)
    return start + (end - start) * jnp.where(progress < fraction, share, 1.0)


def epsilon_greedy(start: Scalar = 1.0, end: Scalar = 0.01, fraction: Scalar = 0.1) -> Exploration:
    """Takes a uniform action with probability ε, which falls linearly over the first `fraction` of the budget.

    Evaluation is greedy.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> rule, values = epsilon_greedy(start=1.0, end=0.0, fraction=0.5), jnp.array([0.1, 0.7])
      >>> keys = jax.random.split(jax.random.key(0), 1000)
      >>> actions = jax.jit(jax.vmap(lambda key, progress: rule.explore(key, 0, values, progress), (0, None)))
      >>> [round(actions(keys, progress).tolist().count(1) / 1000, 1) for progress in (0.0, 0.2, 0.5)]  # 1 - ε/2
      [0.5, 0.7, 1.0]
    """

    def explore(key, context, values, progress):
        return _perturbed(key, _best(values), values.shape[-1], _linear(start, end, fraction, progress))

    return Exploration(_no_context, explore, lambda key, context, values: _best(values))


def one_member_an_episode(
    num_members: int, start: Scalar = 1.0, end: Scalar = 0.01, fraction: Scalar = 0.1
) -> Exploration:
    """Follows one ensemble member, drawn at the start of each episode, in training and in evaluation.

    In training, actions are ε-greedy with the schedule of `epsilon_greedy`. Values have shape (members, actions).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> rule, values = one_member_an_episode(2), jnp.array([[1.0, 0.0], [0.0, 1.0]])
      >>> [int(rule.exploit(jax.random.key(0), jnp.array(member), values)) for member in range(2)]
      [0, 1]
    """

    def begin(key: PRNGKey) -> Array:
        return jax.random.randint(key, (), 0, num_members, jnp.int32)

    def explore(key, context, values, progress):
        return _perturbed(key, _best(values[context]), values.shape[-1], _linear(start, end, fraction, progress))

    return Exploration(begin, explore, lambda key, context, values: _best(values[context]))


# The context of an episode is one integer: 10 bits for the member, 8 for ε in units of 1/256, 13 for the steady action
# (0: none). Steady actions are drawn below 7,560, a multiple of all numbers to 10 and of 18, so that they stay uniform
# modulo these numbers of actions.
_MOST_MEMBERS, _NUM_STEADY = 1024, 7560


def _packed(member: Array, epsilon: Array, steady_action: Array) -> Array:
    return member + (jnp.floor(256 * epsilon).astype(jnp.int32).clip(0, 255) << 10) + (steady_action << 18)


def _unpacked(context: Array) -> tuple[Array, Array, Array]:
    return context & 1023, ((context >> 10) & 255) / 256, context >> 18


def one_draw_an_episode(num_members: int, dither: Scalar = 0.0) -> Exploration:
    """Follows one member of an ensemble, drawn for each episode; evaluation follows the vote of all members.

    A share `dither` of the episodes also has random actions, with a probability ε that is drawn for the episode. In
    half of them each random action is uniform, and ε is uniform in [0, 1): these episodes leave loops in which a greedy
    member would stay. In the other half all random actions are the same one, drawn for the episode, and ε = 1 − u² for
    a uniform u: these episodes go far in one direction, past states whose values are not learnt yet. Values have shape
    (members, actions).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> rule, values = one_draw_an_episode(3), jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> explore, exploit, key = jax.jit(rule.explore), jax.jit(rule.exploit), jax.random.key(0)
      >>> int(explore(key, 0, values, 0.0)), int(exploit(key, 0, values))  # member 0 alone, and the vote
      (0, 1)
    """
    if num_members > _MOST_MEMBERS:
        raise ValueError(f"num_members must be at most {_MOST_MEMBERS}, got {num_members}")

    def begin(key: PRNGKey) -> Array:
        key_member, key_kind, key_epsilon, key_action = jax.random.split(key, 4)
        member = jax.random.randint(key_member, (), 0, num_members)
        kind, u = jax.random.uniform(key_kind), jax.random.uniform(key_epsilon)
        is_steady = kind < 0.5 * jnp.asarray(dither)
        epsilon = jnp.where(is_steady, 1 - u**2, jnp.where(kind < dither, u, 0.0))
        steady_action = jnp.where(is_steady, 1 + jax.random.randint(key_action, (), 0, _NUM_STEADY), 0)
        return _packed(member, epsilon, steady_action)

    def explore(key, context, values, progress):
        member, epsilon, steady_action = _unpacked(context)
        key_coin, key_action = jax.random.split(key)
        num_actions = values.shape[-1]
        uniform_action = jax.random.randint(key_action, (), 0, num_actions, jnp.int32)
        other = jnp.where(steady_action > 0, (steady_action - 1) % num_actions, uniform_action)
        return jnp.where(jax.random.uniform(key_coin) < epsilon, other, _best(values[member]))

    def exploit(key, context, values):
        # Members may have values of different size, so each has one vote; the mean value decides between equal votes.
        votes = jnp.sum(jax.nn.one_hot(_best(values), values.shape[-1]), -2)
        return _best(jnp.where(votes == votes.max(-1, keepdims=True), values.mean(-2), -jnp.inf))

    return Exploration(begin, explore, exploit)
