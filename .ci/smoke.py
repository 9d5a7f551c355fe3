"""Smoke test of an installed wheel: import, help, one sampler, one tiny training."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import jax
import jax.numpy as jnp

import feelgood
from feelgood import envs, samplers

prefix = Path(sys.prefix).resolve()
assert prefix in Path(feelgood.__file__).resolve().parents, f"feelgood was imported from {feelgood.__file__}"
assert feelgood.__version__ == metadata.version("feelgood")

shown = subprocess.run([prefix / "bin" / "feelgood", "--help"], capture_output=True, text=True, check=True, timeout=600)
assert "train" in shown.stdout

potential = lambda w: jnp.sum(w**2) / 2
draws, info = samplers.sample(jax.random.key(0), samplers.hmc(0.5, 4), potential, jnp.zeros(3), 500)
assert draws.shape == (500, 3)
assert not info.diverged.any()

result = feelgood.train("fg_ulmcdqn", envs.nchain(4), num_steps=1000, seeds=[0])
assert len(result.curve) > 0
print(f"feelgood {feelgood.__version__}: import, help, a sampler and a training work in an empty environment")
