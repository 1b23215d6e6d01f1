"""``dledger bench kv`` against a store in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

import pytest

from dledger.cli import bench_kv
from dledger.client.store.results import KeyValue
from dledger.client.store.writer import MAX_PENDING
from dledger.common.errors import DLedgerError, NoSpace, OutcomeUnknown
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_log import FakeLog


class FakeStore:
    """Puts succeed, but for those that ``refusals`` has one for; ``calls`` counts."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.refusals: dict[int, DLedgerError] = {}

    async def put(self, key: str, value: bytes) -> int:
        await asyncio.sleep(0)
        self.calls["put"] += 1
        refusal = self.refusals.get(self.calls["put"])
        if refusal:
            raise refusal
        self.values[key] = value
        return self.calls["put"]

    async def get(self, key: str) -> KeyValue:
        await asyncio.sleep(0)
        self.calls["get"] += 1
        return KeyValue(key.encode(), self.values[key], 1, 1, 1, 0)


@pytest.fixture
def store(fake: FakeLog, monkeypatch: pytest.MonkeyPatch) -> FakeStore:
    """What the command is connected to. Each look at the clock finds it 0.1 ms later."""
    looks = count()
    monkeypatch.setattr("time.perf_counter", lambda: next(looks) / 10_000)
    store = FakeStore()
    fake.cluster.store = lambda: store  # type: ignore[attr-defined]
    return store


def test_it_has_the_shape_of_the_other_benchmarks(dledger: Run, fake: FakeLog, store: FakeStore) -> None:
    outcome = dledger("bench", "kv", "--duration", "0.1", "--size", "10", "--keys", "7", "-o", "json", log=fake)
    found = outcome.last_json
    assert outcome.code == 0
    assert list(found) == [
        "records_per_s", "mb_per_s", "p50_ms", "p99_ms", "p999_ms", "records", "errors", "unknown", "duration_s",
        "inflight", "size_bytes", "batch", "durability", "gets_percent", "keys", "latency_of",
    ]  # fmt: skip
    assert (found["inflight"], found["size_bytes"], found["errors"]) == (64, 10, 0)
    assert found["records"] + 7 == store.calls["put"]  # each key has a value before the clock starts
    assert {len(value) for value in store.values.values()} == {10}
    assert len(store.values) == 7


@pytest.mark.parametrize(("percent", "kinds"), [(0, {"put"}), (50, {"put", "get"}), (100, {"get"})])
def test_a_share_of_the_calls_are_gets(
    percent: int, kinds: set[str], dledger: Run, fake: FakeLog, store: FakeStore
) -> None:
    outcome = dledger("bench", "kv", "--duration", "0.1", "--gets", str(percent), "--keys", "5", "-o", "json", log=fake)
    found = outcome.last_json
    store.calls["put"] -= 5  # each key has a value before the clock starts
    assert set(+store.calls) == kinds
    assert found["records"] == store.calls.total()


def test_the_table_is_that_of_the_other_benchmarks(dledger: Run, fake: FakeLog, store: FakeStore) -> None:
    told = dledger("bench", "kv", "--duration", "0.1", "--keys", "1", log=fake).out.decode()
    assert told.splitlines()[0].split()[:2] == ["records/s", "MB/s"]
    assert store.calls


def test_calls_that_fail_are_counted(
    dledger: Run, fake: FakeLog, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dledger.cli.measure.PAUSE_AFTER_ERROR_S", 0)
    store.refusals = {5: OutcomeUnknown("who knows"), 6: NoSpace("the store is full")}
    found = dledger("bench", "kv", "--duration", "0.1", "--keys", "1", "-o", "json", log=fake).last_json
    assert (found["errors"], found["unknown"]) == (2, 1)


def test_a_store_that_takes_nothing_ends_it(dledger: Run, fake: FakeLog, store: FakeStore) -> None:
    store.refusals = {number: NoSpace("the store is full") for number in range(1, 100_000)}
    outcome = dledger("bench", "kv", "--duration", "0.1", log=fake)
    assert (outcome.code, outcome.out) == (5, b"")
    assert "the store is full" in outcome.err


@pytest.mark.parametrize("flag", ["--inflight", "--size", "--keys", "--gets"])
def test_what_would_take_all_memory_is_refused(dledger: Run, fake: FakeLog, store: FakeStore, flag: str) -> None:
    outcome = dledger("bench", "kv", flag, f"{1 << 40}", log=fake)
    assert outcome.code == 2
    assert f"{1 << 40} is not in the range" in outcome.err
    assert not store.calls


def test_no_more_calls_are_allowed_than_the_client_takes() -> None:
    assert bench_kv.MOST_CALLS == MAX_PENDING
