# One word a command. `make help` lists them; each ends with one line that says whether all is well.
#
#   PYTHON=python3.12   the interpreter .venv is made from
#   ARGS=...            further arguments for test (pytest), demo, bench, explore
#   SEEDS=100           how many seeds `make sim` runs, and a quarter as many with several nodes
#   NODES="1 2 3"       how many nodes there are in the worlds that it runs
#   START=0             the first of them
#   SECONDS=            runs as many seeds as fit into this time instead
#   STATES=60000000     how many states `make explore` visits per configuration
#   FUZZ_SECONDS=30     how long `make fuzz` runs each target
#   FUZZ_JOBS=2         how many of them at a time
#   FUZZ_TARGETS=       some of them only
#   FUZZ_SANITIZER=none or address, which also finds wrong accesses in unsafe code and is several times slower
#   SHARD=0/30          which of the mutants `make mutants` takes: every 30th, from the first on
#   PEERS=           whose suites `make peers` runs: executors pools dask joblib
#   ROUNDS=3            how often `make chaos` repeats its tests
#   CHAOS_SECONDS=180   how long its storm of kills lasts the first time

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.SUFFIXES:

PYTHON ?= python3
ARGS ?=
SEEDS ?= 100
NODES ?= 1 2 3
START ?= 0
SECONDS ?=
STATES ?= 60000000
FUZZ_SECONDS ?= 30
FUZZ_JOBS ?= 2
FUZZ_TARGETS ?=
FUZZ_SANITIZER ?= none
SHARD ?= 0/30
PEERS ?= executors pools dask joblib
ROUNDS ?= 3
CHAOS_SECONDS ?= 180

VENV := .venv
PY := $(VENV)/bin/python
STAMPS := $(VENV)/.stamps
CARGO ?= cargo

# An interpreter of another version, or a moved clone, means another .venv: both are part of the stamp's name.
# Exported, so that the inner make does not start the interpreter a second time.
PYTHON_TAG ?= $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_config_var("SOABI"))' 2>/dev/null)
PYTHON_TAG := $(PYTHON_TAG)
export PYTHON_TAG
VENV_STAMP := $(STAMPS)/venv-$(PYTHON_TAG)-$(shell printf %s "$(CURDIR)" | cksum | cut -d' ' -f1)

# What the extension is built from. Directories are listed too: a removed file changes only its directory.
RUST_SOURCES := $(shell find crates -type d -name target -prune -o \( -type d -o -name '*.rs' -o -name Cargo.toml \) -print 2>/dev/null)
BUILD_INPUTS := $(RUST_SOURCES) $(wildcard Cargo.toml Cargo.lock rust-toolchain.toml .cargo/config.toml) pyproject.toml
EXTENSION := $(wildcard python/sooner/_sooner.*.so)

# PyO3 asks the interpreter of this environment, whatever python3 is on the PATH.
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
export PYO3_PYTHON := $(CURDIR)/$(PY)
# The environments and the extension belong to this clone; nothing from the user's site comes in.
export PYTHONNOUSERSITE := 1
unexport PYTHONPATH PYTHONHOME

COMMANDS := demo test peers build bench lint docs fuzz sim explore mutants chaos clean
.PHONY: $(COMMANDS) $(addprefix do-,$(COMMANDS)) help do-rust-tools force

help:
	@echo "make demo    build, then train a policy with evolution strategies and watch it learn"
	@echo "make test    Rust unit tests, then the Python suite     (ARGS='-k name' goes to pytest)"
	@echo "make peers   run the test suites of CPython's pools and executors, joblib and Dask over ours (PEERS='$(PEERS)')"
	@echo "make build   make .venv and install the extension into it (release)"
	@echo "make bench   measure the microbenchmark beside its peers (ARGS=--quick takes 4 minutes)"
	@echo "make lint    rustfmt, clippy, ruff, mypy, pyright, tidy, licences and advisories"
	@echo "make docs    build the documentation into site/; a warning is an error"
	@echo "make sim     run the simulator                          (SEEDS=$(SEEDS) START=$(START), or SECONDS=60)"
	@echo "make explore search small worlds whole                  (STATES=$(STATES) each at most; ARGS='--config NAME')"
	@echo "make fuzz    fuzz every parser                          (FUZZ_SECONDS=$(FUZZ_SECONDS) each, FUZZ_JOBS=$(FUZZ_JOBS))"
	@echo "make mutants change sooner-protocol, see if tests notice  (SHARD=$(SHARD): every 30th change, from the first on)"
	@echo "make chaos   repeat the tests that kill processes       (ROUNDS=$(ROUNDS))"
	@echo "make clean   remove everything the other commands made"

# Every command runs in an inner make, so that the line at the end is printed whatever happened inside.
$(COMMANDS):
	@start=$$SECONDS; \
	if $(MAKE) --no-print-directory do-$@; then \
	  $(if $(findstring n,$(firstword -$(MAKEFLAGS))),exit 0;) \
	  echo "make $@: all is well ($$((SECONDS - start)) s)"; \
	else \
	  echo "make $@: NOT WELL after $$((SECONDS - start)) s; the reason is above" >&2; exit 1; \
	fi

# --- environment and extension ---------------------------------------------------------------------

$(VENV_STAMP):
	@tools/doctor.sh python "$(PYTHON)"
	@echo "==> making $(VENV) with $(PYTHON)"
	@rm -rf $(VENV)
	@"$(PYTHON)" -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# --no-deps: the files are complete, so that nothing comes in that is not pinned.
$(STAMPS)/pins-%: requirements/%.txt $(VENV_STAMP)
	@echo "==> installing $<"
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

