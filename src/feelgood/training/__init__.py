"""Training loops for functional and for external environments.

Examples:
  >>> import jax, jax.numpy as jnp
  >>> from feelgood import agents, training
  >>> from feelgood.envs import bsuite
  >>> make_agent = lambda spaces, hyper: agents.make_agent("dqn", spaces, hyper)
  >>> run = training.varied_trainer(bsuite.bandit, make_agent, training.FunctionalConfig(num_steps=1000))
  >>> def evaluate_untrained(rewards):
  ...     hyper, key = training.Varied(rewards, {"step_size": 1e-3}), jax.random.key(0)
  ...     return run.evaluate(key, run.init(key, hyper), hyper)
  >>> jax.jit(jax.vmap(evaluate_untrained))(jnp.array([[1.0, 1.0], [2.0, 2.0]])).tolist()  # each run has its own arms
  [1.0, 2.0]
"""

from feelgood.training.batch import Curves, Interrupted, Progress, Varied, run_batch, varied_trainer
from feelgood.training.config import ExternalConfig, FunctionalConfig, TrainingConfig
from feelgood.training.functional import Record, RunState, Tally, Trainer, trainer

__all__ = [
    "Curves",
    "ExternalConfig",
    "FunctionalConfig",
    "Interrupted",
    "Progress",
    "Record",
    "RunState",
    "Tally",
    "Trainer",
    "TrainingConfig",
    "Varied",
    "run_batch",
    "trainer",
    "varied_trainer",
]
