"""One function over many runs: `vmap` on every device, the runs spread over all of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

__all__ = ["over_devices"]


def over_devices(function: Callable[..., Any], *, num_shared: int = 0) -> Callable[..., Any]:
    """`jax.vmap(function)` compiled, with the leading axis of its arguments split over the local devices.

    Every device gets the same number of runs: the last one is repeated to fill up, and dropped again at the end. Each
    run is what it would be alone, up to rounding.

    Args:
      function: of one run.
      num_shared: how many of its arguments, counted from the last, are the same for all runs.

    Example:
      >>> import jax.numpy as jnp
      >>> power = over_devices(lambda x, exponent: x**exponent, num_shared=1)
      >>> power(jnp.arange(3), 2).tolist()
      [0, 1, 4]
    """
    devices = jax.local_devices()
    mesh = Mesh(np.array(devices), ("runs",))
    runs, same = PartitionSpec("runs"), PartitionSpec()

    @jax.jit
    def mapped(own: tuple, shared: tuple) -> Any:
        inner = lambda own, shared: jax.vmap(lambda *mine: function(*mine, *shared))(*own)
        return jax.shard_map(inner, mesh=mesh, in_specs=(runs, same), out_specs=runs, check_vma=False)(own, shared)

    def apply(*arguments: Any) -> Any:
        own, shared = arguments[: len(arguments) - num_shared], arguments[len(arguments) - num_shared :]
        num_runs = len(jax.tree.leaves(own)[0])
        padding = -num_runs % len(devices)
        pad = lambda x: jnp.concatenate([jnp.asarray(x), jnp.repeat(jnp.asarray(x)[-1:], padding, axis=0)])
        results = mapped(jax.tree.map(pad, own), jax.tree.map(jnp.asarray, shared))
        return jax.tree.map(lambda x: x[:num_runs], results)

    return apply
