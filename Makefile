# One word for each wish. `make demo` and `make test` are the README's two commands.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help install fmt check lint types arch unit golden

help:            ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(STAMP): requirements/dev.txt pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --disable-pip-version-check -e .
	@touch $@

install: $(STAMP) ## the venv, from hashed pins

fmt: install     ## write the format
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: install
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: install
	$(BIN)/pyright

arch: install
	$(BIN)/lint-imports

unit: install    ## unit tests, no sockets, no root
	$(BIN)/pytest -q

check: lint types arch unit ## ruff, pyright, import-linter, unit tests

golden: install  ## rewrite the golden trees; then read `git diff tests/golden`
	$(BIN)/pytest -q tests/unit --update-golden
