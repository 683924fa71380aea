# The README's two commands are `make demo` and `make test`; each sets up .venv once and again only when its inputs change.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# the paper's suites, cheapest first
PAPER ?= lending privacy skew selection privacy_cnn skew_cnn mnist fashion femnist femnist_writers selection_cifar10 cifar10
TOGETHER := privacy skew # sweeps that a report shows beside the same with the CNN
# a night on two cores without a GPU hangs on convolutions: native kernels where there is a C compiler
KERNELS ?= $(shell command -v cc > /dev/null && echo native || echo torch)

.PHONY: demo paper test test-ray test-lowest release-check docs docs-links browser bench board clean help
help:            ## this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## */\t/'

.venv/.base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.base
	$(PIP) -e ".[dev]"
	@touch $@

.venv/.ray: .venv/.dev
	$(PIP) -e ".[ray]"
	@touch $@

.venv/.bench: .venv/.dev
	$(PIP) -e ".[bench]"
	@touch $@

demo: .venv/.base     ## run the main job and print its table
	$(BIN)/dpflbench run suites/heterogeneity.yaml --jobs auto

paper: .venv/.base    ## every table and figure of the paper: what that costs, then the runs, cheapest first; goes on where it stopped
	@$(foreach s,$(PAPER),echo "paper/$(s):"; $(BIN)/dpflbench plan paper/$(s) --rows 1 --kernels $(KERNELS) | grep -E "to do take|left to do|not be timed" || true;) true
	@left=; ended() { case $$2 in 129|130|143) exit $$2;; esac; left="$$left $$1"; }; \
	$(foreach s,$(PAPER),$(BIN)/dpflbench run paper/$(s) --jobs auto --kernels $(KERNELS) || ended $(s) $$?;) \
	$(foreach s,$(TOGETHER),test ! -d "results/paper $(s)" || test ! -d "results/paper $(s) cnn" || $(BIN)/dpflbench report "results/paper $(s)" "results/paper $(s) cnn" --quiet --out "results/paper $(s) together" || ended $(s)-together $$?;) \
	test -z "$$left" || { echo "Not whole:$$left" >&2; exit 1; }

test: .venv/.dev      ## ruff, mypy --strict, pytest
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-ray: .venv/.ray  ## a suite on a real two-node Ray cluster on this machine, one node lost in the middle
	DPFLBENCH_TEST_RAY=1 RAY_USAGE_STATS_ENABLED=0 $(BIN)/python -m pytest tests/test_ray.py

# what each library is used for: YAML, tables, figures, data frames, locks, convex programmes, accountants, features
LOWEST := test_suite test_schema test_store test_locks test_bcs_solver test_api test_accountants test_report_tables \
          test_report_figures test_features
.venv-lowest/.done: pyproject.toml constraints-lowest.txt
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt -e . pytest hypothesis
	@touch $@

test-lowest: .venv-lowest/.done  ## the lowest versions of all dependencies, in an environment of their own: a suite and some tests
	.venv-lowest/bin/dpflbench run smoke --quiet --out $$(mktemp -d)
	.venv-lowest/bin/python -m pytest -o addopts= -q $(LOWEST:%=tests/%.py)

release-check: .venv/.dev  ## wheel and sdist, tried in a new environment and an empty folder
	DPFLBENCH_TEST_RELEASE=1 $(BIN)/python -m pytest tests/test_release.py

browser:         ## chromium and its driver for the tests of the HTML page, on Debian and as root; without them those are skipped
	apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium chromium-driver

bench: .venv/.bench   ## half an hour: speed against Opacus and plain torch, two workers against one, as ratios
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/benchmarks --benchmark-enable -s

.venv/.docs: .venv/.dev
	$(PIP) -e ".[docs]"
	@touch $@

docs: .venv/.docs     ## the documentation, in build/docs: warnings are errors, links inside are checked
	$(BIN)/python docs/generate.py build/docs-pages
	$(BIN)/python -m sphinx -W --keep-going -q -E -c docs build/docs-pages build/docs

docs-links: docs      ## links to elsewhere, which need the network
	$(BIN)/python -m sphinx -q -b linkcheck -c docs build/docs-pages build/docs-links

board: .venv/.base    ## the board of submitted bundles and committed reports, in site/
	$(BIN)/dpflbench board board/*.tar.xz reports/heterogeneity reports/lending reports/mnist --out site

clean:           ## remove what make created
	rm -rf .venv .venv-lowest .mypy_cache .ruff_cache .pytest_cache dist build
