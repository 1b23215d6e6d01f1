"""The rest of the client: options, status, transfer, errors of the network, the blocking façade."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext

import pytest

from dledger import client
from dledger.client.client_options import parse_endpoints
from dledger.common.config import MIB, Limits
from dledger.common.errors import (
    Code,
    ConfigError,
    DLedgerError,
    InvalidRequest,
    OutcomeUnknown,
    OutOfRange,
    Unavailable,
    UnknownGroup,
)
from dledger.common.types import Member, NodeId
from tests.unit.client.fake_admin import LAG_FRAMES
from tests.unit.client.fake_server import FakeCluster


@pytest.mark.parametrize("endpoints", ["a:1,b:2", " a:1 , b:2,", ["a:1", "b:2"], ("a:1", "b:2", "a:1")])
def test_endpoints_come_as_a_list_or_separated_by_commas(endpoints: str | list[str]) -> None:
    assert parse_endpoints(endpoints) == ["a:1", "b:2"]


@pytest.mark.parametrize("endpoints", ["", [], " , ", "nowhere", "host:port", "host:99999"])
def test_endpoints_that_cannot_be_used_are_refused(endpoints: str | list[str]) -> None:
    with pytest.raises(ConfigError):
        client.connect(endpoints)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_ms": 0},
        {"max_batches_in_flight": 0},
        {"max_batches_in_flight": 65},
        {"max_pending_bytes": 10},
        {"limits": Limits(max_stream_batches=65)},
        {"limits": Limits(max_batch_bytes=8 * MIB + 1)},
        {"limits": Limits(max_record_bytes=8 * MIB + 1)},
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, int | Limits]) -> None:
    with pytest.raises(ConfigError):
        client.connect("a:1", **options)  # type: ignore[arg-type]


async def test_nothing_is_asked_of_the_network_before_the_first_use() -> None:
    async with client.connect("127.0.0.1:1"):
        pass


async def test_nobody_there_is_said_with_the_endpoints_name() -> None:
    async with client.connect("127.0.0.1:1") as log:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await log.metadata()
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            await log.status()


@pytest.mark.usefixtures("cluster")
async def test_metadata_names_the_members_and_the_leader(log: client.Log) -> None:
    metadata = await log.metadata()
    assert metadata.leader_id == "n0"
    assert [member.id for member in metadata.members] == ["n0", "n1", "n2"]


async def test_an_unknown_group_is_named(cluster: FakeCluster) -> None:
    async with client.connect(cluster.endpoints, group="nowhere") as log:
        with pytest.raises(UnknownGroup, match="nowhere"):
            await log.metadata()


async def test_status_lists_the_unreachable_too(cluster: FakeCluster, log: client.Log) -> None:
    await cluster.nodes[2].stop()
    status = await log.status()
    assert (status.leader, status.term, status.healthy) == ("n0", cluster.term, True)
    assert [(node.id, node.reachable) for node in status.nodes] == [("n0", True), ("n1", True), ("n2", False)]
    assert status.as_dict()["nodes"][0]["chain"] == "0000000000000abc"


async def test_status_tells_what_the_leader_knows_of_the_members(cluster: FakeCluster, log: client.Log) -> None:
    cluster.members["n2"] = cluster.members["n2"]._replace(voter=False)
    cluster.members["n9"] = Member(NodeId("n9"), "h:9", voter=False)
    cluster.settings.preferred.add(id="n1", priority=5)
    status = await log.status()
    seen = {node.id: (node.voter, node.lag_frames, node.reachable, node.disk.state) for node in status.nodes}
    assert seen == {
        "n0": (True, 0, True, "ok"),
        "n1": (True, LAG_FRAMES, True, "ok"),
        "n2": (False, LAG_FRAMES, True, "ok"),
        "n9": (False, LAG_FRAMES, False, "unknown"),
    }
    told = status.as_dict()
    assert told["members"][3] == {"id": "n9", "peer_address": "h:9", "voter": False}
    assert (told["preferred"], told["retention"]) == ({"n1": 5}, {"max_age_ms": 0, "max_bytes": 0})
    assert told["nodes"][0]["disk"] == {"state": "ok", "free_bytes": 1 << 30}


async def test_a_majority_is_one_of_the_voters(cluster: FakeCluster, log: client.Log) -> None:
    """Two of three voters are needed, however many learners answer."""
    for node_id in ("n1", "n2"):
        cluster.members[node_id] = cluster.members[node_id]._replace(voter=False)
    cluster.members |= {node_id: Member(NodeId(node_id), f"{node_id}:1") for node_id in ("n8", "n9")}
    assert not (await log.status()).healthy
    cluster.members["n1"] = cluster.members["n1"]._replace(voter=True)
    del cluster.members["n9"]
    assert (await log.status()).healthy


async def test_a_majority_is_one_of_those_whose_disk_is_not_in_doubt(cluster: FakeCluster, log: client.Log) -> None:
    cluster.doubted.add("n2")
    status = await log.status()
    assert ([node.id for node in status.doubted], status.healthy) == (["n2"], True)
    assert [node["counts"] for node in status.as_dict()["nodes"]] == [True, True, False]
    cluster.doubted.add("n1")
    assert not (await log.status()).healthy


async def test_a_leaderless_group_is_not_healthy(cluster: FakeCluster, log: client.Log) -> None:
    cluster.lead(None)
    status = await log.status()
    assert status.leader is None
    assert not status.healthy


async def test_a_failed_search_is_shared_and_repeated(cluster: FakeCluster, log: client.Log) -> None:
    cluster.lead(None)
    gets = [log.get(0, timeout_ms=300 * number) for number in (1, 2)]
    for get in gets:
        with pytest.raises(Unavailable):
            await get


# The blocking façade ------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[FakeCluster]:
    """A cluster in a thread with a loop of its own, as another process would be."""
    ready: list[FakeCluster] = []
    up, down = threading.Event(), threading.Event()

    async def serve() -> None:
        cluster = FakeCluster()
        cluster.lead(await cluster.add_node())
        ready.append(cluster)
        up.set()
        await asyncio.to_thread(down.wait)
        await cluster.nodes[0].stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    up.wait()
    yield ready[0]
    down.set()
    thread.join()


def test_the_blocking_client_does_what_the_other_does(served: FakeCluster) -> None:
    with client.connect_blocking(served.endpoints) as log:
        assert log.append(b"0").index == 0
        assert log.append_many([b"1", b"2"]).last_index == 2
        assert log.get(1).value == b"1"
        assert [entry.value for entry in log.read()] == [b"0", b"1", b"2"]
        assert [batch.count for batch in log.read_batches(1)] == [2]
        assert [entry.value for entry in log.read(-2)] == [b"1", b"2"]
        assert [entry.value for entry in log.read(since=0)] == [b"0", b"1", b"2"]
        with pytest.raises(InvalidRequest, match="give follow=True"):
            list(log.read("latest"))
        assert log.bounds() == (0, 2)
        assert log.metadata().leader_id == "n0"
        assert log.status().leader == "n0"
        assert log.admin.add_learner("n1", "h:1").learners == ("n1",)
        assert log.admin.promote("n1").voters == ("n0", "n1")
        assert log.admin.readmit("n1").learners == ("n1",)
        assert log.admin.remove("n1").voters == ("n0",)
        assert log.admin.set_preferred({"n0": 1}).priority_of(NodeId("n0")) == 1
        assert log.admin.set_retention(max_age_ms=1, max_bytes=2, dry_run=True).settings.retention_max_bytes == 2
        assert log.admin.trim(1, dry_run=True).first_index == 1
        assert log.admin.transfer_leadership("n0")[0] == "n0"
        with pytest.raises(OutOfRange):
            log.get(3)


def test_the_blocking_client_is_shared_by_threads(served: FakeCluster) -> None:
    indexes: list[int] = []
    with client.connect_blocking(served.endpoints) as log:
        threads = [
            threading.Thread(target=lambda: indexes.extend(log.append(b"x").index for _ in range(20))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(indexes) == list(range(80))


def test_a_reader_that_stops_early_closes_its_stream(served: FakeCluster) -> None:
    with client.connect_blocking(served.endpoints) as log:
        log.append_many([b"0", b"1"])
        follower = log.read(follow=True)
        assert next(follower).index == 0
        follower.close()  # type: ignore[attr-defined]
        assert log.append(b"2").index == 2


def test_a_thread_that_follows_is_told_when_the_blocking_client_is_closed(served: FakeCluster) -> None:
    ended: list[DLedgerError] = []
    follows = threading.Event()

    def follow(log: client.BlockingLog) -> None:
        try:
            for _ in log.read(follow=True):
                follows.set()
        except DLedgerError as refusal:
            ended.append(refusal)

    with client.connect_blocking(served.endpoints) as log:
        log.append(b"0")
        thread = threading.Thread(target=follow, args=(log,))
        thread.start()
        follows.wait()
    thread.join()
    assert [refusal.code for refusal in ended] == [Code.SHUTTING_DOWN]


def test_what_is_appended_may_be_read_from_the_log_itself(served: FakeCluster) -> None:
    with client.connect_blocking(served.endpoints) as log:
        log.append_many([b"0", b"1"])
        assert log.append_many(entry.value for entry in log.read()).last_index == 3  # type: ignore[arg-type]
        with log.producer("job") as producer:
            producer.enqueue_many(entry.value for entry in log.read(2))  # type: ignore[arg-type]
    assert served.records() == [b"0", b"1"] * 3


def test_a_reader_that_is_collected_in_the_client_s_own_thread_harms_nobody(served: FakeCluster) -> None:
    with client.connect_blocking(served.endpoints) as log:
        log.append(b"0")
        held = [log.read(follow=True)]
        next(held[0])
        assert log._thread._loop is not None
        log._thread._loop.call_soon_threadsafe(held.clear)
        assert log.append(b"1").index == 1


def test_a_blocking_call_in_the_client_s_own_thread_is_refused(served: FakeCluster) -> None:
    refused: Future[DLedgerError] = Future()

    def call(log: client.BlockingLog) -> None:
        try:
            log.append(b"x")
        except DLedgerError as refusal:
            refused.set_result(refusal)

    with client.connect_blocking(served.endpoints) as log:
        assert log._thread._loop is not None
        log._thread._loop.call_soon_threadsafe(call, log)
        assert "own thread" in str(refused.result(timeout=10))
        assert log.append(b"y").index == 0


def test_a_client_that_was_opened_before_a_fork_says_so(served: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with client.connect_blocking(served.endpoints) as log:
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda: -1)  # as the child sees it; a fork here would take gRPC's threads away
            with pytest.raises(Unavailable, match="before a fork"):
                log.append(b"x")
            log.close()
        assert log.append(b"y").index == 0


def test_a_reader_that_is_forgotten_behind_a_fork_waits_for_no_thread_of_the_parents(
    served: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.connect_blocking(served.endpoints) as log:
        log.append(b"x")
        reader = log.read(follow=True)
        next(reader)
        forgetting = threading.Thread(target=reader.close, daemon=True)  # type: ignore[attr-defined]
        with log._thread._handing_over, monkeypatch.context() as patch:  # as a thread does that the child has not
            patch.setattr("os.getpid", lambda: -1)
            forgetting.start()
            forgetting.join(timeout=5)
            assert not forgetting.is_alive()


def append_named(log: client.BlockingLog) -> None:
    with log.producer("job") as producer:
        producer.enqueue_many([b"x"])


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.parametrize(
    "call",
    [lambda log: log.append(b"x"), lambda log: log.append_many([b"x"]), append_named, lambda log: log.admin.trim(1)],
)
def test_what_was_asked_for_when_a_close_is_interrupted_is_of_unknown_outcome(
    served: FakeCluster, monkeypatch: pytest.MonkeyPatch, call: Callable[[client.BlockingLog], object], has_begun: bool
) -> None:
    served.faults.hold = asyncio.Event()
    served.faults.silent = frozenset({"Change"})
    told: Future[DLedgerError] = Future()
    wait = Future.result

    def ask() -> None:
        try:
            call(log)
        except DLedgerError as refusal:
            told.set_result(refusal)

    def interrupt(future: Future[object]) -> object:
        if threading.current_thread() is asking:  # it may have asked, and not begun to wait
            return wait(future)
        assert inner is not None
        while has_begun and inner._closing is None:
            time.sleep(0.001)
        raise KeyboardInterrupt

    with client.connect_blocking(served.endpoints) as log:
        inner = log._log
        asking = threading.Thread(target=ask)
        asking.start()
        while not (served.nodes[0].append_messages or served.was_asked("Change")):
            time.sleep(0.001)
        with monkeypatch.context() as patch:
            patch.setattr(Future, "result", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.close()
        asking.join()
    assert isinstance(told.result(), OutcomeUnknown)


@pytest.mark.parametrize(("is_answered", "outcome"), [(True, nullcontext()), (False, pytest.raises(OutcomeUnknown))])
def test_a_named_producer_tells_what_became_of_its_records_also_when_its_client_was_closed(
    served: FakeCluster, is_answered: bool, outcome: AbstractContextManager[object]
) -> None:
    if not is_answered:
        served.faults.hold = asyncio.Event()
    with client.connect_blocking(served.endpoints, timeout_ms=500) as log:
        producer = log.producer("job").__enter__()
        producer.enqueue_many([b"x"])
        while not served.nodes[0].append_messages:
            time.sleep(0.001)
        log.close()
        with outcome:
            producer.flush()
        with outcome:
            producer.__exit__(None, None, None)


def test_a_named_producer_of_a_closed_client_that_is_left_by_an_exception_raises_no_other(served: FakeCluster) -> None:
    with client.connect_blocking(served.endpoints) as log:
        producer = log.producer("job").__enter__()
        log.close()
        producer.__exit__(ZeroDivisionError, ZeroDivisionError(), None)


def test_threads_that_close_the_blocking_client_at_once_lose_no_append(served: FakeCluster) -> None:
    served.faults.hold = asyncio.Event()
    acked: list[int] = []
    with client.connect_blocking(served.endpoints) as log:
        appending = threading.Thread(target=lambda: acked.append(log.append(b"x").index))
        appending.start()
        while not served.nodes[0].append_messages:
            time.sleep(0.001)
        assert log._thread._loop is not None
        closing = [threading.Thread(target=log.close) for _ in range(4)]
        for thread in closing:
            thread.start()
        time.sleep(0.05)  # so that they wait for it together
        served.nodes[0].loop.call_soon_threadsafe(served.faults.hold.set)
        for thread in [*closing, appending]:
            thread.join()
    assert acked == [0]


def test_a_closed_blocking_client_says_so(served: FakeCluster) -> None:
    with client.connect_blocking(served.endpoints) as log:
        pass
    with pytest.raises(DLedgerError) as refusal:
        log.append(b"x")
    assert refusal.value.code is Code.SHUTTING_DOWN
