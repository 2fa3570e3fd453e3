# Needed beforehand: Python >= 3.11, make and git. Everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.synced
FRAMEWORKS := .venv-frameworks
ARGS ?=

# pygraphviz is compiled against Graphviz: only where its headers are.
GRAPH := $(shell pkg-config --exists libcgraph 2>/dev/null && echo --extra graph)
EXTRAS := --extra node --extra flows --extra web --extra sandbox --extra sign --extra openlineage $(GRAPH)

export DO_NOT_TRACK := 1
export UV_PYTHON_DOWNLOADS := never

.DEFAULT_GOAL := help
.PHONY: help setup demo test frameworks lint format bench campaign docs lock clean

help: ## what there is
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install the locked set

$(BIN)/python $(FRAMEWORKS)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11: say 'make PYTHON=python3.12 ...'" >&2; exit 1; }
	$(PYTHON) -m venv $(patsubst %/bin/python,%,$@)

$(STAMP): pyproject.toml uv.lock .ci/sync | $(BIN)/python
	.ci/sync $(BIN) --group dev $(EXTRAS)
	@touch $@

demo: setup ## the main job on real services, told in a few lines
	$(BIN)/lakemark demo $(ARGS)

test: lint ## lint, then every test
	$(BIN)/pytest $(ARGS)

$(FRAMEWORKS)/.synced: pyproject.toml uv.lock .ci/sync | $(FRAMEWORKS)/bin/python
	.ci/sync $(FRAMEWORKS)/bin --group frameworks --extra node --extra sandbox
	@touch $@

frameworks: $(FRAMEWORKS)/.synced ## the examples on real frameworks, in an environment of their own (6 GB)
	$(FRAMEWORKS)/bin/pytest tests/frameworks $(ARGS)

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: setup ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## the measurements of benchmarks/, quick ones
	@for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python "$$file" $(ARGS) || exit 1; done

campaign: setup ## the heavy tests: power loss, kills, drawn faults and orders
	$(BIN)/pytest -m campaign -n 1 --timeout 3600 $(ARGS)

docs: setup ## check that the documentation says what the program does
	$(BIN)/pytest tests/docs tests/cli/test_reference.py $(ARGS)

lock: $(BIN)/python ## resolve anew after a change of dependencies
	$(BIN)/uv lock --default-index https://pypi.org/simple

clean: ## remove .venv, caches and what a demo left
	rm -rf $(VENV) $(FRAMEWORKS) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.* demo demo-[0-9]*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
