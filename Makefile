# Everything is set up on first use, in .venv and in a cache of JVM packages. Needs Python 3.11 and Java 17.
.DEFAULT_GOAL := help
.PHONY: help demo test test-core check bench prove lock clean

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
CORE := tests/core tests/model
# Test processes side by side; two of three wait for Spark or a server at any time.
WORKERS ?= 3
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

test: $(VENV)/.test $(VENV)/.jars ## Run all tests, the fast ones first; K=word runs those whose names have the word
ifdef K
	@$(RUN)/python -m pytest -q -k "$(K)"
else
	@$(RUN)/python -m pytest $(CORE) -m "not postgres" -q -n 2
	@echo "All others, $(WORKERS) at a time: on two cores for about forty minutes."
	@$(RUN)/python -m pytest tests $(CORE:%=--ignore=%) -q -n $(WORKERS) --dist worksteal --durations=12 --durations-min=10
	@$(RUN)/python -m pytest $(CORE) -m postgres -q
endif

test-core: $(VENV)/.test ## Run the tests of the core, which need no JVM and no server, in seconds
	@$(RUN)/python -m pytest $(CORE) -m "not postgres" -q -n 2

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
	@$(RUN)/python benchmarks/growth.py
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
