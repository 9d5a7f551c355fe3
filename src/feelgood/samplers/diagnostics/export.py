"""Draws in the form that ArviZ reads."""

import inspect
from typing import Any

import jax
import numpy as np


def to_arviz(draws: Any) -> Any:
    """Hands draws to ArviZ, for its plots and summaries.

    Args:
      draws: (chains, steps, ...), or a pytree of such, as `jax.vmap` of `samplers.sample` gives. Leaves that are not
        arrays are left out.

    Returns:
      The result of `arviz.from_dict`: each leaf a variable of the posterior, named by its path in the pytree with
      dots between ("layers.0.weight"); a single array is named "params".

    Raises:
      ModuleNotFoundError: if ArviZ is not installed.

    Examples:
      >>> to_arviz({"slope": np.zeros((4, 100))}).posterior["slope"].shape  # doctest: +SKIP
      (4, 100)
    """
    posterior = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(draws):
        if not hasattr(leaf, "shape"):
            continue
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "params"
        if leaf.ndim < 2:
            raise ValueError(
                f"{name} must have shape (chains, steps, ...), got shape {leaf.shape}; "
                "a single chain needs an axis in front, as in leaf[None]"
            )
        posterior[name] = np.asarray(leaf, np.promote_types(leaf.dtype, np.float32))
    try:
        import arviz
    except ModuleNotFoundError:
        raise ModuleNotFoundError("to_arviz needs ArviZ, which is not installed: pip install arviz") from None
    # Before version 1 the groups are arguments; since then they are entries of one dict.
    if "posterior" in inspect.signature(arviz.from_dict).parameters:
        return arviz.from_dict(posterior=posterior)
    return arviz.from_dict({"posterior": posterior})
