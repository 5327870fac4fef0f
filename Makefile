# Needs Python 3.11 or newer. `make help` lists the targets.

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
PYTEST_ARGS ?=
JOBS ?= 2
DEMO_ARGS ?=
DB ?= sqlite
# Not ?=: shells set a variable of this name themselves.
SECONDS = 60
SEED ?=

# Tests start hundreds of programs: bytecode must be written, also if the shell disables it.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long check lint format bench shape compare chaos docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install the development tools

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "tickwork needs Python 3.11 or newer: none found on PATH."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet -c constraints.txt --group dev -e '.[postgres,mysql]'
	@touch $@

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt --group bench
	@touch $@

demo: $(READY) ## run the demo: 20 seconds, two workers on SQLite, one of which is killed
	@$(BIN)/python examples/demo.py $(DEMO_ARGS)

check: lint ## format, lint, types, import contracts, and the tests that need no server
	$(BIN)/python -m pytest -q -x -m "not servers and not long" $(PYTEST_ARGS)

test: lint ## all tests, with private PostgreSQL and MariaDB servers
	$(BIN)/python -m pytest -n $(JOBS) src tests/unit tests/contract -m "not long" --cov --cov-report=term $(PYTEST_ARGS)
	$(BIN)/python -m pytest -n $(JOBS) tests --ignore=tests/unit --ignore=tests/contract -m "not long" $(PYTEST_ARGS)

test-long: $(READY) ## the tests that take minutes to hours
	$(BIN)/python -m pytest -m long --timeout=7200 $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

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

shape: $(READY) ## print the size of the source, what a dispatch loads, and the calls of each step
	$(BIN)/python benchmarks/shape.py $(if $(OLD),$(OLD)/src)

compare: $(READY) ## measure this checkout beside another one: OLD=path
	$(BIN)/python benchmarks/compare.py --old $(OLD)

chaos: $(READY) ## run the chaos tests: DB=sqlite|postgres|mariadb SECONDS=60 SEED=7
	@PYTHONPATH=.:tests $(BIN)/python -m chaos --db $(DB) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

docs: $(READY) ## write the generated pages of docs/ and build the site: build/site/index.html
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.build_site build

clean: ## remove everything that the other targets created
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
