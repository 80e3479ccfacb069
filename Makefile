# Everything a fresh machine needs: `make train` runs the main job, `make test` the tests.
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: train test lint types unit example-mnist keras-suite onnx-suite bench clean help

help:
	@echo "make train          set up, then train a convnet on real digits"
	@echo "make test           set up, then lint, type-check and run the tests"
	@echo "make example-mnist  the same on MNIST (DATA=folder with IDX files where there is no network)"
	@echo "make bench          the benchmarks, beside PyTorch where it is installed"
	@echo "make keras-suite    Keras's own tests against meganeura (AREA=losses,metrics for some)"
	@echo "make onnx-suite     ONNX's own node tests: what passes, and why the rest is skipped"
	@echo "make clean          remove the virtual environment and caches"

train: $(STAMP)
	@$(PYTHON) examples/digits_convnet.py

example-mnist: $(STAMP)
	@$(PYTHON) examples/mnist_convnet.py $(if $(DATA),--data $(DATA))

test: lint types unit

lint: $(STAMP)
	@$(PYTHON) -m ruff check .

types: $(STAMP)
	@$(PYTHON) -m mypy

unit: $(STAMP)
	@$(PYTHON) -m pytest -n 2 -q

keras-suite: $(STAMP)
	@$(PYTHON) -m pip install --quiet --editable '.[keras-suite]'
	@$(PYTHON) scripts/keras_suite.py $(if $(AREA),--area $(AREA)) --list failed

onnx-suite: $(STAMP)
	@$(PYTHON) scripts/onnx_suite.py --list all --least 1000

bench: $(STAMP)
	@$(PYTHON) bench/run.py

$(STAMP): setup.cfg pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
