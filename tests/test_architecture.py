import json
import subprocess
import sys

from importlinter.cli import lint_imports


def test_rooms_import_only_rooms_below_them():
    assert lint_imports(no_cache=True) == 0


def test_samplers_load_jax_optax_and_numpy_and_nothing_else_of_weight():
    code = """
import json, sys
import jax, numpy, optax
before = set(sys.modules)
import feelgood.samplers
print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
print(json.dumps(sorted({name.split(".")[0] for name in sys.modules})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    added, loaded = (set(json.loads(line)) for line in done.stdout.splitlines())
    allowed = {"feelgood", "jax", "jaxlib", "numpy", "optax", "jaxtyping", "wadler_lindig"}  # the last is jaxtyping's
    assert not {name for name in added if not name.startswith("_")} - sys.stdlib_module_names - allowed
    assert not loaded & {"equinox", "gymnasium", "matplotlib", "pandas", "pyarrow", "rich", "scipy", "tyro"}
