"""The leader's intake: what shares a frame, what is refused, and what is told twice."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable

import pytest

from dledger.common.batch import build_body, crc32c
from dledger.common.config import Limits
from dledger.common.errors import Code, DLedgerError, ProducersFull, Unavailable, error
from dledger.common.types import DiskState
from dledger.group.leader.append_coalescer import MAX_GATHER_S
from dledger.group.leader.appender import Source
from dledger.group.leader.quorum_ack_checker import AppendResult
from dledger.log.frame import producers
from dledger.log.frame.control import read_control
from dledger.log.frame.frame import ControlKind
from dledger.log.frame.producers import RANGES_KEPT
from dledger.raft.messages import Append
from dledger.testing.network_faults import Rule
from tests.support.cluster import SimCluster, SimNode, outcome
from tests.support.virtual_time import settle, virtual_time
from tests.unit.group.logs import BrokenLog, FailsOnceLog, FullLog

Future = asyncio.Future[AppendResult]


def batch(
    node: SimNode,
    *records: bytes,
    producer: int = 0,
    sequence: int = 0,
    epoch: int = 0,
    crc_off_by: int = 0,
    behind: Future | None = None,
) -> Future:
    """A ready-made batch, as a stream brings it. Raises when it is refused at once."""
    body = build_body(records)
    crc = crc32c(body) + crc_off_by
    return node.replica.appender.append_body(body, crc, len(records), Source(producer, epoch, sequence), behind)


async def producer_of(leader: SimNode) -> int:
    return (await leader.replica.appender.new_producer()).base_index


def data_frames(node: SimNode) -> list[list[bytes]]:
    """How many records each data frame holds."""
    return [[b""] * frame.header.count for frame in node.frames() if frame.header.count]


def stop_pushes(cluster: SimCluster) -> Rule:
    return cluster.faults.add(Rule(lambda _s, _t, m: isinstance(m, Append), drop_share=1))


# What a host program gives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["text", 7, None, array("i", [1, 2, 3])])
@virtual_time
async def test_what_is_no_record_is_refused_at_the_call_and_the_leader_goes_on(given: object) -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        for records in ([given], [b"whole", given]):
            with pytest.raises(DLedgerError, match="a record is bytes") as refused:
                leader.replica.appender.append_records(records)
            assert refused.value.code is Code.UNEXPECTED_ARGUMENT
        assert (await leader.append(b"next")).base_index == 0


@virtual_time
async def test_a_record_is_the_bytes_it_had_at_the_call_whatever_its_items() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        changing = bytearray(b"before")
        records: list[object] = [changing, memoryview(array("i", [1, 2, 3])), memoryview(b"a-b-c")[::2]]
        appended = leader.replica.appender.append_records(records)
        changing[:] = b"after!"
        records.clear()
        assert (await appended).count == 3
        await cluster.level()
        for node in cluster.up():
            assert node.records() == [b"before", array("i", [1, 2, 3]).tobytes(), b"abc"]


# Frames --------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_single_appends_of_one_turn_share_a_frame() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        futures = [leader.submit(b"a"), leader.submit(b"b", b"c"), leader.submit(b"d")]
        results = await asyncio.gather(*futures)
        assert [(result.base_index, result.count) for result in results] == [(0, 1), (1, 2), (3, 1)]
        assert [len(frame) for frame in data_frames(leader)] == [4]


@virtual_time
async def test_appends_of_different_turns_do_not() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        await leader.append(b"a")
        await leader.append(b"b")
        assert [len(frame) for frame in data_frames(leader)] == [1, 1]


@virtual_time
async def test_what_comes_while_a_shared_frame_is_under_way_gathers_for_the_next() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        futures = []
        for _ in range(4):
            futures.append(leader.submit(b"one by one"))
            await asyncio.sleep(0)
        results = await asyncio.gather(*futures)
        assert [result.base_index for result in results] == [0, 1, 2, 3]
        assert [len(frame) for frame in data_frames(leader)] == [1, 3]


@virtual_time
async def test_what_gathers_does_not_wait_for_a_quorum_that_is_not_there() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        stop_pushes(cluster)
        pending = [leader.submit(b"first")]
        await asyncio.sleep(0)
        pending += [leader.submit(b"second"), leader.submit(b"third")]
        await asyncio.sleep(2 * MAX_GATHER_S)
        assert [len(frame) for frame in data_frames(leader)] == [1, 2]
        assert await asyncio.gather(*map(outcome, pending)) == [Code.WAIT_QUORUM_ACK_TIMEOUT] * 3


@virtual_time
async def test_what_gathered_is_handed_over_too() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        first = leader.submit(b"first")
        await asyncio.sleep(0)
        second = leader.submit(b"second")
        await leader.replica.handover.transfer(cluster.others(leader)[0].id)
        assert [(await first).base_index, (await second).base_index] == [0, 1]


@virtual_time
async def test_callers_whose_appends_gather_count_as_pending() -> None:
    async with SimCluster(1, limits=Limits(max_pending_batches=3)) as cluster:
        leader = await cluster.leader()
        futures = [leader.submit(b"x") for _ in range(3)]
        with pytest.raises(DLedgerError, match="wait for a quorum") as refused:
            leader.submit(b"one too many")
        assert refused.value.code is Code.LEADER_PENDING_FULL
        await asyncio.gather(*futures)


@virtual_time
async def test_batches_keep_their_own_frames_and_share_the_write() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        await asyncio.gather(batch(leader, b"a", b"b"), leader.submit(b"c"), batch(leader, b"d"))
        assert sorted(len(frame) for frame in data_frames(leader)) == [1, 1, 2]


@virtual_time
async def test_a_shared_frame_is_closed_before_it_is_too_large() -> None:
    async with SimCluster(1, limits=Limits(max_batch_bytes=100)) as cluster:
        leader = await cluster.leader()
        await asyncio.gather(*(leader.submit(b"x" * 40) for _ in range(5)))
        assert [len(frame) for frame in data_frames(leader)] == [2, 2, 1]
        assert all(len(frame.body) <= 100 for frame in leader.frames() if frame.header.count)


@virtual_time
async def test_a_term_opens_with_a_no_op_that_carries_the_members_and_one_cluster_id_for_ever() -> None:
    async with SimCluster(3) as cluster:
        first = await cluster.leader()
        await first.replica.handover.transfer(cluster.others(first)[0].id)
        await cluster.level()
        opening = [frame for frame in first.frames() if frame.header.attributes == ControlKind.NO_OP]
        records = [read_control(frame) for frame in opening]
        assert len(records) == 2
        assert records[0].cluster_id
        assert records[0].cluster_id == records[1].cluster_id
        assert [member.id for member in records[1].members] == ["n0", "n1", "n2"]


@virtual_time
async def test_timestamps_never_run_backwards_when_the_clock_does() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        first = await leader.append(b"a")
        leader.replica.wall_clock_ms = lambda: 5
        second = await leader.append(b"b")
        assert second.timestamp_ms == first.timestamp_ms > 5


# Refusals ------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_bad_batches_are_refused_by_their_names_and_nothing_is_written() -> None:
    async with SimCluster(1, limits=Limits(max_record_bytes=10, max_batch_bytes=100)) as cluster:
        leader = await cluster.leader()
        appender = leader.replica.appender
        body = build_body([b"a"])
        refused: dict[Code, Callable[[], Future]] = {
            Code.REQUEST_WITH_EMPTY_BODYS: leader.submit,
            Code.RECORD_TOO_LARGE: lambda: leader.submit(b"x" * 11),
            Code.BATCH_TOO_LARGE: lambda: leader.submit(*[b"x"] * 100),
            Code.CORRUPT_BATCH: lambda: batch(leader, b"a", crc_off_by=1),
        }
        for code, attempt in refused.items():
            with pytest.raises(DLedgerError) as refusal:
                attempt()
            assert refusal.value.code is code
        with pytest.raises(DLedgerError) as refusal:
            appender.append_body(body, crc32c(body), 2)
        assert refusal.value.code is Code.CORRUPT_BATCH
        await settle()
        assert leader.records() == []


@virtual_time
async def test_a_full_disk_refuses_appends_and_takes_them_again_when_there_is_room() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        log = FullLog.of(leader.log)
        log.is_full = True
        assert await outcome(leader.append(b"x")) is Code.DISK_FULL
        assert leader.leads
        log.is_full = False
        await cluster.until(lambda: leader.replica.disk_watch.state is DiskState.OK, within_s=2)
        assert (await leader.append(b"x")).base_index == 0


@virtual_time
async def test_a_leader_elected_with_a_full_disk_opens_its_term_when_there_is_room() -> None:
    async with SimCluster(1, start=[]) as cluster:
        node = cluster[0]
        log = FullLog.of(node.log)
        log.is_full = True
        await node.start()
        await cluster.until(lambda: node.leads)
        await asyncio.sleep(1)
        with pytest.raises(Unavailable, match="its disk is full") as refused:
            await node.append(b"x")
        assert refused.value.code is Code.LEADER_NOT_READY
        with pytest.raises(Unavailable, match="its disk is full"):
            await node.get(0)
        log.is_full = False
        await cluster.leader(within_s=0.2)
        await cluster.until(lambda: node.replica.disk_watch.state is DiskState.OK, within_s=2)
        assert (await node.append(b"x")).base_index == 0
        assert [frame.header.attributes for frame in node.frames()] == [ControlKind.NO_OP, ControlKind.DATA]


@virtual_time
async def test_a_failed_sync_stops_the_node_and_leaves_the_outcome_unknown() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        pending = leader.submit(b"x")
        await asyncio.sleep(0)
        leader.log.fail_sync()
        assert await outcome(pending) is Code.TERM_CHANGED
        assert leader.failure is not None
        assert leader.failure.code is Code.DISK_ERROR
        leader.failure = None


@virtual_time
async def test_what_was_queued_when_the_leadership_went_was_surely_not_appended() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        pending = [leader.submit(b"x"), batch(leader, b"y"), leader.replica.appender.new_producer()]
        leader.replica.appender.close(error(Code.NOT_LEADER, "gone"))
        assert await asyncio.gather(*map(outcome, pending)) == [Code.NOT_LEADER] * 3
        await settle()
        assert leader.records() == []


@virtual_time
async def test_during_a_handover_appends_are_refused_and_afterwards_the_new_leader_takes_them() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        handover = asyncio.ensure_future(leader.replica.handover.transfer(None))
        await asyncio.sleep(0)
        assert await outcome(leader.append(b"x")) is Code.LEADER_TRANSFERRING
        await handover
        assert isinstance(await outcome((await cluster.leader()).append(b"x")), AppendResult)


# Producers -----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_producers_get_ids_of_their_own() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        ids = [await producer_of(leader) for _ in range(3)]
        assert len(set(ids)) == 3
        assert all(ids)


@virtual_time
async def test_sequences_of_one_turn_are_taken_in_their_order() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        futures = [batch(leader, b"%d" % at, producer=producer, sequence=at) for at in range(5)]
        assert [result.base_index for result in await asyncio.gather(*futures)] == list(range(5))


@virtual_time
async def test_a_gap_in_a_sequence_is_refused_and_the_rest_of_the_turn_is_judged_without_it() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        futures = [batch(leader, b"%d" % at, producer=producer, sequence=at) for at in (0, 2, 1)]
        first, gap, second = await asyncio.gather(*map(outcome, futures))
        assert gap is Code.OUT_OF_ORDER
        assert isinstance(first, AppendResult)
        assert isinstance(second, AppendResult)
        assert leader.committed() == [b"0", b"1"]


@pytest.mark.parametrize("in_one_turn", [True, False])
@virtual_time
async def test_behind_a_refused_batch_of_a_stream_nothing_of_that_stream_is_appended(in_one_turn: bool) -> None:
    """Also what would fit: the caller resends from the refused batch on, and finds its order kept."""
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        last, futures = None, []
        for at in (0, 7, 1, 2):
            last = batch(leader, b"%d" % at, producer=producer, sequence=at, behind=last)
            futures.append(last)
            if not in_one_turn:
                await settle()
        first, *refused = await asyncio.gather(*map(outcome, futures))
        assert isinstance(first, AppendResult)
        assert refused == [Code.OUT_OF_ORDER] * 3
        assert leader.committed() == [b"0"]


@virtual_time
async def test_a_duplicate_of_a_committed_batch_is_told_where_the_first_is() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        first = await batch(leader, b"a", b"b", producer=producer)
        await batch(leader, b"c", producer=producer, sequence=2)
        assert await batch(leader, b"a", b"b", producer=producer) == first
        assert leader.committed() == [b"a", b"b", b"c"]


@virtual_time
async def test_a_duplicate_of_the_same_turn_is_the_same_append() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        twice = [batch(leader, b"a", producer=producer) for _ in range(2)]
        first, second = await asyncio.gather(*twice)
        assert first == second
        assert leader.committed() == [b"a"]


@virtual_time
async def test_a_duplicate_of_a_pending_batch_waits_for_its_commit() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        rule = stop_pushes(cluster)
        first = batch(leader, b"a", producer=producer)
        await settle()
        second = batch(leader, b"a", producer=producer)
        await asyncio.sleep(0.1)
        assert not second.done()
        cluster.faults.remove(rule)
        assert await second == await first
        assert leader.committed() == [b"a"]


@virtual_time
async def test_a_retry_at_the_next_leader_waits_for_what_the_last_one_left_uncommitted() -> None:
    async with SimCluster(3) as cluster:
        old = await cluster.leader()
        producer = await producer_of(old)
        acks = cluster.faults.add(Rule(lambda _s, to, _m: to == old.id, drop_share=1))
        unknown = asyncio.ensure_future(outcome(batch(old, b"a", producer=producer)))
        await cluster.until(lambda: all(node.records() == [b"a"] for node in cluster.up()))
        old.crash()
        cluster.faults.remove(acks)
        await unknown
        new = await cluster.leader()
        result = await batch(new, b"a", producer=producer)
        assert result.base_index == 0
        assert (await batch(new, b"b", producer=producer, sequence=1)).base_index == 1
        assert new.committed() == [b"a", b"b"]


@virtual_time
async def test_other_bytes_under_a_known_sequence_and_an_unknown_producer_are_refused() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        await batch(leader, b"a", producer=producer)
        assert await outcome(batch(leader, b"b", producer=producer)) is Code.SEQUENCE_CONFLICT
        assert await outcome(batch(leader, b"a", producer=999)) is Code.UNKNOWN_PRODUCER
        assert leader.committed() == [b"a"]


# A disk that fails ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_written", [True, False])
@virtual_time
async def test_a_write_that_fails_in_an_unforeseen_way_leaves_nobody_waiting_and_nobody_told_it_failed(
    has_written: bool,
) -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        log = BrokenLog.of(leader.log)
        log.refusal, log.has_written = RuntimeError("what nobody thought of"), has_written
        outcomes = await asyncio.gather(*(outcome(leader.submit(b"%d" % at)) for at in range(3)))
        assert set(outcomes) == {Code.TERM_CHANGED}
        assert leader.failure is not None
        assert leader.failure.code is Code.INTERNAL_ERROR
        leader.failure = None


@virtual_time
async def test_a_refused_write_that_cannot_be_undone_is_of_unknown_outcome_and_stops_the_group() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        log = BrokenLog.of(leader.log)
        log.refusal, log.has_written = error(Code.TERM_CHANGED, "half of it may be there"), True
        assert await outcome(leader.submit(b"x")) is Code.TERM_CHANGED
        assert leader.failure is not None
        assert leader.failure.code is Code.DISK_ERROR, "what is asked later is surely not done"
        leader.failure = None


# Names --------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_two_that_ask_for_one_name_in_one_turn_get_the_same_producer() -> None:
    async with SimCluster(3) as cluster:
        appender = (await cluster.leader()).replica.appender
        first, second = await asyncio.gather(appender.named_producer("job"), appender.named_producer("job"))
        assert first == second == await appender.named_producer("job")


@virtual_time
async def test_a_name_outlives_its_leader() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        producer = await leader.replica.appender.named_producer("job")
        await batch(leader, b"x", producer=producer.id, epoch=3)
        await cluster.level()
        leader.crash()
        successor = await cluster.leader()
        assert await successor.replica.appender.named_producer("job") == (producer.id, 3)


@virtual_time
async def test_a_name_is_told_only_once_it_is_committed() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        await cluster.level()
        rule = stop_pushes(cluster)
        first = asyncio.ensure_future(leader.replica.appender.named_producer("job"))
        await settle()
        second = asyncio.ensure_future(leader.replica.appender.named_producer("job"))
        await settle()
        assert not first.done()
        assert not second.done()
        cluster.faults.remove(rule)
        assert await first == await second


async def repeated(leader: SimNode, producer: int) -> tuple[list[Future], Future]:
    """More batches than the log knows of a producer, and the first of them again."""
    pending = [batch(leader, b"%d" % n, producer=producer, sequence=n) for n in range(RANGES_KEPT + 1)]
    await settle()
    return pending, batch(leader, b"0", producer=producer, sequence=0)


@virtual_time
async def test_a_repeated_request_is_told_only_once_what_it_repeats_is_committed() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        held = stop_pushes(cluster)
        pending, again = await repeated(leader, producer)
        await settle()
        assert not again.done()
        cluster.faults.remove(held)
        await asyncio.gather(*pending)
        assert await outcome(again) is Code.REPEATED_REQUEST


@virtual_time
async def test_a_repeated_request_of_what_is_never_committed_is_of_unknown_outcome() -> None:
    async with SimCluster(3) as cluster:
        leader = await cluster.leader()
        producer = await producer_of(leader)
        stop_pushes(cluster)
        pending, again = await repeated(leader, producer)
        assert await outcome(again) is Code.WAIT_QUORUM_ACK_TIMEOUT
        await asyncio.gather(*pending, return_exceptions=True)


@virtual_time
async def test_a_producer_that_goes_for_one_registered_in_the_turn_of_its_append_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The least recently used one goes before its append, which is refused then, or not at all."""
    monkeypatch.setattr(producers, "MAX_ANONYMOUS", 3)
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        appender = leader.replica.appender
        oldest, other, _ = [(await appender.new_producer()).base_index for _ in range(3)]
        busy = batch(leader, b"under way", producer=other)  # what comes now shares a turn
        registered = appender.new_producer()
        row = batch(leader, b"row", producer=oldest)
        await asyncio.gather(busy, registered)
        assert await outcome(row) is Code.UNKNOWN_PRODUCER
        assert b"row" not in leader.records()


