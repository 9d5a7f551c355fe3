"""Diagnostics of chains from draws alone: autocorrelation, effective sample size and agreement of chains.

Draws have shape (chains, steps, ...) and a single chain (steps, ...); statistics are taken for each entry of the
trailing axes on its own. If all draws of an entry are equal, its statistics are NaN. If draws are a pytree, as those of
`samplers.sample`, statistics are a pytree too.
"""

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.typing import Array


def autocorrelation(x: Any) -> Any:
    """The autocorrelation of a chain at every lag.

    ρ_t = γ_t/γ_0 with γ_t = (1/n) Σ_{i<n−t} (x_i − x̄)(x_{i+t} − x̄), computed by FFT.

    Args:
      x: one chain, (steps, ...), at least 4 steps; or a pytree of such.

    Returns:
      ρ at lags 0 … steps − 1, in the shape of `x`.

    Examples:
      >>> import jax.numpy as jnp
      >>> print(autocorrelation(jnp.array([1.0, -1.0, 1.0, -1.0])).round(2))  # n − t of n products at lag t
      [ 1.   -0.75  0.5  -0.25]
    """
    return _of_each(_autocorrelation, "x", x, 1)


def autocorrelation_time(x: Any) -> Any:
    """The number of steps that have as much information as one independent draw.

    τ = 1 + 2 Σ_{t≥1} ρ_t, the sum cut off as in `effective_sample_size`.

    Args:
      x: one chain, (steps, ...), at least 4 steps; or a pytree of such.

    Returns:
      τ for each entry, of shape `x.shape[1:]`.

    Examples:
      >>> import jax
      >>> x = jax.random.normal(jax.random.key(0), (10_000,)).repeat(5)  # each draw five times
      >>> print(f"{autocorrelation_time(x):.0f}")
      5
    """
    return _of_each(lambda x: _integrated_time(x[None]), "x", x, 1)


def effective_sample_size(draws: Any) -> Any:
    """The number of independent draws that would estimate the mean as well as these.

    ESS = chains · steps / τ, with τ = −1 + 2 Σ_k Γ_k over Geyer's initial monotone sequence: Γ_k = ρ_{2k} + ρ_{2k+1},
    cut before the first Γ_k ≤ 0 and made non-increasing. Over several chains ρ_t = 1 − (W − γ̄_t)/V, with W the mean
    variance within chains, γ̄_t the mean autocovariance and V = (1 − 1/n)W + Var(chain means): chains that disagree
    count for less.

    Args:
      draws: (chains, steps, ...), at least 4 steps; or a pytree of such.

    Returns:
      ESS for each entry, of shape `draws.shape[2:]`, never above N log₁₀ N for N draws in all.

    Examples:
      >>> import jax
      >>> draws = jax.random.normal(jax.random.key(0), (4, 10_000)).repeat(5, axis=1)  # 40,000 draws, each five times
      >>> print(f"{effective_sample_size(draws):.1e}")
      4.0e+04

    References:
      Geyer, Practical Markov chain Monte Carlo, 1992. Vehtari et al., Rank-normalization, folding, and localization: an
      improved R̂, 2021.
    """
    return _of_each(lambda draws: draws.shape[0] * draws.shape[1] / _integrated_time(draws), "draws", draws, 2)


def split_rhat(draws: Any) -> Any:
    """Whether chains, each cut into halves, agree: R̂ = √(V/W), near 1 if they do.

    V = (1 − 1/n)W + Var(means) estimates the variance from above and W, the mean variance within the halves of length
    n, from below. If the number of steps is odd, the middle one is left out.

    Args:
      draws: (chains, steps, ...), at least 4 steps, or a pytree of such; one chain is enough.

    Returns:
      R̂ for each entry, of shape `draws.shape[2:]`.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))
      >>> far = draws + jnp.array([0.0, 0.0, 0.0, 5.0])[:, None]  # one chain is elsewhere
      >>> print(f"{split_rhat(draws):.1f}, {split_rhat(far):.1f}")
      1.0, 2.5
    """
    return _of_each(_split_rhat, "draws", draws, 2)


