PYTHON ?= python3
# Handed to pytest as they are: make test PYTEST_ARGS="-n 0 -k name"
PYTEST_ARGS ?= -n 2

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
VENV := .venv/.created
DEV := .venv/.dev-installed
BENCH := .venv/.bench-installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: run test test-slow check fix bench clean help

run: $(DEV) ## Show the limiter at work on the embedded engine
	$(BIN)/zae-limiter demo

test: $(DEV) ## Run all tests but the long ones
	$(BIN)/pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(DEV) ## Run the long tests
	$(BIN)/pytest -m slow --timeout 1800 $(PYTEST_ARGS)

check: $(DEV) ## Check format, lint, types, import contracts, sync mirror and locks
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/unasync.py --check
	$(BIN)/python tools/lint_locks.py

fix: $(DEV) ## Generate the sync mirror, format, and fix what lint can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/python tools/unasync.py
	$(BIN)/ruff check .

bench: $(BENCH) ## Run the benchmarks, other limiters beside ours
	$(BIN)/python -m benchmarks

clean: ## Remove the environment, caches and builds
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

# Stamps, written last, so that an interrupted installation starts again.
$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed, not '$(PYTHON)': make PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(VENV)
	$(PIP_INSTALL) -e ".[dev]"
	@touch $@

$(BENCH): $(DEV)
	$(PIP_INSTALL) -e ".[dev,bench]"
	@touch $@
