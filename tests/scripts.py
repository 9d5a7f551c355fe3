"""Scripts of benchmarks/ as modules."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def benchmark(name: str):
    """A fixture: the script `benchmarks/NAME.py` as a module."""

    @pytest.fixture(scope="module", name=name)
    def load():
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        yield module
        del sys.modules[name]

    return load
