"""The scripts of `make bench`, which are too slow to run here, use names that the package has."""

import ast
import re

import pytest

from scripts import BENCHMARKS

ROOT = BENCHMARKS.parent
SCRIPTS = re.findall(
    r"benchmarks/(\w+\.py)", (ROOT / "Makefile").read_text().partition("\nbench:")[2].partition("\n\n")[0]
)


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
    assert "noise.py" in SCRIPTS
    script = "from feelgood import noise, sounds\nnoise.normal, noise.gone"
    assert missing(ast.parse(script)) == ["feelgood.sounds", "feelgood.noise.gone"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_benchmark_uses_names_that_exist(script):
    assert missing(ast.parse((BENCHMARKS / script).read_text())) == []
