# Everything sets itself up: a machine with Python 3.11, pip, venv and make is enough.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
READY = $(VENV)/.ready
# Two torch processes on two cores run best with one thread each.
export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-long test-oldest lint format docs site-figures notebooks release-check screenshots clean

demo: $(READY)  ## train, unlearn and audit: forget 5 % of the bundled digits
	$(BIN)/residuum run digits-random

test: $(READY) lint  ## what every change must pass
	$(BIN)/pytest -q -n 2 --dist worksteal -m "not long"

test-long: $(READY)  ## what takes minutes
	$(BIN)/pytest -q -n 2 --dist worksteal -m long

# PyPI has torch 2.6 for Linux with CUDA only: about 5 GB, once. Older ones run code from .pt files (CVE-2025-32434)
OLDEST = build/oldest
OLD_TESTS = auditing data metrics models perturbations methods pack test_plugins.py test_training.py
test-oldest: $(OLDEST)/.ready  ## the fast tests of everything that computes, on the oldest libraries that are promised
	$(OLDEST)/bin/pytest -q -n 2 --dist worksteal -m "not long" -W ignore::DeprecationWarning \
	  $(OLD_TESTS:%=tests/%) --ignore tests/unlearning/test_attacks_foolbox.py

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet -c constraints-oldest.txt -e . pandas pytest pytest-xdist hypothesis pyyaml
	touch $@

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)  ## the site, into build/site: open its index.html, no server needed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/python -m website.check build/site

site-figures: $(READY)  ## the runs behind the site's tables and pictures; minutes
	$(BIN)/python -m website.measure build/site-runs

notebooks: $(READY)  ## execute all notebooks and keep their outputs
	$(BIN)/python notebooks/execute.py

release-check: $(READY)  ## build wheel and sdist, try each in an empty environment outside the repository
	.ci/release_check.sh $(BIN)/python

screenshots: demo  ## pictures of the demo's page for the docs; needs chromium
	$(BIN)/python benchmarks/screenshots.py runs/digits-random docs/images

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(READY): pyproject.toml constraints-cpu.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints-cpu.txt torch==2.13.0
	$(BIN)/pip install --quiet -c constraints-cpu.txt -e ".[dev]"
	touch $@
