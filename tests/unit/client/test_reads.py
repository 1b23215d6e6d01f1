"""get, read, read_batches and bounds against a log that misbehaves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from dledger import client
from dledger.client import getter
from dledger.client.append_queue import TICK_S
from dledger.client.results import Batch
from dledger.common.errors import (
    Code,
    CorruptLog,
    DLedgerError,
    InternalError,
    InvalidRequest,
    NotLeader,
    OutOfRange,
    PendingFull,
    Unavailable,
    UnknownMember,
)
from dledger.common.types import Consistency
from tests.unit.client.fake_server import FakeCluster, FakeNode


@pytest.fixture
async def filled(cluster: FakeCluster) -> FakeCluster:
    """Ten batches of ten records, 0 … 99."""
    for batch in range(10):
        await cluster.fill([b"%d" % (10 * batch + number) for number in range(10)])
    return cluster


def leader(cluster: FakeCluster) -> FakeNode:
    assert cluster.leader is not None
    return cluster.leader


async def indexes(batches: AsyncGenerator[Batch, None]) -> list[int]:
    return [entry.index async for batch in batches for entry in batch.entries()]


@pytest.mark.usefixtures("filled")
async def test_a_get_returns_the_record(log: client.Log) -> None:
    entry = await log.get(42)
    assert (entry.index, entry.value) == (42, b"42")


async def test_concurrent_gets_share_messages(filled: FakeCluster, log: client.Log) -> None:
    entries = await asyncio.gather(*(log.get(index) for index in range(100)))
    assert [entry.value for entry in entries] == [b"%d" % index for index in range(100)]
    assert leader(filled).get_messages <= 5


@pytest.mark.usefixtures("filled")
async def test_a_get_that_is_refused_does_not_disturb_the_others(log: client.Log) -> None:
    outside, inside = log.get(100), log.get(99)
    with pytest.raises(OutOfRange) as refusal:
        await outside
    assert refusal.value.metadata["commit_index"] == "99"
    assert (await inside).value == b"99"


async def test_a_get_of_a_trimmed_record_says_where_the_log_begins(filled: FakeCluster, log: client.Log) -> None:
    filled.first_index = 50
    with pytest.raises(OutOfRange) as refusal:
        await log.get(10)
    assert refusal.value.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN
    assert refusal.value.metadata == {"first_index": "50", "commit_index": "99"}


async def test_an_earlier_server_that_does_not_say_where_the_log_begins_is_understood(
    filled: FakeCluster, log: client.Log
) -> None:
    filled.first_index = 50
    filled.faults.tells_no_metadata = True
    with pytest.raises(OutOfRange) as refusal:
        await log.get(10)
    assert refusal.value.metadata == {"commit_index": "99"}


async def test_more_gets_than_can_wait_are_refused_at_once(
    cluster: FakeCluster, log: client.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getter, "MOST_QUEUED", 3)
    cluster.lead(None)
    waiting = [asyncio.create_task(log.get(0)) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(PendingFull):
        await log.get(0)
    for get in waiting:
        get.cancel()


@pytest.mark.parametrize("given_up", ["cancelled", "overdue"])
async def test_a_get_that_nobody_waits_for_any_more_makes_room_for_another(
    filled: FakeCluster, log: client.Log, monkeypatch: pytest.MonkeyPatch, given_up: str
) -> None:
    monkeypatch.setattr(getter, "MOST_QUEUED", 3)
    leader = filled.leader
    filled.lead(None)
    waiting = [asyncio.create_task(log.get(0, timeout_ms=10)) for _ in range(3)]
    await asyncio.sleep(0)
    if given_up == "cancelled":
        for get in waiting:
            get.cancel()
    await asyncio.wait(waiting)
    await asyncio.sleep(2 * TICK_S)
    another = asyncio.create_task(log.get(7))
    await asyncio.sleep(0)
    filled.lead(leader)
    assert (await another).value == b"7"
    assert all(get.cancelled() or get.exception() for get in waiting)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("index", [-1, 2**63, 1.5, "x", None, True])
async def test_what_can_be_no_index_is_refused_at_once_and_breaks_no_later_get(log: client.Log, index: Any) -> None:
    with pytest.raises(InvalidRequest):
        await log.get(index)
    assert (await log.get(7, timeout_ms=2_000)).value == b"7"


@pytest.mark.usefixtures("filled")
async def test_the_last_index_there_can_be_is_out_of_range(log: client.Log) -> None:
    with pytest.raises(OutOfRange):
        await log.get(2**63 - 1)


async def test_what_says_no_consistency_and_no_node_is_refused_at_once(log: client.Log) -> None:
    with pytest.raises(InvalidRequest):
        await log.get(0, "committed")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        await log.get(0, node=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout_ms", [0, -1, math.nan, math.inf, "1", True])
async def test_a_timeout_that_is_none_is_refused_at_once(log: client.Log, timeout_ms: Any) -> None:
    with pytest.raises(InvalidRequest):
        await log.get(0, timeout_ms=timeout_ms)
    with pytest.raises(InvalidRequest):
        await log.append(b"x", timeout_ms=timeout_ms)
    with pytest.raises(InvalidRequest):
        await log.append_many([b"x"], timeout_ms=timeout_ms)
    with pytest.raises(InvalidRequest):
        await indexes(log.read_batches(timeout_ms=timeout_ms))
    with pytest.raises(InvalidRequest):
        await log.admin.promote("n1", timeout_ms=timeout_ms)


@pytest.mark.usefixtures("filled")
async def test_a_bug_in_one_stream_of_gets_fails_who_waits_and_the_next_get_works(
    log: client.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bug:
        bug.setattr(getter, "WIRE_CONSISTENCY", {})
        with pytest.raises(InternalError):
            await log.get(0)
    assert (await log.get(1, timeout_ms=2_000)).value == b"1"


async def test_gets_of_large_records_fit_their_answers_to_a_message(cluster: FakeCluster, log: client.Log) -> None:
    await cluster.fill_large(40, 500_000)
    entries = await asyncio.gather(*(log.get(index) for index in range(40)))
    assert [entry.value[:1] for entry in entries] == [bytes([number]) for number in range(40)]


async def test_gets_survive_a_broken_stream_and_a_change_of_leader(filled: FakeCluster, log: client.Log) -> None:
    await log.get(0)
    filled.faults.break_gets = 2
    assert (await log.get(1)).value == b"1"
    filled.lead(filled.nodes[2])
    assert (await log.get(2)).value == b"2"


async def test_a_get_without_a_leader_ends_with_its_deadline(filled: FakeCluster, log: client.Log) -> None:
    filled.lead(None)
    with pytest.raises(Unavailable) as refusal:
        await log.get(0, timeout_ms=1_000)
    assert refusal.value.code is Code.LEADER_NOT_READY


async def test_a_committed_get_needs_no_leader(filled: FakeCluster, log: client.Log) -> None:
    filled.lead(None)
    assert (await log.get(5, Consistency.COMMITTED)).value == b"5"
    assert (await log.get(5, Consistency.COMMITTED, node="n2")).value == b"5"
    assert filled.nodes[2].get_messages >= 1


async def test_a_node_asked_by_name_answers_for_itself(filled: FakeCluster, log: client.Log) -> None:
    with pytest.raises(NotLeader):
        await log.get(5, node="n1")
    assert (await log.get(5, node=filled.nodes[0].address)).value == b"5"
    with pytest.raises(UnknownMember):
        await log.get(5, node="n9")


@pytest.mark.usefixtures("filled")
async def test_a_read_ends_at_the_commit_index(log: client.Log) -> None:
    assert await indexes(log.read_batches()) == list(range(100))
    assert [entry.value async for entry in log.read(97)] == [b"97", b"98", b"99"]


@pytest.mark.parametrize(
    ("start", "end"), [(0, 0), (5, 5), (5, 6), (13, 47), (20, 30), (99, 100), (50, 1_000), (100, None)]
)
@pytest.mark.usefixtures("filled")
async def test_a_read_gives_the_range_asked_and_nothing_else(log: client.Log, start: int, end: int | None) -> None:
    assert await indexes(log.read_batches(start, end)) == list(range(100))[start:end]


async def test_a_read_goes_on_after_each_break_without_a_gap_or_a_double(filled: FakeCluster, log: client.Log) -> None:
    filled.faults.break_reads_after = [0, 3, 0, 1, 5]
    assert await indexes(log.read_batches(4, 96)) == list(range(4, 96))
    assert not filled.faults.break_reads_after


async def test_a_read_that_breaks_still_ends_where_it_would_have(filled: FakeCluster, log: client.Log) -> None:
    filled.faults.break_reads_after = [2]
    seen = []
    async for batch in log.read_batches():
        seen += [entry.index for entry in batch.entries()]
        if len(seen) == 10:
            await filled.fill([b"appended after the call"])
    assert seen[:100] == list(range(100))


@pytest.fixture
async def one_behind(filled: FakeCluster) -> AsyncIterator[client.Log]:
    """A client that can ask the leader, which is gone after three batches, and n1, which knows of two."""
    filled.nodes[0].knows_batches = 3
    filled.nodes[1].knows_batches = 2
    nodes = ",".join(node.address for node in filled.nodes[:2])
    async with client.connect(nodes, timeout_ms=5_000) as log:
        yield log


async def read_until_the_leader_is_gone(cluster: FakeCluster, batches: AsyncGenerator[Batch, None]) -> list[int]:
    seen: list[int] = []
    async for batch in batches:
        seen += [entry.index for entry in batch.entries()]
        if len(seen) == 30:
            await cluster.nodes[0].stop()
            await cluster.nodes[2].stop()
    return seen


@pytest.mark.parametrize("end", [None, 80, 1_000])
async def test_a_committed_read_waits_for_a_node_that_is_behind_what_was_promised(
    filled: FakeCluster, one_behind: client.Log, end: int | None
) -> None:
    behind = filled.nodes[1]
    batches = one_behind.read_batches(0, end, consistency=Consistency.COMMITTED)
    reading = asyncio.create_task(read_until_the_leader_is_gone(filled, batches))
    await behind.has_ended_a_read.wait()
    behind.knows_batches = None
    assert await reading == list(range(end or 100))[:100]


async def test_a_committed_read_that_cannot_have_what_was_promised_ends_with_an_error(
    filled: FakeCluster, one_behind: client.Log
) -> None:
    batches = one_behind.read_batches(consistency=Consistency.COMMITTED, timeout_ms=1_500)
    with pytest.raises(Unavailable, match="does not know yet that the records up to 99 are committed"):
        await read_until_the_leader_is_gone(filled, batches)


@pytest.mark.usefixtures("filled")
async def test_a_follower_hears_of_what_is_appended_later(log: client.Log) -> None:
    entries = log.read(98, follow=True)
    assert [(await anext(entries)).index for _ in range(2)] == [98, 99]
    upcoming = asyncio.ensure_future(anext(entries))
    await log.append(b"new")
    assert (await upcoming).value == b"new"
    await entries.aclose()


async def test_a_follower_goes_on_after_a_change_of_leader(filled: FakeCluster, log: client.Log) -> None:
    entries = log.read(99, follow=True)
    assert (await anext(entries)).index == 99
    upcoming = asyncio.ensure_future(anext(entries))
    filled.lead(filled.nodes[1])
    await filled.nodes[0].stop()
    await log.append(b"new")
    assert (await upcoming).value == b"new"
    await entries.aclose()


@pytest.mark.parametrize("consistency", [Consistency.LINEARIZABLE, Consistency.COMMITTED])
async def test_a_follower_that_had_nothing_to_read_for_long_goes_on_after_a_change_of_leader(
    filled: FakeCluster, log: client.Log, leap: Callable[[float], None], consistency: Consistency
) -> None:
    entries = log.read(99, follow=True, consistency=consistency)
    assert (await anext(entries)).index == 99
    upcoming = asyncio.ensure_future(anext(entries))
    await asyncio.sleep(0)
    leap(60)
    filled.lead(filled.nodes[1])
    await filled.nodes[0].stop()
    await filled.fill([b"new"])
    assert (await upcoming).value == b"new"
    await entries.aclose()


async def test_what_a_reader_takes_for_a_batch_is_not_held_against_the_node(
    filled: FakeCluster, log: client.Log, leap: Callable[[float], None]
) -> None:
    filled.faults.break_reads_after = [1, 1, 1]
    found = []
    async for batch in log.read_batches():
        found += [entry.index for entry in batch.entries()]
        leap(60)
    assert found == list(range(100))


async def test_a_follower_leaves_a_silent_node_for_the_leader(filled: FakeCluster, log: client.Log) -> None:
    """As one that was cut off from the others and has not noticed."""
    entries = log.read(99, follow=True)
    assert (await anext(entries)).index == 99
    upcoming = asyncio.ensure_future(anext(entries))
    filled.nodes[0].reads_are_silent = True
    filled.lead(filled.nodes[1])
    await filled.fill([b"new"])
    assert (await upcoming).value == b"new"
    await entries.aclose()


async def test_a_follower_whose_client_is_closed_is_told_so(filled: FakeCluster) -> None:
    async with client.connect(filled.endpoints) as log:
        entries = log.read(99, follow=True)
        assert (await anext(entries)).index == 99
        upcoming = asyncio.ensure_future(anext(entries))
        await asyncio.sleep(0)
    with pytest.raises(Unavailable) as refusal:
        await upcoming
    assert refusal.value.code is Code.SHUTTING_DOWN


@pytest.mark.usefixtures("filled")
async def test_a_follower_with_an_end_stops_there(log: client.Log) -> None:
    assert await indexes(log.read_batches(90, 100, follow=True)) == list(range(90, 100))


async def test_rot_is_never_handed_on(filled: FakeCluster, log: client.Log) -> None:
    filled.faults.rot = True
    with pytest.raises(CorruptLog):
        await indexes(log.read_batches())


async def test_a_trimmed_start_is_refused_with_where_the_log_begins(filled: FakeCluster, log: client.Log) -> None:
    filled.first_index = 50
    with pytest.raises(OutOfRange) as refusal:
        await indexes(log.read_batches(10))
    assert refusal.value.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN
    assert refusal.value.metadata["first_index"] == "50"


async def test_a_range_that_ends_before_it_begins_is_refused_and_an_empty_one_is_not(log: client.Log) -> None:
    with pytest.raises(InvalidRequest, match="ends at 0, before it begins at 3"):
        await indexes(log.read_batches(3, 0))
    assert await indexes(log.read_batches(3, 3)) == []


async def test_bounds_are_what_the_leader_confirms(filled: FakeCluster, log: client.Log) -> None:
    filled.first_index = 20
    assert await log.bounds() == (20, 99)
    filled.lead(filled.nodes[2])
    assert await log.bounds() == (20, 99)
    filled.lead(None)
    with pytest.raises(DLedgerError):
        await log.bounds(timeout_ms=100)
    assert await log.bounds(Consistency.COMMITTED) == (20, 99)
