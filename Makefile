# make demo     installs into .venv and runs the demo: five nodes, real input, a dead leader
# make test     installs what tests need and runs them
# make test-root what needs root: small loop-mounted disks that run full
# make check    lint, types, architecture, proto
# make soak MINUTES=5 KILL_EVERY=10
# make sim SEEDS=2000   whole clusters under virtual time, a fault at every turn; one seed again: see tests/simulation
# make proto    regenerates the stubs in dledger/v1

PYTHON ?= python3
MINUTES ?= 5
KILL_EVERY ?= 10
SEEDS ?= 2000

bin := .venv/bin
pip := $(bin)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-root check lint format soak sim proto clean

demo: .venv/.installed
	@$(bin)/python -m dledger demo

test: .venv/.tools
	@$(bin)/python -m pytest

test-root: .venv/.tools
	@$(bin)/python -m pytest tests/root

check lint: .venv/.tools
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/buf lint proto
	@$(MAKE) --no-print-directory proto
	git diff --exit-code -- dledger/v1

format: .venv/.tools
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

soak: .venv/.tools
	@$(bin)/python -m tests.soak --minutes $(MINUTES) --kill-every $(KILL_EVERY)

sim: .venv/.tools
	@$(bin)/python -m tests.simulation --seeds 0:$(SEEDS)

proto: .venv/.tools
	@PATH="$(CURDIR)/$(bin):$$PATH" $(bin)/python -m grpc_tools.protoc -I proto \
		--python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. proto/dledger/v1/*.proto

clean:
	rm -rf .venv build dist

# The stamps say for which pyproject.toml .venv was filled; an editable install takes changed sources as they are.
.venv/.installed: pyproject.toml | $(bin)/python
	@echo "Installing dledger into .venv …" >&2
	@$(pip) install --editable .
	@touch $@

.venv/.tools: pyproject.toml | $(bin)/python
	@echo "Installing dledger and the tools of its tests into .venv …" >&2
	@$(pip) install --editable '.[test]'
	@touch $@ .venv/.installed

$(bin)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dledger needs Python 3.11 or newer: make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "venv is missing: install the package python3-venv (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv .venv
