"""Scripts that are too slow to run here use names that the package has."""

import ast
import re

import pytest

from scripts import BENCHMARKS, benchmark

ROOT = BENCHMARKS.parent
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix() for name in ("benchmarks", "results") for path in ROOT.glob(f"{name}/**/*.py")
)
gpu_profile = benchmark("gpu_profile")


def has(module: str, name: str) -> bool:
    """Whether a module of the package, read as text, has a module or mentions a name; importing it takes seconds."""
    path = ROOT.joinpath("src", *module.split("."))
    if (path / name).is_dir() or (path / f"{name}.py").exists():
        return True
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return re.search(rf"\b{name}\b", source.read_text()) is not None


def missing(tree: ast.AST) -> list[str]:
    """Names that a script imports from the package, or reads from its modules, and that are not there."""
    modules, absent = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "feelgood":
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                absent += [] if has(node.module, alias.name) else [f"{node.module}.{alias.name}"]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            module = modules[node.value.id]
            path = ROOT.joinpath("src", *module.split("."))
            is_module = path.is_dir() or path.with_suffix(".py").exists()
            absent += [f"{module}.{node.attr}"] if is_module and not has(module, node.attr) else []
    return absent


def test_a_name_that_is_gone_is_found():
    assert {"benchmarks/noise.py", "results/atari/draw.py"} <= set(SCRIPTS)
    script = "from feelgood import noise, sounds\nnoise.normal, noise.gone"
    assert missing(ast.parse(script)) == ["feelgood.sounds", "feelgood.noise.gone"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_uses_names_that_exist(script):
    assert missing(ast.parse((ROOT / script).read_text())) == []


def test_the_profile_counts_kernels_and_the_time_between_them(gpu_profile):
    kernels = [("dot_1", 0.0, 4.0), ("add", 3.0, 3.0), ("dot_2", 8.0, 2.0)]
    rows, whole = gpu_profile.summary(kernels, num_steps=2)
    assert whole == 5.0
    assert rows == [("dot", 1.0, 3.0, 0.6), ("add", 0.5, 1.5, 0.3), ("(no kernel)", "", 1.0, pytest.approx(0.2))]
