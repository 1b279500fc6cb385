# Every target sets up what it needs; the second call is instant.
PYTHON ?= python3
BIN := .venv/bin
RUN := .venv/.installed
DEV := .venv/.installed-dev

.PHONY: demo test check bench format clean

demo: $(RUN)
	$(BIN)/colonnade demo

test: $(DEV)
	$(BIN)/pytest -n 2 --dist worksteal

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

bench: $(RUN)
	$(BIN)/python -m bench

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(DEV): $(RUN)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
