"""Runs spread over devices give the same results as alone."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np

from feelgood.parallel import over_devices


def test_every_run_is_mapped_and_shared_arguments_are_shared():
    result = over_devices(lambda x, tree, y: (x + tree["a"].sum(), x * y), num_shared=1)(
        jnp.arange(3.0), {"a": jnp.ones((3, 2))}, 5.0
    )
    np.testing.assert_array_equal(result[0], [2, 3, 4])
    np.testing.assert_array_equal(result[1], [0, 5, 10])


def test_an_odd_number_of_runs_is_spread_over_two_devices():
    code = """
import jax
jax.config.update("jax_num_cpu_devices", 2)
import jax.numpy as jnp
from feelgood.parallel import over_devices
assert len(jax.local_devices()) == 2
print(over_devices(lambda x: x**2)(jnp.arange(5)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 1, 4, 9, 16]"
