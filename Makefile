# Every target does its own set-up: an environment per lock file, shared between clones.
PYTHON ?= python3
PY := .venv/bin/python
PY215 := .venv-torch215/bin/python
PYDOCS := .venv-docs/bin/python
PYTEST_ARGS ?=

.PHONY: env env215 env-docs test test-slow test-nightly test-torch215 lint format demo bench docs \
	linkcheck ecosystem clean

env:
	@$(PYTHON) tools/environment.py

env215:
	@$(PYTHON) tools/environment.py --lock requirements/torch215.txt --venv .venv-torch215

env-docs:
	@$(PYTHON) tools/environment.py --layer requirements/docs.txt --venv .venv-docs

test: env  ## the default run: everything that is not marked slow
	$(PY) -m pytest -n 2 -m "not slow" $(PYTEST_ARGS)

test-slow: env  ## what takes seconds each: minutes in sum, a part of CI
	$(PY) -m pytest -n 2 -m "slow and not nightly" $(PYTEST_ARGS)

test-nightly: env  ## what takes minutes each: long fuzzing, long compilations
	$(PY) -m pytest -n 2 -m nightly $(PYTEST_ARGS)

test-torch215: env215
	$(PY215) -m pytest -n 2 $(PYTEST_ARGS)

lint: env
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: env
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

demo: env
	$(PY) examples/write_a_loop_once.py
	$(PY) examples/race_native_loops.py
	$(PY) examples/audit_demo.py

bench: env  ## every claim of the documentation, measured anew; peers that are not installed are named
	$(PY) benchmarks/testing_overhead.py
	taskset -c 0 $(PY) benchmarks/loops.py
	$(PY) benchmarks/native_loops.py
	$(PY) benchmarks/native_gradients.py
	$(PY) benchmarks/native_while.py
	$(PY) benchmarks/solvers.py

docs: env-docs  ## the site, in docs/_build/html; a warning or a dead link inside it is an error
	$(PYDOCS) -m sphinx -q -E -W --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

linkcheck: env-docs  ## links that leave the site; needs a network, so no part of CI
	$(PYDOCS) -m sphinx -q -E -b linkcheck docs docs/_build/linkcheck

ecosystem: env env215  ## measure torch 2.14 and 2.15, and write docs/ecosystem.md
	$(PY) tools/ecosystem.py

clean:
	rm -rf .venv .venv-torch215 .venv-docs docs/_build .pytest_cache .mypy_cache .ruff_cache
