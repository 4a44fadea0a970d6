# Everything runs in .venv, which these targets make and keep up to date. A clean machine needs
# Python 3.11 or newer with venv, and make.

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.14,\
	$(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile

.DEFAULT_GOAL := help
.PHONY: help demo test lint format bench clean

help: ## Say what can be made.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: .venv/.demo ## Show in two minutes what stoker is for.
	@$(BIN)/stoker demo

test: lint ## Check everything: lint, format, types, tests, documentation.
	@$(BIN)/python -m pytest

lint: .venv/.test ## Check lint, format and types.
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: .venv/.test ## Put the source into its form.
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: .venv/.bench ## Measure, with peers beside it in the same run.
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean: ## Remove what these targets made.
	rm -rf .venv .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -prune -exec rm -rf {} +

# A stamp a set of dependencies; the source is installed editable, so only pyproject.toml counts.
.venv/.%: pyproject.toml | .venv/bin/python
	@echo "Installing stoker[$*] into .venv"
	@$(PIP_INSTALL) --editable '.[$*]'
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "stoker needs Python 3.11 or newer; none was found (or name one: make PYTHON=...)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "stoker needs Python 3.11 or newer; $(PYTHON) is older or missing"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "stoker needs Python's venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv --clear .venv
