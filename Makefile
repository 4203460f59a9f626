# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test chromium clean

demo: $(VENV)/.base
	$(BIN)/modelkin demo

test: $(VENV)/.all chromium
	$(BIN)/ruff check src tests benchmarks zoo
	$(BIN)/ruff format --check src tests benchmarks zoo
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# The report is tested in a real browser: the system's, installed here if it is missing.
chromium:
	@command -v chromium >/dev/null || { \
	  command -v apt-get >/dev/null || { echo 'the tests of report.html need chromium on the PATH: install it first'; exit 1; }; \
	  echo 'installing chromium, in which report.html is tested'; \
	  { apt-get update && apt-get install -y --no-install-recommends chromium; } >/dev/null || \
	  { echo 'chromium could not be installed: as root, apt-get install chromium'; exit 1; }; }

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "modelkin needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[dev,torch,figures,report]'
	touch $(VENV)/.base $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
