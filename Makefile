# make demo      a tour of Weft
# make test      lint, then all tests
# make lint      ruff and mypy
# make checked   programs, views and compositions in check mode (docs/native.md), all of them
# make bench     speed and memory, side by side with PyTorch, JAX and NumPy (docs/benchmarks.md)
# make examples  the programs in examples/, with their pictures (docs/examples.md)
# make docs      the documentation as a site: build/docs/index.html
# make fuzz      two minutes of random graphs and programs, with a new seed (docs/fuzzing.md)
# make generate  write the files that come from the op cards: docs/ops.md, weft/core/methods.pyi
# make clean     remove caches and build outputs (make distclean: the virtual environment too)
#
# Each target makes .venv and installs what it needs into it; the second time that costs nothing.
# Another Python: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q

.PHONY: demo test lint checked bench examples docs fuzz generate clean distclean

demo: $(VENV)/.weft-run
	@$(BIN)/weft demo

test: lint
	@# One BLAS thread per worker: workers that fight for cores run ten times slower.
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto

lint: $(VENV)/.weft-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

checked: $(VENV)/.weft-test
	WEFT_CHECK=1 WEFT_TEST_ALL=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto \
	  tests/runtime/test_check_mode.py tests/runtime/test_native_views.py tests/runtime/test_native_compositions.py \
	  tests/capture/test_control_flow_table.py

bench: $(VENV)/.weft-bench
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/eager_overhead.py
	$(BIN)/python benchmarks/eager_train.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/suite.py

examples: $(VENV)/.weft-examples
	@for file in $(filter-out examples/gallery.py,$(wildcard examples/*.py)); do $(BIN)/python $$file || exit 1; done

docs: $(VENV)/.weft-docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

fuzz: $(VENV)/.weft-test
	$(BIN)/python tools/fuzz.py --minutes 2

generate: $(VENV)/.weft-test
	$(BIN)/python tools/generate.py

# A stamp says that what pyproject.toml asks for is installed: a newer pyproject.toml installs anew.
$(VENV)/.weft-run: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[demo]"
	@touch $@

$(VENV)/.weft-test: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[test]"
	@touch $@ $(VENV)/.weft-run

$(VENV)/.weft-examples: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[examples]"
	@touch $@ $(VENV)/.weft-run

$(VENV)/.weft-docs: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[docs]"
	@touch $@

$(VENV)/.weft-bench: pyproject.toml | $(BIN)/python
	$(PIP) -e ".[bench,demo]"
	@touch $@ $(VENV)/.weft-run

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  f"Weft needs Python 3.11 or later, and {sys.executable} is {sys.version.split()[0]}: " \
	  "make ... PYTHON=python3.12")'
	@# Half an environment, as when the machine lacks ensurepip, would mislead the next run.
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(VENV)/.weft-*
	find weft tests benchmarks tools -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
