# make demo     installs into .venv and runs the demo: five nodes, real input, a dead leader
# make test     installs what tests need and runs them
# make check    lint, types, architecture, proto
# make soak MINUTES=5 KILL_EVERY=10
# make proto    regenerates the stubs in dledger/v1

PYTHON ?= python3
MINUTES ?= 5
KILL_EVERY ?= 10

bin := .venv/bin
pip := $(bin)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test check lint format soak proto clean

demo: .make/installed
	@$(bin)/python -m dledger demo

test: .make/tools
	@$(bin)/python -m pytest

check lint: .make/tools
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/buf lint
	@$(MAKE) --no-print-directory proto
	git diff --exit-code -- dledger/v1

format: .make/tools
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

soak: .make/tools
	@$(bin)/python -m tests.soak --minutes $(MINUTES) --kill-every $(KILL_EVERY)

proto: .make/tools
	@PATH="$(CURDIR)/$(bin):$$PATH" $(bin)/python -m grpc_tools.protoc -I proto \
		--python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. proto/dledger/v1/*.proto

clean:
	rm -rf .venv .make build dist

# The stamps say for which pyproject.toml .venv was filled; an editable install takes changed sources as they are.
.make/installed: pyproject.toml | .make/venv
	@echo "Installing dledger into .venv …" >&2
	@$(pip) install --editable .
	@touch $@

.make/tools: pyproject.toml | .make/venv
	@echo "Installing dledger and the tools of its tests into .venv …" >&2
	@$(pip) install --editable '.[test]'
	@touch $@ .make/installed

.make/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dledger needs Python 3.11 or newer: make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "venv is missing: install the package python3-venv (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@test -x $(bin)/python || $(PYTHON) -m venv .venv
	@mkdir -p .make && touch $@
