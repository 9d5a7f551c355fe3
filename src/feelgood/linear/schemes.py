"""Samplers fitted to the posterior of one stage: their step follows its curvature.

The loss of a stage grows with every episode, and with it its largest curvature M, so a step size that was right at
first is unstable later. A scheme therefore scales its step: `step_size` is in units of 1/M for overdamped
samplers and of 1/√M for underdamped ones, whose `friction` is in units of √M.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from feelgood import samplers
from feelgood.checks import check_positive
from feelgood.samplers import Sampler
from feelgood.samplers.diagnostics import (
    Kernel,
    langevin_kernel,
    largest_stable_step,
    underdamped_exact_kernel,
    underdamped_kernel,
    underdamped_splitting_kernel,
)
from feelgood.typing import Array, Scalar


class Stage(NamedTuple):
    """The posterior of one stage, exp(−½ (w−m)ᵀΛ(w−m) + λ max_a ⟨w, φ_a⟩).

    Attributes:
      precision: Λ = 2ηΣφφᵀ + ρI, (d, d).
      mean: m, of the Gaussian part, (d,).
      features: φ_a at the first state of the episode, (num_actions, d).
      feel_good_weight: λ at the first stage; None at all others.
    """

    precision: Array
    mean: Array
    features: Array
    feel_good_weight: Array | None

    @property
    def largest(self) -> Array:
        """M, the largest curvature of the Gaussian part, from above and within d^(1/64) of it.

        M ≤ ‖Λ³²‖^(1/32) in the Frobenius norm: five squarings, which cost far less than eigenvalues do.
        """
        matrix, log_scale = self.precision, jnp.zeros((), self.precision.dtype)
        for power in (1, 2, 4, 8, 16):
            norm = jnp.linalg.norm(matrix)
            matrix, log_scale = matrix / norm, log_scale + jnp.log(norm) / power
            matrix = jnp.matmul(matrix, matrix, precision="highest")
        return jnp.exp(log_scale + jnp.log(jnp.linalg.norm(matrix)) / 32)

    def potential(self, w: Array) -> Array:
        """U(w) = ½ (w−m)ᵀΛ(w−m) − λ max_a ⟨w, φ_a⟩.

        Centred: ½ wᵀPw − bᵀw is of order 10⁶ after some hundred episodes, and Metropolis tests would compare its
        rounding.
        """
        offset = w - self.mean
        value = offset @ (self.precision @ offset) / 2
        if self.feel_good_weight is None:
            return value
        return value - self.feel_good_weight * jnp.max(self.features @ w)


class Scheme(NamedTuple):
    """A way to sample a stage.

    Attributes:
      sampler: `stage -> Sampler`.
      kernel: `largest curvature -> Kernel` of the same sampler, if its law on a quadratic is known; else None.
      check: `largest curvature of a run -> None`; raises ValueError if the step would be unstable.
    """

    sampler: Callable[[Stage], Sampler]
    kernel: Callable[[Array], Kernel] | None = None
    check: Callable[[float], None] = lambda largest: None


def _stable_below(factory: Callable[[Array], Kernel], largest: float) -> float:
    """The largest step that is stable on curvatures up to `largest`; steep modes bound it, and flat ones Euler's."""
    return float(largest_stable_step(factory, largest * jnp.diag(jnp.array([1e-3, 1.0]))))


def _check_step(step_size: Scalar, factory: Callable[[Array], Kernel], unit: str, *others: Scalar) -> None:
    """Raises if a step is unstable on a quadratic of curvatures up to 1, with the largest stable one."""
    if any(isinstance(x, jax.core.Tracer) for x in (step_size, *others)):
        return  # there is no value to check yet
    with jax.ensure_compile_time_eval():
        step, limit = float(step_size), _stable_below(factory, 1.0)
    if step >= limit:
        raise ValueError(f"step_size must be below {limit:.4g} {unit} to be stable, got {step:.4g}")


def lmc(step_size: Scalar = 0.5) -> Scheme:
    """Langevin Monte Carlo, w ← w − τ∇U(w) + √(2τ) ξ, τ = step_size / M.

    Examples:
      >>> lmc(2.5)
      Traceback (most recent call last):
      ...
      ValueError: step_size must be below 2 (in units of 1/M) to be stable, got 2.5
    """
    check_positive("step_size", step_size)
    _check_step(step_size, lambda step: langevin_kernel(step, 1.0), "(in units of 1/M)")
    return Scheme(
        lambda stage: samplers.langevin(step_size / stage.largest),
        lambda largest: langevin_kernel(step_size / largest, 1.0),
    )


_UNDERDAMPED = {
    "exact": (samplers.underdamped_exact, underdamped_exact_kernel),
    "euler": (samplers.underdamped, underdamped_kernel),
    "splitting": (samplers.underdamped_splitting, underdamped_splitting_kernel),
}


def ulmc(
    step_size: Scalar = 0.5, friction: Scalar = 2.0, *, form: Literal["exact", "euler", "splitting"] = "exact"
) -> Scheme:
    """Underdamped Langevin Monte Carlo with τ = step_size / √M and γ = friction · √M.

    Args:
      step_size: in units of 1/√M.
      friction: in units of √M.
      form: "exact" is the closed form that the paper's theory is about, "euler" the scheme of its experiments,
        "splitting" BAOAB.

    Examples:
      >>> ulmc(2.5, form="splitting")
      Traceback (most recent call last):
      ...
      ValueError: step_size must be below 2 (in units of 1/√M) to be stable, got 2.5
    """
    check_positive("step_size", step_size)
    check_positive("friction", friction)
    make_sampler, make_kernel = _UNDERDAMPED[form]
    _check_step(step_size, lambda step: make_kernel(step, friction, 1.0), "(in units of 1/√M)", friction)

    def scaled(make, largest: Array):
        root = jnp.sqrt(largest)
        return make(step_size / root, friction * root, 1.0)

    return Scheme(lambda stage: scaled(make_sampler, stage.largest), lambda largest: scaled(make_kernel, largest))


