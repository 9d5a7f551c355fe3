"""A bandit in service: it chooses arms with probabilities, learns from rewards, and can be saved and loaded."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feelgood.bandits import chains, exact, neural, polya_gamma
from feelgood.bandits.base import Algorithm, Context, Model, choice_probabilities
from feelgood.bandits.feel_good import FeelGood
from feelgood.checks import check_choice, check_count, check_finite

_EXACT = (exact.lin_ucb, exact.lin_ts, exact.lin_ids, exact.epsilon_greedy, exact.fgts)
_CHAINS = (chains.lmc_ts, chains.ulmc_ts, chains.baoab_ts, chains.mala_ts, chains.hmc_ts, polya_gamma.polya_gamma_ts)
_NEURAL = (neural.neural_ucb, neural.neural_ts, neural.neural_linear, neural.neural_greedy)
_DRAWN = (neural.neural_ensemble, neural.neural_langevin)
ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    make.__name__: make for make in (*_EXACT, *_CHAINS, *_NEURAL, *_DRAWN)
}
"""Every algorithm by name."""


@dataclass
class Policy:
    """An algorithm with its state, for an online loop.

    Args:
      algorithm: a name in `ALGORITHMS`.
      num_arms: A, the largest number of arms; `available` marks those that can be chosen.
      num_features: k, of one arm.
      shared: whether all arms share parameters.
      settings: settings of the algorithm; `feel_good` is a dict of the fields of `FeelGood`.
      seed: seed of all randomness.
      num_draws: choices that probabilities are estimated from; each arm gets at least 1/num_draws · ½.

    Examples:
      >>> policy = Policy("lin_ts", num_arms=2, num_features=3)
      >>> action, probabilities = policy.act([0.2, -1.0, 0.5])
      >>> policy.learn([0.2, -1.0, 0.5], action, reward=1.0)
      >>> probabilities.shape
      (2,)
    """

    algorithm: str
    num_arms: int
    num_features: int
    shared: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    num_draws: int = 200

    def __post_init__(self):
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        check_count("num_draws", self.num_draws)
        self.model = Model(self.num_arms, self.num_features, self.shared).check()
        options = dict(self.settings)
        if "feel_good" in options:
            options["feel_good"] = FeelGood(**options["feel_good"])
        try:
            self._made = ALGORITHMS[self.algorithm](self.model, **options)
        except TypeError as error:
            raise ValueError(f"settings of {self.algorithm} are not valid: {error}") from None
        self._key = jax.random.key(self.seed)
        self.state = self._made.init(jax.random.fold_in(self._key, 0))
        self.num_calls = 0
        self._choose = jax.jit(self._choose_arm)
        self._learn = jax.jit(self._made.learn)

    def _choose_arm(self, key, state, context):
        key_choose, key_share = jax.random.split(key)
        action, new = self._made.choose(key_choose, state, context)
        share = choice_probabilities(key_share, self._made, state, context, self.num_arms, self.num_draws)
        return action, share, new

    def act(self, features, available=None) -> tuple[int, np.ndarray]:
        """Picks an arm and returns it with the probability of every arm, (A,).

        Args:
          features: (k,) if all arms see the same context, else (A, k).
          available: (A,), true for arms that can be picked; all can if None.
        """
        context = self._context(features, available)
        action, share, self.state = self._choose(self._next_key(), self.state, context)
        there = np.ones(self.num_arms, bool) if available is None else np.asarray(available, bool)
        # Never zero for an arm that can be picked: an estimate that divides by it must stay finite.
        share = np.where(there, np.asarray(share, float) + 0.5 / self.num_draws, 0)
        return int(action), share / share.sum()

    def learn(self, features, action: int, reward: float) -> None:
        """Learns one reward; it may come late and in any order."""
        context = self._context(features, None)
        action = check_count("action", action, minimum=0)
        if action >= self.num_arms:
            raise ValueError(f"action must be below num_arms {self.num_arms}, got {action}")
        check_finite("reward", reward)
        self.state = self._learn(self._next_key(), self.state, context, jnp.int32(action), jnp.float32(reward))

    def save(self, path: str | Path) -> None:
        """Writes one .npz file: arrays of the state, and the settings as JSON."""
        leaves = jax.tree.leaves(self.state)
        fields = ("algorithm", "num_arms", "num_features", "shared", "settings", "seed", "num_draws", "num_calls")
        spec = json.dumps({name: getattr(self, name) for name in fields})
        arrays: dict[str, Any] = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        with open(path, "wb") as file:
            np.savez(file, **arrays, spec=np.array(spec))

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Reads a policy back. Nothing in the file is executed."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            spec = json.loads(str(arrays.pop("spec")))
            num_calls = spec.pop("num_calls")
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(f"{path} is not a saved policy: {str(error).splitlines()[0]}") from None
        policy = cls(**spec)
        leaves, treedef = jax.tree.flatten(policy.state)
        kept = [arrays.get(f"leaf_{i}") for i in range(len(leaves))]
        if len(arrays) != len(leaves) or any(
            new is None or new.shape != old.shape for new, old in zip(kept, leaves, strict=True)
        ):
            raise ValueError(f"{path} was saved by a version of {policy.algorithm} with another state")
        policy.state = jax.tree.unflatten(treedef, [jnp.asarray(leaf) for leaf in kept])
        policy.num_calls = num_calls
        return policy

    def _next_key(self):
        self.num_calls += 1
        return jax.random.fold_in(self._key, self.num_calls)

    def _context(self, features, available) -> Context:
        x = np.asarray(features, np.float32)
        x = x[None] if x.ndim == 1 else x
        rows = (self.num_arms,) if self.shared else (1, self.num_arms)
        if x.ndim != 2 or x.shape[0] not in rows or x.shape[1] != self.num_features:
            allowed = f"({self.num_arms}, {self.num_features})"
            allowed += "" if self.shared else f" or ({self.num_features},)"
            raise ValueError(f"features must have shape {allowed}, got {np.shape(features)}")
        if not np.all(np.isfinite(x)):
            raise ValueError(f"features must be finite, got {x[~np.isfinite(x)][0]}")
        if available is None:
            return Context(jnp.asarray(x), jnp.ones(self.num_arms, bool))
        there = np.asarray(available, bool)
        if there.shape != (self.num_arms,):
            raise ValueError(f"available must have shape ({self.num_arms},), got {there.shape}")
        if not there.any():
            raise ValueError("available must be true for at least one arm, got none")
        return Context(jnp.asarray(x), jnp.asarray(there))
