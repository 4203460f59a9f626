# Two commands on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test chromium picture clean

demo: $(VENV)/.base
	$(BIN)/modelkin demo

test: $(VENV)/.all chromium
	$(BIN)/ruff check src tests benchmarks zoo docs
	$(BIN)/ruff format --check src tests benchmarks zoo docs
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadgroup

# The report is tested in a real browser: the system's, installed here by apt if it is missing.
chromium:
	@if command -v chromium >/dev/null; then exit 0; fi; \
	fail() { echo "make: $$1" >&2; echo 'make: report.html is tested in chromium: put one on the PATH and try again' >&2; exit 1; }; \
	command -v apt-get >/dev/null || fail 'there is no chromium, and no apt-get to install it with'; \
	if [ "$$(id -u)" = 0 ]; then as_root=; \
	elif command -v sudo >/dev/null; then as_root=sudo; \
	else fail 'there is no chromium, and installing it needs root or sudo'; fi; \
	echo "report.html is tested in chromium, which is missing. Installing it: $$as_root apt-get install chromium"; \
	{ $$as_root apt-get update -qq && \
	  $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium; } >/dev/null \
	  || fail 'apt-get could not install chromium; what it said is above'; \
	command -v chromium >/dev/null || fail 'apt-get installed chromium, but it is not on the PATH'

# The pictures of README.md and README.ko.md, anew.
picture: $(VENV)/.all chromium
	$(BIN)/python docs/picture.py

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
