"""The record of an objective, and the potential of a minibatch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp

from feelgood.checks import check_choice, check_positive
from feelgood.typing import Array, Params, Potential, PRNGKey, Scalar

OnlineQ: TypeAlias = Callable[[Params, Any, PRNGKey | None], Any]
TargetQ: TypeAlias = Callable[[Any, PRNGKey | None], Any]
Values: TypeAlias = Callable[[Any], Array]


@runtime_checkable
class Minibatch(Protocol):
    """The fields of a batch that terms read; `weight` (B,) holds importance weights or is None."""

    @property
    def observation(self) -> Any: ...  # noqa: D102
    @property
    def action(self) -> Array: ...  # noqa: D102
    @property
    def return_(self) -> Array: ...  # noqa: D102
    @property
    def bootstrap_discount(self) -> Array: ...  # noqa: D102
    @property
    def next_observation(self) -> Any: ...  # noqa: D102
    @property
    def first_observation(self) -> Any: ...  # noqa: D102
    @property
    def weight(self) -> Array | None: ...  # noqa: D102


Term: TypeAlias = Callable[[OnlineQ, TargetQ, Params, Minibatch, PRNGKey | None], Array]


@dataclass(frozen=True)
class Objective:
    """A sum of terms `(q, target_q, params, batch, key) -> array`; add two objectives to join their terms.

    Attributes:
      per_transition: terms of shape (B,), one number ℓ_i for each transition of the batch.
      per_posterior: scalar terms c that count once, independently of the number of data (a prior).
      looks_at: fields of a batch that the terms evaluate `q` on, so that one call may serve them all; see `together`.
    """

    per_transition: tuple[Term, ...] = ()
    per_posterior: tuple[Term, ...] = ()
    looks_at: frozenset[str] = frozenset()

    def __add__(self, other: "Objective") -> "Objective":
        if not isinstance(other, Objective):
            return NotImplemented
        return Objective(
            self.per_transition + other.per_transition,
            self.per_posterior + other.per_posterior,
            self.looks_at | other.looks_at,
        )

    def only_if(self, condition: Scalar) -> "Objective":
        """The same terms if the condition holds, else 0; outside `vmap` they are not computed then."""

        def gated(term: Term) -> Term:
            def one(*arguments: Any) -> Array:
                compute = lambda: term(*arguments)
                shape = jax.eval_shape(compute)
                return jax.lax.cond(condition, compute, lambda: jnp.zeros(shape.shape, shape.dtype))

            return one

        return Objective(tuple(map(gated, self.per_transition)), tuple(map(gated, self.per_posterior)), self.looks_at)


def potential(
    objective: Objective,
    q: OnlineQ,
    target_q: TargetQ,
    batch: Minibatch,
    key: PRNGKey | None = None,
    *,
    reduction: str = "mean",
    num_data: Scalar | None = None,
) -> Potential:
    """Builds U: params -> scalar from one minibatch. All scaling is here.

    With ℓ_i the sum of the terms of transition i, w_i its importance weight (1 where `batch.weight` is None), c the
    sum of the terms that count once, B the batch size and n = `num_data`:

      "mean"   U = (1/B)·Σ_i w_i ℓ_i + c/n        the released code
      "sum"    U = (n/B)·Σ_i w_i ℓ_i + c          an unbiased estimate of the full-data potential

    So "sum" is n times "mean": the same posterior at 1/n of the inverse temperature.

    Args:
      objective: the terms.
      q: the network to be moved.
      target_q: the network to bootstrap from; no gradient flows through it.
      batch: the minibatch.
      key: noise of the networks.
      reduction: "mean" or "sum".
      num_data: number of transitions that the batch stands for, such as the size of the replay; may be traced. Needed
        for "sum", and for "mean" with terms that count once.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import objectives
      >>> from feelgood.replay import Batch
      >>> at, table = jnp.array, jnp.array([[0.0, 1.0], [2.0, 4.0]])  # two states, two actions
      >>> batch = Batch(at([0]), at([1]), at([3.0]), at([0.5]), at([1]), at([0]), slot=at([0]))
      >>> q, target_q = lambda table, state, key: table[state], lambda state, key: table[state]
      >>> objective = objectives.td() + objectives.gaussian_prior(0.5)
      >>> [float(potential(objective, q, target_q, batch, reduction=r, num_data=8)(table)) for r in ("mean", "sum")]
      [21.25, 170.0]
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    if num_data is None:
        if reduction == "sum" or objective.per_posterior:
            raise ValueError("num_data must be given for reduction 'sum' and for terms that count once, got None")
        num_data = 1.0  # unused
    check_positive("num_data", num_data)
    whole = jnp.asarray(num_data, jnp.float32)
    data_scale, once_scale = (1.0, 1 / whole) if reduction == "mean" else (whole, 1.0)

    def evaluate(params: Params) -> Array:
        value = jnp.zeros(())
        for term in objective.per_transition:
            losses = term(q, target_q, params, batch, key)
            _check_term(losses, len(batch.return_))
            value = value + data_scale * jnp.mean(losses if batch.weight is None else batch.weight * losses)
        for term in objective.per_posterior:
            value = value + once_scale * term(q, target_q, params, batch, key)
        return value

    return evaluate


