# Every target sets up what it needs; the second call is instant.
PYTHON ?= python3
BIN := .venv/bin
RUN := .venv/.installed
DEV := .venv/.installed-dev

.PHONY: demo test check bench format constraints clean

demo: $(RUN)
	$(BIN)/colonnade demo

test: $(DEV)
	$(BIN)/pytest -n 3 --dist worksteal

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright

bench: $(RUN)
	$(BIN)/python -m bench

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Versions of everything that is installed, from a clean environment; the comments and torch stay.
constraints:
	rm -rf .venv-clean
	$(PYTHON) -m venv .venv-clean
	grep '^torch==' constraints.txt > .venv-clean/torch.txt
	.venv-clean/bin/python -m pip install --quiet -c .venv-clean/torch.txt -e ".[dev]"
	grep '^#' constraints.txt > .venv-clean/constraints.txt
	.venv-clean/bin/python -m pip freeze --all --exclude-editable | grep -v '^pip==' | sed 's/+.*//' >> .venv-clean/constraints.txt
	mv .venv-clean/constraints.txt constraints.txt
	rm -rf .venv-clean

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	touch $@

$(DEV): $(RUN)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf .venv .venv-clean .pytest_cache .ruff_cache .hypothesis
