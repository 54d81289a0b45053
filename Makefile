# `make demo` runs the main job, `make test` the tests; both build .venv on first use.
PYTHON ?= python3
# installed first, so that nothing else chooses a build of torch: e.g. make test TORCH="torch --index-url ..."
TORCH ?= torch==2.13.0
BIN := .venv/bin
# one process per core, each with one thread
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto
# without bytecode every process compiles torch and transformers again, which takes ten seconds
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-types lint docs dist bench clean

demo: .venv/ready  ## one thread: its tensors are small, and threads would wait for each other
	OMP_NUM_THREADS=1 $(BIN)/python examples/tag_code_switched.py

test: .venv/ready  ## all but end-to-end runs and inductor's compilations
	$(PYTEST) -m "not slow"

test-slow: .venv/ready
	$(PYTEST) -m slow

TYPED := test_contracts.py crf functional
test-types: .venv/ready  ## the tests of the modules, shape annotations checked at run time
	$(PYTEST) --jaxtyping-packages=polyembed,runtime_types.checked -m "not slow" \
		-k "not right_gradient and not right_second and not saving_and and not predict" $(TYPED:%=tests/%)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pydoclint --quiet src

docs: .venv/ready  ## build/docs/index.html; errors are: a warning, a notebook's cell that fails, a public name without a place
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -b html --fail-on-warning --keep-going --quiet -d build/doctrees docs build/docs

dist: .venv/ready  ## a wheel and an sdist, checked: installed in an empty environment, used from another folder
	rm -rf dist build/installed
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/installed
	build/installed/bin/python -m pip install --quiet --no-compile $(TORCH)
	build/installed/bin/python -m pip install --quiet --no-compile dist/*.whl
	build/installed/bin/python -m pip check
	cd build/installed && bin/python -P ../../tests/installed.py

bench: .venv/ready
	$(BIN)/python benchmarks/run_all.py --size small --check

clean:
	rm -rf .venv .cache runs build dist

.venv/ready: pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile $(TORCH)
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[evaluation,test,docs,bench,dev]"
	touch $@
