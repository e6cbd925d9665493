# Commands for development. Every target creates its own environment; Python 3.11+, make and a network are enough.
# The environment is rebuilt only when the Python version or a locked requirement has changed.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
LOCK_VENV := .venv-lock
BENCH_GROUPS := peers arq kopf
PYTHONS := python3 python3.13 python3.12 python3.11
TYPED := service workers standins tests bench deploy/check_compose.py

# Each candidate on PATH is run, because version managers leave shims for versions that are not active. It prints its
# base interpreter, so that an activated environment makes no difference. `ensurepip` is missing where a distribution
# packages venv separately.
which-python = import ensurepip, os, sys, venv; sys.version_info >= (3, 11) or sys.exit(1); \
	print(os.path.realpath(sys._base_executable))
find-python = \
	for name in $(if $(PYTHON),$(PYTHON),$(PYTHONS)); do \
		python=$$($$name -c '$(which-python)' 2>/dev/null) && break; \
		python=; \
	done; \
	if [ -z "$$python" ]; then \
		echo "knell needs Python 3.11 or later with the venv module; tried: $(if $(PYTHON),$(PYTHON),$(PYTHONS))." >&2; \
		echo "Install one (on Debian: apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi

# Only the part of pyproject.toml that affects the installation counts: a changed lint rule does not reinstall.
version = -c 'import sys; print(sys.version)'
fingerprint = { echo $$python; $$python $(version); cat $(1); sed '/^\[tool\.pytest/,$$d' pyproject.toml; } | cksum

# $(1): directory, $(2): locked file, $(3): "." to install this project as well. The stamp is written last, so that
# an interrupted installation is repeated.
pip = $(1)/bin/python -m pip install --quiet --disable-pip-version-check
install = \
	$(find-python); \
	want="$$($(call fingerprint,$(2)))"; \
	if [ "$$(cat $(1)/.installed 2>/dev/null)" != "$$want" ]; then \
		echo "Installing $(2) into $(1) with $$python"; \
		rm -f $(1)/.installed; \
		[ "$$($(1)/bin/python $(version) 2>/dev/null)" = "$$($$python $(version))" ] || $$python -m venv --clear $(1); \
		$(call pip,$(1)) --require-hashes -r $(2); \
		[ -z "$(3)" ] || $(call pip,$(1)) --no-deps --no-build-isolation --no-index --editable $(3); \
		echo "$$want" > $(1)/.installed; \
	fi

# Bytecode is written: without it every process of the tests would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: ## Create .venv from the locked requirements, if it is not there yet
	@set -e; $(call install,$(VENV),requirements/dev.txt,.)

.PHONY: demo
demo: venv ## Run the whole service on local stand-ins and show it
	@$(BIN)/python -m standins.demo $(ARGS)

.PHONY: test
test: venv ## Run the tests on embedded servers, in under four minutes (ARGS="-k name" to choose)
	@$(BIN)/python -m pytest -n 6 --dist worksteal -m "not long" $(ARGS)

.PHONY: test-long
test-long: venv ## Run the tests that make test leaves out: full sizes, every kind of server, the stand-ins, bench and demo
	@$(BIN)/python -m pytest -n 4 --dist worksteal --timeout 1800 -m long $(ARGS)

# Versions of pyenv are used even if they are not active. `make test` runs the same tests on the Python of .venv.
is-python = import ensurepip, sys, venv; sys.exit("%d.%d" % sys.version_info[:2] != "'$$version'")
.PHONY: test-pythons
test-pythons: venv ## Run the unit tests on the other versions among Python 3.11, 3.12 and 3.13 that are found
	@set -e; for version in 3.11 3.12 3.13; do \
		if $(BIN)/python -c '$(is-python)'; then echo "Python $$version: in $(VENV), see make test"; continue; fi; \
		found=; \
		for python in python$$version $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$$version.*/bin/python; do \
			if $$python -c '$(is-python)' 2>/dev/null; then found=$$python; break; fi; \
		done; \
		if [ -z "$$found" ]; then echo "Python $$version: not found here, unit tests not run on it"; continue; fi; \
		echo "Python $$version: $$found"; \
		$(MAKE) --no-print-directory venv VENV=.venv-$$version PYTHON=$$found; \
		.venv-$$version/bin/python -m pytest -q -n 2 -m "not long" tests/unit $(ARGS); \
	done

.PHONY: controlplane
controlplane: venv ## Build the real Kubernetes API server for the tests into the user's cache, unless it is there
	@$(BIN)/python -m standins.controlplane build $(ARGS)

.PHONY: check
check: venv ## Lint, types, import contracts, compose file and Dockerfile
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports
	$(BIN)/python deploy/check_compose.py docker-compose.yml
	$(BIN)/hadolint deploy/Dockerfile

.PHONY: format
format: venv ## Sort imports and format the code
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .

.PHONY: policy
policy: venv ## Regenerate the IAM policies and the Azure role in deploy/ from the declared sources and kinds
	@$(BIN)/python -m workers.permissions capa deploy/aws/iam-policy.json
	@$(BIN)/python -m workers.permissions ack deploy/aws/iam-policy-ack.json
	@$(BIN)/python -m workers.collectors.karpenter_azure.permissions deploy/azure/role-definition.json

# The peers need other versions of redis-py than Knell and than each other (arq: below 6, taskiq-redis: 8), so each
# group has an environment of its own.
.PHONY: bench-venvs
bench-venvs: venv
	@set -e; $(foreach group,$(BENCH_GROUPS),$(call install,.venv-bench-$(group),bench/requirements/$(group).txt);)

.PHONY: bench
bench: bench-venvs ## Measure Knell beside other systems and write bench/results (ONLY=row for one row)
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

# Pins stay unless a new input needs another version; UPGRADE=1 takes the newest. Neither a header nor an index URL is
# written: the files are valid on every machine, and for every Python from 3.11 on.
lock = $(LOCK_VENV)/bin/uv pip compile --quiet --python $(LOCK_VENV)/bin/python --python-version 3.11 --universal \
	--generate-hashes --no-header --no-emit-index-url $(if $(UPGRADE),--upgrade)

.PHONY: lock
lock: ## Regenerate the locked requirements (UPGRADE=1 for the newest releases)
	@set -e; $(find-python); \
	[ -x $(LOCK_VENV)/bin/uv ] || { \
		$$python -m venv --clear $(LOCK_VENV); \
		$(call pip,$(LOCK_VENV)) --require-hashes -r requirements/lock.txt; \
	}
	$(lock) requirements/lock.in -o requirements/lock.txt
	$(lock) requirements/build.in -o requirements/build.txt
	$(lock) requirements/go.in -o requirements/go.txt
	$(lock) pyproject.toml --extra fast -o requirements/runtime.txt
	$(lock) pyproject.toml requirements/dev.in --extra fast \
		-c requirements/build.txt -c requirements/runtime.txt -o requirements/dev.txt
	set -e; for group in $(BENCH_GROUPS); do \
		$(lock) bench/requirements/$$group.in -o bench/requirements/$$group.txt; \
	done

.PHONY: clean
clean: ## Remove the environments and everything else that was generated
	rm -rf .venv .venv-* build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
