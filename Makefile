# make run    set up what users need, and train the main job on real data
# make test   set up what developers need, too, and run the tests
# make full   the tests, and those that take longer; make more: these alone
# make check  lint, types and format
# make bench  the speed of six works beside a plain PyTorch loop; bench-peers: beside other simulators, too;
#             bench-gpu: on a GPU
# make averagers  what averages a model while it trains, here and elsewhere: what is right, reproductions, speed
# make golden  compare the numbers of a hundred small runs with those that are recorded, byte for byte;
#             golden-here: record them on this machine first, from the recorded commit
# make site   the documentation as static pages in site/; every link is checked
# make libraries  the tests that need optional libraries, in an environment that has them all
# make dist   the wheel and the source distribution in dist/, checked and tried in an empty environment
# make torture  the campaign: kills, damage, hostile files (two hours); docs/design/reliability.md

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LAB := $(VENV)/.lab
READY := $(VENV)/.ready
LIBRARIES ?= .venv-libraries
AVERAGERS ?= .venv-averagers
WITH_LIBRARIES := tests/averages/test_accelerate.py tests/averages/test_lightning.py tests/averages/test_transformers.py \
	tests/test_lora_example.py tests/data/test_partitions.py \
	tests/engines/test_ray*.py tests/runs/callbacks tests/lab/sweeps/test_sweeps_on_ray*.py tests/models

ON_GPU = tests/engines/test_on_device.py tests/engines/test_replayed.py tests/data/test_data_federated.py \
	tests/data/test_data_transform.py tests/flower/test_node_devices.py tests/averages/test_tracker_host.py tests/test_peers.py \
	tests/test_gpu_branches.py

# Also where the environment forbids it, Python keeps the bytecode of what it imports: the tests start many processes,
# and each would compile the library anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test more full test-gpu golden golden-here slow libraries check site dist bench bench-peers bench-gpu averagers torture clean

run: $(LAB)
	rm -rf runs/digits && $(BIN)/python examples/main_job.py

test: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

more: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m full

full: test more

test-gpu: $(READY)
	FEDSASH_TEST_GPU=1 $(BIN)/python -m pytest --no-budget -m "slow or not slow" $(ON_GPU)

golden: $(READY)
	$(BIN)/python golden/golden.py compare

golden-here: $(READY)
	$(BIN)/python golden/golden.py here

slow: $(READY)
	$(BIN)/python -m pytest -m slow

libraries: $(LIBRARIES)/.ready
	$(LIBRARIES)/bin/python -m pytest --no-budget $(WITH_LIBRARIES)
	$(LIBRARIES)/bin/python -m pytest --no-budget -m full tests/averages/test_trainers_sharded.py

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

dist: $(READY)
	rm -rf dist && $(BIN)/python -m build --no-isolation
	$(BIN)/python -m pytest -m dist tests/test_dist.py

bench: $(READY)
	$(BIN)/python -m benchmarks.peers --peers plain,fastest,fedsash
	$(BIN)/python -m benchmarks.trackers

bench-peers: $(READY)
	$(BIN)/python -m benchmarks.peers

bench-gpu: $(READY)
	$(BIN)/python -m benchmarks.gpu

averagers: $(READY) $(AVERAGERS)/.ready
	PYTHONPATH=$(AVERAGERS):. $(BIN)/python -m benchmarks.averagers

torture: $(READY)
	$(BIN)/python -m torture

clean:
	rm -rf $(VENV) $(LIBRARIES) $(AVERAGERS) runs

$(LAB): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): PyTorch and a few other libraries. This takes a few minutes, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --constraint constraints.txt --editable '.[lab]'
	touch $@

# What developers need includes what `make run` needs.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) with what the tests need. This takes a few minutes, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --constraint constraints.txt --editable '.[dev]'
	touch $(LAB) $@

$(LIBRARIES)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(LIBRARIES)
	$(LIBRARIES)/bin/pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	touch $@

# What each needs beside what the tests need is in the list, too: their own lists would bring another torch.
$(AVERAGERS)/.ready: benchmarks/averagers/requirements.txt $(READY)
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(AVERAGERS) --requirement $<
	touch $@
