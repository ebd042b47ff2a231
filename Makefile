# Every target sets itself up: the first one creates .venv and installs the versions of requirements.txt.
# `make help` lists them.

PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python
READY  := $(VENV)/.ready
FLOWER := $(VENV)/.flower
PEERED := .peers/.ready

DATASET ?= cifar10
FROM    ?=
TIME    ?= 150m
N       ?= 6
ROUNDS  ?=
FRESH   ?=
ENGINES ?=
DEVICE  ?=
WRITE   ?=
AGAINST ?=
SCALE   ?=
PEERS   ?=
SCHEDULE ?=
SHOW    ?=
RAY     ?=
STACK   ?=
STUDY   ?= paper
JOBS    ?=
COMMA   := ,
WORKERS ?= 2

# What needs Flower and Ray is tested by `make flower`.
ON_FLOWER := tests/test_flower.py tests/test_cluster.py
# A file stays on one worker: cells of a notebook follow each other, and files share what is dear to make.
PYTEST = $(RUN) -m pytest --numprocesses $(WORKERS) --dist loadfile $(addprefix --ignore=,$(ON_FLOWER))

# On what to train: JOBS runs side by side; RAY=auto or an address is a cluster, STACK=1 stacks seeds on a GPU.
ON = $(if $(JOBS),--jobs $(JOBS)) $(if $(RAY),--ray $(RAY)) $(if $(DEVICE),--device $(DEVICE)) $(if $(STACK),--stack-seeds)

# STUDY is paper, mirrored or diagnosis; DATASETS, METHODS, CASES and SEEDS choose a part of it, such as
# DATASETS="cifar10 cifar100" SEEDS=0.
PART = --study $(STUDY) $(if $(DATASETS),--datasets $(DATASETS)) $(if $(METHODS),--methods $(METHODS)) \
       $(if $(CASES),--cases $(CASES)) $(if $(SEEDS),--seeds $(SEEDS))

.DEFAULT_GOAL := help
.PHONY: help setup data reproduce audit smoke lab plan train bench check test flower sanitize lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with the pinned versions

# --no-deps and --no-build-isolation: the versions above serve, nothing newer may come in.
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed: make PYTHON=python3.11") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(RUN) -c 'from fedentropy_core.engines.build import announce; announce()'
	@touch $@

data: $(READY) ## fetch CIFAR-10; DATASET=cifar100 or cinic10 with FROM=archive or folder
	$(RUN) -m fedentropy_core data --dataset $(DATASET) $(if $(FROM),--from "$(FROM)")

reproduce: $(READY) $(if $(RAY),$(FLOWER)) ## regenerate every table and figure from the records; FRESH=1 [ROUNDS=…] trains everything anew
ifeq ($(FRESH),)
	$(RUN) -m fedentropy_core reproduce --records $(N) $(if $(ROUNDS),--audit-rounds $(ROUNDS)) $(PART) $(ON)
else
	$(RUN) -m fedentropy_core reproduce --fresh $(if $(ROUNDS),--fresh-rounds $(ROUNDS)) $(PART) $(ON)
endif

audit: $(READY) ## train the first ROUNDS=3 rounds of N=6 recorded runs of STUDY=paper again and compare; DATASETS METHODS CASES SEEDS choose
	$(RUN) -m fedentropy_core audit --records $(N) $(if $(ROUNDS),--audit-rounds $(ROUNDS)) $(PART)

smoke: $(READY) ## everything end to end on the synthetic set, in a temporary folder
	$(RUN) -m fedentropy_core smoke

lab: $(READY) ## JupyterLab on the notebooks
	$(RUN) -m jupyter lab --notebook-dir notebooks

plan: $(READY) ## list the runs of STUDY=paper and which are recorded; DATASETS METHODS CASES SEEDS choose
	@$(RUN) -m fedentropy_core plan $(PART)

train: $(READY) $(if $(RAY),$(FLOWER)) ## train missing runs of STUDY=paper for TIME=150m, most valuable first; DATASETS METHODS CASES SEEDS choose
	$(RUN) -m fedentropy_core train --time $(TIME) $(PART) $(ON)

bench: $(READY) $(if $(PEERS),$(PEERED)) ## time the engines; ENGINES=reference,native DEVICE=cuda WRITE=results/bench.json; AGAINST=commit; SCALE=1: as it grows; PEERS=1: other frameworks; SCHEDULE=1: more cores, computed; SHOW=1: as measured before
	$(RUN) -m fedentropy_core bench $(if $(ENGINES),--engines $(subst $(COMMA), ,$(ENGINES))) \
	    $(if $(DEVICE),--device $(DEVICE)) $(if $(WRITE),--write $(WRITE)) $(if $(AGAINST),--against $(AGAINST)) $(if $(SCALE),--scale) \
	    $(if $(PEERS),--peers) $(if $(SCHEDULE),--schedule) $(if $(SHOW),--show) $(if $(ROUNDS),--rounds $(ROUNDS))

$(PEERED): fedentropy_core/bench/peers/requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Flower needs Python 3.11 or newer")'
	$(PYTHON) -m venv .peers
	.peers/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

check: $(READY) lint ## lint and the fast tests, in less than a minute
	$(PYTEST) -m "not slow and not exhaustive" tests

test: $(READY) lint ## lint, all tests but Flower's, every notebook against its stored outputs, the smoke run
	$(PYTEST) --nbval tests notebooks

flower: $(FLOWER) ## install Flower and Ray, and run their tests; see docs/flower.md
	$(RUN) -m pytest $(ON_FLOWER)

$(FLOWER): $(READY)
	@$(RUN) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Flower needs Python 3.11 or newer")'
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-build-isolation --constraint requirements.txt --editable ".[flower]"
	@touch $@

sanitize: $(READY) ## the native engine's tests under AddressSanitizer and UndefinedBehaviorSanitizer
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	    ASAN_OPTIONS=detect_leaks=0 FEDENTROPY_SANITIZE=1 $(RUN) -m pytest tests/test_native.py

lint: $(READY) ## ruff, and which room may import which
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-logo 2>/dev/null || $(VENV)/bin/lint-imports

clean: ## remove .venv, .peers and caches of tools; data and results stay
	rm -rf $(VENV) .peers .pytest_cache .ruff_cache .hypothesis build *.egg-info
