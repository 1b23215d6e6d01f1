"""What the scenarios do where something is missing, dies or makes no sense, and how their rounds are put together."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import click
import pytest
from click.testing import CliRunner

from bench import machine
from bench.limits import Limit
from bench.peers.dledger_python import DLedgerPython
from bench.peers.kafka import Kafka
from bench.scenarios import (
    bulk,
    catchup,
    failover,
    growth,
    idle,
    members,
    reads,
    spark,
    spark_check,
    spark_lag,
    spark_session,
)
from bench.scenarios.cluster import FILL_RECORD_BYTES, Cluster
from bench.scenarios.rounds import over_rounds
from bench.work import BULK, MeasurementFailed, Outcome, PeerMissing, Work
from dledger.common.errors import ConfigError

OUTCOME = Outcome(records=300, errors=0, duration_s=1.0, p50_ms=1, p99_ms=1, server_core_s=1, client_core_s=1)


def run(command: click.Command, *arguments: str) -> Any:
    return CliRunner().invoke(command, arguments)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (idle.idle, "--duration 0"),
        (idle.idle, "--duration nan"),
        (idle.idle, "--nodes 0"),
        (members.members, "--duration 0"),
        (growth.growth, "--duration 0"),
        (growth.growth, "--gigabytes 0"),
        (growth.growth, "--gigabytes inf"),
        (reads.reads, "--duration -1"),
        (bulk.bulk, "--duration 0"),
        (bulk.bulk, "--peers dledger"),
        (bulk.bulk, "--peers nobody"),
        (catchup.catchup, "--gigabytes 0"),
        (catchup.catchup, "--inflight 0"),
        (catchup.catchup, "--rounds 0"),
        (spark.spark, "--record-bytes 5000"),
        (spark_lag.spark_lag, "--rate 5000000 --record-bytes 4000"),
        (spark_check.spark_check, "--operations 1000 --lost 500"),
    ],
)
def test_what_cannot_be_measured_is_a_wrong_flag(command: click.Command, flags: str) -> None:
    assert run(command, *flags.split()).exit_code == 2


@pytest.mark.parametrize("command", [spark.spark, spark_lag.spark_lag, spark_check.spark_check])
def test_spark_is_asked_for_before_anything_is_filled(command: click.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("dledger spark needs pyspark")

    monkeypatch.setattr(spark_session, "require_extra", missing)
    for module in (spark, spark_lag):
        monkeypatch.setattr(module, "cluster", lambda *_, **__: pytest.fail("filled"))
    result = run(command)
    assert isinstance(result.exception, PeerMissing)
    assert str(result.exception) == "dledger spark needs pyspark"


def test_help_needs_no_pyarrow() -> None:
    program = "import sys; sys.modules.update(pyarrow=None, pyspark=None); import bench.__main__"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=True)


@pytest.mark.parametrize(("records", "sizes"), [(10_500, [1000] * 10 + [500]), (1_000, [1000])])
def test_as_many_records_are_filled_as_are_asked_for(
    records: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[Sequence[bytes]] = []

    class Log:
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

        async def append_many(self, batch: Sequence[bytes]) -> None:
            batches.append(batch)

    monkeypatch.setattr(spark, "connect", lambda _: Log())
    asyncio.run(spark._fill("nowhere", records, 7))
    assert [len(batch) for batch in batches] == sizes
    assert {len(record) for batch in batches for record in batch} == {7}


# Rounds --------------------------------------------------------------------------------------------------------------


def test_rounds_have_a_median_and_a_range() -> None:
    rows = [{"round": 1, "rate": 10, "peer": "missing"}, {"round": 2, "rate": 40, "peer": "missing"}]
    assert over_rounds(rows)[2:] == [
        {"round": "median", "rate": 25, "peer": "–"},
        {"round": "lowest", "rate": 10, "peer": "–"},
        {"round": "highest", "rate": 40, "peer": "–"},
    ]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The rows of what a scenario saves."""
    rows: list[dict[str, Any]] = []
    for module in (bulk, catchup, failover, idle, members):
        monkeypatch.setattr(module, "save", lambda _name, _result, table, **_: rows.extend(table))
    return rows


