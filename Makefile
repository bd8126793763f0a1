# Everything starts from here: `make book` and `make test` do their own set-up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CHAPTERS := $(wildcard notebooks/*.ipynb notebooks/solutions/*.ipynb)
WORKERS ?= 2

.PHONY: help setup book test check pages colab format notebooks bench clean

help:
	@echo "make book       build the book into _build/html"
	@echo "make test       run every test, the notebooks included"
	@echo "make setup      make .venv and install requirements.txt, nothing else"
	@echo "make check      linter, types, layering, spelling, stripped notebooks, addresses"
	@echo "make pages      look at the built book in a headless browser"
	@echo "make colab      run each chapter alone, as Colab does: another environment, empty folder"
	@echo "make format     format the code, strip the notebooks"
	@echo "make notebooks  execute the notebooks and keep the outputs that are compared"
	@echo "make bench      compare with other implementations (not a test)"
	@echo "make clean      remove what was built"

setup: $(VENV)/.installed

$(VENV)/.installed: requirements.txt pyproject.toml
	@$(PYTHON) -c "import sys; v = sys.version.split()[0]; sys.exit('Python 3.10 or newer is needed, this is ' + v if sys.version_info < (3, 10) else 0)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.txt --editable .
	touch $@

# Old pages and doctrees go first: on a warm build Sphinx does not repeat its warnings.
book: setup
	rm -rf _build/html _build/.doctrees
	$(BIN)/jupyter-book build . -W -n --keep-going
	$(BIN)/python tools/links.py _build/html
	@echo "The book: file://$(CURDIR)/_build/html/index.html"

test: setup
	$(BIN)/python -m pytest -n $(WORKERS) --save-outputs

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/nbstripout --verify --keep-count --keep-id $(CHAPTERS)
	$(BIN)/python tools/repository.py --check

pages: setup
	$(BIN)/python -m pytest tests/book --built-book

colab: setup
	$(BIN)/python tools/colab_check.py

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/nbstripout --keep-count --keep-id $(CHAPTERS)

notebooks: setup
	OMP_NUM_THREADS=1 TQDM_DISABLE=1 $(BIN)/jupyter execute --inplace $(CHAPTERS)
	$(BIN)/nbstripout --keep-count --keep-id $(CHAPTERS)

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf _build build *.egg-info
