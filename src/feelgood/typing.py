"""Types that all packages share."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Key, PyTree, UInt32

PRNGKey: TypeAlias = Key[Array, ""] | UInt32[Array, "words"]
"""One JAX key, new-style (`jax.random.key`) or old-style (`jax.random.PRNGKey`)."""

Params: TypeAlias = PyTree
"""Any pytree of floating-point arrays."""

if TYPE_CHECKING:
    Scalar: TypeAlias = float | jax.Array
else:  # NumPy numbers are welcome too, but their types lack operators
    Scalar = float | int | jax.Array | np.ndarray | np.generic
"""A number. As an array it can be traced, so that `jax.vmap` runs over it."""

Potential: TypeAlias = Callable[[Any], Any]
"""`U: params -> scalar`. A sampler with inverse temperature β targets exp(−β·U)."""

Normal: TypeAlias = Callable[..., Array]
"""`normal(key, shape, dtype) -> array` of independent standard normals; `jax.random.normal` is one."""