def in_turns(monkeypatch: pytest.MonkeyPatch, ours: list[float], copies: list[float]) -> list[str]:
    """Gives each turn of bulk the next of its rates; returns who came when."""
    order: list[str] = []

    def turn(name: str, rates: Iterator[float], _duration_s: float) -> dict[str, float]:
        order.append(name)
        return {bulk._rate(name): next(rates)}

    for module in (bulk, machine):
        monkeypatch.setattr(module, "check_space", lambda _: None)
    monkeypatch.setattr(bulk, "_ours", partial(turn, bulk.OURS, iter(ours)))
    monkeypatch.setattr(bulk, "_copies", partial(turn, bulk.COPIES, iter(copies)))
    return order


def test_another_one_begins_each_round_of_bulk(monkeypatch: pytest.MonkeyPatch, saved: list[dict[str, Any]]) -> None:
    order = in_turns(monkeypatch, [100, 300, 200], [400, 200, 250])
    assert run(bulk.bulk, "--peers", "").exit_code == 0
    assert order == ["dledger", "copies", "copies", "dledger", "dledger", "copies"]
    assert [row["share_of_copies"] for row in saved] == [0.25, 1.5, 0.8, 0.5]
    assert (saved[-1]["records_per_s"], saved[-1]["copies_records_per_s"]) == (200, 400)


@pytest.mark.parametrize(
    ("load", "rate", "times"),
    [
        (lambda *_: OUTCOME, 300, 2.0),
        (lambda *_: Outcome(1, 1, 1.0, 1, 1, 1, 1), "failed", "failed"),
    ],
)
def test_a_peer_beside_bulk(
    load: Callable[..., Outcome],
    rate: object,
    times: object,
    monkeypatch: pytest.MonkeyPatch,
    saved: list[dict[str, Any]],
) -> None:
    in_turns(monkeypatch, [600], [600])
    loaded: list[Work] = []

    def loading(_self: Kafka, work: Work, _duration_s: float) -> Outcome:
        loaded.append(work)
        return load()

    monkeypatch.setattr(Kafka, "install", lambda _: "4")
    monkeypatch.setattr(Kafka, "start", lambda _self, _data: None)
    monkeypatch.setattr(Kafka, "load", loading)
    assert (run(bulk.bulk, "--rounds", "1").exit_code == 0) == (rate != "failed")
    assert (saved[0]["kafka_records_per_s"], saved[0]["times_kafka"]) == (rate, times)
    assert [work.name for work in loaded] == [BULK]


def test_a_peer_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, saved: list[dict[str, Any]]) -> None:
    def missing(_: Kafka) -> str:
        raise PeerMissing("mvn is not installed")

    in_turns(monkeypatch, [600], [600])
    monkeypatch.setattr(Kafka, "install", missing)
    result = run(bulk.bulk, "--rounds", "1")
    assert "kafka is missing: mvn is not installed" in result.stderr
    assert saved[0]["kafka_records_per_s"] == saved[0]["times_kafka"] == "missing"


# A follower that catches up ------------------------------------------------------------------------------------------


class Running:
    """Stands for a cluster whose follower is close behind when it is asked the second time."""

    def __init__(self, load: Any, *, appended: int = 1000) -> None:
        self.load = load
        self.committed = iter([10, 10 + appended])
        self.lags = iter([5_000, 0])

    def data_folder(self) -> Path:
        return Path()

    def wait_ready(self) -> Any:
        return SimpleNamespace(leader="n0", term=3)

    def elections_since(self, term: int) -> int:
        return 3 - term

    def peak_mb(self) -> float:
        return 80.0

    def bench(self, _kind: str, **_flags: object) -> dict[str, Any]:
        return {"records_per_s": 100}

    def fill(self, size_bytes: float) -> range:
        return range(int(size_bytes) // FILL_RECORD_BYTES)

    def begin(self, _kind: str, **_flags: object) -> Any:
        return self.load

    def status(self) -> Any:
        return SimpleNamespace(nodes=[SimpleNamespace(commit_index=next(self.committed))], node=self._node)

    def _node(self, node_id: str) -> Any:
        assert node_id == "n1"
        self.committed = iter([1010])
        return SimpleNamespace(lag_frames=next(self.lags))

    def end(self, _number: int) -> None: ...

    def start(self, _number: int) -> None: ...


class Load:
    """Stands for the load that goes on."""

    def __init__(self, *, alive: bool) -> None:
        self.alive, self.ended = alive, False

    def raise_if_ended(self) -> None:
        if not self.alive:
            raise MeasurementFailed("load ended: dead")

    def end(self) -> None:
        self.ended = True


@contextmanager
def given(running: Running) -> Iterator[Running]:
    yield running


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catchup, "SETTLE_S", 0.0)
    monkeypatch.setattr(catchup, "SEQUENTIAL", Limit("disk", lambda *_: OUTCOME, "MB/s"))
    monkeypatch.setattr(catchup, "POLL_S", 0.0)


