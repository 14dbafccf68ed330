PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test check campaign lint types format bench clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile

install: $(STAMP)  ## install lgc_ros and its tools into .venv (again when requirements change)

# Created once: running venv over another Python's environment would mix the two.
$(BIN)/python:
	@$(PYTHON) -m venv --clear $(VENV)

$(STAMP): setup.py setup.cfg constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV): about 2 GB, a few minutes the first time ..."
	@$(PIP) pip setuptools wheel
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

demo: install  ## run the node on a synthetic sequence; open results/demo/report.html
	$(BIN)/lgc demo --out results/demo

test: install  ## run all tests; ARGS="-k camera" selects some
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: lint types  ## lint, types and unit tests in parallel: the fast inner loop
	$(BIN)/python -m pytest -q -n auto -m "not slow and not ros" $(ARGS)

campaign: install  ## stress the node: malformed messages, signals, kills, clock jumps (half an hour)
	$(BIN)/python -m pytest test/ros -m campaign $(ARGS)

lint: install  ## check style, formatting and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: install  ## check types
	$(BIN)/mypy

format: install  ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## measure the time of each stage
	$(BIN)/lgc bench

clean:  ## remove the environment and build products; keep results
	rm -rf $(VENV) build install log *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
