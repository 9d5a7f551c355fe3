"""One function over many runs: `vmap` on every device, with the runs spread over all devices."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec


def padded(tree: Any) -> Any:
    """Repeats the last run of a tree, of arrays (runs, ...), until every local device has the same number of runs."""

    def pad(leaf: Any) -> Any:
        padding = -len(leaf) % jax.local_device_count()
        return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], padding, axis=0)]) if padding else leaf

    return jax.tree.map(lambda leaf: pad(jnp.asarray(leaf)), tree)


def over_devices(function: Callable[..., Any], *, num_shared: int = 0, num_donated: int = 0) -> Callable[..., Any]:
    """`jax.vmap(function)` compiled, with the leading axis of its arguments split over the local devices.

    Every device gets the same number of runs: the last one is repeated, and dropped from the results. Each run gives
    the result that it would give alone, up to rounding.

    Args:
      function: of one run.
      num_shared: the number of arguments, counted from the last, that are the same for all runs.
      num_donated: the number of arguments, counted from the first, whose memory may be reused for the results.

    Examples:
      >>> import jax.numpy as jnp
      >>> power = over_devices(lambda x, exponent: x**exponent, num_shared=1)
      >>> power(jnp.arange(3), 2).tolist()
      [0, 1, 4]
    """
    mesh = Mesh(np.array(jax.local_devices()), ("runs",))
    runs, same = PartitionSpec("runs"), PartitionSpec()

    def mapped(donated: tuple, own: tuple, shared: tuple) -> Any:
        inner = lambda donated, own, shared: jax.vmap(lambda *mine: function(*mine, *shared))(*donated, *own)
        specs = (runs, runs, same)
        return jax.shard_map(inner, mesh=mesh, in_specs=specs, out_specs=runs, check_vma=False)(donated, own, shared)

    compiled = jax.jit(mapped, donate_argnums=0 if num_donated else ())

    def apply(*arguments: Any) -> Any:
        own, shared = arguments[: len(arguments) - num_shared], arguments[len(arguments) - num_shared :]
        num_runs = len(jax.tree.leaves(own)[0])
        own = padded(own)
        results = compiled(own[:num_donated], own[num_donated:], jax.tree.map(jnp.asarray, shared))
        is_padded = num_runs % jax.local_device_count()
        return jax.tree.map(lambda x: x[:num_runs], results) if is_padded else results

    return apply