@pytest.mark.usefixtures("no_waits")
def test_a_load_that_died_is_no_share_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(alive=False)
    monkeypatch.setattr(catchup, "cluster", lambda *_, **__: given(Running(load)))
    result = run(catchup.catchup)
    assert isinstance(result.exception, MeasurementFailed)
    assert str(result.exception) == "load ended: dead"
    assert load.ended


@pytest.mark.usefixtures("no_waits")
def test_each_round_of_catchup_has_a_cluster_of_its_own(
    monkeypatch: pytest.MonkeyPatch, saved: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(catchup, "cluster", lambda *_, **__: given(Running(Load(alive=True))))
    assert run(catchup.catchup, "--rounds", "2").exit_code == 0
    assert [row["round"] for row in saved] == [1, 2, "median", "lowest", "highest"]
    assert {row["missed_gb"] for row in saved} == {2.0}


@pytest.mark.usefixtures("no_waits")
def test_appends_while_a_follower_catches_up_are_a_share_of_those_before(
    monkeypatch: pytest.MonkeyPatch, saved: list[dict[str, Any]]
) -> None:
    rates = iter([100, 80])
    clock_s = iter([0, 1, 20, 20])
    running = Running(Load(alive=True), appended=1000)
    monkeypatch.setattr(running, "bench", lambda *_, **__: {"records_per_s": next(rates)})
    monkeypatch.setattr(catchup, "cluster", lambda *_, **__: given(running))
    monkeypatch.setattr(catchup, "time", SimpleNamespace(sleep=lambda _: None, perf_counter=lambda: next(clock_s)))
    assert run(catchup.catchup, "--rounds", "1").exit_code == 0
    assert (saved[0]["catch_up_mb_per_s"], saved[0]["seconds"]) == (100, 20)
    assert (saved[0]["appends_per_s_before"], saved[0]["appends_per_s_two_nodes"]) == (100, 80)
    assert (saved[0]["appends_per_s_meanwhile"], saved[0]["share"]) == (50, 0.5)


# What nodes cost -----------------------------------------------------------------------------------------------------


def test_idle_nodes_cost_what_they_used_while_nothing_was_asked(
    monkeypatch: pytest.MonkeyPatch, saved: list[dict[str, Any]]
) -> None:
    used_s = iter([7.0, 9.0])
    slept_s: list[float] = []
    nodes = SimpleNamespace(core_s=lambda: next(used_s), peak_mb=lambda: 60.4)
    monkeypatch.setattr(idle, "cluster", lambda _: given(cast("Running", nodes)))
    monkeypatch.setattr(idle, "time", SimpleNamespace(sleep=slept_s.append))
    assert run(idle.idle, "--nodes", "3", "--duration", "40").exit_code == 0
    assert slept_s == [idle.SETTLE_S, 40]
    assert saved == [{"nodes": 3, "cores_percent": 5.0, "memory_mb": 60}]


def test_what_two_nodes_more_cost_is_told_of_rate_and_of_processor_time(
    monkeypatch: pytest.MonkeyPatch, saved: list[dict[str, Any]]
) -> None:
    loaded: list[tuple[int, dict[str, object]]] = []

    def nodes(count: int) -> Any:
        def bench(_work: str, **flags: object) -> dict[str, Any]:
            loaded.append((count, flags))
            rate, core_s = (300, 0.3) if count == 3 else (200, 0.5)
            return {"records_per_s": rate, "records": 1000, "p50_ms": 1 / rate, "server_core_s": core_s}

        return given(cast("Running", SimpleNamespace(bench=bench)))

    monkeypatch.setattr(members, "cluster", nodes)
    assert run(members.members, "--rounds", "2").exit_code == 0
    assert [row["work"] for row in saved] == list(members.WORKS)
    assert {(row["rate"], row["cost_times"]) for row in saved} == {("1 / 1.50", 1.67)}
    works = 2 * len(members.WORKS)  # each warmed up
    assert [count for count, _ in loaded] == [3] * works + [5] * 2 * works + [3] * works


def test_elections_under_load_are_counted_before_anybody_is_killed(
    monkeypatch: pytest.MonkeyPatch, saved: list[dict[str, Any]]
) -> None:
    done: list[object] = []
    terms = iter([3, 5])

    def term() -> int:
        done.append("term")
        return next(terms)

    def kill(_running: object, number: int, _kills: int) -> float:
        done.append(number)
        return [90.0, 100.0, 400.0][number]

    nodes = SimpleNamespace(
        term=term, bench=lambda *_, **__: done.append("load"), elections_since=lambda first: term() - first
    )
    monkeypatch.setattr(failover, "cluster", lambda _: given(cast("Running", nodes)))
    monkeypatch.setattr(failover, "_kill_leader", kill)
    assert run(failover.failover, "--kills", "3").exit_code == 0
    assert done == ["term", "load", "load", "term", 0, 1, 2]
    assert saved == [{"kills": 3, "median_ms": 100, "p90_ms": 100, "worst_ms": 400, "elections_by_load": 2}]


# The cluster's own client --------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    """Without a node."""
    system = DLedgerPython(1)
    system.endpoints = "127.0.0.1:1"
    cluster = Cluster(system, tmp_path)
    yield cluster
    cluster.close()


@pytest.mark.parametrize(
    ("said", "told"),
    [("", "dledger bench get: it ended with 5, without a word"), ("one\ntwo\n", "dledger bench get: two")],
)
def test_a_bench_that_fails_says_why(said: str, told: str, running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 5, stdout="", stderr=said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(MeasurementFailed) as failed:
        running.bench("get")
    assert str(failed.value) == told


def test_the_logs_of_an_election_that_nobody_asked_for_are_kept(
    running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "KEPT_LOGS", tmp_path / "kept")
    monkeypatch.setattr(running, "term", lambda: 5)
    (tmp_path / "n0.log").write_text("n0 stands for election")
    assert running.elections_since(5) == 0
    assert not (tmp_path / "kept").exists()
    assert running.elections_since(3) == 2
    assert [log.read_text() for log in (tmp_path / "kept").rglob("n0.log")] == ["n0 stands for election"]
    assert f"the nodes' logs are in {tmp_path / 'kept'}" in capsys.readouterr().err


def test_a_fill_is_of_as_many_records_as_it_takes(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def client(work: str, *arguments: object) -> dict[str, Any]:
        asked[:] = [work, *arguments]
        return {"first_index": 7}

    monkeypatch.setattr(running, "client", client)
    assert running.fill(4096 * 2.5) == range(7, 10)
    assert asked == ["fill", 3, 4096, 32]


def test_how_much_is_cached_is_told_where_it_can_be(
    running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "n0"
    data.mkdir()
    (data / "segment").write_bytes(bytes(100_000))
    cached = running.cached_bytes(0)
    assert cached is None or cached in range(1, 102_401)
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert running.cached_bytes(0) is None


def test_growth_gets_what_was_filled_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"records_per_s": 1, "records": 1, "p50_ms": 1, "server_core_s": 1}
    asked: list[object] = []

    class Grown:
        nodes = (0,)
        data_bytes = 5_000_000
        filled = 0

        def fill(self, size_bytes: float) -> range:
            first = self.filled + 1000  # behind the small records
            self.filled = first + round(size_bytes / FILL_RECORD_BYTES)
            return range(first, self.filled)

        def bench(self, *_: object, **__: object) -> dict[str, Any]:
            return result

        def client(self, work: str, _duration_s: float, _inflight: int, ranges: str, *places: object) -> dict[str, Any]:
            asked.append((work, ranges, *places))
            return result

        def wait_ready(self) -> Any: ...

        def leader(self) -> int:
            return 0

        def cached_gb(self, _number: int) -> str:
            return "0.003"

        def peak_mb(self) -> float:
            return 80.0

        def end(self, _number: int, *, kill: bool = False) -> None: ...

        def start(self, _number: int) -> float:
            return 0.1

    rows: list[dict[str, Any]] = []

    def save(_name: str, _result: object, table: list[dict[str, Any]]) -> Path:
        rows.extend(table)
        return Path()

    monkeypatch.setattr(growth, "cluster", lambda *_, **__: given(cast("Running", Grown())))
    monkeypatch.setattr(growth, "save", save)
    monkeypatch.setattr(growth, "_plot", lambda *_: None)
    assert run(growth.growth, "--gigabytes", "0.008192").exit_code == 0
    again = ("--places", growth.PLACES)
    assert asked == [
        (*step, *places)
        for step in (("get", "1000:1244"), ("get", "1000:1244,2244:4000"))
        for places in ((), again, again)
    ]
    assert [row["filled_gb"] for row in rows] == [0.001, 0.008]
    assert rows[0]["cached_gb"] == "0.003 → 0.003"
