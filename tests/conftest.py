"""Shapes and types are checked at run time, and silent broadcasting is an error, in every test."""

from functools import partial

import jax
import pytest
from jaxtyping import install_import_hook

from folders import studies as studies

jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("feelgood", "beartype.beartype")


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_functions():
    """Frees the compiled functions of a module after its tests; kept, they take gigabytes in each worker."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def optimised_jit():
    """`jax.jit` with the compiler's optimisation on, whatever the flags say: for what runs longer than it compiles."""
    options = {
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
        "xla_cpu_use_fusion_emitters": True,
    }
    return partial(jax.jit, compiler_options=options)
