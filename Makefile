# One command each, on a fresh machine too: `make demo`, `make check`, `make test`.
#
# Everything is installed into .venv from constraints.txt, once, and again when it or pyproject.toml
# changes. Nothing is installed outside this folder. PYTHON=... names another interpreter.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo check lint test-fast test coverage slow wheel lower lock clean

VENV := .venv
LOWER := .venv-lower
BIN := $(VENV)/bin

# The first interpreter that runs (a shim may stand for a version that is not there) and can make
# a virtual environment. Looked for only when an environment is made.
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	for python in $$(type -ap $$name); do \
	if $$python -c '$(USABLE)' >/dev/null 2>&1; then echo $$python; exit; fi; done; done)

FAST_TESTS := $(wildcard tests/unit tests/kernel tests/simulation tests/tidy)
SLOW_TESTS := $(wildcard tests/conformance tests/integration tests/chaos)
LOWER_TESTS := $(wildcard tests/unit tests/kernel)

# Fast tests start no Ray, and the others one for each of the two processes; a file stays on one.
PARALLEL := -n 2 --dist loadfile

define make_venv
	@if [ -z "$(PYTHON)" ]; then \
		echo "no usable Python 3.11, 3.12 or 3.13 on PATH (it must run and have 'venv');" \
			"install one (Debian: apt-get install python3-venv), or say make PYTHON=/path/to/python" >&2; \
		exit 1; fi
	@if ! $(1)/bin/python -c 'import sys' >/dev/null 2>&1; then \
		echo "making $(1) with $(PYTHON)"; rm -rf $(1); $(PYTHON) -m venv $(1); fi
endef

help:
	@echo "make demo   runs a pipeline over a file on a local Ray instance"
	@echo "make check  format, lint, types, import rules, fast tests (about 3 minutes on 2 cores)"
	@echo "make test   check and everything else: conformance, Ray, wheel, oldest versions (more than an hour on 2 cores)"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call make_venv,$(VENV))
	@echo "installing the versions of constraints.txt into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.installed
	@$(BIN)/arkflow-ray run examples/demo.yaml

check: lint test-fast

lint: $(VENV)/.installed
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test-fast: $(VENV)/.installed
	$(BIN)/pytest -q $(PARALLEL) -m "not slow and not thorough" $(FAST_TESTS)

test: lint coverage slow lower

# How much of the kernel the fast tests reach, lines and branches together; then those of the same
# folders that are marked `slow`, at their full speed.
coverage: $(VENV)/.installed
	$(BIN)/pytest -q $(PARALLEL) -m "not slow" --cov=arkflow_kernel --cov-branch \
		--cov-report=term:skip-covered --cov-fail-under=95 $(FAST_TESTS)
	$(BIN)/pytest -q $(PARALLEL) -m slow $(FAST_TESTS)

slow: $(VENV)/.installed
	$(BIN)/pytest -q $(PARALLEL) $(SLOW_TESTS)

wheel: $(VENV)/.installed
	$(BIN)/pytest -q tests/integration/test_wheel.py

# The oldest versions that pyproject.toml promises: what is installed is exactly constraints-lower.txt.
lower: $(LOWER)/.installed
	$(LOWER)/bin/pytest -q $(PARALLEL) -m "not slow" $(LOWER_TESTS)
	$(LOWER)/bin/pytest -q $(PARALLEL) -m slow tests/unit/checkpoint tests/unit/outputs
	$(LOWER)/bin/arkflow-ray run --inline examples/demo.yaml

$(LOWER)/.installed: pyproject.toml constraints-lower.txt
	$(call make_venv,$(LOWER))
	@echo "installing the versions of constraints-lower.txt into $(LOWER)"
	@$(LOWER)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lower.txt \
		-e . duckdb hypothesis pytest pytest-timeout pytest-xdist
	@touch $@

# Take the newest versions: a fresh environment, frozen. Read the diff, run `make test`, commit.
lock:
	@rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@{ sed '/^[^#]/,$$d' constraints.txt; .venv-lock/bin/python -m pip freeze --exclude-editable; } > .venv-lock/frozen
	@mv .venv-lock/frozen constraints.txt && rm -rf .venv-lock

clean:
	rm -rf $(VENV) $(LOWER) .venv-lock dist build
