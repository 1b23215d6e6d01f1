"""Appends through a log that misbehaves: what callers see, and what is in the log afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from dledger import client
from dledger.client import pending, producer
from dledger.common.config import MIB, Limits
from dledger.common.errors import (
    Code,
    DeadlineExceeded,
    DiskFull,
    DLedgerError,
    InternalError,
    InvalidRequest,
    OutcomeUnknown,
    SequenceError,
    Unavailable,
    UnknownGroup,
    WrongExpectedIndex,
)
from tests.unit.client.fake_server import FakeCluster

TOO_LARGE_FOR_GRPC = bytes(5 * MIB)
"""The fake nodes have gRPC's usual limit."""


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


async def until_sent(cluster: FakeCluster, messages: int = 1) -> None:
    """Returns when the leader has got so many messages."""
    assert cluster.leader is not None
    leader = cluster.leader
    async with leader.received:
        await leader.received.wait_for(lambda: len(leader.append_messages) >= messages)


async def test_an_append_is_acknowledged_with_its_index_and_term(cluster: FakeCluster, log: client.Log) -> None:
    ack = await log.append(b"first")
    assert (ack.index, ack.term) == (0, cluster.term)
    assert cluster.records() == [b"first"]


async def test_appends_take_their_place_in_the_order_of_the_calls(cluster: FakeCluster, log: client.Log) -> None:
    records = numbered(3_000)
    acks = await asyncio.gather(*(log.enqueue(record) for record in records))
    assert [ack.index for ack in acks] == list(range(3_000))
    assert cluster.records() == records


async def test_what_gathers_while_batches_travel_shares_a_batch(cluster: FakeCluster, log: client.Log) -> None:
    await asyncio.gather(*(log.enqueue(record) for record in numbered(500)))
    assert len(cluster.batches) == 1


async def test_append_many_is_one_batch_of_its_own(cluster: FakeCluster, log: client.Log) -> None:
    before, many, after = log.enqueue(b"before"), log.enqueue_many(numbered(100)), log.enqueue(b"after")
    acks = await many
    assert [ack.index for ack in acks] == list(range(1, 101))
    assert ((await before).index, (await after).index) == (0, 101)
    assert [batch.count for batch in cluster.batches] == [1, 100, 1]


async def test_append_many_beyond_the_limit_of_a_batch_is_split_and_keeps_its_order(cluster: FakeCluster) -> None:
    limits = Limits(max_batch_bytes=1_000)
    records = [bytes([number]) * 100 for number in range(50)]
    async with client.connect(cluster.endpoints, limits=limits) as log:
        acks = await log.append_many(records)
    assert len(acks) == 50
    assert len(cluster.batches) > 1
    assert cluster.records() == records


async def test_a_follower_points_to_the_leader(cluster: FakeCluster) -> None:
    async with client.connect(cluster.nodes[2].address) as log:
        await log.append(b"x")
    assert cluster.nodes[0].append_messages


async def test_an_unreachable_endpoint_is_passed_over(cluster: FakeCluster) -> None:
    await cluster.nodes[1].stop()
    async with client.connect([cluster.nodes[1].address, cluster.nodes[2].address]) as log:
        assert (await log.append(b"x")).index == 0


async def test_a_change_of_leader_is_only_a_delay(cluster: FakeCluster, log: client.Log) -> None:
    await log.append(b"0")
    cluster.lead(cluster.nodes[2])
    assert (await log.append(b"1")).index == 1
    assert cluster.records() == numbered(2)


async def test_a_leader_that_dies_is_only_a_delay(cluster: FakeCluster, log: client.Log) -> None:
    await log.append(b"0")
    await cluster.nodes[0].stop()
    cluster.lead(None)
    pending = log.enqueue(b"1")
    await asyncio.sleep(0.05)
    cluster.lead(cluster.nodes[1])
    assert (await pending).index == 1


async def test_a_leader_that_falls_silent_is_left_once_another_leads(cluster: FakeCluster, log: client.Log) -> None:
    await log.append(b"0")
    cluster.faults.hold = asyncio.Event()
    pending = log.enqueue(b"1")
    await until_sent(cluster, 2)
    held, cluster.faults.hold = cluster.faults.hold, None
    cluster.lead(cluster.nodes[1])
    assert (await pending).index == 1
    held.set()


