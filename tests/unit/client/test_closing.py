"""A client that is closed while others wait in its calls: each of them is told so, and nobody is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dledger import client
from dledger.client.client_options import DEFAULT_BATCHES_IN_FLIGHT
from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, Unavailable
from dledger.common.types import Ack, Consistency
from tests.unit.client.fake_server import FakeCluster

Call = Callable[[client.Log], Coroutine[Any, Any, object]]


async def get(log: client.Log) -> object:
    return await log.get(0)


async def get_committed(log: client.Log) -> object:
    return await log.get(0, Consistency.COMMITTED)


async def read(log: client.Log) -> object:
    return await anext(log.read())


async def follow(log: client.Log) -> object:
    return await anext(log.read(follow=True))


async def open_producer(log: client.Log) -> object:
    return await log.producer("job").__aenter__()


CALLS: list[tuple[str, Call]] = [
    ("Get", lambda log: log.bounds()),
    ("ListSegments", lambda log: log.segments()),
    ("ListSegments", lambda log: log.segments(node="n1")),
    ("GetStream", get),
    ("GetStream", get_committed),
    ("Read", read),
    ("Read", follow),
    ("InitProducer", open_producer),
    ("Status", lambda log: log.status()),
    ("GetMetadata", lambda log: log.metadata()),
]
"""Each with the last method that it waits for."""
NEED_A_LEADER: list[Call] = [
    lambda log: log.bounds(),
    get,
    read,
    follow,
    open_producer,
    lambda log: log.admin.promote("n1"),
]


async def outcome(call: asyncio.Future[Any]) -> Code | str:
    """The code of what it raises, or "cancelled"."""
    try:
        await call
    except DLedgerError as refusal:
        return refusal.code
    except asyncio.CancelledError:
        return "cancelled"
    return "done"


@pytest.mark.parametrize(("method", "call"), CALLS)
async def test_who_waits_for_a_node_to_answer_is_told(
    cluster: FakeCluster, log: client.Log, method: str, call: Call
) -> None:
    cluster.faults.silent = frozenset({method})
    waiting = asyncio.ensure_future(call(log))
    await cluster.heard(method)
    await log.close()
    assert await outcome(waiting) is Code.SHUTTING_DOWN


@pytest.mark.parametrize("call", [call for _, call in CALLS])
async def test_who_waits_to_hear_who_leads_is_told(cluster: FakeCluster, log: client.Log, call: Call) -> None:
    cluster.faults.silent = frozenset({"GetMetadata"})
    waiting = asyncio.ensure_future(call(log))
    await cluster.heard("GetMetadata")
    await log.close()
    assert await outcome(waiting) is Code.SHUTTING_DOWN


@pytest.mark.parametrize("call", NEED_A_LEADER)
async def test_who_waits_for_a_leader_is_told(cluster: FakeCluster, log: client.Log, call: Call) -> None:
    cluster.lead(None)
    waiting = asyncio.ensure_future(call(log))
    await cluster.heard("GetMetadata")
    await log.close()
    assert await outcome(waiting) is Code.SHUTTING_DOWN


async def test_a_change_that_was_asked_for_is_of_unknown_outcome(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.silent = frozenset({"Change"})
    waiting = asyncio.ensure_future(log.admin.promote("n1"))
    await cluster.heard("Change")
    await log.close()
    with pytest.raises(OutcomeUnknown, match="the client was closed"):
        await waiting


@pytest.mark.parametrize(("method", "call"), CALLS)
async def test_a_caller_who_is_cancelled_himself_is_cancelled(
    cluster: FakeCluster, log: client.Log, method: str, call: Call
) -> None:
    cluster.faults.silent = frozenset({method})
    waiting = asyncio.ensure_future(call(log))
    await cluster.heard(method)
    waiting.cancel()
    await log.close()
    assert await outcome(waiting) == "cancelled"


async def test_a_caller_who_is_cancelled_leaves_the_search_to_the_others(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.silent = frozenset({"GetMetadata"})
    first, second = (asyncio.ensure_future(log.bounds()) for _ in range(2))
    await cluster.heard("GetMetadata")
    first.cancel()
    cluster.faults.silent = frozenset()
    assert await second == (0, -1)
    assert await outcome(first) == "cancelled"


# Closing itself -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def held(cluster: FakeCluster, log: client.Log) -> asyncio.Future[Ack]:
    """An append that is acknowledged once ``hold`` is set."""
    cluster.faults.hold = asyncio.Event()
    pending = log.enqueue(b"x")
    async with cluster.nodes[0].received:
        await cluster.nodes[0].received.wait_for(lambda: cluster.nodes[0].append_messages)
    return pending


def release(cluster: FakeCluster) -> None:
    assert cluster.faults.hold is not None
    cluster.faults.hold.set()


async def test_whoever_closes_waits_for_the_same_appends(
    cluster: FakeCluster, log: client.Log, held: asyncio.Future[Ack]
) -> None:
    first, second = (asyncio.ensure_future(log.close()) for _ in range(2))
    done, _ = await asyncio.wait({first, second}, timeout=0.05)
    assert not done
    release(cluster)
    await second
    assert held.result().index == 0
    await first


async def test_who_is_cancelled_while_he_closes_takes_no_append_along(
    cluster: FakeCluster, log: client.Log, held: asyncio.Future[Ack]
) -> None:
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    closing.cancel()
    assert await outcome(closing) == "cancelled"
    release(cluster)
    await log.close()
    assert held.result().index == 0


@pytest.mark.usefixtures("held")
async def test_nothing_new_is_taken_once_the_client_is_being_closed(cluster: FakeCluster, log: client.Log) -> None:
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="the client was closed"):
        log.enqueue(b"y")
    release(cluster)
    await closing


@pytest.mark.usefixtures("cluster")
async def test_a_client_that_was_closed_may_be_opened_again(log: client.Log) -> None:
    await log.append(b"0")
    await log.close()
    async with log:
        assert (await log.append(b"1")).index == 1


# Producers with a name ----------------------------------------------------------------------------------------------


@pytest.fixture
async def producer(log: client.Log) -> client.NamedProducer:
    return await log.producer("job").__aenter__()


async def test_what_was_appended_under_a_name_is_waited_for(
    cluster: FakeCluster, log: client.Log, producer: client.NamedProducer
) -> None:
    cluster.faults.hold = asyncio.Event()
    [pending] = await producer.enqueue_many([b"x"])
    closing = asyncio.ensure_future(log.close())
    await asyncio.sleep(0)
    release(cluster)
    await closing
    assert pending.result().first_index == 0
    await producer.__aexit__(None, None, None)
    assert cluster.records() == [b"x"]


async def test_nothing_more_is_appended_under_a_name(
    cluster: FakeCluster, log: client.Log, producer: client.NamedProducer
) -> None:
    await producer.enqueue_many([b"x"])
    await log.close()
    assert await outcome(asyncio.ensure_future(producer.enqueue_many([b"y"]))) is Code.SHUTTING_DOWN
    assert cluster.records() == [b"x"]


async def test_who_waits_for_room_under_a_name_is_told_at_once(
    cluster: FakeCluster, log: client.Log, producer: client.NamedProducer
) -> None:
    cluster.faults.hold = asyncio.Event()
    for number in range(DEFAULT_BATCHES_IN_FLIGHT):
        await producer.enqueue_many([b"%d" % number])
    one_more = asyncio.ensure_future(producer.enqueue_many([b"more"]))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(log.close())
    assert await outcome(one_more) is Code.SHUTTING_DOWN
    release(cluster)
    await closing
    assert len(cluster.records()) == DEFAULT_BATCHES_IN_FLIGHT


async def test_what_was_sent_under_a_name_and_not_answered_is_of_unknown_outcome(cluster: FakeCluster) -> None:
    cluster.faults.hold = asyncio.Event()
    async with client.connect(cluster.endpoints, timeout_ms=1_000) as log:
        producer = await log.producer("job").__aenter__()
        [sent] = await producer.enqueue_many([b"x"])
        async with cluster.nodes[0].received:
            await cluster.nodes[0].received.wait_for(lambda: cluster.nodes[0].append_messages)
    with pytest.raises(OutcomeUnknown, match="the client was closed"):
        await sent
    with pytest.raises(OutcomeUnknown):
        await producer.flush()


async def test_what_was_never_sent_under_a_name_was_not_appended(cluster: FakeCluster) -> None:
    async with client.connect(cluster.endpoints, timeout_ms=1_000) as log:
        producer = await log.producer("job").__aenter__()
        cluster.lead(None)
        [unsent] = await producer.enqueue_many([b"x"])
        flushing = asyncio.ensure_future(producer.flush())
        await log.close()
    with pytest.raises(DLedgerError) as refusal:
        await unsent
    assert (refusal.value.code, await outcome(flushing)) == (Code.SHUTTING_DOWN, Code.SHUTTING_DOWN)
    assert cluster.records() == []
