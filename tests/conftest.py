"""Shapes and types are checked at run time, and silent broadcasting is an error, in every test."""

import gc
import shutil
import threading
from functools import cache, partial
from pathlib import Path

import jax
import jaxtyping
import pytest

from folders import studies as studies

jax.config.update("jax_numpy_rank_promotion", "raise")
# Compiled code without the lines of source that it comes from takes three to five percent less time.
jax.config.update("jax_traceback_in_locations_limit", 0)
jaxtyping.install_import_hook("feelgood", "beartype.beartype")


# JAX makes an MLIR context for each function that it compiles. That takes 5 ms and 1 MB, a quarter of the time and most
# of the memory of a small function. Here the functions of a test file share one per thread, except a function that is
# compiled while another one is lowered: its module would become a part of the other one's. The function is private:
# with a version of JAX that lacks it, the tests take about a minute longer.
try:
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir

    make_context = mlir.make_ir_context
except (ImportError, AttributeError):
    make_context = None
context_of = cache(lambda thread: make_context())
if make_context is not None:
    mlir.make_ir_context = lambda: make_context() if ir.Context.current else context_of(threading.get_ident())


def pytest_collection_finish():
    """Collects garbage less often, and no longer looks at objects of imports: this takes six percent less time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def memory(name):
    """A field of this process's status in GiB; 0 where the system does not show it."""
    status = Path("/proc/self/status")
    return int(status.read_text().split(f"{name}:")[1].split()[0]) / 2**20 if status.exists() else 0.0


@pytest.fixture(scope="module", autouse=True)
def limit_memory():
    """Frees compiled functions when a worker has grown to 2 GiB, and fails if a test file needed more than 3."""
    before = memory("VmHWM")
    yield
    context_of.cache_clear()
    if memory("VmRSS") > 2:
        jax.clear_caches()
    if before <= 3 < (peak := memory("VmHWM")):  # the peak stays: later files are not at fault
        pytest.fail(f"the tests of a worker must stay below 3 GiB of memory, and with this file they took {peak:.1f}")


@pytest.fixture
def unchecked_types():
    """Checks no types in calls of the package, as if it were imported outside the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def optimised_jit():
    """`jax.jit` with the compiler's optimisation on, whatever the flags: for code that runs longer than it compiles."""
    options = {
        "xla_backend_optimization_level": 3,
        "xla_llvm_disable_expensive_passes": False,
        "xla_cpu_use_fusion_emitters": True,
    }
    return partial(jax.jit, compiler_options=options)


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window, and without a network."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no Chromium with its driver is installed (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,900",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield chrome
    chrome.quit()
