"""Checkpoints: the leaves of a pytree in one file, written atomically. Loading never runs code from the file."""

import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.files import atomically

__all__ = ["load", "save"]


def _is_key(leaf) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def save(path: Path, tree: Any, label: str) -> None:
    """Writes a pytree of arrays to `path`, with a label that identifies its run."""
    leaves = jax.tree.leaves(tree)
    arrays: dict[str, Any] = {
        f"leaf_{i}": np.asarray(jax.random.key_data(x) if _is_key(x) else x) for i, x in enumerate(leaves)
    }

    def write(partial: Path) -> None:
        with open(partial, "wb") as file:  # given a name, NumPy would add its own suffix
            np.savez(file, label=np.asarray(label), **arrays)

    atomically(path, write)


def load(path: Path, like: Any, label: str) -> Any:
    """Reads a pytree with the structure, shapes and dtypes of `like`.

    Raises:
      ValueError: if the file is damaged, or has another label than `label`.
    """
    leaves, structure = jax.tree.flatten(like)
    try:
        with np.load(path, allow_pickle=False) as file:
            found, arrays = str(file["label"]), [file[name] for name in file.files if name != "label"]
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"checkpoint {path} cannot be read ({error}); delete it to start this part again") from error
    if found != label:
        raise ValueError(f"checkpoint {path} belongs to another run: it was written for {found}, not {label}")
    if len(arrays) != len(leaves):
        raise ValueError(f"checkpoint {path} does not fit: found {len(arrays)} arrays, expected {len(leaves)}")
    restored = []
    for array, leaf in zip(arrays, leaves, strict=True):
        expected = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise ValueError(
                f"checkpoint {path} does not fit: found {array.dtype}{array.shape}, "
                f"expected {expected.dtype}{expected.shape}"
            )
        if isinstance(leaf, np.ndarray | np.generic):
            restored.append(array)  # NumPy arrays stay NumPy arrays, in full precision
            continue
        data = jnp.asarray(array)
        if _is_key(leaf):
            # `like` may hold shapes only; their dtype determines the kind of key.
            data = jax.random.wrap_key_data(data, impl=jax.random.key_impl(jnp.empty((), leaf.dtype)))
        restored.append(data)
    return jax.tree.unflatten(structure, restored)
