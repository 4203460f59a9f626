# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test clean

demo: $(VENV)/.base
	$(BIN)/modelkin demo

test: $(VENV)/.all
	$(BIN)/ruff check src tests benchmarks zoo
	$(BIN)/ruff format --check src tests benchmarks zoo
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadgroup

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "modelkin needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev,torch,figures]'
	touch $(VENV)/.base $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