@pytest.mark.parametrize(
    "code",
    [
        Code.LEADER_PENDING_FULL,
        Code.LEADER_NOT_READY,
        Code.LEADER_TRANSFERRING,
        Code.SHUTTING_DOWN,
        Code.TERM_CHANGED,
        Code.WAIT_QUORUM_ACK_TIMEOUT,
        Code.OUT_OF_ORDER,
        Code.DISK_ERROR,
    ],
)
async def test_a_refusal_that_passes_is_only_a_delay(cluster: FakeCluster, log: client.Log, code: Code) -> None:
    cluster.faults.refuse_appends = [code, code]
    acks = await asyncio.gather(*(log.enqueue(record) for record in numbered(10)))
    assert [ack.index for ack in acks] == list(range(10))
    assert cluster.records() == numbered(10)


async def test_an_answer_that_is_lost_does_not_append_twice(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.drop_answers = 3
    acks = [await log.append(record) for record in numbered(5)]
    assert [ack.index for ack in acks] == list(range(5))
    assert cluster.records() == numbered(5)


async def test_a_resend_keeps_boundaries_and_sequences(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.hold = asyncio.Event()
    pending = log.enqueue_many(numbered(3)), log.enqueue(b"between"), log.enqueue_many(numbered(2))
    await until_sent(cluster)
    cluster.faults.drop_answers = 1
    cluster.faults.hold.set()
    await asyncio.gather(*pending)
    sent = {(producer, sequence): count for producer, sequence, count in cluster.nodes[0].append_messages}
    assert len(cluster.nodes[0].append_messages) > len(sent), "nothing was sent twice"
    assert list(sent.values()) == [3, 1, 2]
    assert [batch.base_sequence for batch in cluster.batches] == [0, 3, 4]
    assert {(m[0], m[1], m[2]) for m in cluster.nodes[0].append_messages} == {(p, s, c) for (p, s), c in sent.items()}


async def test_a_forgotten_producer_is_renewed_when_nothing_is_in_doubt(cluster: FakeCluster, log: client.Log) -> None:
    await log.append(b"0")
    cluster.faults.lose_producers = True
    assert (await log.append(b"1")).index == 1
    assert cluster.records() == numbered(2)


async def test_a_forgotten_producer_with_a_batch_in_doubt_leaves_the_outcome_unknown(
    cluster: FakeCluster, log: client.Log
) -> None:
    await log.append(b"0")
    cluster.faults.refuse_appends = [Code.TERM_CHANGED, Code.UNKNOWN_PRODUCER]
    with pytest.raises(OutcomeUnknown):
        await log.append(b"1")
    assert (await log.append(b"2")).index == 1
    assert cluster.records() == [b"0", b"2"]


@pytest.mark.parametrize("code", [Code.PRODUCER_FENCED, Code.SEQUENCE_CONFLICT, Code.REPEATED_REQUEST])
async def test_a_refused_sequence_is_a_typed_error_and_a_new_producer_follows(
    cluster: FakeCluster, log: client.Log, code: Code
) -> None:
    await log.append(b"0")
    cluster.faults.refuse_appends = [code]
    with pytest.raises(SequenceError) as refusal:
        await log.append(b"1")
    assert refusal.value.code is code
    await log.append(b"2")
    assert cluster.records() == [b"0", b"2"]
    assert len({batch.producer_id for batch in cluster.batches}) == 2


async def test_a_fence_that_a_batch_in_doubt_meets_leaves_its_outcome_unknown(
    cluster: FakeCluster, log: client.Log
) -> None:
    """It may have been appended before the newer epoch came."""
    await log.append(b"0")
    cluster.faults.refuse_appends = [Code.TERM_CHANGED, Code.PRODUCER_FENCED]
    with pytest.raises(OutcomeUnknown):
        await log.append(b"1")
    assert (await log.append(b"2")).index == 1
    assert cluster.records() == [b"0", b"2"]


async def test_what_grpc_itself_refuses_leaves_unknown_what_was_under_way_and_the_next_append_works(
    cluster: FakeCluster,
) -> None:
    """It ends the stream before the answers to what the leader has appended are heard."""
    cluster.faults.keeps_answers = True
    limits = Limits(max_record_bytes=6 * MIB, max_batch_bytes=6 * MIB)
    async with client.connect(cluster.endpoints, limits=limits) as log:
        calls = []
        for number, records in enumerate(([b"first"], [b"second"], [TOO_LARGE_FOR_GRPC])):
            await cluster.holds(number)
            calls.append(log.enqueue_many(records))
        for call in calls:
            with pytest.raises(OutcomeUnknown, match="larger than max"):
                await call
        cluster.faults.keeps_answers = False
        await log.append(b"next")
    assert cluster.records() == [b"first", b"second", b"next"]


async def test_a_bug_in_one_stream_of_appends_leaves_unknown_what_was_taken_and_the_next_append_works(
    cluster: FakeCluster, log: client.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bug:
        bug.setattr(producer, "encode_append", None)
        with pytest.raises(OutcomeUnknown):
            await log.append(b"met a bug")
    await log.append(b"next", timeout_ms=2_000)
    assert cluster.records() == [b"next"]


async def test_a_bug_in_making_a_batch_fails_its_calls_and_the_next_append_works(
    cluster: FakeCluster, log: client.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as bug:
        bug.setattr(pending, "build_body", None)
        with pytest.raises(InternalError):
            await log.append(b"met a bug")
    await log.append(b"next", timeout_ms=2_000)
    assert cluster.records() == [b"next"]


async def test_a_full_disk_refuses_the_batch_it_met_and_what_came_after_goes_on(
    cluster: FakeCluster, log: client.Log
) -> None:
    cluster.faults.refuse_appends = [Code.DISK_FULL]
    refused, later = log.enqueue_many(numbered(3)), log.enqueue_many(numbered(3, start=3))
    with pytest.raises(DiskFull):
        await refused
    await later
    assert cluster.records() == numbered(3, start=3)


async def test_while_the_disk_is_full_every_append_says_so_at_once(cluster: FakeCluster, log: client.Log) -> None:
    await log.append(b"0")
    cluster.faults.disk_full = True
    for _ in range(3):
        with pytest.raises(DiskFull):
            await log.append(b"x")
    cluster.faults.disk_full = False
    assert (await log.append(b"1")).index == 1


async def test_an_unknown_group_refuses_at_once(cluster: FakeCluster) -> None:
    async with client.connect(cluster.endpoints, group="nowhere") as log:
        with pytest.raises(UnknownGroup):
            await log.append(b"x")


async def test_a_record_never_sent_is_surely_absent_when_its_time_runs_out(
    cluster: FakeCluster, log: client.Log
) -> None:
    cluster.lead(None)
    with pytest.raises(DeadlineExceeded):
        await log.append(b"late", timeout_ms=100)
    cluster.lead(cluster.nodes[1])
    await log.append(b"next")
    assert cluster.records() == [b"next"]


async def test_a_record_sent_is_of_unknown_outcome_when_its_time_runs_out_and_keeps_its_place(
    cluster: FakeCluster, log: client.Log, leap: Callable[[float], None]
) -> None:
    cluster.faults.hold = asyncio.Event()
    slow = log.enqueue(b"slow", timeout_ms=60_000)
    await until_sent(cluster)
    leap(61)
    with pytest.raises(OutcomeUnknown):
        await slow
    later = log.enqueue(b"later")
    cluster.faults.hold.set()
    assert (await later).index == 1
    assert cluster.records() == [b"slow", b"later"]


async def test_each_call_has_its_own_timeout(cluster: FakeCluster, log: client.Log) -> None:
    cluster.lead(None)
    patient, hasty = log.enqueue(b"patient"), log.enqueue(b"hasty", timeout_ms=50)
    with pytest.raises(DeadlineExceeded):
        await hasty
    cluster.lead(cluster.nodes[0])
    await patient
    assert cluster.records() == [b"patient"]


async def test_a_call_cancelled_before_it_is_sent_is_not_appended(cluster: FakeCluster, log: client.Log) -> None:
    first, cancelled, last = log.enqueue(b"first"), log.enqueue(b"cancelled"), log.enqueue(b"last")
    many = log.enqueue_many([b"cancelled too"])
    cancelled.cancel()
    many.cancel()
    assert ((await first).index, (await last).index) == (0, 1)
    await log.append(b"end")
    assert cluster.records() == [b"first", b"last", b"end"]


async def test_close_waits_for_the_outcome_of_everything_pending(cluster: FakeCluster) -> None:
    async with client.connect(cluster.endpoints) as log:
        pending = [log.enqueue(record) for record in numbered(100)]
    assert [future.result().index for future in pending] == list(range(100))


async def test_close_tells_the_sent_from_the_unsent(cluster: FakeCluster) -> None:
    cluster.faults.hold = asyncio.Event()
    async with client.connect(cluster.endpoints, timeout_ms=300, max_batches_in_flight=1) as log:
        sent = log.enqueue(b"sent", timeout_ms=60_000)
        await until_sent(cluster)
        unsent = log.enqueue(b"unsent", timeout_ms=60_000)
    assert isinstance(sent.exception(), OutcomeUnknown)
    failure = unsent.exception()
    assert isinstance(failure, DLedgerError)
    assert failure.code is Code.SHUTTING_DOWN
    cluster.faults.hold.set()


async def test_nothing_is_taken_after_close(cluster: FakeCluster) -> None:
    async with client.connect(cluster.endpoints) as log:
        await log.append(b"x")
    with pytest.raises(DLedgerError) as refusal:
        log.enqueue(b"y")
    assert refusal.value.code is Code.SHUTTING_DOWN


@pytest.mark.parametrize("seed", range(4))
async def test_under_random_faults_nothing_is_lost_doubled_or_reordered(cluster: FakeCluster, seed: int) -> None:
    cluster.faults.chaos = random.Random(seed)
    acks: list[tuple[int, int, int]] = []

    async def write(log: client.Log, writer: int) -> None:
        for number in range(40):
            ack = await log.append(b"%d/%d" % (writer, number))
            acks.append((ack.index, writer, number))

    async with client.connect(cluster.endpoints, timeout_ms=30_000, rng=random.Random(seed)) as log:
        await asyncio.gather(*(write(log, writer) for writer in range(8)))
    records = cluster.records()
    assert sum(len(node.append_messages) for node in cluster.nodes) > len(cluster.batches), "nothing was resent"
    assert len(records) == len(set(records)) == len(acks)
    assert all(records[index] == b"%d/%d" % (writer, number) for index, writer, number in acks)
    for writer in range(8):
        mine = [index for index, who, _ in acks if who == writer]
        assert mine == sorted(mine)


# Conditional appends ------------------------------------------------------------------------------------------------


async def test_a_conditional_append_gets_its_index_or_is_refused(cluster: FakeCluster, log: client.Log) -> None:
    await log.append(b"a")
    assert (await log.append(b"b", expect_index=1)).index == 1
    with pytest.raises(WrongExpectedIndex) as refused:
        await log.append_many([b"c", b"d"], expect_index=1)
    assert refused.value.next_index == 2
    assert (await log.append_many([b"c", b"d"], expect_index=2)).first_index == 2
    assert cluster.records() == [b"a", b"b", b"c", b"d"]


async def test_a_refused_conditional_append_takes_no_sequence_and_no_new_producer(
    cluster: FakeCluster, log: client.Log
) -> None:
    for wrong in (4, 5, 6):
        with pytest.raises(WrongExpectedIndex):
            await log.append(b"x", expect_index=wrong)
    await log.append(b"y", expect_index=0)
    messages = cluster.nodes[0].append_messages
    assert {(producer, sequence) for producer, sequence, _ in messages} == {(messages[0][0], 0)}
    assert (cluster.batches[0].producer_id, cluster.batches[0].base_sequence) == (messages[0][0], 0)


async def test_conditional_appends_travel_one_by_one_in_the_order_of_the_calls(
    cluster: FakeCluster, log: client.Log
) -> None:
    acks = await asyncio.gather(*(log.enqueue(b"%d" % index, expect_index=index) for index in range(20)))
    assert [ack.index for ack in acks] == list(range(20))
    assert [batch.count for batch in cluster.batches] == [1] * 20


async def test_conditional_calls_of_many_records_share_no_batch(cluster: FakeCluster, log: client.Log) -> None:
    calls = [log.enqueue_many([b"a", b"b"], expect_index=index) for index in (0, 2, 4)]
    assert [acks.first_index for acks in await asyncio.gather(*calls)] == [0, 2, 4]
    assert [batch.count for batch in cluster.batches] == [2, 2, 2]


async def test_what_is_behind_a_refused_conditional_append_has_its_own_answer(log: client.Log) -> None:
    refused, right = log.enqueue(b"x", expect_index=7), log.enqueue(b"y", expect_index=0)
    with pytest.raises(WrongExpectedIndex):
        await refused
    assert (await right).index == 0


async def test_a_conditional_append_whose_answer_is_lost_is_not_refused(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.drop_answers = 2
    assert (await log.append(b"a", expect_index=0)).index == 0
    assert (await log.append(b"b", expect_index=1)).index == 1
    assert cluster.records() == [b"a", b"b"]


async def test_a_conditional_append_is_exact_through_any_trouble(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.chaos = random.Random(11)
    for number in range(40):
        assert (await log.append(b"%d" % number, expect_index=number)).index == number
        with pytest.raises(WrongExpectedIndex):
            await log.append(b"x", expect_index=number)
    assert cluster.records() == numbered(40)


async def test_a_refusal_settles_a_doubt_when_the_log_has_passed_the_index(
    cluster: FakeCluster, log: client.Log
) -> None:
    """An earlier attempt that is still on its way is refused as well."""
    await cluster.fill([b"a", b"b"])
    cluster.faults.break_streams = 1
    with pytest.raises(WrongExpectedIndex) as refused:
        await log.append(b"x", expect_index=1)
    assert refused.value.next_index == 2


async def test_a_refusal_leaves_the_doubt_while_the_log_may_still_come_to_the_index(
    cluster: FakeCluster, log: client.Log
) -> None:
    """An earlier attempt that is still on its way may be appended then."""
    cluster.faults.break_streams = 1
    with pytest.raises(OutcomeUnknown):
        await log.append(b"x", expect_index=3)
    assert (await log.append(b"y", expect_index=0)).index == 0
    first, second, third = (producer for producer, _, _ in cluster.nodes[0].append_messages)
    assert first == second != third


@pytest.mark.parametrize("impossible", [-1, 1.5, "3", True, 1 << 63])
async def test_what_can_be_no_index_is_refused_at_the_call(log: client.Log, impossible: int) -> None:
    with pytest.raises(InvalidRequest):
        log.enqueue(b"x", expect_index=impossible)
    with pytest.raises(InvalidRequest):
        log.enqueue_many([b"x"], expect_index=impossible)


async def test_a_conditional_call_that_would_be_several_batches_is_refused(cluster: FakeCluster) -> None:
    limits = Limits(max_batch_bytes=100, max_record_bytes=50)
    async with client.connect(cluster.endpoints, limits=limits) as log:
        with pytest.raises(InvalidRequest, match="one batch") as refused:
            log.enqueue_many([bytes(40)] * 3, expect_index=0)
        assert refused.value.code is Code.BATCH_TOO_LARGE


async def test_closing_waits_for_conditional_appends_too(cluster: FakeCluster) -> None:
    async with client.connect(cluster.endpoints) as log:
        calls = [log.enqueue(b"%d" % index, expect_index=index) for index in range(3)]
    assert [(await call).index for call in calls] == [0, 1, 2]


async def test_the_end_of_a_client_tells_of_conditional_appends(cluster: FakeCluster) -> None:
    log = client.connect(cluster.endpoints)
    await log.__aenter__()
    cluster.faults.hold = asyncio.Event()
    sent, queued = log.enqueue(b"a", expect_index=0), log.enqueue(b"b", expect_index=1)
    await until_sent(cluster)
    await log.give_up()
    with pytest.raises(OutcomeUnknown):
        await sent
    with pytest.raises(DLedgerError) as refused:
        await queued
    assert refused.value.code is Code.SHUTTING_DOWN
    cluster.faults.hold.set()


def test_the_blocking_client_appends_conditionally_too() -> None:
    async def serve(run: Callable[[str], None]) -> FakeCluster:
        cluster = FakeCluster()
        cluster.lead(await cluster.add_node())
        try:
            await asyncio.to_thread(run, cluster.endpoints)
        finally:
            await cluster.nodes[0].stop()
        return cluster

    def run(endpoints: str) -> None:
        with client.connect_blocking(endpoints) as log:
            assert log.append(b"a", expect_index=0).index == 0
            assert log.append_many([b"b", b"c"], expect_index=1).first_index == 1
            with pytest.raises(WrongExpectedIndex) as refused:
                log.append(b"d", expect_index=1)
            assert refused.value.next_index == 3

    assert asyncio.run(serve(run)).records() == [b"a", b"b", b"c"]


async def test_calls_can_be_made_tasks_of(cluster: FakeCluster, log: client.Log) -> None:
    async with asyncio.TaskGroup() as tasks:
        one, many = tasks.create_task(log.append(b"x")), tasks.create_task(log.append_many([b"y", b"z"]))
    assert (one.result().index, many.result().first_index) == (0, 1)
    assert (await asyncio.create_task(log.get(2))).value == b"z"
    assert cluster.records() == [b"x", b"y", b"z"]


async def test_calls_go_on_after_the_program_cancelled_all_tasks_of_its_loop(
    cluster: FakeCluster, log: client.Log
) -> None:
    await log.append(b"before")
    await log.get(0)
    cluster.lead(None)
    waiting: list[asyncio.Future[Any]] = [log.enqueue(b"waiting"), asyncio.ensure_future(log.get(0))]
    await asyncio.sleep(0.05)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_name().startswith("dledger-"):
            task.cancel()
    async with asyncio.timeout(5):
        told = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, Unavailable | OutcomeUnknown) for each in told), told
    cluster.lead(cluster.nodes[0])
    async with asyncio.timeout(10):
        assert (await log.append(b"after")).index >= 1
        assert (await log.get(0)).value == b"before"
        assert (await log.append(b"x", expect_index=len(cluster.records()))).index >= 2
