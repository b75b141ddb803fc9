# Every target sets up what it needs in .venv, from nothing. Run `make` to see them.

PYTHON ?= python3
PY := .venv/bin/python
READY := .venv/ready
PIP := $(PY) -m pip --disable-pip-version-check install --quiet

# What Jupyter, IPython and Matplotlib keep, stays in this folder; what the shell around says about Python, stays outside.
export JUPYTER_CONFIG_DIR := $(CURDIR)/.jupyter/config
export JUPYTER_DATA_DIR := $(CURDIR)/.jupyter/data
export JUPYTER_RUNTIME_DIR := $(CURDIR)/.jupyter/runtime
export MPLCONFIGDIR := $(CURDIR)/.jupyter/matplotlib
export IPYTHONDIR := $(CURDIR)/.ipython
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP JUPYTER_PATH JUPYTER_CONFIG_PATH MPLBACKEND

# conftest.py says how many workers, and what stays in one; what comes later on the line wins, such as -n 0.
# nbval takes seconds to import. TESTS and NOTEBOOKS are exported to scripts/test_pythons.py.
TESTS = -m pytest -p no:nbval -n auto $(PYTEST_ARGS)
NOTEBOOKS = -m pytest --nbval --nbval-current-env --nbval-cell-timeout=240 -n auto $(NBVAL_ARGS) notebooks/*.ipynb

.PHONY: help lab lessons test test-long test-numpy1 test-pythons test-cpus test-real bench bench-engines bench-scaling bench-bubbles \
  check format clean site

help:
	@echo 'make lab        JupyterLab on the lessons            LAB_ARGS="--no-browser --port 8899"'
	@echo 'make lessons    run every notebook once, with times  LESSONS_ARGS="03 --save"'
	@echo 'make test       tests, doctests, notebooks           PYTEST_ARGS="-k mesh -n 0"  NBVAL_ARGS="-k 03"'
	@echo 'make test-long  the tests that take minutes          PYTEST_ARGS=...'
	@echo 'make test-numpy1  the tests with NumPy 1.26, which the real ttnn needs (Python 3.10 to 3.12)'
	@echo 'make test-pythons  the same with each Python and NumPy that is supported and here  PYTHONS="3.10 3.13"'
	@echo 'make test-cpus  numeric tests and notebooks as on other CPUs  CPUS_ARGS="--notebooks"'
	@echo 'make test-real  against the real ttnn, on its mock cluster'
	@echo 'make bench      side by side with the peers          BENCH_ARGS=...'
	@echo 'make bench-engines  all_reduce over 4 engines against mpi4py'
	@echo 'make bench-scaling  training over 1, 2 and 3 ranks, measured beside modelled'
	@echo 'make bench-bubbles  the bubble of a pipeline over ranks, measured beside modelled'
	@echo 'make site       the lessons and the reference as pages, in site/'
	@echo 'make check      format, lint, types (make format mends what can be mended)'
	@echo 'make clean      remove .venv and everything made here'
	@echo 'Another Python: make lab PYTHON=python3.12'

lab: $(READY)
	$(PY) -m ttkit lab $(LAB_ARGS)

lessons: $(READY)
	$(PY) scripts/run_lessons.py $(LESSONS_ARGS)

test: $(READY)
	$(PY) $(TESTS)
	$(PY) $(NOTEBOOKS)

test-long: $(READY)
	$(PY) -m pytest -m long --hypothesis-profile=long -o faulthandler_timeout=3600 $(PYTEST_ARGS)

test-numpy1: .venv/numpy1
	PYTHONPATH=.venv/numpy1 $(PY) $(TESTS)

test-pythons: export TESTS := $(TESTS)
test-pythons: export NOTEBOOKS := $(NOTEBOOKS)
test-pythons: export PYTHONS := $(PYTHONS)
test-pythons:
	@$(PYTHON) scripts/test_pythons.py

test-cpus: $(READY)
	$(PY) scripts/try_cpus.py $(CPUS_ARGS)

site: .venv/with-site
	NO_MKDOCS_2_WARNING=1 $(PY) docs/make_site.py

test-real: $(READY)
	$(PY) tests/real/run.py $(REAL_ARGS)

bench: .venv/with-bench
	$(PY) benchmarks/run.py $(BENCH_ARGS)

bench-engines: $(READY)
	$(PY) benchmarks/engines.py $(BENCH_ARGS)

bench-scaling: $(READY)
	$(PY) benchmarks/scaling.py

bench-bubbles: $(READY)
	$(PY) benchmarks/bubbles.py

check: $(READY)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: $(READY)
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .

clean:
	rm -rf .venv site .cache .jupyter .ipython .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +

# The stamp holds the folder's name: in a folder that was copied or moved, .venv would still import the old place.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo "ttkit needs Python 3.10 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true). Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@echo 'Setting up .venv: a minute or two, about 600 MB'
	@$(PYTHON) -m venv .venv || { \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu it needs: apt install python3-venv. Or name another Python: PYTHON=..." >&2; exit 1; }
	$(PIP) --editable '.[test]'
	@$(PY) -c 'import matplotlib.font_manager'  # builds the font cache here, not with a message in the first lesson
	@echo '$(CURDIR)' > $@

# .venv/with-torch, .venv/with-bench: the same with an extra of pyproject.toml
.venv/with-%: $(READY)
	$(PIP) --editable '.[test,$*]'
	@touch $@

# An older NumPy laid over the one of the environment
.venv/numpy1: $(READY)
	$(PIP) --no-deps --upgrade --target $@ 'numpy==1.26.*'
	@touch $@