def _check_term(losses: Array, batch_size: int) -> None:
    """Anything else would be broadcast against the weights. One number stands for transitions that share it."""
    if losses.ndim != 1 or losses.shape[0] not in (1, batch_size):
        raise ValueError(f"a term per transition must have shape ({batch_size},), got {losses.shape}")


def together(q: OnlineQ, objective: Objective, batch: Minibatch) -> OnlineQ:
    """A `q` that evaluates all fields that the objective looks at in one call, and returns the parts.

    The values equal those of `q`. A large network on a small batch takes about as long for three batches as for one.

    Examples:
      >>> import jax.numpy as jnp
      >>> from feelgood import objectives
      >>> from feelgood.replay import Batch
      >>> at = jnp.array
      >>> batch = Batch(at([0]), at([1]), at([3.0]), at([0.5]), at([1]), at([0]), slot=at([0]))
      >>> q = lambda table, state, key: print("called with", state) or table[state]
      >>> shared = together(q, objectives.td(double=True), batch)
      >>> table = jnp.array([[0.0, 1.0], [2.0, 4.0]])
      >>> shared(table, batch.observation, None).tolist(), shared(table, batch.next_observation, None).tolist()
      called with [1 0]
      ([[0.0, 1.0]], [[2.0, 4.0]])
    """
    names = sorted(objective.looks_at)
    seen: dict[str, Any] = {"params": None}

    def shared(params: Params, observation: Any, key: PRNGKey | None) -> Any:
        asked = [name for name in names if getattr(batch, name) is observation]
        if not asked:
            return q(params, observation, key)
        if seen["params"] is not params:
            fields = [getattr(batch, name) for name in names]
            outputs = q(params, jax.tree.map(lambda *parts: jnp.concatenate(parts), *fields), key)
            sizes = [jax.tree.leaves(field)[0].shape[0] for field in fields]
            ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
            for name, size, end in zip(names, sizes, ends, strict=True):
                seen[name] = jax.tree.map(lambda x, first=end - size, end=end: x[first:end], outputs)
            seen["params"] = params
        return seen[asked[0]]

    return shared


def split_key(key: PRNGKey | None) -> tuple[PRNGKey | None, PRNGKey | None]:
    """Keys of the online and of the target network; the same for every term, so that all see one draw."""
    if key is None:
        return None, None
    key_online, key_target = jax.random.split(key)
    return key_online, key_target


def target_key(key: PRNGKey) -> PRNGKey:
    """The key that a potential with this key gives to its target network.

    Examples:
      >>> key = jax.random.key(0)
      >>> bool(target_key(key) == jax.random.split(key)[1])
      True
    """
    return jax.random.split(key)[1]
