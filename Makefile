# make demo     installs into .venv and runs the demo: five nodes, real input, a dead leader
# make demo-spark the same with Spark beside it: a live log archived, leader and driver killed, nothing lost or doubled
# make test     installs what tests need and runs them
# make test-spark what needs Spark (500 MB, with a Java): the log as a source and a sink
# make spark-kills KILLS=20   kill -9 of a Spark pipeline in the middle: is every record there once?
# make test-clients what needs Go, Node.js, Maven and a network: the programs of docs/clients, while a leader is killed
# make test-root what needs root: loop-mounted disks that run full, hang or lose power, system calls that fail
# make test-docker builds the image and runs docker-compose.yml, with a Docker engine of its own (root; says what it lacks)
# make test-etcd etcd and etcdctl beside the store: both do the same (builds them with Go); and etcd's clients in Go, Java
#               and Python while leaders are killed (Maven with a Java, and a network)
# make etcd OPERATIONS=100000   random operations, to etcd and to the store: equal answers; ETCD_SEED=2 for others
# make jepsen   five hosts, every nemesis for a moment (root); longer: .venv/bin/python -m jepsen suite --time-limit 120
# make check    lint, types, architecture, proto
# make soak MINUTES=5 KILL_EVERY=10     CLIENTS=200: instead, clients that connect, cancel and go, and nodes that do not grow
# make sim SEEDS=2000   whole clusters under virtual time, a fault at every turn; the seeds come from the commit's hash, and
#               its first line says how to run the same again; then STORE_SEEDS=200 with clients of the store
# make liveness every connection graph of three and of five nodes: is there soon a leader that stays? GRAPH=341: one alone
# make bench    our figures beside the peers' and the limits of the machine; BENCH_FLAGS="--quick" for a first look
# make bench-all the same, the scenarios without Spark, and the table of targets: 2¼ h, 80 GB of room, a quiet machine
# make fuzz COUNT=1000000   mutated messages for every port and every decoder
# make conformance   foreign judges of our gRPC: h2spec, gRPC's interop tests, the API in Python, Go, Java, Node.js, grpcurl.
#               Needs Go, Maven with a Java, and Node.js; JUDGES="h2spec api" chooses
# make proof    the long proofs, in slices, the least proved on this tree first; goes on where it was stopped, and adds up.
#               make proof-report says what is proved: on this tree, in the last 30 days, in all;
#               make proof-quick runs a cut of each (real-faults: make test-root); FAMILIES="crash-points corruption" chooses
# make proto    regenerates the stubs in dledger/v1 and dledger/etcdpb

PYTHON ?= python3
MINUTES ?= 5
KILL_EVERY ?= 10
CLIENTS ?= 0
SEEDS ?= 2000
STORE_SEEDS ?= 200
OPERATIONS ?= 100000
ETCD_SEED ?= 1
KILLS ?= 20
JEPSEN_SECONDS ?= 290
JEPSEN_STORE ?= .make/jepsen
COUNT ?= 100000
SCENARIOS ?= bulk catchup failover idle groups members reads growth store store-size

bin := .venv/bin
pip := $(bin)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo demo-kv demo-spark test test-clients test-spark spark-kills test-root test-docker test-etcd etcd check lint format soak sim liveness fuzz conformance jepsen bench bench-all bench-gate proof proof-quick proof-report proto clean

demo: .venv/.installed
	@$(bin)/python -m dledger demo

demo-kv: .venv/.installed
	@$(bin)/python -m dledger demo kv

demo-spark: .venv/.spark-extra
	@$(bin)/python -m dledger spark demo

# Many tests wait: three workers for two cores. One begins with all clusters under load (tests/integration/conftest.py).
test: .venv/.tools
	@$(bin)/python -m pytest --numprocesses 3 --no-loadscope-reorder tests/integration tests/unit

test-clients: .venv/.tools
	@$(bin)/python -m pytest tests/clients

test-spark: .venv/.spark
	@$(bin)/python -m pytest tests/spark

spark-kills: .venv/.spark
	@$(bin)/python -m tests.spark.kills --kills $(KILLS)