def to_arviz(draws: Any) -> Any:
    """Hands draws to ArviZ, for its plots and summaries.

    Args:
      draws: (chains, steps, ...), or a pytree of such, as `jax.vmap` of `samplers.sample` gives; only arrays count.

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


def _of_each(statistic: Callable[[Array], Array], name: str, draws: Any, leading: int) -> Any:
    """The statistic of each array of a pytree; a list of numbers is an array; functions and text are unchanged."""
    one = lambda leaf: leaf if callable(leaf) or isinstance(leaf, str) else statistic(_as_draws(name, leaf, leading))
    is_array = lambda x: isinstance(x, list) and not any(hasattr(leaf, "shape") for leaf in jax.tree.leaves(x))
    return jax.tree.map(one, draws, is_leaf=is_array)


def _autocorrelation(x: Array) -> Array:
    covariance = _autocovariance(x, axis=0)
    return covariance / _unless_stuck(x[None], covariance[0])[None]


def _split_rhat(draws: Array) -> Array:
    half = draws.shape[1] // 2
    halves = jnp.concatenate([draws[:, :half], draws[:, -half:]])
    within = _unless_stuck(halves, jnp.mean(jnp.var(halves, axis=1, ddof=1), axis=0))
    between = jnp.var(jnp.mean(halves, axis=1), axis=0, ddof=1)
    return jnp.sqrt((1 - 1 / half) + between / within)


def _as_draws(name: str, x: Any, leading: int) -> Array:
    x = jnp.asarray(x)
    axes = ("chains", "steps")[-leading:]
    if x.ndim < leading or x.shape[leading - 1] < 4 or x.size == 0:
        hint = "; a single chain needs an axis in front, as in draws[None]" if leading == 2 else ""
        wanted = f"shape ({', '.join(axes)}, ...) with at least 4 steps"
        raise ValueError(f"{name} must have {wanted}, got shape {x.shape}{hint}")
    if leading == 2 and x.shape[0] > x.shape[1]:
        chains = f"{x.shape[0]} chains of {x.shape[1]} steps"
        warnings.warn(f"{name} of shape {x.shape} are {chains}; pass draws[None] for a single chain", stacklevel=5)
    return x.astype(jnp.result_type(x, float))


def _autocovariance(x: Array, axis: int) -> Array:
    steps = x.shape[axis]
    # Padding to twice the length keeps the end of the chain from being matched with its beginning.
    padded = 1 << (2 * steps - 1).bit_length()
    spectrum = jnp.fft.rfft(x - jnp.mean(x, axis=axis, keepdims=True), n=padded, axis=axis)
    power = jnp.real(spectrum) ** 2 + jnp.imag(spectrum) ** 2
    return jax.lax.slice_in_dim(jnp.fft.irfft(power, n=padded, axis=axis), 0, steps, axis=axis) / steps


def _unless_stuck(draws: Array, variance: Array) -> Array:
    """The variance, or NaN if all draws are equal: rounding in their mean would look like a variance."""
    return jnp.where(jnp.any(draws != draws[:1, :1], axis=(0, 1)), variance, jnp.nan)


def _integrated_time(draws: Array) -> Array:
    chains, steps = draws.shape[:2]
    covariance = jnp.mean(_autocovariance(draws, axis=1), axis=0)
    within = covariance[0] * (steps / (steps - 1))
    total = _unless_stuck(draws, covariance[0])
    if chains > 1:
        total = total + jnp.var(jnp.mean(draws, axis=1), axis=0, ddof=1)
    correlation = (1 - (within[None] - covariance) / total[None]).at[0].set(1)
    pairs = correlation[: steps // 2 * 2].reshape(steps // 2, 2, *draws.shape[2:]).sum(axis=1)
    start = jnp.zeros_like(total), jnp.full_like(total, jnp.inf)
    (area, _), _ = jax.lax.scan(_add_pair, start, pairs)
    # Chains that alternate can bring the sum near zero or below it by chance.
    return jnp.maximum(2 * area - 1, 1 / math.log10(chains * steps))


def _add_pair(carry: tuple[Array, Array], pair: Array) -> tuple[tuple[Array, Array], None]:
    area, smallest = carry
    # Once the running minimum is below zero it stays there, so this also ends the sum.
    smallest = jnp.minimum(smallest, pair)
    return (area + jnp.maximum(smallest, 0), smallest), None
