# One target for each request. `make demo` and `make test` are the README's two commands.
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
unexport PYTHONDONTWRITEBYTECODE  # else each process of the tests compiles every module anew: a third of their CPU

.PHONY: help demo test test-all test-slurm test-kubernetes bench soak prepare install fmt check lint types arch unit engine sandbox golden image-proof mutants

help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

demo: prepare install ## a cluster bursts on this machine, from nothing to nothing; root, Debian 12
	$(BIN)/python tools/demo/demo.py

test: prepare install ## what each change must pass: check, one stack on the real Pulumi engine, one real cluster in the sandbox; root, Debian 12
	$(BIN)/python tools/suite.py gate

test-all: prepare install ## everything: check, all of the engine, clusters, Slurm versions and Kubernetes; root
	$(BIN)/python tools/suite.py all

bench: install   ## figures, one JSON object a line; `make bench NAME=hook` for one
	$(BIN)/python -m bench $(NAME)

prepare:
	@python3 tools/prepare.py $(MAKECMDGOALS)

$(STAMP): requirements/dev.txt pyproject.toml
	@echo "installing the pinned packages into $(VENV); one to three minutes"
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

unit: install    ## unit tests, no sockets but loopback, no root
	$(BIN)/pytest -q -n 2

mutants: install ## change the code in 150 places, one at a time: how many of them the unit tests find
	$(BIN)/python tools/mutants.py --count $(or $(COUNT),150) --seed $(or $(SEED),1)

soak: prepare install ## what make test-all does of faults, much more of it: 10,000 scenarios, then every fault run on three real clusters; root
	$(BIN)/python tools/soak.py --schedules $(or $(SCHEDULES),10000) --seed $(or $(SEED),1)
	PYTHONPATH=tests $(BIN)/python tests/sandbox/soak.py

test-slurm: prepare install ## rendered files on real daemons of every Slurm version whose packages Debian has; root, under half an hour
	$(BIN)/pytest -q -n 3 --plans-at-least 44 --default-job-specs 30 tests/slurm  # they mostly wait

test-kubernetes: install ## rendered manifests on a real Kubernetes control plane with Kueue and JobSet; builds it first
	$(BIN)/python tools/warm.py kubernetes
	$(BIN)/pytest -q -n 2 --dist loadfile --tests-at-least 230 tests/kubernetes

engine: install  ## the program on the real Pulumi engine against the stand-in provider
	$(BIN)/pytest -q -n 4 tests/engine

sandbox: install ## real clusters in capsules
	$(BIN)/pytest -q -n 3 --dist loadfile tests/sandbox

image-proof: prepare install ## the image's way to Slurm: Debian's source built and installed by its tasks; root, ten to twenty minutes
	$(BIN)/python tools/prove_image.py

check: install   ## ruff, pyright, import-linter, fixtures of the long suites, unit tests; no root
	$(BIN)/python tools/suite.py check

golden: install  ## rewrite the golden trees; then read `git diff tests/golden`
	$(BIN)/pytest -q tests/unit --update-golden
