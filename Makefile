# Every target installs its dependencies; a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help demo test test-slow chaos lint format bench bench-atari bench-peers docs dist clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "feelgood needs Python >= 3.11, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-slow: $(VENV)/.installed-dev
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

demo: $(VENV)/.installed  ## Draw the samplers, then run the quick N-chain study (about three minutes)
	$(BIN)/feelgood run samplers --output runs/demo/samplers
	$(BIN)/feelgood run nchain --output runs/demo/nchain

# Most of a test's time is compilation; without optimisation and in one piece that takes 40% less. Tests that run longer than they
# compile ask for it, and the slow checks run the commands of users. The tests of a file share a worker, so that nothing
# is compiled twice. Without optimisation jaxlib 0.10 compiles wide vectors of x86-64 wrongly (values become NaN): AVX at most.
QUICK_COMPILATION := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true \
	--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 \
	$(if $(filter x86_64,$(shell uname -m)),--xla_cpu_max_isa=AVX)
SHARED_CACHES := PYTHONDONTWRITEBYTECODE= JAX_COMPILATION_CACHE_DIR=$(CURDIR)/.jax_cache \
	JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
test: $(VENV)/.installed-dev  ## Run the tests
	$(SHARED_CACHES) XLA_FLAGS="$(XLA_FLAGS) $(QUICK_COMPILATION)" $(BIN)/python -m pytest -n 2 --dist loadfile --durations=25

test-slow: $(VENV)/.installed-slow  ## Run the minutes-long checks
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

lint: $(VENV)/.installed-dev  ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

chaos: $(VENV)/.installed-dev  ## Kill runs, damage files and load hostile folders; print how many were survived
	$(BIN)/python tests/chaos.py

bench: $(VENV)/.installed  ## Measure noise, samplers, training and the time to start
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/samplers.py
	$(BIN)/python benchmarks/nchain.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/linear.py 16 500 lsvi_ucb ase_ulmc

bench-atari: $(VENV)/.installed-dev  ## Measure Atari training against the emulators and learning alone (best on a GPU)
	$(BIN)/python benchmarks/atari.py --num-lanes 20 --num-groups 2 --capacity 20000 --seconds 20

bench-peers: $(VENV)/.installed  ## Measure feelgood next to other packages, each in an environment of its own
	$(BIN)/python benchmarks/peers.py

docs: $(VENV)/.installed-docs  ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel is tested outside this folder, in an environment that has nothing but it and its dependencies.
dist: $(VENV)/.installed-dev  ## Build sdist and wheel into dist/ and test the wheel in an empty environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	set -e; empty=$$(mktemp -d); trap 'rm -rf "$$empty"' EXIT; \
	$(PYTHON) -m venv "$$empty"; \
	"$$empty/bin/python" -m pip --disable-pip-version-check install --quiet --constraint constraints.txt dist/*.whl; \
	cp .ci/smoke.py "$$empty"; cd "$$empty"; bin/python smoke.py

clean:  ## Remove everything the other targets made
	rm -rf $(VENV) dist runs site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .jax_cache
