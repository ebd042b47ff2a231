# Every target sets itself up: the first one creates .venv and installs the versions of requirements.txt.
# `make help` lists them.

PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.ready

DATASET ?= cifar10
FROM    ?=
TIME    ?= 150m
WRITE   ?=

# DATASETS, METHODS, CASES and SEEDS choose a part of the study, such as DATASETS="cifar10 cifar100" SEEDS=0.
PART = $(if $(DATASETS),--datasets $(DATASETS)) $(if $(METHODS),--methods $(METHODS)) \
       $(if $(CASES),--cases $(CASES)) $(if $(SEEDS),--seeds $(SEEDS))

.DEFAULT_GOAL := help
.PHONY: help setup data plan train bench test sanitize lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with the pinned versions

# --no-deps and --no-build-isolation: the versions above serve, nothing newer may come in.
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed: make PYTHON=python3.11") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(RUN) -m fedentropy_core.engines.native
	@touch $@

data: $(READY) ## fetch CIFAR-10; DATASET=cifar100 or cinic10 with FROM=archive or folder
	$(RUN) -m fedentropy_core data --dataset $(DATASET) $(if $(FROM),--from "$(FROM)")

plan: $(READY) ## list the runs that the paper needs and which are recorded; DATASETS METHODS CASES SEEDS choose
	@$(RUN) -m fedentropy_core plan $(PART)

train: $(READY) ## train missing runs for TIME=150m, most valuable first; DATASETS METHODS CASES SEEDS choose
	$(RUN) -m fedentropy_core train --time $(TIME) $(PART)

bench: $(READY) ## time the engines side by side; WRITE=results/bench.json keeps the numbers
	$(RUN) -m fedentropy_core bench $(if $(WRITE),--write $(WRITE))

test: $(READY) lint ## lint and tests
	$(RUN) -m pytest

lint: $(READY) ## ruff
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

clean: ## remove .venv and caches of tools; data and results stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis *.egg-info