@virtual_time
async def test_a_log_that_keeps_no_further_name_refuses_one_and_goes_on_with_those_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "MAX_NAMED", 2)
    async with SimCluster(1) as cluster:
        appender = (await cluster.leader()).replica.appender
        known = [await appender.named_producer(f"job/{number}") for number in range(2)]
        with pytest.raises(ProducersFull, match="keeps the names of 2 producers"):
            await appender.named_producer("job/2")
        assert await appender.named_producer("job/0") == known[0]


@virtual_time
async def test_a_name_is_kept_when_its_week_is_over_in_the_turn_of_its_append() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        appender = leader.replica.appender
        named = await appender.named_producer("job")
        leader.submit(b"somebody's")  # what comes now shares a turn
        leader.clock_offset_ms += producers.PRODUCER_EXPIRY_MS
        before = leader.submit(b"of the next week")
        row = batch(leader, b"row", producer=named.id)
        await before
        told = await outcome(row)
        assert appender._log.state.producers.named("job") is not None or told is Code.UNKNOWN_PRODUCER


@virtual_time
async def test_a_producer_that_was_opened_a_moment_ago_is_known_though_nothing_was_written_for_a_week() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        appender = leader.replica.appender
        names = ("job/0", "job/1")
        for name in names:
            await appender.named_producer(name)
        leader.clock_offset_ms += producers.PRODUCER_EXPIRY_MS
        opened = [await appender.named_producer(name) for name in names]
        for each in opened:
            assert (await batch(leader, b"row", producer=each.id, epoch=1)).count == 1


@virtual_time
async def test_behind_a_write_that_ended_the_leadership_nothing_of_that_turn_is_written() -> None:
    async with SimCluster(1) as cluster:
        leader = await cluster.leader()
        producer, other = [await producer_of(leader) for _ in range(2)]
        leader.submit(b"under way")  # what comes now shares a turn
        log = FailsOnceLog.of(leader.log, error(Code.DISK_ERROR, "EIO, taken back"))
        appended = [
            batch(leader, b"a", producer=producer),
            batch(leader, b"b", producer=producer, sequence=1),
            batch(leader, b"c", producer=other),
        ]
        assert {await outcome(each) for each in appended} == {Code.DISK_ERROR}
        assert not log.written
        leader.failure = None
