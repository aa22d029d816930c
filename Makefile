# On a fresh machine, make train and make test install everything they need.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: train test soak mutants lint tensorboard clean

train: $(VENV)/installed  ## train on the sample corpus in minutes; overrides: make train ARGS="..."
	$(RUN) scripts/train.py $(ARGS)

test: $(VENV)/installed-dev  ## run all tests, one process per core
	$(RUN) -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

soak: $(VENV)/installed-dev  ## kill and resume runs 200 times, compare; ARGS="--kills 1000 --seed 7"
	OMP_NUM_THREADS=1 $(RUN) tools/soak.py $(ARGS)

mutants: $(VENV)/installed-dev  ## change the code and list changes that no test detects; ARGS="'seq2seq.search.*'"
	OMP_NUM_THREADS=1 $(VENV)/bin/mutmut run $(ARGS)
	$(VENV)/bin/mutmut results

lint: $(VENV)/installed-dev  ## style and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

# By default TensorBoard shows a random sample of 10 pictures per tag.
tensorboard: $(VENV)/installed  ## show the runs: http://localhost:6006
	$(VENV)/bin/tensorboard --logdir runs --samples_per_plugin images=1000,text=1000 $(ARGS)

# Rebuilt when the requirements change.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11 to 3.13 is needed, this is %d.%d: make PYTHON=python3.11 ..." % sys.version_info[:2])'
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(RUN) -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:  ## remove the environment and prepared data, but not the runs
	rm -rf $(VENV) data/prepared mutants
