"""The kernel of learn_on_chip.py, written in Pallas for its Triton backend.

Triton's blocks have sides that are powers of two, and at least 16 in products. So the kernel reads the flat vectors as
tiles, with zeros where a tile is larger than its array. The bias of the first layer follows its weights, so it is one
more row of them, for an input that is always 1. Minibatch and first observations are rows of one matrix.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from feelgood import noise
from feelgood.typing import Array

HYPER = ("step_size", "inverse_temperature", "bias_factor", "bias_epsilon", "friction", "feel_good_weight")
CODES = ("vector", "thermometer", "one_hot")
HELD = ("all", "params", "none")
PRECISIONS = {
    "tf32": jax.lax.DotAlgorithmPreset.TF32_TF32_F32,
    "tf32x3": jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
    "float32": jax.lax.DotAlgorithmPreset.F32_F32_F32,
}
_FIRST_DECAY, _SECOND_DECAY = 0.9, 0.999
SHORTEST = 16  # side of a matrix in a product of Triton


class Plan(NamedTuple):
    """Static settings of the kernel.

    Attributes:
      num_inputs: length of an observation.
      hidden: widths of the two hidden layers, powers of two of at least 16.
      num_actions: number of actions.
      sampler: a name in `RULES`.
      code: how minibatches hold observations: "vector", or the index of the last 1 of a "thermometer" or of the only 1
        of a "one_hot" vector.
      double: whether the online network picks the action that the target network values.
      feel_good: whether there is a feel-good term.
      precision: precision of matrix products, a name in `PRECISIONS`; the interpreter always uses float32.
      held: state that stays in registers between two steps: "all", "params" or "none". The rest is in global memory,
        where the caches of the GPU hold it.
      tile_rows: most rows of the first layer in a tile, a power of two of at least 16.
      num_warps: warps of a program.
      num_stages: stages of Triton's software pipeline.
    """

    num_inputs: int
    hidden: tuple[int, int]
    num_actions: int
    sampler: str = "adaptive_underdamped"
    code: str = "vector"
    double: bool = False
    feel_good: bool = True
    precision: str = "tf32"
    held: str = "none"
    tile_rows: int = 64
    num_warps: int = 4
    num_stages: int = 1


Rule = Callable[[Array, tuple[Array, ...], Array, Array], tuple[Array, tuple[Array, ...]]]


def _bias(hyper: Mapping[str, Array], m: Array, v: Array, g: Array) -> tuple[Array, Array, Array]:
    """The gradient with the adaptive bias a·m/(√v + ε), and the moving averages m and v."""
    m = _FIRST_DECAY * m + (1 - _FIRST_DECAY) * g
    v = _SECOND_DECAY * v + (1 - _SECOND_DECAY) * (g * g)
    return g + hyper["bias_factor"] * m / (jnp.sqrt(v) + hyper["bias_epsilon"]), m, v


def _adaptive_underdamped(hyper: Mapping[str, Array]) -> Rule:
    tau, gamma = hyper["step_size"], hyper["friction"]
    keep, scale = 1 - gamma * tau, jnp.sqrt(2 * gamma * tau / hyper["inverse_temperature"])

    def move(w, memory, g, xi):
        p, m, v = memory
        drift, m, v = _bias(hyper, m, v, g)
        p = keep * p - tau * drift
        return w + (tau * p + scale * xi), (p, m, v)

    return move


def _adam_langevin(hyper: Mapping[str, Array]) -> Rule:
    tau = hyper["step_size"]
    scale = jnp.sqrt(2 * tau / hyper["inverse_temperature"])

    def move(w, memory, g, xi):
        m, v = memory
        drift, m, v = _bias(hyper, m, v, g)
        return w + (scale * xi - tau * drift), (m, v)

    return move


RULES: dict[str, Callable[[Mapping[str, Array]], Rule]] = {
    "adaptive_underdamped": _adaptive_underdamped,
    "adam_langevin": _adam_langevin,
}
"""`hyper -> rule` with `rule(w, memory, gradient, normals) -> (w, memory)`, elementwise."""


class _Tile(NamedTuple):
    """A block of the flat vector that has the given `shape` and begins at `start`, in rows of `width` numbers.

    Only the first `used` entries along each axis are parameters; the others are 0. `zero` is a 0 that is not constant
    to the compiler: it then treats the indices as different in every step, and does not keep them in registers.
    """

    start: int
    shape: tuple[int, ...]
    width: int
    used: tuple[int, ...]

    def indices(self, zero: Any) -> tuple[Array, Array | None]:
        """The index of each entry, and which are parameters (None for all)."""
        axes = [jax.lax.broadcasted_iota(jnp.int32, self.shape, axis) for axis in range(len(self.shape))]
        within = [axis < most for axis, length, most in zip(axes, self.shape, self.used, strict=True) if most < length]
        index = axes[-1] + (zero + self.start)
        if len(axes) == 2:
            index = index + axes[0] * self.width
        return index, reduce(jnp.logical_and, within) if within else None

    def load(self, ref: Any, zero: Any) -> Array:
        index, mask = self.indices(zero)
        return ref[index] if mask is None else plgpu.load(ref.at[index], mask=mask, other=0.0)

    def store(self, ref: Any, zero: Any, value: Array) -> None:
        index, mask = self.indices(zero)
        plgpu.store(ref.at[index], value, mask=mask)

    def normals(self, words: tuple[Array, Array], zero: Any) -> Array:
        index, mask = self.indices(zero)
        draw = noise.normal_at(words, index.astype(jnp.uint32))
        return draw if mask is None else jnp.where(mask, draw, 0.0)


def padded(length: int) -> int:
    """The next power of two that a matrix product can have as a side."""
    return max(SHORTEST, 1 << (length - 1).bit_length())


def _first_layer(plan: Plan) -> list[tuple[int, int]]:
    """First row and height of each tile of the first layer and its bias."""
    num_rows = plan.num_inputs + 1
    return [(first, min(plan.tile_rows, padded(num_rows - first))) for first in range(0, num_rows, plan.tile_rows)]


def _tiles(plan: Plan) -> list[_Tile]:
    """The tiles of the first layer with its bias, then weights and bias of the second and of the third layer."""
    inputs, (one, two), actions = plan.num_inputs, plan.hidden, plan.num_actions
    second = (inputs + 1) * one
    third = second + (one + 1) * two
    return [
        *(_Tile(first * one, (height, one), one, (inputs + 1 - first, one)) for first, height in _first_layer(plan)),
        _Tile(second, (one, two), two, (one, two)),
        _Tile(second + one * two, (two,), two, (two,)),
        _Tile(third, (two, padded(actions)), actions, (two, actions)),
        _Tile(third + two * actions, (padded(actions),), actions, (actions,)),
    ]


def _columns(plan: Plan, ref: Any, k: Any, tile: tuple[int, int], zero: Any) -> Array:
    """Some columns of the observations of step k; the column after the last input is 1."""
    (first, width), height = tile, ref.shape[1]
    column = jax.lax.broadcasted_iota(jnp.int32, (height, width), 1) + (zero + first)
    is_input, is_one = column < plan.num_inputs, column == plan.num_inputs
    if plan.code == "vector":
        row = jax.lax.broadcasted_iota(jnp.int32, (height, width), 0)
        return jnp.where(is_one, 1.0, plgpu.load(ref.at[k, row, column], mask=is_input, other=0.0))
    code = ref[k, :][:, None]
    is_set = column <= code if plan.code == "thermometer" else column == code
    return jnp.where((is_input & is_set) | is_one, 1.0, 0.0)


def kernel(plan: Plan, counts: tuple[int, int], interpret: bool, groups, inputs, moved, potentials) -> None:
    """All steps of one run."""
    (batch_size, num_starts), (num_steps, num_rows) = counts, inputs["action"].shape
    hyper = {name: inputs["hyper"][i] for i, name in enumerate(HYPER)}
    rule, tiles, first_layer = RULES[plan.sampler](hyper), _tiles(plan), _first_layer(plan)
    precision = jax.lax.Precision.HIGHEST if interpret else PRECISIONS[plan.precision]
    dot = partial(jax.lax.dot_general, precision=precision, preferred_element_type=jnp.float32)
    times = lambda a, b: dot(a, b, (((1,), (0,)), ((), ())))  # a b
    times_t = lambda a, b: dot(a, b, (((1,), (1,)), ((), ())))  # a bᵀ
    t_times = lambda a, b: dot(a, b, (((0,), (0,)), ((), ())))  # aᵀ b
    num_held = {"all": len(groups), "params": 1, "none": 0}[plan.held]
    in_memory = num_held < len(groups)
    action = jax.lax.broadcasted_iota(jnp.int32, (num_rows, padded(plan.num_actions)), 1)
    row = jax.lax.broadcasted_iota(jnp.int32, (num_rows,), 0)

    def get(held, group, i, zero):
        """Tile i of a group: 0 for the parameters, then the parts of the memory."""
        return held[group][i] if group < num_held else tiles[i].load(moved[group], zero)

    def forward(name, k, held, zero):
        """Hidden layers and values; the values of actions that do not exist are −∞."""
        parts = [
            times(_columns(plan, inputs[name], k, tile, zero), get(held, 0, i, zero))
            for i, tile in enumerate(first_layer)
        ]
        w2, b2, w3, b3 = (get(held, 0, len(first_layer) + i, zero) for i in range(4))
        h1 = jnp.maximum(sum(parts[1:], parts[0]), 0.0)
        h2 = jnp.maximum(times(h1, w2) + b2[None, :], 0.0)
        q = times(h2, w3) + b3[None, :]
        return h1, h2, jnp.where(action < plan.num_actions, q, -jnp.inf), w2, w3

    def target(k, held, zero):
        if not plan.double:
            return inputs["target"][k, :]
        q = forward("next_observation", k, held, zero)[2]
        best = jnp.where(q == q.max(1)[:, None], action, plan.num_actions).min(1)
        rows = jax.lax.broadcasted_iota(jnp.int32, action.shape, 0)
        values = plgpu.load(inputs["next_values"].at[k, rows, action], mask=action < plan.num_actions, other=0.0)
        picked = jnp.where(action == best[:, None], values, 0.0).sum(1)
        return inputs["return_"][k, :] + inputs["discount"][k, :] * picked

    def step(k, held):
        zero, again = (pl.multiple_of(inputs["zeros"][k, i], 32) for i in range(2))
        words = inputs["words"][k, 0], inputs["words"][k, 1]
        h1, h2, q, w2, w3 = forward("observation", k, held, zero)
        is_chosen = action == inputs["action"][k, :][:, None]
        error = target(k, held, zero) - jnp.where(is_chosen, q, 0.0).sum(1)
        error = jnp.where(row < batch_size, error, 0.0)
        potential, dq = (
            (error * error).sum() / batch_size,
            jnp.where(is_chosen, (-2 / batch_size) * error[:, None], 0.0),
        )
        if plan.feel_good:
            weight = hyper["feel_good_weight"] / num_starts
            is_start = (row >= batch_size) & (row < batch_size + num_starts)
            most = q.max(1)
            ties = jnp.where(q == most[:, None], 1.0, 0.0)
            potential -= weight * jnp.where(is_start, most, 0.0).sum()
            dq -= ties * jnp.where(is_start, weight / ties.sum(1), 0.0)[:, None]
        potentials[k] = potential
        dz2 = jnp.where(h2 > 0, times_t(dq, w3), 0.0)
        dz1 = jnp.where(h1 > 0, times_t(dz2, w2), 0.0)
        # One tile after the other, so that few numbers are needed at a time.
        gradients = [
            *(
                lambda tile=tile: t_times(_columns(plan, inputs["observation"], k, tile, again), dz1)
                for tile in first_layer
            ),
            lambda: t_times(h1, dz2),
            lambda: dz2.sum(0),
            lambda: t_times(h2, dq),
            lambda: dq.sum(0),
        ]
        after = []
        for i, (tile, gradient) in enumerate(zip(tiles, gradients, strict=True)):
            w, *memory = (get(held, group, i, again) for group in range(len(groups)))
            moved_w, moved_memory = rule(w, tuple(memory), gradient(), tile.normals(words, again))
            after.append((moved_w, *moved_memory))
            for ref, value in list(zip(moved, after[-1], strict=True))[num_held:]:
                tile.store(ref, again, value)
        if in_memory and not interpret:
            plgpu.debug_barrier()  # the threads that read a number next may not be those that wrote it
        return [list(group) for group in zip(*after, strict=True)][:num_held]

    begin = []
    for group, (old, new) in enumerate(zip(groups, moved, strict=True)):
        values = [tile.load(old, 0) for tile in tiles]
        if group < num_held:
            begin.append(values)
        else:
            _store(tiles, new, values)
    if in_memory and not interpret:
        plgpu.debug_barrier()
    held = jax.lax.fori_loop(0, num_steps, step, begin)
    for ref, values in zip(moved[:num_held], held, strict=True):
        _store(tiles, ref, values)


def _store(tiles: Sequence[_Tile], ref: Any, values: Sequence[Array]) -> None:
    for tile, value in zip(tiles, values, strict=True):
        tile.store(ref, 0, value)
