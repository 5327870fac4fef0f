# Needs Python 3.11 or newer. `make help` lists the targets.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
AUDIT_READY := $(VENV)/.ready-audit
FLAKY := .pytest_cache/flaky
PYTEST_ARGS ?=
JOBS ?= 3
DEMO_ARGS ?=
DB ?= sqlite
# Not ?=: shells set a variable of this name themselves.
SECONDS = 60
SEED ?=
ENTRY ?=
COUNT ?= 100
FILES ?=
TESTS ?=

# Tests start hundreds of programs: bytecode must be written, also if the shell disables it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-matrix test-mutants check audit lint format bench shape compare chaos screenshots docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install the development tools

$(READY): pyproject.toml conformance/pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "tickwork needs Python 3.11 or newer: none found on PATH."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev \
		-e '.[postgres,mysql,encrypt,calendar,holidays,dashboard]' -e ./conformance
	@touch $@

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt --group bench
	@touch $@

$(AUDIT_READY): $(READY)
	@$(BIN)/python -m pip install --quiet --retries 1 -c constraints.txt --group audit \
	&& touch $@ || echo "pip-audit could not be installed."

demo: $(READY) ## run the demo: 20 seconds, two workers on SQLite, one of which is killed
	@$(BIN)/python examples/demo.py $(DEMO_ARGS)

check: lint audit ## format, lint, types, import contracts, known vulnerabilities, and the tests that need no server
	$(BIN)/python -m pytest -q -x -m "not servers and not long" $(PYTEST_ARGS)

# Run tests in $(JOBS) processes: environment, selection, further options. They share the machine
# with the servers, so a test that fails runs once more alone. Its first failure stays in the output.
define run_tests
$(1) $(BIN)/python -m pytest -n $(JOBS) $(2) $(3) $(PYTEST_ARGS) || { \
	[ $$? -eq 1 ] && echo "The failed tests run again, alone." && \
	TICKWORK_FLAKY_FILE=$(FLAKY) $(1) $(BIN)/python -m pytest --last-failed --last-failed-no-failures=none --maxfail=5 $(2) $(PYTEST_ARGS); }
endef

test: lint ## all tests, with private PostgreSQL, MariaDB and MySQL servers
	@rm -f $(FLAKY)
	$(call run_tests,,src tests/unit tests/contract -m "not long",--cov --cov-report=term)
	$(call run_tests,,tests --ignore=tests/unit --ignore=tests/contract -m "not long")
	$(call run_tests,TICKWORK_TEST_SERVERS=mysql,tests/contract/stores tests/application -m "on_mysql and not long")
	@test ! -s $(FLAKY) || { echo "Flaky: these tests failed beside others and passed alone."; cat $(FLAKY); }

test-long: $(READY) ## the tests that take minutes to hours
	$(BIN)/python -m pytest -m long --timeout=7200 $(PYTEST_ARGS)

test-matrix: $(READY) ## the suite on MySQL, newer servers and newer Pythons: ENTRY=mysql for one of them
	@PYTHONPATH=tests JOBS=$(JOBS) $(BIN)/python -m servers.matrix $(ENTRY) $(TESTS)

lint: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: $(AUDIT_READY) ## known vulnerabilities of the dependencies (pip-audit); says if there was no answer
	@PYTHONPATH=tests $(BIN)/python -m architecture.audit

test-mutants: $(READY) ## change one place of the source at a time, and run the tests that should notice: COUNT=100 SEED=7
	@PYTHONPATH=tests $(BIN)/python -m mutants --count $(COUNT) --files "$(FILES)" $(if $(SEED),--seed $(SEED))

format: $(READY) ## reformat the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(BENCH_READY) ## run the benchmarks, side by side with other projects
	$(BIN)/python benchmarks/cron.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/define.py
	$(BIN)/python benchmarks/cli.py
	$(BIN)/python benchmarks/travel.py
	$(BIN)/python benchmarks/worker.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/celery_engine.py
	$(BIN)/python benchmarks/dashboard.py

shape: $(READY) ## print the size of the source, what the worker consists of, what a dispatch loads, and the calls of each step
	$(BIN)/python -m benchmarks.shape $(if $(OLD),$(OLD)/src)

compare: $(READY) ## measure this checkout beside another one: OLD=path
	$(BIN)/python benchmarks/compare.py --old $(OLD)

chaos: $(READY) ## run the chaos tests: DB=sqlite|postgres|mariadb|mysql SECONDS=60 SEED=7
	@PYTHONPATH=.:tests $(BIN)/python -m chaos --db $(DB) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

screenshots: $(READY) ## make a picture of every page of the dashboard in build/screenshots; needs Chromium
	PYTHONPATH=tests $(BIN)/python -m dashboard.screenshots build/screenshots

docs: $(READY) ## write the methods for coroutines and the generated pages of docs/, and build the site: build/site/index.html
	$(BIN)/python -m docs.async_methods
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.build_site build

clean: ## remove everything that the other targets created
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .matrix dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
