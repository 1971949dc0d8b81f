# Every target sets up what it needs: a virtual environment in .venv and the pinned jars in
# .cache/jars, or in $NYALA_CACHE/jars.
PYTHONS := python3.11 python3.12 python3.13 python3
PYTHON ?= $(shell for p in $(PYTHONS); do $$p infra/preflight.py python 2> /dev/null && echo $$p && break; done)
VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/.installed
PIP    := $(PY) -m pip install --progress-bar off --disable-pip-version-check --retries 2
JARS   := $(or $(NYALA_CACHE),.cache)/jars/.resolved
SHELL  := /bin/bash
REAL   := process or spark or e2e

export NYALA_CACHE := $(or $(NYALA_CACHE),$(CURDIR)/.cache)
# Compiled files are kept, whatever the shell says: every server of a test imports what others have imported.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup jars demo docs test test-deep sim test-fast test-pythons lint format mutants soak bench clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  Longer runs are started by hand: tests/RUNS.md lists their commands, and when each ran last"

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "nyala: no Python 3.11 or later on the PATH: install one (Debian: apt-get install" \
	  "python3 python3-venv), or say \`make PYTHON=/path/to/python3.11\`" >&2; exit 1; }
	@$(PYTHON) infra/preflight.py
	@$(PYTHON) infra/preflight.py environment $(VENV)
	@$(PY) infra/preflight.py install $(PIP) --require-hashes -r requirements.lock
	@$(PY) infra/preflight.py install $(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(JARS): infra/ivy.xml infra/ivysettings.xml $(STAMP)
	@$(PY) -m nyala.infra.jars
	@touch $@

setup: $(STAMP) $(JARS) ## virtual environment and jars

jars: $(JARS)

# pytest rewrites the asserts of a test file once, and not in each of its processes.
REWRITTEN := $(VENV)/.rewritten
$(REWRITTEN): $(wildcard tests/*/test_*.py tests/*/*/test_*.py) $(STAMP)
	@printf '%s\n' $(filter %.py,$?) | xargs -r -P 2 -n 100 $(PY) -m pytest --collect-only -qq > /dev/null || true
	@touch $@

demo: setup ## a million real flight events down the whole road, with kills on the way
	$(VENV)/bin/nyala demo

test: setup $(REWRITTEN) ## the tests, in under ten minutes on two cores
	$(PY) -m pytest -q -n 4 --dist loadgroup -m "not deep and not ($(REAL))" --durations=5
	$(PY) -m pytest -q -n 3 --dist loadgroup -m "not deep and ($(REAL))" --durations=10

TURN ?=
test-deep: setup ## what `make test` leaves out: seeds, every byte, long troubles; TURN=n: a half or a quarter, as in CI
	@$(PY) infra/preflight.py tests
	$(PY) -m pytest -q -n 2 -m "deep and not ($(REAL))" --durations=5 $(if $(TURN),--part $(TURN)/2)
	$(PY) -m tests.sim
	$(PY) -m pytest -q -n 3 --dist loadgroup -m "deep and ($(REAL))" --durations=10 $(if $(TURN),--part $(TURN)/4)

sim: $(STAMP) ## simulated histories from seeds, as CI runs them; more with `python -m tests.sim --overnight`
	$(PY) -m tests.sim

test-fast: $(STAMP) $(REWRITTEN) ## tests without processes, Spark, Kafka or many seeds: under two minutes
	$(PY) -m pytest -q -n 4 --dist loadgroup -m "not deep and not ($(REAL))"

test-pythons: ## test-fast under each Python of PYTHONS that is here, with an environment of its own
	@for p in $(filter-out python3,$(PYTHONS)); do \
	  $$p infra/preflight.py python 2> /dev/null || { echo "nyala: no $$p here, passed over"; continue; }; \
	  $(MAKE) --no-print-directory PYTHON=$$p VENV=.venv-$${p##*/} test-fast || exit 1; done

lint: $(STAMP) ## style, formatting and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(STAMP) ## format the code
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

mutants: $(STAMP) ## break each proven behaviour and see its test turn red
	$(PY) -m tests.mutants
	$(PY) -m tests.mutants.generated

docs: $(STAMP) ## the documentation site, with references made from the code, in .cache/site
	$(PY) -m nyala.infra.site

MINUTES ?= 20
SEED ?= 0
soak: $(STAMP) ## kills, pauses, lost disks and moves under a strict load: MINUTES=20, SEED=n to repeat one
	$(PY) -m tests.soak --minutes $(MINUTES) --seed $(SEED)

bench: setup ## every benchmark on a stack of its own
	$(VENV)/bin/nyala bench all --local

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-* .cache .nyala build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
