# Thin: the work is in `distlab`. Every target builds the environment first, if it is not there.
VENV := .venv
BIN := $(VENV)/bin
# WHEELS=FOLDER installs from the files in FOLDER alone, without a network.
OFFLINE := $(if $(WHEELS),--no-index --find-links '$(WHEELS)')
# GPU=1 also installs CUDA's libraries, for a machine with an NVIDIA GPU.
READY := $(VENV)/.ready$(if $(GPU),-gpu)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(OFFLINE) -c constraints.txt -e
.DEFAULT_GOAL := help

.PHONY: help lab doctor clean

help::
	@echo 'make lab     open the course in JupyterLab (make lab ARGS=--no-browser)'
	@echo 'make doctor  say what this machine has and what works'
	@echo 'make clean   remove the environment'

# The first Python from 3.11 to 3.13 that can make a virtual environment; PYTHON=... names another.
$(READY): pyproject.toml constraints.txt
	@python=$${PYTHON:-}; \
	if [ -z "$$python" ]; then \
	  for candidate in python3.12 python3.13 python3.11 python3 python; do \
	    if $$candidate -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; \
	    then python=$$candidate; break; fi; \
	  done; \
	fi; \
	if [ -z "$$python" ]; then \
	  echo 'No Python 3.11, 3.12 or 3.13 with venv was found. Install one (Debian, Ubuntu: python3 and python3-venv), or name it: make PYTHON=/path/to/python3.12' >&2; exit 1; \
	fi; \
	echo "Building the environment in $(VENV) with $$($$python --version) (a few minutes, about 3 GB, once)"; \
	$$python -m venv $(VENV)
	@$(INSTALL) '.[lab]'
	@$(if $(GPU),$(INSTALL) '.[gpu]')
	@touch $@

lab: $(READY)
	@$(BIN)/distlab lab $(ARGS)

doctor: $(READY)
	@$(BIN)/distlab doctor $(ARGS)

clean:
	@rm -rf $(VENV)

# ---- For teachers and authors: a release to students ends here.
TEACH := $(READY)-teach
TEST := $(READY)-test
# Test files at once: each takes 1 to 2 GB, and waits for other processes a quarter of its time.
JOBS ?= $(if $(shell awk '/MemAvailable/ && $$2 > 10000000' /proc/meminfo 2>/dev/null),3,2)

.PHONY: teach test test-fast test-all bench gpu-check chaos grade-demo build book wheels constraints run-gpu-check

help::
	@echo 'make test    run the tests, lessons and labs included; a part: make test ARGS="-k lesson05"'
	@echo 'make test-fast  the fast ones, in two minutes'
	@echo 'make test-all  every test at full length, all notebooks in JupyterLab; then chaos'
	@echo 'make bench   measure, side by side'
	@echo 'make gpu-check  prove on a machine with GPUs what cannot be seen without, and write a report'
	@echo 'make chaos   kill and freeze training runs at random: all must survive'
	@echo 'make teach   add what a teacher needs: distlab release, distlab grade'
	@echo 'make grade-demo  grade a small class and say where its pages are'
	@echo 'make build   regenerate notebooks and labs whose source changed'
	@echo 'make book    the course as a static site in build/book, to read without a kernel'
	@echo 'make wheels  fill the folder wheels/, from which make lab WHEELS=wheels installs without a network'

$(TEACH): $(READY)
	@echo "Adding what a teacher's commands need"
	@$(INSTALL) '.[lab,teach]'
	@touch $@

$(TEST): $(READY)
	@echo 'Adding what the tests need'
	@$(INSTALL) '.[lab,teach,test]'
	@touch $@

PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --disable-warnings

test: $(TEST)
	@$(PYTEST) --nbval --nbval-current-env $(ARGS)

test-fast: $(TEST)
	@$(PYTEST) -m fast tests $(ARGS)

test-all: export DISTLAB_TEST_ALL := 1
test-all: export DISTLAB_REDUCED :=
test-all: export PYTEST_TIMEOUT := 2400
test-all: test chaos

bench: $(TEST)
	@$(BIN)/python -m benchmarks $(ARGS)

# Everything is installed first, unless there is no GPU: then one line says so.
gpu-check:
	@nvidia-smi -L >/dev/null 2>&1 || { echo 'gpu-check: nvidia-smi lists no GPU on this machine' >&2; exit 2; }
	@$(MAKE) --no-print-directory GPU=1 run-gpu-check

run-gpu-check: $(TEST)
	@$(BIN)/python -m benchmarks.gpu_check $(ARGS)

# KILLS=N for another number than 100
chaos: $(TEST)
	@$(BIN)/python -m benchmarks.chaos $(if $(KILLS),--runs $(KILLS))
	@$(BIN)/python -m benchmarks.rendezvous_chaos $(if $(KILLS),--runs $(KILLS))

teach: $(TEACH)

grade-demo: $(TEACH)
	@$(BIN)/python -m distlab.grading.demo $(ARGS)

build: $(TEST)
	@$(BIN)/distlab build $(ARGS)

book: $(READY)
	@$(BIN)/python -c 'import furo, latex2mathml, myst_nb' 2>/dev/null || \
	  $(INSTALL) '.[book]'
	@$(BIN)/distlab book $(ARGS)

# What an install needs, for this kind of machine and this Python; setuptools builds the course itself.
wheels: $(READY)
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check -d wheels -c constraints.txt '.[lab,teach,test,book]' 'setuptools>=77'
	@for source in $$(ls wheels/*.tar.gz 2>/dev/null); do \
	  $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-index --no-deps --find-links wheels -w wheels $$source && rm $$source || exit 1; \
	done
	@echo "wheels/ holds $$(ls wheels | wc -l) files, $$(du -sh wheels | cut -f1)"

# Resolve again in an empty environment and pin what came out.
constraints:
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && python3 -m venv $$fresh/venv && \
	$$fresh/venv/bin/python -m pip install --quiet '.[lab,teach,test,ray,spark,search,hub,manifests,book,types]' && \
	{ head -n 2 constraints.txt; $$fresh/venv/bin/python -m pip freeze | grep -v -e '^distributed-training-lab' -e ' @ '; \
	  $$fresh/venv/bin/python -m pip install --quiet --upgrade pip; \
	  $$fresh/venv/bin/python -m pip install --quiet --dry-run --report $$fresh/gpu.json '.[gpu]'; \
	  $$fresh/venv/bin/python -c 'import json, sys; names = [p["metadata"] for p in json.load(open(sys.argv[1]))["install"]]; print(*(n["name"] + "==" + n["version"] for n in names if n["name"].startswith("nvidia")), sep="\n")' $$fresh/gpu.json; \
	} > $$fresh/pins && \
	cp $$fresh/pins constraints.txt
