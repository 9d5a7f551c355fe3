"""A stretch of gradient steps as one GPU kernel, with one program for each run.

XLA launches several kernels for each gradient step and moves the sampler's state through memory between them. Here one
program keeps the state of its run on the chip and does all steps of a stretch between two target updates: forward and
backward pass, noise and sampler. It computes the same results as a `scan` of `Agent.update`, with the same normals, for

- an MLP with two hidden layers on vectors, or on codes that stand for a thermometer or for a one-hot vector,
- the squared TD error with plain or double targets, and the feel-good term,
- the samplers of `RULES`, in the released form.

Without a GPU, the kernel runs in Pallas' interpreter, which is slow and serves tests.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from onchip_kernel import CODES, HELD, HYPER, PRECISIONS, RULES, SHORTEST, Plan, kernel, padded

from feelgood import noise
from feelgood.checks import check_choice
from feelgood.replay import Batch
from feelgood.samplers import SamplerState
from feelgood.typing import Array, Scalar


def learn_on_chip(
    plan: Plan,
    hyper: Mapping[str, Scalar],
    keys: Array,
    state: SamplerState,
    batches: Batch,
    next_values: Array,
    *,
    interpret: bool | None = None,
) -> tuple[SamplerState, Array]:
    """Does the K gradient steps of a stretch for one run; `vmap` runs many.

    Args:
      plan: static settings.
      hyper: numbers named in `HYPER`; a sampler without friction and a plan without feel-good term ignore theirs.
      keys: (K,), the samplers' keys; `Agent.update` gives its sampler the second half of its own key.
      state: parameters of an MLP of `feelgood.networks`, and the sampler's memory.
      batches: the minibatches, with leading axes (K, B). `first_observation` may have (K, 1) instead, for all
        transitions. There are no importance weights.
      next_values: (K, B, A), the target network's values at the next observations.
      interpret: whether to use Pallas' interpreter; by default if there is no GPU.

    Returns:
      The new state, and the potential before each step, (K,).
    """
    interpret = jax.default_backend() != "gpu" if interpret is None else interpret
    leaves, treedef = jax.tree.flatten(state)
    num_leaves = len(jax.tree.leaves(state.params))
    _check(plan, batches, leaves[:num_leaves])
    groups = [_packed(leaves[i : i + num_leaves]) for i in range(0, len(leaves), num_leaves)]
    num_steps, batch_size = batches.action.shape
    num_starts = batches.first_observation.shape[1] if plan.feel_good else 0
    num_rows = padded(batch_size + num_starts)

    def rows(x: Array, *more: Array) -> Array:
        """Joins along the axis of rows, which zeros fill up."""
        whole = jnp.concatenate([jnp.asarray(x), *(jnp.asarray(each, x.dtype) for each in more)], 1)
        return jnp.pad(whole, [(0, 0), (0, num_rows - whole.shape[1])] + [(0, 0)] * (whole.ndim - 2))

    as_code = lambda x: jnp.asarray(x, jnp.float32 if plan.code == "vector" else jnp.int32)
    starts = [as_code(batches.first_observation)] if plan.feel_good else []
    inputs = {
        "hyper": jnp.stack([jnp.asarray(hyper.get(name, 0.0), jnp.float32) for name in HYPER]),
        "words": jnp.stack(jax.vmap(noise.key_words)(keys), -1),
        "zeros": jnp.zeros((num_steps, 2), jnp.int32),
        "observation": rows(as_code(batches.observation), *starts),
        "action": rows(jnp.asarray(batches.action, jnp.int32)),
    }
    if plan.double:
        inputs |= {
            "return_": rows(batches.return_),
            "discount": rows(batches.bootstrap_discount),
            "next_observation": rows(as_code(batches.next_observation)),
            "next_values": rows(next_values),
        }
    else:
        inputs["target"] = rows(batches.return_ + batches.bootstrap_discount * next_values.max(-1))
    moved, potentials = pl.pallas_call(
        partial(kernel, plan, (batch_size, num_starts), interpret),
        out_shape=([jax.ShapeDtypeStruct(x.shape, x.dtype) for x in groups], jax.ShapeDtypeStruct((num_steps,), "f4")),
        compiler_params=plgpu.CompilerParams(num_warps=plan.num_warps, num_stages=plan.num_stages),
        interpret=interpret,
        name="learn_on_chip",
    )(groups, inputs)
    new = [leaf for flat in moved for leaf in _unpacked(flat, leaves[:num_leaves])]
    return jax.tree.unflatten(treedef, new), potentials


def _check(plan: Plan, batches: Batch, params: Sequence[Array]) -> None:
    check_choice("sampler", plan.sampler, RULES)
    check_choice("code", plan.code, CODES)
    check_choice("held", plan.held, HELD)
    check_choice("precision", plan.precision, PRECISIONS)
    for name, value in (*(("hidden", width) for width in plan.hidden), ("tile_rows", plan.tile_rows)):
        if value != padded(value):
            raise ValueError(f"{name} must be a power of two of at least {SHORTEST} on the chip, got {value}")
    if batches.weight is not None:
        raise ValueError("batches must have no importance weights on the chip, got weights")
    sizes = [plan.num_inputs, *plan.hidden, plan.num_actions]
    expected = [shape for i in range(3) for shape in ((sizes[i], sizes[i + 1]), (sizes[i + 1],))]
    if [leaf.shape for leaf in params] != expected:
        raise ValueError(
            f"params must be an MLP with arrays of shapes {expected} on the chip, got {[x.shape for x in params]}"
        )


def _packed(leaves: Sequence[Array]) -> Array:
    """One vector, with zeros at its end so that each run begins at a full line of memory."""
    size = sum(leaf.size for leaf in leaves)
    return jnp.concatenate([*(leaf.ravel() for leaf in leaves), jnp.zeros(-size % 32, jnp.float32)])


def _unpacked(flat: Array, like: Sequence[Array]) -> list[Array]:
    ends = np.cumsum([leaf.size for leaf in like])
    return [flat[end - leaf.size : end].reshape(leaf.shape) for end, leaf in zip(ends, like, strict=True)]
