"""Checkpoints: the leaves of a pytree in one file, written atomically. Loading never runs code from the file."""

import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.files import atomically


def _is_key(leaf) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def previous_of(path: Path) -> Path:
    """The checkpoint before the one at `path`, to which `load` falls back."""
    return path.with_name(f"{path.name}.previous")


def save(path: Path, tree: Any, label: str, *, keep_previous: bool = False) -> None:
    """Writes a pytree of arrays to `path`, with a label that identifies its run.

    With `keep_previous`, an existing checkpoint is kept as `previous_of(path)`.
    """
    leaves = [jax.random.key_data(x) if _is_key(x) else x for x in jax.tree.leaves(tree)]
    arrays: dict[str, Any] = {f"leaf_{i}": np.asarray(x) for i, x in enumerate(leaves)}

    def write(partial: Path) -> None:
        with open(partial, "wb") as file:  # given a name, NumPy would add its own suffix
            np.savez(file, label=np.asarray(label), **arrays)
        if keep_previous and path.exists():
            with suppress(OSError):  # a file system without hard links keeps one checkpoint
                previous_of(path).unlink(missing_ok=True)
                os.link(path, previous_of(path))

    atomically(path, write)


def check_label(path: Path, label: str) -> None:
    """Requires that the checkpoint at `path`, if there is one, has this label; `load` handles damaged files.

    This takes no time, so that the folder of another run is refused before anything is compiled.
    """
    with suppress(_Damaged):
        if path.exists():
            _read(path, label)


def load(path: Path, like: Any, label: str) -> Any:
    """Reads a pytree with the structure, shapes and dtypes of `like`; another label than `label` is a ValueError.

    If the file is damaged and there is a previous checkpoint, that one is read, with a warning.
    """
    try:
        return _load(path, like, label)
    except _Damaged as error:
        if not previous_of(path).exists():
            raise
        found = _load(previous_of(path), like, label)
        warnings.warn(f"{str(error).partition(';')[0]}; continuing from the checkpoint before it", stacklevel=2)
        return found


class _Damaged(ValueError):
    """A file that is not a checkpoint, or is damaged."""


def _read(path: Path, label: str, *, with_arrays: bool = False) -> list[np.ndarray]:
    """Checks the label of a checkpoint and returns its arrays if `with_arrays`."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names = [name for name in file.files if name != "label"] if with_arrays else []
            found, arrays = str(file["label"]), [file[name] for name in names]
    except Exception as error:  # a damaged archive may raise anything
        raise _Damaged(f"checkpoint {path} cannot be read ({error}); delete it to start this part again") from error
    if found != label:
        raise ValueError(f"checkpoint {path} belongs to another run: it was written for {found}, not {label}")
    return arrays


def _load(path: Path, like: Any, label: str) -> Any:
    leaves, structure = jax.tree.flatten(like)
    arrays = _read(path, label, with_arrays=True)
    if len(arrays) != len(leaves):
        raise ValueError(f"checkpoint {path} does not fit: found {len(arrays)} arrays, expected {len(leaves)}")
    restored: list[Any] = []
    for array, leaf in zip(arrays, leaves, strict=True):
        expected = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        if array.shape != expected.shape or array.dtype != expected.dtype:
            found, wanted = (f"{x.dtype}{x.shape}" for x in (array, expected))
            raise ValueError(f"checkpoint {path} does not fit: found {found}, expected {wanted}")
        if isinstance(leaf, np.ndarray | np.generic):
            restored.append(array)  # NumPy arrays stay NumPy arrays, in full precision
        elif _is_key(leaf):
            # `like` may hold shapes only; their dtype determines the kind of key.
            impl = jax.random.key_impl(jnp.empty((), leaf.dtype))
            restored.append(jax.random.wrap_key_data(jnp.asarray(array), impl=impl))
        else:
            restored.append(jnp.asarray(array))
    return jax.tree.unflatten(structure, restored)
