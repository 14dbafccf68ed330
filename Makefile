PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PIP    := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install demo test campaign lint format bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

install: $(STAMP)  ## put lgc_ros and its tools into .venv, when requirements changed

# Made once: venv run over another Python's environment would leave a mixture of both.
$(BIN)/python:
	@$(PYTHON) -m venv --clear $(VENV)

$(STAMP): setup.py setup.cfg constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV): about 2 GB, some minutes the first time ..."
	@$(PIP) pip setuptools wheel
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

demo: install  ## run the node on a made-up walk; open results/demo/report.html
	$(BIN)/lgc demo --out results/demo

test: install  ## run the tests; ARGS="-k camera" chooses some
	$(BIN)/python -m pytest $(ARGS)

campaign: install  ## send the node malformed messages, signals, kills and clock jumps: half an hour
	$(BIN)/python -m pytest test/ros -m campaign $(ARGS)

lint: install  ## check style, formatting and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: install  ## let ruff format and repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install  ## measure latency per stage
	$(BIN)/lgc bench

clean:  ## remove the environment and everything built; results stay
	rm -rf $(VENV) build install log *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
