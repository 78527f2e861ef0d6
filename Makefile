# The whole developer interface. Every target needs only Python >= 3.11, a C++20 compiler and make.
export VENV ?= .venv
INSIDE = $(VENV)/bin/python
INSTALLED = $(VENV)/.installed
# The demo needs no requirements of the tests; where these are installed, it runs there.
FOR_DEMO = $(or $(wildcard $(INSTALLED)),$(VENV)/.installed-for-demo)
# Tests start hundreds of processes: what these import is compiled once, whatever the caller's setting.
unexport PYTHONDONTWRITEBYTECODE
SOURCES = pyproject.toml CMakeLists.txt scripts/install $(shell find kernels -type f)

.PHONY: help demo test methods exhaustive genomes peers ucx matrix rounds suites tpch-gpu dashboard check docs kernels compile bench gpu wheel wheel-test version slurm clean

help:                       ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## */\1 /p' $(MAKEFILE_LIST) | while read -r target said; do \
	    printf '%-10s  %s\n' "$$target" "$$said"; done

demo: $(FOR_DEMO)           ## run the main job: index, join, look up, compared with pandas
	$(INSIDE) -m dgpuhash demo

test: $(INSTALLED)          ## run the tests and the docstrings' examples
	scripts/test

methods: $(INSTALLED)       ## run the tests that all methods of tables have in common, with each of them
	MARKS=methods scripts/test tests/tables

exhaustive: $(INSTALLED)    ## interrupt changes at every line, fill small workers, kill at more moments, where `make test` takes some cases
	MARKS=exhaustive scripts/test tests/frames tests/tables tests/distributed

genomes: $(INSTALLED)       ## count the k-mers of whole genomes, as DGPUHASH_KMER_DATA (default: ../shared/kmer) has them
	MARKS=genomes scripts/test tests/kmer

ucx: $(INSTALLED)           ## run the distributed tests over UCXX, in an environment of their own
	scripts/ucx

matrix: $(INSTALLED)        ## run what touches Dask's internals under Dask 2026.1.1, 2026.7.1 and the newest; RELEASES="2026.3.0": others
	RELEASES="$(RELEASES)" scripts/matrix

rounds: $(INSTALLED)        ## play rounds of faults: processes killed, stopped, late, cut off, without memory
	scripts/rounds --series 4 --silence 4 --seconds $(or $(LIMIT),300)

suites: $(INSTALLED)        ## run pandas' and Dask's own tests of merges and groupbys with ours, and TPC-H beside DuckDB; takes 50 minutes
	PYTHONPATH=tests $(INSIDE) -m suites --tb=line
	PYTHONPATH=tests $(INSIDE) -m suites.tpch --scale 0.1
	PYTHONPATH=tests $(INSIDE) -m suites.tpch --scale 0.1 --dask
	PYTHONPATH=tests $(INSIDE) -m suites.dask_merge --tb=line
	PYTHONPATH=tests $(INSIDE) -m suites.generated_merge --cases $(or $(CASES),10000)
	PYTHONPATH=tests $(INSIDE) -m suites.generated --cases $(or $(CASES),10000)
	PYTHONPATH=tests $(INSIDE) -m suites.pandas_groupby --tb=line
	PYTHONPATH=tests $(INSIDE) -m suites.dask_groupby --tb=line

tpch-gpu: $(INSTALLED)      ## time the queries of TPC-H on one GPU, then on all, beside cudf-polars' own runner; SCALE=10
	for more in "" --dask; do PYTHONPATH=tests $(INSIDE) -m suites.tpch --device cuda --repeat 3 --compare --standing also \
	    --scale $(or $(SCALE),10) --folder build/tpch-$(or $(SCALE),10) $$more || exit 1; done

dashboard: $(INSTALLED)     ## read the dashboard's page in headless Chromium, and draw docs/figures/dashboard.png; INSTALL=1: apt installs it
	$(if $(INSTALL),sudo apt-get install --yes --no-install-recommends chromium)
	PICTURE=docs/figures/dashboard.png MARKS=browser scripts/test tests/distributed/dashboard

check: $(INSTALLED)         ## lint, types, format, spelling, layering, age of the GPU proof
	scripts/check

docs: $(INSTALLED)          ## build the documentation and run its notebooks; EXECUTE=off: without running them
	EXECUTE=$(EXECUTE) scripts/docs

kernels: $(INSTALLED)       ## lockstep tests of the kernels under ThreadSanitizer and AddressSanitizer; QUICK=1: fewer
	QUICK=$(QUICK) scripts/kernels.sh

compile: $(INSTALLED)       ## compile the kernels for every GPU architecture; ALL=1: every instance for each; QUICK=1: for three of them; needs no GPU
	$(INSIDE) scripts/compile.py

bench: $(INSTALLED)         ## measure the tables on this machine
	$(INSIDE) -m dgpuhash bench tables

peers:                      ## install what `dgpuhash bench kmer --compare` measures, and what reads our reports: Kraken 2, KMC, Jellyfish, wgsim; KrakenTools, Bracken, Krona
	scripts/peers/install
	scripts/peers/readers

gpu:                        ## what is run on a machine with GPUs; MODE="multigpu scaling" for several; writes receipts/
	scripts/gpu.sh "$(or $(MODE),figures gpu)" $(WHEELS)

wheel:                      ## build the sdist and the wheels of dist/ by Zig, for x86-64 and aarch64, and audit them; needs no C++ compiler
	scripts/wheels/build

wheel-test:                 ## install the wheels of dist/ into empty environments, with the oldest and the newest dependencies, and try them
	scripts/wheels/test

version: $(INSTALLED)       ## say which version this is; TAG=v1.2.3: fail unless that, the changelog and the citation agree
	$(INSIDE) scripts/wheels/version.py "$$TAG"

slurm: $(INSTALLED)         ## run the programs for SLURM under slurmctld and two slurmd of this machine, as root; INSTALL=1: apt installs them
	$(if $(INSTALL),sudo apt-get install --yes --no-install-recommends slurmctld slurmd munge)
	MARKS=slurm scripts/test tests/cluster

clean:                      ## remove the environment and everything that was built
	rm -rf $(VENV) build dist docs/api/generated .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): $(SOURCES)
	scripts/install
	touch $@

$(VENV)/.installed-for-demo: $(SOURCES)
	EXTRAS=demo scripts/install
	touch $@