def baoab(step_size: Scalar = 1.0, friction: Scalar = 0.1) -> Scheme:
    """Underdamped Langevin by the splitting BAOAB, which stays stable where friction is low: our recommendation.

    Examples:
      >>> baoab(2.5)
      Traceback (most recent call last):
      ...
      ValueError: step_size must be below 2 (in units of 1/√M) to be stable, got 2.5
    """
    return ulmc(step_size, friction, form="splitting")


def mala(step_size: Scalar = 0.5) -> Scheme:
    """Langevin proposals accepted or rejected, τ = step_size / M.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> stage = Stage(4.0 * jnp.eye(1), jnp.ones(1), features=jnp.ones((1, 1)), feel_good_weight=None)
      >>> @jax.jit
      ... def step(key):
      ...     sampler = mala(0.5).sampler(stage)  # a step of 0.5/4, from gradients at both ends
      ...     return sampler.step(key, sampler.init(stage.mean), stage.potential)
      >>> int(step(jax.random.key(0))[1].num_gradients)
      2
    """
    check_positive("step_size", step_size)
    return Scheme(lambda stage: samplers.mala(step_size / stage.largest))


def hmc(step_size: Scalar = 0.5, num_leapfrog_steps: int = 5) -> Scheme:
    """Hamiltonian Monte Carlo, leapfrog steps of step_size / √M.

    Trajectories have a fixed length. No mode turns by more than num_leapfrog_steps · step_size, by default 2.5 < π, so
    none resonates.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> stage = Stage(4.0 * jnp.eye(1), jnp.ones(1), features=jnp.ones((1, 1)), feel_good_weight=None)
      >>> @jax.jit
      ... def step(key):
      ...     sampler = hmc(0.5, num_leapfrog_steps=5).sampler(stage)  # steps of 0.5/√4
      ...     return sampler.step(key, sampler.init(stage.mean), stage.potential)
      >>> int(step(jax.random.key(0))[1].num_gradients)
      6
    """
    check_positive("step_size", step_size)
    return Scheme(lambda stage: samplers.hmc(step_size / jnp.sqrt(stage.largest), num_leapfrog_steps, jitter=0.0))


def proximal(step_size: Scalar = 1.0) -> Scheme:
    """The proximal sampler, τ = step_size / (M d).

    An episode's data can move the posterior by many of its standard deviations; from so far away two steps towards the
    oracle's minimiser are too few, and nearly all proposals would be rejected. Hence four.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> stage = Stage(4.0 * jnp.eye(1), jnp.ones(1), features=jnp.ones((1, 1)), feel_good_weight=None)
      >>> @jax.jit
      ... def step(key):
      ...     sampler = proximal(1.0).sampler(stage)  # four gradients to minimise, one to propose
      ...     return sampler.step(key, sampler.init(stage.mean), stage.potential)
      >>> int(step(jax.random.key(0))[1].num_gradients)
      5
    """
    check_positive("step_size", step_size)

    def sampler(stage: Stage) -> Sampler:
        size = step_size / (stage.largest * stage.mean.size)
        return samplers.proximal(size, num_minimisation_steps=4, max_rejections=100)

    return Scheme(sampler)


def exact() -> Scheme:
    """Exact draws, δ = 0: the reference.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> stage = Stage(4.0 * jnp.eye(1), jnp.ones(1), features=jnp.ones((1, 1)), feel_good_weight=None)
      >>> @jax.jit
      ... @jax.vmap
      ... def draw(key):
      ...     sampler = exact().sampler(stage)
      ...     return sampler.step(key, sampler.init(jnp.zeros(1)), stage.potential)[0].params
      >>> draws = draw(jax.random.split(jax.random.key(0), 10_000))
      >>> round(float(draws.mean()), 1), round(float(draws.var()), 2)  # 1 and 1/4
      (1.0, 0.25)
    """

    def sampler(stage: Stage) -> Sampler:
        if stage.feel_good_weight is None:
            return samplers.exact_gaussian(stage.mean, stage.precision)
        return samplers.exact_feel_good(stage.mean, stage.precision, stage.features, stage.feel_good_weight)

    return Scheme(sampler)


def fixed(
    sampler: Sampler, step_size: Scalar | None = None, factory: Callable[[Array], Kernel] | None = None
) -> Scheme:
    """Any sampler unchanged, with the same step at every stage and episode.

    Args:
      sampler: a sampler of this package, or your own.
      step_size: its step, which is checked before a run; if it is not given, an unstable step gives a regret of NaN.
      factory: `step_size -> Kernel`, the law of its steps on a quadratic (see `feelgood.samplers.diagnostics`).

    Examples:
      >>> from feelgood import samplers
      >>> sampler = samplers.langevin(0.1)
      >>> fixed(sampler).sampler(None) is sampler
      True
    """

    def check(largest: float) -> None:
        if step_size is None or factory is None:
            return
        limit = _stable_below(factory, largest)
        if float(step_size) >= limit:
            raise ValueError(
                f"step_size {float(step_size):.4g} is unstable: the curvature of the loss can reach {largest:.4g}, "
                f"where the largest stable step is {limit:.4g}; choose a smaller one, or a scheme whose step follows "
                "the curvature"
            )

    kernel = None if step_size is None or factory is None else lambda largest: factory(jnp.asarray(step_size))
    return Scheme(lambda stage: sampler, kernel, check)