test-root: .venv/.tools
	@$(bin)/python -m pytest tests/root

test-docker: .venv/.tools
	@$(bin)/python -m pytest tests/docker

test-etcd: .venv/.tools
	@$(bin)/python -m pytest tests/etcd

etcd: .venv/.tools
	@$(bin)/python -m tests.etcd --operations $(OPERATIONS) --seed $(ETCD_SEED)

jepsen: .venv/.tools
	@$(bin)/python -m jepsen test --workload log --nemesis every --fault-seconds 3 --calm-seconds 2 --clients 10 \
		--time-limit $(JEPSEN_SECONDS) --store $(JEPSEN_STORE)

check lint: .venv/.tools
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/buf lint proto
	@$(MAKE) --no-print-directory proto
	git diff --exit-code -- dledger/v1 dledger/etcdpb

format: .venv/.tools
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

soak: .venv/.tools
	@$(bin)/python -m tests.soak --minutes $(MINUTES) --kill-every $(KILL_EVERY) --clients $(CLIENTS)

sim: .venv/.tools
	@$(bin)/python -m tests.simulation --of-commit $(SEEDS)
	@$(bin)/python -m tests.simulation --store --of-commit $(STORE_SEEDS)

liveness: .venv/.tools
	@$(bin)/python -m tests.liveness $(if $(GRAPH),--graph $(GRAPH))

bench: .venv/.bench
	@$(bin)/python -m bench compare $(BENCH_FLAGS)

bench-all: .venv/.bench
	@failed=; \
	for each in "compare $(BENCH_FLAGS)" $(SCENARIOS) "--publish growth --nodes 3 --gigabytes 5" targets; do \
		$(bin)/python -m bench $$each || failed="$$failed [$$each]"; \
	done; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

bench-gate: .venv/.bench
	@$(bin)/python -m bench gate

fuzz: .venv/.tools
	@$(bin)/python -m tests.fuzz --count $(COUNT) --of-commit

conformance: .venv/.tools
	@$(bin)/python -m tests.conformance $(JUDGES)

proof: .venv/.tools
	@nice -n 10 $(bin)/python -m tests.proof $(FAMILIES)

proof-quick: .venv/.tools
	@$(bin)/python -m tests.proof --quick $(FAMILIES)

proof-report: .venv/.tools
	@$(bin)/python -m tests.proof --report $(FAMILIES)

proto: .venv/.tools
	@PATH="$(CURDIR)/$(bin):$$PATH" $(bin)/python -m grpc_tools.protoc -I proto \
		--python_out=. --grpc_python_out=. --mypy_out=. --mypy_grpc_out=. proto/dledger/v1/*.proto proto/dledger/etcdpb/*.proto

clean:
	rm -rf .venv .bench build dist

# The stamps say for which pyproject.toml .venv was filled; an editable install takes changed sources as they are.
.venv/.installed: pyproject.toml | $(bin)/python
	@echo "Installing dledger into .venv …" >&2
	@$(pip) install --editable .
	@touch $@

.venv/.tools: pyproject.toml | $(bin)/python
	@echo "Installing dledger and the tools of its tests into .venv …" >&2
	@$(pip) install --editable '.[test]'
	@touch $@ .venv/.installed

.venv/.bench: pyproject.toml | $(bin)/python
	@echo "Installing dledger and what its benchmarks need into .venv …" >&2
	@$(pip) install --editable '.[bench]'
	@touch $@ .venv/.installed

.venv/.spark-extra: pyproject.toml | $(bin)/python
	@echo "Installing dledger and Spark (500 MB) into .venv …" >&2
	@$(pip) install --editable '.[spark]'
	@touch $@ .venv/.installed

.venv/.spark: pyproject.toml | $(bin)/python
	@echo "Installing dledger, Spark and the tools of its tests into .venv …" >&2
	@$(pip) install --editable '.[spark,test]'
	@touch $@ .venv/.spark-extra .venv/.tools .venv/.installed

$(bin)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dledger needs Python 3.11 or newer: make PYTHON=/path/to/python3 …" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "venv is missing: install the package python3-venv (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv .venv
