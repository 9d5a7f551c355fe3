"""Checkpoints: arrays come back bit for bit, and files that cannot be trusted are refused in one sentence."""

import os
import pickle
import stat
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feelgood.training import checkpoint


class Pair(NamedTuple):
    left: jax.Array
    right: jax.Array


def tree():
    return {
        "keys": jax.random.split(jax.random.key(3), 4),
        "one": jax.random.key(5, impl="rbg"),
        "pair": Pair(jnp.array([[1.5, np.nan, -np.inf]]), jnp.array([True, False])),
        "codes": jnp.arange(6, dtype=jnp.uint8),
        "empty": jnp.zeros((0, 3), jnp.int32),
        "none": None,
    }


def data(leaf):
    return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)


@pytest.mark.parametrize("like", [lambda t: t, lambda t: jax.eval_shape(lambda: t)], ids=["arrays", "shapes"])
def test_a_tree_comes_back_bit_for_bit_given_arrays_or_only_shapes(tmp_path, like):
    path = tmp_path / "folder" / "state.npz"
    checkpoint.save(path, tree(), "label")
    back = checkpoint.load(path, like(tree()), "label")
    assert jax.tree.structure(back) == jax.tree.structure(tree())
    for found, wanted in zip(jax.tree.leaves(back), jax.tree.leaves(tree()), strict=True):
        assert found.dtype == wanted.dtype
        assert data(found).tobytes() == data(wanted).tobytes()
    # Keys are of the same kind, so they go on to give the same numbers.
    assert jax.random.bits(back["one"]) == jax.random.bits(tree()["one"])


def test_order_is_kept_with_more_than_ten_leaves(tmp_path):
    leaves = [jnp.float32(i) for i in range(25)]
    checkpoint.save(tmp_path / "state.npz", leaves, "label")
    assert [float(leaf) for leaf in checkpoint.load(tmp_path / "state.npz", leaves, "label")] == list(range(25))


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "state.npz"
    checkpoint.save(path, tree(), "this run")
    with pytest.raises(ValueError, match="belongs to another run: it was written for this run, not that run"):
        checkpoint.load(path, tree(), "that run")
    with pytest.raises(ValueError, match="belongs to another run"):
        checkpoint.check_label(path, "that run")
    checkpoint.check_label(path, "this run")
    for change in (
        {"codes": jnp.arange(6, dtype=jnp.int32)},
        {"codes": jnp.arange(7, dtype=jnp.uint8)},
        {"keys": jax.random.split(jax.random.key(3), 5)},
        {"one": jax.random.key(5)},
        {"none": jnp.zeros(())},
    ):
        with pytest.raises(ValueError, match="does not fit: found"):
            checkpoint.load(path, {**tree(), **change}, "this run")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.95, 0.999])
def test_a_truncated_checkpoint_is_refused_in_one_sentence(tmp_path, share):
    path = tmp_path / "state.npz"
    checkpoint.save(path, tree(), "label")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"cannot be read .* delete it to start this part again") as caught:
        checkpoint.load(path, tree(), "label")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_numbers_are_noticed(tmp_path):
    path = tmp_path / "state.npz"
    values = jnp.arange(1000.0)
    checkpoint.save(path, values, "label")
    whole = bytearray(path.read_bytes())
    at = bytes(whole).index(np.asarray(values)[500:510].tobytes())
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="cannot be read"):
        checkpoint.load(path, values, "label")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("loading a checkpoint ran code from it",))


def test_loading_never_runs_code_from_the_file(tmp_path):
    path = tmp_path / "state.npz"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ValueError, match="cannot be read"):
        checkpoint.load(path, tree(), "label")
    np.savez(path, label=np.asarray("label"), leaf_0=np.array([Bomb()], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        checkpoint.load(path, jnp.zeros(1), "label")


def test_a_write_that_fails_leaves_the_old_checkpoint_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    checkpoint.save(path, jnp.float32(1), "label")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(path, jnp.float32(2), "label")
    assert checkpoint.load(path, jnp.float32(0), "label") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["state.npz"]


def test_the_contents_then_the_new_name_reach_the_disk(tmp_path, monkeypatch):
    events, real = [], os.replace
    kind = lambda descriptor: "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append(kind(descriptor)))
    monkeypatch.setattr(os, "replace", lambda *names: [real(*names), events.append("rename")])
    checkpoint.save(tmp_path / "state.npz", jnp.float32(1), "label")
    assert events == ["file", "rename", "folder"]
