# All targets run in .venv, which they create and update. A new machine needs Python 3.11 or newer
# with venv, and make.

PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.14,\
	$(shell $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
BIN := .venv/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile

# Child processes import stoker too: it is compiled once, whatever the environment says.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo package test test-slow test-s3 test-package test-adapters docs lint format bench clean

help: ## List the targets.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: .venv/.demo ## Train with and without stoker, in about a minute.
	@$(BIN)/stoker demo

test: lint ## Run all checks but the slow ones: lint, format, types, tests, documentation.
	@$(PYTEST) -n auto --dist worksteal -m "not slow and not alone"
	@$(PYTEST) -m "not slow and alone"

test-slow: .venv/.test ## Run the slow tests: soak, restarts, network, many sessions, more seeds.
	@$(PYTEST) -n auto --dist worksteal -m "slow and not alone"
	@$(PYTEST) -m "slow and alone"

test-s3: .venv/.test .venv/.test-s3 ## Run the tests of a journal in S3, on a server on loopback.
	@$(PYTEST) tests/service/journal/test_s3.py

test-adapters: .venv/.test .venv/.test-adapters ## Run the tests of the adapters: PyTorch, JAX, Keras and others.
	@# PyTorch, JAX and TensorFlow take 2 GB in each test process; the order of files is theirs.
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder tests/adapters

test-package: .venv/.test .venv/.test-package ## Build the package; install and try it with each Python.
	@$(PYTEST) -o faulthandler_timeout=0 tests/package

package: .venv/.test-package ## Build the sdist and the wheel in dist/.
	@rm -rf dist
	@$(BIN)/python -m build
	@$(BIN)/python -m twine check --strict dist/*

docs: .venv/.test .venv/.docs ## Build the site in build/site; a broken link or a name without a page is an error.
	@rm -rf build/docs build/site && mkdir -p build/docs
	@git ls-files -z --cached --others --exclude-standard -- '*.md' '*.ipynb' LICENSE examples \
		| xargs -0 cp --parents -t build/docs
	@# A snippet names what it needs after its language, which the site does not understand.
	@find build/docs -name '*.md' -exec sed -i -E 's/^( *```python) [a-z]+$$/\1/' {} +
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@$(PYTEST) --quiet tests/site

lint: .venv/.test ## Check lint, format and types.
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: .venv/.test ## Format the source.
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: .venv/.bench ## Run the benchmarks, with peers in the same run.
	@for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean: ## Remove everything that these targets created.
	rm -rf .venv .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -prune -exec rm -rf {} +

# One stamp per set of dependencies; the source is installed in editable mode, so a stamp depends on
# pyproject.toml only.
.venv/.%: pyproject.toml | .venv/bin/python
	@echo "Installing stoker[$*] into .venv"
	@$(PIP_INSTALL) --editable '.[$*]'
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "stoker needs Python 3.11 or newer, and none was found; set it with make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "stoker needs Python 3.11 or newer; $(PYTHON) is older or missing"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
		|| { echo "stoker needs Python's venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv --clear .venv
