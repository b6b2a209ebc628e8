# Everything is set up on first use, in .venv and in a cache of JVM packages. Needs Python 3.11 and Java 17.
.DEFAULT_GOAL := help
.PHONY: help demo test test-core test-plain test-tables test-rest check bench prove lock clean

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
CORE := tests/core tests/model
PARTLY = $(RUN)/python -m pytest -q --durations=12 --durations-min=10
PIP := $(RUN)/python -m pip install --quiet --disable-pip-version-check --require-hashes

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

$(VENV)/.base: requirements/base.txt requirements/build.txt pyproject.toml
	@echo "Setting up $(VENV) ..."
	@test -x $(RUN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements/build.txt -r requirements/base.txt
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.base
	@$(PIP) -r requirements/test.txt
	@touch $@

$(VENV)/.jars: src/twice/jars/ivy.xml $(VENV)/.base
	@$(RUN)/twice jars fetch
	@touch $@

demo: $(VENV)/.base ## Watch a pipeline run, die, run again, be corrected and be backfilled
	@$(RUN)/twice demo
	@echo "  (here the command is $(RUN)/twice)"

test: $(VENV)/.test $(VENV)/.jars ## Run all tests, the fast ones first
	@$(RUN)/python -m pytest $(CORE) -m "not postgres" -q
	@echo "Three parts side by side, for about forty minutes on two cores: without Spark, and two halves with it."
	@$(MAKE) --no-print-directory -j3 test-plain test-tables test-rest

test-plain: $(VENV)/.test
	@$(PARTLY) tests $(CORE:%=--ignore=%) -m "not spark"
	@$(RUN)/python -m pytest $(CORE) -m postgres -q

test-tables: $(VENV)/.test $(VENV)/.jars
	@$(PARTLY) tests/scenarios tests/stores -m spark

test-rest: $(VENV)/.test $(VENV)/.jars
	@$(PARTLY) tests --ignore=tests/scenarios --ignore=tests/stores -m spark

test-core: $(VENV)/.test ## Run the tests of the core, which need no JVM and no server, in seconds
	@$(RUN)/python -m pytest $(CORE) -m "not postgres" -q

check: $(VENV)/.test ## Lint, check types, check the direction of imports
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy
	@$(RUN)/python -m pytest tests/core/test_house.py -q

bench: $(VENV)/.test $(VENV)/.jars ## Measure against the same writes by hand; prints ratios
	@$(RUN)/python benchmarks/overwrite.py
	@$(RUN)/python benchmarks/patterns.py
	@$(RUN)/python benchmarks/replays.py
	@$(RUN)/python benchmarks/operations.py
	@$(RUN)/python benchmarks/periods.py
	@$(RUN)/python benchmarks/ingests.py
	@$(RUN)/python benchmarks/ingests.py --only small,stream --files 100000
	@$(RUN)/python benchmarks/postgres.py

prove: $(VENV)/.test $(VENV)/.jars ## Run every test on every store, for hours: kills at every point, a thousand races, larger models
	@$(RUN)/python -m pytest tests -q --every-kill

lock: $(VENV)/.base ## Pin the requirements files again
	@$(RUN)/python -m pip install --quiet uv
	@for set in build base test; do $(RUN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
	  --python-version 3.11 --output-file requirements/$$set.txt requirements/$$set.in; done

clean: ## Remove what was set up
	@rm -rf $(VENV) .work .pytest_cache .mypy_cache .ruff_cache .hypothesis
