"""Standard normals for samplers."""

import jax
import jax.numpy as jnp

from feelgood.typing import Array, Normal, Params, PRNGKey

__all__ = ["normal", "normal_like"]


def normal(key: PRNGKey, shape: tuple[int, ...] = (), dtype=jnp.float32) -> Array:
    """Draws independent standard normals."""
    return jax.random.normal(key, shape, dtype)


def normal_like(key: PRNGKey, tree: Params, normal: Normal = normal) -> Params:
    """Draws a standard normal for every number in `tree`.

    The draw is one flat vector cut into the leaves, in the order of `jax.flatten_util.ravel_pytree`, so a tree and
    its flat vector receive the same numbers.
    """
    leaves, treedef = jax.tree.flatten(tree)
    if not leaves:
        return tree
    flat = normal(key, (sum(leaf.size for leaf in leaves),), jnp.result_type(*leaves))
    pieces, start = [], 0
    for leaf in leaves:
        pieces.append(flat[start : start + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
        start += leaf.size
    return jax.tree.unflatten(treedef, pieces)