# By the profile it is built with, of which the package holds one at a time.
$(STAMPS)/extension-%: $(BUILD_INPUTS) $(STAMPS)/pins-build $(if $(EXTENSION),,force)
	@tools/doctor.sh rust
	@echo "==> building the extension ($*)"
	@rm -f python/sooner/_sooner.*.so $(STAMPS)/extension-*
	@PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m maturin develop --profile $* --locked
	@touch $@

# The demo takes what there is; building `release` for it alone would take three times as long.
DEMO_PROFILE := $(if $(wildcard $(STAMPS)/extension-release),release,fast)

# A source removed between two runs of make is not an error.
$(RUST_SOURCES):

do-build: $(STAMPS)/extension-release
	@$(PY) -c 'import sooner; print("sooner", sooner.__version__, "in $(VENV)")'

# --- commands --------------------------------------------------------------------------------------

do-demo: $(STAMPS)/extension-$(DEMO_PROFILE) $(STAMPS)/pins-demo
	@echo "==> evolution strategies on a real simulator (examples/evolution_strategies.py)"
	@$(PY) examples/evolution_strategies.py $(ARGS)

do-test: $(STAMPS)/extension-fast $(STAMPS)/pins-test $(STAMPS)/pins-demo $(STAMPS)/pins-object_store
	@CARGO="$(CARGO)" tools/test.sh "$(PY)" $(ARGS)

# In a process each, as joblib's and CPython's tests change theirs. What joblib expects to fail may pass; 5: nothing to run here.
do-peers: $(STAMPS)/extension-fast $(STAMPS)/pins-test
	@failed=; for suite in $(PEERS); do \
	  echo "==> tests of $$suite over sooner's"; \
	  $(PY) -m pytest -q -o xfail_strict=false -p no:unraisableexception tests/peers/suite_$$suite.py $(ARGS) \
	    || [ $$? -eq 5 ] || failed="$$failed $$suite"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

do-bench: do-build
	@echo "==> microbenchmark (bench/micro.py $(ARGS))"
	@$(PY) bench/micro.py $(ARGS)

# Cheap checks first. The stub check needs the extension, so it comes last and builds it.
do-lint: $(STAMPS)/pins-build $(STAMPS)/pins-lint do-rust-tools
	@echo "==> tidy: arrows, sizes, headers, walls"
	@$(PY) tools/tidy.py
	@echo "==> rustfmt"
	@$(CARGO) fmt --all --check
	@echo "==> ruff"
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --check --quiet . || { echo "run: $(PY) -m ruff format ." >&2; exit 1; }
	@echo "==> mypy --strict"
	@$(PY) -m mypy
	@echo "==> typing cases: mypy and pyright on tests/typing"
	@$(PY) tools/typing_cases.py
	@echo "==> clippy"
	@$(CARGO) clippy --quiet --locked --profile fast --workspace --all-targets -- -D warnings
	@CARGO="$(CARGO)" tools/deny.sh
	@$(MAKE) --no-print-directory $(STAMPS)/extension-fast
	@echo "==> stubtest: _sooner.pyi against the built extension"
	@$(PY) -m mypy.stubtest sooner._sooner --concise --ignore-missing-stub --ignore-disjoint-bases

do-rust-tools:
	@tools/doctor.sh rust

do-docs: $(STAMPS)/pins-docs
	@echo "==> documentation into site/ (warnings are errors)"
	@$(PY) -m mkdocs build --strict --quiet --clean --site-dir site

do-sim: do-rust-tools
	@for nodes in $(NODES); do \
	  seeds=$$([ $$nodes = 1 ] && echo "$(SEEDS)" || echo $$((($(SEEDS) + 3) / 4))); \
	  echo "==> simulator, $(if $(SECONDS),as many seeds as fit into $(SECONDS) s,$$seeds seeds) from $(START) on, worlds of $$nodes nodes"; \
	  $(CARGO) run --quiet --locked --profile fast -p sooner-sim --bin sooner-sim -- --start "$(START)" --nodes $$nodes \
	    $(if $(SECONDS),--seconds "$(SECONDS)",--seeds $$seeds) $(ARGS); \
	done

do-explore: do-rust-tools
	@echo "==> explorer, at most $(STATES) states per configuration"
	@$(CARGO) run --quiet --locked --release -p sooner-sim --bin explore -- --max-states "$(STATES)" $(ARGS)

do-fuzz: do-rust-tools
	@FUZZ_SECONDS="$(FUZZ_SECONDS)" FUZZ_JOBS="$(FUZZ_JOBS)" FUZZ_TARGETS="$(FUZZ_TARGETS)" FUZZ_SANITIZER="$(FUZZ_SANITIZER)" CARGO="$(CARGO)" tools/fuzz.sh

do-mutants: do-rust-tools
	@echo "==> mutants of sooner-protocol, shard $(SHARD)"
	@MUTANTS_SHARD="$(SHARD)" CARGO="$(CARGO)" tools/mutants.sh $(ARGS)

do-chaos: $(STAMPS)/extension-fast $(STAMPS)/pins-test
	@for round in $$(seq $(ROUNDS)); do \
	  echo "==> tests that kill processes, round $$round of $(ROUNDS)"; \
	  SOONER_CHAOS_SECONDS=$$([ $$round = 1 ] && echo $(CHAOS_SECONDS) || echo 10) \
	  $(PY) -m pytest -q -m chaos $(ARGS) || \
	    { [ $$? -ne 5 ] || echo "no test bears the marker chaos" >&2; exit 1; }; \
	done

do-clean:
	@echo "==> removing environments, build outputs and caches"
	@rm -rf $(VENV) .venv-bench target site dist bench/scratch bench/out examples/out
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@rm -f python/sooner/_sooner.*.so
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
