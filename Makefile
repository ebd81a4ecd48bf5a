# Every target does its own set-up: an environment per lock file, shared between clones.
PYTHON ?= python3
PY := .venv/bin/python
PY215 := .venv-torch215/bin/python
PYTEST_ARGS ?=

.PHONY: env env215 test test-slow test-torch215 lint format demo bench docs clean

env:
	@$(PYTHON) tools/environment.py

env215:
	@$(PYTHON) tools/environment.py --lock requirements/torch215.txt --venv .venv-torch215

test: env  ## the default run: everything that is not marked slow
	$(PY) -m pytest -n 2 -m "not slow" $(PYTEST_ARGS)

test-slow: env
	$(PY) -m pytest -n 2 -m slow $(PYTEST_ARGS)

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

bench: env
	$(PY) benchmarks/testing_overhead.py
	taskset -c 0 $(PY) benchmarks/loops.py

clean:
	rm -rf .venv .venv-torch215 .pytest_cache .mypy_cache .ruff_cache
